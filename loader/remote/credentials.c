#include "loader/remote/credentials.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "loader/base/clock.h"
#include "loader/base/io.h"
#include "loader/base/mem.h"
#include "loader/remote/web.h"

#define MAX_FILE     (1u << 20)
#define EARLY_S      300  /* new keys are asked for so long before the old ones expire */
#define AGAIN_S      60   /* after this time keys of files are read again ... */
#define ABSENT_S     3600 /* ... and keys looked for that were nowhere */
#define REFUSED_NS   2000000000u
#define ROLE_MS      2000 /* limit of one request for a role */
#define ROLE_CONNECT 1000
#define INSTANCE     "http://169.254.169.254"
#define CONTAINER    "http://169.254.170.2"

static struct {
    pthread_mutex_t lock;
    /* under lock */
    struct np_keys keys;
    bool known;
    int64_t until;       /* seconds: look again then */
    uint64_t renewed_ns; /* the last time after a refusal */
    uint64_t failed_ns;  /* when the last look failed, for the reason `why`; 0: it did not */
    struct np_err why;
} cache = {.lock = PTHREAD_MUTEX_INITIALIZER};

static const char *from_environment(const char *name)
{
    const char *value = getenv(name);

    return value && *value ? value : NULL;
}

static bool copy(const char *text, char *to, size_t room)
{
    return snprintf(to, room, "%s", text) < (int)room;
}

/* --- files ----------------------------------------------------------------------------------- */

/* NULL: there is none that can be read. */
static char *read_aws_file(const char *variable, const char *name)
{
    const char *named = from_environment(variable), *home = from_environment("HOME");
    char *path = named  ? np_try_strdup(named, NULL)
                 : home ? np_try_format(NULL, "%s/.aws/%s", home, name)
                        : NULL;
    char *text = NULL;
    uint64_t bytes;

    if (path && np_read_file(path, MAX_FILE, &text, &bytes, NULL))
        text = NULL;
    np_free(path);
    return text;
}

struct profile {
    const char *name;
    char *credentials, *config; /* the files' texts; NULL: none */
};

static void profile_open(struct profile *profile)
{
    const char *name = from_environment("AWS_PROFILE");

    profile->name = name ? name : "default";
    profile->credentials = read_aws_file("AWS_SHARED_CREDENTIALS_FILE", "credentials");
    profile->config = read_aws_file("AWS_CONFIG_FILE", "config");
}

static void profile_close(struct profile *profile)
{
    np_free(profile->credentials);
    np_free(profile->config);
}

static bool get(const struct profile *profile, const char *key, char *value, size_t bytes)
{
    return (profile->credentials &&
               np_profile_get(profile->credentials, profile->name, false, key, value, bytes)) ||
           (profile->config &&
               np_profile_get(profile->config, profile->name, true, key, value, bytes));
}

static bool has(const struct profile *profile)
{
    return (profile->credentials && np_profile_has(profile->credentials, profile->name, false)) ||
           (profile->config && np_profile_has(profile->config, profile->name, true));
}

static int refuse_way(const struct profile *profile, const char *key, struct np_err *err)
{
    return np_err_set(err, -EINVAL,
        "the profile '%s' of the AWS files has its keys by %s, which nnpipe does not do: "
        "`eval \"$(aws configure export-credentials --format env)\"` puts them into the "
        "environment",
        profile->name, key);
}

/* 1: keys; 0: none here. What AWS's own tools take before keys in the file comes before them here. */
static int keys_of_profile(struct np_keys *keys, struct np_err *err)
{
    static const char *const before[] = {
        "role_arn", "web_identity_token_file", "sso_session", "sso_start_url"};
    struct profile profile;
    char value[1024];
    int code = 0;

    profile_open(&profile);
    for (size_t i = 0; code == 0 && i < sizeof(before) / sizeof(*before); i++)
        if (get(&profile, before[i], value, sizeof(value)))
            code = refuse_way(&profile, before[i], err);
    if (code == 0 && get(&profile, "aws_access_key_id", keys->id, sizeof(keys->id))) {
        code = get(&profile, "aws_secret_access_key", keys->secret, sizeof(keys->secret));
        if (!code)
            code = np_err_set(err, -EINVAL,
                "the profile '%s' of the AWS files has aws_access_key_id without "
                "aws_secret_access_key",
                profile.name);
        get(&profile, "aws_session_token", keys->token, sizeof(keys->token));
    }
    if (code == 0 && get(&profile, "credential_process", value, sizeof(value)))
        code = refuse_way(&profile, "credential_process", err);
    if (code == 0 && from_environment("AWS_PROFILE") && !has(&profile))
        code = np_err_set(err, -EINVAL,
            "AWS_PROFILE is '%s', but ~/.aws/credentials and ~/.aws/config have no such profile",
            profile.name);
    profile_close(&profile);
    return code;
}

