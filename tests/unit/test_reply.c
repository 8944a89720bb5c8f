/* What servers say, hostile ones too; and the keys' files. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "loader/remote/aws_profile.h"
#include "loader/remote/object.h"
#include "loader/remote/reply.h"
#include "tests/test.h"

static bool range(const char *text, uint64_t first, uint64_t last, int64_t bytes)
{
    uint64_t got_first, got_last;
    int64_t got_bytes;

    return np_content_range(text, &got_first, &got_last, &got_bytes) && got_first == first &&
           got_last == last && got_bytes == bytes;
}

Test(reply, content_range)
{
    uint64_t first, last;
    int64_t bytes;
    static const char *const bad[] = {"", "bytes", "bytes */10", "bytes 0-0", "bytes 0-0/",
        "bytes 5-4/10", "bytes 0-10/10", "bytes 0-0/0", "bytes -1-0/9", "bytes 0-0/9 ",
        "bytes 0-0/1234567890123456789", "items 0-0/9", "bytes 0 - 0/9", "bytes 0-0/9, 0-1/9",
        "bytes 0x0-0/9", NULL};

    cr_expect(range("bytes 0-99/1234", 0, 99, 1234));
    cr_expect(range("Bytes 7-7/*", 7, 7, -1));
    for (int i = 0; bad[i]; i++)
        cr_expect(!np_content_range(bad[i], &first, &last, &bytes), "%s", bad[i]);
}

static int read_header(const char *text, struct np_web_answer *ret_answer)
{
    const int bytes = np_answer_read(text, strlen(text), ret_answer);

    return bytes == (int)strlen(text) ? 1 : bytes;
}

Test(reply, headers)
{
    static const char good[] = "HTTP/1.1 206 Partial Content\r\nServer: x\r\nETag:\t\"a\" \r\n"
                               "content-LENGTH: 17\r\nConnection: Keep-Alive\r\nX:\r\n\r\nbody\r\n";
    const int bytes = (int)(sizeof(good) - 1 - 6);
    struct np_web_answer answer;

    cr_assert_eq(np_answer_read(good, sizeof(good) - 1, &answer), bytes);
    cr_expect(answer.status == 206 && answer.bytes == 17 && !answer.is_last && !answer.is_coded);
    cr_expect_str_eq(answer.etag, "\"a\"");
    for (int nr = 0; nr < bytes; nr++)
        cr_expect_eq(np_answer_read(good, (size_t)nr, &answer), 0, "%d", nr);
    cr_assert(read_header("HTTP/1.0 200\r\nTransfer-Encoding: gzip\r\n\r\n", &answer) == 1);
    cr_expect(answer.status == 200 && answer.bytes == -1 && answer.is_last && answer.is_coded);
    cr_assert(read_header("HTTP/1.1 200 \r\nconnection: close, te\r\n\r\n", &answer) == 1);
    cr_expect(answer.is_last);
}

Test(reply, headers_that_are_none)
{
    static const char *const bad[] = {"\r\n\r\n", "HTTP/1.1\r\n\r\n", "HTTP/1.1 20\r\n\r\n",
        "HTTP/1.1 2o6 X\r\n\r\n", "HTTP/1.1 2066 X\r\n\r\n", "HTTP/2 206 OK OK\r\n\r\n",
        "SSH-2.0-OpenSSH_9\r\n\r\n", "HTTP/1.1 206 X\r\nno field\r\n\r\n",
        "HTTP/1.1 206 X\r\n: x\r\n\r\n", "HTTP/1.1 206 X\r\nA: x\r\n folded: x\r\n\r\n",
        "HTTP/1.1 206 X\r\nA : x\r\n\r\n", "HTTP/1.1 206 X\r\nA: x\ny\r\n\r\n",
        "HTTP/1.1 206 X\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", NULL};
    struct np_web_answer answer;

    for (int i = 0; bad[i]; i++)
        cr_expect_eq(read_header(bad[i], &answer), -EBADMSG, "%s", bad[i]);
    cr_expect_eq(np_answer_read("HTTP/1.1 206 X\r\nA: \0\r\n\r\n", 24, &answer), -EBADMSG);
    /* lengths that are none */
    cr_expect(read_header("HTTP/1.1 206 X\r\nContent-Length: -1\r\n\r\n", &answer) == 1);
    cr_expect_eq(answer.bytes, -1);
}

