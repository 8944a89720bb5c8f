/* The files a run appends to: log (text), metrics.jsonl, bad_samples.jsonl, history.bin.
 * A checkpoint knows how long each was; a resumed run cuts them back to there, so that
 * nothing stands in them twice. The log is for people: it is kept whole, and a line in it tells
 * of the cut.
 *
 *   history.bin: for each step, little-endian: u64 step (before it), u32 rows, u32 sample
 *   index a row (in the training set).
 *
 * np_log_text() any thread; the rest is the main thread's. */
#ifndef NP_RUN_LOG_H
#define NP_RUN_LOG_H

#include <stdio.h>

#include "trainer/checkpoint/checkpoint.h"

struct np_batch;

struct np_run_log {
    FILE *log, *metrics, *bad, *history; /* history NULL: not kept */
    char *dir;
    char *early; /* lines said before there was a log; NULL: none */
};

/* Opens or creates them in dir. position (may be NULL: a new run) cuts all but the log
 * back. */
int np_log_open(struct np_run_log *log, const char *dir, bool history,
    const struct np_position *position, struct np_err *err);
void np_log_close(struct np_run_log *log);
/* A line with the time before it. Before np_log_open() it is kept, and written then. */
void np_log_text(struct np_run_log *log, const char *text);
/* A JSON line (NULL: none) to metrics.jsonl or bad_samples.jsonl. */
void np_log_line(FILE *file, const char *line);
/* What was written so far can be read by others. */
void np_log_flush(struct np_run_log *log);
/* One training batch, `rows` of it. */
void np_log_history(struct np_run_log *log, const struct np_batch *batch, uint32_t rows);
/* All that was written is on the disk; fills the position's offsets. An error of any earlier write
 * comes out here. */
int np_log_sync(struct np_run_log *log, struct np_position *position, struct np_err *err);
/* The same, but what was written need not be on the disk yet. */
int np_log_sizes(struct np_run_log *log, struct np_position *position, struct np_err *err);

#endif
