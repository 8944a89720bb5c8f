/* What comes from servers, configs and the AWS tools' files, as hostile bytes; the first byte chooses the parser: URLs
 * and their braces, Content-Range, refusals, profiles, keys of roles, whole answers, what is signed, and headers. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/base/mem.h"
#include "loader/remote/object.h"
#include "loader/remote/reply.h"
#include "loader/remote/sigv4.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void require(bool good)
{
    if (!good)
        abort();
}

static void read_url(const char *text)
{
    static const struct np_object_places places = {
        .region = "us-east-1", .gs_endpoint = "https://h"};
    const struct np_keys keys = {.id = "id", .secret = "secret"};
    char fields[NP_OBJECT_FIELDS];
    struct np_object *object;
    struct np_err err = {0};
    char **texts;
    int nr;

    if (np_object_new(text, &places, &object, &err) == 0) {
        require(strlen(object->wire) > 7 && strncmp(object->wire, "http", 4) == 0);
        for (const char *at = object->wire; *at; at++)
            require((unsigned char)*at > ' ' && (unsigned char)*at < 0x7f);
        require(np_object_fields(object, 1, 2, &keys, 0, fields, sizeof(fields)) == 0);
        np_object_free(object);
    } else
        require(err.code && *err.text);
    if (np_braces_expand(text, &texts, &nr, NULL))
        return;
    require(nr >= 1 && nr <= NP_URL_MAX_NAMES);
    for (int i = 0; i < nr; i++) {
        require(strlen(texts[i]) < NP_URL_MAX && !strpbrk(texts[i], "{}"));
        np_free(texts[i]);
    }
    np_free(texts);
}

static void read_range(const char *text)
{
    uint64_t first, last;
    int64_t nr;

    if (np_content_range(text, &first, &last, &nr))
        require(first <= last && (nr == -1 || last < (uint64_t)nr));
    np_etag_is_strong(text);
}

static void read_refusal(const char *text)
{
    struct np_refusal refusal;

    np_refusal_read(text, &refusal);
    require(strlen(refusal.code) < sizeof(refusal.code) &&
            strlen(refusal.message) < sizeof(refusal.message));
}

static void read_profile(const char *text)
{
    static const char *const names[] = {"default", "a", "a b"}, *const keys[] = {"region", "k",
                                                                    "aws_access_key_id"};
    char value[32];

    for (int n = 0; n < 3; n++) {
        np_profile_has(text, names[n], n % 2);
        for (int k = 0; k < 3; k++)
            if (np_profile_get(text, names[n], n != 1, keys[k], value, sizeof(value)))
                require(*value && strlen(value) < sizeof(value) && !strchr(value, '\n'));
    }
}

static void read_keys(const char *text, size_t bytes)
{
    struct np_keys keys;

    if (np_keys_of_json(text, bytes, &keys, NULL) == 0 || np_keys_of_xml(text, &keys, NULL) == 0)
        require(*keys.id && *keys.secret && !strpbrk(keys.id, "\r\n ") &&
                !strpbrk(keys.token, "\r\n ") && keys.expires >= 0);
}

/* Lines: ETag, Last-Modified, Content-Range. */
static void read_answer(char *text)
{
    static const struct np_object_places places = {.region = "r", .endpoint = "http://h"};
    struct np_web_answer answer = {.status = 206};
    struct np_object *object;
    char *lines[3] = {text, (char *)"", (char *)""};

    for (int i = 1; i < 3 && (lines[i] = strchr(lines[i - 1], '\n')) != NULL; i++)
        *lines[i]++ = '\0';
    if (!lines[1] || !lines[2])
        return;
    snprintf(answer.etag, sizeof(answer.etag), "%s", lines[0]);
    snprintf(answer.last_modified, sizeof(answer.last_modified), "%s", lines[1]);
    snprintf(answer.content_range, sizeof(answer.content_range), "%s", lines[2]);
    require(np_object_new("s3://b/k", &places, &object, NULL) == 0);
    if (np_object_learn(object, &answer, NULL) == 0)
        require(object->bytes > 0 && object->version &&
                np_object_check(object, 0, 1, &answer, NULL) == 0);
    np_object_free(object);
}

static void read_header(const char *text, size_t bytes)
{
    struct np_web_answer answer;
    const int nr = np_answer_read(text, bytes, &answer);

    require(nr == -EBADMSG || (nr >= 0 && (size_t)nr <= bytes));
    if (nr <= 0)
        return;
    require(answer.status >= 0 && answer.status <= 999 && answer.bytes >= -1);
    for (int i = 0; i < nr; i++) /* not one byte before */
        require(i == nr - 1 || np_answer_read(text, (size_t)i, &answer) == 0);
}

static void sign(const char *text)
{
    const struct np_sigv4_keys keys = {"id", "secret", NULL};
    const struct np_sigv4_request request = {.method = "GET",
        .host = "h",
        .path = "/",
        .query = text,
        .fields = text,
        .region = "r",
        .service = "s3"};
    char out[2048];

    if (np_sigv4_sign(&request, &keys, 1, out, sizeof(out)) == 0)
        require(strlen(out) < sizeof(out) && strstr(out, "Signature="));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char *text = bytes ? calloc(bytes, 1) : NULL;

    if (!text)
        return 0;
    memcpy(text, data + 1, bytes - 1);
    switch (data[0] % 8) {
    case 0: read_url(text); break;
    case 1: read_range(text); break;
    case 2: read_refusal(text); break;
    case 3: read_profile(text); break;
    case 4: read_keys(text, bytes - 1); break;
    case 5: read_answer(text); break;
    case 6: sign(text); break;
    default: read_header(text, bytes - 1);
    }
    free(text);
    return 0;
}
