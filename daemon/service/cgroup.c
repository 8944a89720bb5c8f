/* Documentation/admin-guide/cgroup-v2.rst of Linux: a group with controllers for its children
 * cannot hold processes itself, so the daemon must be in a child beside its runs. */
#include "daemon/service/cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "loader/base/mem.h"

#define PERIOD_US 100000
#define OWN       "daemon"

static void read_line(int folder, const char *name, char *line, size_t bytes)
{
    const int fd = openat(folder, name, O_RDONLY | O_CLOEXEC);
    const ssize_t nr = fd < 0 ? -1 : read(fd, line, bytes - 1);

    if (fd >= 0)
        close(fd);
    line[nr > 0 ? nr : 0] = '\0';
}

/* O_CREAT: for tests; a real cgroup has all its files. */
static int write_text(int folder, const char *name, const char *text)
{
    const int fd = openat(folder, name, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    const ssize_t bytes = (ssize_t)strlen(text);
    const int code = fd < 0 ? -errno : write(fd, text, (size_t)bytes) == bytes ? 0 : -errno;

    if (fd >= 0)
        close(fd);
    return code;
}

/* /sys/fs/cgroup/PARENT if this process is in PARENT/daemon (np_free), else NULL. */
static char *parent_of_own(void)
{
    char line[4096], *end;

    read_line(AT_FDCWD, "/proc/self/cgroup", line, sizeof(line));
    if (strncmp(line, "0::/", 4) != 0 || !(end = strchr(line, '\n')))
        return NULL;
    *end = '\0';
    end = strrchr(line, '/');
    if (strcmp(end, "/" OWN) != 0)
        return NULL;
    *end = '\0';
    return np_format("/sys/fs/cgroup%s", line + 3);
}

void np_cgroup_open(struct np_cgroup *ret_cgroup)
{
    const char *named = getenv("NNPIPE_CGROUP");
    char *path = named && *named ? np_strdup(named) : parent_of_own();
    struct np_cgroup *c = ret_cgroup;

    *c = (struct np_cgroup){.fd = -1};
    if (!path) {
        snprintf(c->problem, sizeof(c->problem),
            "the service has no cgroup of its own; docs/SYSTEMD.md explains how to give it one");
        return;
    }
    c->fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const int code =
        c->fd < 0 ? -errno : write_text(c->fd, "cgroup.subtree_control", "+memory +cpu");
    if (code < 0) {
        snprintf(c->problem, sizeof(c->problem),
            "%.180s: the service may not divide this cgroup: %s", path, strerror(-code));
        np_cgroup_close(c);
    }
    np_free(path);
}

void np_cgroup_close(struct np_cgroup *cgroup)
{
    if (cgroup->fd >= 0)
        close(cgroup->fd);
    cgroup->fd = -1;
}

static int open_group(const struct np_cgroup *cgroup, int64_t id, char name[32])
{
    snprintf(name, 32, "run-%lld", (long long)id);
    return cgroup->fd < 0
               ? -1
               : openat(cgroup->fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

static int set_limits(int group, int64_t memory_bytes, double cpus)
{
    char text[64];
    int code = 0;

    if (memory_bytes > 0) {
        snprintf(text, sizeof(text), "%lld", (long long)memory_bytes);
        code = write_text(group, "memory.max", text);
        if (code == 0) /* kill all its processes or none: a loader without its trainer is useless */
            code = write_text(group, "memory.oom.group", "1");
    }
    if (code == 0 && cpus > 0) {
        snprintf(text, sizeof(text), "%.0f %d", cpus * PERIOD_US, PERIOD_US);
        code = write_text(group, "cpu.max", text);
    }
    return code;
}

int np_cgroup_begin(const struct np_cgroup *cgroup, int64_t id, int64_t memory_bytes, double cpus,
    int *ret_fd, struct np_err *err)
{
    char name[32];

    np_cgroup_end(cgroup, id); /* of an attempt under an earlier daemon */
    snprintf(name, sizeof(name), "run-%lld", (long long)id);
    if (cgroup->fd < 0)
        return np_err_set(err, -ENOTSUP, "the service cannot limit this run: %s", cgroup->problem);
    int code = mkdirat(cgroup->fd, name, 0700) < 0 && errno != EEXIST ? -errno : 0;
    const int group = code < 0 ? -1 : open_group(cgroup, id, name);
    if (code == 0)
        code = group < 0 ? -errno : set_limits(group, memory_bytes, cpus);
    if (code == 0) {
        *ret_fd = openat(group, "cgroup.procs", O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        code = *ret_fd < 0 ? -errno : 0;
    }
    if (group >= 0)
        close(group);
    return code < 0 ? np_err_set(
                          err, code, "cannot set up the run's cgroup %s: %s", name, strerror(-code))
                    : 0;
}

bool np_cgroup_end(const struct np_cgroup *cgroup, int64_t id)
{
    char name[32], events[1024];
    const int group = open_group(cgroup, id, name);

    if (group < 0)
        return false;
    read_line(group, "memory.events", events, sizeof(events));
    const char *kills = strstr(events, "oom_kill ");
    write_text(group, "cgroup.kill", "1");
    close(group);
    unlinkat(
        cgroup->fd, name, AT_REMOVEDIR); /* if it is not empty yet, the next attempt removes it */
    return kills && atoi(kills + strlen("oom_kill ")) > 0;
}
