/* YAML text -> node tree, by libyaml's events, and back. Strict on purpose: one document, no anchors,
 * aliases or tags, no key twice, at most 1 MiB and 64 levels (libyaml 0.2.5 takes quadratic
 * time for deep nesting). What YAML makes of an unquoted `${`, `*` or `%` gets a message
 * that says: quote it. */
#include "loader/base/yaml.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "loader/base/mem.h"

#define MAX_DEPTH 64
#define MAX_KEYS  4096 /* of one mapping; each new key is compared with all */

#define MAX_COLUMN 116
#define MAX_FLOW   2 /* levels of lists and mappings on one line */

struct reader {
    yaml_parser_t parser;
    const char *text;
    size_t bytes;
    struct np_report *report;
    int depth;
};

/* --- what libyaml stumbled over -------------------------------------------------------------- */

/* The line (1-based) as it stands in the text; empty past the end. */
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

/* Column (1-based) of an unquoted `${` that stands inside braces or brackets, or 0. */
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

/* Where libyaml noticed it is often not where it is wrong: "seed:1", an open quote or bracket. */
static void add_mistake(struct reader *reader, int line, int column)
{
    const yaml_parser_t *parser = &reader->parser;
    const char *context = parser->context ? parser->context : "";
    const int began = (int)parser->context_mark.line + 1;

    if (strstr(context, "simple key"))
        np_report_add(reader->report, began, (int)parser->context_mark.column + 1,
            "not YAML: expected 'key: value', with a space after the colon");
    else if (began < line && (strstr(context, "quoted") || strstr(context, "flow")))
        np_report_add(reader->report, line, column, "not YAML: %s, %s that begins in line %d",
            parser->problem, context, began);
    else
        np_report_add(reader->report, line, column, "not YAML: %s",
            parser->problem ? parser->problem : "it cannot be understood from here on");
}

static void add_trap(struct reader *reader, int line, int column, char c)
{
    if (c == '\t')
        np_report_add(reader->report, line, column, "a tab; YAML is indented with spaces");
    else if (c == '*')
        np_report_add(reader->report, line, column,
            "a word that begins with * is an alias in YAML; quote it: \"*...\"");
    else if (c == '&' || c == '!')
        np_report_add(reader->report, line, column,
            "a word that begins with %c has a meaning of its own in YAML; quote it: \"%c...\"", c,
            c);
    else if (c && strchr("%@`|>", c))
        np_report_add(reader->report, line, column,
            "a word cannot begin with %c in YAML; quote it: \"%c...\"", c, c);
    else
        add_mistake(reader, line, column);
}

/* Bytes that are no text: libyaml gives an offset only. */
static void report_bytes(struct reader *reader)
{
    int line = 1, column = 1;

    for (size_t i = 0; i < reader->parser.problem_offset && i < reader->bytes; i++) {
        bool end = reader->text[i] == '\n';
        line += end;
        column = end ? 1 : column + 1;
    }
    np_report_add(reader->report, line, column, "not text: byte 0x%02x; a config is UTF-8 text",
        (unsigned)reader->parser.problem_value & 0xff);
}

static int report_problem(struct reader *reader)
{
    const yaml_parser_t *parser = &reader->parser;
    int line = (int)parser->problem_mark.line + 1, column = (int)parser->problem_mark.column + 1;
    char text[512];

    if (parser->error == YAML_MEMORY_ERROR)
        return -ENOMEM;
    if (parser->error == YAML_READER_ERROR) {
        report_bytes(reader);
        return -EINVAL;
    }
    copy_line(reader, line, text, sizeof(text));
    int dollar = unquoted_dollar(text);
    if (dollar) {
        np_report_add(reader->report, line, dollar,
            "${ inside braces or brackets must be quoted: \"${...}\"");
        return -EINVAL;
    }
    size_t length = strlen(text);
    char c = (size_t)column <= length ? text[column - 1] : 0;
    /* An alias or anchor without a name is noticed one character late. */
    if (parser->context &&
        (strstr(parser->context, "alias") || strstr(parser->context, "anchor"))) {
        line = (int)parser->context_mark.line + 1;
        column = (int)parser->context_mark.column + 1;
        copy_line(reader, line, text, sizeof(text));
        c = (size_t)column <= strlen(text) ? text[column - 1] : 0;
    }
    if (column == 1 && c == 0) /* "did not find expected ..." on the line after */
        c = '\n';
    add_trap(reader, line, column, c);
    return -EINVAL;
}

