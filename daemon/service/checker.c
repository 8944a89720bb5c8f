/* See checker.h. */
#include "daemon/service/checker.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/json.h"
#include "daemon/service/service_parts.h"
#include "daemon/service/worker.h"
#include "loader/base/mem.h"

#define MOST_S     60.0
#define MOST_BYTES (4u << 20)
#define MOST_WORDS 160

/* In the child; comes back only with an error. */
static int be_checker(const struct np_check *check, int config_fd, int answer_fd)
{
    const struct rlimit seconds = {(rlim_t)MOST_S, (rlim_t)MOST_S};
    const char *words[MOST_WORDS] = {
        "nnpipe", "check", "-", "--json", "--as", check->path, "--whole"};
    char *folder = strdup(check->path);
    int n = 7, code;

    for (int i = 0; check->overrides && i < check->overrides->nr_items && n + 4 < MOST_WORDS; i++) {
        words[n++] = "-o";
        words[n++] = check->overrides->items[i]->text;
    }
    if (*check->device) {
        words[n++] = "--device";
        words[n++] = check->device;
    }
    np_child_signals();
    setpgid(0, 0);
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setrlimit(RLIMIT_CPU, &seconds);
    if ((code = np_become(check->uid, check->gid)) < 0)
        return code;
    if (!folder || chdir(dirname(folder)) < 0 || dup2(config_fd, STDIN_FILENO) < 0 ||
        dup2(answer_fd, STDOUT_FILENO) < 0)
        return -errno;
    if (!freopen("/dev/null", "w", stderr))
        return -errno;
    execv("/proc/self/exe", (char *const *)words);
    return -errno;
}

int np_checker_start(
    const struct np_check *check, struct np_checker *ret_checker, struct np_err *err)
{
    const int config_fd = np_text_fd(check->config);
    int answer[2] = {-1, -1}, code = config_fd < 0 ? config_fd : 0;
    pid_t child = -1;

    if (code == 0 && pipe2(answer, O_CLOEXEC | O_NONBLOCK) < 0)
        code = -errno;
    if (code == 0 && (child = fork()) < 0)
        code = -errno;
    if (child == 0) {
        code = be_checker(check, config_fd, answer[1]);
        dprintf(answer[1],
            "{\"ok\": false, \"problems\": [{\"file\": \"\", \"line\": 0, \"column\": 0, \"text\": "
            "\"the config cannot be checked as its submitter: %s\"}]}\n",
            strerror(-code));
        _exit(127);
    }
    if (config_fd >= 0)
        close(config_fd);
    if (answer[1] >= 0)
        close(answer[1]);
    if (code < 0) {
        if (answer[0] >= 0)
            close(answer[0]);
        return np_err_set(err, code, "the config cannot be checked: %s", strerror(-code));
    }
    *ret_checker = (struct np_checker){.pid = child, .fd = answer[0], .began = np_service_now()};
    return 0;
}

static bool grow(struct np_checker *checker)
{
    const size_t room = 2 * checker->room + 4096;
    char *text = room <= MOST_BYTES ? np_alloc(room) : NULL;

    if (!text)
        return false;
    if (checker->used)
        memcpy(text, checker->text, checker->used);
    np_free(checker->text);
    checker->text = text;
    checker->room = room;
    return true;
}

int np_checker_turn(struct np_checker *checker, struct np_node **ret_answer)
{
    ssize_t nr = -1;

    *ret_answer = NULL;
    do {
        if (checker->used + 4096 > checker->room && !grow(checker))
            break;
        nr = read(checker->fd, checker->text + checker->used, checker->room - checker->used);
        checker->used += nr > 0 ? (size_t)nr : 0;
    } while (nr > 0);
    if (nr != 0 && np_service_now() - checker->began < MOST_S &&
        checker->used + 4096 <= checker->room)
        return 0;
    if (nr == 0 && np_json_parse(checker->text, checker->used, ret_answer, NULL) < 0)
        *ret_answer = NULL;
    np_checker_stop(checker);
    return 1;
}

void np_checker_stop(struct np_checker *checker)
{
    if (checker->pid > 0) {
        kill(-checker->pid, SIGKILL);
        kill(checker->pid, SIGKILL);
        while (waitpid(checker->pid, NULL, 0) < 0 && errno == EINTR)
            ;
        close(checker->fd);
    }
    np_free(checker->text);
    *checker = (struct np_checker){.fd = -1};
}
