/* Streams and events of the emulated runtime: queues, and the order in which they are worked off.
 *
 * The order is drawn again at each operation, but with moods, each for a while: any stream at random,
 * or one stream until it must wait. Evenly drawn orders alone would hardly ever run one stream far
 * ahead of another. */
#include <stdlib.h>
#include <time.h>

#include "tests/emu/cudart_inside.h"

bool np_emu_job_uses(const void *job, const void *memory, size_t bytes); /* grid.cc */

static struct CUstream_st *streams, *by_default; /* the default ones are in the list, too */
static __thread struct CUstream_st *of_thread;   /* its own default one */
static struct CUevent_st *events;
static uint64_t nr_ran;
static struct CUstream_st *favourite; /* of the mood; NULL: none */
static int mood_left;
static uint64_t host_ns;                      /* of the modelled clock */
static uint64_t next_host_ns, next_device_ns; /* np_emu_spend() */

/* --- held by several ------------------------------------------------------------------------- */

struct work *np_emu_work(void (*run)(void *job), void (*drop)(void *job), void *job)
{
    struct work *work = np_emu_new(sizeof(*work));

    *work = (struct work){.holders = 1,
        .run = run,
        .drop = drop,
        .job = job,
        .device_ns = next_device_ns ? next_device_ns : 1000};
    host_ns += next_host_ns;
    next_host_ns = next_device_ns = 0;
    return work;
}

void np_emu_drop_work(struct work *work)
{
    if (!work || --work->holders > 0)
        return;
    if (work->drop)
        work->drop(work->job);
    free(work);
}

void np_emu_drop_record(struct record *record)
{
    if (record && --record->holders == 0)
        free(record);
}

/* --- handles --------------------------------------------------------------------------------- */

static struct CUstream_st *add_stream(bool blocking)
{
    struct CUstream_st *stream = np_emu_new(sizeof(*stream));

    stream->blocking = blocking;
    stream->next = streams;
    streams = stream;
    return stream;
}

struct CUstream_st *np_emu_stream(cudaStream_t handle, const char *call)
{
    if (handle == NULL || handle == cudaStreamLegacy) {
        if (!by_default)
            by_default = add_stream(true);
        return by_default;
    }
    if (handle == cudaStreamPerThread) {
        if (!of_thread)
            of_thread = add_stream(true);
        return of_thread;
    }
    for (struct CUstream_st *stream = streams; stream; stream = stream->next)
        if (stream == handle && !stream->destroyed)
            return stream;
    np_emu_die(call, "%p is no stream: it was destroyed, or never made", (void *)handle);
}

static struct CUevent_st *find_event(cudaEvent_t handle, const char *call)
{
    for (struct CUevent_st *event = events; event; event = event->next)
        if (event == handle)
            return event;
    np_emu_die(call, "%p is no event: it was destroyed, or never made", (void *)handle);
}

bool np_emu_capturing(void)
{
    for (struct CUstream_st *stream = streams; stream; stream = stream->next)
        if (stream->capture && stream->capture->mode != cudaStreamCaptureModeRelaxed)
            return true;
    return false;
}

static bool pending(void)
{
    for (struct CUstream_st *stream = streams; stream; stream = stream->next)
        if (stream->first)
            return true;
    return false;
}

/* --- queues ---------------------------------------------------------------------------------- */

void np_emu_push(struct CUstream_st *stream, struct op op)
{
    struct op *copy = np_emu_new(sizeof(*copy));

    *copy = op;
    copy->queued_ns = host_ns += 1000;
    if (stream->last)
        stream->last->next = copy;
    else
        stream->first = copy;
    stream->last = copy;
}

static struct record *push_record(struct CUstream_st *stream)
{
    struct record *record = np_emu_new(sizeof(*record));

    record->holders = 1;
    np_emu_push(stream, (struct op){.kind = OP_RECORD, .record = record});
    return record;
}

static void push_wait(struct CUstream_st *stream, struct record *record)
{
    record->holders++;
    np_emu_push(stream, (struct op){.kind = OP_WAIT, .record = record});
}

/* The default stream and the blocking ones wait for each other. */
static void before_queueing(struct CUstream_st *stream)
{
    for (struct CUstream_st *other = streams; other; other = other->next)
        if (other != stream && other->first && stream->blocking && other->blocking &&
            (stream == by_default || other == by_default))
            push_wait(stream, push_record(other));
}

