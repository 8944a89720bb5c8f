#include "loader/remote/aws_profile.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "loader/base/json.h"
#include "loader/base/node.h"
#include "loader/remote/reply.h"

#define BLANKS " \t\r"

static void trim(const char **at, size_t *bytes)
{
    while (*bytes > 0 && strchr(BLANKS, **at))
        (*at)++, (*bytes)--;
    while (*bytes > 0 && strchr(BLANKS, (*at)[*bytes - 1]))
        (*bytes)--;
}

/* True if a line "[ profile NAME ]" is the section's. */
static bool names(const char *line, size_t bytes, const char *name, bool in_config)
{
    const char *close = memchr(line, ']', bytes);
    const size_t name_bytes = strlen(name);

    if (!close)
        return false;
    line++;
    bytes = (size_t)(close - line);
    trim(&line, &bytes);
    if (in_config && strcmp(name, "default") != 0) {
        if (bytes < 8 || strncmp(line, "profile", 7) != 0 || !strchr(BLANKS, line[7]))
            return false;
        line += 7;
        bytes -= 7;
        trim(&line, &bytes);
    }
    return bytes == name_bytes && memcmp(line, name, bytes) == 0;
}

/* Calls for each line of the section; key NULL: only looks for the section. */
static bool look(const char *text, const char *name, bool in_config, const char *key, char *value,
    size_t value_bytes)
{
    bool inside = false, found = false;

    while (*text) {
        const size_t line_bytes = strcspn(text, "\n");
        const bool nested =
            strchr(BLANKS, *text) != NULL; /* "s3 =" has lines of its own below it */
        const char *line = text, *equals;
        size_t bytes = line_bytes;

        text += line_bytes + (text[line_bytes] == '\n');
        trim(&line, &bytes);
        if (bytes == 0 || *line == '#' || *line == ';')
            continue;
        if (*line == '[') {
            inside = names(line, bytes, name, in_config);
            found |= inside && !key;
            continue;
        }
        equals = inside && key && !nested ? memchr(line, '=', bytes) : NULL;
        if (!equals)
            continue;
        const char *from = equals + 1;
        size_t key_bytes = (size_t)(equals - line), from_bytes = bytes - key_bytes - 1;

        trim(&line, &key_bytes);
        trim(&from, &from_bytes);
        if (key_bytes != strlen(key) || memcmp(line, key, key_bytes) != 0)
            continue;
        found = from_bytes > 0 && from_bytes < value_bytes;
        if (found) {
            memcpy(value, from, from_bytes);
            value[from_bytes] = '\0';
        }
    }
    return found;
}

bool np_profile_get(const char *text, const char *name, bool in_config, const char *key,
    char *value, size_t value_bytes)
{
    return look(text, name, in_config, key, value, value_bytes);
}

bool np_profile_has(const char *text, const char *name, bool in_config)
{
    return look(text, name, in_config, NULL, NULL, 0);
}

/* "2026-01-02T03:04:05Z" in seconds; 0: not a time. */
static int64_t time_of(const char *text)
{
    struct tm utc = {0};
    const char *end = strptime(text, "%Y-%m-%dT%H:%M:%S", &utc);
    const time_t seconds = end ? timegm(&utc) : 0;

    return seconds > 0 ? (int64_t)seconds : 0;
}

/* True for a text that a header field or a key can have. */
static bool is_plain(const char *text)
{
    for (const char *at = text; *at; at++)
        if ((unsigned char)*at <= ' ' || (unsigned char)*at >= 0x7f)
            return false;
    return *text != '\0';
}

static bool copy(const struct np_node *map, const char *key, char *to, size_t room)
{
    const char *text = np_node_text(map, key);

    return is_plain(text) && snprintf(to, room, "%s", text) < (int)room;
}

int np_keys_of_json(const char *text, size_t bytes, struct np_keys *ret_keys, struct np_err *err)
{
    struct np_keys keys = {.expires = 0};
    struct np_node *node = NULL;
    int code = np_json_parse(text, bytes, &node, err);

    if (!code && (!node || node->kind != NP_NODE_MAP ||
                     !copy(node, "AccessKeyId", keys.id, sizeof(keys.id)) ||
                     !copy(node, "SecretAccessKey", keys.secret, sizeof(keys.secret))))
        code = np_err_set(err, -EBADMSG, "it has no AccessKeyId and SecretAccessKey");
    if (!code) {
        if (*np_node_text(node, "Token") && !copy(node, "Token", keys.token, sizeof(keys.token)))
            code = np_err_set(err, -EBADMSG, "its Token is no token");
        keys.expires = time_of(np_node_text(node, "Expiration"));
    }
    np_node_free(node);
    if (!code)
        *ret_keys = keys;
    return code;
}

/* Such a text, which XML has as it is. */
static bool take(const char *text, const char *name, char *to, size_t room)
{
    np_xml_element(text, name, to, room);
    return is_plain(to) && !strpbrk(to, "&<>");
}

int np_keys_of_xml(const char *text, struct np_keys *ret_keys, struct np_err *err)
{
    struct np_keys keys;
    char expires[64];

    if (!take(text, "AccessKeyId", keys.id, sizeof(keys.id)) ||
        !take(text, "SecretAccessKey", keys.secret, sizeof(keys.secret)) ||
        !take(text, "SessionToken", keys.token, sizeof(keys.token)))
        return np_err_set(
            err, -EBADMSG, "the answer has no AccessKeyId, SecretAccessKey and SessionToken");
    np_xml_element(text, "Expiration", expires, sizeof(expires));
    keys.expires = time_of(expires);
    *ret_keys = keys;
    return 0;
}
