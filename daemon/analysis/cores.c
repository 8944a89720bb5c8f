/* Reads /proc/stat by CPU, and the usage of the process's cgroup (v2: cpu.stat, v1: cpuacct.usage).
 * Allocates nothing. Any thread. */
#include "daemon/analysis/cores.h"

#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MAX_STAT 65536 /* the lines of a thousand CPUs */
#define MAX_LINE 4096

/* Sums the ticks in "cpu3 USER NICE SYSTEM IDLE IOWAIT IRQ SOFTIRQ STEAL ..." (proc_stat(5))
 * that are not idle; USER includes guests. */
static bool busy_ticks(const char *line, int *ret_cpu, unsigned long long *ret_ticks)
{
    unsigned long long user, nice, system, idle, iowait, irq, softirq, steal;

    if (sscanf(line, "cpu%d %llu %llu %llu %llu %llu %llu %llu %llu", ret_cpu, &user, &nice,
            &system, &idle, &iowait, &irq, &softirq, &steal) != 9)
        return false;
    *ret_ticks = user + nice + system + irq + softirq + steal;
    return true;
}

/* text: the first bytes of the file, with a NUL; empty if it cannot be read. */
static void read_text(const char *path, char *text, size_t text_bytes)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t used = 0;

    for (ssize_t n; fd >= 0 && (n = read(fd, text + used, text_bytes - 1 - used)) > 0;)
        used += (size_t)n;
    if (fd >= 0)
        close(fd);
    text[used] = '\0';
}

/* NULL: line was the last one. */
static const char *next_line(const char *line)
{
    const char *end = strchr(line, '\n');

    return end && end[1] ? end + 1 : NULL;
}

static void read_machine(const char *root, bool (*mine)(int cpu), struct np_cores *cores)
{
    unsigned long long ticks, sum = 0;
    char path[PATH_MAX], text[MAX_STAT];
    int cpu;

    snprintf(path, sizeof(path), "%s/proc/stat", root);
    read_text(path, text, sizeof(text));
    for (const char *line = text; line && strncmp(line, "cpu", 3) == 0; line = next_line(line))
        if (busy_ticks(line, &cpu, &ticks) && mine(cpu)) {
            sum += ticks;
            cores->nr_cpus++;
        }
    if (cores->nr_cpus > 0)
        cores->machine_s = (double)sum / (double)sysconf(_SC_CLK_TCK);
}

/* The number after `word` at the beginning of a line. */
static bool read_account(const char *path, const char *word, double scale, double *ret_s)
{
    unsigned long long value;
    char text[MAX_LINE];

    read_text(path, text, sizeof(text));
    for (const char *line = text; line; line = next_line(line))
        if (strncmp(line, word, strlen(word)) == 0 &&
            sscanf(line + strlen(word), "%llu", &value) == 1) {
            *ret_s = (double)value * scale;
            return true;
        }
    return false;
}

/* Tries the group's folder, then the mount's root, which in a container is the container's
 * group. */
static bool read_folder(const char *mount, const char *group, const char *name, const char *word,
    struct np_cores *cores)
{
    const double scale = *word ? 1e-6 : 1e-9;
    char path[PATH_MAX];

    snprintf(path, sizeof(path), "%s%s/%s", mount, group, name);
    if (!strstr(group, "..") && read_account(path, word, scale, &cores->group_s))
        return true;
    snprintf(path, sizeof(path), "%s/%s", mount, name);
    return read_account(path, word, scale, &cores->group_s);
}

/* "0::/user.slice" (v2), "4:cpu,cpuacct:/docker/1f" (v1). */
static bool read_group(const char *root, char *line, struct np_cores *cores)
{
    char *controllers = strchr(line, ':'), *group, mount[PATH_MAX];

    if (!controllers || !(group = strchr(controllers + 1, ':')))
        return false;
    *group++ = '\0';
    controllers++;
    if (*controllers && !strstr(controllers, "cpuacct"))
        return false;
    snprintf(
        mount, sizeof(mount), "%s/sys/fs/cgroup%s%s", root, *controllers ? "/" : "", controllers);
    return *controllers ? read_folder(mount, group, "cpuacct.usage", "", cores)
                        : read_folder(mount, group, "cpu.stat", "usage_usec", cores);
}

void np_cores_read_under(const char *root, bool (*mine)(int cpu), struct np_cores *ret_cores)
{
    struct np_cores cores = {.machine_s = -1, .group_s = -1};
    char path[PATH_MAX], text[MAX_LINE];
    bool found = false;

    read_machine(root, mine, &cores);
    snprintf(path, sizeof(path), "%s/proc/self/cgroup", root);
    read_text(path, text, sizeof(text));
    for (char *line = text, *next; line && !found; line = next) {
        next = (char *)next_line(line);
        line[strcspn(line, "\n")] = '\0';
        found = read_group(root, line, &cores);
    }
    *ret_cores = cores;
}

/* If the machine has more CPUs than cpu_set_t, all count. */
static bool is_mine(int cpu)
{
    cpu_set_t set;

    return sched_getaffinity(0, sizeof(set), &set) != 0 || CPU_ISSET(cpu, &set);
}

void np_cores_read(struct np_cores *ret_cores)
{
    np_cores_read_under("", is_mine, ret_cores);
}

double np_cores_others(const struct np_cores *start, const struct np_cores *end, double seconds,
    double own_s, double usable)
{
    double left = usable;

    if (start->machine_s >= 0 && end->machine_s >= 0 && seconds > 0) {
        const double others = fmax(end->machine_s - start->machine_s - own_s, 0) / seconds;

        left = fmin(fmax(end->nr_cpus - others, 0), usable);
    }
    if (usable < end->nr_cpus && start->group_s >= 0 && end->group_s >= 0 && seconds > 0) {
        const double others = fmax(end->group_s - start->group_s - own_s, 0) / seconds;

        left = fmin(left, usable - others);
    }
    return usable - fmax(left, 0);
}
