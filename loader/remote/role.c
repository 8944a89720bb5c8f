#include "loader/remote/role.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "loader/base/io.h"
#include "loader/base/mem.h"
#include "loader/remote/reply.h"
#include "loader/remote/url.h"
#include "loader/remote/web.h"

#define MAX_TOKEN    16384
#define ROLE_MS      2000 /* limit of one request to this machine ... */
#define ROLE_CONNECT 1000
#define STS_MS       4000 /* ... and to STS: a listing gives up after 5 s */
#define STS_CONNECT  2000
#define INSTANCE     "http://169.254.169.254"
#define CONTAINER    "http://169.254.170.2"

static const char *from_environment(const char *name)
{
    const char *value = getenv(name);

    return value && *value ? value : NULL;
}

/* --- one request ----------------------------------------------------------------------------- */

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

/* GETs, or POSTs a form. -ECONNREFUSED and -ETIMEDOUT: nobody answers there. */
static int fetch(struct np_web_call *call, struct reply *reply, struct np_err *err)
{
    struct np_web *web = np_web_new(1, err);
    struct np_refusal refusal;
    int code;

    call->direct = strncmp(call->url, "http:", 5) == 0;
    call->data = take_reply;
    call->owner = reply;
    reply->bytes = 0;
    reply->text[0] = '\0';
    code = web ? np_web_begin(web, call) : -ENOMEM;
    while (!code && !np_web_turn(web))
        np_web_wait(web, 100);
    np_web_free(web);
    if (code)
        return np_err_set(err, code, "out of memory for a request");
    if (call->code)
        return np_err_set(err, call->code, "%s: %s", call->url, call->error);
    if (call->answer.status / 100 == 2)
        return 0;
    np_refusal_read(call->body, &refusal);
    return np_err_set(err, -EACCES, "%s answers HTTP %d%s%s%s%s", call->url, call->answer.status,
        *refusal.code ? ": " : "", refusal.code, *refusal.message ? ": " : "", refusal.message);
}

/* A request to this machine or its surroundings. */
static int ask(const char *method, const char *url, const char *fields, struct reply *reply,
    struct np_err *err)
{
    struct np_web_call call = {.method = method,
        .url = url,
        .fields = fields,
        .connect_ms = ROLE_CONNECT,
        .max_ms = ROLE_MS};

    return fetch(&call, reply, err);
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

/* A token, which its owner may replace at any time. np_free. */
static int read_token(const char *path, char **ret_token, struct np_err *err)
{
    struct np_err why = {0};
    char *text = NULL;
    uint64_t bytes;

    if (np_read_file(path, MAX_TOKEN, &text, &bytes, &why))
        return np_err_set(err, -EINVAL, "its token: %s", why.text);
    text[strcspn(text, "\r\n")] = '\0';
    if (!*text) {
        np_free(text);
        return np_err_set(err, -EINVAL, "its token: %s is empty", path);
    }
    *ret_token = text;
    return 0;
}

/* --- a web identity -------------------------------------------------------------------------- */

/* The body of the request. np_free. */
static int make_form(
    const struct np_web_identity *identity, const char *token, char **ret_form, struct np_err *err)
{
    const size_t token_bytes = 3 * strlen(token) + 4;
    char role[3 * 2048], session[3 * 256], own[64];
    char *encoded = np_try_alloc(token_bytes, err);

    snprintf(own, sizeof(own), "nnpipe-%lld", (long long)time(NULL));
    if (!encoded)
        return -ENOMEM;
    if (!np_url_encode(identity->role, role, sizeof(role)) ||
        !np_url_encode(identity->session ? identity->session : own, session, sizeof(session)) ||
        !np_url_encode(token, encoded, token_bytes)) {
        np_free(encoded);
        return np_err_set(err, -EINVAL, "its role or the session's name is too long");
    }
    *ret_form = np_try_format(err,
        "Action=AssumeRoleWithWebIdentity&Version=2011-06-15&RoleArn=%s&RoleSessionName=%s"
        "&WebIdentityToken=%s",
        role, session, encoded);
    np_free(encoded);
    return *ret_form ? 0 : -ENOMEM;
}

/* Exchanges the token for keys. */
static int exchange(const struct np_web_identity *identity, struct reply *reply,
    struct np_keys *keys, struct np_err *err)
{
    char *token = NULL, *form = NULL;
    int code = read_token(identity->token_file, &token, err);

    if (!code)
        code = make_form(identity, token, &form, err);
    if (!code) {
        struct np_web_call call = {
            .url = identity->sts, .form = form, .connect_ms = STS_CONNECT, .max_ms = STS_MS};

        code = fetch(&call, reply, err);
    }
    if (!code)
        code = np_keys_of_xml(reply->text, keys, err);
    np_free(token);
    np_free(form);
    return code;
}

int np_role_of_identity(
    const struct np_web_identity *identity, struct np_keys *ret_keys, struct np_err *err)
{
    struct reply *reply;
    int code;

    if (!may_send_to(identity->sts))
        return np_err_set(err, -EINVAL,
            "the web identity: its token is sent by https, or to this machine, but not to %s: set "
            "AWS_ENDPOINT_URL_STS",
            identity->sts);
    reply = np_try_alloc(sizeof(*reply), err);
    if (!reply)
        return -ENOMEM;
    code = exchange(identity, reply, ret_keys, err);
    np_free(reply);
    return code ? np_err_context(err, "the web identity") : 1;
}

/* --- a container, and an instance ------------------------------------------------------------ */

static int token_of_container(char *fields, size_t room, struct np_err *err)
{
    const char *path = from_environment("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
    const char *token = from_environment("AWS_CONTAINER_AUTHORIZATION_TOKEN");
    char *text = NULL;
    int code = path ? read_token(path, &text, err) : 0;

    token = path ? text : token;
    if (!code && token && strpbrk(token, "\r\n"))
        code = np_err_set(err, -EINVAL, "AWS_CONTAINER_AUTHORIZATION_TOKEN has a line end");
    else if (!code && token && snprintf(fields, room, "Authorization: %s\n", token) >= (int)room)
        code = np_err_set(err, -EINVAL, "the token of the container's credentials is too long");
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
    if (used >= (int)sizeof(url))
        return 0;
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

int np_role_of_machine(struct np_keys *ret_keys, struct np_err *err)
{
    struct reply *reply = np_try_alloc(sizeof(*reply), err);
    int code = reply ? keys_of_container(ret_keys, reply, err) : -ENOMEM;

    if (code == 0)
        code = keys_of_instance(ret_keys, reply, err);
    np_free(reply);
    return code;
}
