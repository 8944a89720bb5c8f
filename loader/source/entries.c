/* See entries.h. No thread reads or writes a file while it holds `lock`. In the writing process one
 * thread writes and removes all segments: puts fill one batch while it writes the other. */
#include "loader/source/entries.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "loader/base/io.h"
#include "loader/base/mem.h"
#include "loader/source/entries_writer.h"

#define BATCH_BYTES  (16u << 20) /* of a batch */
#define MIN_AUTO     (64ull << 20)
#define MAX_LISTED   (NP_MAX_SEGMENTS - 4) /* the newest ones, loaded when opened */
#define LIST_RETRIES 5

const char *np_entries_note(struct np_entries *entries)
{
    bool is_noted;

    if (!entries)
        return "";
    pthread_mutex_lock(&entries->lock);
    is_noted = *entries->note; /* set once, never changed */
    pthread_mutex_unlock(&entries->lock);
    return is_noted ? entries->note : "";
}

/* --- the folder: open, flush ------------------------------------------------------------------ */

static void try_to_write(struct np_entries *entries)
{
    struct np_err err = {0};
    char *path = np_try_format(&err, "%s/lock", entries->folder);
    int fd = -1;

    if (path && np_make_dirs(entries->folder, &err) == 0) {
        fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
        if (fd < 0)
            np_err_set(&err, -errno, "%s: %s", path, strerror(errno));
    }
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) < 0) {
        if (errno != EWOULDBLOCK)
            np_err_set(&err, -errno, "%s: cannot be locked: %s", path, strerror(errno));
        close(fd);
        fd = -1;
    }
    if (err.code)
        np_entries_add_note(entries, &err);
    np_free(path);
    entries->lock_fd = fd;
}

static int by_number(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return (x > y) - (x < y);
}

/* Segment numbers, ascending; np_free. */
static int list(
    const struct np_entries *entries, uint32_t **ret_numbers, size_t *ret_nr, struct np_err *err)
{
    DIR *dir = opendir(entries->folder);
    size_t nr = 0, room = 0;
    uint32_t *numbers = NULL, number;
    int code = 0;

    for (struct dirent *entry = dir ? readdir(dir) : NULL; entry && !code; entry = readdir(dir)) {
        number = np_segment_number(entry->d_name);
        if (number)
            code = np_try_grow(&numbers, &room, nr + 1, sizeof(*numbers), err);
        if (number && !code)
            numbers[nr++] = number;
    }
    if (dir)
        closedir(dir);
    if (code) {
        np_free(numbers);
        return code;
    }
    if (nr)
        qsort(numbers, nr, sizeof(*numbers), by_number);
    *ret_numbers = numbers;
    *ret_nr = nr;
    return 0;
}

static struct np_segment *find(const struct np_entries *entries, uint32_t number)
{
    for (int s = 0; s < NP_MAX_SEGMENTS; s++)
        if (entries->segments[s] && entries->segments[s]->number == number)
            return entries->segments[s];
    return NULL;
}

/* -ENOENT: the writer has merged it into another; -ENOMEM. */
static int load(struct np_entries *entries, uint32_t number, struct np_err *err)
{
    struct np_segment_item *items;
    struct np_segment *segment;
    struct np_err why = {0};
    uint32_t nr;
    const int code = np_segment_open(entries->folder, number, entries->set,
        entries->index->nr_samples, &segment, &items, &nr, &why);

    if (code == -ENOENT)
        return code;
    if (code == -ENOMEM)
        return np_err_set(err, code, "%s", why.text);
    if (code) {
        char path[4200];

        np_entries_add_note(entries, &why);
        snprintf(path, sizeof(path), "%s/%08x.segment", entries->folder, (unsigned)number);
        if (entries->lock_fd >= 0 && (code == -EBADMSG || code == -ESTALE))
            unlink(path);
        return 0;
    }
    np_entries_install(entries, segment, items, nr, NULL);
    np_free(items);
    return 0;
}

static bool is_live(struct np_entries *entries, const struct np_segment *segment)
{
    bool result;

    pthread_mutex_lock(&entries->lock);
    result = segment->nr_live > 0;
    pthread_mutex_unlock(&entries->lock);
    return result;
}

