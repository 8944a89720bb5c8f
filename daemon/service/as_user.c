/* The daemon has one thread, so a child of fork() may call any function. */
#include "daemon/service/as_user.h"

#include <errno.h>
#include <grp.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "daemon/service/environment.h"
#include "loader/base/mem.h"

/* The kernel keeps capabilities when a process changes from one user to another. */
static int drop_rights(void)
{
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct had[2] = {0}, none[2] = {0};

    if (syscall(SYS_capget, &head, had) < 0)
        return -errno;
    if (memcmp(had, none, sizeof(had)) == 0)
        return 0;
    return prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0 ||
                   syscall(SYS_capset, &head, none) < 0
               ? -errno
               : 0;
}

/* These variables name folders below a home: the user's, not the daemon's. */
static void take_environment(const struct passwd *user)
{
    static const char *const own[] = {"XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME",
        "XDG_STATE_HOME", "XDG_RUNTIME_DIR", "STATE_DIRECTORY", "NNPIPE_SOCKET"};

    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
        unsetenv(own[i]);
    np_environment_reduce();
    setenv("SHELL", user ? user->pw_shell : "/bin/sh", 1);
    setenv("HOME", user ? user->pw_dir : "/", 1);
    setenv("USER", user ? user->pw_name : "", 1);
    setenv("LOGNAME", user ? user->pw_name : "", 1);
}

int np_user_find(uid_t uid, const struct passwd **ret_user)
{
    errno = 0;
    *ret_user = getpwuid(uid);
    return *ret_user || errno == 0 || errno == ENOENT || errno == ESRCH ? 0 : -EAGAIN;
}

/* Takes the user's current groups. wanted, the group at the submission, is used only if the user
 * is still a member. */
static int take_groups(const struct passwd *user, gid_t wanted, gid_t *ret_gid)
{
    const int nr = initgroups(user->pw_name, user->pw_gid) < 0 ? -1 : getgroups(0, NULL);
    gid_t *groups;

    if (nr < 0)
        return -errno;
    groups = np_alloc_array((size_t)nr + 1, sizeof(*groups));
    *ret_gid = user->pw_gid;
    if (getgroups(nr, groups) == nr)
        for (int i = 0; i < nr; i++)
            if (groups[i] == wanted)
                *ret_gid = wanted;
    np_free(groups);
    return 0;
}

int np_become(uid_t uid, gid_t gid, const char *name)
{
    const struct passwd *user;
    int code;

    if (uid == geteuid())
        return uid == 0 ? 0 : drop_rights();
    if ((code = np_user_find(uid, &user)) < 0)
        return code;
    if (name && *name && (!user || strcmp(user->pw_name, name) != 0))
        return -ESRCH;
    if (user && (code = take_groups(user, gid, &gid)) < 0)
        return code;
    if ((!user && setgroups(1, &gid) < 0) || setresgid(gid, gid, gid) < 0 ||
        setresuid(uid, uid, uid) < 0)
        return -errno;
    take_environment(user);
    return uid == 0 ? 0 : drop_rights();
}

void np_child_signals(void)
{
    sigset_t none;

    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
}

int np_text_fd(const char *text)
{
    const size_t bytes = strlen(text);
    const int fd = memfd_create("config", MFD_CLOEXEC);

    if (fd < 0)
        return -errno;
    if (write(fd, text, bytes) != (ssize_t)bytes || lseek(fd, 0, SEEK_SET) < 0) {
        const int code = -errno;

        close(fd);
        return code;
    }
    return fd;
}
