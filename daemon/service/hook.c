/* See hook.h. */
#include "daemon/service/hook.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/service/run_enter.h"
#include "daemon/service/as_user.h"
#include "daemon/service/environment.h"

static void end_group(int number)
{
    static const char text[] = "on_end: killed, because it did not end in time\n";

    if (write(STDERR_FILENO, text, sizeof(text) - 1) < 0) /* the log is full: nothing can be done */
        kill(0, SIGKILL);
    kill(0, SIGKILL);
}

/* Redirects standard output and error to the run's log. */
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

static void be_command(const struct np_hook *hook, int input_fd)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (dup2(input_fd, STDIN_FILENO) >= 0)
        execl("/bin/sh", "sh", "-c", hook->command, (char *)NULL);
    dprintf(STDERR_FILENO, "on_end: cannot run /bin/sh: %s\n", strerror(errno));
    _exit(127);
}

int np_hook_run(const struct np_hook *hook)
{
    const int input_fd = np_text_fd(hook->run);
    int status = 0;

    redirect_to_log(hook);
    if (hook->umask >= 0)
        umask((mode_t)hook->umask & 0777);
    np_environment_set(hook->environment);
    signal(SIGALRM, end_group);
    alarm(hook->max_s);
    const pid_t pid = input_fd < 0 ? -1 : fork();
    if (pid == 0)
        be_command(hook, input_fd);
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
