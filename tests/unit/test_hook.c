/* A run's own on_end: its environment, its lines in the log, and its time limit. */
#include <stdbool.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/service/hook.h"
#include "loader/base/clock.h"
#include "tests/test.h"

static char dir[64];

static void set_up(void)
{
    char path[96];

    snprintf(dir, sizeof(dir), "/tmp/nnpipe-hook-XXXXXX");
    cr_assert_not_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/output", dir);
    cr_assert_eq(mkdir(path, 0755), 0);
    snprintf(path, sizeof(path), "%s/output/000002", dir);
    close(open(path, O_CREAT | O_WRONLY, 0644));
}

static void tear_down(void)
{
    char command[128];

    snprintf(command, sizeof(command), "rm -rf %s", dir);
    cr_assert_eq(system(command), 0);
}

/* As the service does it: in a process that leads its group. */
static int status_of(const char *command, const char *folder, unsigned max_s)
{
    const struct np_hook hook = {.command = command,
        .dir = folder,
        .environment = "OF_IT=its own\n",
        .run = "{\"id\": 7}\n",
        .umask = 077,
        .max_s = max_s};
    const pid_t pid = fork();
    int status;

    if (pid == 0) {
        setsid();
        _exit(np_hook_run(&hook));
    }
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    return status;
}

static void read_text(const char *name, char text[512])
{
    char path[128];

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    FILE *file = fopen(path, "r");
    cr_assert_not_null(file);
    text[fread(text, 1, 511, file)] = '\0';
    fclose(file);
}

Test(hook, has_the_runs_variables_its_folder_and_its_log, .init = set_up, .fini = tear_down)
{
    char text[512];
    struct stat stat_;

    cr_assert_eq(status_of("cat >in; echo \"$OF_IT\"; echo bad >&2", dir, 60), 0);
    read_text("in", text);
    cr_assert_str_eq(text, "{\"id\": 7}\n");
    read_text("output/000002", text);
    cr_assert_str_eq(text, "its own\nbad\n");
    snprintf(text, sizeof(text), "%s/in", dir);
    cr_assert(stat(text, &stat_) == 0 && (stat_.st_mode & 0777) == 0600);
}

Test(hook, that_fails_is_named_in_the_log, .init = set_up, .fini = tear_down)
{
    char text[512];

    cr_assert_eq(WEXITSTATUS(status_of("exit 9", dir, 60)), 1);
    read_text("output/000002", text);
    cr_assert_str_eq(text, "on_end: ended with exit code 9\n");
}

Test(hook, that_takes_too_long_ends_with_all_its_processes, .init = set_up, .fini = tear_down,
    .timeout = 120)
{
    char text[512];
    int pid = 0;

    cr_assert(WIFSIGNALED(status_of("sleep 1000 & echo $! >pid; wait", dir, 1)));
    read_text("output/000002", text);
    cr_assert_not_null(strstr(text, "did not end in time"), "%s", text);
    read_text("pid", text);
    cr_assert_eq(sscanf(text, "%d", &pid), 1);
    snprintf(text, sizeof(text), "/proc/%d/cmdline", pid);
    for (int i = 0; i < 500; i++, usleep(20000)) { /* gone, or a zombie, which has none */
        const int fd = open(text, O_RDONLY);
        char byte;
        const bool lives = fd >= 0 && read(fd, &byte, 1) == 1;

        if (fd >= 0)
            close(fd);
        if (!lives)
            return;
    }
    cr_assert_fail("it still runs");
}

Test(hook, of_a_run_whose_folder_is_a_link_runs_elsewhere, .init = set_up, .fini = tear_down)
{
    char link[96], text[512], command[160];

    snprintf(link, sizeof(link), "%s/link", dir);
    cr_assert_eq(symlink(dir, link), 0);
    snprintf(command, sizeof(command), "pwd >%s/where", dir);
    cr_assert_eq(status_of(command, link, 60), 0);
    read_text("where", text);
    cr_assert_str_eq(text, "/\n");
}
