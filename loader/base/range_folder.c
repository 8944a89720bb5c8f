/* See range_folder.h. */
#include "loader/base/range_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include <xxhash.h>

#include "loader/base/clock.h"
#include "loader/base/io.h"
#include "loader/base/mem.h"
#include "loader/base/range_file.h"

#define LOCK_NS     10000000000ull
#define COUNT_NS    30000000000ull /* between counts of a full folder */
#define SPARE_BYTES (1ull << 30)   /* of the disk's free space, for checkpoints */
#define SPARE_SHARE 32             /* at most this part of the disk */
#define SET_PREFIX  "set-"
#define SET_NAME    48 /* bytes */
#define HOLDERS     "holders"
#define MAX_NAME    4096 /* of a set, in its holders file */

/* --- files and their owners ---------------------------------------------------------------- */

static int refuse_owner(const struct np_range_folder *folder, const char *name,
    const struct stat *st, struct np_err *err)
{
    if (st->st_uid == geteuid() || st->st_uid == 0 || st->st_uid == folder->owner ||
        (folder->is_shared && st->st_gid == folder->group))
        return 0;
    return np_err_set(err, -EPERM,
        "%s: %s belongs to user %u, who could change what a run reads; remove it", folder->path,
        name, (unsigned)st->st_uid);
}

int np_range_folder_file(const struct np_range_folder *folder, int dir_fd, const char *name,
    int flags, int *ret_fd, struct np_err *err)
{
    const int fd = openat(
        dir_fd, name, flags | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, folder->file_mode);
    struct stat st;
    int code = fd < 0 ? -errno : 0;

    if (code == -ENOENT)
        return code;
    if (code == -ELOOP)
        return np_err_set(err, code,
            "%s: %s is a symbolic link, which the cache does not follow; "
            "remove it",
            folder->path, name);
    if (code == -EMFILE)
        return np_err_set(err, code, "%s: too many open files; raise `ulimit -n`", folder->path);
    if (code)
        return np_err_set(err, code, "%s: cannot open %s: %s", folder->path, name, strerror(-code));
    if (fstat(fd, &st) < 0)
        code = np_err_set(err, -errno, "%s: %s: %s", folder->path, name, strerror(errno));
    else if (!S_ISREG(st.st_mode))
        code = np_err_set(err, -EINVAL, "%s: %s is no regular file; remove it", folder->path, name);
    else
        code = refuse_owner(folder, name, &st, err);
    if (!code && flags & O_CREAT && st.st_uid == geteuid() && st.st_size == 0)
        fchmod(fd, folder->file_mode); /* whatever the umask */
    if (!code)                         /* it was for a pipe; io_uring would not wait for the disk */
        fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
    if (code)
        close(fd);
    else
        *ret_fd = fd;
    return code;
}