Test(reply, strong_etags)
{
    cr_expect(np_etag_is_strong("\"abc\"") && np_etag_is_strong("\"abc-3\""));
    cr_expect(
        !np_etag_is_strong("") && !np_etag_is_strong("\"\"") && !np_etag_is_strong("W/\"abc\""));
    cr_expect(
        !np_etag_is_strong("abc") && !np_etag_is_strong("\"a\"b\"") && !np_etag_is_strong("\""));
}

Test(reply, refusals_of_s3)
{
    struct np_refusal refusal;

    np_refusal_read(
        "<?xml?><Error><Code>NoSuchKey</Code><Message>It is not there.</Message></Error>",
        &refusal);
    cr_expect_str_eq(refusal.code, "NoSuchKey");
    cr_expect_str_eq(refusal.message, "It is not there.");
    np_refusal_read("<html>no</html><Code>", &refusal);
    cr_expect(!*refusal.code && !*refusal.message);
}

static const char config_text[] =
    "[default]\nregion = eu-west-1\ns3 =\n  region = wrong\n"
    "# [profile ml]\n[profile ml]\n region=us-west-2 \nrole_arn\t=\tarn:x\n[ profile  two ]\r\n"
    "region = a b\r\n[ml]\nregion = other\n";

static bool has(
    const char *text, const char *name, bool in_config, const char *key, const char *want)
{
    char value[64] = "none";
    const bool found = np_profile_get(text, name, in_config, key, value, sizeof(value));

    return want ? found && strcmp(value, want) == 0 : !found && strcmp(value, "none") == 0;
}

Test(aws_profile, sections_and_keys)
{
    cr_expect(has(config_text, "default", true, "region", "eu-west-1"));
    cr_expect(has(config_text, "ml", true, "role_arn", "arn:x"));
    cr_expect(
        has(config_text, "ml", true, "region", NULL)); /* an indented line is not the section's */
    cr_expect(has(config_text, "two", true, "region", "a b"));
    cr_expect(has(config_text, "ml", false, "region", "other"));
    cr_expect(has(config_text, "none", true, "region", NULL));
    cr_expect(has("[a]\nk =\n", "a", false, "k", NULL));
    cr_expect(has("k = 1\n", "a", false, "k", NULL));
    cr_expect(has("[a\nk = 1", "a", false, "k", NULL));
    cr_expect(has("[a]\nk = 1", "a", false, "k", "1"));
    cr_expect(has("[a]\nk=0123456789012345678901234567890123456789012345678901234567890123\n", "a",
        false, "k", NULL));
    cr_expect(np_profile_has("[x]\n", "x", false) && !np_profile_has("[x]\n", "y", false));
}

static int keys_of(const char *text, struct np_keys *keys)
{
    return np_keys_of_json(text, strlen(text), keys, NULL);
}

Test(aws_profile, keys_of_a_role)
{
    struct np_keys keys;

    cr_assert_eq(keys_of("{\"AccessKeyId\": \"A\", \"SecretAccessKey\": \"S\", \"Token\": \"T\", "
                         "\"Expiration\": \"2030-01-02T03:04:05Z\"}",
                     &keys),
        0);
    cr_expect_str_eq(keys.id, "A");
    cr_expect_str_eq(keys.secret, "S");
    cr_expect_str_eq(keys.token, "T");
    cr_expect_eq(keys.expires, 1893553445);
    cr_expect_eq(keys_of("{\"AccessKeyId\": \"A\", \"SecretAccessKey\": \"S\"}", &keys), 0);
    cr_expect_eq(keys.expires, 0);
    cr_expect_eq(keys_of("{\"AccessKeyId\": \"A\"}", &keys), -EBADMSG);
    cr_expect_eq(keys_of("[1]", &keys), -EBADMSG);
    cr_expect_eq(keys_of("", &keys), -EBADMSG);
    /* a line end would be another header field */
    cr_expect_eq(
        keys_of("{\"AccessKeyId\": \"A\\r\\nX: y\", \"SecretAccessKey\": \"S\"}", &keys), -EBADMSG);
    cr_expect_eq(
        keys_of(
            "{\"AccessKeyId\": \"A\", \"SecretAccessKey\": \"S\", \"Token\": \"a\\nb\"}", &keys),
        -EBADMSG);
}

