/* See made_disk.h. A file is known by its name, because SQLite renames none. A new file is durable
 * once it was synced, as in SQLite's own VFS (which syncs the folder at the first sync of a new
 * file); a deletion once the folder was synced, or earlier if the disk decides so. */
#include "tests/unit/made_disk.h"

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_FILES = 8, MAX_NAME = 200 };
enum kind { WRITE, TRUNCATE, DELETE, SYNC };

struct call {
    enum kind kind;
    int file;
    int64_t offset; /* of a write; a truncation's size */
    int nr;
    unsigned char *bytes;
    bool durable; /* of a deletion: the folder was synced */
};
struct content {
    unsigned char *bytes;
    int64_t nr, room;
    bool there;
};
struct disk {
    char names[MAX_FILES][MAX_NAME];
    int nr_files;
    struct content now[MAX_FILES];
    struct call *calls;
    int nr_calls, room, nr_syncs, skip_sync, skipped_at;
    bool keeps; /* calls */
};
static struct disk disk;

struct file { /* SQLite allocates it */
    sqlite3_file base;
    int index;
};

/* --- contents --------------------------------------------------------------------------------- */

static void resize(struct content *content, int64_t nr)
{
    if (nr > content->room) {
        content->room = 2 * nr + 4096;
        content->bytes = realloc(content->bytes, (size_t)content->room);
        if (!content->bytes)
            abort();
    }
    if (nr > content->nr)
        memset(content->bytes + content->nr, 0, (size_t)(nr - content->nr));
    content->nr = nr;
}

static void apply(struct content *content, const struct call *call, int64_t from, int64_t to)
{
    switch (call->kind) {
    case WRITE:
        content->there = true;
        if (call->offset + to > content->nr)
            resize(content, call->offset + to);
        memcpy(content->bytes + call->offset + from, call->bytes + from, (size_t)(to - from));
        break;
    case TRUNCATE: resize(content, call->offset); break;
    case DELETE:
        content->nr = 0;
        content->there = false;
        break;
    case SYNC: break;
    }
}

static void keep(struct call call, const void *bytes)
{
    if (!disk.keeps)
        return;
    if (disk.nr_calls == disk.room) {
        disk.room = 2 * disk.room + 64;
        disk.calls = realloc(disk.calls, (size_t)disk.room * sizeof(*disk.calls));
        if (!disk.calls)
            abort();
    }
    if (bytes) {
        call.bytes = malloc((size_t)call.nr);
        if (!call.bytes)
            abort();
        memcpy(call.bytes, bytes, (size_t)call.nr);
    }
    disk.calls[disk.nr_calls++] = call;
}

static int find(const char *name, bool make)
{
    for (int i = 0; i < disk.nr_files; i++)
        if (strcmp(disk.names[i], name) == 0)
            return i;
    if (!make || disk.nr_files == MAX_FILES || strlen(name) >= MAX_NAME)
        return -1;
    strcpy(disk.names[disk.nr_files], name);
    return disk.nr_files++;
}

/* --- what a cut leaves ------------------------------------------------------------------------ */

static uint64_t draw(uint64_t *rng, uint64_t below)
{
    *rng = *rng * 6364136223846793005u + 1442695040888963407u;
    return (*rng >> 33) % below;
}

/* A partial write: its sectors before one, or after one, or all except some in the middle. */
static void apply_torn(
    struct content *content, const struct call *call, int64_t sector, uint64_t *rng)
{
    const int64_t first = call->offset / sector, last = (call->offset + call->nr - 1) / sector;

    for (int64_t s = first; s <= last; s++) {
        int64_t from = s * sector - call->offset, to = from + sector;

        from = from < 0 ? 0 : from;
        to = to > call->nr ? call->nr : to;
        if (draw(rng, 2))
            apply(content, call, from, to);
    }
}

static void apply_some(
    struct content *content, const struct call *call, enum made_cut cut, uint64_t *rng)
{
    if (cut == MADE_CUT_CLEAN)
        apply(content, call, 0, call->nr);
    else if (cut == MADE_CUT_DROPPED || (cut < MADE_CUT_TORN_512 && draw(rng, 2)))
        return;
    else if (cut >= MADE_CUT_TORN_512 && call->kind == WRITE)
        apply_torn(content, call, cut == MADE_CUT_TORN_512 ? 512 : 4096, rng);
    else if (cut < MADE_CUT_TORN_512 || draw(rng, 2))
        apply(content, call, 0, call->nr);
}

