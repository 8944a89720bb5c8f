/* The `sim` backend's writing: the POSIX calls, and a journal of what a disk would not have yet.
 * A new file's name and content, and a new name, are changes; a change leaves the journal when it
 * has been synced. Each holds its file open, because the file may get another name, or its folder
 * one, before it is undone; and a hard link to the file that a rename replaced.
 * Of names a disk keeps those up to some moment (all of a journal's beginning, none of its
 * end); contents appear and vanish independently, and a lost end may be cut off or read as zeros.
 * Not modelled: a rename between folders is kept with the folder it leads to; a truncated
 * old file stays empty. The thread that opened the np_io. */
#include "tests/sim/io_sim.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct np_sim_change {
    bool is_rename;
    int handle;               /* of the file or folder, own descriptor */
    bool name_kept;           /* the folder has been synced */
    char *from, *kept;        /* owned; renames: last part of the old name (NULL: old path in
                                 from_path), and of the link to the file replaced, or NULL */
    char *from_path;          /* owned; renames between folders */
    int fd;                   /* files being written: the caller's, else -1 */
    uint64_t written, synced; /* bytes */
};

/* --- the journal -------------------------------------------------------------------------- */

static struct np_sim_change *add_change(struct np_sim_disk *disk, int handle)
{
    struct np_sim_change *change;

    if (disk->nr_changes == disk->room) {
        disk->room = disk->room ? 2 * disk->room : 16;
        disk->changes = realloc(disk->changes, (size_t)disk->room * sizeof(*disk->changes));
        if (!disk->changes)
            abort(); /* tests only */
    }
    change = &disk->changes[disk->nr_changes++];
    *change = (struct np_sim_change){.handle = handle, .fd = -1};
    return change;
}

/* Where the change's file is now. False: nowhere. */
static bool path_now(const struct np_sim_change *change, char path[PATH_MAX])
{
    char link[40];
    struct stat info;
    ssize_t n;

    snprintf(link, sizeof(link), "/proc/self/fd/%d", change->handle);
    n = readlink(link, path, PATH_MAX - 1);
    if (n <= 0 || fstat(change->handle, &info) < 0 || info.st_nlink == 0)
        return false;
    path[n] = '\0';
    return true;
}

/* A file called `name` in the folder of path, in place. */
static void beside(char path[PATH_MAX], const char *name)
{
    char *slash = strrchr(path, '/');

    snprintf(slash + 1, (size_t)(path + PATH_MAX - slash - 1), "%s", name);
}

static void drop_kept(struct np_sim_change *change)
{
    char path[PATH_MAX];

    if (change->kept && path_now(change, path)) {
        beside(path, change->kept);
        unlink(path);
    }
    free(change->kept);
    change->kept = NULL;
}

static void free_change(struct np_sim_change *change)
{
    drop_kept(change);
    free(change->from);
    free(change->from_path);
    close(change->handle);
}

/* Forgets the changes that the disk has. */
static void prune(struct np_sim_disk *disk)
{
    int n = 0;

    for (int i = 0; i < disk->nr_changes; i++) {
        struct np_sim_change *change = &disk->changes[i];

        if (change->name_kept && change->fd < 0 && change->synced == change->written)
            free_change(change);
        else
            disk->changes[n++] = *change;
    }
    disk->nr_changes = n;
}

static struct np_sim_change *find_open(struct np_sim_disk *disk, int fd)
{
    for (int i = disk->nr_changes - 1; i >= 0; i--)
        if (disk->changes[i].fd == fd)
            return &disk->changes[i];
    return NULL;
}

/* --- the cut ------------------------------------------------------------------------------ */

/* Sectors of 512 or 4096 bytes that were written in any order: those that were not read as zeros. */
static void lose_sectors(struct np_sim_disk *disk, const struct np_sim_change *change)
{
    static const char zeros[4096];
    const uint64_t size = np_draw_below(&disk->draws, 2) ? 512 : sizeof(zeros);

    for (uint64_t at = change->synced; at < change->written; at = (at / size + 1) * size) {
        const uint64_t end = (at / size + 1) * size;
        const uint64_t bytes = (end < change->written ? end : change->written) - at;

        if (np_draw_below(&disk->draws, 2) &&
            pwrite(change->handle, zeros, bytes, (off_t)at) != (ssize_t)bytes)
            abort();
    }
}

