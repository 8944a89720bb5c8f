/*
 * A file system with faults: FOLDER shown at MOUNT through FUSE, made slow, hung, full or damaged while it
 * is mounted. Tests write one command a line to MOUNT/.control:
 *
 *   latency MS       each read, write and open takes MS longer
 *   rate BYTES       reads and writes together give BYTES a second; 0: no limit
 *   hang GLOB        a call on a path that matches (`*` crosses `/`) waits until `clear`; .control answers on
 *   fail ERRNO GLOB  a call on such a path, but a listing or stat, fails with that number
 *   quota BYTES      writes past so many bytes from now on fail with EDQUOT, though statvfs shows room
 *   direct 0|1       files opened from now on bypass the page cache
 *   clear            no faults from now on; hung calls continue
 *
 * Usage: faulty_fs FOLDER MOUNT [FUSE options]. It goes into the background once mounted; `umount` ends it.
 * FUSE's own threads run all of this; `faults` and what waits in it are under `lock`.
 */
#define FUSE_USE_VERSION 35
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <fuse.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <dirent.h>
#include <time.h>
#include <unistd.h>

#define CONTROL "/.control"

static int root = -1; /* the folder that is shown */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cleared = PTHREAD_COND_INITIALIZER;
static struct {
    double latency_s;
    double rate;    /* bytes a second */
    double free_at; /* when the medium has done all it was asked, seconds of CLOCK_MONOTONIC */
    char hang[256], fail[256]; /* globs; "": none */
    int fail_errno;
    long long quota; /* bytes that may still be written; -1: no quota */
    int direct;
} faults = {.quota = -1};

static double now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void sleep_s(double s)
{
    struct timespec t = {.tv_sec = (time_t)s, .tv_nsec = (long)((s - (double)(time_t)s) * 1e9)};

    if (s > 0)
        nanosleep(&t, NULL);
}

static int matches(const char *glob, const char *path)
{
    return glob[0] != '\0' && fnmatch(glob, path + 1, 0) == 0;
}

/* What a call on PATH meets: waits while it hangs; 0 or the error it fails with. */
static int meet(const char *path, int may_fail)
{
    int error = 0;

    pthread_mutex_lock(&lock);
    while (matches(faults.hang, path))
        pthread_cond_wait(&cleared, &lock);
    if (may_fail && matches(faults.fail, path))
        error = -faults.fail_errno;
    pthread_mutex_unlock(&lock);
    return error;
}

/* The medium's time for BYTES. */
static void spend(size_t bytes)
{
    double wait, now = now_s();

    pthread_mutex_lock(&lock);
    wait = faults.latency_s;
    if (faults.rate > 0) {
        faults.free_at =
            (faults.free_at > now ? faults.free_at : now) + (double)bytes / faults.rate;
        wait += faults.free_at - now;
    }
    pthread_mutex_unlock(&lock);
    sleep_s(wait);
}

/* One line of the control file; 0 or -EINVAL. */
static int obey(const char *line)
{
    char glob[256];
    double number;
    int code = 0, error;

    pthread_mutex_lock(&lock);
    if (sscanf(line, "latency %lf", &number) == 1)
        faults.latency_s = number * 1e-3;
    else if (sscanf(line, "rate %lf", &number) == 1)
        faults.rate = number;
    else if (sscanf(line, "hang %255s", glob) == 1)
        strcpy(faults.hang, glob);
    else if (sscanf(line, "fail %d %255s", &error, glob) == 2) {
        faults.fail_errno = error;
        strcpy(faults.fail, glob);
    } else if (sscanf(line, "quota %lf", &number) == 1)
        faults.quota = (long long)number;
    else if (sscanf(line, "direct %d", &error) == 1)
        faults.direct = error;
    else if (strncmp(line, "clear", 5) == 0) {
        memset(&faults, 0, sizeof(faults));
        faults.quota = -1;
        pthread_cond_broadcast(&cleared);
    } else
        code = -EINVAL;
    pthread_mutex_unlock(&lock);
    return code;
}

static int is_control(const char *path)
{
    return strcmp(path, CONTROL) == 0;
}

/* PATH below the folder that is shown. */
static const char *below(const char *path)
{
    return path[1] ? path + 1 : ".";
}

static int done(int result)
{
    return result < 0 ? -errno : 0;
}