/* Loads the listed segments that are new. Drops those that were removed, and those whose samples
 * all have newer records. */
static int load_listed(
    struct np_entries *entries, const uint32_t *numbers, size_t nr, struct np_err *err)
{
    const size_t first = nr > MAX_LISTED ? nr - MAX_LISTED : 0;
    int code = 0;

    for (int s = 0; s < NP_MAX_SEGMENTS; s++) {
        struct np_segment *segment = entries->segments[s];

        if (segment && (nr == 0 || !bsearch(&segment->number, numbers + first, nr - first,
                                       sizeof(*numbers), by_number)))
            np_entries_drop(entries, segment, false);
    }
    for (size_t i = first; i < nr && !code; i++)
        if (!find(entries, numbers[i]))
            code = load(entries, numbers[i], err);
    for (int s = 0; s < NP_MAX_SEGMENTS && !code; s++)
        if (entries->segments[s] && !is_live(entries, entries->segments[s]))
            np_entries_drop(entries, entries->segments[s], entries->lock_fd >= 0);
    return code;
}

static int refresh(struct np_entries *entries, struct np_err *err)
{
    int code = -ENOENT;

    for (int i = 0; code == -ENOENT && i < LIST_RETRIES; i++) {
        uint32_t *numbers;
        size_t nr;

        code = list(entries, &numbers, &nr, err);
        if (code)
            return code;
        code = load_listed(entries, numbers, nr, err);
        np_free(numbers);
    }
    return code == -ENOENT ? 0 : code;
}

/* --- get and put ------------------------------------------------------------------------------ */

static bool is_of(const struct np_entries_record *record, struct np_entries_of of)
{
    return record->bytes == of.bytes && (record->mark == of.mark || of.mark == 0);
}

/* Under lock. */
static struct np_entries_record *waiting(
    const struct np_entries *entries, struct np_entries_slot slot)
{
    return (void *)(entries->batches[slot.where - NP_IN_BATCH].arena + 8ull * slot.at);
}

static int64_t copy_waiting(const struct np_entries *entries, struct np_entries_slot slot,
    struct np_entries_of of, uint8_t **buffer, size_t *room, struct np_err *err)
{
    const struct np_entries_record *record = waiting(entries, slot);

    if (!is_of(record, of))
        return 0;
    if (np_hold(buffer, room, record->coded_bytes, err))
        return -ENOMEM;
    memcpy(*buffer, record + 1, record->coded_bytes);
    return record->coded_bytes;
}

/* Reads the record into *buffer, and leaves only the coded entries there. -EBADMSG: damaged. */
static int64_t read_record(const struct np_segment *segment, struct np_entries_slot slot,
    uint64_t sample, struct np_entries_of of, uint8_t **buffer, size_t *room, struct np_err *err)
{
    const size_t bytes = 8ul * slot.units;
    struct np_entries_record record;

    if (np_hold(buffer, room, bytes, err))
        return -ENOMEM;
    if (np_read_at(segment->fd, 8ull * slot.at, *buffer, bytes) != (int64_t)bytes ||
        !np_record_check((const void *)*buffer, slot.units, sample))
        return -EBADMSG;
    memcpy(&record, *buffer, sizeof(record));
    memmove(*buffer, *buffer + sizeof(record), record.coded_bytes);
    return is_of(&record, of) ? record.coded_bytes : 0;
}

/* Ends the use of a segment. Clears the slot of a damaged record, so that its entries are put
 * again. */
static void release(struct np_entries *entries, struct np_segment *segment, uint64_t sample,
    struct np_entries_slot slot, bool is_damaged)
{
    const struct np_entries_slot *now = &entries->slots[sample];
    struct np_err err = {0};
    bool last;

    pthread_mutex_lock(&entries->lock);
    last = --segment->nr_users == 0 && segment->gone;
    if (is_damaged && now->where == slot.where && now->at == slot.at && !segment->gone)
        np_entries_set_slot(entries, sample, (struct np_entries_slot){0});
    if (is_damaged) {
        np_err_set(&err, -EBADMSG, "%s: damaged: a record has a wrong checksum", segment->path);
        np_entries_note_locked(entries, &err);
    }
    pthread_mutex_unlock(&entries->lock);
    if (last)
        np_segment_close(segment);
}

