/* Writing appends text; reading uses jansson. */
#include "loader/base/json.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <string.h>

#include "loader/base/mem.h"
#include "loader/base/text.h"

#define MAX_DEPTH 64

/* --- writing --------------------------------------------------------------------------------- */

void np_json_fini(struct np_json *json)
{
    np_free(json->text);
    memset(json, 0, sizeof(*json));
}

static bool reserve(struct np_json *json, size_t bytes)
{
    if (!json->failed)
        json->failed = np_try_grow(&json->text, &json->room, json->used + bytes + 1, 1, NULL) < 0;
    return !json->failed;
}

static void append(struct np_json *json, const char *text, size_t bytes)
{
    if (!reserve(json, bytes))
        return;
    memcpy(json->text + json->used, text, bytes);
    json->used += bytes;
    json->text[json->used] = '\0';
}

static void append_text(struct np_json *json, const char *text)
{
    append(json, text, strlen(text));
}

static void append_string(struct np_json *json, const char *text)
{
    append_text(json, "\"");
    while (*text) {
        int n = np_text_utf8(text);
        char escape[8];

        if (n == 0) {
            append_text(json, "\xef\xbf\xbd");
            n = 1;
        } else if (*text == '"' || *text == '\\') {
            snprintf(escape, sizeof(escape), "\\%c", *text);
            append_text(json, escape);
        } else if ((unsigned char)*text < 0x20) {
            snprintf(escape, sizeof(escape), "\\u%04x", (unsigned)*text);
            append_text(json, escape);
        } else {
            append(json, text, (size_t)n);
        }
        text += n;
    }
    append_text(json, "\"");
}

static void append_key(struct np_json *json, const char *key)
{
    char last = json->used ? json->text[json->used - 1] : '\0';

    if (last && last != '{' && last != '[')
        append_text(json, json->line ? "," : ", ");
    if (json->line)
        append_text(json, "\n  ");
    json->line = false;
    if (!key)
        return;
    append_string(json, key);
    append_text(json, ": ");
}

void np_json_begin(struct np_json *json, const char *event)
{
    json->used = 0;
    json->failed = false;
    json->line = false;
    append_text(json, "{");
    if (event)
        np_json_text(json, "event", event);
}

void np_json_null(struct np_json *json, const char *key)
{
    append_key(json, key);
    append_text(json, "null");
}

void np_json_text(struct np_json *json, const char *key, const char *text)
{
    if (!text) {
        np_json_null(json, key);
        return;
    }
    append_key(json, key);
    append_string(json, text);
}

void np_json_int(struct np_json *json, const char *key, int64_t value)
{
    char text[32];

    snprintf(text, sizeof(text), "%lld", (long long)value);
    append_key(json, key);
    append_text(json, text);
}

void np_json_real(struct np_json *json, const char *key, double value)
{
    char text[NP_REAL_TEXT];

    if (!isfinite(value)) {
        np_json_null(json, key);
        return;
    }
    np_text_of_real(value, text);
    append_key(json, key);
    append_text(json, text);
}

void np_json_bool(struct np_json *json, const char *key, bool value)
{
    append_key(json, key);
    append_text(json, value ? "true" : "false");
}

void np_json_ints(struct np_json *json, const char *key, const int *values, int n)
{
    append_key(json, key);
    append_text(json, "[");
    for (int i = 0; i < n; i++) {
        char text[24];
        snprintf(text, sizeof(text), "%s%d", i ? ", " : "", values[i]);
        append_text(json, text);
    }
    append_text(json, "]");
}

void np_json_open(struct np_json *json, const char *key, char bracket)
{
    append_key(json, key);
    append(json, &bracket, 1);
}

void np_json_close(struct np_json *json, char bracket)
{
    append(json, &bracket, 1);
}

void np_json_line(struct np_json *json)
{
    json->line = true;
}

/* JSON's grammar: -?(0|[1-9][0-9]*)(.[0-9]+)?([eE][+-]?[0-9]+)? */
static bool is_number(const char *text)
{
    text += *text == '-';
    if (*text == '0')
        text++;
    else if (strspn(text, "123456789") == 0)
        return false;
    else
        text += strspn(text, "0123456789");
    if (*text == '.') {
        size_t n = strspn(text + 1, "0123456789");
        if (n == 0)
            return false;
        text += n + 1;
    }
    if (*text == 'e' || *text == 'E') {
        text += 1 + (text[1] == '+' || text[1] == '-');
        size_t n = strspn(text, "0123456789");
        if (n == 0)
            return false;
        text += n;
    }
    return *text == '\0';
}