/* A new file belongs to the caller. */
static int give(const char *path, int result)
{
    const struct fuse_context *caller = fuse_get_context();
    int code = done(result);

    if (code == 0 && fchownat(root, below(path), caller->uid, caller->gid, AT_SYMLINK_NOFOLLOW) < 0)
        code = -errno;
    return code;
}

static int fs_getattr(const char *path, struct stat *st, struct fuse_file_info *fi)
{
    (void)fi;
    if (is_control(path)) {
        *st = (struct stat){.st_mode = S_IFREG | 0666, .st_nlink = 1};
        return 0;
    }
    if (path[1] != '\0') /* the kernel asks for the root's on the way to .control */
        meet(path, 0);
    return done(fstatat(root, below(path), st, AT_SYMLINK_NOFOLLOW));
}

static int fs_readlink(const char *path, char *buf, size_t size)
{
    ssize_t n;
    int code = meet(path, 1);

    if (code < 0)
        return code;
    n = readlinkat(root, below(path), buf, size - 1);
    if (n < 0)
        return -errno;
    buf[n] = '\0';
    return 0;
}

static int fs_readdir(const char *path, void *buf, fuse_fill_dir_t fill, off_t off,
    struct fuse_file_info *fi, enum fuse_readdir_flags flags)
{
    struct dirent *entry;
    DIR *dir;
    int fd;