int64_t np_entries_get(struct np_entries *entries, uint64_t sample, struct np_entries_of of,
    uint8_t **buffer, size_t *room, struct np_err *err)
{
    struct np_entries_slot slot;
    struct np_segment *segment;
    int64_t result = 0;

    if (!entries)
        return 0;
    sample = np_index_number(entries->index, sample);
    pthread_mutex_lock(&entries->lock);
    slot = entries->slots[sample];
    segment = np_entries_segment(entries, slot.where);
    if (segment)
        segment->nr_users++;
    else if (slot.where)
        result = copy_waiting(entries, slot, of, buffer, room, err);
    pthread_mutex_unlock(&entries->lock);
    if (!segment)
        return result;
    result = read_record(segment, slot, sample, of, buffer, room, err);
    release(entries, segment, sample, slot, result == -EBADMSG);
    return result == -EBADMSG ? 0 : result;
}

/* True if the store has space for so many bytes. Under lock. */
static bool takes(struct np_entries *entries, uint64_t bytes)
{
    struct np_err err = {0};

    if (!entries->writes || entries->batches[entries->filling].used + bytes > BATCH_BYTES)
        return false;
    if (entries->bytes + bytes <= entries->max_bytes)
        return true;
    if (entries->asked != entries->done)
        return false; /* some count twice while the thread writes them */
    np_err_set(&err, -ENOSPC, "%s: full at its limit of %llu bytes", entries->folder,
        (unsigned long long)entries->max_bytes);
    np_entries_note_locked(entries, &err);
    return false;
}

bool np_entries_takes(struct np_entries *entries)
{
    bool result;

    if (!entries)
        return false;
    pthread_mutex_lock(&entries->lock);
    result = takes(entries, 8192); /* enough for most pictures */
    pthread_mutex_unlock(&entries->lock);
    return result;
}

bool np_entries_writes(struct np_entries *entries)
{
    bool result;

    pthread_mutex_lock(&entries->lock);
    result = entries->writes;
    pthread_mutex_unlock(&entries->lock);
    return result;
}

/* Under lock. */
static int add(struct np_entries *entries, const struct np_entries_record *head, const void *coded,
    struct np_err *err)
{
    struct np_entries_batch *batch = &entries->batches[entries->filling];
    const size_t units = np_record_units(head->coded_bytes);
    const struct np_entries_slot slot = {
        (uint32_t)(batch->used / 8), (uint16_t)units, (uint8_t)(NP_IN_BATCH + entries->filling)};
    struct np_entries_record *record;

    if (np_try_grow(&batch->arena, &batch->arena_room, batch->used + 8 * units, 1, err) ||
        np_try_grow(
            &batch->items, &batch->items_room, (size_t)batch->nr + 1, sizeof(*batch->items), err))
        return -ENOMEM;
    record = (void *)(batch->arena + batch->used);
    *record = *head;
    memcpy(record + 1, coded, head->coded_bytes);
    np_record_seal(record);
    batch->items[batch->nr++] = (struct np_segment_item){head->sample, slot.at};
    batch->used += 8 * units;
    entries->bytes += 8 * units;
    np_entries_set_slot(entries, head->sample, slot);
    return 0;
}

int np_entries_put(struct np_entries *entries, uint64_t sample, struct np_entries_of of,
    const void *coded, size_t bytes, struct np_err *err)
{
    struct np_entries_record head = {.bytes = of.bytes, .mark = of.mark};
    struct np_entries_slot slot;
    bool known;
    int code = 0;

    if (!entries || bytes == 0 || bytes > NP_MAX_ENTRIES_BYTES)
        return 0;
    head.sample = (uint32_t)np_index_number(entries->index, sample);
    head.coded_bytes = (uint32_t)bytes;
    pthread_mutex_lock(&entries->lock);
    slot = entries->slots[head.sample];
    known = slot.where >= NP_IN_BATCH && is_of(waiting(entries, slot), of) &&
            waiting(entries, slot)->coded_bytes >= bytes;
    if (!known && takes(entries, 8 * np_record_units(bytes)))
        code = add(entries, &head, coded, err);
    if (entries->batches[entries->filling].used > NP_WRITE_ABOVE)
        pthread_cond_signal(&entries->work);
    pthread_mutex_unlock(&entries->lock);
    return code;
}

