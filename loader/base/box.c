/* A cgroup's limit holds for all groups below it, so each is read, from the process's own group up
 * to the top. In a container the path of /proc/self/cgroup may not exist below /sys/fs/cgroup,
 * because the container's group is mounted there as the top; its parents are still tried. A file
 * that is missing or cannot be parsed sets no limit. */
#include "loader/base/box.h"

#include <limits.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "loader/base/text.h"

#define MAX_LINE 4096

static bool read_line(const char *path, char line[MAX_LINE])
{
    FILE *file = fopen(path, "re");
    bool good = file && fgets(line, MAX_LINE, file);

    if (file)
        fclose(file);
    if (good)
        line[strcspn(line, "\n")] = '\0';
    return good;
}

/* Reads the number in a file; false for "max", "-1" and no number. */
static bool read_number(const char *folder, const char *name, uint64_t *ret_number)
{
    char path[PATH_MAX + 64], line[MAX_LINE];
    int64_t number;

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    if (!read_line(path, line) || !np_text_int(line, 0, INT64_MAX, &number))
        return false;
    *ret_number = (uint64_t)number;
    return true;
}

static void limit_cpus(struct np_box *box, uint64_t nr_cpus)
{
    if (nr_cpus > 0 && nr_cpus < (uint64_t)box->nr_cpus)
        box->nr_cpus = (int)nr_cpus;
}

static void limit_memory(struct np_box *box, uint64_t bytes)
{
    if (bytes > 0 && bytes < box->memory_bytes)
        box->memory_bytes = bytes;
}

static void limit_cpuset(struct np_box *box, const char *folder, const char *name)
{
    char path[PATH_MAX + 64], line[MAX_LINE];

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    const int nr_cpus = read_line(path, line) ? np_text_cpus(line, NULL) : 0;

    if (nr_cpus > 0)
        limit_cpus(box, (uint64_t)nr_cpus);
}

static void limit_time(struct np_box *box, uint64_t quota_us, uint64_t period_us)
{
    if (quota_us > 0 && period_us > 0)
        limit_cpus(box, quota_us / period_us + (quota_us % period_us > 0));
}

static void read_v2(struct np_box *box, const char *folder)
{
    char path[PATH_MAX + 64], line[MAX_LINE];
    unsigned long long quota_us, period_us;
    uint64_t bytes;

    snprintf(path, sizeof(path), "%s/cpu.max", folder);
    if (read_line(path, line) && sscanf(line, "%llu %llu", &quota_us, &period_us) == 2)
        limit_time(box, quota_us, period_us); /* "max 100000": no quota */
    limit_cpuset(box, folder, "cpuset.cpus.effective");
    if (read_number(folder, "memory.max", &bytes))
        limit_memory(box, bytes);
}

/* Each controller of v1 has its own tree. */
static void read_v1(struct np_box *box, const char *folder)
{
    uint64_t quota_us, period_us, bytes;

    if (read_number(folder, "cpu.cfs_quota_us", &quota_us) &&
        read_number(folder, "cpu.cfs_period_us", &period_us))
        limit_time(box, quota_us, period_us);
    limit_cpuset(box, folder, "cpuset.effective_cpus");
    limit_cpuset(box, folder, "cpuset.cpus");
    if (read_number(folder, "memory.limit_in_bytes", &bytes))
        limit_memory(box, bytes);
}

static void climb(struct np_box *box, const char *mount, const char *group,
    void (*read)(struct np_box *box, const char *folder))
{
    char folder[PATH_MAX];
    size_t top = strlen(mount);

    if (strstr(group, "..")) /* outside of this namespace, in which only the top is visible */
        group = "";
    if (snprintf(folder, sizeof(folder), "%s%s", mount, group) >= (int)sizeof(folder))
        return;
    for (;;) {
        char *slash = strrchr(folder, '/');

        read(box, folder);
        if (strlen(folder) <= top || !slash)
            break;
        *slash = '\0';
    }
}

/* One line of /proc/self/cgroup: "0::/user.slice" (v2), "4:cpu,cpuacct:/docker/1f" (v1). */
static void read_group(struct np_box *box, const char *root, char *line)
{
    char *controllers = strchr(line, ':'), *group, mount[PATH_MAX];

    if (!controllers || !(group = strchr(controllers + 1, ':')))
        return;
    *group++ = '\0';
    controllers++;
    if (*controllers) {
        if (strstr(controllers, "cpu") || strstr(controllers, "memory")) {
            snprintf(mount, sizeof(mount), "%s/sys/fs/cgroup/%s", root, controllers);
            climb(box, mount, group, read_v1);
        }
        return;
    }
    snprintf(mount, sizeof(mount), "%s/sys/fs/cgroup/cgroup.controllers", root);
    snprintf(mount, sizeof(mount), "%s/sys/fs/cgroup%s", root,
        access(mount, F_OK) == 0 ? "" : "/unified"); /* v1 and v2 side by side */
    climb(box, mount, group, read_v2);
}

static void read_meminfo(struct np_box *box, const char *root)
{
    char path[PATH_MAX], line[MAX_LINE];
    unsigned long long kib;
    FILE *file;

    snprintf(path, sizeof(path), "%s/proc/meminfo", root);
    file = fopen(path, "re");
    while (file && fgets(line, sizeof(line), file))
        if (sscanf(line, "MemTotal: %llu kB", &kib) == 1)
            limit_memory(box, kib << 10);
        else if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1)
            box->free_bytes = kib << 10;
    if (file)
        fclose(file);
}

void np_box_read_under(const char *root, int nr_affine, struct np_box *ret_box)
{
    struct np_box box = {.nr_cpus = nr_affine < 1 ? 1 : nr_affine,
        .memory_bytes = UINT64_MAX,
        .free_bytes = UINT64_MAX};
    char path[PATH_MAX], line[MAX_LINE];
    struct rlimit lock = {0, 0};
    FILE *file;

    read_meminfo(&box, root);
    snprintf(path, sizeof(path), "%s/proc/self/cgroup", root);
    file = fopen(path, "re");
    while (file && fgets(line, sizeof(line), file)) {
        line[strcspn(line, "\n")] = '\0';
        read_group(&box, root, line);
    }
    if (file)
        fclose(file);
    if (box.memory_bytes == UINT64_MAX)
        box.memory_bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGE_SIZE);
    if (box.free_bytes > box.memory_bytes)
        box.free_bytes = box.memory_bytes;
    getrlimit(RLIMIT_MEMLOCK, &lock);
    box.memlock_bytes = lock.rlim_cur == RLIM_INFINITY ? UINT64_MAX : lock.rlim_cur;
    *ret_box = box;
}

/* sched_getaffinity() needs a set for all CPUs that the kernel supports, a number that no call
 * reports. */
static int count_affinity(void)
{
    for (int nr_cpus = 1024; nr_cpus <= 1 << 20; nr_cpus *= 4) {
        cpu_set_t *set = CPU_ALLOC(nr_cpus);
        size_t bytes = CPU_ALLOC_SIZE(nr_cpus);
        int n = set && sched_getaffinity(0, bytes, set) == 0 ? CPU_COUNT_S(bytes, set) : 0;

        CPU_FREE(set);
        if (n > 0)
            return n;
    }
    return (int)sysconf(_SC_NPROCESSORS_ONLN);
}

void np_box_read(struct np_box *ret_box)
{
    np_box_read_under("", count_affinity(), ret_box);
}