/* Of the bytes behind the last sync all, some or none are there; where the size is, what is
 * missing reads as zeros. */
static void lose_content(struct np_sim_disk *disk, const struct np_sim_change *change)
{
    uint64_t kept = change->synced, lost = change->written - change->synced;
    uint32_t draw = np_draw_below(&disk->draws, 5);

    if (lost == 0)
        return;
    if (draw == 4) {
        lose_sectors(disk, change);
        return;
    }
    if (draw > 0)
        kept += (uint64_t)(np_draw_uniform(&disk->draws) * (double)(lost + 1));
    if (ftruncate(change->handle, (off_t)kept) < 0)
        abort();
    if (draw == 2 && ftruncate(change->handle, (off_t)change->written) < 0)
        abort();
}

static void lose_name(struct np_sim_change *change)
{
    char now[PATH_MAX], old[PATH_MAX];

    if (!path_now(change, now))
        return;
    if (!change->is_rename) {
        unlink(now);
        return;
    }
    snprintf(old, sizeof(old), "%s", now);
    if (change->from)
        beside(old, change->from);
    if (rename(now, change->from ? old : change->from_path) < 0)
        abort();
    if (change->kept) {
        snprintf(old, sizeof(old), "%s", now);
        beside(old, change->kept);
        if (rename(old, now) < 0)
            abort();
        free(change->kept);
        change->kept = NULL;
    }
}

void np_sim_disk_cut(struct np_sim_disk *disk)
{
    int nr_names = 0, nr_lost;

    if (disk->off)
        return;
    disk->off = true;
    for (int i = 0; i < disk->nr_changes; i++) {
        if (!disk->changes[i].is_rename)
            lose_content(disk, &disk->changes[i]);
        nr_names += !disk->changes[i].name_kept;
    }
    nr_lost = np_draw_below(&disk->draws, 2)
                  ? nr_names
                  : (int)np_draw_below(&disk->draws, (uint32_t)nr_names + 1);
    for (int i = disk->nr_changes - 1; i >= 0 && nr_lost > 0; i--)
        if (!disk->changes[i].name_kept) {
            lose_name(&disk->changes[i]);
            nr_lost--;
        }
    np_sim_disk_fini(disk);
}

void np_sim_disk_fini(struct np_sim_disk *disk)
{
    for (int i = 0; i < disk->nr_changes; i++)
        free_change(&disk->changes[i]);
    free(disk->changes);
    disk->changes = NULL;
    disk->nr_changes = disk->room = 0;
}

/* --- the write table ----------------------------------------------------------------------- */

/* Counts a sync; true if this one is to be left out. */
static bool skips(struct np_sim_disk *disk)
{
    return ++disk->nr_syncs == disk->options.skip_sync;
}

/* Counts a call. 0: proceed; -EIO: it fails, or there is no power (any more). */
static int begin(struct np_sim_disk *disk)
{
    disk->nr_calls++;
    if (disk->nr_calls == disk->options.cut)
        np_sim_disk_cut(disk);
    return disk->off || disk->nr_calls == disk->options.fail_write ? -EIO : 0;
}

static int create(struct np_io *io, const char *path)
{
    struct np_sim_disk *disk = np_sim_disk(io);
    bool is_new = access(path, F_OK) != 0;
    int fd = begin(disk), handle;
    char link[40];
    struct np_sim_change *change;

    if (fd == 0)
        fd = np_io_posix_write.create(io, path);
    if (fd < 0)
        return fd;
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    handle = open(link, O_RDWR | O_CLOEXEC); /* not dup(): that would share the lock */
    if (handle < 0) {
        close(fd);
        return -errno;
    }
    change = add_change(disk, handle);
    change->fd = fd;
    change->name_kept = !is_new;
    return fd;
}

