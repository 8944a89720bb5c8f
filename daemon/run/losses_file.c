/* All records have one size, so only the end of a long file is read. */
#include "daemon/run/losses_file.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/run/run_log.h"
#include "loader/base/mem.h"

struct file {
    FILE *in;
    const char *path;
    uint32_t batch;
    uint64_t nr_train, nr_steps;
    uint64_t nr_records;   /* complete ones */
    unsigned char *record; /* 8 + 4 * batch bytes */
    size_t record_bytes;
};

static uint64_t get_le(const unsigned char *bytes, int nr_bytes)
{
    uint64_t value = 0;

    for (int i = nr_bytes; i-- > 0;)
        value = value << 8 | bytes[i];
    return value;
}

static int damaged(const struct file *file, const char *why, struct np_err *err)
{
    return np_err_set(err, -EBADMSG, "%s: damaged: %s", file->path, why);
}

static int read_head(struct file *file, struct np_err *err)
{
    unsigned char head[sizeof(struct np_losses_head)];
    long bytes;

    if (fread(head, 1, sizeof(head), file->in) < sizeof(head))
        return np_err_set(err, -ENODATA, "%s: no step has been written yet", file->path);
    if (memcmp(head, NP_LOSSES_MAGIC, 8) != 0)
        return damaged(file, "it does not begin as such a file", err);
    if (get_le(head + 8, 4) != 1)
        return np_err_set(err, -EBADMSG, "%s: version %llu is not known here", file->path,
            (unsigned long long)get_le(head + 8, 4));
    if (get_le(head + 12, 4) != file->batch || get_le(head + 16, 8) != file->nr_train)
        return damaged(file, "its batch or its number of samples is not the run's", err);
    if (fseek(file->in, 0, SEEK_END) < 0 || (bytes = ftell(file->in)) < 0)
        return np_err_set(err, -errno, "%s: %s", file->path, strerror(errno));
    file->nr_records = ((uint64_t)bytes - sizeof(head)) / file->record_bytes;
    if (file->nr_records == 0)
        return np_err_set(err, -ENODATA, "%s: no step has been written yet", file->path);
    return 0;
}

static int read_record(struct file *file, uint64_t i, uint64_t *ret_step, struct np_err *err)
{
    const uint64_t at = sizeof(struct np_losses_head) + i * file->record_bytes;

    if (fseek(file->in, (long)at, SEEK_SET) < 0 ||
        fread(file->record, 1, file->record_bytes, file->in) < file->record_bytes)
        return np_err_set(err, ferror(file->in) ? -EIO : -EBADMSG, "%s: step %llu cannot be read",
            file->path, (unsigned long long)i);
    *ret_step = get_le(file->record, 8);
    return *ret_step < file->nr_steps ? 0 : damaged(file, "a step is behind the run's end", err);
}

static float loss_of(const struct file *file, uint64_t row)
{
    const uint32_t bits = (uint32_t)get_le(file->record + 8 + 4 * row, 4);
    float loss;

    memcpy(&loss, &bits, sizeof(loss));
    return loss;
}

/* Goes back from the last record to the epoch's first row. */
static int read_epoch(struct file *file, struct np_losses *losses, struct np_err *err)
{
    uint64_t step, before = UINT64_MAX;
    int code = read_record(file, file->nr_records - 1, &step, err);

    if (code < 0)
        return code;
    const uint64_t done = (step + 1) * file->batch / file->nr_train;
    losses->complete = done > 0;
    losses->epoch = done ? done - 1 : 0;
    const uint64_t first = losses->epoch * file->nr_train, end = first + file->nr_train;
    for (uint64_t i = file->nr_records; code == 0 && i-- > 0;) {
        if ((code = read_record(file, i, &step, err)) < 0 || (step + 1) * file->batch <= first)
            break;
        if (step >= before)
            return damaged(file, "its steps are not in order", err);
        before = step;
        for (uint64_t row = 0; row < file->batch; row++) {
            const uint64_t number = step * file->batch + row;

            if (number >= first && number < end)
                losses->rows[losses->nr_rows++] = (struct np_row_loss){number, loss_of(file, row)};
        }
    }
    return code;
}

/* The highest first; a NaN before all; of equal losses the earlier row. */
static int compare(const void *left, const void *right)
{
    const struct np_row_loss *a = left, *b = right;
    const float x = isnan(a->loss) ? INFINITY : a->loss, y = isnan(b->loss) ? INFINITY : b->loss;

    if (x != y)
        return x > y ? -1 : 1;
    return a->number < b->number ? -1 : a->number > b->number;
}

int np_losses_read(const char *path, uint32_t batch, uint64_t nr_train, uint64_t nr_steps,
    struct np_losses *ret_losses, struct np_err *err)
{
    struct file file = {.in = fopen(path, "re"),
        .path = path,
        .batch = batch,
        .nr_train = nr_train,
        .nr_steps = nr_steps,
        .record_bytes = 8 + 4 * (size_t)batch};
    struct np_losses losses = {0};
    int code = 0;

    if (!file.in)
        return np_err_set(err, -errno, "%s: %s", path, strerror(errno));
    file.record = np_try_alloc(file.record_bytes, err);
    losses.rows = np_try_array(nr_train, sizeof(*losses.rows), err);
    if (!file.record || !losses.rows)
        code = -ENOMEM;
    if (code == 0)
        code = read_head(&file, err);
    if (code == 0)
        code = read_epoch(&file, &losses, err);
    fclose(file.in);
    np_free(file.record);
    if (code < 0) {
        np_free(losses.rows);
        return code;
    }
    qsort(losses.rows, losses.nr_rows, sizeof(*losses.rows), compare);
    *ret_losses = losses;
    return 0;
}
