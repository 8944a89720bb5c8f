/* See apply.h. One setting after the other: the text is parsed, the place found by the positions of its
 * nodes, a few bytes spliced, and the next setting finds the text as the last one left it. */
#include "daemon/profile/apply.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/config/config.h"
#include "loader/base/mem.h"
#include "loader/base/node.h"
#include "loader/base/yaml.h"

#define MAX_PATH_KEYS 32
#define MAX_SETTING   5000 /* a path of a data set, in quotes */

struct text {
    char *bytes; /* libc's; NUL behind */
    size_t nr;
};

/* "loader.cache=none", taken apart. */
struct setting {
    char words[MAX_SETTING];
    const char *keys[MAX_PATH_KEYS];
    int nr_keys;
    const char *value;
};

/* --- places ----------------------------------------------------------------------------------- */

/* Bytes of the line break at `at`, by YAML 1.1 (section 5.4); 0: none. */
static size_t break_bytes(const struct text *text, size_t at)
{
    static const char *const breaks[] = {
        "\r\n", "\r", "\n", "\xc2\x85", "\xe2\x80\xa8", "\xe2\x80\xa9"};

    for (size_t i = 0; i < sizeof(breaks) / sizeof(*breaks); i++) {
        const size_t n = strlen(breaks[i]);

        if (n <= text->nr - at && memcmp(text->bytes + at, breaks[i], n) == 0)
            return n;
    }
    return 0;
}

static size_t line_end(const struct text *text, size_t at)
{
    while (at < text->nr && break_bytes(text, at) == 0)
        at++;
    return at;
}

static size_t line_start(const struct text *text, size_t at)
{
    size_t start = 0;

    for (size_t i = 0; i < at;) {
        const size_t n = break_bytes(text, i);

        i += n ? n : 1;
        if (n && i <= at)
            start = i;
    }
    return start;
}

/* Lines and columns count from 1, columns in characters of UTF-8. */
static size_t offset_of(const struct text *text, int line, int column)
{
    size_t at = 0;

    for (; line > 1 && at < text->nr; line--) {
        at = line_end(text, at);
        at += at < text->nr ? break_bytes(text, at) : 0;
    }
    for (; column > 1 && at < text->nr; column--) {
        at++;
        while (at < text->nr && ((unsigned char)text->bytes[at] & 0xc0) == 0x80)
            at++;
    }
    return at;
}

static size_t value_start(const struct text *text, const struct np_node *node)
{
    return offset_of(text, node->line, node->column);
}

