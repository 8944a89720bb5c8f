#include "loader/remote/sigv4.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/sha.h>

#define MAX_ITEMS  64
#define EMPTY_HASH "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#define HEX_BYTES  (2 * SHA256_DIGEST_LENGTH + 1)
#define TEXT_BYTES 16384 /* of a canonical request */

struct text {
    char *bytes;
    size_t used, room;
};

static void put(struct text *text, const char *from, size_t bytes)
{
    if (text->used + bytes < text->room) {
        memcpy(text->bytes + text->used, from, bytes);
        text->bytes[text->used + bytes] = '\0';
    }
    text->used += bytes;
}

static void put_text(struct text *text, const char *from)
{
    put(text, from, strlen(from));
}

static bool fits(const struct text *text)
{
    return text->used < text->room;
}

static void to_hex(const unsigned char digest[SHA256_DIGEST_LENGTH], char hex[HEX_BYTES])
{
    for (int i = 0; i < SHA256_DIGEST_LENGTH; i++)
        sprintf(hex + 2 * i, "%02x", digest[i]);
}

static void hmac(
    const void *key, size_t key_bytes, const char *text, unsigned char digest[SHA256_DIGEST_LENGTH])
{
    HMAC(
        EVP_sha256(), key, (int)key_bytes, (const unsigned char *)text, strlen(text), digest, NULL);
}

/* A piece of the request: a header field, or a parameter of the query. */
struct item {
    const char *at;
    size_t bytes;
    size_t name; /* bytes of the name */
};

/* Cuts a text at `end`; a name ends at `mark`. -1: too many. */
static int cut(const char *text, char end, char mark, struct item *items, int nr)
{
    const char ends[] = {end, '\0'}, marks[] = {mark, '\0'};

    for (const char *at = text; at && *at;) {
        const size_t bytes = strcspn(at, ends), name = strcspn(at, marks);

        if (nr == MAX_ITEMS)
            return -1;
        if (bytes > 0)
            items[nr++] = (struct item){at, bytes, name < bytes ? name : bytes};
        at += bytes + (at[bytes] == end);
    }
    return nr;
}

/* By name in ASCII, whose letters are small in a canonical request. */
static int by_name(const void *a, const void *b)
{
    const struct item *x = a, *y = b;
    const size_t bytes = x->name < y->name ? x->name : y->name;
    const int order = strncasecmp(x->at, y->at, bytes);

    return order ? order : (x->name > y->name) - (x->name < y->name);
}

