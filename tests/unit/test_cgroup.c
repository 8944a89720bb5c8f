/* The limits written to a run's cgroup; a folder stands for the cgroup. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/service/cgroup.h"
#include "tests/test.h"

static char dir[64];
static struct np_cgroup cgroup;

static void set_up(void)
{
    strcpy(dir, "/tmp/nnpipe-cgroup.XXXXXX");
    if (!mkdtemp(dir))
        abort();
    setenv("NNPIPE_CGROUP", dir, 1);
    np_cgroup_open(&cgroup);
}

static void tear_down(void)
{
    char command[96];

    np_cgroup_close(&cgroup);
    snprintf(command, sizeof(command), "rm -rf %s", dir);
    if (system(command))
        abort();
}

/* Does the file hold that? NULL: is it not there? */
static bool holds(const char *name, const char *text)
{
    char path[128], there[128] = "";

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    FILE *file = fopen(path, "r");
    if (!file)
        return !text;
    if (!fgets(there, sizeof(there), file))
        there[0] = '\0';
    fclose(file);
    return text && strcmp(there, text) == 0;
}

Test(cgroup, a_run_gets_a_cgroup_with_its_limits, .init = set_up, .fini = tear_down)
{
    struct np_err err = {0};
    int fd = -1;

    cr_assert_str_eq(cgroup.problem, "");
    cr_assert(holds("cgroup.subtree_control", "+memory +cpu"));
    cr_assert_eq(np_cgroup_begin(&cgroup, 7, 1ll << 34, 2.5, &fd, &err), 0);
    cr_assert(holds("run-7/memory.max", "17179869184") && holds("run-7/memory.oom.group", "1") &&
              holds("run-7/cpu.max", "250000 100000"));
    cr_assert_eq(write(fd, "0", 1), 1);
    close(fd);
    cr_assert(holds("run-7/cgroup.procs", "0"));
    cr_assert_eq(np_cgroup_begin(&cgroup, 8, 0, 1, &fd, &err), 0);
    close(fd);
    cr_assert(holds("run-8/memory.max", NULL) && holds("run-8/cpu.max", "100000 100000"));
}

Test(cgroup, a_kill_for_memory_is_told_from_other_kills, .init = set_up, .fini = tear_down)
{
    struct np_err err = {0};
    char path[128];
    int fd = -1;

    cr_assert_eq(np_cgroup_begin(&cgroup, 7, 1 << 20, 0, &fd, &err), 0);
    close(fd);
    cr_assert(!np_cgroup_end(&cgroup, 7));
    cr_assert(holds("run-7/cgroup.kill", "1"));
    snprintf(path, sizeof(path), "%s/run-7/memory.events", dir);
    FILE *file = fopen(path, "w");
    fputs("low 0\nhigh 0\nmax 31\noom 2\noom_kill 1\noom_group_kill 1\n", file);
    fclose(file);
    cr_assert(np_cgroup_end(&cgroup, 7));
    cr_assert(!np_cgroup_end(&cgroup, 99));
}

Test(cgroup, a_service_without_a_cgroup_reports_it)
{
    struct np_cgroup none;
    struct np_err err = {0};
    int fd;

    setenv("NNPIPE_CGROUP", "/nowhere/at/all", 1);
    np_cgroup_open(&none);
    cr_assert_not_null(strstr(none.problem, "/nowhere/at/all"));
    cr_assert_eq(np_cgroup_begin(&none, 1, 1, 1, &fd, &err), -ENOTSUP);
    cr_assert(!np_cgroup_end(&none, 1));
    np_cgroup_close(&none);
}
