#include "loader/base/option.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "loader/base/mem.h"
#include "loader/base/text.h"

#define MAX_WORD  64
#define MAX_WORDS 32

static const char *const type_names[] = {"true or false", "a whole number",
    "a number of bytes (64M, 2G)", "a number", "a share (10% or 0.1)", "text", "a word",
    "a list of numbers", "a whole number or [height, width]", "a value"};

/* --- words -------------------------------------------------------------------------------- */

static int word_index(const char *words, const char *text)
{
    size_t length = strlen(text);

    for (int i = 0; words; i++) {
        const char *end = strchr(words, '|');
        size_t n = end ? (size_t)(end - words) : strlen(words);

        if (n == length && strncmp(words, text, n) == 0)
            return i;
        words = end ? end + 1 : NULL;
    }
    return -1;
}

static void word_at(const char *words, int index, char text[MAX_WORD])
{
    while (index-- > 0 && words && (words = strchr(words, '|')))
        words++;
    snprintf(text, MAX_WORD, "%.*s", words ? (int)strcspn(words, "|") : 0, words ? words : "");
}

static int nr_words(const char *words)
{
    int n = words != NULL;

    for (; words && (words = strchr(words, '|')); words++)
        n++;
    return n;
}

/* --- scalars ------------------------------------------------------------------------------- */

static bool parse_real(const char *text, double *ret_value)
{
    return np_text_real(text, -INFINITY, INFINITY, ret_value);
}

bool np_option_bytes(const char *text, int64_t *ret_value)
{
    static const char suffixes[] = "KMGT";
    double number, scale = 1;
    const char *suffix,
        *end = isdigit((unsigned char)*text) ? np_text_real_end(text, &number) : NULL;

    if (!end)
        return false;
    if (*end && (suffix = strchr(suffixes, toupper((unsigned char)*end)))) {
        scale = ldexp(1, 10 * (int)(suffix - suffixes + 1));
        end++;
        if (strcasecmp(end, "iB") == 0 || strcasecmp(end, "B") == 0)
            end += strlen(end);
    }
    if (*end || number * scale > 9e18)
        return false;
    *ret_value = (int64_t)(number * scale);
    return true;
}

static bool parse_share(const char *text, double *ret_value)
{
    char number[MAX_WORD];
    size_t length = strlen(text);

    if (length == 0 || length >= sizeof(number) || text[length - 1] != '%')
        return parse_real(text, ret_value);
    memcpy(number, text, length - 1);
    number[length - 1] = '\0';
    if (!parse_real(number, ret_value))
        return false;
    *ret_value /= 100;
    return true;
}

static bool parse_bool(const char *text, bool *ret_value)
{
    *ret_value = strcmp(text, "true") == 0;
    return *ret_value || strcmp(text, "false") == 0;
}

static void *field(const struct np_option *option, void *object)
{
    return (char *)object + option->offset;
}

static void mistake(struct np_report *report, const struct np_node *node,
    const struct np_option *option, const char *wanted)
{
    const char *text = node->kind == NP_NODE_SCALAR ? node->text
                       : node->kind == NP_NODE_LIST ? "a list"
                                                    : "a mapping";
    const char *quote = node->kind == NP_NODE_SCALAR ? "'" : "";

    np_report_add(report, node->line, node->column, "%s: expected %s, not %s%.80s%s", option->key,
        wanted, quote, text, quote);
}

static void out_of_range(
    struct np_report *report, const struct np_node *node, const struct np_option *option)
{
    if (option->max >= 1e15)
        np_report_add(report, node->line, node->column, "%s: %.40s is out of range: at least %.12g",
            option->key, node->text, option->min);
    else
        np_report_add(report, node->line, node->column, "%s: %.40s is out of range: %.12g to %.12g",
            option->key, node->text, option->min, option->max);
}

static bool in_range(const struct np_option *option, double value)
{
    return (option->min == 0 && option->max == 0) || (value >= option->min && value <= option->max);
}

/* Parses a number, or one of its words: the first word is -1, the next -2. */
static void parse_number(const struct np_option *option, const struct np_node *node, void *object,
    struct np_report *report)
{
    int word = option->words ? word_index(option->words, node->text) : -1;
    bool whole = option->type == NP_OPT_INT || option->type == NP_OPT_BYTES;
    int64_t integer = -1 - word;
    double real = (double)integer;
    bool good = true;
    char wanted[192], one[MAX_WORD];

