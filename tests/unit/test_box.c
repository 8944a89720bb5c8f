/* What a box gives, from made-up trees of /proc and /sys. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "loader/base/box.h"
#include "loader/base/io.h"
#include "loader/base/mem.h"

#include "tests/test.h"

#define MIB (1ull << 20)

struct file {
    const char *path, *text;
};

/* Reads a box of 16 CPUs and 32 GiB that has these files besides. */
static struct np_box read_box(const struct file *files, int n)
{
    char root[] = "/tmp/np_test_box.XXXXXX", command[64];
    struct np_box box = {0};
    const struct file memory = {
        "proc/meminfo", "MemTotal:   33554432 kB\nMemFree: 1 kB\nMemAvailable: 1048576 kB\n"};

    if (!mkdtemp(root))
        abort();
    for (int i = -1; i < n; i++) {
        const struct file *file = i < 0 ? &memory : &files[i];
        char *path = np_format("%s/%s", root, file->path), *slash = strrchr(path, '/');

        *slash = '\0';
        np_make_dirs(path, NULL);
        *slash = '/';
        if (np_io_replace(NULL, path, file->text, strlen(file->text), NULL))
            abort();
        np_free(path);
    }
    np_box_read_under(root, 16, &box);
    snprintf(command, sizeof(command), "rm -rf %s", root);
    if (system(command))
        abort();
    return box;
}

Test(box, without_groups_there_is_no_limit)
{
    struct np_box box = read_box(NULL, 0);

    cr_assert_eq(box.nr_cpus, 16);
    cr_assert_eq(box.memory_bytes, 32768 * MIB);
    cr_assert_eq(box.free_bytes, 1024 * MIB);
}

Test(box, v2_takes_the_tightest_limit_of_a_group_and_its_parents)
{
    const struct file files[] = {
        {"proc/self/cgroup", "0::/user.slice/job\n"},
        {"sys/fs/cgroup/cgroup.controllers", "cpu memory\n"},
        {"sys/fs/cgroup/user.slice/job/cpu.max", "max 100000\n"},
        {"sys/fs/cgroup/user.slice/cpu.max", "350000 100000\n"},
        {"sys/fs/cgroup/user.slice/job/memory.max", "8589934592\n"},
        {"sys/fs/cgroup/user.slice/memory.max", "max\n"},
    };
    struct np_box box = read_box(files, 6);

    cr_assert_eq(box.nr_cpus, 4); /* 3.5, rounded up */
    cr_assert_eq(box.memory_bytes, 8192 * MIB);
}

Test(box, v2_counts_its_cpuset)
{
    const struct file files[] = {
        {"proc/self/cgroup", "0::/a\n"},
        {"sys/fs/cgroup/cgroup.controllers", "cpuset\n"},
        {"sys/fs/cgroup/a/cpuset.cpus.effective", "0-1,4,8-9\n"},
        {"sys/fs/cgroup/a/cpu.max", "800000 100000\n"},
    };

    cr_assert_eq(read_box(files, 4).nr_cpus, 5);
}

Test(box, a_container_whose_group_is_hidden_has_the_root_groups_limits)
{
    const char *groups[] = {"0::/docker/1f2e\n", "0::/../../other\n", "0::/\n"};

    for (int i = 0; i < 3; i++) {
        const struct file files[] = {
            {"proc/self/cgroup", groups[i]},
            {"sys/fs/cgroup/cgroup.controllers", "cpu memory\n"},
            {"sys/fs/cgroup/cpu.max", "20000 100000\n"},
            {"sys/fs/cgroup/memory.max", "1073741824\n"},
        };
        struct np_box box = read_box(files, 4);

        cr_assert_eq(box.nr_cpus, 1);
        cr_assert_eq(box.memory_bytes, 1024 * MIB);
        cr_assert_leq(box.free_bytes, box.memory_bytes);
    }
}

Test(box, v1_has_a_tree_for_each_controller)
{
    const struct file files[] = {
        {"proc/self/cgroup", "12:memory:/docker/1f\n5:cpu,cpuacct:/docker/1f\n3:cpuset:/docker/1f\n"
                             "2:devices:/docker/1f\n1:name=systemd:/docker/1f\n"},
        {"sys/fs/cgroup/memory/docker/1f/memory.limit_in_bytes", "2147483648\n"},
        {"sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"},
        {"sys/fs/cgroup/cpu,cpuacct/docker/1f/cpu.cfs_quota_us", "600000\n"},
        {"sys/fs/cgroup/cpu,cpuacct/docker/1f/cpu.cfs_period_us", "100000\n"},
        {"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n"},
        {"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"},
        {"sys/fs/cgroup/cpuset/docker/1f/cpuset.cpus", "0-11\n"},
    };
    struct np_box box = read_box(files, 8);

    cr_assert_eq(box.nr_cpus, 6);
    cr_assert_eq(box.memory_bytes, 2048 * MIB);
    cr_assert_eq(read_box(files, 3).nr_cpus, 16);
}

Test(box, v1_and_v2_side_by_side_both_count)
{
    const struct file files[] = {
        {"proc/self/cgroup", "3:cpuset:/\n0::/x\n"},
        {"sys/fs/cgroup/unified/cgroup.controllers", "cpu\n"},
        {"sys/fs/cgroup/unified/x/cpu.max", "300000 100000\n"},
        {"sys/fs/cgroup/cpuset/cpuset.effective_cpus", "2-8\n"},
    };

    cr_assert_eq(read_box(files, 4).nr_cpus, 3);
}

Test(box, nonsense_limits_nothing)
{
    const char *lists[] = {"", "a-b\n", "3-1\n", "0-99999999999\n", "1,,2\n", "-1\n"};

    for (int i = 0; i < 6; i++) {
        const struct file files[] = {
            {"proc/self/cgroup", "no colon\n0::/a\n:\n::::\n"},
            {"sys/fs/cgroup/cgroup.controllers", ""},
            {"sys/fs/cgroup/a/cpuset.cpus.effective", lists[i]},
            {"sys/fs/cgroup/a/cpu.max", "0 0\n"},
            {"sys/fs/cgroup/a/memory.max", "12 apples\n"},
        };
        struct np_box box = read_box(files, 5);

        cr_assert_eq(box.nr_cpus, 16, "%s", lists[i]);
        cr_assert_eq(box.memory_bytes, 32768 * MIB);
    }
}

Test(box, this_machine_is_read_and_its_affinity_obeyed)
{
    struct np_box box;
    cpu_set_t was, one;

    np_box_read(&box);
    cr_assert(box.nr_cpus >= 1 && box.nr_cpus <= sysconf(_SC_NPROCESSORS_CONF));
    cr_assert_gt(box.memory_bytes, 64 * MIB);
    cr_assert_eq(sched_getaffinity(0, sizeof(was), &was), 0);
    CPU_ZERO(&one);
    for (int cpu = 0; CPU_COUNT(&one) == 0; cpu++)
        if (CPU_ISSET(cpu, &was))
            CPU_SET(cpu, &one);
    cr_assert_eq(sched_setaffinity(0, sizeof(one), &one), 0);
    np_box_read(&box);
    sched_setaffinity(0, sizeof(was), &was);
    cr_assert_eq(box.nr_cpus, 1);
}
