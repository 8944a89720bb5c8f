/* See range_cache.h; the objects, and finding in them. Any thread. */
#include "loader/base/range_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "loader/base/clock.h"
#include "loader/base/io.h"
#include "loader/base/mem.h"
#include "loader/base/range_parts.h"

/* --- open and close ------------------------------------------------------------------------ */

int np_range_cache_open(
    const struct np_range_options *options, struct np_range_cache **ret_cache, struct np_err *err)
{
    struct np_range_cache *cache = np_try_alloc(sizeof(*cache), err);
    int code = cache ? np_range_folder_open(
                           &cache->folder, options->folder, options->set, options->max_bytes, err)
                     : -ENOMEM;

    if (code) {
        np_free(cache);
        return code;
    }
    cache->disk = options->disk ? options->disk : &np_range_posix_disk;
    cache->direct = options->direct;
    cache->used_bytes = cache->folder.used_bytes;
    code = np_range_writer_start(cache, err);
    if (code)
        np_range_cache_close(cache);
    else
        *ret_cache = cache;
    return code;
}

void np_range_cache_close(struct np_range_cache *cache)
{
    if (!cache || !np_range_writer_stop(cache))
        return;
    np_range_folder_close(&cache->folder);
    np_free(cache);
}

void np_range_turn_off(struct np_range_cache *cache, int code)
{
    if (atomic_exchange(&cache->has_note, true))
        return;
    snprintf(cache->note, sizeof(cache->note),
        "%s: the cache stores no more, and the run goes on without: %s", cache->folder.path,
        code == -ESTALE ? "the folder was removed" : strerror(-code));
    atomic_store(&cache->is_off, true);
}

const char *np_range_note(const struct np_range_cache *cache)
{
    return cache && atomic_load(&cache->is_off) ? cache->note : "";
}

/* --- objects ------------------------------------------------------------------------------- */

void np_range_object_free(struct np_range_object *object)
{
    if (!object)
        return;
    if (object->fd >= 0)
        close(object->fd);
    if (object->direct_fd >= 0)
        close(object->direct_fd);
    np_free(object->url);
    np_free(object->sums);
    np_free(object->checked);
    np_free(object);
}

static int new_object(struct np_range_cache *cache, const struct np_range_name *name,
    struct np_range_object **ret_object, struct np_err *err)
{
    struct np_range_object *object = np_try_alloc(sizeof(*object), err);
    uint64_t nr, words;
    int code;

    if (!object)
        return -ENOMEM;
    *object = (struct np_range_object){
        .cache = cache, .bytes = name->bytes, .fd = -1, .direct_fd = -1, .nr_users = 1};
    code = np_range_layout(name, &object->layout, err);
    if (!code) {
        nr = object->layout.nr_blocks;
        words = (nr + 63) / 64;
        object->url = np_try_strdup(name->url, err);
        object->sums = np_try_array(nr + 1, sizeof(*object->sums), err);
        object->checked = np_try_array(words + 1, 3 * sizeof(*object->checked), err);
        if (!object->url || !object->sums || !object->checked)
            code = -ENOMEM;
    }
    if (code) {
        np_range_object_free(object);
        return code;
    }
    object->queued = object->checked + words;
    object->dropped = object->queued + words;
    *ret_object = object;
    return 0;
}

/* Between take and release, so that no other process creates it. Complete when it has its name.
 * Nothing is synced: after a power cut it is complete, damaged or missing. -ENOSPC: the cache is
 * full, or cannot be written any more. */
static int create_file(struct np_range_cache *cache, const struct np_range_name *name,
    const struct np_range_layout *layout, const char *file, struct np_err *err)
{
    struct np_range_folder *folder = &cache->folder;
    char fresh[NP_RANGE_FILE_NAME + 8];
    struct np_err why = {0};
    void *head = NULL;
    int fd = -1, code = np_range_head_new(name, &head, err);

    snprintf(fresh, sizeof(fresh), "%s.new", file);
    if (!code && !np_range_folder_reserve(folder, layout->data_offset))
        code = -ENOSPC;
    if (code)
        goto out;
    np_range_folder_unlink(folder, fresh); /* of a killed process */
    np_range_folder_save(folder);
    code =
        np_range_folder_file(folder, folder->set_fd, fresh, O_RDWR | O_CREAT | O_EXCL, &fd, &why);
    if (!code && ftruncate(fd, (off_t)layout->file_bytes) < 0)
        code = -errno;
    if (!code)
        code = cache->disk->write(fd, head, layout->map_offset, 0);
    if (!code && renameat(folder->set_fd, fresh, folder->set_fd, file) < 0)
        code = -errno;
    if (!code)
        goto out;
    np_range_folder_return(folder, layout->data_offset);
    unlinkat(folder->set_fd, fresh, 0);
    if (code == -ENOSPC || code == -EDQUOT || code == -EIO || code == -EROFS) {
        np_range_turn_off(cache, code);
        code = -ENOSPC;
    } else
        np_err_set(err, code, "%s: cannot make a file: %s", folder->path,
            *why.text ? why.text : strerror(-code));
out:
    if (fd >= 0)
        close(fd);
    np_free(head);
    return code;
}