    if (word < 0) {
        switch (option->type) {
        case NP_OPT_INT: good = np_text_int(node->text, INT64_MIN, INT64_MAX, &integer); break;
        case NP_OPT_BYTES: good = np_option_bytes(node->text, &integer); break;
        case NP_OPT_SHARE: good = parse_share(node->text, &real); break;
        default: good = parse_real(node->text, &real); break;
        }
        if (good && !in_range(option, whole ? (double)integer : real)) {
            out_of_range(report, node, option);
            return;
        }
    }
    if (!good) {
        snprintf(wanted, sizeof(wanted), "%s", type_names[option->type]);
        for (int i = 0; i < nr_words(option->words); i++) {
            word_at(option->words, i, one);
            snprintf(wanted + strlen(wanted), sizeof(wanted) - strlen(wanted), " or %s", one);
        }
        mistake(report, node, option, wanted);
    } else if (whole) {
        *(int64_t *)field(option, object) = integer;
    } else {
        *(double *)field(option, object) = real;
    }
}

/* "io: expected one of uring, pread, not 'pred'; did you mean 'pread'?" word NULL: node is not a
 * single name. */
static void wrong_word(const char *what, const struct np_node *node, const char *word,
    const char *const *words, struct np_report *report)
{
    const char *quote = word ? "'" : "",
               *other = node->kind == NP_NODE_LIST ? "a list" : "a mapping";
    char list[320] = "", suggestion[MAX_WORD + 32] = "";

    for (int i = 0; words[i]; i++)
        snprintf(list + strlen(list), sizeof(list) - strlen(list), "%s%s", i ? ", " : "", words[i]);
    if (word)
        np_suggest(word, words, NULL, suggestion, sizeof(suggestion));
    np_report_add(report, node->line, node->column, "%s: expected one of %s, not %s%.80s%s%s", what,
        list, quote, word ? word : other, quote, suggestion);
}

static void parse_word(const struct np_option *option, const struct np_node *node, void *object,
    struct np_report *report)
{
    const char *words[MAX_WORDS + 1] = {NULL};
    char copy[256], *rest = copy, *word;
    int index = word_index(option->words, node->text), n = 0;

    if (index >= 0) {
        *(int *)field(option, object) = index;
        return;
    }
    snprintf(copy, sizeof(copy), "%s", option->words);
    while (n < MAX_WORDS && (word = strsep(&rest, "|")))
        words[n++] = word;
    wrong_word(option->key, node, node->text, words, report);
}

static void parse_floats(const struct np_option *option, const struct np_node *node, void *object,
    struct np_report *report)
{
    struct np_floats *floats = field(option, object);
    const int word =
        option->words && node->kind == NP_NODE_SCALAR ? word_index(option->words, node->text) : -1;
    double *values;
    char wanted[128];

    if (word >= 0) {
        np_free(floats->values);
        *floats = (struct np_floats){NULL, -1 - word};
        return;
    }
    if (node->kind != NP_NODE_LIST) {
        snprintf(wanted, sizeof(wanted), "%s%s%s", type_names[NP_OPT_FLOATS],
            option->words ? " or " : "", option->words ? option->words : "");
        mistake(report, node, option, wanted);
        return;
    }
    values = np_try_array((size_t)node->nr_items, sizeof(*values), NULL);
    if (!values)
        np_report_no_memory(report);
    for (int i = 0; values && i < node->nr_items; i++) {
        const struct np_node *item = node->items[i];

        if (item->kind != NP_NODE_SCALAR || !parse_real(item->text, &values[i])) {
            mistake(report, item, option, "a number");
            break;
        }
        if (!in_range(option, values[i])) {
            out_of_range(report, item, option);
            break;
        }
    }
    np_free(floats->values);
    floats->values = values;
    floats->nr_values = values ? node->nr_items : 0;
}

/* One number for both, or a list of two. */
static void parse_pair(const struct np_option *option, const struct np_node *node, void *object,
    struct np_report *report)
{
    int64_t *pair = field(option, object);
    struct np_option one = *option;

    one.type = NP_OPT_INT;
    one.offset = 0;
    if (node->kind == NP_NODE_SCALAR) {
        parse_number(&one, node, &pair[0], report);
        pair[1] = pair[0];
        return;
    }
    one.words = NULL;
    if (node->kind != NP_NODE_LIST || node->nr_items != 2 ||
        node->items[0]->kind != NP_NODE_SCALAR || node->items[1]->kind != NP_NODE_SCALAR) {
        mistake(report, node, option, type_names[NP_OPT_PAIR]);
        return;
    }
    for (int i = 0; i < 2; i++)
        parse_number(&one, node->items[i], &pair[i], report);
}

