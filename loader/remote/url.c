#include "loader/remote/url.h"

#include <ctype.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "loader/base/mem.h"

#define MAX_BUCKET 255
#define MAX_KEY    1024
#define MAX_WIDTH  18 /* digits of a number in braces */

/* --- checks ---------------------------------------------------------------------------------- */

static int wrong(const char *url, struct np_err *err, const char *what)
{
    char shown[NP_URL_MAX];

    np_url_shown(url, shown, sizeof(shown));
    return np_err_set(err, -EINVAL, "%s: %s", shown, what);
}

void np_url_shown(const char *url, char *text, size_t text_bytes)
{
    snprintf(text, text_bytes, "%s", url);
    np_text_hide(text);
}

static int check_bucket(const char *url, const char *name, struct np_err *err)
{
    const size_t bucket = strcspn(name, "/"), key = name[bucket] ? strlen(name + bucket + 1) : 0;

    for (size_t i = 0; i < bucket; i++)
        if (!isalnum((unsigned char)name[i]) && !strchr("-._", name[i]))
            return wrong(url, err, "the name of its bucket has a character that no bucket has");
    if (bucket == 0 || bucket > MAX_BUCKET || name[0] == '.')
        return wrong(url, err, "expected s3://BUCKET/KEY");
    if (key == 0 || key > MAX_KEY || name[bucket + key] == '/')
        return wrong(url, err,
            "expected the key of one object behind the bucket, s3://BUCKET/KEY, or several with "
            "braces: s3://BUCKET/train-{000..999}.tar");
    if (strpbrk(name + bucket, "*"))
        return wrong(url, err, "a URL has no '*'; name the objects with braces: {000..999}");
    return 0;
}

static int check_server(const char *url, const char *host, struct np_err *err)
{
    const size_t bytes = strcspn(host, "/?#");

    if (memchr(host, '@', bytes))
        return wrong(url, err, "a user or password in a URL is not accepted: logs would have it");
    if (bytes == 0 || bytes > 255 || host[0] == ':')
        return wrong(url, err, "it names no host");
    for (const char *at = host; *at; at++)
        if ((unsigned char)*at <= ' ' || (unsigned char)*at >= 0x7f || strchr("\"'<>\\^`{|}", *at))
            return wrong(url, err, "it has a character that must be percent-encoded");
    if (strchr(host, '#'))
        return wrong(url, err, "'#' begins no part of an object");
    if (host[bytes] != '/' || host[bytes + 1] == '\0')
        return wrong(url, err, "it names no file behind the host");
    return 0;
}

int np_url_check(const char *url, enum np_url_kind *ret_kind, struct np_err *err)
{
    static const struct {
        const char *scheme;
        enum np_url_kind kind;
    } kinds[] = {{"s3://", NP_URL_S3}, {"gs://", NP_URL_GS}, {"https://", NP_URL_HTTP},
        {"http://", NP_URL_HTTP}};

    if (strlen(url) >= NP_URL_MAX)
        return np_err_set(err, -EINVAL, "a URL of more than %d bytes", NP_URL_MAX - 1);
    for (const char *at = url; *at; at++)
        if ((unsigned char)*at < ' ' || *at == 0x7f)
            return np_err_set(err, -EINVAL, "a URL with a control character");
    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
        const size_t bytes = strlen(kinds[i].scheme);
        int code;

        if (strncmp(url, kinds[i].scheme, bytes) != 0)
            continue;
        code = kinds[i].kind == NP_URL_HTTP ? check_server(url, url + bytes, err)
                                            : check_bucket(url, url + bytes, err);
        if (!code)
            *ret_kind = kinds[i].kind;
        return code;
    }
    return wrong(url, err, "there are s3://, gs://, https:// and http://");
}

/* --- braces ---------------------------------------------------------------------------------- */

/* What one pair of braces stands for: a range of numbers, or a list of texts. */
struct braces {
    const char *from, *end; /* behind '{', and the '}' */
    bool range;
    uint64_t first;
    int width;
    uint64_t nr;
};

struct expansion {
    const char *pattern;
    struct braces braces[8];
    int nr_braces;
};

