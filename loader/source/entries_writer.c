/* See entries_writer.h. Once the store is open, only this thread, in one process at a time, writes
 * and removes segments. A batch becomes a segment without a sync: if a power cut damages it,
 * readers put its entries again. When there are many segments, the thread merges the newest, and
 * removes them once the merged one is durable. */
#include "loader/source/entries_writer.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "loader/base/io.h"
#include "loader/base/mem.h"

#define MERGE_ABOVE  8          /* segments; a merge leaves out at most half of these */
#define WINDOW_BYTES (1u << 19) /* of a segment, read at a time; larger than any record */
#define CHUNK        4096       /* slots copied under the lock */

static int by_sample(const void *a, const void *b)
{
    const struct np_segment_item *x = a, *y = b;

    return x->sample != y->sample ? (x->sample > y->sample) - (x->sample < y->sample)
                                  : (x->at > y->at) - (x->at < y->at);
}

/* False after np_entries_remove(): the folder no longer has the file that this process locks. */
static bool is_ours(const struct np_entries *entries, struct np_err *err)
{
    char *path = np_try_format(err, "%s/lock", entries->folder);
    struct stat locked, there;
    bool ours;

    if (!path)
        return false;
    ours = fstat(entries->lock_fd, &locked) == 0 && stat(path, &there) == 0 &&
           locked.st_ino == there.st_ino && locked.st_dev == there.st_dev;
    np_free(path);
    if (!ours)
        np_err_set(err, -ESTALE, "%s: removed while it was in use", entries->folder);
    return ours;
}

/* Renames a written segment into place, opens it like any reader, and points to it the slots whose
 * `where` is in replaces. */
static int finish(struct np_entries *entries, struct np_segment_writer *writer, bool durable,
    const bool *replaces, struct np_err *err)
{
    const uint32_t number = entries->next_number;
    struct np_segment *segment;
    struct np_segment_item *items;
    uint32_t nr;
    int code = is_ours(entries, err) ? 0 : err->code;

    if (!code)
        code = np_segment_finish(writer, entries->set, number, durable, err);
    if (!code)
        code = np_segment_open(entries->folder, number, entries->set, entries->index->nr_samples,
            &segment, &items, &nr, err);
    if (code)
        return code;
    np_entries_install(entries, segment, items, nr, replaces);
    np_free(items);
    return 0;
}

/* Writes a batch as a segment; of several records of a sample, the last one. */
static int write_batch(struct np_entries *entries, int number, struct np_err *err)
{
    struct np_entries_batch *batch = &entries->batches[number];
    bool replaces[256] = {false};
    struct np_segment_writer writer;
    int code = np_segment_begin(&writer, entries->folder, err);

    replaces[NP_IN_BATCH + number] = true;
    qsort(batch->items, batch->nr, sizeof(*batch->items), by_sample);
    for (uint32_t i = 0; i < batch->nr && !code; i++)
        if (i + 1 == batch->nr || batch->items[i + 1].sample != batch->items[i].sample)
            code = np_segment_add(
                &writer, (const void *)(batch->arena + 8ull * batch->items[i].at), err);
    if (!code)
        code = finish(entries, &writer, false, replaces, err);
    np_segment_fini(&writer);
    return code;
}

static void empty_batch(struct np_entries *entries, int number)
{
    struct np_entries_batch *batch = &entries->batches[number], old;

    pthread_mutex_lock(&entries->lock);
    old = *batch;
    for (uint32_t i = 0; i < old.nr; i++) /* if their segment was not written */
        if (entries->slots[old.items[i].sample].where == NP_IN_BATCH + number)
            np_entries_set_slot(entries, old.items[i].sample, (struct np_entries_slot){0});
    entries->bytes -= old.used;
    *batch = (struct np_entries_batch){0};
    pthread_mutex_unlock(&entries->lock);
    np_free(old.arena);
    np_free(old.items);
}

struct merged {
    struct np_segment *segments[NP_MAX_SEGMENTS]; /* the newest first */
    int nr, nr_all;
    bool replaces[256];
    struct window {
        uint8_t *bytes; /* WINDOW_BYTES */
        uint64_t from, nr;
    } windows[256]; /* by `where` */
};

static int newest_first(const void *a, const void *b)
{
    const struct np_segment *x = *(struct np_segment *const *)a,
                            *y = *(struct np_segment *const *)b;

    return (x->number < y->number) - (x->number > y->number);
}

/* Chooses the newest segments until the next one is larger than all of them together, so that each
 * record is copied only a few times. Leaves at most MERGE_ABOVE / 2 unmerged. nr 0: no merge. */
static void choose(const struct np_entries *entries, struct merged *merged)
{
    uint64_t bytes = 0;

    for (int s = 0; s < NP_MAX_SEGMENTS; s++)
        if (entries->segments[s])
            merged->segments[merged->nr_all++] = entries->segments[s];
    if (merged->nr_all <= MERGE_ABOVE)
        return;
    qsort(merged->segments, (size_t)merged->nr_all, sizeof(*merged->segments), newest_first);
    while (merged->nr < merged->nr_all && (merged->segments[merged->nr]->file_bytes <= bytes ||
                                              merged->nr_all - merged->nr > MERGE_ABOVE / 2))
        bytes += merged->segments[merged->nr++]->file_bytes;
    for (int i = 0; i < merged->nr; i++)
        for (int s = 0; s < NP_MAX_SEGMENTS; s++)
            merged->replaces[s + 1] |= entries->segments[s] == merged->segments[i];
}