static size_t value_end(const struct text *text, const struct np_node *node)
{
    return offset_of(text, node->end_line, node->end_column);
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static size_t skip_blanks(const struct text *text, size_t at)
{
    while (at < text->nr && is_blank(text->bytes[at]))
        at++;
    return at;
}

/* Is there nothing from here to the line's end, or a comment? */
static bool ends_here(const struct text *text, size_t at)
{
    at = skip_blanks(text, at);
    return at == text->nr || break_bytes(text, at) > 0 || text->bytes[at] == '#';
}

static const char *line_break(const struct text *text)
{
    const size_t end = line_end(text, 0);

    return break_bytes(text, end) == 2 && text->bytes[end] == '\r' ? "\r\n" : "\n";
}

/* Mappings and lists in braces or brackets. */
static bool is_flow(const struct text *text, const struct np_node *node)
{
    const size_t at = value_start(text, node);

    return node->kind != NP_NODE_SCALAR && at < text->nr &&
           (text->bytes[at] == '{' || text->bytes[at] == '[');
}

static bool is_empty(const struct np_node *node)
{
    return node->kind == NP_NODE_SCALAR && !node->quoted && node->text[0] == '\0';
}

/* --- changes ---------------------------------------------------------------------------------- */

static int splice(
    struct text *text, size_t at, size_t nr_gone, const char *added, struct np_err *err)
{
    const size_t nr_added = strlen(added), nr = text->nr - nr_gone + nr_added;
    char *bytes = malloc(nr + 1);

    if (!bytes)
        return np_err_set(err, -ENOMEM, "out of memory");
    memcpy(bytes, text->bytes, at);
    memcpy(bytes + at, added, nr_added);
    memcpy(bytes + at + nr_added, text->bytes + at + nr_gone, text->nr - at - nr_gone);
    bytes[nr] = '\0';
    free(text->bytes);
    text->bytes = bytes;
    text->nr = nr;
    return 0;
}

static int splice_format(struct text *text, size_t at, struct np_err *err, const char *before,
    int indent, const char *key, const char *value)
{
    char *added = np_format("%s%*s%s: %s", before, indent, "", key, value);
    int code = added ? splice(text, at, 0, added, err) : np_err_set(err, -ENOMEM, "out of memory");

    np_free(added);
    return code;
}

/* Behind the colon of a node's key; the text's end: it is not found. */
static size_t behind_colon(const struct text *text, const struct np_node *node)
{
    size_t at = node->key ? offset_of(text, node->key_line, node->key_column) : text->nr;
    const char quote = at < text->nr ? text->bytes[at] : 0;

    if (quote == '"' || quote == '\'') {
        for (at++; at < text->nr && text->bytes[at] != quote; at++)
            ;
        at += at < text->nr;
    } else if (node->key && at + strlen(node->key) <= text->nr) {
        at += strlen(node->key);
    }
    at = skip_blanks(text, at);
    return at < text->nr && text->bytes[at] == ':' ? at + 1 : text->nr;
}

/* A mapping or list in lines of its own gives way to a value behind its key. */
static int replace_block(
    struct text *text, const struct np_node *node, const char *value, struct np_err *err)
{
    const size_t colon = behind_colon(text, node);
    const size_t last = line_end(text, value_end(text, node));
    size_t first = line_start(text, value_start(text, node));
    char *added = np_format(" %s", value);
    int code = 0;

    if (!added)
        return np_err_set(err, -ENOMEM, "out of memory");
    if (colon >= first)
        code = np_err_set(err, -EINVAL, "its value stands where it cannot be exchanged");
    while (code == 0 && break_bytes(text, first) == 0)
        first--; /* the line break before it goes too */
    if (code == 0 && first > 0 && text->bytes[first] == '\n' && text->bytes[first - 1] == '\r')
        first--;
    if (code == 0)
        code = splice(text, first, last - first, "", err);
    if (code == 0)
        code = splice(text, colon, 0, added, err);
    np_free(added);
    return code;
}

static int replace(
    struct text *text, const struct np_node *node, const char *value, struct np_err *err)
{
    const size_t start = value_start(text, node), end = value_end(text, node);

    if (node->kind != NP_NODE_SCALAR && !is_flow(text, node))
        return replace_block(text, node, value, err);
    if (node->quoted && (text->bytes[start] == '|' || text->bytes[start] == '>'))
        return np_err_set(err, -EINVAL, "its value is a text of lines, which is not exchanged");
    if (start == end && start > 0 && !is_blank(text->bytes[start - 1])) { /* KEY: and no more */
        int code = splice(text, start, 0, " ", err);

        return code ? code : splice(text, start + 1, 0, value, err);
    }
    return splice(text, start, end - start, value, err);
}

/* Into {...}: behind the last item, in a line of its own where that one has its own. */
static int add_to_flow(struct text *text, const struct np_node *map, const char *key,
    const char *value, struct np_err *err)
{
    const struct np_node *last = map->nr_items ? map->items[map->nr_items - 1] : NULL;
    size_t at = last ? value_end(text, last) : value_start(text, map) + 1;
    const size_t comma = skip_blanks(text, at);

    if (!last)
        return splice_format(text, at, err, "", 0, key, value);
    const int before = map->nr_items > 1 ? map->items[map->nr_items - 2]->end_line : map->line;
    if (last->key_line == before)
        return splice_format(text, at, err, ", ", 0, key, value);
    const bool has_comma = comma < text->nr && text->bytes[comma] == ',';
    at = has_comma ? comma + 1 : at;
    if (!has_comma) {
        int code = splice(text, at, 0, ",", err);

        if (code < 0)
            return code;
        at++;
    }
    if (ends_here(text, at))
        at = line_end(text, at);
    return splice_format(text, at, err, line_break(text), last->key_column - 1, key, value);
}

/* A line more, behind the last item's. */
static int add_to_block(struct text *text, const struct np_node *map, const char *key,
    const char *value, struct np_err *err)
{
    size_t at = value_end(text, map);

    while (at > 0 && (is_blank(text->bytes[at - 1]) || text->bytes[at - 1] == '\n' ||
                         text->bytes[at - 1] == '\r'))
        at--; /* a text of lines ends at the next line's start */
    if (!ends_here(text, at))
        return np_err_set(err, -EINVAL, "there is no room for it behind line %d", map->end_line);
    return splice_format(
        text, line_end(text, at), err, line_break(text), map->items[0]->key_column - 1, key, value);
}

/* --- one setting ------------------------------------------------------------------------------ */

static int take_apart(const char *text, struct setting *ret_setting, struct np_err *err)
{
    struct setting *s = ret_setting;
    char *equals, *rest = s->words;

    *s = (struct setting){.nr_keys = 0};
    if (snprintf(s->words, sizeof(s->words), "%s", text) >= (int)sizeof(s->words))
        return np_err_set(err, -EINVAL, "a setting of more than %d bytes", MAX_SETTING - 1);
    equals = strchr(s->words, '=');
    if (!equals || equals[1] == '\0')
        return np_err_set(err, -EINVAL, "'%s': expected KEY=VALUE", text);
    *equals = '\0';
    s->value = equals + 1;
    while (rest && s->nr_keys < MAX_PATH_KEYS)
        s->keys[s->nr_keys++] = strsep(&rest, ".");
    for (int i = 0; i < s->nr_keys; i++)
        if (rest || s->keys[i][0] == '\0')
            return np_err_set(err, -EINVAL, "'%s': not a key", text);
    return 0;
}

/* The value within the keys from `first` on: {every: {a: 1}}. np_free. */
static char *nested(const struct setting *s, int first)
{
    char *value = np_strdup(s->value);

    for (int i = s->nr_keys - 1; value && i >= first; i--) {
        char *outer = np_format("{%s: %s}", s->keys[i], value);

        np_free(value);
        value = outer;
    }
    return value;
}

static int parse(const struct text *text, struct np_node **ret_root, struct np_err *err)
{
    struct np_report report;
    int code;

    np_report_init(&report, NULL);
    *ret_root = NULL;
    code = np_yaml_parse(text->bytes, text->nr, ret_root, &report);
    if (code < 0 && report.nr_errs)
        code = np_err_set(err, -EINVAL, "line %d: %s", report.errs[0].line, report.errs[0].text);
    else if (code == 0 && (*ret_root)->kind != NP_NODE_MAP)
        code = np_err_set(err, -EINVAL, "a config is a mapping, and this is none");
    else if (code < 0)
        np_err_set(err, code, "out of memory");
    np_report_fini(&report);
    if (code < 0) {
        np_node_free(*ret_root);
        *ret_root = NULL;
    }
    return code;
}

static const struct np_node *item_of(const struct np_node *list, const char *key)
{
    char *end;
    const long i = strtol(key, &end, 10);

    return end != key && *end == '\0' && i >= 0 && i < list->nr_items ? list->items[i] : NULL;
}

/* At the deepest node that is there: changes it, or adds what is missing below it. */
static int change(
    struct text *text, const struct np_node *root, const struct setting *s, struct np_err *err)
{
    const struct np_node *node = root, *next;
    char *value;
    int i = 0, code;

    for (; i < s->nr_keys; i++, node = next) {
        next = node->kind == NP_NODE_MAP    ? np_node_get(node, s->keys[i])
               : node->kind == NP_NODE_LIST ? item_of(node, s->keys[i])
                                            : NULL;
        if (!next)
            break;
    }
    const bool adds = i < s->nr_keys && node->kind == NP_NODE_MAP;
    if (i < s->nr_keys && node->kind == NP_NODE_LIST)
        return np_err_set(
            err, -EINVAL, "'%s' is no item of the list in line %d", s->keys[i], node->line);
    /* `loss: cross_entropy` is short for `loss: {cross_entropy: {}}` */
    if (i < s->nr_keys && !adds && !is_empty(node) && strcmp(node->text, s->keys[i]) != 0)
        return np_err_set(err, -EINVAL, "there is no '%s' in '%.80s' of line %d", s->keys[i],
            node->text, node->line);
    value = nested(s, adds ? i + 1 : i);
    if (!value)
        return np_err_set(err, -ENOMEM, "out of memory");
    if (!adds)
        code = replace(text, node, value, err);
    else if (is_flow(text, node))
        code = add_to_flow(text, node, s->keys[i], value, err);
    else
        code = add_to_block(text, node, s->keys[i], value, err);
    np_free(value);
    return code;
}

/* --- holding it against -o -------------------------------------------------------------------- */

/* Do both say the same? Mappings whatever their order. */
static bool equal(const struct np_node *a, const struct np_node *b)
{
    if (!a || !b || a->kind != b->kind || a->nr_items != b->nr_items)
        return false;
    if (a->kind == NP_NODE_SCALAR)
        return a->quoted == b->quoted && strcmp(a->text, b->text) == 0;
    for (int i = 0; i < a->nr_items; i++)
        if (!equal(a->items[i],
                a->kind == NP_NODE_MAP ? np_node_get(b, a->items[i]->key) : b->items[i]))
            return false;
    return true;
}

static int override(struct np_node *root, const char *setting, struct np_err *err)
{
    struct np_report report;
    int code;

    np_report_init(&report, NULL);
    code = np_config_override(root, setting, 0, &report);
    if (code < 0)
        code =
            np_err_set(err, code, "%s", report.nr_errs ? report.errs[0].text : "it cannot be set");
    np_report_fini(&report);
    return code;
}

/* One setting into the text; `root` is the text's tree, and is changed as `-o` changes it. */
static int apply_one(struct text *text, struct np_node *root, const char *words, struct np_err *err)
{
    struct np_node *before = np_node_copy(root), *after = NULL;
    struct np_node *places = NULL;
    struct setting setting;
    struct np_err why = {0};
    int code = take_apart(words, &setting, err);

    if (code == 0)
        code = override(root, words, err);
    if (code == 0 && !equal(before, root)) {
        code = parse(text, &places, err);
        if (code == 0)
            code = change(text, places, &setting, err);
        if (code == 0 && (parse(text, &after, &why) < 0 || !equal(root, after)))
            code = np_err_set(err, -EINVAL,
                "the lines around it are laid out in a way that this cannot change safely%s%s",
                why.code ? ": " : "", why.text);
    }
    np_node_free(places);
    np_node_free(before);
    np_node_free(after);
    return code < 0 ? np_err_context(err, "%s", words) : 0;
}

int np_apply_text(const char *text, size_t bytes, const char *const *settings, int nr,
    char **ret_text, size_t *ret_bytes, struct np_err *err)
{
    struct text edited = {.bytes = malloc(bytes + 1), .nr = bytes};
    struct np_node *root = NULL;
    int code = 0;

    if (!edited.bytes)
        return np_err_set(err, -ENOMEM, "out of memory");
    memcpy(edited.bytes, text, bytes);
    edited.bytes[bytes] = '\0';
    code = parse(&edited, &root, err);
    for (int i = 0; i < nr && code == 0; i++)
        code = apply_one(&edited, root, settings[i], err);
    np_node_free(root);
    if (code < 0) {
        free(edited.bytes);
        return code;
    }
    *ret_text = edited.bytes;
    *ret_bytes = edited.nr;
    return 0;
}
