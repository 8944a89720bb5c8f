/* Ranks tell their ends through a pipe: a line of JSON each, in one write() of less than PIPE_BUF. */
#include "daemon/run/gang.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/run/processes.h"
#include "loader/base/json.h"
#include "loader/base/mem.h"

#define MAX_LINE  2048
#define MAX_TOLD  (NP_MAX_GANG * MAX_LINE)
#define BY_SIGNAL 128 /* of a shell's exit codes */

void np_gang_device(const struct np_job *job, int rank, char *device, size_t room)
{
    const char *at = job->device;

    for (int r = 0; r < rank && strchr(at, ','); r++)
        at = strchr(at, ',') + 1;
    snprintf(device, room, "%.*s", (int)strcspn(at, ","), at);
}

void np_gang_tell(int fd, int rank, enum np_device_trouble trouble, const struct np_err *err)
{
    struct np_json json = {0};
    char reason[480];

    snprintf(reason, sizeof(reason), "%s", err->code ? err->text : "");
    np_json_begin(&json, NULL);
    np_json_int(&json, "rank", rank);
    np_json_int(&json, "trouble", trouble);
    np_json_text(&json, "reason", reason);
    const char *line = np_json_end(&json);
    if (line && strlen(line) < MAX_LINE && write(fd, line, strlen(line)) < 0)
        perror("nnpipe: the end of a rank");
    np_json_fini(&json);
}

/* Takes what the rank that failed first has told. text: lines of all. */
static void take_told(const char *text, struct np_gang_end *end)
{
    for (size_t bytes; *text; text += bytes + (text[bytes] == '\n')) {
        struct np_node *node = NULL;

        bytes = strcspn(text, "\n");
        if (np_json_parse(text, bytes, &node, NULL) == 0 &&
            np_node_number(node, "rank", -1) == end->rank) {
            const double trouble = np_node_number(node, "trouble", 0);

            if (trouble == NP_DEVICE_ABSENT || trouble == NP_DEVICE_FAILED)
                end->trouble = (enum np_device_trouble)trouble;
            snprintf(end->reason, sizeof(end->reason), "%s", np_node_text(node, "reason"));
        }
        np_node_free(node);
    }
}

/* All ranks have ended: reads without waiting. */
static void read_told(int fd, struct np_gang_end *end)
{
    char *text = np_alloc(MAX_TOLD + 1);
    size_t used = 0;
    ssize_t nr;

    while (used < MAX_TOLD && (nr = read(fd, text + used, MAX_TOLD - used)) > 0)
        used += (size_t)nr;
    text[used] = '\0';
    take_told(text, end);
    np_free(text);
}

int np_gang_run(const struct np_job *job, int lock_fd, struct np_gang_end *ret_end)
{
    static char program[] = "nnpipe", command[] = "worker", flag[] = "--rank";
    const char *name = strrchr(job->dir, '/') + 1;
    char number[16], shown[256];
    char *words[] = {program, command, shown, flag, number, NULL};
    struct np_processes processes = {
        .argv = words, .nr = job->processes, .death_signal = SIGKILL, .same_input = true};
    int ends[2];

    *ret_end = (struct np_gang_end){.rank = -1};
    if (pipe2(ends, O_NONBLOCK) < 0) {
        perror("nnpipe worker: a pipe");
        return NP_EXIT_FAILED;
    }
    snprintf(shown, sizeof(shown), "%s", name);
    snprintf(number, sizeof(number), "%d", ends[1]);
    fcntl(ends[0], F_SETFD, FD_CLOEXEC);
    fcntl(lock_fd, F_SETFD, 0);
    const int code = np_processes_run(&processes);
    ret_end->rank = processes.first_failed;
    if (processes.first_failed >= 0 && processes.first_code > BY_SIGNAL)
        ret_end->signal = processes.first_code - BY_SIGNAL;
    read_told(ends[0], ret_end);
    close(ends[0]);
    close(ends[1]);
    return code;
}