/* 1: keys; 0: none here. */
static int keys_of_environment(struct np_keys *keys, struct np_err *err)
{
    const char *id = from_environment("AWS_ACCESS_KEY_ID");
    const char *secret = from_environment("AWS_SECRET_ACCESS_KEY");
    const char *token = from_environment("AWS_SESSION_TOKEN");

    if (!id && !secret)
        return 0;
    if (!id || !secret)
        return np_err_set(err, -EINVAL,
            "of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY only %s is set",
            id ? "the first" : "the second");
    if (!copy(id, keys->id, sizeof(keys->id)) ||
        !copy(secret, keys->secret, sizeof(keys->secret)) ||
        !copy(token ? token : "", keys->token, sizeof(keys->token)))
        return np_err_set(err, -EINVAL, "a key in the environment (AWS_...) is too long");
    if (strpbrk(id, " \r\n") || strpbrk(secret, " \r\n") || (token && strpbrk(token, " \r\n")))
        return np_err_set(
            err, -EINVAL, "a key in the environment (AWS_...) has a blank or a line end");
    return 1;
}

/* --- roles ----------------------------------------------------------------------------------- */

struct reply {
    char text[16384];
    size_t bytes;
};

static int take_reply(struct np_web_call *call, const void *bytes, size_t nr)
{
    struct reply *reply = call->owner;

    if (reply->bytes + nr >= sizeof(reply->text))
        return -EFBIG;
    memcpy(reply->text + reply->bytes, bytes, nr);
    reply->bytes += nr;
    reply->text[reply->bytes] = '\0';
    return 0;
}

/* One request, at most ROLE_MS. -ECONNREFUSED and -ETIMEDOUT: nobody answers there. */
static int ask(const char *method, const char *url, const char *fields, struct reply *reply,
    struct np_err *err)
{
    struct np_web_call call = {.method = method,
        .url = url,
        .fields = fields,
        .connect_ms = ROLE_CONNECT,
        .max_ms = ROLE_MS,
        .direct = strncmp(url, "http:", 5) == 0,
        .data = take_reply,
        .owner = reply};
    struct np_web *web = np_web_new(1, err);
    int code = web ? np_web_begin(web, &call) : -ENOMEM;

    reply->bytes = 0;
    reply->text[0] = '\0';
    while (!code && !np_web_turn(web))
        np_web_wait(web, 100);
    np_web_free(web);
    if (code)
        return np_err_set(err, code, "out of memory for a request");
    if (call.code)
        return np_err_set(err, call.code, "%s: %s", url, call.error);
    if (call.answer.status / 100 != 2)
        return np_err_set(err, -EACCES, "%s answers HTTP %d", url, call.answer.status);
    return 0;
}

/* Plain HTTP only to this machine and to the addresses that containers have for it. */
static bool may_send_to(const char *url)
{
    if (strchr(url, '@')) /* what is before it is no host */
        return false;

    static const char *const hosts[] = {"http://127.0.0.1", "http://localhost", "http://[::1]",
        "http://169.254.170.2", "http://169.254.170.23", "http://[fd00:ec2::23]"};

    for (size_t i = 0; i < sizeof(hosts) / sizeof(*hosts); i++) {
        const size_t bytes = strlen(hosts[i]);

        if (strncmp(url, hosts[i], bytes) == 0 && strchr(":/", url[bytes]))
            return true;
    }
    return strncmp(url, "https://", 8) == 0;
}