/* NULL: the record cannot be read. Call it in ascending order of a segment's slots. */
static const struct np_entries_record *record_at(
    const struct np_segment *segment, struct window *window, struct np_entries_slot slot)
{
    const uint64_t at = 8ull * slot.at, bytes = 8ull * slot.units;

    if (at < window->from || at + bytes > window->from + window->nr) {
        const int64_t got = np_read_at(segment->fd, at, window->bytes, WINDOW_BYTES);

        window->from = at;
        window->nr = got > 0 ? (uint64_t)got : 0;
    }
    if (at + bytes > window->from + window->nr)
        return NULL;
    return (const void *)(window->bytes + (at - window->from));
}

static int copy_slots(struct np_entries *entries, struct merged *merged,
    struct np_segment_writer *writer, uint64_t from, struct np_err *err)
{
    struct np_entries_slot slots[CHUNK];
    const uint64_t left = entries->index->nr_samples - from, nr = left < CHUNK ? left : CHUNK;

    pthread_mutex_lock(&entries->lock);
    memcpy(slots, entries->slots + from, nr * sizeof(*slots));
    pthread_mutex_unlock(&entries->lock);
    for (uint64_t i = 0; i < nr; i++) {
        const uint8_t where = slots[i].where;
        const struct np_entries_record *record;
        int code;

        if (!merged->replaces[where])
            continue;
        record = record_at(np_entries_segment(entries, where), &merged->windows[where], slots[i]);
        if (!record || !np_record_check(record, slots[i].units, from + i))
            continue; /* damaged: the slot is cleared with its segment */
        code = np_segment_add(writer, record, err);
        if (code)
            return code;
    }
    return 0;
}

static int merge_chosen(struct np_entries *entries, struct merged *merged, struct np_err *err)
{
    struct np_segment_writer writer;
    int code = np_segment_begin(&writer, entries->folder, err);

    for (int where = 1; where <= NP_MAX_SEGMENTS && !code; where++)
        if (merged->replaces[where]) {
            merged->windows[where].bytes = np_try_alloc(WINDOW_BYTES, err);
            code = merged->windows[where].bytes ? 0 : -ENOMEM;
        }
    for (uint64_t from = 0; from < entries->index->nr_samples && !code; from += CHUNK)
        code = copy_slots(entries, merged, &writer, from, err);
    if (!code)
        code = finish(entries, &writer, true, merged->replaces, err);
    for (int i = 0; i < merged->nr && !code; i++)
        np_entries_drop(entries, merged->segments[i], true);
    for (int where = 1; where <= NP_MAX_SEGMENTS; where++)
        np_free(merged->windows[where].bytes);
    np_segment_fini(&writer);
    return code;
}

static int merge(struct np_entries *entries, struct np_err *err)
{
    struct merged *merged = np_try_alloc(sizeof(*merged), err);
    int code = 0;

    if (!merged)
        return -ENOMEM;
    choose(entries, merged);
    if (merged->nr > 0)
        code = merge_chosen(entries, merged, err);
    np_free(merged);
    return code;
}

static void *thread_main(void *context)
{
    struct np_entries *entries = context;
    bool is_end = false;

    pthread_setname_np(pthread_self(), "entries");
    pthread_mutex_lock(&entries->lock);
    while (!is_end) {
        while (!entries->stop && entries->asked == entries->done)
            if (entries->batches[entries->filling].used > NP_WRITE_ABOVE)
                entries->asked++;
            else
                pthread_cond_wait(&entries->work, &entries->lock);
        const uint64_t asked = entries->asked;
        const int number = entries->filling;
        const bool writes = entries->writes && entries->batches[number].nr > 0;
        struct np_err err = {0};

        is_end = entries->stop;
        entries->filling = !number;
        pthread_mutex_unlock(&entries->lock);
        int code = writes ? write_batch(entries, number, &err) : 0;
        empty_batch(entries, number);
        if (writes && !code)
            code = merge(entries, &err);
        pthread_mutex_lock(&entries->lock);
        if (code) {
            np_entries_note_locked(entries, &err);
            entries->writes = false;
        }
        entries->done = asked;
        pthread_cond_broadcast(&entries->written);
    }
    pthread_mutex_unlock(&entries->lock);
    return NULL;
}

int np_entries_writer_start(struct np_entries *entries, struct np_err *err)
{
    sigset_t all, before;
    int code;

    sigfillset(&all); /* the main thread handles signals */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    code = -pthread_create(&entries->thread, NULL, thread_main, entries);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (code)
        return np_err_set(err, code, "%s: cannot start the thread that writes it: %s",
            entries->folder, strerror(-code));
    pthread_mutex_lock(&entries->lock);
    entries->writes = true;
    pthread_mutex_unlock(&entries->lock);
    return 0;
}

void np_entries_writer_stop(struct np_entries *entries)
{
    pthread_mutex_lock(&entries->lock);
    entries->stop = true;
    pthread_cond_signal(&entries->work);
    pthread_mutex_unlock(&entries->lock);
    pthread_join(entries->thread, NULL);
}