static void append_node(struct np_json *json, const struct np_node *node)
{
    if (node->kind == NP_NODE_SCALAR) {
        const char *text = node->text;
        bool bare = !node->quoted &&
                    (is_number(text) || strcmp(text, "true") == 0 || strcmp(text, "false") == 0);
        if (!node->quoted && !*text)
            append_text(json, "null");
        else if (bare)
            append_text(json, text);
        else
            append_string(json, text);
        return;
    }
    append_text(json, node->kind == NP_NODE_LIST ? "[" : "{");
    for (int i = 0; i < node->nr_items; i++) {
        if (i)
            append_text(json, ", ");
        if (node->kind == NP_NODE_MAP) {
            append_string(json, node->items[i]->key);
            append_text(json, ": ");
        }
        append_node(json, node->items[i]);
    }
    append_text(json, node->kind == NP_NODE_LIST ? "]" : "}");
}

void np_json_node(struct np_json *json, const char *key, const struct np_node *node)
{
    append_key(json, key);
    if (node)
        append_node(json, node);
    else
        append_text(json, "null");
}

const char *np_json_end(struct np_json *json)
{
    append_text(json, "}\n");
    return json->failed ? NULL : json->text;
}

char *np_json_take(struct np_json *json, struct np_err *err)
{
    const bool whole = np_json_end(json) != NULL;
    char *text = json->text;

    if (!whole) {
        np_err_set(err, -ENOMEM, "out of memory for JSON");
        np_free(text);
        text = NULL;
    }
    *json = (struct np_json){0};
    return text;
}

void np_json_print(struct np_json *json, FILE *out)
{
    const char *text = np_json_end(json);

    fputs(text ? text : "", out);
}

/* --- reading --------------------------------------------------------------------------------- */

static struct np_node *scalar_of(const json_t *value, struct np_err *err)
{
    char text[40] = "";
    struct np_node *node;

    if (json_is_integer(value))
        snprintf(text, sizeof(text), "%lld", (long long)json_integer_value(value));
    else if (json_is_real(value))
        snprintf(text, sizeof(text), "%.17g", json_real_value(value));
    else if (json_is_boolean(value))
        snprintf(text, sizeof(text), "%s", json_is_true(value) ? "true" : "false");
    node = np_node_try(
        NP_NODE_SCALAR, json_is_string(value) ? json_string_value(value) : text, 0, 0, err);
    if (node) {
        node->quoted = json_is_string(value);
        node->real = json_is_real(value);
    }
    return node;
}

static struct np_node *node_of(json_t *value, int depth, struct np_err *err)
{
    const bool list = json_is_array(value);
    struct np_node *node;
    const char *key;
    json_t *item;
    size_t i;
    int code = 0;

    if (!list && !json_is_object(value))
        return scalar_of(value, err);
    if (depth == MAX_DEPTH) {
        np_err_set(err, -EBADMSG, "JSON nested deeper than %d levels", MAX_DEPTH);
        return NULL;
    }
    node = np_node_try(list ? NP_NODE_LIST : NP_NODE_MAP, NULL, 0, 0, err);
    if (!node)
        return NULL;
    json_array_foreach(value, i, item)
    {
        if (code == 0)
            code = np_node_try_add(node, NULL, node_of(item, depth + 1, err), err);
    }
    json_object_foreach(value, key, item)
    {
        if (code == 0)
            code = np_node_try_add(node, key, node_of(item, depth + 1, err), err);
    }
    if (code == 0)
        return node;
    np_node_free(node);
    return NULL;
}

int np_json_parse(const char *text, size_t bytes, struct np_node **ret_node, struct np_err *err)
{
    struct np_err why = {0};
    json_error_t error;
    json_t *value = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    struct np_node *node;

    if (!value && json_error_code(&error) == json_error_out_of_memory)
        return np_err_set(err, -ENOMEM, "out of memory for %zu bytes of JSON", bytes);
    if (!value)
        return np_err_set(err, -EBADMSG, "not JSON: line %d, column %d: %s", error.line,
            error.column, error.text);
    node = node_of(value, 0, &why);
    json_decref(value);
    if (!node)
        return np_err_set(err, why.code, "%s", why.text);
    *ret_node = node;
    return 0;
}

double np_node_number(const struct np_node *map, const char *key, double fallback)
{
    const struct np_node *node = np_node_get(map, key);
    double value;

    return node && node->kind == NP_NODE_SCALAR &&
                   np_text_real(node->text, -INFINITY, INFINITY, &value)
               ? value
               : fallback;
}
