/* JSON for `--json`, metrics.jsonl and the facts of a checkpoint: a writer of one object per line,
 * and conversion between JSON and node trees. */
#ifndef NP_JSON_H
#define NP_JSON_H

#include <stdint.h>
#include <stdio.h>

#include "loader/base/err.h"
#include "loader/base/node.h"

/* An object that is being written. Reused for the next line, so that the steady state allocates
 * nothing. */
struct np_json {
    char *text; /* NUL-ended after np_json_end() */
    size_t used, room;
    bool failed; /* out of memory: nothing is written */
    bool line;
};

void np_json_fini(struct np_json *json);
/* Starts an object with "event": event (NULL: without). In a list, the key of an item is NULL. */
void np_json_begin(struct np_json *json, const char *event);
/* Bytes that are not UTF-8 become U+FFFD. text NULL: null. */
void np_json_text(struct np_json *json, const char *key, const char *text);
void np_json_int(struct np_json *json, const char *key, int64_t value);
void np_json_real(struct np_json *json, const char *key, double value); /* not finite: null */
void np_json_bool(struct np_json *json, const char *key, bool value);
void np_json_null(struct np_json *json, const char *key);
/* Plain scalars that look like JSON numbers or true, false are written without quotes, an empty one
 * as null. node NULL: null. */
void np_json_node(struct np_json *json, const char *key, const struct np_node *node);
void np_json_ints(struct np_json *json, const char *key, const int *values, int n);
/* Opens an inner object ('{') or list ('['), up to np_json_close() with '}' or ']'. */
void np_json_open(struct np_json *json, const char *key, char bracket);
void np_json_close(struct np_json *json, char bracket);
void np_json_line(struct np_json *json); /* the next key begins a new line */
/* Closes the object. Returns its line with the newline, or NULL if the writer failed. */
const char *np_json_end(struct np_json *json);
/* The same; the caller owns the text (np_free), and json is empty. NULL: -ENOMEM. */
char *np_json_take(struct np_json *json, struct np_err *err);
void np_json_print(
    struct np_json *json, FILE *out); /* writes np_json_end() to out; nothing if it failed */

/* Parses JSON into a node tree; strings become quoted scalars. -EBADMSG: not JSON, or nested too
 * deeply. */
int np_json_parse(const char *text, size_t bytes, struct np_node **ret_node, struct np_err *err);
/* The number under key of a mapping; fallback: there is none. */
double np_node_number(const struct np_node *map, const char *key, double fallback);

#endif
