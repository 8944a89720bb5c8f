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
#include "loader/remote/role.h"

#define MAX_FILE     (1u << 20)
#define EARLY_S      300  /* new keys are asked for so long before the old ones expire */
#define AGAIN_S      60   /* after this time keys of files are read again ... */
#define ABSENT_S     3600 /* ... and keys looked for that were nowhere */
#define REFUSED_NS   2000000000u
#define STILL_GOOD_S 30 /* old keys are used for so long, before new ones are asked for again */

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

/* The URL of a service, for which a variable of its own may be set; false: AWS itself. */
static bool get_endpoint(
    const struct profile *profile, const char *variable, char *url, size_t url_bytes)
{
    const char *named = from_environment(variable);

    named = named ? named : from_environment("AWS_ENDPOINT_URL");
    return named ? copy(named, url, url_bytes) : get(profile, "endpoint_url", url, url_bytes);
}

static void get_region(const struct profile *profile, char *region, size_t region_bytes)
{
    const char *named = from_environment("AWS_REGION");

    named = named ? named : from_environment("AWS_DEFAULT_REGION");
    if ((!named || !copy(named, region, region_bytes)) &&
        !get(profile, "region", region, region_bytes))
        snprintf(region, region_bytes, "us-east-1");
}

/* The variable's value, or the profile's. */
static bool get_either(
    const struct profile *profile, const char *variable, const char *key, char *value, size_t bytes)
{
    const char *named = from_environment(variable);

    return named ? copy(named, value, bytes) : get(profile, key, value, bytes);
}

/* 1: keys; 0: there is no web identity. */
static int keys_of_identity(const struct profile *profile, struct np_keys *keys, struct np_err *err)
{
    char file[4096], role[2048], session[256], sts[512], region[64];
    struct np_web_identity identity = {.token_file = file, .role = role, .sts = sts};

    if (!get_either(
            profile, "AWS_WEB_IDENTITY_TOKEN_FILE", "web_identity_token_file", file, sizeof(file)))
        return 0;
    if (!get_either(profile, "AWS_ROLE_ARN", "role_arn", role, sizeof(role)))
        return np_err_set(err, -EINVAL,
            "there is a web identity (%s), but neither AWS_ROLE_ARN nor the profile's role_arn "
            "names the role to take with it",
            file);
    if (get_either(profile, "AWS_ROLE_SESSION_NAME", "role_session_name", session, sizeof(session)))
        identity.session = session;
    if (!get_endpoint(profile, "AWS_ENDPOINT_URL_STS", sts, sizeof(sts))) {
        get_region(profile, region, sizeof(region));
        snprintf(sts, sizeof(sts), "https://sts.%s.amazonaws.com%s", region,
            strncmp(region, "cn-", 3) == 0 ? ".cn" : "");
    }
    return np_role_of_identity(&identity, keys, err);
}

/* 1: keys; 0: none here. What AWS's own tools take before keys in the file comes before them here. */
static int keys_of_files(const struct profile *profile, struct np_keys *keys, struct np_err *err)
{
    static const char *const before[] = {"role_arn", "sso_session", "sso_start_url"};
    char value[1024];

    for (size_t i = 0; i < sizeof(before) / sizeof(*before); i++)
        if (get(profile, before[i], value, sizeof(value)))
            return refuse_way(profile, before[i], err);
    if (get(profile, "aws_access_key_id", keys->id, sizeof(keys->id))) {
        if (!get(profile, "aws_secret_access_key", keys->secret, sizeof(keys->secret)))
            return np_err_set(err, -EINVAL,
                "the profile '%s' of the AWS files has aws_access_key_id without "
                "aws_secret_access_key",
                profile->name);
        get(profile, "aws_session_token", keys->token, sizeof(keys->token));
        return 1;
    }
    if (get(profile, "credential_process", value, sizeof(value)))
        return refuse_way(profile, "credential_process", err);
    if (from_environment("AWS_PROFILE") && !has(profile))
        return np_err_set(err, -EINVAL,
            "AWS_PROFILE is '%s', but ~/.aws/credentials and ~/.aws/config have no such profile",
            profile->name);
    return 0;
}

/* The same order: a web identity, also of the environment, comes before the files' keys. */
static int keys_of_profile(struct np_keys *keys, struct np_err *err)
{
    struct profile profile;
    int code;

    profile_open(&profile);
    code = keys_of_identity(&profile, keys, err);
    if (code == 0)
        code = keys_of_files(&profile, keys, err);
    profile_close(&profile);
    return code;
}

/* --- the environment ------------------------------------------------------------------------- */

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

/* --- the current keys ------------------------------------------------------------------------ */

static int look_up(struct np_keys *ret_keys, struct np_err *err)
{
    struct np_keys keys = {.id = ""};
    int code = keys_of_environment(&keys, err);

    if (code == 0)
        code = keys_of_profile(&keys, err);
    if (code == 0)
        code = np_role_of_machine(&keys, err);
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
            cache.until = (int64_t)time(NULL) + STILL_GOOD_S; /* the server of the role fails */
        } else if (!code) {
            cache.keys = keys;
            cache.known = true;
            cache.until = keys.expires ? keys.expires - EARLY_S
                          : *keys.id   ? now + AGAIN_S
                                       : now + ABSENT_S;
            if (cache.until < now + 10)
                cache.until = now + 10; /* a refusal renews them sooner */
        } else if (cache.known && (!cache.keys.expires || now < cache.keys.expires)) {
            cache.until = (int64_t)time(NULL) + STILL_GOOD_S;
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
    struct profile profile;

    profile_open(&profile);
    get_region(&profile, region, region_bytes);
    profile_close(&profile);
}

bool np_credentials_endpoint(char *url, size_t url_bytes)
{
    struct profile profile;
    bool found;

    profile_open(&profile);
    found = get_endpoint(&profile, "AWS_ENDPOINT_URL_S3", url, url_bytes);
    profile_close(&profile);
    return found;
}
