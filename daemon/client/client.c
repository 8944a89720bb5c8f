#include "daemon/client/client.h"

#include <curl/curl.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "daemon/client/runs.h"
#include "daemon/cmd.h"
#include "loader/base/clock.h"
#include "loader/base/json.h"
#include "loader/base/mem.h"
#include "loader/base/text.h"

#define CONNECT_S 5L
#define TIMEOUT_S 90L /* a long poll takes up to 60 */
#define BUSY      503
#define NR_TRIES  12
#define RETRY_NS  500000000
#define POLL_S    50.0 /* length of a long poll */

struct np_client {
    CURL *curl;
    char *path;
    char *body;
    size_t bytes, room;
    char condition[128]; /* header field of the next request; "": none */
    char error[CURL_ERROR_SIZE];
    struct np_err memory; /* error while the body was stored; code 0: none */
};

static bool is_there(const char *path)
{
    return access(path, F_OK) == 0;
}

static char *find_socket(const char *path)
{
    const char *named = path ? path : getenv("NNPIPE_SOCKET");
    char *own;

    if (named && *named)
        return np_strdup(named);
    own = np_xdg_folder("XDG_RUNTIME_DIR", ".local/state", "nnpipe/socket");
    if (own && (is_there(own) || !is_there("/run/nnpipe/socket")))
        return own;
    np_free(own);
    return np_strdup("/run/nnpipe/socket");
}

static size_t append_body(char *bytes, size_t size, size_t nr, void *context)
{
    struct np_client *client = context;
    const size_t more = size * nr;

    if (np_try_grow(&client->body, &client->room, client->bytes + more + 1, 1, &client->memory) < 0)
        return 0;
    memcpy(client->body + client->bytes, bytes, more);
    client->bytes += more;
    client->body[client->bytes] = '\0';
    return more;
}

static void copy_header(const struct np_client *client, const char *name, char *to, size_t room)
{
    struct curl_header *field;

    if (curl_easy_header(client->curl, name, 0, CURLH_HEADER, -1, &field) == CURLHE_OK)
        snprintf(to, room, "%s", field->value);
}

struct np_client *np_client_open(const char *path)
{
    struct np_client *client = np_alloc(sizeof(*client));

