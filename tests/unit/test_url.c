#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "loader/base/mem.h"
#include "loader/base/remote.h"
#include "loader/remote/url.h"
#include "loader/source/source.h"
#include "tests/test.h"

static bool is(const char *url, enum np_url_kind want)
{
    enum np_url_kind kind;

    return np_url_check(url, &kind, NULL) == 0 && kind == want;
}

static bool refused(const char *url, const char *says)
{
    struct np_err err = {0};
    enum np_url_kind kind;

    return np_url_check(url, &kind, &err) == -EINVAL && strstr(err.text, says);
}

Test(url, kinds)
{
    cr_expect(is("s3://bucket/a.tar", NP_URL_S3));
    cr_expect(is("s3://bucket/a b+%&ä/c.tar", NP_URL_S3));
    cr_expect(is("gs://bucket.with.dots/a.tar", NP_URL_GS));
    cr_expect(is("https://example.org/a.tar?key=1%20", NP_URL_HTTP));
    cr_expect(is("http://[::1]:80/a.tar", NP_URL_HTTP));
    cr_expect(np_is_url("ftp://x/y") && np_is_url("s3://b/k"));
    cr_expect(
        !np_is_url("/s3://b/k") && !np_is_url("a.tar") && !np_is_url("") && !np_is_url("C:/x"));
}

Test(url, says_what_is_wrong)
{
    cr_expect(refused("ftp://host/a.tar", "there are s3://"));
    cr_expect(refused("s3:///key", "s3://BUCKET/KEY"));
    cr_expect(refused("s3://bucket", "the key of one object"));
    cr_expect(refused("s3://bucket/", "the key of one object"));
    cr_expect(refused("s3://bucket/folder/", "the key of one object"));
    cr_expect(refused("s3://bu cket/key", "no bucket has"));
    cr_expect(refused("s3://../key", "s3://BUCKET/KEY"));
    cr_expect(refused("s3://bucket/train-*.tar", "has no '*'"));
    cr_expect(refused("https://user:secret@host/a.tar", "password"));
    cr_expect(refused("https:///a.tar", "names no host"));
    cr_expect(refused("https://host", "names no file"));
    cr_expect(refused("https://host/a b.tar", "percent-encoded"));
    cr_expect(refused("https://host/ä.tar", "percent-encoded"));
    cr_expect(refused("https://host/a#b", "'#'"));
    cr_expect(refused("s3://bucket/a\nb", "control"));
}

Test(url, a_secret_in_a_query_is_not_shown)
{
    struct np_err err = {0};
    enum np_url_kind kind;
    char text[100];

    np_url_shown("https://host/a.tar?X-Amz-Signature=secret", text, sizeof(text));
    cr_expect_str_eq(text, "https://host/a.tar?...");
    cr_expect_eq(np_url_check("https://host?sig=secret", &kind, &err), -EINVAL);
    cr_expect(!strstr(err.text, "secret"));
    np_url_shown("s3://b/what?", text, sizeof(text)); /* the key has it */
    cr_expect_str_eq(text, "s3://b/what?");
}

/* Joins what a pattern gives. Static text. */
static const char *expanded(const char *pattern)
{
    static char text[4096];
    char **texts;
    int nr;

    if (np_braces_expand(pattern, &texts, &nr, NULL))
        return NULL;
    text[0] = '\0';
    for (int i = 0; i < nr; i++) {
        sprintf(text + strlen(text), "%s%s", i ? " " : "", texts[i]);
        np_free(texts[i]);
    }
    np_free(texts);
    return text;
}

Test(url, braces_give_ranges_and_lists)
{
    cr_expect_str_eq(expanded("a"), "a");
    cr_expect_str_eq(expanded("t-{0..3}.tar"), "t-0.tar t-1.tar t-2.tar t-3.tar");
    cr_expect_str_eq(expanded("t-{008..011}"), "t-008 t-009 t-010 t-011");
    cr_expect_str_eq(expanded("t-{8..11}"), "t-8 t-9 t-10 t-11");
    cr_expect_str_eq(expanded("{a,,bc}x"), "ax x bcx");
    cr_expect_str_eq(expanded("{a,b}{1..2}"), "a1 a2 b1 b2");
    cr_expect_str_eq(expanded("{5..5}"), "5");
    cr_expect_str_eq(expanded("{1..2,x}"), "1..2 x");
}

Test(url, bad_braces_are_refused)
{
    static const char *const bad[] = {"{", "}", "{a", "a}", "{{1..2}}", "{1..}", "{..2}", "{3..1}",
        "{a}", "{}", "{1..99999999}", "{0..999}{0..999}{0..999}", "{1..1000000000000000000000}",
        "{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}", NULL};

    for (int i = 0; bad[i]; i++)
        cr_expect_null(expanded(bad[i]), "%s", bad[i]);
}

Test(url, a_program_without_the_table_refuses_urls)
{
    struct np_paths paths;
    struct np_err err = {0};
    struct stat st;

    np_remote_use(NULL);
    cr_expect_eq(np_paths_find("s3://bucket/a.tar", &paths, &err), -ENOTSUP);
    cr_expect(strstr(err.text, "reads no URLs"), "%s", err.text);
    cr_expect_eq(np_file_open("https://host/a.tar", NULL), -ENOTSUP);
    cr_expect_eq(np_file_stat("https://host/a.tar", &st, NULL), -ENOTSUP);
}

static bool wired(
    const char *url, const char *endpoint, const char *origin, const char *host, const char *path)
{
    const struct np_url_place place = {endpoint, "eu-west-1"};
    struct np_url_wire wire;

    return np_url_wire(url, &place, &wire, NULL) == 0 && strcmp(wire.origin, origin) == 0 &&
           strcmp(wire.host, host) == 0 && strcmp(wire.path, path) == 0;
}

Test(url, where_objects_lie)
{
    struct np_err err = {0};
    struct np_url_wire wire;
    const struct np_url_place bad = {"minio:9000", "x"};

    cr_expect(wired("s3://b/k", NULL, "https://b.s3.eu-west-1.amazonaws.com",
        "b.s3.eu-west-1.amazonaws.com", "/k"));
    cr_expect(wired("s3://b.c/k", NULL, "https://s3.eu-west-1.amazonaws.com",
        "s3.eu-west-1.amazonaws.com", "/b.c/k"));
    cr_expect(wired("s3://b/k l", "http://h:9000", "http://h:9000", "h:9000", "/b/k%20l"));
    cr_expect(wired("s3://b/k", "http://h:80/", "http://h:80", "h", "/b/k"));
    cr_expect(wired("s3://b/../k", "https://h", "https://h", "h", "/b/../k"));
    cr_expect_eq(np_url_wire("s3://b/k", &bad, &wire, &err), -EINVAL);
    cr_expect(strstr(err.text, "expected http://HOST:PORT"));
}

Test(url, the_longest_key_fits)
{
    const struct np_url_place place = {"http://h", "r"};
    char url[2048] = "s3://bucket/";
    struct np_url_wire wire;
    enum np_url_kind kind;

    memset(url + strlen(url), '\xff', 1024); /* each byte is three on the wire */
    cr_assert_eq(np_url_check(url, &kind, NULL), 0);
    cr_assert_eq(np_url_wire(url, &place, &wire, NULL), 0);
    cr_assert_eq(strlen(wire.path), 8 + 3 * 1024);
    strcat(url, "x");
    cr_assert_eq(np_url_check(url, &kind, NULL), -EINVAL);
}
