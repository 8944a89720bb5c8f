/* Weights & Biases, offline: RUN/wandb/offline-run-.../run-ID.wandb, which `wandb sync FOLDER` sends
 * to its server. The id is a hash of the run folder's name. Messages of wandb_internal.proto: run
 * (project, name, parameters), a history row for each step, and at the end the last value of each
 * number, and the exit code. `wandb sync` wants rows of ascending steps, so all numbers of a step are
 * one row, and those of the final test are only in the last values. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

#include "daemon/track/tracker.h"
#include "daemon/track/wandblog.h"
#include "loader/base/io.h"
#include "loader/base/json.h"
#include "loader/base/mem.h"
#include "loader/base/text.h"

#define MAX_FILE    (1ull << 32)
#define MAX_SUMMARY 64

/* Fields, by number. */
enum { RECORD_NUM = 1, RECORD_HISTORY, RECORD_SUMMARY, RECORD_RUN = 17, RECORD_EXIT = 18 };
enum { HISTORY_ITEM = 1, HISTORY_STEP = 2, STEP_NUM = 1 };
enum { ITEM_KEY = 1, ITEM_JSON = 16, UPDATE = 1 }; /* of config and summary */
enum { RUN_ID = 1, RUN_PROJECT = 3, RUN_CONFIG = 4, RUN_NAME = 8, RUN_START = 17 };
enum { TIME_SECONDS = 1, EXIT_CODE = 1 };

struct wand {
    FILE *file;
    char *path;
    uint64_t offset, num; /* of the file's end; of the last message */
    double start;
    struct np_pb row; /* the history row of `step` so far; used 0: none */
    uint64_t step;
    double time;
    struct np_pb record, part, item, out; /* a message, its parts, its fragments */
    struct {
        char tag[96];
        double value;
    } last[MAX_SUMMARY];
    int nr_last;
};

static int failed(const struct wand *wand, struct np_err *err)
{
    return np_err_set(err, errno ? -errno : -EIO, "%s: cannot be written: %s", wand->path,
        strerror(errno ? errno : EIO));
}

/* --- messages ------------------------------------------------------------------------------ */

static int write_out(struct wand *wand, struct np_err *err)
{
    errno = 0;
    wand->offset += wand->out.used;
    return fwrite(wand->out.bytes, 1, wand->out.used, wand->file) == wand->out.used
               ? 0
               : failed(wand, err);
}

static int put_record(struct wand *wand, int field, const struct np_pb *message, struct np_err *err)
{
    wand->record.used = wand->out.used = 0;
    np_pb_number(&wand->record, RECORD_NUM, ++wand->num);
    np_pb_message(&wand->record, field, message);
    np_wandblog_put(&wand->out, wand->offset, &wand->record);
    return write_out(wand, err);
}

static void put_item(
    struct wand *wand, struct np_pb *to, int field, const char *key, const char *json)
{
    wand->item.used = 0;
    np_pb_text(&wand->item, ITEM_KEY, key);
    np_pb_text(&wand->item, ITEM_JSON, json);
    np_pb_message(to, field, &wand->item);
}

static void put_real(struct wand *wand, struct np_pb *to, int field, const char *key, double value)
{
    char text[NP_REAL_TEXT];

    np_text_of_real(value, text);
    put_item(wand, to, field, key, text);
}

struct params {
    struct wand *wand;
    struct np_pb config;
};

static void put_param(void *context, const char *path, const char *text)
{
    struct params *params = context;
    char number[NP_REAL_TEXT], *shown;
    struct np_json json = {0};
    double value;

    if (!np_tracked_param(path))
        return;
    if (np_text_real(text, -1e300, 1e300, &value)) {
        np_text_of_real(value, number);
        put_item(params->wand, &params->config, UPDATE, path, number);
        return;
    }
    shown = np_strdup(text);
    np_text_hide(shown);
    np_json_begin(&json, NULL); /* {"": "text"} */
    np_json_text(&json, "", shown);
    np_free(shown);
    char *line = np_json_take(&json, NULL), *begin = line ? strchr(line, ':') : NULL;
    if (begin) {
        *strrchr(line, '}') = '\0';
        put_item(params->wand, &params->config, UPDATE, path, begin + 2);
    }
    np_free(line);
    np_json_fini(&json);
}

static int put_run(
    struct wand *wand, const struct np_tracked_run *run, const char *id, struct np_err *err)
{
    const char *slash = strrchr(run->dir, '/');
    struct params params = {.wand = wand};

