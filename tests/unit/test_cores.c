/* CPU time of the cgroup and of others: made-up /proc/stat and cgroup files below a folder. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/analysis/cores.h"
#include "loader/base/clock.h"
#include "tests/test.h"

static char root[64];

static void put(const char *name, const char *text)
{
    char path[256];
    FILE *file;

    snprintf(path, sizeof(path), "%s/%s", root, name);
    for (char *slash = path + strlen(root) + 1; (slash = strchr(slash, '/')); *slash++ = '/') {
        *slash = '\0';
        mkdir(path, 0777);
    }
    file = fopen(path, "w");
    cr_assert_not_null(file);
    fputs(text, file);
    fclose(file);
}

static void make_root(void)
{
    snprintf(root, sizeof(root), "/tmp/nnpipe-cores-XXXXXX");
    cr_assert_not_null(mkdtemp(root));
    /* user nice system idle iowait irq softirq steal guest guest_nice */
    put("proc/stat", "cpu  9 9 9 9 9 9 9 9 0 0\n"
                     "cpu0 100 10 50 9999 9999 5 5 30 7 7\n"
                     "cpu1 1000 0 0 0 0 0 0 0 0 0\n"
                     "cpu2 40 0 0 0 0 0 0 0 0 0\n"
                     "intr 1 2 3\n");
}

static void remove_root(void)
{
    char command[128];

    snprintf(command, sizeof(command), "rm -rf %s", root);
    cr_assert_eq(system(command), 0);
}

static bool even(int cpu)
{
    return cpu % 2 == 0;
}

Test(cores, count_all_time_on_our_cpus_but_idle_time)
{
    struct np_cores cores;

    make_root();
    np_cores_read_under(root, even, &cores);
    cr_assert_eq(cores.nr_cpus, 2);
    cr_assert_float_eq(cores.machine_s * (double)sysconf(_SC_CLK_TCK), 240, 1e-6);
    cr_assert_lt(cores.group_s, 0); /* no cgroup is given */
    remove_root();
}

Test(cores, find_the_cgroups_cpu_time_in_both_versions_and_in_a_container)
{
    struct np_cores cores;

    make_root();
    put("proc/self/cgroup", "0::/user.slice/me\n");
    put("sys/fs/cgroup/cpu.stat", "usage_usec 7000000\nuser_usec 1\n"); /* a container's top */
    np_cores_read_under(root, even, &cores);
    cr_assert_float_eq(cores.group_s, 7, 1e-9);
    put("sys/fs/cgroup/user.slice/me/cpu.stat", "usage_usec 2500000\n");
    np_cores_read_under(root, even, &cores);
    cr_assert_float_eq(cores.group_s, 2.5, 1e-9);
    put("proc/self/cgroup", "7:memory:/x\n4:cpu,cpuacct:/docker/1f\n0::/\n");
    put("sys/fs/cgroup/cpu,cpuacct/docker/1f/cpuacct.usage", "3000000000\n");
    np_cores_read_under(root, even, &cores);
    cr_assert_float_eq(cores.group_s, 3, 1e-9);
    put("proc/self/cgroup", "4:cpu,cpuacct:/../../elsewhere\n");
    np_cores_read_under(root, even, &cores); /* outside of what shows: nothing is known */
    cr_assert_lt(cores.group_s, 0);
    put("proc/stat", "no cpu\n");
    put("proc/self/cgroup", "rubbish\n::\n:\n");
    np_cores_read_under(root, even, &cores);
    cr_assert_lt(cores.machine_s, 0);
    cr_assert_eq(cores.nr_cpus, 0);
    remove_root();
}

Test(cores, time_of_others_is_the_rest_and_at_most_all)
{
    struct np_cores start = {.machine_s = 10, .group_s = -1, .nr_cpus = 8}, end = start;

    end.machine_s = 22; /* 12 s in 2 s: six cores; ours: three */
    cr_assert_float_eq(np_cores_others(&start, &end, 2, 6, 8), 3, 1e-9);
    cr_assert_float_eq(np_cores_others(&start, &end, 2, 14, 8), 0, 1e-9);
    cr_assert_float_eq(np_cores_others(&start, &end, 2, 6, 2), 0, 1e-9); /* five are left */
    end.machine_s = 25;
    cr_assert_float_eq(np_cores_others(&start, &end, 2, 0, 2), 1.5, 1e-9); /* half a core is left */
    end.machine_s = 99;
    cr_assert_float_eq(np_cores_others(&start, &end, 2, 0, 8), 8, 1e-9);
    end.machine_s = 22;
    start.group_s = 0;
    end.group_s = 8; /* others of the group: one core of our two */
    cr_assert_float_eq(np_cores_others(&start, &end, 2, 6, 2), 1, 1e-9);
    start.machine_s = end.machine_s = -1;
    end.group_s = 6;
    cr_assert_float_eq(np_cores_others(&start, &end, 2, 6, 2), 0, 1e-9);
}

Test(cores, the_cpu_time_of_a_thread_grows_and_ends_with_it)
{
    uint64_t cpu = 0, delay = 0, later = 0;

    if (!np_sched_read(gettid(), &cpu, &delay)) /* a kernel that does not say */
        return;
    for (volatile int i = 0; i < 50000000; i++)
        ;
    cr_assert(np_sched_read(gettid(), &later, &delay));
    cr_assert_gt(later, cpu);
    cr_assert(!np_sched_read(0x7fffffff, &cpu, &delay));
}