/* -EBADMSG: it is damaged. */
static int check_file(
    struct np_range_object *object, const struct np_range_name *name, int fd, struct np_err *err)
{
    const size_t bytes = object->layout.map_offset;
    char *head = np_try_alloc(bytes, err);
    struct stat st;
    int64_t got;
    int code = -ENOMEM;

    if (!head)
        return code;
    got = np_read_at(fd, 0, head, bytes);
    if (got < 0 || fstat(fd, &st) < 0)
        code = np_err_set(err, got < 0 ? (int)got : -errno, "%s: cannot read a file: %s",
            object->cache->folder.path, strerror(got < 0 ? (int)-got : errno));
    else
        code = np_range_head_check(
            name, &object->layout, head, (size_t)got, (uint64_t)st.st_size, err);
    np_free(head);
    return code;
}

/* Opens the file, or makes it. -ENOENT: there is none, and this user cannot make it. Between take
 * and release. */
static int open_file(
    struct np_range_object *object, const struct np_range_name *name, struct np_err *err)
{
    struct np_range_cache *cache = object->cache;
    struct np_range_folder *folder = &cache->folder;
    const int flags = folder->can_write ? O_RDWR : O_RDONLY;
    char file[NP_RANGE_FILE_NAME];
    struct np_err damage = {0};
    int code, fd;

    np_range_file_name(name, file);
    for (int attempt = 0;; attempt++) {
        code = np_range_folder_file(folder, folder->set_fd, file, flags, &fd, err);
        if (!code) {
            code = check_file(object, name, fd, &damage);
            if (!code)
                break;
            close(fd);
            if (code != -EBADMSG || !folder->can_write || attempt > 1)
                return np_err_set(err, code, "%s/%s: %s", folder->path, file, damage.text);
            np_range_folder_unlink(folder, file); /* who has it open keeps it */
            atomic_fetch_add(&cache->nr_damaged, 1);
            code = -ENOENT;
        }
        if (code != -ENOENT || !folder->can_write || attempt > 1)
            return code;
        np_range_folder_drop_versions(folder, file);
        code = create_file(cache, name, &object->layout, file, err);
        if (code)
            return code;
    }
    flock(fd, LOCK_SH | LOCK_NB); /* for np_range_folder_drop_versions() of others */
    object->fd = fd;
    return 0;
}

static void open_direct(struct np_range_object *object)
{
    char link[40];

    snprintf(link, sizeof(link), "/proc/self/fd/%d", object->fd);
    object->direct_fd = open(link, O_RDONLY | O_DIRECT | O_CLOEXEC);
}

int np_range_object_open(struct np_range_cache *cache, const struct np_range_name *name,
    struct np_range_object **ret_object, struct np_err *err)
{
    struct np_range_object *object;
    struct np_err why = {0};
    int code = new_object(cache, name, &object, err);

    if (code)
        return code;
    if (cache->folder.set_fd >= 0) {
        code = np_range_folder_take(&cache->folder, err);
        if (!code) {
            code = open_file(object, name, &why);
            atomic_store(&cache->used_bytes, cache->folder.used_bytes);
            np_range_folder_release(&cache->folder);
        }
    }
    if (code == -ENOSPC || code == -EDQUOT || code == -ENOENT)
        code = 0; /* without a file */
    if (object->fd >= 0 && np_read_at(object->fd, object->layout.map_offset, (void *)object->sums,
                               8 * object->layout.nr_blocks) < 0)
        memset((void *)object->sums, 0, 8 * object->layout.nr_blocks);
    if (object->fd >= 0 && cache->direct)
        open_direct(object);
    if (code)
        np_range_object_free(object);
    else
        *ret_object = object;
    return code ? np_err_set(err, code, "%s", why.text) : 0;
}

void np_range_object_close(struct np_range_object *object)
{
    if (object)
        np_range_object_leave(object);
}

/* --- finding ------------------------------------------------------------------------------- */

struct blocks {
    uint64_t first, end;
};

/* The blocks of a range, at least one; false: it is empty or not of the object. */
static bool blocks_of(
    const struct np_range_object *object, uint64_t offset, uint64_t bytes, struct blocks *blocks)
{
    if (bytes == 0 || offset > object->bytes || bytes > object->bytes - offset)
        return false;
    blocks->first = offset / NP_RANGE_BLOCK;
    blocks->end = (offset + bytes - 1) / NP_RANGE_BLOCK + 1;
    return true;
}

static void range_of(const struct np_range_object *object, const struct blocks *blocks,
    uint64_t *ret_offset, uint64_t *ret_bytes)
{
    const uint64_t end = blocks->end * NP_RANGE_BLOCK;

    *ret_offset = blocks->first * NP_RANGE_BLOCK;
    *ret_bytes = (end < object->bytes ? end : object->bytes) - *ret_offset;
}

