/* Reads a run's log and metrics. Both functions are np_child_fn and run in a child with the
 * owner's rights. The files' contents are untrusted. */
#ifndef NP_LOG_READER_H
#define NP_LOG_READER_H

#include <stdint.h>

#include "loader/base/err.h"

/* The log is output/000001, output/000002, ...: the worker only appends, and removes the oldest
 * segments. A position is a segment and a byte in it: it stays valid when older segments go. */
struct np_log_request {
    const char *dir;
    int segment; /* 0: the oldest */
    int64_t position;
    int64_t tail;  /* with segment 0: start so many bytes before the end; -1: no */
    int64_t lines; /* with segment 0: start so many lines before the end; 0: no */
    double wait_s; /* for new output */
};
/* Writes "SEGMENT:POSITION\n", the position after the text, and then the text: at most
 * NP_MAX_LOG bytes. */
#define NP_MAX_LOG (256u << 10)
int np_reader_log(const void *context, int out_fd);

struct np_metrics_request {
    const char *dir;
    int64_t from; /* a byte of metrics.jsonl: the last answer's `next` */
    int64_t tail; /* start at the first whole line of the last so many bytes; 0: no */
    int64_t max_points;
};
/* Writes {"points": [...], "next": N}: the whole lines that are objects. N below `from`: the file
 * was cut back, and these are its first points. */
#define NP_MAX_METRICS (1u << 20)
int np_reader_metrics(const void *context, int out_fd);

#endif
