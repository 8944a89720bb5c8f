/* The service's only user of curl. */
#include "daemon/service/hook.h"

#include <curl/curl.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/cmd.h"
#include "daemon/service/as_user.h"
#include "daemon/service/environment.h"
#include "daemon/service/run_enter.h"
#include "loader/base/io.h"
#include "loader/base/json.h"
#include "loader/base/mem.h"

#define WEBHOOK_S 30L
#define NR_TRIES  3
#define MAX_BYTES (1u << 20)

static void end_group(int number)
{
    static const char text[] = "on_end: killed, because it did not end in time\n";

    if (write(STDERR_FILENO, text, sizeof(text) - 1) < 0) /* the log cannot be written */
        kill(0, SIGKILL);
    kill(0, SIGKILL);
}

static void limit_time(unsigned max_s)
{
    signal(SIGALRM, end_group);
    alarm(max_s);
}

static void be_command(const char *command, int input_fd)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (dup2(input_fd, STDIN_FILENO) >= 0)
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
    dprintf(STDERR_FILENO, "on_end: cannot run /bin/sh: %s\n", strerror(errno));
    _exit(127);
}

/* run: standard input. Returns 0 if the command exited with 0, else 1. */
static int run_command(const char *command, const char *run)
{
    const int input_fd = np_text_fd(run);
    const pid_t pid = input_fd < 0 ? -1 : fork();
    int status = 0;

    if (pid == 0)
        be_command(command, input_fd);
    if (pid < 0) {
        dprintf(STDERR_FILENO, "on_end: cannot start a process\n");
        return 1;
    }
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return 1;
    if (status != 0)
        dprintf(STDERR_FILENO, "on_end: ended with %s %d\n",
            WIFSIGNALED(status) ? "signal" : "exit code",
            WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    return status != 0;
}

static void redirect_to_log(const struct np_hook *hook)
{
    struct np_err err = {0};

    if (np_folder_enter(hook->dir, &err) < 0) {
        if (chdir("/") < 0)
            _exit(1);
        return;
    }
    const int last = np_output_last(), fd = last > 0 ? np_output_open(last) : -1;
    if (fd < 0)
        return;
    dup2(fd, STDOUT_FILENO);
    dup2(fd, STDERR_FILENO);
    close(fd);
}

int np_hook_run(const struct np_hook *hook)
{
    redirect_to_log(hook);
    if (hook->umask >= 0)
        umask((mode_t)hook->umask & 0777);
    np_environment_set(hook->environment);
    limit_time(hook->max_s);
    return run_command(hook->command, hook->run);
}

/* The address is often a secret, and others may read the log: so neither the address nor curl's
 * message, which contains it. */
static void log_failure(CURLcode code, long status)
{
    if (code == CURLE_HTTP_RETURNED_ERROR)
        fprintf(stderr, "nnpipe daemon: webhook: the server answered with status %ld\n", status);
    else
        fprintf(stderr, "nnpipe daemon: webhook: %s\n", curl_easy_strerror(code));
}

static void post(const char *address, const char *json)
{
    CURL *curl = curl_easy_init();
    struct curl_slist *fields = curl_slist_append(NULL, "Content-Type: application/json");
    CURLcode code = CURLE_FAILED_INIT;
    long status = 0;

    for (int i = 0; curl && i < NR_TRIES && code != CURLE_OK; i++) {
        if (i > 0)
            sleep(5);
        curl_easy_setopt(curl, CURLOPT_URL, address);
        curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
        curl_easy_setopt(curl, CURLOPT_HTTPHEADER, fields);
        curl_easy_setopt(curl, CURLOPT_POSTFIELDS, json);
        curl_easy_setopt(curl, CURLOPT_TIMEOUT, WEBHOOK_S);
        curl_easy_setopt(curl, CURLOPT_FAILONERROR, 1L);
        curl_easy_setopt(curl, CURLOPT_WRITEDATA, stderr);
        code = curl_easy_perform(curl);
        curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    }
    if (code != CURLE_OK)
        log_failure(code, status);
    curl_slist_free_all(fields);
    if (curl)
        curl_easy_cleanup(curl);
}

void np_hook_run_service(const char *on_end, const char *webhook, const char *run)
{
    limit_time(NP_HOOK_S + NR_TRIES * (unsigned)WEBHOOK_S);
    if (on_end)
        run_command(on_end, run);
    if (webhook)
        post(webhook, run);
}

/* --- `nnpipe ended`, for the unit nnpipe-ended@.service only ---------------------------------- */

/* NULL: missing or empty. */
static const char *text_of(const struct np_node *node, const char *key)
{
    const char *text = np_node_text(node, key);

    return *text ? text : NULL;
}

/* In a process group of its own, which is killed at its time limit. */
static void run_own(const struct np_node *node)
{
    const struct np_hook own = {.command = text_of(node, "own"),
        .dir = text_of(node, "dir"),
        .environment = np_node_text(node, "environment"),
        .run = np_node_text(node, "run"),
        .umask = (int)np_node_number(node, "umask", -1),
        .max_s = NP_HOOK_S};
    const pid_t pid = own.command && own.dir ? fork() : -1;

    if (pid == 0) {
        setsid();
        np_environment_reduce();
        _exit(np_hook_run(&own));
    }
    if (pid > 0)
        waitpid(pid, NULL, 0);
}

/* Standard input is {"on_end", "webhook", "run"} and, for the run's own command, "own", "dir",
 * "environment", "umask". Blocks for some minutes at most. */
static int run_all(struct np_err *err)
{
    struct np_node *node = NULL;
    char *text = NULL;
    uint64_t bytes;
    int code = np_read_file("/dev/stdin", MAX_BYTES, &text, &bytes, err);

    if (code == 0)
        code = np_json_parse(text, bytes, &node, err);
    if (code == 0 && !text_of(node, "run"))
        code = np_err_set(err, -EBADMSG, "not a message about a finished run");
    if (code == 0) {
        run_own(node);
        np_hook_run_service(
            text_of(node, "on_end"), text_of(node, "webhook"), text_of(node, "run"));
    }
    np_node_free(node);
    np_free(text);
    return code;
}

int np_cmd_ended(int argc, char **argv)
{
    const struct np_flag flags[] = {{NULL, NULL, NULL, NULL}};
    struct np_err err = {0};
    int nr, code = np_flags_parse(argc, argv, flags, NULL, &nr);

    if (code)
        return code;
    if (nr != 0 || isatty(STDIN_FILENO)) {
        fprintf(
            stderr, "nnpipe ended: only the service uses this command, when a run has finished\n");
        return NP_EXIT_USAGE;
    }
    if (run_all(&err) == 0)
        return NP_EXIT_DONE;
    np_complain(&err);
    return NP_EXIT_FAILED;
}