/* Reads the block's sum from the file, where another process may have put it since. */
static uint64_t read_sum(struct np_range_object *object, uint64_t block)
{
    uint64_t sum = 0;
    const struct iovec part = {&sum, sizeof(sum)};
    const off_t at = (off_t)(object->layout.map_offset + 8 * block);
    ssize_t got;

    if (object->fd < 0 || np_bit(object->dropped, block))
        return 0;
    got = preadv2(object->fd, &part, 1, at, RWF_NOWAIT);
    if (got < 0 && errno == EOPNOTSUPP)
        got = pread(object->fd, &sum, sizeof(sum), at);
    if (got != sizeof(sum) || !sum)
        return 0;
    atomic_store_explicit(&object->sums[block], sum, memory_order_relaxed);
    return sum;
}

static enum np_range_state state_of(struct np_range_object *object, const struct blocks *blocks)
{
    enum np_range_state state = NP_RANGE_HIT;

    for (uint64_t i = blocks->first; i < blocks->end; i++) {
        if (!atomic_load_explicit(&object->sums[i], memory_order_acquire) && !read_sum(object, i))
            return NP_RANGE_MISS;
        if (!np_bit(object->checked, i))
            state = NP_RANGE_BLOCKS;
    }
    return state;
}

enum np_range_state np_range_find(struct np_range_object *object, uint64_t offset, uint64_t bytes,
    struct np_range_place *ret_place)
{
    struct np_range_cache *cache = object->cache;
    struct blocks blocks;
    enum np_range_state state = NP_RANGE_MISS;

    if (blocks_of(object, offset, bytes, &blocks))
        state = state_of(object, &blocks);
    if (state == NP_RANGE_MISS) {
        atomic_fetch_add_explicit(&cache->nr_misses, 1, memory_order_relaxed);
        return state;
    }
    atomic_fetch_add_explicit(&cache->nr_hits, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&cache->hit_bytes, bytes, memory_order_relaxed);
    if (state == NP_RANGE_BLOCKS)
        range_of(object, &blocks, &offset, &bytes);
    *ret_place = (struct np_range_place){
        object->fd, object->direct_fd, object->layout.data_offset + offset, offset, bytes};
    return state;
}

static void drop_block(struct np_range_object *object, uint64_t block)
{
    np_bit_set(object->dropped, block);
    np_bit_clear(object->checked, block);
    atomic_store_explicit(&object->sums[block], 0, memory_order_relaxed);
    atomic_fetch_add_explicit(&object->cache->nr_wrong, 1, memory_order_relaxed);
}

bool np_range_check(
    struct np_range_object *object, uint64_t offset, const void *data, uint64_t bytes)
{
    struct blocks blocks;
    bool is_right = true;

    if (!blocks_of(object, offset, bytes, &blocks))
        return false;
    for (uint64_t i = blocks.first; i < blocks.end; i++) {
        const char *at = (const char *)data + (i * NP_RANGE_BLOCK - offset);
        const uint64_t sum = atomic_load_explicit(&object->sums[i], memory_order_acquire);

        if (sum &&
            sum == np_range_sum(object->layout.seed, i, at, np_range_block_bytes(object, i))) {
            np_bit_set(object->checked, i);
            continue;
        }
        is_right = false;
        if (sum)
            drop_block(object, i);
    }
    return is_right;
}

void np_range_drop(struct np_range_object *object, uint64_t offset, uint64_t bytes)
{
    struct blocks blocks;

    if (!blocks_of(object, offset, bytes, &blocks))
        return;
    for (uint64_t i = blocks.first; i < blocks.end; i++)
        if (atomic_load_explicit(&object->sums[i], memory_order_relaxed))
            drop_block(object, i);
}

bool np_range_stores(const struct np_range_object *object)
{
    struct np_range_cache *cache = object->cache;
    uint64_t until_ns;

    if (object->fd < 0 || !cache->folder.can_write || atomic_load(&cache->is_off))
        return false;
    until_ns = atomic_load_explicit(&cache->full_until_ns, memory_order_relaxed);
    return until_ns == 0 || np_now_ns() >= until_ns;
}

bool np_range_wants(struct np_range_object *object, uint64_t *offset, uint64_t *bytes)
{
    struct blocks blocks;

    if (!np_range_stores(object) || !blocks_of(object, *offset, *bytes, &blocks))
        return false;
    range_of(object, &blocks, offset, bytes);
    return true;
}

void np_range_numbers(const struct np_range_cache *cache, struct np_range_numbers *ret_numbers)
{
    *ret_numbers = (struct np_range_numbers){.nr_hits = cache->nr_hits,
        .hit_bytes = cache->hit_bytes,
        .nr_misses = cache->nr_misses,
        .nr_stored = cache->nr_stored,
        .nr_slow = cache->nr_slow,
        .nr_full = cache->nr_full,
        .nr_wrong = cache->nr_wrong,
        .nr_damaged = cache->nr_damaged,
        .nr_evicted = cache->nr_evicted,
        .used_bytes = cache->used_bytes,
        .max_bytes = cache->folder.max_bytes,
        .is_off = cache->is_off};
}
