/* The drain thread: takes the spans from the tracks' rings forty times a second, encodes them
 * (trace_encode.c) and writes them in whole packets, so that a killed process leaves a valid
 * trace. */
#include "daemon/analysis/trace.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "daemon/analysis/trace_encode.h"
#include "loader/base/clock.h"
#include "loader/base/mem.h"
#include "loader/base/stat.h"
#include "loader/base/text.h"

#define TICK_NS      25000000ull  /* a ring holds at least four ticks, at 80 000 images a second */
#define FLUSH_NS     500000000ull /* a kill loses at most that */
#define GAUGE_NS     100000000ull /* interval for a counter that does not change */
#define CHUNK        512          /* spans taken at once */
#define BUFFER_BYTES (256 << 10)
#define TAIL_BYTES   256 /* reserved for the final mark */
#define MAX_TRACKS   4096
#define NICENESS     5 /* as the readers: compute threads go first */

struct track {
    bool begun;
    uint64_t dropped; /* recorded in the file */
    uint64_t end_ns;  /* of the last span */
};

struct np_trace {
    char *path; /* set once */
    int fd;
    uint64_t limit;
    struct np_tracks *tracks;
    struct np_trace_file file;
    pthread_t thread;
    bool running; /* used only by the owner of the trace */

    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool stops;                 /* under lock */
    const struct np_ring *ring; /* under lock; NULL: none */
    int batch;                  /* under lock */

    /* drain thread only */
    uint8_t *bytes, *at; /* (BUFFER_BYTES); the end of the packets in it */
    uint64_t written;    /* whole packets in the file */
    uint64_t flushed_ns;
    struct np_trace_sums sums;
    uint64_t pending;              /* spans in the buffer */
    int code;                      /* the error that ended writing; 0: none */
    struct track *tracks_seen;     /* (MAX_TRACKS), by number */
    struct np_span *chunk;         /* (CHUNK) */
    uint64_t rate_ns, rate_images; /* images since rate_ns */
    uint64_t ready_ns;
    int ready;
};

/* --- the file ------------------------------------------------------------------------------ */

static int write_all(int fd, const uint8_t *bytes, size_t nr)
{
    while (nr > 0) {
        const ssize_t wrote = write(fd, bytes, nr);

        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote <= 0)
            return wrote < 0 ? -errno : -EIO;
        bytes += wrote;
        nr -= (size_t)wrote;
    }
    return 0;
}

/* Drops the whole buffer if it does not fit, so that the file stays valid. */
static int flush(struct np_trace *trace)
{
    const size_t nr = (size_t)(trace->at - trace->bytes);
    const int code = write_all(trace->fd, trace->bytes, nr);

    if (code == 0) {
        trace->written += nr;
    } else {
        if (ftruncate(trace->fd, (off_t)trace->written) == 0)
            lseek(trace->fd, (off_t)trace->written, SEEK_SET);
        trace->sums.spans -= trace->pending;
        trace->sums.left += trace->pending;
    }
    trace->pending = 0;
    trace->at = trace->bytes;
    return code;
}

static void flush_or_end(struct np_trace *trace)
{
    if (trace->code == 0)
        trace->code = flush(trace);
}

/* May one more call of np_trace_*() write its packets? */
static bool has_room(struct np_trace *trace)
{
    if (trace->code < 0)
        return false;
    if (trace->at + NP_TRACE_MAX > trace->bytes + BUFFER_BYTES)
        flush_or_end(trace);
    return trace->code == 0 &&
           trace->written + (uint64_t)(trace->at - trace->bytes) + NP_TRACE_MAX + TAIL_BYTES <=
               trace->limit;
}

/* Keeps the bytes that an encoder has written, up to end. */
static void append(struct np_trace *trace, uint8_t *end)
{
    assert(end - trace->at <= NP_TRACE_MAX && end <= trace->bytes + BUFFER_BYTES);
    trace->at = end;
}

/* --- spans --------------------------------------------------------------------------------- */

/* The first track of that name: threads that follow one another share a row. */
static const struct np_spans *first_of_name(const struct np_spans *spans)
{
    const struct np_spans *first = spans;

    for (const struct np_spans *at = spans->older; at; at = at->older)
        if (strcmp(at->name, spans->name) == 0)
            first = at;
    return first;
}

static void begin_track(struct np_trace *trace, const struct np_spans *spans, struct track *track)
{
    if (track->begun || !has_room(trace))
        return;
    const struct np_spans *shown = first_of_name(spans);

    append(trace, np_trace_track(trace->at, &trace->file, spans->number, shown->number, shown->name,
                      shown->tid));
    track->begun = true;
}