static void parse_value(const struct np_option *option, const struct np_node *node, void *object,
    struct np_report *report)
{
    if (option->type == NP_OPT_NODE) {
        *(const struct np_node **)field(option, object) = node;
        return;
    }
    if (option->type == NP_OPT_FLOATS) {
        parse_floats(option, node, object, report);
        return;
    }
    if (option->type == NP_OPT_PAIR) {
        parse_pair(option, node, object, report);
        return;
    }
    if (node->kind != NP_NODE_SCALAR) {
        mistake(report, node, option, type_names[option->type]);
        return;
    }
    switch (option->type) {
    case NP_OPT_BOOL:
        if (!parse_bool(node->text, field(option, object)))
            mistake(report, node, option, type_names[NP_OPT_BOOL]);
        break;
    case NP_OPT_STRING:
        np_free(*(char **)field(option, object));
        if (!(*(char **)field(option, object) = np_try_strdup(node->text, NULL)))
            np_report_no_memory(report);
        break;
    case NP_OPT_WORD: parse_word(option, node, object, report); break;
    default: parse_number(option, node, object, report); break;
    }
}

/* Parses the default, written as in a file: "[1, 2]" for FLOATS. */
static void set_fallback(const struct np_option *option, void *object, struct np_report *report)
{
    struct np_node *node;

    if (option->type == NP_OPT_NODE)
        return;
    if (option->type != NP_OPT_FLOATS) {
        node = np_node_scalar(option->fallback, 0, 0);
    } else {
        char text[256], *rest = text;

        snprintf(text, sizeof(text), "%s", option->fallback);
        node = np_node_new(NP_NODE_LIST, 0, 0);
        for (char *word; (word = strsep(&rest, "[], "));)
            if (*word)
                np_node_add(node, NULL, np_node_scalar(word, 0, 0));
    }
    parse_value(option, node, object, report);
    np_node_free(node);
}

/* --- mappings ------------------------------------------------------------------------------ */

static void unknown_key(const struct np_option *table, const char *const *others,
    const struct np_node *item, const char *what, struct np_report *report)
{
    const char *keys[128];
    char suggestion[500];
    int n = 0;

    for (const struct np_option *option = table; option->key && n < 100; option++)
        keys[n++] = option->key;
    for (; others && *others && n < 127; others++)
        keys[n++] = *others;
    keys[n] = NULL;
    np_suggest(item->key, keys, "it takes", suggestion, sizeof(suggestion));
    np_report_add(report, item->key_line, item->key_column, "%s: unknown key in %s%s", item->key,
        what, suggestion);
}

static const struct np_option *find(const struct np_option *table, const char *key)
{
    for (; table->key; table++)
        if (strcmp(table->key, key) == 0)
            return table;
    return NULL;
}

int np_options_parse(const struct np_option *table, const struct np_node *map, const char *what,
    const char *const *others, void *object, struct np_report *report)
{
    int before = report->nr_errs + report->nr_dropped;

    if (np_node_is_empty(map))
        map = NULL;
    if (map && map->kind != NP_NODE_MAP) {
        np_report_add(report, map->line, map->column, "%s: expected a mapping (key: value), not %s",
            what, map->kind == NP_NODE_LIST ? "a list" : map->text);
        map = NULL;
        others = NULL;
    }
    for (int i = 0; map && i < map->nr_items; i++) {
        const struct np_node *item = map->items[i];

        if (!find(table, item->key) && !np_is_among(item->key, others))
            unknown_key(table, others, item, what, report);
    }
    for (const struct np_option *option = table; option->key; option++) {
        const struct np_node *node = np_node_get(map, option->key);

        if (option->fallback)
            set_fallback(option, object, report);
        if (node)
            parse_value(option, node, object, report);
        else if (!option->fallback && option->type != NP_OPT_NODE)
            np_report_add(report, map ? map->line : 0, map ? map->column : 0,
                "%s: the key '%s' is missing", what, option->key);
    }
    return report->nr_errs + report->nr_dropped > before ? -EINVAL : 0;
}

void np_options_fini(const struct np_option *table, void *object)
{
    for (; table->key; table++) {
        if (table->type == NP_OPT_STRING) {
            np_free(*(char **)field(table, object));
            *(char **)field(table, object) = NULL;
        } else if (table->type == NP_OPT_FLOATS) {
            struct np_floats *floats = field(table, object);

            np_free(floats->values);
            floats->values = NULL;
            floats->nr_values = 0;
        }
    }
}