static const char *digits_end(const char *at)
{
    return at + strspn(at, "0123456789");
}

/* "000..999" up to `end`. */
static bool parse_range(struct braces *braces)
{
    const char *dots = digits_end(braces->from), *second = dots + 2;
    const int width = (int)(dots - braces->from), second_width = (int)(braces->end - second);

    if (width == 0 || width > MAX_WIDTH || strncmp(dots, "..", 2) != 0 || second >= braces->end ||
        digits_end(second) != braces->end || second_width > MAX_WIDTH)
        return false;
    const uint64_t first = strtoull(braces->from, NULL, 10), last = strtoull(second, NULL, 10);
    if (last < first)
        return false;
    braces->range = true;
    braces->first = first;
    braces->nr = last - first + 1;
    braces->width = *braces->from == '0' || width == second_width ? width : 0;
    return true;
}

static bool parse_list(struct braces *braces)
{
    braces->nr = 1;
    for (const char *at = braces->from; at < braces->end; at++)
        braces->nr += *at == ',';
    return braces->nr > 1;
}

static int parse_braces(struct expansion *expansion, struct np_err *err)
{
    const char *at = expansion->pattern;
    uint64_t nr = 1;

    for (at = strpbrk(at, "{}"); at; at = strpbrk(at, "{}")) {
        struct braces *braces = &expansion->braces[expansion->nr_braces];

        if (*at == '}' || expansion->nr_braces == 8)
            return wrong(expansion->pattern, err,
                *at == '}' ? "there is a '}' without its '{'" : "more than 8 braces");
        braces->from = at + 1;
        braces->end = strpbrk(at + 1, "{}");
        if (!braces->end || *braces->end != '}')
            return wrong(expansion->pattern, err, "there is a '{' without its '}'");
        if (!parse_range(braces) && !parse_list(braces))
            return wrong(expansion->pattern, err, "expected {000..999} or {a,b,c} in its braces");
        if (braces->nr > NP_URL_MAX_NAMES || nr * braces->nr > NP_URL_MAX_NAMES)
            return wrong(expansion->pattern, err, "its braces name too many objects");
        nr *= braces->nr;
        at = braces->end + 1;
        expansion->nr_braces++;
    }
    return (int)nr;
}

/* Writes what number `i` of the braces stands for; returns the length. */
static int put_choice(const struct braces *braces, uint64_t i, char *out, size_t room)
{
    const char *at = braces->from;

    if (braces->range)
        return snprintf(
            out, room, "%0*llu", braces->width, (unsigned long long)(braces->first + i));
    for (; i > 0; i--)
        at += strcspn(at, ",") + 1;
    return snprintf(out, room, "%.*s", (int)strcspn(at, ",}"), at);
}

/* Name number i; the last braces vary fastest. */
static char *put_name(const struct expansion *expansion, uint64_t i, struct np_err *err)
{
    char text[NP_URL_MAX];
    const char *from = expansion->pattern;
    uint64_t below = 1;
    size_t used = 0;

    for (int b = 0; b < expansion->nr_braces; b++)
        below *= expansion->braces[b].nr;
    for (int b = 0; b <= expansion->nr_braces && used < sizeof(text); b++) {
        const struct braces *braces = &expansion->braces[b];
        const bool last = b == expansion->nr_braces;
        const int plain = last ? (int)strlen(from) : (int)(braces->from - 1 - from);

        used += (size_t)snprintf(text + used, sizeof(text) - used, "%.*s", plain, from);
        if (last || used >= sizeof(text))
            break;
        below /= braces->nr;
        used +=
            (size_t)put_choice(braces, i / below % braces->nr, text + used, sizeof(text) - used);
        from = braces->end + 1;
    }
    if (used >= sizeof(text)) {
        np_err_set(err, -EINVAL, "a URL of more than %d bytes", NP_URL_MAX - 1);
        return NULL;
    }
    return np_try_strdup(text, err);
}