/* By name, then by value, in bytes. */
static int by_parameter(const void *a, const void *b)
{
    const struct item *x = a, *y = b;
    const size_t names = x->name < y->name ? x->name : y->name;
    int order = memcmp(x->at, y->at, names);

    if (order || x->name != y->name)
        return order ? order : x->name < y->name ? -1 : 1;
    const size_t bytes = x->bytes < y->bytes ? x->bytes : y->bytes;
    order = memcmp(x->at, y->at, bytes);
    return order ? order : (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static bool put_query(struct text *text, const char *query)
{
    struct item items[MAX_ITEMS];
    const int nr = cut(query, '&', '=', items, 0);

    if (nr < 0)
        return false;
    qsort(items, (size_t)nr, sizeof(*items), by_parameter);
    for (int i = 0; i < nr; i++) {
        put(text, "&", i > 0);
        put(text, items[i].at, items[i].bytes);
        put(text, "=", items[i].name == items[i].bytes);
    }
    return true;
}

/* The name of a header field, in small letters. */
static void put_name(struct text *text, const struct item *field)
{
    for (size_t i = 0; i < field->name; i++) {
        const char small = (char)tolower((unsigned char)field->at[i]);

        put(text, &small, 1);
    }
}

/* "Name:  a  b " becomes "name:a b". */
static void put_field(struct text *text, const struct item *field)
{
    bool gap = false, begun = false;

    put_name(text, field);
    put(text, ":", 1);
    for (size_t i = field->name + 1; i < field->bytes; i++) {
        const char byte = field->at[i];

        if (isspace((unsigned char)byte)) {
            gap = begun;
            continue;
        }
        put(text, " ", gap);
        put(text, &byte, 1);
        begun = true;
        gap = false;
    }
    put(text, "\n", 1);
}

static void put_names(struct text *text, const struct item *fields, int nr)
{
    for (int f = 0; f < nr; f++) {
        put(text, ";", f > 0);
        put_name(text, &fields[f]);
    }
}

/* The canonical request; *ret_names: where the names of its header fields lie in it. */
static bool put_request(struct text *text, const struct np_sigv4_request *request,
    const char *payload_hash, const char *fields, size_t *ret_names, size_t *ret_names_bytes)
{
    struct item items[MAX_ITEMS];
    int nr = cut(fields, '\n', ':', items, 0);

    nr = nr < 0 ? -1 : cut(request->fields, '\n', ':', items, nr);
    if (nr < 0)
        return false;
    qsort(items, (size_t)nr, sizeof(*items), by_name);
    put_text(text, request->method);
    put_text(text, "\n");
    put_text(text, request->path);
    put_text(text, "\n");
    if (!put_query(text, request->query))
        return false;
    put_text(text, "\n");
    for (int i = 0; i < nr; i++)
        put_field(text, &items[i]);
    put_text(text, "\n");
    *ret_names = text->used;
    put_names(text, items, nr);
    *ret_names_bytes = text->used - *ret_names;
    put_text(text, "\n");
    put_text(text, payload_hash);
    return fits(text);
}

static void sign(const struct np_sigv4_request *request, const char *secret, const char *day,
    const char *to_sign, char signature[HEX_BYTES])
{
    unsigned char digest[SHA256_DIGEST_LENGTH];
    char first[260];

    snprintf(first, sizeof(first), "AWS4%s", secret);
    hmac(first, strlen(first), day, digest);
    hmac(digest, sizeof(digest), request->region, digest);
    hmac(digest, sizeof(digest), request->service, digest);
    hmac(digest, sizeof(digest), "aws4_request", digest);
    hmac(digest, sizeof(digest), to_sign, digest);
    to_hex(digest, signature);
    OPENSSL_cleanse(first, sizeof(first));
}

int np_sigv4_sign(const struct np_sigv4_request *request, const struct np_sigv4_keys *keys,
    time_t now, char *out, size_t out_bytes)
{
    const char *hash = request->payload_hash ? request->payload_hash : EMPTY_HASH;
    char canonical[TEXT_BYTES], fields[4096], when[20], day[9], scope[200], to_sign[512];
    char signature[HEX_BYTES], hashed[HEX_BYTES];
    const bool has_token = keys->token && *keys->token;
    struct text text = {canonical, 0, sizeof(canonical)}, own = {out, 0, out_bytes};
    struct text signed_own = {fields, 0, sizeof(fields)};
    unsigned char digest[SHA256_DIGEST_LENGTH];
    size_t names, names_bytes;
    struct tm utc;

    if (strlen(keys->secret) > 255 || !gmtime_r(&now, &utc))
        return -ENAMETOOLONG;
    strftime(when, sizeof(when), "%Y%m%dT%H%M%SZ", &utc);
    strftime(day, sizeof(day), "%Y%m%d", &utc);
    snprintf(scope, sizeof(scope), "%s/%s/%s/aws4_request", day, request->region, request->service);

    /* what this call adds, and Host, which libcurl sends */
    const char *const added[] = {"x-amz-content-sha256: ", hash, "\nx-amz-date: ", when,
        has_token ? "\nx-amz-security-token: " : "", has_token ? keys->token : "", "\n"};
    for (size_t i = 0; i < sizeof(added) / sizeof(*added); i++) {
        put_text(&own, added[i]);
        put_text(&signed_own, added[i]);
    }
    put_text(&signed_own, "Host: ");
    put_text(&signed_own, request->host);
    put_text(&signed_own, "\n");
    if (!fits(&signed_own) || !put_request(&text, request, hash, fields, &names, &names_bytes))
        return -ENAMETOOLONG;

    SHA256((const unsigned char *)canonical, text.used, digest);
    to_hex(digest, hashed);
    snprintf(to_sign, sizeof(to_sign), "AWS4-HMAC-SHA256\n%s\n%s\n%s", when, scope, hashed);
    sign(request, keys->secret, day, to_sign, signature);
    const char *const authorization[] = {
        "Authorization: AWS4-HMAC-SHA256 Credential=", keys->id, "/", scope, ", SignedHeaders="};
    for (size_t i = 0; i < sizeof(authorization) / sizeof(*authorization); i++)
        put_text(&own, authorization[i]);
    put(&own, canonical + names, names_bytes);
    put_text(&own, ", Signature=");
    put_text(&own, signature);
    put_text(&own, "\n");
    return fits(&own) ? 0 : -ENAMETOOLONG;
}