static int open_set_folder(
    const struct np_range_folder *folder, const char *name, int *ret_fd, struct np_err *err)
{
    const int fd = openat(folder->fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat st;
    int code;

    if (fd < 0 && errno == ENOENT)
        return -ENOENT;
    if (fd < 0)
        return np_err_set(err, -errno, "%s: cannot open %s: %s; remove it if it is a link",
            folder->path, name, strerror(errno));
    code = fstat(fd, &st) < 0 ? -errno : refuse_owner(folder, name, &st, err);
    if (code)
        close(fd);
    else
        *ret_fd = fd;
    return code;
}

/* Opens the folder itself, and sees who may share it. */
static int open_folder(struct np_range_folder *folder, struct np_err *err)
{
    const char *path = folder->path;
    struct stat st;
    int code = np_make_parent(path, err);

    if (code)
        return code;
    if (mkdir(path, 0700) < 0 && errno != EEXIST)
        return np_err_set(err, -errno, "%s: cannot make this folder: %s", path, strerror(errno));
    folder->fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (folder->fd < 0 && (errno == ELOOP || errno == ENOTDIR))
        return np_err_set(err, -errno,
            "%s: this is no folder, or a symbolic link to one; name the folder itself", path);
    if (folder->fd < 0 || fstat(folder->fd, &st) < 0)
        return np_err_set(err, -errno, "%s: cannot open this folder: %s", path, strerror(errno));
    if (st.st_uid != geteuid() && st.st_uid != 0)
        return np_err_set(err, -EPERM,
            "%s: this folder belongs to user %u, who could change what a run reads; a folder for "
            "several users belongs to root: install -d -o root -g GROUP -m 2770 FOLDER",
            path, (unsigned)st.st_uid);
    if (st.st_mode & S_IWOTH)
        return np_err_set(err, -EPERM,
            "%s: all users may write into this folder, and so change what a run reads: chmod o-w",
            path);
    folder->owner = st.st_uid;
    folder->group = st.st_gid;
    folder->is_shared = st.st_mode & S_IWGRP;
    folder->file_mode = 0600 | (st.st_mode & (S_IRGRP | S_IWGRP));
    folder->set_mode = 0700 | (st.st_mode & (S_ISGID | S_IRWXG));
    folder->can_write = faccessat(folder->fd, ".", W_OK, AT_EACCESS) == 0;
    return 0;
}

/* --- locks --------------------------------------------------------------------------------- */

/* -EBUSY after LOCK_NS: a stopped process may have it. */
static int lock_file(const struct np_range_folder *folder, int fd, int how, struct np_err *err)
{
    const uint64_t end_ns = np_now_ns() + (folder->is_busy ? LOCK_NS / 100 : LOCK_NS);
    long wait_ns = 50000;

    while (flock(fd, how | LOCK_NB) < 0) {
        const struct timespec wait = {0, wait_ns};

        if (errno != EWOULDBLOCK && errno != EINTR)
            return np_err_set(
                err, -errno, "%s: files cannot be locked here: %s", folder->path, strerror(errno));
        if (np_now_ns() > end_ns)
            return np_err_set(
                err, -EBUSY, "%s: another process keeps this cache locked", folder->path);
        nanosleep(&wait, NULL);
        wait_ns = wait_ns < 20000000 ? 2 * wait_ns : wait_ns;
    }
    return 0;
}

static uint64_t count_all(const struct np_range_folder *folder);

void np_range_folder_count(struct np_range_folder *folder)
{
    const uint64_t now_ns = np_now_ns();

    if (!folder->can_write || (folder->counted_ns && now_ns - folder->counted_ns < COUNT_NS) ||
        flock(folder->writing_fd, LOCK_EX | LOCK_NB) < 0)
        return;
    folder->used_bytes = count_all(folder) + folder->new_bytes; /* these are not written yet */
    flock(folder->writing_fd, LOCK_UN);
    folder->counted_ns = now_ns;
}

int np_range_folder_take(struct np_range_folder *folder, struct np_err *err)
{
    uint8_t account[NP_RANGE_ACCOUNT_BYTES];
    struct stat st;
    int64_t got;
    int code;

    pthread_mutex_lock(&folder->lock);
    code = lock_file(folder, folder->account_fd, LOCK_EX, err);
    folder->is_busy = code == -EBUSY;
    folder->new_bytes = 0;
    if (!code && (fstat(folder->account_fd, &st) < 0 || st.st_nlink == 0)) {
        flock(folder->account_fd, LOCK_UN);
        code = np_err_set(err, -ESTALE, "%s: the folder was removed", folder->path);
    }
    if (code) {
        pthread_mutex_unlock(&folder->lock);
        return code;
    }
    got = np_read_at(folder->account_fd, 0, account, sizeof(account));
    if (got < 0 || !np_range_account_decode(account, (size_t)got, &folder->used_bytes))
        folder->used_bytes = count_all(folder); /* too little by what is being written */
    return 0;
}

void np_range_folder_save(struct np_range_folder *folder)
{
    uint8_t account[NP_RANGE_ACCOUNT_BYTES];

    np_range_account_encode(folder->used_bytes, account);
    /* If it fails, the file is damaged at worst, and the next process counts. */
    if (folder->can_write && pwrite(folder->account_fd, account, sizeof(account), 0) < 0)
        folder->counted_ns = 0; /* and this one, soon */
}

void np_range_folder_release(struct np_range_folder *folder)
{
    np_range_folder_save(folder);
    flock(folder->account_fd, LOCK_UN);
    pthread_mutex_unlock(&folder->lock);
}

void np_range_folder_begin(struct np_range_folder *folder)
{
    while (flock(folder->writing_fd, LOCK_SH) < 0 && errno == EINTR)
        ;
}

void np_range_folder_end(struct np_range_folder *folder)
{
    flock(folder->writing_fd, LOCK_UN);
}

/* --- sets ---------------------------------------------------------------------------------- */

static void set_name(const char *set, char name[SET_NAME])
{
    const XXH128_hash_t hash = XXH3_128bits(set, strlen(set));

    snprintf(name, SET_NAME, SET_PREFIX "%016llx%016llx", (unsigned long long)hash.high64,
        (unsigned long long)hash.low64);
}

static bool is_set(const char *name)
{
    const size_t prefix = strlen(SET_PREFIX);

    return strncmp(name, SET_PREFIX, prefix) == 0 &&
           strspn(name + prefix, "0123456789abcdef") == 32 && name[prefix + 32] == '\0';
}

static void touch(int fd)
{
    futimens(fd, NULL); /* users who may only read cannot */
}

/* Between take and release. Without write permission and without such a set: no set. */
static int hold_set(struct np_range_folder *folder, const char *set, struct np_err *err)
{
    const int flags = folder->can_write ? O_RDWR | O_CREAT : O_RDONLY;
    char name[SET_NAME];
    int code;

    set_name(set, name);
    if (folder->can_write && mkdirat(folder->fd, name, 0700) == 0 &&
        fchmodat(folder->fd, name, folder->set_mode, 0) < 0)
        return np_err_set(err, -errno, "%s: cannot share: %s", folder->path, strerror(errno));
    code = open_set_folder(folder, name, &folder->set_fd, err);
    if (!code)
        code =
            np_range_folder_file(folder, folder->set_fd, HOLDERS, flags, &folder->holders_fd, err);
    if (code == -ENOENT && !folder->can_write)
        return 0;
    if (code)
        return code == -ENOENT ? np_err_set(err, code, "%s: the folder was removed", folder->path)
                               : code;
    if (folder->can_write && lseek(folder->holders_fd, 0, SEEK_END) == 0 &&
        write(folder->holders_fd, set, strnlen(set, MAX_NAME)) < 0)
        return np_err_set(err, -errno, "%s: cannot write: %s", folder->path, strerror(errno));
    touch(folder->holders_fd);
    return lock_file(folder, folder->holders_fd, LOCK_SH, err);
}

/* --- counting and eviction: between take and release ----------------------------------------- */

struct listed {
    char name[SET_NAME];
    int64_t used_ns;
    int fd, holders_fd;
};

static bool is_object(const char *name)
{
    char object[NP_RANGE_FILE_NAME];

    snprintf(object, sizeof(object), "%.49s", name);
    return np_range_is_file_name(object) && (name[49] == '\0' || strcmp(name + 49, ".new") == 0);
}

static uint64_t disk_bytes(int dir_fd, const char *name)
{
    struct stat st;

    return fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 ? 512 * (uint64_t)st.st_blocks : 0;
}

/* Calls each for the objects of a set until it returns false. */
static void walk_set(
    int set_fd, bool (*each)(void *context, int set_fd, const char *name), void *context)
{
    const int fd = openat(set_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;

    if (!dir && fd >= 0)
        close(fd);
    for (struct dirent *entry = dir ? readdir(dir) : NULL; entry; entry = readdir(dir))
        if (is_object(entry->d_name) && !each(context, set_fd, entry->d_name))
            break;
    if (dir)
        closedir(dir);
}

/* Calls each with every set that has a holders file, and closes it. False ends. */
static void walk_sets(const struct np_range_folder *folder,
    bool (*each)(void *context, const struct listed *set), void *context)
{
    const int fd = openat(folder->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    bool goes_on = true;

    if (!dir && fd >= 0)
        close(fd);
    for (struct dirent *entry = dir ? readdir(dir) : NULL; entry && goes_on; entry = readdir(dir)) {
        struct listed set = {.fd = -1, .holders_fd = -1};
        struct stat st;

        if (!is_set(entry->d_name) || open_set_folder(folder, entry->d_name, &set.fd, NULL))
            continue;
        snprintf(set.name, sizeof(set.name), "%.*s", SET_NAME - 1, entry->d_name);
        if (np_range_folder_file(folder, set.fd, HOLDERS, O_RDONLY, &set.holders_fd, NULL) == 0 &&
            fstat(set.holders_fd, &st) == 0)
            set.used_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
        goes_on = each(context, &set);
        close(set.fd);
        if (set.holders_fd >= 0)
            close(set.holders_fd);
    }
    if (dir)
        closedir(dir);
}

static bool add_object(void *context, int set_fd, const char *name)
{
    *(uint64_t *)context += disk_bytes(set_fd, name);
    return true;
}

static bool add_set(void *context, const struct listed *set)
{
    walk_set(set->fd, add_object, context);
    return true;
}

static uint64_t count_all(const struct np_range_folder *folder)
{
    uint64_t bytes = 0;

    walk_sets(folder, add_set, &bytes);
    return bytes;
}

static void unlink_at(struct np_range_folder *folder, int set_fd, const char *name)
{
    const uint64_t bytes = disk_bytes(set_fd, name);

    if (unlinkat(set_fd, name, 0) == 0)
        np_range_folder_return(folder, bytes);
}

void np_range_folder_unlink(struct np_range_folder *folder, const char *name)
{
    unlink_at(folder, folder->set_fd, name);
}

void np_range_folder_return(struct np_range_folder *folder, uint64_t bytes)
{
    folder->used_bytes -= bytes < folder->used_bytes ? bytes : folder->used_bytes;
}

struct versions {
    struct np_range_folder *folder;
    const char *name;
};

static bool drop_version(void *context, int set_fd, const char *name)
{
    struct versions *versions = context;
    struct np_range_folder *folder = versions->folder;
    int fd;

    if (strncmp(name, versions->name, 33) != 0 || strcmp(name, versions->name) == 0 ||
        np_range_folder_file(folder, set_fd, name, O_RDONLY, &fd, NULL))
        return true;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0)
        unlink_at(folder, set_fd, name);
    close(fd);
    return true;
}

void np_range_folder_drop_versions(struct np_range_folder *folder, const char *name)
{
    struct versions versions = {folder, name};

    walk_set(folder->set_fd, drop_version, &versions);
}

/* The set used longest ago that nobody holds, among those used after `after`. */
struct oldest {
    const struct np_range_folder *folder;
    int64_t after_ns;
    char name[SET_NAME];
    int64_t used_ns;
};

static bool is_held(const struct listed *set)
{
    if (set->holders_fd < 0)
        return false;
    if (flock(set->holders_fd, LOCK_EX | LOCK_NB) < 0)
        return true;
    flock(set->holders_fd, LOCK_UN);
    return false;
}

static bool see_oldest(void *context, const struct listed *set)
{
    struct oldest *oldest = context;

    if ((oldest->name[0] && set->used_ns >= oldest->used_ns) || set->used_ns < oldest->after_ns ||
        is_held(set))
        return true;
    memcpy(oldest->name, set->name, sizeof(oldest->name));
    oldest->used_ns = set->used_ns;
    return true;
}

struct eviction {
    struct np_range_folder *folder;
    uint64_t max_used_bytes;
    bool is_whole; /* nothing of the set is left */
};

static bool evict_object(void *context, int set_fd, const char *name)
{
    struct eviction *eviction = context;

    if (eviction->folder->used_bytes <= eviction->max_used_bytes) {
        eviction->is_whole = false;
        return false;
    }
    unlink_at(eviction->folder, set_fd, name);
    eviction->folder->nr_evicted++;
    return true;
}

/* Removes objects of the set until max_used_bytes are left, and the set if none is left. Nobody can
 * begin to hold it now: that takes the account. False: nothing could be done. */
static bool evict_set(struct np_range_folder *folder, const char *name, uint64_t max_used_bytes)
{
    struct eviction eviction = {folder, max_used_bytes, true};
    int fd;

    if (open_set_folder(folder, name, &fd, NULL))
        return false;
    walk_set(fd, evict_object, &eviction);
    if (eviction.is_whole)
        unlinkat(fd, HOLDERS, 0);
    close(fd);
    return !eviction.is_whole || unlinkat(folder->fd, name, AT_REMOVEDIR) == 0;
}

/* Until max_used_bytes are used, or all that is left is held. */
static void evict(struct np_range_folder *folder, uint64_t max_used_bytes)
{
    struct oldest oldest = {.folder = folder, .after_ns = INT64_MIN};

    while (folder->used_bytes > max_used_bytes) {
        oldest.name[0] = '\0';
        walk_sets(folder, see_oldest, &oldest);
        if (!oldest.name[0])
            return;
        if (!evict_set(folder, oldest.name, max_used_bytes))
            oldest.after_ns = oldest.used_ns + 1; /* foreign files keep it: go on with the next */
    }
}

/* Free space that the cache may take; some is left for checkpoints on the same disk. */
static uint64_t free_bytes(const struct np_range_folder *folder)
{
    struct statvfs disk;
    uint64_t spare, bytes;

    if (fstatvfs(folder->fd, &disk) < 0)
        return UINT64_MAX;
    spare = (uint64_t)disk.f_blocks * disk.f_frsize / SPARE_SHARE;
    spare = spare < SPARE_BYTES ? spare : SPARE_BYTES;
    bytes = (uint64_t)disk.f_bavail * disk.f_frsize;
    return bytes > spare ? bytes - spare : 0;
}

static bool has_room(const struct np_range_folder *folder, uint64_t bytes)
{
    return folder->used_bytes <= folder->max_bytes &&
           bytes <= folder->max_bytes - folder->used_bytes;
}

bool np_range_folder_reserve(struct np_range_folder *folder, uint64_t bytes)
{
    if (bytes > folder->max_bytes)
        return false;
    if (!has_room(folder, bytes))
        evict(folder, folder->max_bytes - bytes);
    if (folder->new_bytes + bytes > free_bytes(folder)) {
        const uint64_t want = folder->new_bytes + bytes + folder->used_bytes / 16;

        evict(folder, folder->used_bytes > want ? folder->used_bytes - want : 0);
    }
    if (!has_room(folder, bytes) || folder->new_bytes + bytes > free_bytes(folder))
        return false;
    folder->used_bytes += bytes;
    folder->new_bytes += bytes;
    touch(folder->holders_fd);
    return true;
}

/* --- open and close ------------------------------------------------------------------------ */

static int open_files(struct np_range_folder *folder, struct np_err *err)
{
    const int flags = folder->can_write ? O_RDWR | O_CREAT : O_RDONLY;
    int code = np_range_folder_file(folder, folder->fd, "account", flags, &folder->account_fd, err);

    if (!code)
        code = np_range_folder_file(folder, folder->fd, "writing", flags, &folder->writing_fd, err);
    if (code == -ENOENT)
        return np_err_set(err, -EACCES,
            "%s: there is no cache yet, and this user may not write here", folder->path);
    return code;
}

int np_range_folder_open(struct np_range_folder *folder, const char *path, const char *set,
    uint64_t max_bytes, struct np_err *err)
{
    int code;

    *folder = (struct np_range_folder){.fd = -1,
        .writing_fd = -1,
        .set_fd = -1,
        .holders_fd = -1,
        .account_fd = -1,
        .max_bytes = max_bytes};
    pthread_mutex_init(&folder->lock, NULL);
    folder->path = np_try_strdup(path, err);
    code = folder->path ? open_folder(folder, err) : -ENOMEM;
    if (!code)
        code = open_files(folder, err);
    if (!code)
        code = np_range_folder_take(folder, err);
    if (code)
        goto out;
    np_range_folder_count(folder);
    if (max_bytes == 0)
        folder->max_bytes = (folder->used_bytes + free_bytes(folder)) / 2;
    if (set)
        code = hold_set(folder, set, err);
    np_range_folder_release(folder);
out:
    if (code)
        np_range_folder_close(folder);
    return code;
}

static void close_fd(int fd)
{
    if (fd >= 0)
        close(fd);
}

void np_range_folder_close(struct np_range_folder *folder)
{
    if (folder->holders_fd >= 0 && folder->can_write)
        touch(folder->holders_fd);
    close_fd(folder->holders_fd);
    close_fd(folder->set_fd);
    close_fd(folder->writing_fd);
    close_fd(folder->account_fd);
    close_fd(folder->fd);
    pthread_mutex_destroy(&folder->lock);
    np_free(folder->path);
    folder->path = NULL;
}

/* --- listings ------------------------------------------------------------------------------- */

struct listing {
    void (*each)(void *context, const struct np_range_set *set);
    void *context;
    struct np_range_set set;
};

static bool list_object(void *context, int set_fd, const char *name)
{
    struct np_range_set *set = context;

    set->bytes += disk_bytes(set_fd, name);
    set->nr_objects++;
    return true;
}

static bool list_set(void *context, const struct listed *listed)
{
    struct listing *listing = context;
    char name[MAX_NAME + 1] = "";
    struct np_range_set set = {
        .name = name, .used_s = listed->used_ns / 1000000000, .is_held = is_held(listed)};
    const int64_t got =
        listed->holders_fd >= 0 ? np_read_at(listed->holders_fd, 0, name, MAX_NAME) : 0;

    name[got > 0 ? got : 0] = '\0';
    np_text_clean(name);
    walk_set(listed->fd, list_object, &set);
    listing->each(listing->context, &set);
    return true;
}

int np_range_folder_sets(struct np_range_folder *folder,
    void (*each)(void *context, const struct np_range_set *set), void *context, struct np_err *err)
{
    struct listing listing = {.each = each, .context = context};
    const int code = np_range_folder_take(folder, err);

    if (code)
        return code;
    walk_sets(folder, list_set, &listing);
    np_range_folder_release(folder);
    return 0;
}

int np_range_folder_clear(struct np_range_folder *folder, uint64_t *ret_bytes, struct np_err *err)
{
    const int code = np_range_folder_take(folder, err);
    uint64_t before;

    if (code)
        return code;
    before = folder->used_bytes;
    evict(folder, 0);
    *ret_bytes = before - folder->used_bytes;
    np_range_folder_release(folder);
    return 0;
}