int np_braces_expand(const char *pattern, char ***ret_texts, int *ret_nr, struct np_err *err)
{
    struct expansion expansion = {.pattern = pattern};
    struct np_err why = {0};
    const int nr = parse_braces(&expansion, err);
    char **texts;
    int done = 0;

    if (nr < 0)
        return nr;
    texts = np_try_array((size_t)nr, sizeof(*texts), &why);
    while (texts && done < nr && (texts[done] = put_name(&expansion, (uint64_t)done, &why)))
        done++;
    if (!texts || done < nr) {
        for (int i = 0; texts && i < done; i++)
            np_free(texts[i]);
        np_free(texts);
        return np_err_set(err, why.code, "%s", why.text);
    }
    *ret_texts = texts;
    *ret_nr = nr;
    return 0;
}

/* --- the wire -------------------------------------------------------------------------------- */

bool np_url_encode(const char *text, char *out, size_t out_bytes)
{
    size_t used = 0;

    for (; *text; text++) {
        const unsigned char byte = (unsigned char)*text;
        const bool plain = isalnum(byte) || strchr("-._~/", byte);

        if (used + 4 > out_bytes)
            return false;
        if (plain)
            out[used++] = (char)byte;
        else
            used += (size_t)sprintf(out + used, "%%%02X", byte);
    }
    if (used >= out_bytes)
        return false;
    out[used] = '\0';
    return true;
}

/* "https://host:port", perhaps with a '/' behind it, and a path that all objects are below. */
static int take_endpoint(const char *endpoint, struct np_url_wire *wire, struct np_err *err)
{
    const bool plain = strncmp(endpoint, "http://", 7) == 0;
    const char *host = plain                                   ? endpoint + 7
                       : strncmp(endpoint, "https://", 8) == 0 ? endpoint + 8
                                                               : NULL;
    const size_t bytes = host ? strcspn(host, "/") : 0;
    const char *default_port = plain ? ":80" : ":443";

    if (!host || bytes == 0 || bytes > 255 || strpbrk(host, "@?#\"<> ") ||
        (host[bytes] && host[bytes + 1]))
        return np_err_set(err, -EINVAL,
            "the endpoint '%.200s' is no server: expected http://HOST:PORT or https://HOST",
            endpoint);
    snprintf(wire->origin, sizeof(wire->origin), "%.*s", (int)(host + bytes - endpoint), endpoint);
    snprintf(wire->host, sizeof(wire->host), "%.*s", (int)bytes, host);
    const size_t port = strlen(default_port);
    if (bytes > port && strcmp(wire->host + bytes - port, default_port) == 0)
        wire->host[bytes - port] = '\0';
    return 0;
}

static void put_aws(
    const char *bucket, int bucket_bytes, const char *region, struct np_url_wire *wire)
{
    const char *china = strncmp(region, "cn-", 3) == 0 ? ".cn" : "";

    if (bucket_bytes > 0)
        snprintf(wire->host, sizeof(wire->host), "%.*s.s3.%.60s.amazonaws.com%s", bucket_bytes,
            bucket, region, china);
    else
        snprintf(wire->host, sizeof(wire->host), "s3.%.60s.amazonaws.com%s", region, china);
    snprintf(wire->origin, sizeof(wire->origin), "https://%.280s", wire->host);
}

int np_url_wire(const char *url, const struct np_url_place *place, struct np_url_wire *ret_wire,
    struct np_err *err)
{
    const char *bucket = strstr(url, "://") + 3, *key = strchr(bucket, '/') + 1;
    const int bucket_bytes = (int)(key - 1 - bucket);
    const bool host_style =
        !place->endpoint && !memchr(bucket, '.', (size_t)bucket_bytes) && bucket_bytes <= 63;
    const int at = host_style ? 0 : bucket_bytes + 1;
    int code = 0;

    memset(ret_wire, 0, sizeof(*ret_wire));
    if (place->endpoint)
        code = take_endpoint(place->endpoint, ret_wire, err);
    else
        put_aws(bucket, host_style ? bucket_bytes : 0, place->region, ret_wire);
    if (code)
        return code;
    ret_wire->path[0] = '/';
    if (at)
        snprintf(ret_wire->path + 1, sizeof(ret_wire->path) - 1, "%.*s/", bucket_bytes, bucket);
    np_url_encode(key, ret_wire->path + 1 + at, sizeof(ret_wire->path) - 1 - (size_t)at);
    return 0;
}
