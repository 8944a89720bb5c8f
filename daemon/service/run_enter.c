#include "daemon/service/run_enter.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "loader/base/io.h"

#define MAX_DEPTH   8 /* checkpoints/step-9/FILE has 3 */
#define CHECKPOINTS "checkpoints"

int np_folder_make(const char *dir, bool first, struct np_err *err)
{
    const int code = np_make_parent(dir, err);

    if (code < 0)
        return code;
    if (mkdir(dir, 0755) == 0 || (errno == EEXIST && !first))
        return 0;
    if (errno == EEXIST)
        return np_err_set(err, -EEXIST,
            "%s exists already and is not this run's: move it away, or submit with another --name",
            dir);
    return np_err_set(err, -errno, "%s: cannot create the run's folder: %s", dir, strerror(errno));
}

struct walk {
    const char *dir; /* in messages */
    struct np_err *err;
};

static bool is_ours(const struct stat *stat_)
{
    return stat_->st_uid == geteuid() || stat_->st_uid == 0;
}

static int refuse(const struct walk *walk, const char *name, const char *why)
{
    return np_err_set(
        walk->err, -EPERM, "%s%s%s: %s", walk->dir, name ? "/" : "", name ? name : "", why);
}

static int close_to_others(const struct walk *walk, int fd, const struct stat *stat_)
{
    struct stat now;

    if (!(stat_->st_mode & (S_IWGRP | S_IWOTH)))
        return 0;
    if (fchmod(fd, stat_->st_mode & 07755) < 0 || fstat(fd, &now) < 0 ||
        now.st_mode & (S_IWGRP | S_IWOTH))
        return refuse(walk, NULL, "others may write there, and their right cannot be revoked");
    return 0;
}

static int check_folder(const struct walk *walk, int fd, int depth, bool single);

/* single: files may have one name only. A checkpoint's files may have more: no process writes to
 * them again, and backups use hard links. */
static int check_one(const struct walk *walk, int at, const char *name, int depth, bool single)
{
    struct stat stat_;

    if (fstatat(at, name, &stat_, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : refuse(walk, name, strerror(errno));
    if (!is_ours(&stat_))
        return refuse(walk, name, "belongs to another user, so the run does not use the folder");
    if (S_ISDIR(stat_.st_mode)) {
        const int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

        if (fd < 0)
            return refuse(walk, name, strerror(errno));
        const bool is_checkpoints = strcmp(name, CHECKPOINTS) == 0;
        const int code = check_folder(walk, fd, depth + 1, single && !is_checkpoints);

        close(fd);
        return code;
    }
    if (single && S_ISLNK(stat_.st_mode))
        return refuse(walk, name, "is a link, and a run's folder may not contain links");
    if (single && S_ISREG(stat_.st_mode) && stat_.st_nlink > 1)
        return refuse(
            walk, name, "has a second name (a hard link), so the run does not write to it");
    return 0;
}

static int check_folder(const struct walk *walk, int fd, int depth, bool single)
{
    struct stat stat_;
    int code = 0;

    if (depth > MAX_DEPTH)
        return refuse(walk, NULL, "its folders are nested deeper than a run creates them");
    if (fstat(fd, &stat_) < 0 || !is_ours(&stat_))
        return refuse(walk, NULL, "belongs to another user, so the run does not use it");
    if ((code = close_to_others(walk, fd, &stat_)) < 0)
        return code;
    const int own = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *folder = own < 0 ? NULL : fdopendir(own);

    if (!folder) {
        code = refuse(walk, NULL, strerror(errno));
        if (own >= 0)
            close(own);
        return code;
    }
    for (const struct dirent *item; code == 0 && (item = readdir(folder));)
        if (strcmp(item->d_name, ".") != 0 && strcmp(item->d_name, "..") != 0)
            code = check_one(walk, fd, item->d_name, depth, single);
    closedir(folder);
    return code;
}

int np_folder_enter(const char *dir, struct np_err *err)
{
    const struct walk walk = {dir, err};
    const int fd = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (fd < 0 && (errno == ELOOP || errno == ENOTDIR))
        return refuse(&walk, NULL, "is a link or a file, not the run's folder");
    if (fd < 0)
        return np_err_set(err, -errno, "%s: cannot open it: %s", dir, strerror(errno));
    int code = check_folder(&walk, fd, 0, true);

    if (code == 0 && fchdir(fd) < 0)
        code = np_err_set(err, -errno, "%s: cannot enter it: %s", dir, strerror(errno));
    close(fd);
    return code;
}

/* --- output ----------------------------------------------------------------------------------- */

static void name_segment(char name[32], int number)
{
    snprintf(name, 32, "output/%06d", number);
}

int np_output_last(void)
{
    DIR *folder = opendir("output");
    int last = 0;

    for (const struct dirent *item; folder && (item = readdir(folder));) {
        const int number = atoi(item->d_name);

        last = number > last ? number : last;
    }
    if (folder)
        closedir(folder);
    return last;
}

int np_output_open(int segment)
{
    char name[32];

    name_segment(name, segment);
    const int fd = open(name, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0666);
    return fd < 0 ? -errno : fd;
}

void np_output_remove(int segment)
{
    char name[32];

    name_segment(name, segment);
    unlink(name);
}
