/* YAML text -> node tree, by libyaml's events, and back. Strict on purpose: one document, no
 * anchors, aliases or tags, no key twice, at most 1 MiB and 64 levels (libyaml 0.2.5 needs
 * quadratic time for deep nesting). The message for an unquoted `${`, `*` or `%` advises quotes. */
#include "loader/base/yaml.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "loader/base/mem.h"

#define MAX_DEPTH 64
#define MAX_KEYS  4096 /* of one mapping; each new key is compared with all others */

#define MAX_COLUMN 116
#define MAX_FLOW   2 /* levels of lists and mappings on one line */

/* Report and place of a mark, for np_report_add(). */
#define AT(reader, mark) (reader)->report, (int)(mark).line + 1, (int)(mark).column + 1

struct reader {
    yaml_parser_t parser;
    const char *text;
    size_t bytes;
    struct np_report *report;
    int depth;
};

/* --- mistakes -------------------------------------------------------------------------------- */

/* Copies a line (1-based) of the text; "" past its end. */
static void copy_line(const struct reader *reader, int line, char *out, size_t out_bytes)
{
    const char *at = reader->text, *end = reader->text + reader->bytes;

    while (--line > 0 && at && at < end) {
        at = memchr(at, '\n', (size_t)(end - at));
        at = at ? at + 1 : end;
    }
    size_t n = 0;
    for (; at && at + n < end && at[n] != '\n' && n + 1 < out_bytes; n++)
        out[n] = at[n];
    out[n] = '\0';
}

/* Column (1-based) of an unquoted `${` inside braces or brackets, or 0. */
static int unquoted_dollar(const char *line)
{
    int nesting = 0;
    char quote = 0;

    for (int i = 0; line[i]; i++) {
        if (quote) {
            if (line[i] == quote)
                quote = 0;
        } else if ((line[i] == '"' || line[i] == '\'') &&
                   (i == 0 || strchr(" [{,:", line[i - 1]))) {
            quote = line[i];
        } else if (line[i] == '$' && line[i + 1] == '{' && nesting) {
            return i + 1;
        } else if (line[i] == '{' || line[i] == '[') {
            nesting++;
        }
    }
    return 0;
}

/* libyaml often finds a mistake behind its place: "seed:1", an open quote or bracket. */
static int add_mistake(struct reader *reader, int line, int column)
{
    const yaml_parser_t *parser = &reader->parser;
    const char *context = parser->context ? parser->context : "";
    const int began = (int)parser->context_mark.line + 1;

    if (strstr(context, "simple key"))
        return np_report_add(AT(reader, parser->context_mark),
            "not YAML: expected 'key: value', with a space after the colon");
    if (began < line && (strstr(context, "quoted") || strstr(context, "flow")))
        return np_report_add(reader->report, line, column,
            "not YAML: %s, %s that begins in line %d", parser->problem, context, began);
    return np_report_add(reader->report, line, column, "not YAML: %s",
        parser->problem ? parser->problem : "the text cannot be understood from here on");
}

/* c: the character at this place. */
static int add_trap(struct reader *reader, int line, int column, char c)
{
    if (c == '\t')
        return np_report_add(reader->report, line, column, "a tab; YAML is indented with spaces");
    if (c == '*')
        return np_report_add(reader->report, line, column,
            "a word that begins with * is an alias in YAML; quote it: \"*...\"");
    if (c == '&' || c == '!')
        return np_report_add(reader->report, line, column,
            "a word that begins with %c has a meaning of its own in YAML; quote it: \"%c...\"", c,
            c);
    if (c && strchr("%@`|>", c))
        return np_report_add(reader->report, line, column,
            "a word cannot begin with %c in YAML; quote it: \"%c...\"", c, c);
    return add_mistake(reader, line, column);
}

/* For bytes that are not UTF-8 libyaml gives only an offset. */
static int report_bytes(struct reader *reader)
{
    int line = 1, column = 1;

    for (size_t i = 0; i < reader->parser.problem_offset && i < reader->bytes; i++) {
        const bool end = reader->text[i] == '\n';

        line += end;
        column = end ? 1 : column + 1;
    }
    return np_report_add(reader->report, line, column,
        "not text: byte 0x%02x; a config is UTF-8 text",
        (unsigned)reader->parser.problem_value & 0xff);
}

