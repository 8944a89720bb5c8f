/* A node tree as YAML: block style, with short lists and mappings on one line. What is
 * printed parses back to the same tree. */
#include <stdlib.h>
#include <string.h>

#include "daemon/config/config.h"

#define MAX_COLUMN 116
#define MAX_FLOW   2 /* levels of lists and mappings on one line */

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