void np_emu_queue_work(struct CUstream_st *stream, struct work *work)
{
    if (stream->capture) {
        np_emu_capture_work(stream, work);
        return;
    }
    before_queueing(stream);
    np_emu_push(stream, (struct op){.kind = OP_WORK, .work = work});
}

void np_emu_queue_graph(struct CUstream_st *stream, struct graph_run *run)
{
    before_queueing(stream);
    np_emu_push(stream, (struct op){.kind = OP_GRAPH, .graph = run});
}

void np_emu_leave_capture(struct capture *capture)
{
    capture->holders++;
    for (struct CUstream_st *stream = streams; stream; stream = stream->next)
        if (stream->capture == capture) {
            stream->capture = NULL;
            np_emu_drop_capture(capture);
        }
    np_emu_drop_capture(capture);
}

void np_emu_queue(void *handle, void (*run)(void *job), void (*drop)(void *job), void *job)
{
    np_emu_lock();
    np_emu_queue_work(np_emu_stream(handle, "a library"), np_emu_work(run, drop, job));
    np_emu_unlock();
}

void np_emu_queue_waiting(void *handle, bool (*ready)(void *job), void (*run)(void *job),
    void (*drop)(void *job), void *job)
{
    np_emu_lock();
    struct work *work = np_emu_work(run, drop, job);
    work->ready = ready;
    np_emu_queue_work(np_emu_stream(handle, "a library"), work);
    np_emu_unlock();
}

/* A launch has no status of its own: its error is the last error. */
void np_emu_launch_kernel(void *handle, void (*run)(void *job), void (*drop)(void *job), void *job)
{
    np_emu_lock();
    if (np_emu_fails("a launch")) {
        np_emu_refuse_launch(cudaErrorLaunchOutOfResources);
        drop(job);
    } else {
        struct work *work = np_emu_work(run, drop, job);

        work->uses = np_emu_job_uses;
        np_emu_queue_work(np_emu_stream(handle, "a launch"), work);
    }
    np_emu_unlock();
}

static uint64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void pop(struct CUstream_st *stream)
{
    struct op *op = stream->first;

    stream->first = op->next;
    if (!stream->first)
        stream->last = NULL;
    np_emu_drop_work(op->work);
    np_emu_drop_record(op->record);
    if (op->graph)
        np_emu_drop_run(op->graph);
    free(op);
}

void np_emu_spend(uint64_t host, uint64_t device)
{
    next_host_ns = host;
    next_device_ns = device;
}

static uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Can the stream's first operation run now? */
static bool ready(const struct CUstream_st *stream)
{
    const struct op *op = stream->first;

    if (!op)
        return false;
    switch (op->kind) {
    case OP_WAIT: return op->record->passed;
    case OP_WORK: return np_emu_ready(op->work);
    case OP_GRAPH: return np_emu_graph_ready(op->graph);
    case OP_RECORD: break;
    }
    return true;
}

static void advance(struct CUstream_st *stream)
{
    struct op *op = stream->first;
    uint64_t *at = &stream->busy_until_ns;

    nr_ran++;
    *at = later(*at, op->queued_ns);
    if (op->kind == OP_GRAPH && np_emu_advance_graph(op->graph, at))
        return;
    if (op->kind == OP_WORK) {
        np_emu_run(op->work);
        *at += op->work->device_ns;
    }
    if (op->kind == OP_WAIT)
        *at = later(*at, op->record->passed_ns);
    if (op->kind == OP_RECORD) {
        op->record->passed = true;
        op->record->passed_ns = np_emu_models_clock() ? *at : now_ns();
    }
    pop(stream);
}

bool np_emu_advance(void)
{
    int nr_ready = 0, chosen;

    /* Asked once: between two questions another process may have done its part. */
    for (struct CUstream_st *stream = streams; stream; stream = stream->next)
        nr_ready += stream->is_ready = ready(stream);
    if (nr_ready == 0)
        return false;
    if (mood_left-- <= 0) {
        unsigned longest = 2u << np_emu_draw() % 12; /* often a few, at times thousands */

        mood_left = (int)(np_emu_draw() % longest);
        favourite = NULL;
        chosen = (int)(np_emu_draw() % (uint64_t)(nr_ready + 1)); /* the last number: no stream */
        for (struct CUstream_st *stream = streams; stream; stream = stream->next)
            if (stream->is_ready && chosen-- == 0)
                favourite = stream;
    }
    if (favourite && favourite->is_ready) {
        advance(favourite);
        return true;
    }
    chosen = (int)(np_emu_draw() % (uint64_t)nr_ready);
    for (struct CUstream_st *stream = streams; stream; stream = stream->next)
        if (stream->is_ready && chosen-- == 0) {
            advance(stream);
            break;
        }
    return true;
}