static int report_problem(struct reader *reader)
{
    const yaml_parser_t *parser = &reader->parser;
    const char *context = parser->context ? parser->context : "";
    yaml_mark_t at = parser->problem_mark;
    char text[512];

    if (parser->error == YAML_MEMORY_ERROR)
        return -ENOMEM;
    if (parser->error == YAML_READER_ERROR)
        return report_bytes(reader);
    copy_line(reader, (int)at.line + 1, text, sizeof(text));
    const int dollar = unquoted_dollar(text);
    if (dollar)
        return np_report_add(reader->report, (int)at.line + 1, dollar,
            "${ inside braces or brackets must be quoted: \"${...}\"");
    /* libyaml finds an alias or anchor without a name one character late, */
    if (strstr(context, "alias") || strstr(context, "anchor")) {
        at = parser->context_mark;
        copy_line(reader, (int)at.line + 1, text, sizeof(text));
    }
    const char c = at.column < strlen(text) ? text[at.column] : 0;
    /* "did not find expected ..." has the line after the mistake. */
    return add_trap(
        reader, (int)at.line + 1, (int)at.column + 1, at.column == 0 && c == 0 ? '\n' : c);
}

/* --- events -> nodes ------------------------------------------------------------------------- */

static int next_event(struct reader *reader, yaml_event_t *event)
{
    return yaml_parser_parse(&reader->parser, event) ? 0 : report_problem(reader);
}

static int refuse_extras(struct reader *reader, const yaml_event_t *event,
    const yaml_char_t *anchor, const yaml_char_t *tag)
{
    if (anchor)
        return np_report_add(AT(reader, event->start_mark),
            "&%s: anchors are not used here; if it is text, quote it", anchor);
    if (tag)
        return np_report_add(AT(reader, event->start_mark),
            "%s: tags are not used here; if it is text, quote it", tag);
    return 0;
}

static int refuse_alias(struct reader *reader, const yaml_event_t *event)
{
    return add_trap(
        reader, (int)event->start_mark.line + 1, (int)event->start_mark.column + 1, '*');
}

static int read_node(struct reader *reader, const yaml_event_t *event, struct np_node **ret_node);

static int check_key(struct reader *reader, const struct np_node *map, const yaml_event_t *event)
{
    const char *key = (const char *)event->data.scalar.value;

    if (event->type == YAML_ALIAS_EVENT)
        return refuse_alias(reader, event);
    if (event->type != YAML_SCALAR_EVENT)
        return np_report_add(AT(reader, event->start_mark), "a key must be a word");
    if (map->nr_items >= MAX_KEYS)
        return np_report_add(
            AT(reader, event->start_mark), "more than %d keys in one mapping", MAX_KEYS);
    if (strlen(key) != event->data.scalar.length)
        return np_report_add(AT(reader, event->start_mark), "a key must not hold a NUL byte");
    const struct np_node *twice = np_node_get(map, key);
    if (twice) /* report has it, and parsing continues */
        np_report_add(AT(reader, event->start_mark),
            "%.80s: this key stands here twice, first in line %d", key, twice->key_line);
    return refuse_extras(reader, event, event->data.scalar.anchor, event->data.scalar.tag);
}

/* Adds the value to node, in a mapping under the key of its event; frees the second value of a
 * key. */
static int add_item(struct np_node *node, const yaml_event_t *key, struct np_node *child)
{
    const char *name = key->type ? (const char *)key->data.scalar.value : NULL;

    if (name && np_node_get(node, name)) {
        np_node_free(child);
        return 0;
    }
    if (np_node_try_add(node, name, child, NULL) < 0)
        return -ENOMEM;
    if (name) {
        child->key_line = (int)key->start_mark.line + 1;
        child->key_column = (int)key->start_mark.column + 1;
    }
    return 0;
}

static int read_items(struct reader *reader, struct np_node *node, yaml_event_type_t end)
{
    yaml_event_t event;
    int code;

    while ((code = next_event(reader, &event)) == 0 && event.type != end) {
        yaml_event_t key = {0};
        struct np_node *child = NULL;

        if (node->kind == NP_NODE_MAP) {
            key = event;
            memset(&event, 0, sizeof(event));
            if ((code = check_key(reader, node, &key)) == 0)
                code = next_event(reader, &event);
        }
        if (code == 0)
            code = read_node(reader, &event, &child);
        if (code == 0)
            code = add_item(node, &key, child);
        yaml_event_delete(&key);
        yaml_event_delete(&event);
        if (code < 0)
            return code;
    }
    if (code == 0)
        yaml_event_delete(&event);
    return code;
}

static int read_scalar(struct reader *reader, const yaml_event_t *event, struct np_node *node)
{
    const char *text = (const char *)event->data.scalar.value;

    if (strlen(text) != event->data.scalar.length)
        return np_report_add(AT(reader, event->start_mark), "a NUL byte inside text");
    node->text = np_try_strdup(text, NULL);
    node->quoted = event->data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
    return node->text
               ? refuse_extras(reader, event, event->data.scalar.anchor, event->data.scalar.tag)
               : -ENOMEM;
}