static int append(struct np_io *io, int fd, const void *data, uint64_t bytes)
{
    struct np_sim_disk *disk = np_sim_disk(io);
    struct np_sim_change *change = find_open(disk, fd);
    uint64_t fits = bytes;
    int status;

    if (disk->nr_calls + 1 == disk->options.cut && change) { /* the cut tears it */
        if (np_io_posix_write.append(io, fd, data, bytes / 2) == 0)
            change->written += bytes / 2;
    }
    status = begin(disk);
    if (status)
        return status;
    if (disk->options.space >= 0 && disk->nr_bytes + (int64_t)bytes > disk->options.space)
        fits = (uint64_t)(disk->options.space - disk->nr_bytes);
    status = np_io_posix_write.append(io, fd, data, fits);
    if (status)
        return status;
    disk->nr_bytes += (int64_t)fits;
    if (change)
        change->written += fits;
    return fits < bytes ? -ENOSPC : 0;
}

static int sync_file(struct np_io *io, int fd)
{
    struct np_sim_disk *disk = np_sim_disk(io);
    struct np_sim_change *change;
    int status = begin(disk);

    if (status == 0 && skips(disk))
        return 0;
    if (status == 0)
        status = np_io_posix_write.sync(io, fd);
    change = find_open(disk, fd);
    if (status == 0 && change)
        change->synced = change->written;
    return status;
}

/* Closes in any case: without power as well. */
static int close_file(struct np_io *io, int fd)
{
    struct np_sim_disk *disk = np_sim_disk(io);
    int status = begin(disk), closed;
    struct np_sim_change *change = find_open(disk, fd);

    if (change)
        change->fd = -1;
    closed = np_io_posix_write.close(io, fd);
    prune(disk);
    return status ? status : closed;
}

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

static void folder_of(const char *path, char folder[PATH_MAX])
{
    int length = (int)(last_part(path) - path);

    snprintf(folder, PATH_MAX, "%.*s", length ? length : 1, length ? path : ".");
}

static bool same_folder(const char *a, const char *b)
{
    struct stat one, two;

    return stat(a, &one) == 0 && stat(b, &two) == 0 && one.st_ino == two.st_ino &&
           one.st_dev == two.st_dev;
}

static int rename_file(struct np_io *io, const char *from, const char *to)
{
    struct np_sim_disk *disk = np_sim_disk(io);
    char one[PATH_MAX], two[PATH_MAX], kept[PATH_MAX + 32], *absolute = realpath(from, NULL);
    int status = begin(disk), handle = open(from, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    struct np_sim_change *change;

    snprintf(kept, sizeof(kept), "%s.kept-%lld", to, (long long)disk->nr_calls);
    if (status != 0 || link(to, kept) < 0) /* nothing to replace, or a folder */
        kept[0] = '\0';
    if (status == 0)
        status = np_io_posix_write.rename(io, from, to);
    if (status) {
        if (kept[0])
            unlink(kept);
        if (handle >= 0)
            close(handle);
        free(absolute);
        return status;
    }
    change = add_change(disk, handle);
    change->is_rename = true;
    change->kept = kept[0] ? strdup(last_part(kept)) : NULL;
    folder_of(from, one);
    folder_of(to, two);
    if (same_folder(one, two))
        change->from = strdup(last_part(from));
    change->from_path = absolute;
    return 0;
}

static int sync_dir(struct np_io *io, const char *path)
{
    struct np_sim_disk *disk = np_sim_disk(io);
    int status = begin(disk);
    char now[PATH_MAX], folder[PATH_MAX];

    if (status == 0 && skips(disk))
        return 0;
    if (status == 0)
        status = np_io_posix_write.sync_dir(io, path);
    for (int i = 0; status == 0 && i < disk->nr_changes; i++) {
        struct np_sim_change *change = &disk->changes[i];

        if (!path_now(change, now))
            continue;
        folder_of(now, folder);
        if (same_folder(folder, path)) {
            change->name_kept = true;
            drop_kept(change);
        }
    }
    prune(disk);
    return status;
}

const struct np_io_write_ops np_io_sim_write = {
    create, append, sync_file, close_file, rename_file, sync_dir};