static void stuck(const char *call)
{
    np_emu_die(call, "no operation can run: streams wait for each other");
}

static void drop_queued(struct CUstream_st *stream)
{
    while (stream->first)
        pop(stream);
}

void np_emu_finish_stream(struct CUstream_st *stream, const char *call)
{
    if (np_emu_dead()) {
        for (struct CUstream_st *each = streams; each; each = each->next)
            drop_queued(each);
        return;
    }
    while (!np_emu_dead() && (stream ? stream->first != NULL : pending()))
        if (!np_emu_advance() && !np_emu_await_others())
            stuck(call);
    for (const struct CUstream_st *s = streams; s; s = s->next)
        if (!stream || s == stream)
            host_ns = later(host_ns, s->busy_until_ns);
    np_emu_check_guards(call);
}

void np_emu_finish_record(const struct record *record, const char *call)
{
    while (!record->passed && !np_emu_dead())
        if (!np_emu_advance() && !np_emu_await_others())
            stuck(call);
    if (np_emu_models_clock())
        host_ns = later(host_ns, record->passed_ns);
    np_emu_check_guards(call);
}

bool np_emu_queue_uses(const void *memory, size_t bytes)
{
    for (const struct CUstream_st *stream = streams; stream; stream = stream->next)
        for (const struct op *op = stream->first; op; op = op->next) {
            const struct work *work = op->work;

            if (work && work->uses && work->uses(work->job, memory, bytes))
                return true;
            if (op->graph && np_emu_graph_uses(op->graph, memory, bytes))
                return true;
        }
    return false;
}

uint64_t np_emu_ran(void)
{
    return nr_ran;
}

/* --- streams --------------------------------------------------------------------------------- */

/* Those that have nothing left to do. */
static void drop_destroyed(void)
{
    struct CUstream_st **at = &streams;

    while (*at) {
        struct CUstream_st *stream = *at;

        if (!stream->destroyed || stream->first) {
            at = &stream->next;
            continue;
        }
        *at = stream->next;
        if (favourite == stream)
            favourite = NULL;
        free(stream);
    }
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *ret_stream, unsigned int flags)
{
    if (!np_emu_enter(__func__))
        return np_emu_leave(cudaErrorMemoryAllocation);
    *ret_stream = add_stream(!(flags & cudaStreamNonBlocking));
    return np_emu_leave(cudaSuccess);
}

/* As in CUDA it does not wait: queued operations run later. */
cudaError_t cudaStreamDestroy(cudaStream_t handle)
{
    struct CUstream_st *stream;

    np_emu_lock();
    stream = np_emu_stream(handle, __func__);
    if (stream == by_default)
        np_emu_die(__func__, "the default stream is not to be destroyed");
    if (stream->capture)
        np_emu_die(__func__, "the stream is capturing");
    stream->destroyed = true;
    drop_destroyed();
    return np_emu_leave(cudaSuccess);
}

/* Host calls that must see a stream's end are not for one that captures, and break the capture. */
static cudaError_t refuse_captured(struct CUstream_st *stream)
{
    if (stream->capture) {
        stream->capture->broken = true;
        return cudaErrorStreamCaptureUnsupported;
    }
    return stream == by_default && np_emu_capturing() ? cudaErrorStreamCaptureImplicit
                                                      : cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle)
{
    struct CUstream_st *stream;
    cudaError_t status;

    if (!np_emu_enter(__func__))
        return np_emu_leave(cudaErrorLaunchFailure);
    stream = np_emu_stream(handle, __func__);
    status = refuse_captured(stream);
    if (status == cudaSuccess)
        np_emu_finish_stream(stream, __func__);
    return np_emu_leave(status);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event_handle, unsigned int flags)
{
    struct CUstream_st *stream;
    struct CUevent_st *event;
    cudaError_t status = cudaSuccess;

    (void)flags;
    if (!np_emu_enter(__func__))
        return np_emu_leave(cudaErrorLaunchFailure);
    stream = np_emu_stream(handle, __func__);
    event = find_event(event_handle, __func__);
    if (stream->capture || event->capture) {
        status = np_emu_capture_wait(stream, event);
    } else if (event->record && !np_emu_drops_wait()) {
        before_queueing(stream);
        push_wait(stream, event->record);
    }
    return np_emu_leave(status);
}

