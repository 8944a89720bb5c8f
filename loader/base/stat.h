/* Counters. Every thread owns one block and is its only writer; anybody may read at any
 * time. From these come the live line, the profiler and /metrics. Times are wall-clock
 * nanoseconds of np_now_ns(). Names as in Prometheus: see docs/ARCHITECTURE.md. */
#ifndef NP_STAT_H
#define NP_STAT_H

#include <stdint.h>

enum np_stage {
    NP_STAGE_READ,
    NP_STAGE_DECOMPRESS,
    NP_STAGE_DECODE,
    NP_STAGE_AUGMENT,
    NP_STAGE_BATCH,
    NP_STAGE_COPY,
    NP_STAGE_STEP,
    NP_STAGE_CHECKPOINT,
    NP_NR_STAGES
};
enum np_state { NP_STATE_WORK, NP_STATE_STARVED, NP_STATE_BLOCKED, NP_STATE_IO_WAIT, NP_NR_STATES };

#define NP_HIST_BUCKETS 640 /* 40 octaves of 16: 1 ns to 2.4 hours, each <= 6.25 % wide */

extern const char *const np_stage_names[NP_NR_STAGES]; /* "read", "decompress", ... */
extern const char *const np_state_names[NP_NR_STATES];

struct np_stat;  /* all threads' blocks of one run */
struct np_block; /* one thread's counters */

struct np_tracks;
struct np_spans;

struct np_stat *np_stat_new(void);
void np_stat_free(struct np_stat *stat);
/* The calling thread's block; `thread` ("reader 0", at most 31 bytes) is copied. Owned by stat.
 * NULL when out of memory: the calls below take a NULL block and count nothing. */
struct np_block *np_stat_join(struct np_stat *stat, const char *thread);
/* Threads that join from now on write spans too: of each item (kind: its stage; copies are told by
 * the feed, on the device's own track) and of each state (kind: NP_SPAN_STATE + state). Borrowed. */
void np_stat_trace(struct np_stat *stat, struct np_tracks *tracks);
/* A further track for the block's thread to write, see loader/base/span.h; NULL: there is no trace. */
struct np_spans *np_stat_track(struct np_block *block, const char *name);
/* What the spans from now on belong to; row -1: the whole batch. The block's own thread only. */
void np_stat_about(struct np_block *block, uint64_t batch, int row);
enum { NP_SPAN_STATE = NP_NR_STAGES, NP_SPAN_COMPUTE = NP_NR_STAGES + NP_NR_STATES, NP_NR_SPANS };

/* One item through a stage; its time counts as WORK. The block's own thread only. */
void np_stat_item(struct np_block *block, enum np_stage stage, uint64_t bytes, uint64_t work_ns);
/* The same from start to end, both known: a trace needs no further look at the clock. */
void np_stat_item_between(struct np_block *block, enum np_stage stage, uint64_t bytes,
    uint64_t start_ns, uint64_t end_ns);
/* Time in a state other than work. The block's own thread only. */
void np_stat_state(struct np_block *block, enum np_state state, uint64_t ns);
/* The wait that has begun, named: the call, its object, a number ("np_io_reap", "FILE at byte",
 * offset); np_stat_done() ends it. np_stat_waits() finds it, as "reader 0: np_io_reap: FILE at
 * byte 512, for 5.2 s". `what` and `where` must outlive the wait. */
void np_stat_wait(struct np_block *block, const char *what, const char *where, uint64_t detail);
void np_stat_done(struct np_block *block);

/* Something was in the thread's hands for so long, a read in flight, say: by Little's law their sum over a
 * time is the mean number of them. The block's own thread only. */
void np_stat_held(struct np_block *block, uint64_t ns);
/* What the calling thread has spent so far: work by stage, the disk's waits as `read`, those for a free
 * slot as `batch`. The block's own thread only. */
void np_stat_spent(const struct np_block *block, uint64_t ret_ns[NP_NR_STAGES]);

struct np_stage_sum {
    uint64_t items, bytes, work_ns;
};
struct np_stat_sum {
    struct np_stage_sum stages[NP_NR_STAGES];
    uint64_t state_ns[NP_NR_STATES];
    uint64_t held_ns; /* np_stat_held() */
    int nr_threads;
};
/* Sums over all threads whose name starts with prefix (NULL: all). Any thread. */
void np_stat_read(const struct np_stat *stat, const char *prefix, struct np_stat_sum *ret_sum);
/* Duration at quantile q (0..1) of a stage over all threads, ns; 0 where there is none. */
uint64_t np_stat_quantile(const struct np_stat *stat, enum np_stage stage, double q);
/* Calls report, with one line each, for all waits older than min_ns. Any thread. */
void np_stat_waits(struct np_stat *stat, uint64_t min_ns,
    void (*report)(void *context, const char *text), void *context);

#endif