/* The calls of one file since its last sync, by number; their count. */
static int pending_of(int file, int nr_calls, int *ret_first_pending, int *pending)
{
    int last_sync = -1, n = 0;

    for (int i = 0; i < nr_calls; i++)
        if (disk.calls[i].file == file &&
            (disk.calls[i].kind == SYNC || (disk.calls[i].kind == DELETE && disk.calls[i].durable)))
            last_sync = i;
    for (int i = last_sync + 1; i < nr_calls; i++)
        if (disk.calls[i].file == file)
            pending[n++] = i;
    *ret_first_pending = last_sync + 1;
    return n;
}

static void cut_file(int file, int nr_calls, enum made_cut cut, uint64_t *rng, int *pending)
{
    struct content *content = &disk.now[file];
    int first;
    const int n = pending_of(file, nr_calls, &first, pending);

    content->nr = 0;
    content->there = false;
    for (int i = 0; i < first; i++)
        if (disk.calls[i].file == file)
            apply(content, &disk.calls[i], 0, disk.calls[i].nr);
    for (int i = n - 1; cut == MADE_CUT_REORDERED && i > 0; i--) {
        const int j = (int)draw(rng, (uint64_t)i + 1), swapped = pending[i];

        pending[i] = pending[j];
        pending[j] = swapped;
    }
    for (int i = 0; i < n; i++)
        apply_some(content, &disk.calls[pending[i]], cut, rng);
}

void made_disk_cut(int nr_calls, enum made_cut cut, uint64_t seed)
{
    uint64_t rng = seed * 2 + 1;
    int *pending = malloc((size_t)(nr_calls + 1) * sizeof(*pending));

    if (!pending)
        abort();
    for (int f = 0; f < disk.nr_files; f++)
        cut_file(f, nr_calls, cut, &rng, pending);
    free(pending);
    disk.keeps = false;
}

/* --- files, as SQLite wants them -------------------------------------------------------------- */

static int f_close(sqlite3_file *file)
{
    (void)file;
    return SQLITE_OK;
}

static int f_read(sqlite3_file *file, void *to, int nr, sqlite3_int64 offset)
{
    const struct content *content = &disk.now[((struct file *)file)->index];
    const int64_t left = content->nr - offset, got = left < 0 ? 0 : left < nr ? left : nr;

    if (got > 0)
        memcpy(to, content->bytes + offset, (size_t)got);
    if (got == nr)
        return SQLITE_OK;
    memset((char *)to + got, 0, (size_t)(nr - got));
    return SQLITE_IOERR_SHORT_READ;
}

static int f_write(sqlite3_file *file, const void *from, int nr, sqlite3_int64 offset)
{
    const int index = ((struct file *)file)->index;
    const struct call call = {
        .kind = WRITE, .file = index, .offset = offset, .nr = nr, .bytes = (void *)from};

    apply(&disk.now[index], &call, 0, nr);
    keep(call, from);
    return SQLITE_OK;
}

static int f_truncate(sqlite3_file *file, sqlite3_int64 nr)
{
    const int index = ((struct file *)file)->index;
    const struct call call = {.kind = TRUNCATE, .file = index, .offset = nr};

    apply(&disk.now[index], &call, 0, 0);
    keep(call, NULL);
    return SQLITE_OK;
}

static int f_sync(sqlite3_file *file, int flags)
{
    (void)flags;
    if (disk.keeps && ++disk.nr_syncs != disk.skip_sync)
        keep((struct call){.kind = SYNC, .file = ((struct file *)file)->index}, NULL);
    else if (disk.keeps)
        disk.skipped_at = disk.nr_calls;
    return SQLITE_OK;
}

static int f_size(sqlite3_file *file, sqlite3_int64 *ret_nr)
{
    *ret_nr = disk.now[((struct file *)file)->index].nr;
    return SQLITE_OK;
}

static int f_lock(sqlite3_file *file, int level)
{
    (void)file;
    (void)level;
    return SQLITE_OK;
}

static int f_reserved(sqlite3_file *file, int *ret_taken)
{
    (void)file;
    *ret_taken = 0;
    return SQLITE_OK;
}