/* --- events -> nodes ------------------------------------------------------------------------- */

static int next_event(struct reader *reader, yaml_event_t *event)
{
    if (yaml_parser_parse(&reader->parser, event))
        return 0;
    return report_problem(reader);
}

static int refuse_extras(struct reader *reader, const yaml_event_t *event,
    const yaml_char_t *anchor, const yaml_char_t *tag)
{
    int line = (int)event->start_mark.line + 1, column = (int)event->start_mark.column + 1;

    if (anchor)
        np_report_add(reader->report, line, column,
            "&%s: anchors are not used here; if it is text, quote it", anchor);
    else if (tag)
        np_report_add(reader->report, line, column,
            "%s: tags are not used here; if it is text, quote it", tag);
    else
        return 0;
    return -EINVAL;
}

static int read_node(struct reader *reader, const yaml_event_t *event, struct np_node **ret_node);

/* The key event of a mapping is checked: a plain word, and not there yet. */
static int check_key(struct reader *reader, const struct np_node *map, const yaml_event_t *event)
{
    int line = (int)event->start_mark.line + 1, column = (int)event->start_mark.column + 1;

    if (event->type == YAML_ALIAS_EVENT) {
        add_trap(reader, line, column, '*');
        return -EINVAL;
    }
    if (event->type != YAML_SCALAR_EVENT) {
        np_report_add(reader->report, line, column, "a key must be a word");
        return -EINVAL;
    }
    if (map->nr_items >= MAX_KEYS) {
        np_report_add(reader->report, line, column, "more than %d keys in one mapping", MAX_KEYS);
        return -EINVAL;
    }
    const char *key = (const char *)event->data.scalar.value;
    if (strlen(key) != event->data.scalar.length) {
        np_report_add(reader->report, line, column, "a key must not hold a NUL byte");
        return -EINVAL;
    }
    const struct np_node *twice = np_node_get(map, key);
    if (twice) /* a mistake to report, not one to stop at */
        np_report_add(reader->report, line, column,
            "%.80s: this key stands here twice, first in line %d", key, twice->key_line);
    return refuse_extras(reader, event, event->data.scalar.anchor, event->data.scalar.tag);
}

static int read_items(struct reader *reader, struct np_node *node, yaml_event_type_t end)
{
    int code = 0;

    for (;;) {
        yaml_event_t event, key = {0};
        struct np_node *child = NULL;

        if ((code = next_event(reader, &event)) < 0)
            return code;
        if (event.type == end) {
            yaml_event_delete(&event);
            return 0;
        }
        if (node->kind == NP_NODE_MAP) {
            key = event;
            memset(&event, 0, sizeof(event));
            if ((code = check_key(reader, node, &key)) == 0)
                code = next_event(reader, &event);
        }
        if (code == 0)
            code = read_node(reader, &event, &child);
        if (code == 0 && key.type && np_node_get(node, (char *)key.data.scalar.value)) {
            np_node_free(child);
        } else if (code == 0) {
            code =
                np_node_try_add(node, key.type ? (char *)key.data.scalar.value : NULL, child, NULL);
            if (code == 0 && key.type) {
                child->key_line = (int)key.start_mark.line + 1;
                child->key_column = (int)key.start_mark.column + 1;
            }
        }
        yaml_event_delete(&key);
        yaml_event_delete(&event);
        if (code < 0)
            return code;
    }
}

