/* Each thread takes runs of consecutive samples, so that one thread reads all samples of a zstd
 * frame. A picture is decoded down to its last row of pixels: most of its codes are read, and few
 * are transformed. */
#include "daemon/data/fill_entries.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>

#include "loader/base/box.h"
#include "loader/base/mem.h"
#include "loader/pack/fetch.h"
#include "loader/pixels/codec.h"
#include "loader/row_entries.h"

#define RUN 64 /* samples that a thread takes at once */

struct fill {
    const struct np_index *index;
    struct np_entries *store;
    uint64_t next; /* atomic */
    int failed;    /* atomic: -errno of a thread */
};

struct worker {
    struct fill *fill;
    pthread_t thread;
    struct np_fetch *fetch;
    struct np_decoder *decoder;
    struct np_row_entries *entries;
    struct np_filled filled;
    struct np_err err;
};

/* 0: the store has them, or is full; -ENOMEM. */
static int keep(
    struct worker *worker, const struct np_row_picture *picture, const struct np_jpeg *jpeg)
{
    int code = 0;

    if (!np_entries_takes(picture->store))
        code = np_entries_flush(picture->store, &worker->err);
    if (code)
        return code;
    if (!np_entries_takes(picture->store)) {
        worker->filled.nr_left++;
        return 0;
    }
    worker->filled.nr_entered++;
    return np_row_entries_keep(worker->entries, picture, jpeg, &worker->err);
}

/* The picture is open. 0 or -ENOMEM. */
static int fill_picture(struct worker *worker, const struct np_row_picture *picture,
    const struct np_image_info *info, struct np_jpeg *jpeg)
{
    const struct np_rect last = {0, info->height - 1, info->width, info->height};
    const struct np_jpeg_entries *now = np_jpeg_entries(jpeg);
    struct np_pixels pixels;
    int top, bottom, code = np_row_entries_load(worker->entries, picture, &worker->err);
    bool given;

    np_jpeg_needed_rows(jpeg, &last, &top, &bottom);
    if (!code)
        code = np_row_entries_give(worker->entries, picture, NULL, jpeg, &given, &worker->err);
    if (!code && now->nr_rows < bottom)
        code = np_jpeg_decode(jpeg, &last, info->channels, &pixels, &worker->err);
    else if (!code)
        return worker->filled.nr_entered++, 0;
    if (code == -ENOMEM)
        return code;
    if (code || now->nr_rows < bottom)
        return worker->filled.nr_none++, 0;
    return keep(worker, picture, jpeg);
}

static int fill_one(struct worker *worker, uint64_t sample)
{
    const struct np_index *index = worker->fill->index;
    const struct np_record record = np_index_get(index, sample);
    struct np_row_picture picture = {
        .store = worker->fill->store, .sample = sample, .checked = record.has_crc};
    struct np_image_info info;
    struct np_jpeg *jpeg = NULL;
    int code = np_fetch_get(worker->fetch, sample, &picture.bytes, &picture.nr_bytes, &worker->err);

    picture.mark = index->root ? np_fetch_mtime_ns(worker->fetch) : np_entries_mark(&record);
    if (!code && picture.nr_bytes >= NP_ENTRIES_MIN_BYTES) {
        code = np_decoder_open(
            worker->decoder, picture.bytes, picture.nr_bytes, NULL, &info, &worker->err);
        jpeg = code ? NULL : np_decoder_jpeg(worker->decoder);
    }
    if (code == -ENOMEM)
        return code;
    if (jpeg)
        return fill_picture(worker, &picture, &info, jpeg);
    worker->filled.nr_bad += code != 0;
    worker->filled.nr_none += code == 0;
    worker->err = (struct np_err){0};
    return 0;
}

static void *work(void *context)
{
    struct worker *worker = context;
    struct fill *fill = worker->fill;
    const uint64_t nr = np_index_samples(fill->index);
    int code = np_fetch_open(fill->index, &worker->fetch, &worker->err);

    if (!code)
        code = np_decoder_new(&worker->decoder, &worker->err);
    if (!code && !(worker->entries = np_row_entries_new(&worker->err)))
        code = -ENOMEM;
    while (!code && !__atomic_load_n(&fill->failed, __ATOMIC_RELAXED)) {
        const uint64_t first = __atomic_fetch_add(&fill->next, RUN, __ATOMIC_RELAXED);

        if (first >= nr)
            break;
        for (uint64_t i = first; i < nr && i < first + RUN && !code; i++)
            code = fill_one(worker, i);
    }
    if (code)
        __atomic_store_n(&fill->failed, code, __ATOMIC_RELAXED);
    np_row_entries_free(worker->entries);
    np_decoder_free(worker->decoder);
    np_fetch_close(worker->fetch);
    return NULL;
}

/* The calling thread is one of the threads. */
static int run(struct fill *fill, int nr, struct np_filled *filled, struct np_err *err)
{
    struct worker *workers = np_alloc(sizeof(*workers) * (size_t)nr);
    int nr_started = 1;

    for (int i = 0; i < nr; i++)
        workers[i].fill = fill;
    while (nr_started < nr &&
           pthread_create(&workers[nr_started].thread, NULL, work, &workers[nr_started]) == 0)
        nr_started++;
    work(&workers[0]);
    for (int i = 0; i < nr_started; i++) {
        if (i > 0)
            pthread_join(workers[i].thread, NULL);
        filled->nr_entered += workers[i].filled.nr_entered;
        filled->nr_none += workers[i].filled.nr_none;
        filled->nr_bad += workers[i].filled.nr_bad;
        filled->nr_left += workers[i].filled.nr_left;
        if (fill->failed && workers[i].err.code)
            *err = workers[i].err;
    }
    np_free(workers);
    return fill->failed;
}

/* 0: the store can be written, and all writes so far have reached it. */
static int check_writes(struct np_entries *store, struct np_err *err)
{
    const char *note = np_entries_note(store);

    if (np_entries_writes(store))
        return 0;
    if (*note)
        return np_err_set(err, -EIO, "the entries are not kept: %s", note);
    return np_err_set(err, -EBUSY, "another process is writing the entries of this set");
}

int np_fill_entries(const struct np_index *index, int64_t max_bytes, struct np_filled *ret_filled,
    struct np_err *err)
{
    struct fill fill = {.index = index};
    struct np_box box;
    int code = np_entries_open(index, max_bytes, true, &fill.store, err);

    *ret_filled = (struct np_filled){0};
    if (code)
        return code;
    if (!fill.store)
        return np_err_set(err, -EINVAL, "no place in the cache folder for the entries of this set");
    code = check_writes(fill.store, err);
    np_box_read(&box);
    if (!code)
        code = run(&fill, box.nr_cpus, ret_filled, err);
    if (!code)
        code = np_entries_flush(fill.store, err);
    if (!code)
        code = check_writes(fill.store, err);
    snprintf(ret_filled->note, sizeof(ret_filled->note), "%s", np_entries_note(fill.store));
    np_entries_close(fill.store);
    return code;
}
