/* `nnpipe logs ID [-f]`: prints a run's log, and with -f follows it. Main thread. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/client/client.h"
#include "daemon/client/runs.h"
#include "daemon/cmd.h"
#include "loader/base/mem.h"

/* Returns 1, 0 or -errno. */
static int has_finished(struct np_client *client, int64_t id, struct np_err *err)
{
    struct np_node *run = NULL;
    const int code = np_client_wait_end(client, id, 0, &run, err);

    np_node_free(run);
    if (code == -ETIMEDOUT)
        *err = (struct np_err){0};
    return code == -ETIMEDOUT ? 0 : code == 0 ? 1 : code;
}

struct rest { /* the first bytes of a UTF-8 character that the last part cut off */
    char bytes[4];
    size_t nr;
};

/* On a terminal, removes control characters, which could change it; in a file keeps them. */
static int print_part(struct rest *rest, const char *body, size_t bytes, struct np_err *err)
{
    const size_t nr = rest->nr + bytes;

    if (!isatty(STDOUT_FILENO)) {
        fwrite(body, 1, bytes, stdout);
        return 0;
    }
    char *all = np_try_alloc(nr + 1, err);
    if (!all)
        return -ENOMEM;
    memcpy(all, rest->bytes, rest->nr);
    memcpy(all + rest->nr, body, bytes);
    const size_t whole = np_text_clean_log(all, nr, bytes == 0);
    fwrite(all, 1, whole, stdout);
    rest->nr = nr - whole;
    memcpy(rest->bytes, all + whole, rest->nr);
    np_free(all);
    return 0;
}

/* Prints to the end of the log; with follow, until the run has finished. X-Next is the position of
 * the next byte; it stays valid when the log is rotated or the service restarted. */
static int print_log(
    struct np_client *client, int64_t id, const char *begin, bool follow, struct np_err *err)
{
    char next[64] = "0:0", target[160];
    bool first = true;
    int over = 0, code;
    struct np_response response;
    struct rest rest = {.nr = 0};

    for (;;) {
        snprintf(target, sizeof(target), "/v1/runs/%lld/log?from=%s%s%s", (long long)id, next,
            first ? begin : "", follow && !first && !over ? "&wait=50" : "");
        code = first ? np_client_request(client, "GET", target, NULL, &response, err)
                     : np_client_retry_get(client, target, &response, err);
        if (code < 0)
            return code;
        if ((code = print_part(&rest, response.body, response.bytes, err)) < 0)
            return code;
        if (fflush(stdout) != 0)
            return 0; /* a closed pipe */
        snprintf(next, sizeof(next), "%s", response.next);
        first = false;
        if (response.bytes > 0)
            continue;
        if (!follow || over)
            return 0;
        if ((over = has_finished(client, id, err)) < 0)
            return over;
    }
}

static bool is_number(const char *text)
{
    return !text || (*text && strlen(text) < 19 && strspn(text, "0123456789") == strlen(text));
}

int np_cmd_logs(int argc, char **argv)
{
    const char *socket = NULL, *tail = NULL, *lines = NULL;
    bool follow = false;
    const struct np_flag flags[] = {
        {"--follow", NULL, &follow, NULL},
        {"-f", NULL, &follow, NULL},
        {"-n", &lines, NULL, NULL},
        {"--tail", &tail, NULL, NULL},
        {"--socket", &socket, NULL, NULL},
        {NULL, NULL, NULL, NULL},
    };
    struct np_err err = {0};
    int64_t id = 0;
    char begin[40] = "";
    int nr, code = np_flags_parse(argc, argv, flags, NULL, &nr);

    if (code)
        return code;
    if (nr != 1 || !np_run_id(argv[1], &id) || !is_number(tail) || !is_number(lines) ||
        (tail && lines)) {
        fprintf(stderr, "nnpipe logs: expected one run number from `nnpipe ls`, and -n LINES or "
                        "--tail BYTES\n");
        return NP_EXIT_USAGE;
    }
    if (tail || lines)
        snprintf(begin, sizeof(begin), "&%s=%s", lines ? "lines" : "tail", lines ? lines : tail);
    struct np_client *client = np_client_open(socket);
    code = print_log(client, id, begin, follow, &err);
    return np_client_end(client, code, &err);
}