static int read_scalar(struct reader *reader, const yaml_event_t *event, struct np_node *node)
{
    const char *text = (const char *)event->data.scalar.value;

    if (strlen(text) != event->data.scalar.length) {
        np_report_add(reader->report, node->line, node->column, "a NUL byte inside text");
        return -EINVAL;
    }
    node->text = np_try_strdup(text, NULL);
    if (!node->text)
        return -ENOMEM;
    node->quoted = event->data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
    return refuse_extras(reader, event, event->data.scalar.anchor, event->data.scalar.tag);
}

/* One value, from its first event to its last. The depth cap bounds the recursion. */
static int read_node(struct reader *reader, const yaml_event_t *event, struct np_node **ret_node)
{
    int line = (int)event->start_mark.line + 1, column = (int)event->start_mark.column + 1;
    enum np_node_kind kind = event->type == YAML_SCALAR_EVENT           ? NP_NODE_SCALAR
                             : event->type == YAML_SEQUENCE_START_EVENT ? NP_NODE_LIST
                                                                        : NP_NODE_MAP;
    int code;

    if (event->type == YAML_ALIAS_EVENT) {
        add_trap(reader, line, column, '*');
        return -EINVAL;
    }
    if (reader->depth == MAX_DEPTH) {
        np_report_add(reader->report, line, column, "nested deeper than %d levels", MAX_DEPTH);
        return -EINVAL;
    }
    struct np_node *node = np_node_try(kind, NULL, line, column, NULL);
    if (!node)
        return -ENOMEM;
    reader->depth++;
    if (kind == NP_NODE_SCALAR)
        code = read_scalar(reader, event, node);
    else if (kind == NP_NODE_LIST)
        code = refuse_extras(
            reader, event, event->data.sequence_start.anchor, event->data.sequence_start.tag);
    else
        code = refuse_extras(
            reader, event, event->data.mapping_start.anchor, event->data.mapping_start.tag);
    if (code == 0 && kind != NP_NODE_SCALAR)
        code = read_items(
            reader, node, kind == NP_NODE_LIST ? YAML_SEQUENCE_END_EVENT : YAML_MAPPING_END_EVENT);
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
        if (type == YAML_DOCUMENT_START_EVENT && nr_documents++ > 0) {
            np_report_add(reader->report, (int)event.start_mark.line + 1,
                (int)event.start_mark.column + 1, "a second document; one file is one config");
            code = -EINVAL;
        } else if (type != YAML_STREAM_START_EVENT && type != YAML_DOCUMENT_START_EVENT &&
                   type != YAML_DOCUMENT_END_EVENT && type != YAML_STREAM_END_EVENT) {
            code = read_node(reader, &event, &root);
        }
        yaml_event_delete(&event);
        if (code < 0 || type == YAML_STREAM_END_EVENT)
            break;
    }
    if (code == 0 && (!root || (root->kind == NP_NODE_SCALAR && !root->text[0] && !root->quoted))) {
        np_report_add(reader->report, 1, 1, "nothing in it");
        code = -EINVAL;
    }
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

    if (bytes > NP_YAML_MAX_BYTES) {
        np_report_add(report, 0, 0, "%zu bytes; a config has at most 1 MiB", bytes);
        return -EINVAL;
    }
    if (!yaml_parser_initialize(&reader.parser))
        return -ENOMEM;
    yaml_parser_set_encoding(&reader.parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&reader.parser, (const unsigned char *)text, bytes);
    int code = read_document(&reader, &root);
    yaml_parser_delete(&reader.parser);
    if (code == -ENOMEM)
        np_report_add(report, 0, 0, "out of memory");
    /* A key given twice leaves a usable tree: the caller can go on and find more. */
    *ret_node = root;
    if (code == -ENOMEM)
        return code;
    return report->nr_errs + report->nr_dropped > before ? -EINVAL : code;
}

/* --- nodes -> text --------------------------------------------------------------------------- */

/* Words that mean the same with and without quotes, wherever they stand. */
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

/* The node on one line, if it has few levels and fits behind column; caller frees. */
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

/* Behind "key:" or "-". */
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
            /* A named thing reads better as `- conv: {...}` than in braces of its own. */
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