/* Reads one value, from its first event to its last. The depth limit bounds the recursion. */
static int read_node(struct reader *reader, const yaml_event_t *event, struct np_node **ret_node)
{
    const bool scalar = event->type == YAML_SCALAR_EVENT;
    const bool list = event->type == YAML_SEQUENCE_START_EVENT;
    const yaml_mark_t *at = &event->start_mark;
    int code;

    if (event->type == YAML_ALIAS_EVENT)
        return refuse_alias(reader, event);
    if (reader->depth == MAX_DEPTH)
        return np_report_add(AT(reader, *at), "nested deeper than %d levels", MAX_DEPTH);
    struct np_node *node = np_node_try(scalar ? NP_NODE_SCALAR
                                       : list ? NP_NODE_LIST
                                              : NP_NODE_MAP,
        NULL, (int)at->line + 1, (int)at->column + 1, NULL);
    if (!node)
        return -ENOMEM;
    reader->depth++;
    if (scalar)
        code = read_scalar(reader, event, node);
    else if (list)
        code = refuse_extras(
            reader, event, event->data.sequence_start.anchor, event->data.sequence_start.tag);
    else
        code = refuse_extras(
            reader, event, event->data.mapping_start.anchor, event->data.mapping_start.tag);
    if (code == 0 && !scalar)
        code = read_items(reader, node, list ? YAML_SEQUENCE_END_EVENT : YAML_MAPPING_END_EVENT);
    reader->depth--;
    if (code < 0)
        np_node_free(node);
    else
        *ret_node = node;
    return code;
}

/* Stream start, document start, one value, document end, stream end. */
static int read_document(struct reader *reader, struct np_node **ret_node)
{
    yaml_event_t event;
    struct np_node *root = NULL;
    int code, nr_documents = 0;

    for (;;) {
        if ((code = next_event(reader, &event)) < 0)
            break;
        yaml_event_type_t type = event.type;
        if (type == YAML_DOCUMENT_START_EVENT && nr_documents++ > 0)
            code = np_report_add(
                AT(reader, event.start_mark), "a second document; one file is one config");
        else if (type != YAML_STREAM_START_EVENT && type != YAML_DOCUMENT_START_EVENT &&
                 type != YAML_DOCUMENT_END_EVENT && type != YAML_STREAM_END_EVENT)
            code = read_node(reader, &event, &root);
        yaml_event_delete(&event);
        if (code < 0 || type == YAML_STREAM_END_EVENT)
            break;
    }
    if (code == 0 && (!root || np_node_is_empty(root)))
        code = np_report_add(reader->report, 1, 1, "it is empty");
    if (code < 0)
        np_node_free(root);
    else
        *ret_node = root;
    return code;
}

int np_yaml_parse(
    const char *text, size_t bytes, struct np_node **ret_node, struct np_report *report)
{
    struct reader reader = {.text = text, .bytes = bytes, .report = report};
    int before = report->nr_errs + report->nr_dropped;
    struct np_node *root = NULL;

    if (bytes > NP_YAML_MAX_BYTES)
        return np_report_add(report, 0, 0, "%zu bytes; a config has at most 1 MiB", bytes);
    if (!yaml_parser_initialize(&reader.parser))
        return -ENOMEM;
    yaml_parser_set_encoding(&reader.parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&reader.parser, (const unsigned char *)text, bytes);
    int code = read_document(&reader, &root);
    yaml_parser_delete(&reader.parser);
    if (code == -ENOMEM)
        np_report_no_memory(report);
    /* A key given twice leaves a usable tree, in which the caller can find more mistakes. */
    *ret_node = root;
    if (code == -ENOMEM)
        return code;
    return report->nr_errs + report->nr_dropped > before ? -EINVAL : code;
}

/* --- nodes -> text --------------------------------------------------------------------------- */