static int f_control(sqlite3_file *file, int what, void *argument)
{
    (void)file;
    (void)what;
    (void)argument;
    return SQLITE_NOTFOUND;
}

static int f_sector(sqlite3_file *file)
{
    (void)file;
    return 512;
}

static int f_traits(sqlite3_file *file)
{
    (void)file;
    return 0; /* neither atomic, nor in order, nor safe after the end of a write */
}

static const sqlite3_io_methods methods = {.iVersion = 1,
    .xClose = f_close,
    .xRead = f_read,
    .xWrite = f_write,
    .xTruncate = f_truncate,
    .xSync = f_sync,
    .xFileSize = f_size,
    .xLock = f_lock,
    .xUnlock = f_lock,
    .xCheckReservedLock = f_reserved,
    .xFileControl = f_control,
    .xSectorSize = f_sector,
    .xDeviceCharacteristics = f_traits};

/* --- the VFS ---------------------------------------------------------------------------------- */

static int v_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *base, int flags, int *ret_flags)
{
    static int nr_nameless;
    struct file *file = (struct file *)base;
    char own[32];

    (void)vfs;
    if (!name) {
        snprintf(own, sizeof(own), "temporary %d", nr_nameless++ % 2);
        name = own;
    }
    file->base.pMethods = NULL;
    file->index = find(name, flags & SQLITE_OPEN_CREATE);
    if (file->index < 0 || (!disk.now[file->index].there && !(flags & SQLITE_OPEN_CREATE)))
        return SQLITE_CANTOPEN;
    disk.now[file->index].there = true;
    file->base.pMethods = &methods;
    if (ret_flags)
        *ret_flags = flags;
    return SQLITE_OK;
}

static int v_delete(sqlite3_vfs *vfs, const char *name, int sync_dir)
{
    const int index = find(name, false);

    (void)vfs;
    if (index < 0 || !disk.now[index].there)
        return SQLITE_IOERR_DELETE_NOENT;
    const struct call call = {.kind = DELETE, .file = index, .durable = sync_dir};
    apply(&disk.now[index], &call, 0, 0);
    keep(call, NULL);
    return SQLITE_OK;
}

static int v_access(sqlite3_vfs *vfs, const char *name, int flags, int *ret_there)
{
    const int index = find(name, false);

    (void)vfs;
    (void)flags;
    *ret_there = index >= 0 && disk.now[index].there;
    return SQLITE_OK;
}

static int v_path(sqlite3_vfs *vfs, const char *name, int nr, char *ret_path)
{
    (void)vfs;
    snprintf(ret_path, (size_t)nr, "%s", name);
    return SQLITE_OK;
}

static int v_random(sqlite3_vfs *vfs, int nr, char *ret_bytes)
{
    (void)vfs;
    memset(ret_bytes, 7, (size_t)nr);
    return nr;
}

static int v_sleep(sqlite3_vfs *vfs, int us)
{
    (void)vfs;
    return us;
}

static int v_time(sqlite3_vfs *vfs, double *ret_days)
{
    (void)vfs;
    *ret_days = 2460000.5;
    return SQLITE_OK;
}

static sqlite3_vfs made_vfs = {.iVersion = 1,
    .szOsFile = sizeof(struct file),
    .mxPathname = MAX_NAME,
    .zName = "made-disk",
    .xOpen = v_open,
    .xDelete = v_delete,
    .xAccess = v_access,
    .xFullPathname = v_path,
    .xRandomness = v_random,
    .xSleep = v_sleep,
    .xCurrentTime = v_time};

void made_disk_free(void)
{
    sqlite3_vfs_unregister(&made_vfs);
    for (int i = 0; i < disk.nr_calls; i++)
        free(disk.calls[i].bytes);
    for (int i = 0; i < MAX_FILES; i++)
        free(disk.now[i].bytes);
    free(disk.calls);
    disk = (struct disk){.nr_files = 0};
}

void made_disk_new(int skip_sync)
{
    disk = (struct disk){.skip_sync = skip_sync, .keeps = true};
    sqlite3_vfs_register(&made_vfs, 0);
}

int made_disk_calls(void)
{
    return disk.nr_calls;
}

int made_disk_syncs(void)
{
    return disk.nr_syncs;
}

int made_disk_skipped_at(void)
{
    return disk.skipped_at;
}