#define STS                                                                                        \
    "<R xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><Credentials>\n"                       \
    "<SessionToken>a/b+c==</SessionToken><SecretAccessKey>S</SecretAccessKey>"                     \
    "<Expiration>2030-01-02T03:04:05.123Z</Expiration><AccessKeyId>A</AccessKeyId>"

Test(aws_profile, keys_of_sts)
{
    static const char *const bad[] = {"", "<AccessKeyId>A</AccessKeyId>",
        "<AccessKeyId>A</AccessKeyId><SecretAccessKey>S</SecretAccessKey>",
        "<AccessKeyId>A</AccessKeyId><SecretAccessKey>S</SecretAccessKey><SessionToken>a\nX: y"
        "</SessionToken>",
        "<AccessKeyId>A</AccessKeyId><SecretAccessKey>S&amp;</SecretAccessKey><SessionToken>T"
        "</SessionToken>",
        "<AccessKeyId>A<SecretAccessKey>S</SecretAccessKey><SessionToken>T</SessionToken>",
        "<AccessKeyId></AccessKeyId><SecretAccessKey>S</SecretAccessKey><SessionToken>T"
        "</SessionToken>",
        NULL};
    struct np_keys keys;

    cr_assert_eq(np_keys_of_xml(STS "</Credentials></R>", &keys, NULL), 0);
    cr_expect_str_eq(keys.id, "A");
    cr_expect_str_eq(keys.secret, "S");
    cr_expect_str_eq(keys.token, "a/b+c==");
    cr_expect_eq(keys.expires, 1893553445);
    for (int i = 0; bad[i]; i++)
        cr_expect_eq(np_keys_of_xml(bad[i], &keys, NULL), -EBADMSG, "%s", bad[i]);
}

/* --- versions -------------------------------------------------------------------------------- */

static const struct np_object_places places = {
    .region = "us-east-1", .endpoint = "http://127.0.0.1:1"};

static struct np_object *learnt(const char *etag, const char *modified)
{
    struct np_web_answer answer = {.status = 206, .content_range = "bytes 0-0/1000"};
    struct np_object *object;

    cr_assert_eq(np_object_new("s3://bucket/key", &places, &object, NULL), 0);
    snprintf(answer.etag, sizeof(answer.etag), "%s", etag);
    snprintf(answer.last_modified, sizeof(answer.last_modified), "%s", modified);
    cr_assert_eq(np_object_learn(object, &answer, NULL), 0);
    return object;
}

/* 0: the answer to bytes 100-199 is of the same version. */
static int answered(const struct np_object *object, int status, const char *content_range,
    const char *etag, const char *modified)
{
    struct np_web_answer answer = {.status = status};

    snprintf(answer.content_range, sizeof(answer.content_range), "%s", content_range);
    snprintf(answer.etag, sizeof(answer.etag), "%s", etag);
    snprintf(answer.last_modified, sizeof(answer.last_modified), "%s", modified);
    return np_object_check(object, 100, 100, &answer, NULL);
}

Test(object, an_answer_of_another_version_is_stale)
{
    struct np_object *strong = learnt("\"a\"", "Monday"), *weak = learnt("W/\"a\"", "Monday");

    cr_expect(strong->is_strong && !weak->is_strong && strong->number != weak->number);
    cr_expect_eq(answered(strong, 206, "bytes 100-199/1000", "\"a\"", "Tuesday"), 0);
    cr_expect_eq(answered(strong, 206, "bytes 100-199/*", "", ""), 0);
    cr_expect_eq(answered(strong, 206, "bytes 100-199/1000", "\"b\"", "Monday"), -ESTALE);
    cr_expect_eq(answered(strong, 206, "bytes 100-198/1000", "\"a\"", ""), -ESTALE);
    cr_expect_eq(answered(strong, 206, "bytes 0-99/1000", "\"a\"", ""), -ESTALE);
    cr_expect_eq(answered(strong, 206, "bytes 100-199/1001", "\"a\"", ""), -ESTALE);
    cr_expect_eq(answered(strong, 206, "", "\"a\"", ""), -ESTALE);
    cr_expect_eq(answered(strong, 200, "", "\"a\"", ""), -ESTALE);
    cr_expect_eq(answered(weak, 206, "bytes 100-199/1000", "W/\"a\"", "Monday"), 0);
    cr_expect_eq(answered(weak, 206, "bytes 100-199/1000", "W/\"a\"", "Tuesday"), -ESTALE);
    np_object_free(strong);
    np_object_free(weak);
}