    client->path = find_socket(path);
    client->curl = curl_easy_init(); /* NULL: each request returns -ENOMEM */
    curl_easy_setopt(client->curl, CURLOPT_UNIX_SOCKET_PATH, client->path);
    curl_easy_setopt(client->curl, CURLOPT_PROXY, "");
    curl_easy_setopt(client->curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(client->curl, CURLOPT_CONNECTTIMEOUT, CONNECT_S);
    curl_easy_setopt(client->curl, CURLOPT_TIMEOUT, TIMEOUT_S);
    curl_easy_setopt(client->curl, CURLOPT_ERRORBUFFER, client->error);
    curl_easy_setopt(client->curl, CURLOPT_WRITEFUNCTION, append_body);
    curl_easy_setopt(client->curl, CURLOPT_WRITEDATA, client);
    return client;
}

void np_client_close(struct np_client *client)
{
    if (!client)
        return;
    curl_easy_cleanup(client->curl);
    np_free(client->path);
    np_free(client->body);
    np_free(client);
}

/* The response is {"error": {"text": ...}}. */
static int set_refused(const struct np_response *response, struct np_err *err)
{
    struct np_node *node = NULL;

    np_json_parse(response->body, response->bytes, &node, NULL);
    const char *text = np_node_text(np_node_get(node, "error"), "text");
    if (*text)
        np_err_set(err, -EREMOTEIO, "%s", text);
    else
        np_err_set(err, -EREMOTEIO, "the service returned HTTP status %ld", response->status);
    np_node_free(node);
    return -EREMOTEIO;
}

static int set_unreachable(const struct np_client *client, CURLcode code, struct np_err *err)
{
    long error = 0;

    curl_easy_getinfo(client->curl, CURLINFO_OS_ERRNO, &error);
    if (code == CURLE_COULDNT_CONNECT && error == EACCES)
        return np_err_set(err, -EACCES,
            "%s: permission denied: only members of the group nnpipe may use this service",
            client->path);
    if (code == CURLE_COULDNT_CONNECT)
        return np_err_set(err, -ECONNREFUSED,
            "%s: no service answers there; start one with `nnpipe daemon` or "
            "`systemctl --user start nnpipe`",
            client->path);
    if (client->memory.code)
        return np_err_set(err, client->memory.code, "%s", client->memory.text);
    if (code == CURLE_OUT_OF_MEMORY)
        return np_err_set(err, -ENOMEM, "out of memory");
    return np_err_set(err, -EIO, "%s: %s", client->path,
        *client->error ? client->error : curl_easy_strerror(code));
}

static CURLcode send_once(struct np_client *client, const char *method, const char *url,
    const char *body, struct np_response *ret_response)
{
    client->bytes = 0;
    client->memory = (struct np_err){0};
    client->error[0] = '\0';
    append_body((char *)"", 1, 0, client);
    curl_easy_setopt(client->curl, CURLOPT_URL, url);
    curl_easy_setopt(client->curl, CURLOPT_POSTFIELDS, body ? body : "");
    curl_easy_setopt(client->curl, CURLOPT_POST, body ? 1L : 0L);
    if (!body)
        curl_easy_setopt(client->curl, CURLOPT_HTTPGET, 1L);
    curl_easy_setopt(client->curl, CURLOPT_CUSTOMREQUEST, method);
    const CURLcode code = client->body ? curl_easy_perform(client->curl) : CURLE_OUT_OF_MEMORY;

    *ret_response = (struct np_response){.body = client->body, .bytes = client->bytes};
    curl_easy_getinfo(client->curl, CURLINFO_RESPONSE_CODE, &ret_response->status);
    copy_header(client, "X-Next", ret_response->next, sizeof(ret_response->next));
    copy_header(client, "ETag", ret_response->tag, sizeof(ret_response->tag));
    return code;
}

/* Is the service overloaded? Then it has done nothing, and the request can be retried. */
static bool is_busy(const struct np_client *client, CURLcode code, long status)
{
    long error = 0;

    curl_easy_getinfo(client->curl, CURLINFO_OS_ERRNO, &error);
    if (code == CURLE_COULDNT_CONNECT)
        return error == EAGAIN;
    return code == CURLE_OK && status == BUSY && strstr(client->body, "\"busy\"");
}

void np_client_if_changed(struct np_client *client, const char *tag)
{
    client->condition[0] = '\0';
    if (*tag)
        snprintf(client->condition, sizeof(client->condition), "If-None-Match: %s", tag);
}

int np_client_request(struct np_client *client, const char *method, const char *target,
    const char *body, struct np_response *ret_response, struct np_err *err)
{
    char *url = np_format("http://localhost%s", target);
    struct curl_slist *fields = curl_slist_append(NULL, "Content-Type: application/json");
    CURLcode code = CURLE_OUT_OF_MEMORY;

    *ret_response = (struct np_response){.status = 0};
    if (fields && *client->condition) /* without memory for it, the whole body comes */
        curl_slist_append(fields, client->condition);
    client->condition[0] = '\0';
    curl_easy_setopt(client->curl, CURLOPT_HTTPHEADER, fields);
    for (int i = 0; client->curl && fields && i < NR_TRIES; i++) {
        if (i > 0)
            nanosleep(&(struct timespec){.tv_sec = i / 4, .tv_nsec = i % 4 * 250000000L}, NULL);
        code = send_once(client, method, url, body, ret_response);
        if (!is_busy(client, code, ret_response->status))
            break;
    }
    curl_easy_setopt(client->curl, CURLOPT_HTTPHEADER, NULL);
    curl_slist_free_all(fields);
    np_free(url);
    if (code != CURLE_OK)
        return set_unreachable(client, code, err);
    return ret_response->status >= 400 ? set_refused(ret_response, err) : 0;
}

int np_client_request_node(struct np_client *client, const char *method, const char *target,
    const char *body, struct np_node **ret_node, struct np_err *err)
{
    struct np_response response;
    int code = np_client_request(client, method, target, body, &response, err);

    return code < 0 ? code : np_json_parse(response.body, response.bytes, ret_node, err);
}

/* A service that shuts down answers long polls with 503. */
bool np_client_is_away(int code, const struct np_response *response)
{
    return code == -ECONNREFUSED || code == -EIO || (code == -EREMOTEIO && response->status == 503);
}

int np_client_retry_get(struct np_client *client, const char *target,
    struct np_response *ret_response, struct np_err *err)
{
    for (bool waits = false;; waits = true) {
        struct np_err fresh = {0};
        const int code = np_client_request(client, "GET", target, NULL, ret_response, &fresh);

        if (!np_client_is_away(code, ret_response)) {
            if (code < 0)
                *err = fresh;
            else if (waits)
                fputs("nnpipe: the service is back\n", stderr);
            return code;
        }
        if (!waits)
            fputs("nnpipe: the service does not answer; waiting until it is back\n", stderr);
        nanosleep(&(struct timespec){.tv_nsec = RETRY_NS}, NULL);
    }
}

int np_client_wait_end(struct np_client *client, int64_t id, double until_s,
    struct np_node **ret_run, struct np_err *err)
{
    for (;;) {
        const double left_s = until_s - (double)np_now_ns() * 1e-9;
        char target[160];

        snprintf(target, sizeof(target), "/v1/runs/%lld?wait=%.3f&state=" NP_RUN_UNFINISHED,
            (long long)id, fmin(fmax(left_s, 0), POLL_S));
        struct np_node *run = NULL;
        struct np_response response;
        int code = np_client_retry_get(client, target, &response, err);

        if (code == 0)
            code = np_json_parse(response.body, response.bytes, &run, err);
        if (code < 0)
            return code;
        if (np_run_is_finished(run)) {
            *ret_run = run;
            return 0;
        }
        np_node_free(run);
        if (left_s <= 0)
            return np_err_set(err, -ETIMEDOUT, "run %lld has not finished yet", (long long)id);
    }
}

int np_client_end(struct np_client *client, int code, const struct np_err *err)
{
    np_client_close(client);
    if (code < 0)
        np_complain(err);
    return code < 0 ? NP_EXIT_FAILED : code;
}

/* Percent-encodes a text for a target. np_free. */
static char *escape(const char *text)
{
    char *escaped = curl_easy_escape(NULL, text, 0);

    return escaped ? escaped : np_strdup("");
}

char *np_client_filter(char *target, const char *key, const char *value)
{
    if (!value)
        return target;
    char *escaped = escape(value), *longer = np_format("%s&%s=%s", target, key, escaped);

    np_free(escaped);
    np_free(target);
    return longer;
}
