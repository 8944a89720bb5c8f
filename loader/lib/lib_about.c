/* What a loader and its batches are: getters, counters, errors. */
#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "loader/base/version.h"
#include "loader/lib/lib.h"

static const char *const dtypes[] = {"uint8", "float32", "bfloat16", "float16"};

int nnp_abi(void)
{
    return NNP_ABI;
}

const char *nnp_version(void)
{
    return NP_VERSION;
}

/* --- errors ------------------------------------------------------------------------------------- */

bool np_lib_is_foreign(const struct nnp_loader *loader)
{
    return getpid() != loader->pid;
}

int np_lib_fail(struct nnp_loader *loader, const struct np_err *err)
{
    pthread_mutex_lock(&loader->error_lock);
    loader->error = *err;
    pthread_mutex_unlock(&loader->error_lock);
    return err->code;
}

size_t nnp_error(struct nnp_loader *loader, char *text, size_t text_bytes)
{
    size_t length;

    if (np_lib_is_foreign(loader))
        return (size_t)snprintf(text, text_bytes,
            "this loader was opened by process %d and belongs to it: open one in each process",
            (int)loader->pid);
    pthread_mutex_lock(&loader->error_lock);
    length = (size_t)snprintf(text, text_bytes, "%s", loader->error.text);
    pthread_mutex_unlock(&loader->error_lock);
    return length;
}

/* --- the loader --------------------------------------------------------------------------------- */

void nnp_shape(const struct nnp_loader *loader, int64_t ret_shape[4])
{
    const struct np_batch_shape *shape = &loader->shape;
    const int64_t values[4] = {shape->rows, shape->height, shape->width, shape->channels};

    memcpy(ret_shape, values, sizeof(values));
}

const char *nnp_dtype(const struct nnp_loader *loader)
{
    return dtypes[loader->shape.format.type];
}

const char *nnp_layout(const struct nnp_loader *loader)
{
    return loader->shape.format.planar ? "nchw" : "nhwc";
}

uint64_t nnp_samples(const struct nnp_loader *loader)
{
    return loader->order.nr_train;
}

uint64_t nnp_length(const struct nnp_loader *loader)
{
    return loader->length;
}

int nnp_nr_classes(const struct nnp_loader *loader)
{
    return loader->sets.classes ? loader->sets.classes->nr_items : 0;
}

const char *nnp_class(const struct nnp_loader *loader, int label)
{
    return label >= 0 && label < nnp_nr_classes(loader) ? loader->sets.classes->items[label]->text
                                                        : NULL;
}

int nnp_nr_values(const struct nnp_loader *loader)
{
    return loader->shape.values;
}

uint64_t nnp_fingerprint(const struct nnp_loader *loader)
{
    return loader->fingerprint;
}

/* Adds a field behind the n bytes. Without a floating-point format, since the program's locale may
 * have a comma there. */
static size_t add_seconds(char *json, size_t json_bytes, size_t n, const char *name, uint64_t ns)
{
    if (n >= json_bytes)
        return n;
    return n + (size_t)snprintf(json + n, json_bytes - n,
                   ", \"%s_seconds\": %" PRIu64 ".%06" PRIu64, name, ns / 1000000000,
                   ns / 1000 % 1000000);
}

static int write_counters(
    struct nnp_loader *loader, const struct np_stat_sum *sum, char *json, size_t json_bytes)
{
    const struct np_exchanged exchanged =
        loader->running ? np_loader_exchanged(loader->running) : (struct np_exchanged){0};
    size_t n = (size_t)snprintf(json, json_bytes,
        "{\"batches\": %" PRIu64 ", \"images\": %" PRIu64 ", \"bytes_read\": %" PRIu64
        ", \"bad_samples\": %" PRIu64 ", \"ready\": %d, \"held\": %d"
        ", \"made_batches\": %" PRIu64 ", \"taken_batches\": %" PRIu64
        ", \"readers\": %d, \"io\": \"%s\", \"cache\": \"%s\"",
        loader->nr_batches, loader->nr_images, sum->stages[NP_STAGE_READ].bytes, loader->nr_bad,
        loader->running ? np_ring_full(loader->running->ring) : 0,
        atomic_load(&loader->tally->nr_taken) - loader->ahead.nr_queued, exchanged.made,
        exchanged.taken, loader->running ? loader->running->nr_readers : 0,
        loader->running ? loader->running->io : "", loader->running ? loader->running->cache : "");

    n = add_seconds(json, json_bytes, n, "wait", loader->wait_ns);
    for (int s = NP_STAGE_READ; s <= NP_STAGE_BATCH; s++)
        n = add_seconds(json, json_bytes, n, np_stage_names[s], sum->stages[s].work_ns);
    if (n < json_bytes)
        n += (size_t)snprintf(json + n, json_bytes - n, "}");
    return n < json_bytes ? (int)n : -ENOSPC;
}

int nnp_counters(struct nnp_loader *loader, char *json, size_t json_bytes)
{
    struct np_stat_sum sum = {0};
    int code;

    if (np_lib_is_foreign(loader))
        return -ECHILD;
    pthread_mutex_lock(&loader->error_lock);
    if (loader->stat)
        np_stat_read(loader->stat, "reader", &sum);
    code = write_counters(loader, &sum, json, json_bytes);
    pthread_mutex_unlock(&loader->error_lock);
    return code;
}

int nnp_bad_sample(struct nnp_loader *loader, char *text, size_t text_bytes)
{
    struct np_bad_sample bad;
    int n = 0;

    if (np_lib_is_foreign(loader))
        return -ECHILD;
    pthread_mutex_lock(&loader->lock);
    if (loader->running && np_loader_next_bad(loader->running, &bad))
        n = snprintf(
            text, text_bytes, "%s at offset %" PRIu64 ": %s", bad.path, bad.offset, bad.reason);
    pthread_mutex_unlock(&loader->lock);
    return n;
}

/* --- batches ------------------------------------------------------------------------------------ */

int nnp_batch_rows(const struct nnp_batch *batch)
{
    return batch->rows;
}

uint64_t nnp_batch_epoch(const struct nnp_batch *batch)
{
    return batch->epoch;
}

uint64_t nnp_batch_number(const struct nnp_batch *batch)
{
    return batch->number;
}

int nnp_batch_nr_bad(const struct nnp_batch *batch)
{
    int n = 0;

    for (int r = 0; r < batch->rows; r++)
        n += batch->memory.about[r].sample == UINT64_MAX;
    return n;
}

void *nnp_batch_images(const struct nnp_batch *batch)
{
    return batch->memory.images;
}

int64_t *nnp_batch_labels(const struct nnp_batch *batch)
{
    return batch->labels;
}

float *nnp_batch_values(const struct nnp_batch *batch)
{
    return batch->values;
}

uint64_t nnp_batch_sample(const struct nnp_batch *batch, int row)
{
    return batch->memory.about[row].sample;
}
