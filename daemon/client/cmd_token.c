/* `nnpipe token`: the caller's own token, with which a browser may see their runs on the service's page.
 *
 * The service keeps a hash of it alone, so this side remembers it: in the user's state folder, 0600. Who may read the
 * service's own token (root, or the user of one's own service) is shown that one. Main thread. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/client/client.h"
#include "daemon/client/runs.h"
#include "daemon/cmd.h"
#include "loader/base/io.h"
#include "loader/base/mem.h"
#include "loader/base/text.h"

#define TOKEN_BYTES 64 /* hex digits */

/* false: there is none, or it is not this user's to read. */
static bool read_token(const char *path, char token[TOKEN_BYTES + 1])
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    const ssize_t bytes = fd < 0 ? -1 : read(fd, token, TOKEN_BYTES);

    if (fd >= 0)
        close(fd);
    token[TOKEN_BYTES] = '\0';
    return bytes == TOKEN_BYTES && strspn(token, "0123456789abcdef") == TOKEN_BYTES;
}

static int write_token(const char *dir, const char *path, const char *token, struct np_err *err)
{
    char *made = np_format("%s.new", path);
    int code = np_make_dirs(dir, err);

    if (code == 0) {
        unlink(made);
        const int fd = open(made, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);

        if (fd < 0 || write(fd, token, TOKEN_BYTES) != TOKEN_BYTES || fsync(fd) < 0 ||
            rename(made, path) < 0)
            code = np_err_set(err, errno ? -errno : -EIO, "%s: cannot be written: %s", path,
                strerror(errno ? errno : EIO));
        if (fd >= 0)
            close(fd);
    }
    np_free(made);
    return code;
}

/* A new one of the service's, in token. */
static int make_token(struct np_client *client, char token[TOKEN_BYTES + 1], struct np_err *err)
{
    struct np_node *made = NULL;
    int code = np_client_ask_node(client, "POST", "/v1/tokens", NULL, &made, err);

    if (code == 0 && strlen(np_node_text(made, "token")) != TOKEN_BYTES)
        code = np_err_set(err, -EBADMSG, "the service has answered with something else");
    if (code == 0)
        snprintf(token, TOKEN_BYTES + 1, "%s", np_node_text(made, "token"));
    np_node_free(made);
    return code;
}

/* The one that there is, or with `anew`, or where there is none, a new one. */
static int find_token(
    struct np_client *client, bool anew, char token[TOKEN_BYTES + 1], struct np_err *err)
{
    char *dir = np_xdg_folder("XDG_STATE_HOME", ".local/state", "nnpipe"),
         *path = dir ? np_format("%s/page-token", dir) : NULL, *own = NULL;
    struct np_node *service = NULL;
    int code = path ? np_client_ask_node(client, "GET", "/v1/service", NULL, &service, err)
                    : np_err_set(err, -ENOENT, "HOME is not set: there is no place for a token");

    if (code == 0 && *np_node_text(service, "state_dir") == '/')
        own = np_format("%s/token", np_node_text(service, "state_dir"));
    if (code < 0) {
        /* told by the caller */
    } else if (own && access(own, R_OK) == 0) { /* the administrator's, which the service keeps */
        if (anew || !read_token(own, token))
            code = make_token(client, token, err);
    } else if (anew || !read_token(path, token)) {
        code = make_token(client, token, err);
        if (code == 0)
            code = write_token(dir, path, token, err);
    }
    np_node_free(service);
    np_free(own);
    np_free(path);
    np_free(dir);
    return code;
}

static int take_back(struct np_client *client, struct np_err *err)
{
    char *dir = np_xdg_folder("XDG_STATE_HOME", ".local/state", "nnpipe"),
         *path = dir ? np_format("%s/page-token", dir) : NULL;
    struct np_answer answer;
    const int code = np_client_ask(client, "DELETE", "/v1/tokens", NULL, &answer, err);

    if (code == 0 && path)
        unlink(path);
    np_free(path);
    np_free(dir);
    return code;
}

int np_cmd_token(int argc, char **argv)
{
    const char *socket = NULL;
    bool json = false, anew = false, revokes = false;
    const struct np_flag flags[] = {{"--new", NULL, &anew, NULL},
        {"--revoke", NULL, &revokes, NULL}, NP_SERVICE_FLAGS(json, socket)};
    struct np_client *client = NULL;
    struct np_err err = {0};
    char token[TOKEN_BYTES + 1] = "";
    int nr, code = np_flags_parse(argc, argv, flags, NULL, &nr);

    if (code)
        return code;
    if (nr > 0 || (anew && revokes)) {
        fprintf(stderr, "nnpipe token: expected --new, --revoke or nothing\n");
        return NP_EXIT_USAGE;
    }
    code = np_client_open(socket, &client, &err);
    if (code == 0)
        code = revokes ? take_back(client, &err) : find_token(client, anew, token, &err);
    if (np_client_end(client, code, &err))
        return NP_EXIT_FAILED;
    if (json)
        printf("{\"event\": \"token\", \"token\": %s%s%s}\n", revokes ? "" : "\"",
            revokes ? "null" : token, revokes ? "" : "\"");
    else
        puts(revokes ? "the token is no longer valid" : token);
    return NP_EXIT_DONE;
}