    (void)off, (void)fi, (void)flags;
    meet(path, 0);
    fd = openat(root, below(path), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    dir = fd < 0 ? NULL : fdopendir(fd);
    if (dir == NULL)
        return -errno;
    while ((entry = readdir(dir)) != NULL) {
        struct stat st = {.st_ino = entry->d_ino, .st_mode = (mode_t)entry->d_type << 12};

        fill(buf, entry->d_name, &st, 0, 0);
    }
    closedir(dir);
    return 0;
}

static int fs_mknod(const char *path, mode_t mode, dev_t dev)
{
    int code = meet(path, 1);

    return code < 0 ? code : give(path, mknodat(root, below(path), mode, dev));
}

static int fs_mkdir(const char *path, mode_t mode)
{
    int code = meet(path, 1);

    return code < 0 ? code : give(path, mkdirat(root, below(path), mode));
}

static int fs_symlink(const char *to, const char *path)
{
    int code = meet(path, 1);

    return code < 0 ? code : give(path, symlinkat(to, root, below(path)));
}

static int fs_unlink(const char *path)
{
    int code = meet(path, 1);

    return code < 0 ? code : done(unlinkat(root, below(path), 0));
}

static int fs_rmdir(const char *path)
{
    int code = meet(path, 1);

    return code < 0 ? code : done(unlinkat(root, below(path), AT_REMOVEDIR));
}

static int fs_rename(const char *from, const char *to, unsigned int flags)
{
    int code = meet(from, 1);

    return code < 0 ? code : done(renameat2(root, below(from), root, below(to), flags));
}

static int fs_chmod(const char *path, mode_t mode, struct fuse_file_info *fi)
{
    (void)fi;
    return done(fchmodat(root, below(path), mode, 0));
}

static int fs_chown(const char *path, uid_t uid, gid_t gid, struct fuse_file_info *fi)
{
    (void)fi;
    return done(fchownat(root, below(path), uid, gid, AT_SYMLINK_NOFOLLOW));
}

static int fs_utimens(const char *path, const struct timespec times[2], struct fuse_file_info *fi)
{
    (void)fi;
    return done(utimensat(root, below(path), times, AT_SYMLINK_NOFOLLOW));
}

static int fs_truncate(const char *path, off_t size, struct fuse_file_info *fi)
{
    int fd, code = is_control(path) ? 0 : meet(path, 1);

    if (code < 0 || is_control(path))
        return code;
    if (fi != NULL)
        return done(ftruncate((int)fi->fh, size));
    fd = openat(root, below(path), O_WRONLY | O_CLOEXEC);
    code = fd < 0 ? -errno : done(ftruncate(fd, size));
    if (fd >= 0)
        close(fd);
    return code;
}

static int open_at(const char *path, int flags, mode_t mode, struct fuse_file_info *fi)
{
    int fd, code = meet(path, 1);

    if (code < 0)
        return code;
    spend(0);
    fd = openat(root, below(path), (flags & ~(O_DIRECT | O_NOFOLLOW | O_APPEND)) | O_CLOEXEC, mode);
    if (fd < 0)
        return -errno;
    fi->fh = (uint64_t)fd;
    fi->direct_io = faults.direct != 0;
    return 0;
}

static int fs_open(const char *path, struct fuse_file_info *fi)
{
    if (is_control(path)) {
        fi->direct_io = 1;
        return 0;
    }
    return open_at(path, fi->flags, 0, fi);
}

static int fs_create(const char *path, mode_t mode, struct fuse_file_info *fi)
{
    int code = open_at(path, fi->flags | O_CREAT, mode, fi);

    return code < 0 ? code : give(path, 0);
}

static int fs_read(const char *path, char *buf, size_t size, off_t off, struct fuse_file_info *fi)
{
    ssize_t n;
    int code = is_control(path) ? 0 : meet(path, 1);

    if (code < 0 || is_control(path))
        return code;
    n = pread((int)fi->fh, buf, size, off);
    if (n > 0)
        spend((size_t)n);
    return n < 0 ? -errno : (int)n;
}

static int within_quota(size_t size)
{
    int fits;

    pthread_mutex_lock(&lock);
    fits = faults.quota < 0 || (long long)size <= faults.quota;
    if (fits && faults.quota >= 0)
        faults.quota -= (long long)size;
    pthread_mutex_unlock(&lock);
    return fits;
}

static int fs_write(
    const char *path, const char *buf, size_t size, off_t off, struct fuse_file_info *fi)
{
    char line[512];
    ssize_t n;
    int code;

    if (is_control(path)) {
        snprintf(line, sizeof(line), "%.*s", (int)(size < 511 ? size : 511), buf);
        code = obey(line);
        return code < 0 ? code : (int)size;
    }
    code = meet(path, 1);
    if (code < 0)
        return code;
    if (!within_quota(size))
        return -EDQUOT;
    n = pwrite((int)fi->fh, buf, size, off);
    spend(size);
    return n < 0 ? -errno : (int)n;
}

static int fs_statfs(const char *path, struct statvfs *st)
{
    meet(path, 0);
    return done(fstatvfs(root, st));
}

static int fs_fsync(const char *path, int data_only, struct fuse_file_info *fi)
{
    int code = is_control(path) ? 0 : meet(path, 1);

    (void)data_only;
    return code < 0 || is_control(path) ? code : done(fsync((int)fi->fh));
}

static int fs_release(const char *path, struct fuse_file_info *fi)
{
    if (!is_control(path))
        close((int)fi->fh);
    return 0;
}

static void *fs_init(struct fuse_conn_info *conn, struct fuse_config *config)
{
    (void)conn;
    config->entry_timeout = config->attr_timeout = config->negative_timeout = 0;
    return NULL;
}

int main(int argc, char **argv)
{
    static const struct fuse_operations operations = {
        .init = fs_init,
        .getattr = fs_getattr,
        .readlink = fs_readlink,
        .readdir = fs_readdir,
        .mknod = fs_mknod,
        .mkdir = fs_mkdir,
        .symlink = fs_symlink,
        .unlink = fs_unlink,
        .rmdir = fs_rmdir,
        .rename = fs_rename,
        .chmod = fs_chmod,
        .chown = fs_chown,
        .utimens = fs_utimens,
        .truncate = fs_truncate,
        .open = fs_open,
        .create = fs_create,
        .read = fs_read,
        .write = fs_write,
        .statfs = fs_statfs,
        .fsync = fs_fsync,
        .release = fs_release,
    };
    struct fuse_args args = FUSE_ARGS_INIT(0, NULL);

    if (argc < 3) {
        fprintf(stderr, "usage: faulty_fs FOLDER MOUNT [FUSE options]\n");
        return 2;
    }
    root = open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (root < 0) {
        perror(argv[1]);
        return 1;
    }
    umask(0);
    argv[1] = "faulty_fs";
    argv += 1;
    argc -= 1;
    for (int i = 0; i < argc; i++)
        fuse_opt_add_arg(&args, argv[i]);
    fuse_opt_add_arg(
        &args, "-omax_threads=1000"); /* each hung call holds one; .control needs one more */
    return fuse_main(args.argc, args.argv, &operations, NULL);
}
