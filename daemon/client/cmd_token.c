/* `nnpipe token`: prints a token with which a browser shows the user's runs on the service's page.
 * The service keeps only its hash, so this command stores the token in the user's state folder,
 * mode 0600. A caller who can read the service's own token (root, or the owner of a user's service)
 * gets that token. Main thread. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/client/client.h"
#include "daemon/client/runs.h"
#include "daemon/cmd.h"
#include "loader/base/io.h"
#include "loader/base/mem.h"
#include "loader/base/text.h"

#define TOKEN_BYTES 64 /* hex digits */

static bool read_token(const char *path, char token[TOKEN_BYTES + 1])
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    const ssize_t bytes = fd < 0 ? -1 : read(fd, token, TOKEN_BYTES);

    if (fd >= 0)
        close(fd);
    token[TOKEN_BYTES] = '\0';
    return bytes == TOKEN_BYTES && strspn(token, "0123456789abcdef") == TOKEN_BYTES;
}

static int write_token(const char *path, const char *token, struct np_err *err)
{
    const int code = np_make_parent(path, err);

    if (code < 0)
        return code;
    return np_write_file(path, token, TOKEN_BYTES, NP_WRITE_PRIVATE | NP_WRITE_DURABLE, err);
}

static int make_token(struct np_client *client, char token[TOKEN_BYTES + 1], struct np_err *err)
{
    struct np_node *made = NULL;
    int code = np_client_request_node(client, "POST", "/v1/tokens", NULL, &made, err);

    if (code == 0 && strlen(np_node_text(made, "token")) != TOKEN_BYTES)
        code = np_err_set(err, -EBADMSG, "the service's response has no token");
    if (code == 0)
        snprintf(token, TOKEN_BYTES + 1, "%s", np_node_text(made, "token"));
    np_node_free(made);
    return code;
}

/* The stored token; a new one if there is none or `renew` is set. */
static int find_token(
    struct np_client *client, bool renew, char token[TOKEN_BYTES + 1], struct np_err *err)
{
    char *path = np_xdg_folder("XDG_STATE_HOME", ".local/state", "nnpipe/page-token"), *own = NULL;
    struct np_node *service = NULL;
    int code = path ? np_client_request_node(client, "GET", "/v1/service", NULL, &service, err)
                    : np_err_set(err, -ENOENT, "HOME is not set: the token cannot be stored");

    if (code == 0 && *np_node_text(service, "state_dir") == '/')
        own = np_format("%s/token", np_node_text(service, "state_dir"));
    /* The service itself writes the file of the administrator's token. */
    const bool is_own = code == 0 && own && access(own, R_OK) == 0;
    if (code == 0 && (renew || !read_token(is_own ? own : path, token))) {
        code = make_token(client, token, err);
        if (code == 0 && !is_own)
            code = write_token(path, token, err);
    }
    np_node_free(service);
    np_free(own);
    np_free(path);
    return code;
}

static int revoke_token(struct np_client *client, struct np_err *err)
{
    char *path = np_xdg_folder("XDG_STATE_HOME", ".local/state", "nnpipe/page-token");
    struct np_response response;
    const int code = np_client_request(client, "DELETE", "/v1/tokens", NULL, &response, err);

    if (code == 0 && path)
        unlink(path);
    np_free(path);
    return code;
}

int np_cmd_token(int argc, char **argv)
{
    const char *socket = NULL;
    bool json = false, renew = false, revokes = false;
    const struct np_flag flags[] = {{"--new", NULL, &renew, NULL},
        {"--revoke", NULL, &revokes, NULL}, NP_SERVICE_FLAGS(json, socket)};
    struct np_err err = {0};
    char token[TOKEN_BYTES + 1] = "";
    int nr, code = np_flags_parse(argc, argv, flags, NULL, &nr);

    if (code)
        return code;
    if (nr > 0 || (renew && revokes)) {
        fprintf(stderr, "nnpipe token: expected --new, --revoke or no flag\n");
        return NP_EXIT_USAGE;
    }
    struct np_client *client = np_client_open(socket);
    code = revokes ? revoke_token(client, &err) : find_token(client, renew, token, &err);
    if (np_client_end(client, code, &err))
        return NP_EXIT_FAILED;
    if (json)
        printf("{\"event\": \"token\", \"token\": %s%s%s}\n", revokes ? "" : "\"",
            revokes ? "null" : token, revokes ? "" : "\"");
    else
        puts(revokes ? "the token is no longer valid" : token);
    return NP_EXIT_DONE;
}
