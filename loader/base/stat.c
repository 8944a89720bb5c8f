/* Single-writer counters. The owner adds with a relaxed load and store: no other thread writes, so
 * no locked instruction is needed. Readers see each number whole and soon, but not all numbers of
 * one instant. Blocks are only added, to a list whose head is atomic. The time in each state is in
 * the thread's ledger (loader/base/ledger.h). */
#include "loader/base/stat.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "loader/base/clock.h"
#include "loader/base/err.h"
#include "loader/base/ledger.h"
#include "loader/base/mem.h"
#include "loader/base/span.h"
#include "loader/base/tick.h"

#define SUB_BITS 4 /* 16 buckets an octave */
#define MAX_NAME 32

/* A build without counting, to measure its cost (tests/bench/bench_counters.sh). */
#ifdef NP_NO_STAT
#define OFF 1
#else
#define OFF 0
#endif

const char *const np_stage_names[NP_NR_STAGES] = {
    "read", "decompress", "decode", "augment", "batch", "copy", "step", "checkpoint"};
const char *const np_state_names[NP_NR_STATES] = {"work", "starved", "blocked", "io_wait"};

struct stage {
    _Atomic uint64_t items, bytes, work_ns;
    _Atomic uint64_t buckets[NP_HIST_BUCKETS];
};

_Static_assert(NP_LEDGER_STATES == NP_NR_STATES, "a ledger has every state");

/* A lap, pass or wait. */
struct doing {
    uint64_t end_ns, ns;
    int stage;
};

#define COPYING (1ull << 63) /* bit of since_ns */

/* The current wait of a thread. Its strings belong to the thread: a reader sets COPYING while it
 * copies them, and the end of the wait waits for that copy alone. */
struct wait {
    _Atomic uint64_t since_ns; /* 0: no wait */
    _Atomic(const char *) what;
    _Atomic(const char *) where; /* or NULL */
    _Atomic uint64_t detail;
    /* Under COPYING: the start of the last reported wait, and its number of reports. */
    _Atomic uint64_t reported_ns, nr_reports;
};

struct np_block {
    _Alignas(NP_ALIGN) struct stage stages[NP_NR_STAGES];
    _Alignas(NP_ALIGN) struct np_ledger ledger;
    _Atomic uint64_t blame_ns[NP_NR_STAGES];
    _Atomic uint64_t cpu_ns, delay_ns; /* set when the thread leaves */
    struct wait wait;

    /* the block's own thread only */
    struct np_tick tick;
    uint64_t lap_ns;    /* the last lap or pass, plus the waits since */
    uint64_t now_ns;    /* the last reading of the clock */
    uint64_t waited_ns; /* start of the wait */
    uint64_t nr_doings;
    struct doing doings[NP_STAT_RECENT];

    struct np_spans *spans;       /* set once; NULL: no trace */
    struct np_tracks *tracks;     /* set once */
    int tid;                      /* set once */
    char thread[MAX_NAME];        /* set once */
    const struct np_block *older; /* set once */
};

struct np_stat {
    _Atomic(struct np_block *) newest;
    struct np_tracks *tracks; /* NULL: no trace; set before threads join */
};

struct np_stat *np_stat_new(struct np_err *err)
{
    return np_try_alloc(sizeof(struct np_stat), err);
}

void np_stat_free(struct np_stat *stat)
{
    const struct np_block *block, *older;

    if (!stat)
        return;
    for (block = atomic_load(&stat->newest); block; block = older) {
        older = block->older;
        np_free((void *)block);
    }
    np_free(stat);
}

struct np_block *np_stat_join(struct np_stat *stat, const char *thread, struct np_err *err)
{
    struct np_block *block = stat ? np_try_alloc(sizeof(*block), err) : NULL, *newest;

    if (!block)
        return NULL;
    snprintf(block->thread, sizeof(block->thread), "%s", thread);
    block->tid = gettid();
    np_tick_init(&block->tick);
    block->lap_ns = block->now_ns = np_now_ns();
    np_ledger_init(&block->ledger, block->now_ns);
    block->tracks = stat->tracks;
    if (stat->tracks)
        block->spans = np_tracks_join(stat->tracks, thread, gettid());
    newest = atomic_load_explicit(&stat->newest, memory_order_relaxed);
    do
        block->older = newest;
    while (!atomic_compare_exchange_weak_explicit(
        &stat->newest, &newest, block, memory_order_release, memory_order_relaxed));
    return block;
}