/* --- open and close --------------------------------------------------------------------------- */

/* Becomes the writer if there is none, loads the segments, and starts the thread. */
static int join(struct np_entries *entries, struct np_err *err)
{
    struct np_err why = {0};
    int code;

    if (!entries->only_reads)
        try_to_write(entries);
    code = refresh(entries, err);
    if (entries->lock_fd < 0)
        return code;
    if (!code && np_entries_writer_start(entries, &why) == 0)
        return 0;
    if (why.code)
        np_entries_add_note(entries, &why);
    close(entries->lock_fd);
    entries->lock_fd = -1;
    return code;
}

int np_entries_open(const struct np_index *index, int64_t max_bytes, bool writes,
    struct np_entries **ret_entries, struct np_err *err)
{
    const uint64_t share = index->extents_bytes / 50;
    struct np_entries *entries;
    int code;

    if (max_bytes == 0 || !index->cached || index->nr_samples == 0) {
        *ret_entries = NULL;
        return 0;
    }
    entries = np_try_alloc(sizeof(*entries), err);
    if (!entries)
        return -ENOMEM;
    pthread_mutex_init(&entries->lock, NULL);
    pthread_mutex_init(&entries->flushing, NULL);
    pthread_cond_init(&entries->work, NULL);
    pthread_cond_init(&entries->written, NULL);
    entries->index = index;
    entries->lock_fd = -1;
    entries->only_reads = !writes;
    entries->next_number = 1;
    entries->max_bytes = max_bytes > 0 ? (uint64_t)max_bytes : share > MIN_AUTO ? share : MIN_AUTO;
    entries->set = np_entries_set(index);
    entries->folder = np_try_format(err, "%s.entries", index->cached);
    entries->slots = np_try_reserve(index->nr_samples * sizeof(*entries->slots), err);
    code = entries->folder && entries->slots ? join(entries, err) : -ENOMEM;
    if (code)
        np_entries_close(entries);
    else
        *ret_entries = entries;
    return code;
}

int np_entries_flush(struct np_entries *entries, struct np_err *err)
{
    uint64_t asked;
    int code = 0;

    if (!entries)
        return 0;
    pthread_mutex_lock(&entries->flushing);
    if (entries->lock_fd < 0)
        code = join(entries, err);
    else {
        pthread_mutex_lock(&entries->lock);
        asked = ++entries->asked;
        pthread_cond_signal(&entries->work);
        while (entries->done < asked)
            pthread_cond_wait(&entries->written, &entries->lock);
        pthread_mutex_unlock(&entries->lock);
    }
    pthread_mutex_unlock(&entries->flushing);
    return code;
}

void np_entries_close(struct np_entries *entries)
{
    if (!entries)
        return;
    if (entries->lock_fd >= 0) {
        np_entries_writer_stop(entries);
        close(entries->lock_fd);
    }
    for (int s = 0; s < NP_MAX_SEGMENTS; s++)
        np_segment_close(entries->segments[s]);
    for (int b = 0; b < 2; b++) {
        np_free(entries->batches[b].arena);
        np_free(entries->batches[b].items);
    }
    if (entries->slots)
        munmap(entries->slots, entries->index->nr_samples * sizeof(*entries->slots));
    pthread_mutex_destroy(&entries->flushing);
    pthread_cond_destroy(&entries->written);
    pthread_cond_destroy(&entries->work);
    pthread_mutex_destroy(&entries->lock);
    np_free(entries->folder);
    np_free(entries);
}

void np_entries_remove(const char *path)
{
    char *folder = np_try_format(NULL, "%s.entries", path);
    DIR *dir = folder ? opendir(folder) : NULL;

    for (struct dirent *entry = dir ? readdir(dir) : NULL; entry; entry = readdir(dir))
        if (np_segment_number(entry->d_name) || strcmp(entry->d_name, "lock") == 0 ||
            strcmp(entry->d_name, "new.segment") == 0)
            unlinkat(dirfd(dir), entry->d_name, 0);
    if (dir)
        closedir(dir);
    if (folder)
        rmdir(folder);
    np_free(folder);
}