    np_node_leaves(run->config, put_param, &params);
    wand->part.used = wand->item.used = 0;
    np_pb_text(&wand->part, RUN_ID, id);
    np_pb_text(&wand->part, RUN_PROJECT, run->name);
    np_pb_message(&wand->part, RUN_CONFIG, &params.config);
    np_pb_text(&wand->part, RUN_NAME, slash ? slash + 1 : run->dir);
    np_pb_number(&wand->item, TIME_SECONDS, (uint64_t)wand->start);
    np_pb_message(&wand->part, RUN_START, &wand->item);
    np_free(params.config.bytes);
    return put_record(wand, RECORD_RUN, &wand->part, err);
}

static void remember(struct wand *wand, const struct np_scalar *scalar)
{
    int i = 0;

    while (i < wand->nr_last && strcmp(wand->last[i].tag, scalar->tag) != 0)
        i++;
    if (i == MAX_SUMMARY)
        return;
    snprintf(wand->last[i].tag, sizeof(wand->last[i].tag), "%s", scalar->tag);
    wand->last[i].value = scalar->value;
    wand->nr_last += i == wand->nr_last;
}

static int end_row(struct wand *wand, struct np_err *err)
{
    struct np_pb *row = &wand->row;

    if (row->used == 0)
        return 0;
    put_real(wand, row, HISTORY_ITEM, "_step", (double)wand->step);
    put_real(wand, row, HISTORY_ITEM, "_timestamp", wand->time);
    put_real(wand, row, HISTORY_ITEM, "_runtime", wand->time - wand->start);
    wand->item.used = 0;
    np_pb_number(&wand->item, STEP_NUM, wand->step);
    np_pb_message(row, HISTORY_STEP, &wand->item);
    const int code = put_record(wand, RECORD_HISTORY, row, err);
    row->used = 0;
    return code;
}

static int add(void *state, uint64_t step, double time, const struct np_scalar *scalars, int n,
    struct np_err *err)
{
    struct wand *wand = state;
    const int code = step != wand->step ? end_row(wand, err) : 0;

    wand->step = step;
    wand->time = time;
    for (int i = 0; i < n; i++) {
        if (strncmp(scalars[i].tag, "final/", 6) != 0)
            put_real(wand, &wand->row, HISTORY_ITEM, scalars[i].tag, scalars[i].value);
        remember(wand, &scalars[i]);
    }
    return code;
}

/* --- resuming ------------------------------------------------------------------------------ */

struct kept {
    const struct np_tracked_run *run;
    struct wand *wand;
};

/* A resumed run counts its time from its first start. */
static void take_start(struct wand *wand, const struct np_pb_field *run)
{
    const uint8_t *at = run->inside, *inside;
    struct np_pb_field field, seconds;

    while (run->wire == NP_PB_BYTES && np_pb_next(&at, run->end, &field)) {
        inside = field.inside;
        if (field.number == RUN_START && field.wire == NP_PB_BYTES &&
            np_pb_next(&inside, field.end, &seconds) && seconds.number == TIME_SECONDS &&
            seconds.wire == NP_PB_VARINT)
            wand->start = (double)seconds.bits;
    }
}

/* A run's own end, and what this process will write again, do not stay. If the evaluation of a row is
 * repeated, the whole row goes: there cannot be two rows of one step. */
static bool keep(void *context, const uint8_t *message, const uint8_t *end)
{
    const struct kept *kept = context;
    struct np_pb_field field, item, key = {0};
    char tag[96] = "";
    uint64_t step = 0, num = kept->wand->num;

    while (np_pb_next(&message, end, &field)) {
        if (field.number == RECORD_SUMMARY || field.number == RECORD_EXIT)
            return false;
        if (field.number == RECORD_NUM && field.wire == NP_PB_VARINT)
            num = field.bits;
        if (field.number == RECORD_RUN)
            take_start(kept->wand, &field);
        if (field.number != RECORD_HISTORY || field.wire != NP_PB_BYTES)
            continue;
        while (np_pb_next(&field.inside, field.end, &item)) {
            const uint8_t *inside = item.inside;

            if (item.wire != NP_PB_BYTES || !np_pb_next(&inside, item.end, &key))
                continue;
            if (item.number == HISTORY_STEP && key.wire == NP_PB_VARINT)
                step = key.bits;
            else if (item.number == HISTORY_ITEM && !*tag)
                np_pb_copy(&key, tag, sizeof(tag));
        }
        if (np_tracked_again(kept->run, step, tag) ||
            (kept->run->eval_due && step == kept->run->step))
            return false;
    }
    kept->wand->num = num;
    return true;
}

