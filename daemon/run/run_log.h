/* The files to which a run appends: log (text), metrics.jsonl, bad_samples.jsonl, and if the config
 * asks for them history.bin and sample_losses.bin. A checkpoint stores the length of each, and a
 * resumed run cuts them back to it, so that no line is there twice. The log is for people: it is
 * never cut, and gets a line about the resume.
 *
 *   history.bin: for each step, little-endian: u64 step (before it), u32 rows, u32 sample
 *   index a row (in the training set).
 *   sample_losses.bin: struct np_losses_head, then for each step, little-endian: u64 step (before
 *   it), f32 loss a row.
 *
 * np_log_text() any thread; the rest is the main thread's. */
#ifndef NP_RUN_LOG_H
#define NP_RUN_LOG_H

#include <stdio.h>

#include "trainer/checkpoint/checkpoint.h"

struct np_batch;

enum np_log_file {
    NP_LOG_TEXT,
    NP_LOG_METRICS,
    NP_LOG_BAD,
    NP_LOG_HISTORY,
    NP_LOG_LOSSES,
    NP_NR_LOGS
};

/* The head of sample_losses.bin, 24 bytes, little-endian. */
struct np_losses_head {
    char magic[8];           /* NP_LOSSES_MAGIC, without the NUL */
    uint32_t version, batch; /* 1; rows of a step */
    uint64_t nr_train;       /* samples of an epoch */
};
#define NP_LOSSES_MAGIC "npLosses"
#define NP_LOSSES_FILE  "sample_losses.bin"

struct np_run_log {
    FILE *files[NP_NR_LOGS]; /* NULL: not open, or not wanted */
    bool has_losses;         /* sample_losses.bin has its head */
    char *dir;
    char *early; /* lines logged before the file was open; NULL: none */
};

/* Opens or creates the files in dir. more: bits 1 << NP_LOG_HISTORY and 1 << NP_LOG_LOSSES.
 * position: cuts all but the log back; NULL: a new run. */
int np_log_open(struct np_run_log *log, const char *dir, unsigned more,
    const struct np_position *position, struct np_err *err);
void np_log_close(struct np_run_log *log);
/* Writes a line with a time stamp; before np_log_open() the line is held back until then. */
void np_log_text(struct np_run_log *log, const char *text);
/* Writes a JSON line (NULL: none) to metrics.jsonl or bad_samples.jsonl. */
void np_log_line(struct np_run_log *log, enum np_log_file file, const char *line);
/* Flushes metrics.jsonl, so that other processes can read it. */
void np_log_flush(struct np_run_log *log);
/* Appends the first `rows` rows of a training batch to history.bin. */
void np_log_history(struct np_run_log *log, uint64_t step, const uint64_t *samples, uint32_t rows);
/* Appends the rows' losses (batch) of a step to sample_losses.bin, if it is open. nr_train: for the
 * head of a new file. */
void np_log_losses(
    struct np_run_log *log, uint64_t step, const float *losses, uint32_t batch, uint64_t nr_train);
/* Flushes all files, with `sync` to the disk (blocks), and puts their sizes into the position. Also
 * returns the errors of earlier writes. */
int np_log_sizes(
    struct np_run_log *log, bool sync, struct np_position *position, struct np_err *err);
/* Syncs what has been flushed to the disk; blocks. Any thread, while the log is open. */
int np_log_sync(const struct np_run_log *log, struct np_err *err);

#endif
