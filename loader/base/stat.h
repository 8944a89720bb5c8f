/* Counters, for the live line, the profiler and /metrics. Each thread owns one block and is its
 * only writer; any thread may read at any time. Times are nanoseconds of np_now_ns(). See
 * docs/ARCHITECTURE.md. */
#ifndef NP_STAT_H
#define NP_STAT_H

#include <stdint.h>

#include "loader/base/err.h"

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

struct np_stat *np_stat_new(struct np_err *err); /* NULL: out of memory */
void np_stat_free(struct np_stat *stat);
/* The calling thread's block; `thread` ("reader 0", at most 31 bytes) is copied. stat owns it.
 * NULL: out of memory, or stat is NULL; the calls below accept a NULL block and count nothing. */
struct np_block *np_stat_join(struct np_stat *stat, const char *thread, struct np_err *err);
/* Threads that join later write spans too: of each item (kind: its stage; the feed writes copies on
 * the device's own track) and of each state (kind: NP_SPAN_STATE + state). tracks is borrowed. */
void np_stat_trace(struct np_stat *stat, struct np_tracks *tracks);

/* Only the block's own thread makes the calls from here to np_stat_blame(). */

/* Adds a second track for the thread to write (loader/base/span.h). NULL: there is no trace. */
struct np_spans *np_stat_track(struct np_block *block, const char *name);
/* Sets batch and row of the next spans; row -1: the whole batch. */
void np_stat_about(struct np_block *block, uint64_t batch, int row);
/* Kinds of spans besides the stages: states, a device's computation, and a stage's work on an item
 * that the stage has not finished (np_stat_pass()). */
enum {
    NP_SPAN_STATE = NP_NR_STAGES,
    NP_SPAN_COMPUTE = NP_SPAN_STATE + NP_NR_STATES,
    NP_SPAN_PART,
    NP_NR_SPANS = NP_SPAN_PART + NP_NR_STAGES
};

/* Counts an item with a time from any clock, for example a device's. */
void np_stat_item(struct np_block *block, enum np_stage stage, uint64_t bytes, uint64_t work_ns);
/* Counts an item, with the time since the last lap or pass (at first: since the thread joined),
 * without waits. So all work of a thread belongs to a stage. earlier_ns: the results of
 * np_stat_pass() for the same item. */
void np_stat_lap(struct np_block *block, enum np_stage stage, uint64_t bytes, uint64_t earlier_ns);
/* The same for an item that the stage has not finished; returns the time. */
uint64_t np_stat_pass(struct np_block *block, enum np_stage stage);
/* Begins a wait in this state; np_stat_done() ends it. `what` and `where` name it for
 * np_stat_waits() and must outlive it: "np_io_reap", "FILE at byte", 512 gives "reader 0:
 * np_io_reap: FILE at byte 512, for 5.2 s". All time outside of waits, from np_stat_join() to
 * np_stat_leave(), is WORK. */
void np_stat_wait(struct np_block *block, enum np_state state, const char *what, const char *where,
    uint64_t detail);
void np_stat_done(struct np_block *block);
/* Begins a call that may hang, such as open(), outside of a wait; np_stat_called() ends it. It
 * counts as work, but is reported like a wait. A thread that abandons this one may call
 * np_stat_called() for it, also to end a wait. */
void np_stat_call(struct np_block *block, const char *what, const char *where, uint64_t detail);
void np_stat_called(struct np_block *block);
/* Ends the thread's time, and reads its times from the scheduler. */
void np_stat_leave(struct np_block *block);
void np_stat_in_flight(struct np_block *block, int nr_reads);
/* The thread's time between since_ns and now_ns by stage: laps and passes; waits for the disk count
 * as `read`; waits for a free slot, and the time after the last lap, pass or wait, as `batch`.
 * Covers only the last NP_STAT_RECENT laps, passes and waits. */
#define NP_STAT_RECENT 64
void np_stat_recent(const struct np_block *block, uint64_t since_ns, uint64_t now_ns,
    uint64_t ret_ns[NP_NR_STAGES]);
/* Adds ns of a stall that this stage caused. */
void np_stat_blame(struct np_block *block, enum np_stage stage, uint64_t ns);

/* Any thread makes the calls from here on. */

struct np_stage_sum {
    uint64_t items, bytes, work_ns;
};
struct np_stat_sum {
    struct np_stage_sum stages[NP_NR_STAGES];
    uint64_t state_ns[NP_NR_STATES]; /* add up to the threads' time */
    uint64_t in_flight_ns;           /* np_stat_in_flight(): reads x time */
    uint64_t blame_ns[NP_NR_STAGES]; /* np_stat_blame() */
    int nr_threads;
};
/* Sums over all threads whose name starts with prefix (NULL: all), up to this moment. Unfinished
 * work counts in the states, but not yet in its stage. */
void np_stat_read(const struct np_stat *stat, const char *prefix, struct np_stat_sum *ret_sum);
/* Sums of np_sched_read() over these threads; for a thread that has left, up to that moment. */
void np_stat_sched(
    const struct np_stat *stat, const char *prefix, uint64_t *ret_cpu_ns, uint64_t *ret_delay_ns);
/* Quantile q (0..1) of the durations of a stage over all threads, ns; 0: no items. */
uint64_t np_stat_quantile(const struct np_stat *stat, enum np_stage stage, double q);
/* Calls report() with a line for each wait that has lasted min_ns, and again after every further
 * min_ns. */
void np_stat_waits(struct np_stat *stat, uint64_t min_ns,
    void (*report)(void *context, const char *text), void *context);

#endif