Test(object, without_a_date_the_weak_etag_counts_and_without_either_the_size)
{
    struct np_object *weak = learnt("W/\"a\"", ""), *none = learnt("", "");

    cr_expect_eq(answered(weak, 206, "bytes 100-199/1000", "W/\"a\"", ""), 0);
    cr_expect_eq(answered(weak, 206, "bytes 100-199/1000", "W/\"b\"", ""), -ESTALE);
    cr_expect_str_eq(none->version, "");
    cr_expect_eq(answered(none, 206, "bytes 100-199/1000", "", ""), 0);
    cr_expect_eq(answered(none, 206, "bytes 100-199/1001", "", ""), -ESTALE);
    np_object_free(weak);
    np_object_free(none);
}

Test(object, a_request_has_the_range_and_the_version)
{
    const struct np_keys none = {.id = ""}, keys = {.id = "ID", .secret = "SECRET"};
    struct np_object *strong = learnt("\"a\"", "Monday"), *weak = learnt("", "Monday");
    char fields[NP_OBJECT_FIELDS];

    cr_assert_eq(np_object_fields(strong, 5, 10, &none, 0, fields, sizeof(fields)), 0);
    cr_expect_str_eq(fields, "Range: bytes=5-14\nIf-Match: \"a\"\n");
    cr_assert_eq(np_object_fields(weak, 0, 0, &none, 0, fields, sizeof(fields)), 0);
    cr_expect_str_eq(fields, "Range: bytes=0-0\n");
    cr_assert_eq(np_object_fields(strong, 5, 10, &keys, 0, fields, sizeof(fields)), 0);
    cr_expect(strstr(fields, "SignedHeaders=host;if-match;range;x-amz-content-sha256;x-amz-date,"));
    cr_expect_eq(np_object_fields(strong, 5, 10, &keys, 0, fields, 100), -ENAMETOOLONG);
    np_object_free(strong);
    np_object_free(weak);
}

Test(object, sizes_that_a_server_does_not_say)
{
    struct np_object *object;
    struct np_web_answer answer = {.status = 200};

    cr_assert_eq(np_object_new("https://host/a.tar", &places, &object, NULL), 0);
    cr_expect(!object->is_signed);
    cr_expect_eq(np_object_learn(object, &answer, NULL), -EOPNOTSUPP);
    answer.status = 416;
    cr_expect_eq(np_object_learn(object, &answer, NULL), -ENODATA);
    answer.status = 206;
    cr_expect_eq(np_object_learn(object, &answer, NULL), -EBADMSG);
    strcpy(answer.content_range, "bytes 0-0/*");
    cr_expect_eq(np_object_learn(object, &answer, NULL), -EBADMSG);
    np_object_free(object);
}

Test(object, a_version_has_one_handle)
{
    const struct np_object *first, *second, *other;

    cr_assert_eq(np_object_publish(learnt("\"a\"", ""), &first, NULL), 0);
    cr_assert_eq(np_object_publish(learnt("\"a\"", ""), &second, NULL), 0);
    cr_expect_eq(first, second);
    cr_assert_eq(np_object_publish(learnt("\"b\"", ""), &other, NULL), 0);
    cr_expect(other != first && other->file != first->file);
    cr_expect_eq(np_object_find("s3://bucket/key"), other);
    cr_expect_eq(np_object_of(first->file), first);
    cr_expect_null(np_object_find("s3://bucket/none"));
}
