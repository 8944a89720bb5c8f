/* TensorBoard's event files, in RUN/tensorboard: `tensorboard --logdir runs` lists all runs.
 *
 * A file is a sequence of TFRecords: u64 length, u32 masked CRC-32C of these eight bytes, the
 * message, u32 masked CRC-32C of the message, little-endian
 * (tensorflow/core/lib/io/record_writer.h). A message is an Event of
 * tensorflow/core/util/event.proto; the scalars of a step are the values of one Summary.
 *
 * Each start of a run writes a file of its own, since a TensorBoard that is running does not expect
 * that a file becomes shorter. The older files are cut back to the checkpoint, and the new one says
 * where it begins, so that such a TensorBoard drops what it has read behind that step. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "daemon/track/tracker.h"
#include "daemon/track/tfevents.h"
#include "loader/base/io.h"
#include "loader/base/mem.h"

#define MAX_FILE (1ull << 32)

struct board {
    FILE *file;
    char *path;
    struct np_pb record; /* being written */
};

static int failed(const struct board *board, struct np_err *err)
{
    return np_err_set(err, errno ? -errno : -EIO, "%s: cannot be written: %s", board->path,
        strerror(errno ? errno : EIO));
}

static int put(struct board *board, struct np_err *err)
{
    const size_t bytes = np_tfrecord_end(&board->record);

    errno = 0;
    return fwrite(board->record.bytes, 1, bytes, board->file) == bytes ? 0 : failed(board, err);
}

/* --- older files --------------------------------------------------------------------------- */

struct cut {
    const struct np_tracked_run *run;
    uint64_t bytes; /* of the records that stay */
};

static bool keep(void *context, const struct np_tfevent *event, uint64_t end)
{
    struct cut *cut = context;

    if (*event->tag && np_tracked_again(cut->run, event->step, event->tag))
        return false;
    cut->bytes = end;
    return true;
}

static int cut_back(const struct np_tracked_run *run, const char *path, struct np_err *err)
{
    struct cut cut = {.run = run};
    char *bytes = NULL;
    uint64_t nr_bytes = 0;
    int code = np_read_file(path, MAX_FILE, &bytes, &nr_bytes, err);

    if (code == 0)
        np_tfevents_read((const uint8_t *)bytes, nr_bytes, keep, &cut);
    if (code == 0 && cut.bytes < nr_bytes && truncate(path, (off_t)cut.bytes) < 0)
        code = np_err_set(err, -errno, "%s: cannot be cut back: %s", path, strerror(errno));
    np_free(bytes);
    return code;
}

static int is_events(const struct dirent *entry)
{
    return strncmp(entry->d_name, "events.out.tfevents.", 20) == 0;
}

/* Returns the number of older files, or a negative errno. */
static int cut_all(const struct np_tracked_run *run, const char *folder, struct np_err *err)
{
    struct dirent **entries = NULL;
    const int n = scandir(folder, &entries, is_events, alphasort);
    int code =
        n < 0 ? np_err_set(err, -errno, "%s: cannot be read: %s", folder, strerror(errno)) : 0;

    for (int i = 0; i < n; i++) {
        char *path = np_format("%s/%s", folder, entries[i]->d_name);

        if (code == 0)
            code = cut_back(run, path, err);
        np_free(path);
        free(entries[i]);
    }
    free(entries);
    return code < 0 ? code : n;
}

/* --- the new file -------------------------------------------------------------------------- */

static void close_board(void *state, enum np_track_end end)
{
    struct board *board = state;

    (void)end;
    if (board->file)
        fclose(board->file);
    np_free(board->path);
    np_free(board->record.bytes);
    np_free(board);
}

/* number: of the older files, so that names differ and sort in the order of the starts. */
static int begin_file(struct board *board, const struct np_tracked_run *run, const char *folder,
    int number, struct np_err *err)
{
    const time_t now = time(NULL);
    char host[65] = "localhost";

    gethostname(host, sizeof(host) - 1);
    board->path =
        np_format("%s/events.out.tfevents.%010lld.%06d.%s", folder, (long long)now, number, host);
    const int fd = open(board->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    board->file = fd < 0 ? NULL : fdopen(fd, "w");
    if (!board->file)
        return failed(board, err);
    np_tfrecord_version(&board->record, (double)now);
    int code = put(board, err);
    if (code == 0 && number > 0) {
        np_tfrecord_restart(&board->record, (double)now, run->step + 1);
        code = put(board, err);
    }
    return code;
}

static int open_board(const struct np_tracked_run *run, void **ret_state, struct np_err *err)
{
    struct board *board = np_alloc(sizeof(*board));
    char *folder = np_format("%s/tensorboard", run->dir);
    int code = np_make_dirs(folder, err);

    if (code == 0)
        code = cut_all(run, folder, err);
    if (code >= 0)
        code = begin_file(board, run, folder, code, err);
    np_free(folder);
    if (code < 0)
        close_board(board, NP_TRACK_FAILED);
    else
        *ret_state = board;
    return code;
}

static int add(void *state, uint64_t step, double time, const struct np_scalar *scalars, int n,
    struct np_err *err)
{
    struct board *board = state;

    np_tfrecord_scalars(&board->record, time, step, scalars, n);
    return put(board, err);
}

static int flush(void *state, struct np_err *err)
{
    struct board *board = state;

    errno = 0;
    return fflush(board->file) == 0 ? 0 : failed(board, err);
}

const struct np_tracker np_track_tensorboard = {
    .name = "tensorboard",
    .open = open_board,
    .add = add,
    .flush = flush,
    .close = close_board,
};