/* Writes the rate at a step's end, over at least a tenth of a second. */
static void count_images(struct np_trace *trace, uint64_t end_ns, int batch)
{
    if (trace->rate_ns == 0 || end_ns < trace->rate_ns) {
        trace->rate_ns = end_ns;
        return;
    }
    trace->rate_images += (uint64_t)batch;
    if (end_ns - trace->rate_ns < GAUGE_NS)
        return;
    if (has_room(trace))
        append(trace, np_trace_gauge(trace->at, NP_TRACE_RATE, end_ns,
                          (double)trace->rate_images * 1e9 / (double)(end_ns - trace->rate_ns)));
    trace->rate_ns = end_ns;
    trace->rate_images = 0;
}

static void write_span(struct np_trace *trace, const struct np_spans *spans, struct track *track,
    const struct np_span *span)
{
    track->end_ns = span->start_ns + span->ns;
    if (!track->begun || !has_room(trace)) {
        trace->sums.left++;
        return;
    }
    append(trace, np_trace_span(trace->at, spans->number, span));
    trace->sums.spans++;
    trace->pending++;
}

/* Marks missing spans, after those that were in the ring. */
static void note_gap(struct np_trace *trace, const struct np_spans *spans, struct track *track)
{
    const uint64_t dropped = np_spans_dropped(spans);

    if (dropped == track->dropped)
        return;
    trace->sums.dropped += dropped - track->dropped;
    if (track->begun && has_room(trace))
        append(
            trace, np_trace_gap(trace->at, spans->number, track->end_ns, dropped - track->dropped));
    track->dropped = dropped;
}

static void drain_track(struct np_trace *trace, struct np_spans *spans, int batch)
{
    struct track *track = &trace->tracks_seen[spans->number];
    int nr, nr_chunks =
                2 * NP_SPAN_SLOTS / CHUNK; /* limit, so that one track cannot delay the others */

    do {
        nr = np_spans_take(spans, trace->chunk, CHUNK);
        if (nr > 0)
            begin_track(trace, spans, track);
        for (int i = 0; i < nr; i++) {
            write_span(trace, spans, track, &trace->chunk[i]);
            if (trace->chunk[i].kind == NP_STAGE_STEP)
                count_images(trace, track->end_ns, batch);
        }
    } while (nr == CHUNK && --nr_chunks > 0);
    note_gap(trace, spans, track);
}

static void drain(struct np_trace *trace, int batch)
{
    for (struct np_spans *at = np_tracks_newest(trace->tracks); at; at = at->older)
        if (at->number < MAX_TRACKS)
            drain_track(trace, at, batch);
}

/* --- the thread ---------------------------------------------------------------------------- */

static void gauge_ready(struct np_trace *trace, int ready)
{
    const uint64_t now_ns = np_now_ns();

    if (ready == trace->ready && now_ns - trace->ready_ns < GAUGE_NS)
        return;
    if (has_room(trace))
        append(trace, np_trace_gauge(trace->at, NP_TRACE_READY, now_ns, ready));
    trace->ready = ready;
    trace->ready_ns = now_ns;
}

/* Sleeps a tick. True: this tick is the last. *ret_ready: batches in the ring, -1: no ring. */
static bool next_tick(struct np_trace *trace, int *ret_ready, int *ret_batch)
{
    const uint64_t then_ns = np_now_ns() + TICK_NS;
    const struct timespec then = {(time_t)(then_ns / 1000000000), (long)(then_ns % 1000000000)};
    bool stops;

    pthread_mutex_lock(&trace->lock);
    if (!trace->stops)
        pthread_cond_timedwait(&trace->wake, &trace->lock, &then);
    stops = trace->stops;
    *ret_ready = trace->ring ? np_ring_full(trace->ring) : -1;
    *ret_batch = trace->batch;
    pthread_mutex_unlock(&trace->lock);
    return stops;
}

static void *drain_main(void *context)
{
    struct np_trace *trace = context;
    bool stops;
    int ready, batch;

    pthread_setname_np(pthread_self(), "trace");
    /* On Linux this changes the calling thread only. A failure is ignored. */
    setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), getpriority(PRIO_PROCESS, 0) + NICENESS);
    do {
        stops = next_tick(trace, &ready, &batch);
        drain(trace, batch);
        if (ready >= 0)
            gauge_ready(trace, ready);
        if (np_now_ns() - trace->flushed_ns >= FLUSH_NS) {
            trace->flushed_ns = np_now_ns();
            flush_or_end(trace);
        }
    } while (!stops);
    return NULL;
}

/* --- open and close ------------------------------------------------------------------------ */

static uint64_t boot_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_BOOTTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static int parse_limit(const char *text, uint64_t *ret_limit, struct np_err *err)
{
    int64_t mib = NP_TRACE_MIB;

    if (text && !np_text_int(text, 1, 1 << 20, &mib))
        return np_err_set(err, -EINVAL,
            "--trace-limit: expected MiB, a whole number from 1 to 1048576, not '%s'", text);
    *ret_limit = (uint64_t)mib << 20;
    return 0;
}