/* --- events ---------------------------------------------------------------------------------- */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *ret_event, unsigned int flags)
{
    struct CUevent_st *event;

    if (!np_emu_enter(__func__))
        return np_emu_leave(cudaErrorMemoryAllocation);
    event = np_emu_new(sizeof(*event));
    event->timed = !(flags & cudaEventDisableTiming);
    event->next = events;
    *ret_event = events = event;
    return np_emu_leave(cudaSuccess);
}

cudaError_t cudaEventCreate(cudaEvent_t *ret_event)
{
    return cudaEventCreateWithFlags(ret_event, cudaEventDefault);
}

static void forget_record(struct CUevent_st *event)
{
    np_emu_drop_record(event->record);
    np_emu_drop_capture(event->capture);
    event->record = NULL;
    event->capture = NULL;
}

/* Waits that are queued stay, and its record passes: CUDA allows this before the event is complete. */
cudaError_t cudaEventDestroy(cudaEvent_t handle)
{
    struct CUevent_st *event, **at = &events;

    np_emu_lock();
    event = find_event(handle, __func__);
    while (*at != event)
        at = &(*at)->next;
    *at = event->next;
    forget_record(event);
    free(event);
    return np_emu_leave(cudaSuccess);
}

cudaError_t cudaEventRecord(cudaEvent_t handle, cudaStream_t stream_handle)
{
    struct CUstream_st *stream;
    struct CUevent_st *event;

    if (!np_emu_enter(__func__))
        return np_emu_leave(cudaErrorLaunchFailure);
    stream = np_emu_stream(stream_handle, __func__);
    event = find_event(handle, __func__);
    forget_record(event);
    if (stream->capture) {
        np_emu_capture_record(stream, event);
    } else {
        before_queueing(stream);
        event->record = push_record(stream);
        event->record->holders++;
    }
    return np_emu_leave(cudaSuccess);
}

cudaError_t cudaEventQuery(cudaEvent_t handle)
{
    const struct CUevent_st *event;
    cudaError_t status = cudaSuccess;

    if (!np_emu_enter(__func__))
        return np_emu_leave(cudaErrorLaunchFailure);
    event = find_event(handle, __func__);
    if (event->capture)
        status = cudaErrorCapturedEvent;
    else if (event->record && !event->record->passed && !np_emu_advance() && !np_emu_await_others())
        stuck(__func__);
    if (status == cudaSuccess && event->record && !event->record->passed)
        status = cudaErrorNotReady;
    return np_emu_leave(status);
}

cudaError_t cudaEventSynchronize(cudaEvent_t handle)
{
    const struct CUevent_st *event;

    if (!np_emu_enter(__func__))
        return np_emu_leave(cudaErrorLaunchFailure);
    event = find_event(handle, __func__);
    if (event->capture)
        return np_emu_leave(cudaErrorCapturedEvent);
    if (event->record)
        np_emu_finish_record(event->record, __func__);
    return np_emu_leave(cudaSuccess);
}

cudaError_t cudaEventElapsedTime(float *ret_ms, cudaEvent_t from, cudaEvent_t to)
{
    const struct CUevent_st *first, *second;

    if (!np_emu_enter(__func__))
        return np_emu_leave(cudaErrorLaunchFailure);
    first = find_event(from, __func__);
    second = find_event(to, __func__);
    if (!first->timed || !second->timed || !first->record || !second->record)
        return np_emu_leave(cudaErrorInvalidResourceHandle);
    if (!first->record->passed || !second->record->passed)
        return np_emu_leave(cudaErrorNotReady);
    *ret_ms =
        (float)((double)(int64_t)(second->record->passed_ns - first->record->passed_ns) / 1e6);
    return np_emu_leave(cudaSuccess);
}
