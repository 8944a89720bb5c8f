/* Counters. Every thread owns one block and is its only writer; any thread may read at any
 * time. From these come the live line, the profiler and /metrics. Times are wall-clock
 * nanoseconds of np_now_ns(). Names as in Prometheus: see docs/ARCHITECTURE.md. */
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
/* The calling thread's block; `thread` ("reader 0", at most 31 bytes) is copied. Owned by stat.
 * NULL when out of memory, or with a NULL stat: the calls below take a NULL block and count
 * nothing. */
struct np_block *np_stat_join(struct np_stat *stat, const char *thread, struct np_err *err);
/* Threads that join from now on write spans too: of each item (kind: its stage; copies are told by
 * the feed, on the device's own track) and of each state (kind: NP_SPAN_STATE + state). Borrowed.
 * */
void np_stat_trace(struct np_stat *stat, struct np_tracks *tracks);
/* A further track for the block's thread to write, see loader/base/span.h; NULL: there is no trace.
 * */
struct np_spans *np_stat_track(struct np_block *block, const char *name);
/* What the spans from now on belong to; row -1: the whole batch. The block's own thread only. */
void np_stat_about(struct np_block *block, uint64_t batch, int row);
/* Kinds of spans beside the stages: states, what a device computes of a batch, and a stage's work
 * on an item that is not through it yet (np_stat_pass()). */
enum {
    NP_SPAN_STATE = NP_NR_STAGES,
    NP_SPAN_COMPUTE = NP_SPAN_STATE + NP_NR_STATES,
    NP_SPAN_PART,
    NP_NR_SPANS = NP_SPAN_PART + NP_NR_STAGES
};

/* One item through a stage that took so long, by whatever clock: of the device, or with waits in
 * it. The block's own thread only. */
void np_stat_item(struct np_block *block, enum np_stage stage, uint64_t bytes, uint64_t work_ns);
/* An item that this thread has worked on: the time since its last lap or pass (since it joined, at
 * first) goes to the stage, waits left out. So no work is without a stage in a thread that does
 * nothing else. earlier_ns: what np_stat_pass() gave for the same item. The block's own thread
 * only. */
void np_stat_lap(struct np_block *block, enum np_stage stage, uint64_t bytes, uint64_t earlier_ns);
/* The same without an item that ends here; returns the time. */
uint64_t np_stat_pass(struct np_block *block, enum np_stage stage);
/* The wait that has begun, and its state, named: the call, its object, a number ("np_io_reap",
 * "FILE at byte", offset); np_stat_done() ends it. np_stat_waits() finds it, as "reader 0:
 * np_io_reap: FILE at byte 512, for 5.2 s". `what` and `where` must outlive the wait. The thread's
 * time is WORK from np_stat_join() to np_stat_leave() but for what lies in waits. The block's own
 * thread only. */
void np_stat_wait(struct np_block *block, enum np_state state, const char *what, const char *where,
    uint64_t detail);
void np_stat_done(struct np_block *block);
/* Begins a call that may hang, such as open(): reported by name as a wait is, though it counts as
 * work, until np_stat_called(). Not within a wait. The block's own thread; a thread that abandons
 * this one may call np_stat_called() for it, for a wait too. */
void np_stat_call(struct np_block *block, const char *what, const char *where, uint64_t detail);
void np_stat_called(struct np_block *block);
/* The thread ends; reads what the scheduler says of it. */
void np_stat_leave(struct np_block *block);

/* From now on the thread has so many reads in flight. The block's own thread only. */
void np_stat_in_flight(struct np_block *block, int nr_reads);
/* What the thread did between since_ns and now_ns: laps and passes by stage, waits for the disk as
 * `read`, those for a free slot as `batch`, and so what it does since. Of its newest NP_STAT_RECENT
 * doings alone. The block's own thread only. */
#define NP_STAT_RECENT 64
void np_stat_recent(const struct np_block *block, uint64_t since_ns, uint64_t now_ns,
    uint64_t ret_ns[NP_NR_STAGES]);

/* So much of a stall is the stage's fault. The block's own thread only. */
void np_stat_blame(struct np_block *block, enum np_stage stage, uint64_t ns);

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
/* Sums over all threads whose name starts with prefix (NULL: all), up to this moment: what a thread
 * is at is in the states, but in its stage only once it is through. Any thread. */
void np_stat_read(const struct np_stat *stat, const char *prefix, struct np_stat_sum *ret_sum);
/* What the kernel's scheduler says of them: on a core, and ready but without one (np_sched_read());
 * of those that have left, when they did. Any thread. */
void np_stat_sched(
    const struct np_stat *stat, const char *prefix, uint64_t *ret_cpu_ns, uint64_t *ret_delay_ns);
/* Duration at quantile q (0..1) of a stage over all threads, ns; 0 where there is none. */
uint64_t np_stat_quantile(const struct np_stat *stat, enum np_stage stage, double q);
/* Calls report, with one line each, for the waits that have lasted min_ns; called often enough,
 * again for each further min_ns. Any thread. */
void np_stat_waits(struct np_stat *stat, uint64_t min_ns,
    void (*report)(void *context, const char *text), void *context);

#endif