static int token_of_container(char *fields, size_t room, struct np_err *err)
{
    const char *named = from_environment("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
    const char *token = from_environment("AWS_CONTAINER_AUTHORIZATION_TOKEN");
    char *text = NULL;
    uint64_t bytes;
    int code = named ? np_read_file(named, 16384, &text, &bytes, err) : 0;

    if (!code && (named || token)) {
        const char *value = named ? text : token;

        if (snprintf(fields, room, "Authorization: %.*s\n", (int)strcspn(value, "\r\n"), value) >=
            (int)room)
            code = np_err_set(err, -EINVAL, "the token of the container's credentials is too long");
    }
    np_free(text);
    return code;
}

/* 1: keys; 0: not in such a container. */
static int keys_of_container(struct np_keys *keys, struct reply *reply, struct np_err *err)
{
    const char *relative = from_environment("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
    const char *full = from_environment("AWS_CONTAINER_CREDENTIALS_FULL_URI");
    char url[2048], fields[8192] = "";
    int code;

    if (!relative && !full)
        return 0;
    snprintf(url, sizeof(url), "%s%s", relative ? CONTAINER : "", relative ? relative : full);
    if (!may_send_to(url))
        return np_err_set(err, -EINVAL,
            "AWS_CONTAINER_CREDENTIALS_FULL_URI: keys are asked for by https, or on this machine");
    code = token_of_container(fields, sizeof(fields), err);
    if (!code)
        code = ask(NULL, url, fields, reply, err);
    if (!code)
        code = np_keys_of_json(reply->text, reply->bytes, keys, err);
    return code ? np_err_context(err, "the container's credentials") : 1;
}

/* IMDSv2: a token, the role's name, its keys. 1: keys; 0: no instance, or one without a role. */
static int keys_of_instance(struct np_keys *keys, struct reply *reply, struct np_err *err)
{
    const char *off = from_environment("AWS_EC2_METADATA_DISABLED");
    const char *named = from_environment("AWS_EC2_METADATA_SERVICE_ENDPOINT");
    const char *base = named ? named : INSTANCE;
    const int base_bytes = (int)strlen(base) - (base[strlen(base) - 1] == '/');
    char url[2048], fields[1024];
    int code, used;

    if (off && strcmp(off, "true") == 0)
        return 0;
    snprintf(url, sizeof(url), "%.*s/latest/api/token", base_bytes, base);
    code = ask("PUT", url, "X-aws-ec2-metadata-token-ttl-seconds: 21600\n", reply, NULL);
    if (code)
        return 0; /* this is not such an instance */
    snprintf(fields, sizeof(fields), "X-aws-ec2-metadata-token: %.900s\n", reply->text);
    used = snprintf(
        url, sizeof(url), "%.*s/latest/meta-data/iam/security-credentials/", base_bytes, base);
    code = ask(NULL, url, fields, reply, NULL);
    if (code)
        return 0; /* it has no role */
    snprintf(url + used, sizeof(url) - (size_t)used, "%.*s", (int)strcspn(reply->text, "\r\n/?# "),
        reply->text);
    code = ask(NULL, url, fields, reply, err);
    if (!code)
        code = np_keys_of_json(reply->text, reply->bytes, keys, err);
    return code ? np_err_context(err, "the keys of the instance's role") : 1;
}

/* --- the current keys ------------------------------------------------------------------------ */

static int look_up(struct np_keys *ret_keys, struct np_err *err)
{
    struct reply *reply = NULL;
    struct np_keys keys = {.id = ""};
    int code = keys_of_environment(&keys, err);

    if (code == 0)
        code = keys_of_profile(&keys, err);
    if (code == 0 && from_environment("AWS_WEB_IDENTITY_TOKEN_FILE"))
        code = np_err_set(err, -EINVAL,
            "AWS_WEB_IDENTITY_TOKEN_FILE: nnpipe does not exchange a web identity for keys: use "
            "EKS Pod Identity, or eval \"$(aws configure export-credentials --format env)\"");
    if (code == 0 && !(reply = np_try_alloc(sizeof(*reply), err)))
        code = -ENOMEM;
    if (code == 0)
        code = keys_of_container(&keys, reply, err);
    if (code == 0)
        code = keys_of_instance(&keys, reply, err);
    np_free(reply);
    if (code < 0)
        return code;
    *ret_keys = keys;
    return 0;
}

/* Under lock. */
static bool is_fresh(bool renew, int64_t now)
{
    if (!cache.known || (renew && np_now_ns() - cache.renewed_ns > REFUSED_NS))
        return false;
    return now < cache.until;
}

int np_credentials_get(bool renew, struct np_keys *ret_keys, struct np_err *err)
{
    const int64_t now = (int64_t)time(NULL);
    struct np_err why = {0};
    struct np_keys keys = {.id = ""};
    int code = 0;

    pthread_mutex_lock(&cache.lock);
    if (!is_fresh(renew, now)) {
        if (cache.failed_ns && np_now_ns() - cache.failed_ns < REFUSED_NS) {
            why = cache.why; /* a server of roles that hangs is not asked for each part */
            code = why.code;
        } else {
            code = look_up(&keys, &why);
            cache.renewed_ns = np_now_ns();
            cache.failed_ns = code ? cache.renewed_ns : 0;
            cache.why = why;
        }
        if (!code && !*keys.id && cache.known && *cache.keys.id && cache.keys.expires > now) {
            cache.until = now + 2; /* the server of the role fails: the old ones are still good */
        } else if (!code) {
            cache.keys = keys;
            cache.known = true;
            cache.until = keys.expires ? keys.expires - EARLY_S
                          : *keys.id   ? now + AGAIN_S
                                       : now + ABSENT_S;
            if (cache.until < now + 10)
                cache.until = now + 10; /* a refusal renews them sooner */
        } else if (cache.known && (!cache.keys.expires || now < cache.keys.expires)) {
            cache.until = now + 2; /* the old ones are still good */
            code = 0;
        }
    }
    if (!code)
        *ret_keys = cache.keys;
    pthread_mutex_unlock(&cache.lock);
    return code ? np_err_set(err, code, "%s", why.text) : 0;
}

void np_credentials_region(char *region, size_t region_bytes)
{
    const char *named = from_environment("AWS_REGION");
    struct profile profile;

    named = named ? named : from_environment("AWS_DEFAULT_REGION");
    if (named && copy(named, region, region_bytes))
        return;
    profile_open(&profile);
    if (!get(&profile, "region", region, region_bytes))
        snprintf(region, region_bytes, "us-east-1");
    profile_close(&profile);
}

bool np_credentials_endpoint(char *url, size_t url_bytes)
{
    const char *named = from_environment("AWS_ENDPOINT_URL_S3");
    struct profile profile;
    bool found;

    named = named ? named : from_environment("AWS_ENDPOINT_URL");
    if (named)
        return copy(named, url, url_bytes);
    profile_open(&profile);
    found = get(&profile, "endpoint_url", url, url_bytes);
    profile_close(&profile);
    return found;
}