void np_stat_trace(struct np_stat *stat, struct np_tracks *tracks)
{
    stat->tracks = tracks;
}

struct np_spans *np_stat_track(struct np_block *block, const char *name)
{
    return block && block->tracks ? np_tracks_join(block->tracks, name, 0) : NULL;
}

void np_stat_about(struct np_block *block, uint64_t batch, int row)
{
    if (block && block->spans)
        np_spans_about(block->spans, batch, row);
}

/* Pairs with the release in np_stat_join(): name and link of each block are set. */
static struct np_block *first(const struct np_stat *stat)
{
    return atomic_load_explicit(&((struct np_stat *)stat)->newest, memory_order_acquire);
}

static uint64_t get(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

static void put(_Atomic uint64_t *counter, uint64_t n)
{
    atomic_store_explicit(counter, n, memory_order_relaxed);
}

static void add(_Atomic uint64_t *counter, uint64_t n)
{
    put(counter, get(counter) + n);
}

/* Below 16 ns one bucket a nanosecond; above, 16 equal ones from 2^k to 2^(k+1). */
static int bucket_of(uint64_t ns)
{
    int octave, index;

    if (ns < 1 << SUB_BITS)
        return (int)ns;
    octave = 63 - __builtin_clzll(ns);
    index = (octave - SUB_BITS + 1) << SUB_BITS |
            (int)(ns >> (octave - SUB_BITS) & ((1 << SUB_BITS) - 1));
    return index < NP_HIST_BUCKETS ? index : NP_HIST_BUCKETS - 1;
}

static uint64_t bucket_middle(int index)
{
    int shift = (index >> SUB_BITS) - 1;
    uint64_t low;

    if (shift < 0)
        return (uint64_t)index;
    low = (uint64_t)(1 << SUB_BITS | (index & ((1 << SUB_BITS) - 1))) << shift;
    return low + ((1ull << shift) >> 1);
}

static void count(struct stage *at, uint64_t bytes, uint64_t work_ns, uint64_t item_ns)
{
    add(&at->items, 1);
    add(&at->bytes, bytes);
    add(&at->work_ns, work_ns);
    add(&at->buckets[bucket_of(item_ns)], 1);
}

void np_stat_item(struct np_block *block, enum np_stage stage, uint64_t bytes, uint64_t work_ns)
{
    if (!block || OFF)
        return;
    count(&block->stages[stage], bytes, work_ns, work_ns);
    if (block->spans && stage != NP_STAGE_COPY)
        np_spans_put(block->spans, (int)stage, bytes, work_ns, np_now_ns());
}

/* --- waits ----------------------------------------------------------------------------------- */

static void begin_wait(
    struct wait *wait, const char *what, const char *where, uint64_t detail, uint64_t since_ns)
{
    atomic_store_explicit(&wait->what, what, memory_order_relaxed);
    atomic_store_explicit(&wait->where, where, memory_order_relaxed);
    put(&wait->detail, detail);
    /* Pairs with the exchange in report_wait(). */
    atomic_store_explicit(&wait->since_ns, since_ns, memory_order_release);
}

/* Called by the waiting thread, or by a thread that has abandoned it. */
static void end_wait(struct wait *wait)
{
    uint64_t since = get(&wait->since_ns);

    for (;;) {
        since &= ~COPYING;
        /* Pairs with the release at the end of report_wait(). */
        if (atomic_compare_exchange_weak_explicit(
                &wait->since_ns, &since, 0, memory_order_acquire, memory_order_relaxed))
            return;
        if (since & COPYING)
            sched_yield(); /* another thread copies the strings */
    }
}

/* Under COPYING. True: the wait has lasted another min_ns since its last report. */
static bool is_due(struct wait *wait, uint64_t since, uint64_t lasted_ns, uint64_t min_ns)
{
    const uint64_t nr_reports = get(&wait->reported_ns) == since ? get(&wait->nr_reports) : 0;

    if (lasted_ns < (nr_reports + 1) * min_ns)
        return false;
    put(&wait->reported_ns, since);
    put(&wait->nr_reports, nr_reports + 1);
    return true;
}

/* True: the wait has lasted min_ns, or another min_ns since its last report. Then text is "THREAD:
 * WHAT: WHERE DETAIL, for 5.2 s". Any thread. */
static bool report_wait(
    struct wait *wait, const char *thread, uint64_t min_ns, char *text, size_t bytes)
{
    uint64_t since = get(&wait->since_ns);
    const uint64_t now = np_now_ns();

    /* COPYING: another thread reports this wait. The exchange fails if the wait has ended. */
    if (since == 0 || since & COPYING || now < since || now - since < min_ns ||
        !atomic_compare_exchange_strong_explicit(
            &wait->since_ns, &since, since | COPYING, memory_order_acquire, memory_order_relaxed))
        return false;
    const bool due = is_due(wait, since, now - since, min_ns);
    if (due) {
        const char *where = atomic_load_explicit(&wait->where, memory_order_relaxed);

        snprintf(text, bytes, "%s: %s: %s %llu, for %.1f s", thread,
            atomic_load_explicit(&wait->what, memory_order_relaxed), where ? where : "",
            (unsigned long long)get(&wait->detail), (double)(now - since) * 1e-9);
        np_text_hide(text); /* where may be a URL */
    }
    atomic_store_explicit(&wait->since_ns, since, memory_order_release);
    return due;
}

/* --- the thread's time ----------------------------------------------------------------------- */

static void remember(struct np_block *block, enum np_stage stage, uint64_t ns)
{
    block->doings[block->nr_doings++ % NP_STAT_RECENT] =
        (struct doing){.end_ns = block->now_ns, .ns = ns, .stage = (int)stage};
}

/* The clock of laps may be some microseconds ahead of this one, or behind. */
static void look(struct np_block *block, uint64_t now_ns)
{
    if (now_ns > block->now_ns)
        block->now_ns = now_ns;
}

static uint64_t lap(struct np_block *block, enum np_stage stage)
{
    look(block, np_tick_ns(&block->tick));

    const uint64_t ns = block->now_ns - block->lap_ns;
    block->lap_ns = block->now_ns;
    remember(block, stage, ns);
    return ns;
}

void np_stat_lap(struct np_block *block, enum np_stage stage, uint64_t bytes, uint64_t earlier_ns)
{
    if (!block || OFF)
        return;
    const uint64_t ns = lap(block, stage);
    count(&block->stages[stage], bytes, ns, ns + earlier_ns);
    if (block->spans)
        np_spans_put(block->spans, (int)stage, bytes, ns, block->now_ns);
}

uint64_t np_stat_pass(struct np_block *block, enum np_stage stage)
{
    if (!block || OFF)
        return 0;
    const uint64_t ns = lap(block, stage);
    add(&block->stages[stage].work_ns, ns);
    if (block->spans)
        np_spans_put(block->spans, NP_SPAN_PART + (int)stage, 0, ns, block->now_ns);
    return ns;
}

void np_stat_wait(struct np_block *block, enum np_state state, const char *what, const char *where,
    uint64_t detail)
{
    if (!block)
        return;
    look(block, np_now_ns());
    block->waited_ns = block->now_ns;
    if (!OFF)
        np_ledger_enter(&block->ledger, (int)state, block->now_ns);
    begin_wait(&block->wait, what, where, detail, block->now_ns);
}

void np_stat_call(struct np_block *block, const char *what, const char *where, uint64_t detail)
{
    if (block)
        begin_wait(&block->wait, what, where, detail, np_now_ns());
}

void np_stat_called(struct np_block *block)
{
    if (block)
        end_wait(&block->wait);
}

void np_stat_done(struct np_block *block)
{
    if (!block)
        return;
    end_wait(&block->wait);
    const int state = np_ledger_state(&block->ledger);
    look(block, np_now_ns());
    const uint64_t ns = block->now_ns - block->waited_ns;
    if (!OFF)
        np_ledger_enter(&block->ledger, NP_STATE_WORK, block->now_ns);
    block->lap_ns += ns;
    remember(block, state == NP_STATE_IO_WAIT ? NP_STAGE_READ : NP_STAGE_BATCH, ns);
    if (block->spans)
        np_spans_put(block->spans, NP_SPAN_STATE + state, 0, ns, block->now_ns);
}

void np_stat_leave(struct np_block *block)
{
    if (!block)
        return;
    uint64_t cpu_ns, delay_ns;
    look(block, np_now_ns());
    if (np_sched_read(block->tid, &cpu_ns, &delay_ns)) { /* before the ledger has NP_LEDGER_LEFT */
        put(&block->cpu_ns, cpu_ns);
        put(&block->delay_ns, delay_ns);
    }
    if (!OFF)
        np_ledger_leave(&block->ledger, block->now_ns);
}

void np_stat_in_flight(struct np_block *block, int nr_reads)
{
    if (block && !OFF)
        np_ledger_in_flight(&block->ledger, nr_reads, block->now_ns);
}

void np_stat_recent(
    const struct np_block *block, uint64_t since_ns, uint64_t now_ns, uint64_t ret_ns[NP_NR_STAGES])
{
    memset(ret_ns, 0, NP_NR_STAGES * sizeof(*ret_ns));
    if (!block || OFF)
        return;
    if (now_ns > block->now_ns)
        ret_ns[NP_STAGE_BATCH] += now_ns - (block->now_ns > since_ns ? block->now_ns : since_ns);
    for (uint64_t i = block->nr_doings; i > 0 && block->nr_doings - i < NP_STAT_RECENT; i--) {
        const struct doing *doing = &block->doings[(i - 1) % NP_STAT_RECENT];

        if (doing->end_ns <= since_ns)
            return;
        ret_ns[doing->stage] +=
            doing->ns < doing->end_ns - since_ns ? doing->ns : doing->end_ns - since_ns;
    }
}

void np_stat_blame(struct np_block *block, enum np_stage stage, uint64_t ns)
{
    if (block && !OFF)
        add(&block->blame_ns[stage], ns);
}

/* --- reading --------------------------------------------------------------------------------- */

void np_stat_read(const struct np_stat *stat, const char *prefix, struct np_stat_sum *ret_sum)
{
    struct np_stat_sum sum = {.nr_threads = 0};

    for (const struct np_block *block = first(stat); block; block = block->older) {
        if (prefix && strncmp(block->thread, prefix, strlen(prefix)) != 0)
            continue;
        sum.nr_threads++;
        for (int i = 0; i < NP_NR_STAGES; i++) {
            sum.stages[i].items += get(&block->stages[i].items);
            sum.stages[i].bytes += get(&block->stages[i].bytes);
            sum.stages[i].work_ns += get(&block->stages[i].work_ns);
            sum.blame_ns[i] += get(&block->blame_ns[i]);
        }
        np_ledger_add(&block->ledger, sum.state_ns, &sum.in_flight_ns);
    }
    *ret_sum = sum;
}

void np_stat_sched(
    const struct np_stat *stat, const char *prefix, uint64_t *ret_cpu_ns, uint64_t *ret_delay_ns)
{
    *ret_cpu_ns = *ret_delay_ns = 0;
    for (const struct np_block *block = first(stat); block; block = block->older) {
        uint64_t cpu_ns, delay_ns;

        if (prefix && strncmp(block->thread, prefix, strlen(prefix)) != 0)
            continue;
        /* A thread leaves first and ends later. */
        if (np_ledger_state(&block->ledger) == NP_LEDGER_LEFT ||
            !np_sched_read(block->tid, &cpu_ns, &delay_ns)) {
            cpu_ns = get(&block->cpu_ns);
            delay_ns = get(&block->delay_ns);
        }
        *ret_cpu_ns += cpu_ns;
        *ret_delay_ns += delay_ns;
    }
}

/* Nearest rank, 1-based. */
uint64_t np_stat_quantile(const struct np_stat *stat, enum np_stage stage, double q)
{
    uint64_t buckets[NP_HIST_BUCKETS] = {0}, total = 0, below = 0;
    double rank;

    for (const struct np_block *block = first(stat); block; block = block->older)
        for (int i = 0; i < NP_HIST_BUCKETS; i++)
            buckets[i] += get(&block->stages[stage].buckets[i]);
    for (int i = 0; i < NP_HIST_BUCKETS; i++)
        total += buckets[i];
    if (total == 0)
        return 0;
    rank = q * (double)total;
    for (int i = 0; i < NP_HIST_BUCKETS; i++) {
        below += buckets[i];
        if (below > 0 && (double)below >= rank)
            return bucket_middle(i);
    }
    return bucket_middle(NP_HIST_BUCKETS - 1);
}

void np_stat_waits(struct np_stat *stat, uint64_t min_ns,
    void (*report)(void *context, const char *text), void *context)
{
    for (struct np_block *block = first(stat); block; block = (struct np_block *)block->older) {
        char text[1200];

        if (report_wait(&block->wait, block->thread, min_ns, text, sizeof(text)))
            report(context, text);
    }
}