/* A number, or the word for it. */
static struct np_node *value_of_int(const struct np_option *option, int64_t value)
{
    char text[MAX_WORD];

    if (option->words && value < 0)
        word_at(option->words, (int)(-1 - value), text);
    else
        snprintf(text, sizeof(text), "%lld", (long long)value);
    return np_node_scalar(text, 0, 0);
}

static struct np_node *value_node(const struct np_option *option, const void *object)
{
    const void *at = (const char *)object + option->offset;
    char text[MAX_WORD] = "";

    switch (option->type) {
    case NP_OPT_BOOL: return np_node_scalar(*(const bool *)at ? "true" : "false", 0, 0);
    case NP_OPT_STRING: {
        struct np_node *node = np_node_scalar(*(char *const *)at ? *(char *const *)at : "", 0, 0);

        node->quoted = node->text[0] == '\0';
        return node;
    }
    case NP_OPT_NODE: return np_node_copy(*(const struct np_node *const *)at);
    case NP_OPT_WORD: word_at(option->words, *(const int *)at, text); break;
    case NP_OPT_FLOATS: {
        const struct np_floats *floats = at;
        struct np_node *list;

        if (floats->nr_values < 0)
            return value_of_int(option, floats->nr_values);
        list = np_node_new(NP_NODE_LIST, 0, 0);
        for (int i = 0; i < floats->nr_values; i++) {
            np_text_of_real(floats->values[i], text);
            np_node_add(list, NULL, np_node_scalar(text, 0, 0));
        }
        return list;
    }
    case NP_OPT_PAIR: {
        const int64_t *pair = at;
        struct np_node *list;

        if (pair[0] == pair[1])
            return value_of_int(option, pair[0]);
        list = np_node_new(NP_NODE_LIST, 0, 0);
        for (int i = 0; i < 2; i++)
            np_node_add(list, NULL, value_of_int(option, pair[i]));
        return list;
    }
    case NP_OPT_INT:
    case NP_OPT_BYTES: return value_of_int(option, *(const int64_t *)at);
    case NP_OPT_FLOAT:
    case NP_OPT_SHARE:
        if (option->words && *(const double *)at < 0)
            word_at(option->words, (int)(-1 - *(const double *)at), text);
        else
            np_text_of_real(*(const double *)at, text);
        break;
    }
    return np_node_scalar(text, 0, 0);
}

struct np_node *np_options_node(const struct np_option *table, const void *object)
{
    struct np_node *map = np_node_new(NP_NODE_MAP, 0, 0);

    for (; table->key; table++) {
        struct np_node *value = value_node(table, object);

        if (value)
            np_node_add(map, table->key, value);
    }
    return map;
}

/* --- choices --------------------------------------------------------------------------------- */

const struct np_choice *np_choice_named(const struct np_choice *choices, const char *name)
{
    for (; choices->name; choices++)
        if (strcmp(choices->name, name) == 0)
            return choices;
    return NULL;
}

/* "optimizer: 'lr' is a key of sgd: optimizer: {sgd: {lr: ...}}": the name of the choice is
 * missing. */
static bool report_key(const struct np_choice *choices, const struct np_node *node,
    const char *what, struct np_report *report)
{
    const char *key = node->kind == NP_NODE_MAP && node->nr_items ? node->items[0]->key : NULL;

    for (; key && choices->name; choices++)
        if (find(choices->table, key)) {
            np_report_add(report, node->line, node->column,
                "%s: '%s' is a key of %s: %s: {%s: {%s: ...}}", what, key, choices->name, what,
                choices->name, key);
            return true;
        }
    return false;
}

int np_choice_find(const struct np_choice *choices, const struct np_node *node, const char *what,
    const char *fallback, const struct np_node **ret_args, struct np_report *report)
{
    const char *name = fallback, *words[MAX_WORDS + 1] = {NULL};
    const struct np_node *args = NULL;

    if (node && !np_node_named(node, &name, &args))
        name = NULL;
    const struct np_choice *found = name ? np_choice_named(choices, name) : NULL;
    if (found) {
        *ret_args = args;
        return (int)(found - choices);
    }
    for (int i = 0; i < MAX_WORDS && choices[i].name; i++)
        words[i] = choices[i].name;
    if (!report_key(choices, node, what, report))
        wrong_word(what, node, name, words, report);
    return -EINVAL;
}

struct np_node *np_choice_node(const struct np_choice *choice, const void *object)
{
    struct np_node *map = np_node_new(NP_NODE_MAP, 0, 0);

    np_node_add(map, choice->name, np_options_node(choice->table, object));
    return map;
}