static int cut_back(struct wand *wand, const struct np_tracked_run *run, struct np_err *err)
{
    struct kept kept = {run, wand};
    uint64_t nr_bytes = 0;
    char *bytes = NULL;
    int code = np_read_file(wand->path, MAX_FILE, &bytes, &nr_bytes, err);

    if (code == 0)
        wand->offset = np_wandblog_read((const uint8_t *)bytes, nr_bytes, keep, &kept);
    if (code == 0 && truncate(wand->path, (off_t)wand->offset) < 0)
        code = np_err_set(err, -errno, "%s: cannot be cut back: %s", wand->path, strerror(errno));
    np_free(bytes);
    return code;
}

/* --- the file ------------------------------------------------------------------------------ */

/* The folder of an earlier start: "offline-run-...-ID"; NULL: none. np_free. */
static char *find_folder(const char *top, const char *id)
{
    DIR *dir = opendir(top);
    char *found = NULL;

    for (const struct dirent *item; dir && !found && (item = readdir(dir));) {
        const size_t n = strlen(item->d_name), id_bytes = strlen(id);

        if (n > id_bytes && strcmp(item->d_name + n - id_bytes, id) == 0)
            found = np_format("%s/%s", top, item->d_name);
    }
    if (dir)
        closedir(dir);
    return found;
}

static char *new_folder(const char *top, const char *id, double start)
{
    const time_t seconds = (time_t)start;
    char stamp[32];
    struct tm utc;

    gmtime_r(&seconds, &utc);
    strftime(stamp, sizeof(stamp), "%Y%m%d_%H%M%S", &utc);
    return np_format("%s/offline-run-%s-%s", top, stamp, id);
}

static int open_file(
    struct wand *wand, const struct np_tracked_run *run, const char *id, struct np_err *err)
{
    char *top = np_format("%s/wandb", run->dir), *folder = find_folder(top, id);

    wand->start = (double)time(NULL);
    if (!folder)
        folder = new_folder(top, id, wand->start);
    wand->path = np_format("%s/run-%s.wandb", folder, id);
    int code = np_make_dirs(folder, err);
    if (code == 0 && access(wand->path, F_OK) == 0)
        code = cut_back(wand, run, err);
    if (code == 0 && !(wand->file = fopen(wand->path, "ae")))
        code = failed(wand, err);
    np_free(top);
    np_free(folder);
    if (code == 0 && wand->offset == 0) {
        np_wandblog_head(&wand->out);
        code = write_out(wand, err);
    }
    return code < 0 || wand->num > 0 ? code : put_run(wand, run, id, err);
}

static int put_end(struct wand *wand, enum np_track_end end)
{
    int code = end_row(wand, NULL);

    wand->part.used = 0;
    for (int i = 0; i < wand->nr_last; i++)
        put_real(wand, &wand->part, UPDATE, wand->last[i].tag, wand->last[i].value);
    if (code == 0)
        code = put_record(wand, RECORD_SUMMARY, &wand->part, NULL);
    wand->part.used = 0;
    if (end != NP_TRACK_DONE) /* protobuf leaves out zeros */
        np_pb_number(&wand->part, EXIT_CODE, 1);
    return code < 0 ? code : put_record(wand, RECORD_EXIT, &wand->part, NULL);
}

static void close_wand(void *state, enum np_track_end end)
{
    struct wand *wand = state;

    if (wand->file) {
        put_end(wand, end);
        fclose(wand->file);
    }
    np_free(wand->path);
    np_free(wand->row.bytes);
    np_free(wand->record.bytes);
    np_free(wand->part.bytes);
    np_free(wand->item.bytes);
    np_free(wand->out.bytes);
    np_free(wand);
}

static int open_wand(const struct np_tracked_run *run, void **ret_state, struct np_err *err)
{
    const char *slash = strrchr(run->dir, '/'), *name = slash ? slash + 1 : run->dir;
    struct wand *wand = np_alloc(sizeof(*wand));
    char id[20];

    snprintf(id, sizeof(id), "%016llx", (unsigned long long)XXH3_64bits(name, strlen(name)));
    const int code = open_file(wand, run, id, err);
    if (code < 0)
        close_wand(wand, NP_TRACK_FAILED);
    else
        *ret_state = wand;
    return code;
}

static int flush(void *state, struct np_err *err)
{
    struct wand *wand = state;

    const int code = end_row(wand, err);

    errno = 0;
    return code < 0 || fflush(wand->file) == 0 ? code : failed(wand, err);
}

const struct np_tracker np_track_wandb = {
    .name = "wandb",
    .open = open_wand,
    .add = add,
    .flush = flush,
    .close = close_wand,
};