static int start_thread(struct np_trace *trace, struct np_err *err)
{
    pthread_condattr_t clock;
    sigset_t all, before;
    int code;

    pthread_mutex_init(&trace->lock, NULL);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&trace->wake, &clock);
    pthread_condattr_destroy(&clock);
    /* Signals go to the main thread. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    code = -pthread_create(&trace->thread, NULL, drain_main, trace);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (code < 0)
        return np_err_set(err, code, "cannot start the trace's thread: %s", strerror(-code));
    trace->running = true;
    return 0;
}

static int open_file(struct np_trace *trace, struct np_err *err)
{
    const uint64_t now_ns = np_now_ns();

    trace->fd = open(trace->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (trace->fd < 0)
        return np_err_set(
            err, -errno, "%s: the trace cannot be written: %s", trace->path, strerror(errno));
    /* Merged traces must not share a track. */
    trace->file = (struct np_trace_file){.uuid = (now_ns << 14 | 1) & INT64_MAX, .pid = getpid()};
    append(trace, np_trace_head(trace->at, &trace->file, now_ns, boot_ns()));
    trace->ready = -1;
    return 0;
}

int np_trace_open(
    const char *path, const char *limit_text, struct np_trace **ret_trace, struct np_err *err)
{
    struct np_trace *trace;
    uint64_t limit = 0;
    int code = parse_limit(limit_text, &limit, err);

    if (code < 0)
        return code;
    trace = np_alloc(sizeof(*trace));
    trace->fd = -1;
    trace->limit = limit;
    trace->path = np_strdup(path);
    trace->tracks = np_tracks_new(err);
    trace->bytes = trace->at = np_try_alloc(BUFFER_BYTES, err);
    trace->tracks_seen = np_try_array(MAX_TRACKS, sizeof(*trace->tracks_seen), err);
    trace->chunk = np_alloc_array(CHUNK, sizeof(*trace->chunk));
    if (!trace->tracks || !trace->bytes || !trace->tracks_seen)
        code = -ENOMEM;
    if (code == 0)
        code = open_file(trace, err);
    if (code == 0)
        code = start_thread(trace, err);
    if (code < 0)
        np_trace_free(trace);
    else
        *ret_trace = trace;
    return code;
}

struct np_tracks *np_trace_tracks(struct np_trace *trace)
{
    return trace->tracks;
}

void np_trace_watch(struct np_trace *trace, const struct np_ring *ring, int batch)
{
    pthread_mutex_lock(&trace->lock);
    trace->ring = ring;
    trace->batch = batch;
    pthread_mutex_unlock(&trace->lock);
}

static void stop(struct np_trace *trace)
{
    if (!trace->running)
        return;
    pthread_mutex_lock(&trace->lock);
    trace->stops = true;
    pthread_cond_signal(&trace->wake);
    pthread_mutex_unlock(&trace->lock);
    pthread_join(trace->thread, NULL);
    pthread_cond_destroy(&trace->wake);
    pthread_mutex_destroy(&trace->lock);
    trace->running = false;
}

static void describe(const struct np_trace *trace, struct np_trace_end *end)
{
    char missing[128] = "", why[128] = "";

    if (end->dropped)
        snprintf(missing, sizeof(missing), "; %llu spans dropped: they came faster than written",
            (unsigned long long)end->dropped);
    if (end->code < 0)
        snprintf(why, sizeof(why), "; it ends early, without %llu spans: %s",
            (unsigned long long)end->left, strerror(-end->code));
    else if (end->left)
        snprintf(why, sizeof(why), "; %llu spans left out: it is at its limit of %llu MiB",
            (unsigned long long)end->left, (unsigned long long)trace->limit >> 20);
    snprintf(end->text, sizeof(end->text),
        "trace: %llu spans, %.1f MiB in %s (ui.perfetto.dev opens it)%s%s",
        (unsigned long long)end->spans, (double)end->bytes / (1 << 20), trace->path, missing, why);
}

void np_trace_finish(struct np_trace *trace, struct np_trace_end *ret_end)
{
    stop(trace);
    flush_or_end(trace);
    /* A full disk may have space for this little by now. */
    append(trace, np_trace_tail(trace->at, np_now_ns(), &trace->sums));
    const int code = flush(trace);

    if (trace->code == 0)
        trace->code = code;
    if (close(trace->fd) < 0 && trace->code == 0)
        trace->code = -errno;
    trace->fd = -1;
    *ret_end = (struct np_trace_end){
        .spans = trace->sums.spans,
        .bytes = trace->written,
        .dropped = trace->sums.dropped,
        .left = trace->sums.left,
        .code = trace->code,
    };
    describe(trace, ret_end);
}

void np_trace_free(struct np_trace *trace)
{
    if (!trace)
        return;
    stop(trace);
    if (trace->fd >= 0)
        close(trace->fd);
    np_tracks_free(trace->tracks);
    np_free(trace->bytes);
    np_free(trace->tracks_seen);
    np_free(trace->chunk);
    np_free(trace->path);
    np_free(trace);
}
