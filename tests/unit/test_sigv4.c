/* Signatures and URLs against botocore's own: tests/golden/sigv4.txt, which sigv4.py wrote. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/base/io.h"
#include "loader/base/mem.h"
#include "loader/remote/sigv4.h"
#include "loader/remote/url.h"
#include "tests/test.h"

#define MAX_LINES 64

struct golden {
    int nr;
    char *names[MAX_LINES], *values[MAX_LINES];
    char fields[8192];
};

static const char *get(const struct golden *golden, const char *name)
{
    for (int i = 0; i < golden->nr; i++)
        if (strcmp(golden->names[i], name) == 0)
            return golden->values[i];
    return NULL;
}

/* The lines up to an empty one; NULL: no more. */
static char *next_case(char *at, struct golden *golden)
{
    memset(golden, 0, sizeof(*golden));
    while (*at && *at != '\n') {
        char *end = strchr(at, '\n'), *blank = strchr(at, ' ');

        *end = *blank = '\0';
        if (strcmp(at, "field") == 0)
            sprintf(golden->fields + strlen(golden->fields), "%s\n", blank + 1);
        else {
            cr_assert_lt(golden->nr, MAX_LINES);
            golden->names[golden->nr] = at;
            golden->values[golden->nr++] = blank + 1;
        }
        at = end + 1;
    }
    return golden->nr ? at + (*at == '\n') : NULL;
}

static void check(const struct golden *golden)
{
    const char *url = get(golden, "url"), *endpoint = get(golden, "endpoint"),
               *host = get(golden, "host");
    const struct np_url_place place = {
        endpoint && *endpoint ? endpoint : NULL, get(golden, "region")};
    const struct np_sigv4_keys keys = {
        get(golden, "id"), get(golden, "secret"), get(golden, "token")};
    struct np_sigv4_request request = {.method = get(golden, "method"),
        .host = host,
        .path = get(golden, "path"),
        .query = get(golden, "query"),
        .fields = golden->fields,
        .payload_hash = get(golden, "hash"),
        .region = get(golden, "region"),
        .service = "s3"};
    char out[8192], want[8192], wire_text[8192];
    struct np_url_wire wire;

    if (url) {
        cr_assert_eq(np_url_wire(url, &place, &wire, NULL), 0);
        snprintf(wire_text, sizeof(wire_text), "%s%s", wire.origin, wire.path);
        cr_assert_str_eq(wire_text, get(golden, "wire"));
        request.host = wire.host;
        request.path = wire.path;
    }
    cr_assert_eq(
        np_sigv4_sign(&request, &keys, (time_t)atoll(get(golden, "time")), out, sizeof(out)), 0);
    snprintf(want, sizeof(want), "\nAuthorization: %s\n", get(golden, "authorization"));
    cr_assert(
        strstr(out, want) && strstr(out, want)[strlen(want)] == '\0', "%s\nwants%s", out, want);
}

Test(sigv4, signs_200_requests_as_botocore_does)
{
    char *text = NULL, *at;
    struct golden golden;
    uint64_t bytes;
    int nr = 0;

    cr_assert_eq(np_read_file("tests/golden/sigv4.txt", 1 << 20, &text, &bytes, NULL), 0);
    for (at = text; (at = next_case(at, &golden)) != NULL; nr++)
        check(&golden);
    cr_assert_eq(nr, 200);
    np_free(text);
}

Test(sigv4, refuses_what_does_not_fit)
{
    char long_query[4096] = "", secret[400], small[64], out[8192];
    struct np_sigv4_request request = {
        .method = "GET", .host = "h", .path = "/", .region = "r", .service = "s3"};
    struct np_sigv4_keys keys = {"id", "secret", NULL};

    cr_expect_eq(np_sigv4_sign(&request, &keys, 1, out, sizeof(out)), 0);
    cr_expect_eq(np_sigv4_sign(&request, &keys, 1, small, sizeof(small)), -ENAMETOOLONG);
    for (int i = 0; i < 65; i++)
        sprintf(long_query + strlen(long_query), "a%d=1&", i);
    request.query = long_query;
    cr_expect_eq(np_sigv4_sign(&request, &keys, 1, out, sizeof(out)), -ENAMETOOLONG);
    request.query = NULL;
    memset(secret, 'x', sizeof(secret) - 1);
    secret[sizeof(secret) - 1] = '\0';
    keys.secret = secret;
    cr_expect_eq(np_sigv4_sign(&request, &keys, 1, out, sizeof(out)), -ENAMETOOLONG);
}