/* True: the words mean the same with and without quotes, wherever they stand. */
static bool plain(const struct np_node *node)
{
    static const char first[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_$/.+";
    static const char rest[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_$/.+-*%";
    const char *text = node->text;
    size_t length = strlen(text);
    bool negative = *text == '-' && length > 1 && text[1] >= '0' && text[1] <= '9';
    bool words = false; /* "1 epoch": a single space between words is fine */

    if (node->quoted || length == 0 || (!strchr(first, *text) && !negative))
        return false;
    for (size_t i = 1; i < length; i++) {
        bool space = text[i] == ' ';
        if (!space && !strchr(rest, text[i]))
            return false;
        if (space && (words || i + 1 == length || text[i + 1] == '-'))
            return false;
        words = space;
    }
    return strcmp(text, "...") != 0;
}

static void print_scalar(FILE *out, const struct np_node *node)
{
    if (plain(node)) {
        fputs(node->text, out);
        return;
    }
    fputc('"', out);
    for (const char *at = node->text; *at; at++) {
        unsigned char c = (unsigned char)*at;
        if (c == '"' || c == '\\')
            fprintf(out, "\\%c", c);
        else if (c == '\n')
            fputs("\\n", out);
        else if (c == '\t')
            fputs("\\t", out);
        else if (c < 0x20 || c == 0x7f)
            fprintf(out, "\\x%02x", c);
        else
            fputc(c, out);
    }
    fputc('"', out);
}

static void print_key(FILE *out, const char *key)
{
    struct np_node node = {.kind = NP_NODE_SCALAR, .text = (char *)key}; /* only read */

    print_scalar(out, &node);
}

static void print_flow(FILE *out, const struct np_node *node)
{
    if (node->kind == NP_NODE_SCALAR) {
        print_scalar(out, node);
        return;
    }
    fputc(node->kind == NP_NODE_LIST ? '[' : '{', out);
    for (int i = 0; i < node->nr_items; i++) {
        if (i)
            fputs(", ", out);
        if (node->kind == NP_NODE_MAP) {
            print_key(out, node->items[i]->key);
            fputs(": ", out);
        }
        print_flow(out, node->items[i]);
    }
    fputc(node->kind == NP_NODE_LIST ? ']' : '}', out);
}

static int levels(const struct np_node *node)
{
    int deepest = 0;

    for (int i = 0; i < node->nr_items; i++) {
        int below = levels(node->items[i]);
        deepest = below > deepest ? below : deepest;
    }
    return node->kind == NP_NODE_SCALAR ? 0 : deepest + 1;
}

/* The node on one line, if it has few levels and fits behind column. The caller frees it. */
static char *flow_text(const struct np_node *node, int column)
{
    char *text = NULL;
    size_t bytes = 0;

    if (levels(node) > MAX_FLOW)
        return NULL;
    FILE *out = open_memstream(&text, &bytes);
    if (!out)
        return NULL;
    print_flow(out, node);
    fclose(out);
    if (node->kind != NP_NODE_SCALAR && node->nr_items && (size_t)column + bytes > MAX_COLUMN) {
        free(text);
        return NULL;
    }
    return text;
}

static void print_block(FILE *out, const struct np_node *node, int indent, bool inline_first);

/* Prints behind "key:" or "-". */
static void print_value(FILE *out, const struct np_node *node, int indent, int column)
{
    char *text = flow_text(node, column);

    if (text)
        fprintf(out, " %s\n", text);
    else if (column == indent + 1 && node->kind == NP_NODE_MAP) { /* "- key: value" */
        fputc(' ', out);
        print_block(out, node, indent + 2, true);
    } else {
        fputc('\n', out);
        print_block(out, node, indent + 2, false);
    }
    free(text);
}

static void print_block(FILE *out, const struct np_node *node, int indent, bool inline_first)
{
    for (int i = 0; i < node->nr_items; i++) {
        const struct np_node *item = node->items[i];

        fprintf(out, "%*s", i == 0 && inline_first ? 0 : indent, "");
        if (node->kind == NP_NODE_LIST) {
            fputc('-', out);
            /* A named thing is easier to read as `- conv: {...}` than in braces of its own. */
            if (item->kind == NP_NODE_MAP && item->nr_items == 1) {
                fputc(' ', out);
                print_block(out, item, indent + 2, true);
            } else {
                print_value(out, item, indent, indent + 1);
            }
        } else {
            print_key(out, item->key);
            fputc(':', out);
            print_value(out, item, indent, indent + (int)strlen(item->key) + 2);
        }
    }
}

void np_node_print(FILE *out, const struct np_node *node)
{
    if (node->kind == NP_NODE_SCALAR || node->nr_items == 0) {
        print_flow(out, node);
        fputc('\n', out);
    } else {
        print_block(out, node, 0, false);
    }
}

char *np_node_yaml(const struct np_node *node, struct np_err *err)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);

    if (out)
        np_node_print(out, node);
    if (out && fclose(out) == 0)
        return text;
    free(text);
    np_err_set(err, -ENOMEM, "out of memory for a text of YAML");
    return NULL;
}
