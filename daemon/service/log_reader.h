/* What a run's folder has to read: its log and its metrics. Both are np_child_fn: they run with its owner's rights, in
 * a process of their own, and take what they find as anybody's bytes. */
#ifndef NP_LOG_READER_H
#define NP_LOG_READER_H

#include <stdint.h>

#include "loader/base/err.h"

/* The log is output/000001, output/000002, ...: bytes that its worker only ever adds to; the oldest go. A place in it
 * is a segment and a byte, whatever was taken away since. */
struct np_log_wish {
    const char *dir;
    int segment; /* 0: the oldest that is there */
    int64_t position;
    int64_t tail;  /* with segment 0: the last so many bytes; -1: from the start */
    int64_t lines; /* with segment 0: the last so many lines; 0: from the start, or by tail */
    double wait_s; /* for something new */
};
/* Says "SEGMENT:POSITION\n", the place behind what follows: at most NP_MAX_LOG bytes of it. */
#define NP_MAX_LOG (256u << 10)
int np_reader_log(const void *log_wish, int out_fd);

struct np_metrics_wish {
    const char *dir;
    int64_t from; /* a byte of metrics.jsonl, as next gave it */
    int64_t tail; /* 0, or: the last so many bytes, from the first whole line on */
    int64_t most; /* points */
};
/* Says {"points": [...], "next": N}: whole lines that are objects; others are left out. N below `from`: the file was cut
 * back, and this is its start. */
#define NP_MAX_METRICS (1u << 20)
int np_reader_metrics(const void *metrics_wish, int out_fd);

#endif
