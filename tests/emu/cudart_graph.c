/* Stream capture and graphs of the emulated runtime. A launched graph runs its nodes in an order
 * drawn from what their streams and waits allow, as often as it is launched. */
#include <stdlib.h>
#include <string.h>

#include "tests/emu/cudart_inside.h"
#include "tests/emu/traffic.h"

#define MAX_KERNELS 1024

static struct CUgraph_st *graphs;
static struct CUgraphExec_st *execs;

static void drop_nodes(struct nodes *nodes)
{
    if (!nodes || --nodes->holders > 0)
        return;
    for (int i = 0; i < nodes->nr; i++)
        np_emu_drop_work(nodes->list[i].work);
    free(nodes->list);
    free(nodes);
}

void np_emu_drop_capture(struct capture *capture)
{
    if (!capture || --capture->holders > 0)
        return;
    drop_nodes(capture->nodes);
    free(capture);
}

static void add_node(struct CUstream_st *stream, struct work *work, int after)
{
    struct nodes *nodes = stream->capture->nodes;

    if (nodes->nr == nodes->room) {
        nodes->room = nodes->room ? 2 * nodes->room : 64;
        nodes->list = realloc(nodes->list, (size_t)nodes->room * sizeof(*nodes->list));
        if (!nodes->list)
            np_emu_die("capture", "no memory for %d nodes", nodes->room);
    }
    nodes->list[nodes->nr] = (struct node){work, stream->lane, after};
    stream->last_node = nodes->nr++;
}

void np_emu_capture_work(struct CUstream_st *stream, struct work *work)
{
    add_node(stream, work, -1);
}

void np_emu_capture_record(struct CUstream_st *stream, struct CUevent_st *event)
{
    event->capture = stream->capture;
    event->capture->holders++;
    event->node = stream->last_node;
}

static void join(struct CUstream_st *stream, struct capture *capture)
{
    stream->capture = capture;
    stream->lane = capture->nodes->nr_lanes++;
    stream->last_node = -1;
    capture->holders++;
}

cudaError_t np_emu_capture_wait(struct CUstream_st *stream, struct CUevent_st *event)
{
    if (!event->capture || event->capture->ended) { /* work outside, or of another capture */
        if (!stream->capture)
            return cudaErrorStreamCaptureIsolation;
        if (!event->capture && !event->record)
            return cudaSuccess;
        stream->capture->broken = true;
        return cudaErrorStreamCaptureIsolation;
    }
    if (stream->capture && stream->capture != event->capture) {
        stream->capture->broken = event->capture->broken = true;
        return cudaErrorStreamCaptureIsolation;
    }
    if (!stream->capture)
        join(stream, event->capture);
    add_node(stream, NULL, event->node);
    return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, enum cudaStreamCaptureMode mode)
{
    struct CUstream_st *stream;
    struct capture *capture;

    if (!np_emu_enter(__func__))
        return np_emu_leave(cudaErrorMemoryAllocation);
    stream = np_emu_stream(handle, __func__);
    if (stream == np_emu_stream(NULL, __func__))
        return np_emu_leave(cudaErrorStreamCaptureUnsupported);
    if (stream->capture)
        return np_emu_leave(cudaErrorIllegalState);
    capture = np_emu_new(sizeof(*capture));
    capture->mode = mode;
    capture->origin = stream;
    capture->nodes = np_emu_new(sizeof(*capture->nodes));
    capture->nodes->holders = 1;
    join(stream, capture);
    return np_emu_leave(cudaSuccess);
}

bool np_emu_break_capture(void *handle)
{
    struct CUstream_st *stream;
    bool capturing;

    np_emu_lock();
    stream = np_emu_stream(handle, "a call that a capture forbids");
    capturing = stream->capture != NULL;
    if (capturing)
        stream->capture->broken = true;
    np_emu_unlock();
    return capturing;
}

/* A kernel's module is loaded when the kernel is first launched, which a capture forbids. */
void np_emu_load_kernel(void *stream, const void *kernel)
{
    static const void *loaded[MAX_KERNELS];
    static int nr_loaded;

    np_emu_lock();
    for (int i = 0; i < nr_loaded; i++)
        if (loaded[i] == kernel) {
            np_emu_unlock();
            return;
        }
    if (np_emu_break_capture(stream)) {
        np_emu_refuse_launch(cudaErrorStreamCaptureUnsupported);
    } else {
        if (nr_loaded == MAX_KERNELS)
            np_emu_die("a launch", "there are more than %d kernels", MAX_KERNELS);
        loaded[nr_loaded++] = kernel;
    }
    np_emu_unlock();
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, enum cudaStreamCaptureStatus *ret_status)
{
    const struct CUstream_st *stream;

    np_emu_lock();
    stream = np_emu_stream(handle, __func__);
    *ret_status = !stream->capture          ? cudaStreamCaptureStatusNone
                  : stream->capture->broken ? cudaStreamCaptureStatusInvalidated
                                            : cudaStreamCaptureStatusActive;
    return np_emu_leave(cudaSuccess);
}

/* Is every lane's last node before the origin's last one? */
static bool joined(const struct nodes *nodes, int lane, int last)
{
    bool *reached = np_emu_new((size_t)nodes->nr + 1), all = true;

    if (last >= 0)
        reached[last] = true;
    for (int i = nodes->nr - 1; i >= 0; i--) {
        bool last_of_lane = true;

        for (int j = i + 1; j < nodes->nr; j++)
            if (nodes->list[j].lane == nodes->list[i].lane) {
                last_of_lane = false;
                reached[i] |= reached[j];
                break;
            }
        if (reached[i] && nodes->list[i].after >= 0)
            reached[nodes->list[i].after] = true;
        if (last_of_lane && !reached[i] && nodes->list[i].lane != lane)
            all = false;
    }
    free(reached);
    return all;
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t *ret_graph)
{
    struct CUstream_st *stream;
    struct capture *capture;
    cudaError_t status = cudaSuccess;

    if (!np_emu_enter(__func__))
        status = cudaErrorMemoryAllocation;
    stream = np_emu_stream(handle, __func__);
    capture = stream->capture;
    *ret_graph = NULL;
    if (!capture || capture->origin != stream)
        return np_emu_leave(cudaErrorIllegalState);
    if (capture->broken)
        status = cudaErrorStreamCaptureInvalidated;
    else if (!joined(capture->nodes, stream->lane, stream->last_node))
        status = cudaErrorStreamCaptureUnjoined;
    if (status == cudaSuccess) {
        struct CUgraph_st *graph = np_emu_new(sizeof(*graph));

        graph->nodes = capture->nodes;
        graph->nodes->holders++;
        graph->next = graphs;
        *ret_graph = graphs = graph;
    }
    capture->ended = true;
    np_emu_leave_capture(capture);
    return np_emu_leave(status);
}

/* --- graphs ---------------------------------------------------------------------------------- */

static struct CUgraph_st **find_graph(cudaGraph_t handle, const char *call)
{
    for (struct CUgraph_st **at = &graphs; *at; at = &(*at)->next)
        if (*at == handle)
            return at;
    np_emu_die(call, "%p is no graph: it was destroyed, or never made", (void *)handle);
}

static struct CUgraphExec_st **find_exec(cudaGraphExec_t handle, const char *call)
{
    for (struct CUgraphExec_st **at = &execs; *at; at = &(*at)->next)
        if (*at == handle)
            return at;
    np_emu_die(call, "%p is no graph to launch: it was destroyed, or never made", (void *)handle);
}

cudaError_t cudaGraphDestroy(cudaGraph_t handle)
{
    struct CUgraph_st **at, *graph;

    np_emu_lock();
    at = find_graph(handle, __func__);
    graph = *at;
    *at = graph->next;
    drop_nodes(graph->nodes);
    free(graph);
    return np_emu_leave(cudaSuccess);
}

cudaError_t cudaGraphInstantiate(
    cudaGraphExec_t *ret_exec, cudaGraph_t handle, unsigned long long flags)
{
    struct CUgraphExec_st *exec;
    struct CUgraph_st *graph;

    (void)flags;
    if (!np_emu_enter(__func__))
        return np_emu_leave(cudaErrorMemoryAllocation);
    graph = *find_graph(handle, __func__);
    exec = np_emu_new(sizeof(*exec));
    exec->nodes = graph->nodes;
    exec->nodes->holders++;
    exec->next = execs;
    *ret_exec = execs = exec;
    return np_emu_leave(cudaSuccess);
}

/* Launches still queued keep what they need: CUDA frees a graph in flight when it has run. */
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t handle)
{
    struct CUgraphExec_st **at, *exec;

    np_emu_lock();
    at = find_exec(handle, __func__);
    exec = *at;
    *at = exec->next;
    drop_nodes(exec->nodes);
    free(exec);
    return np_emu_leave(cudaSuccess);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t handle, cudaStream_t stream_handle)
{
    struct CUstream_st *stream;
    struct graph_run *run;

    if (!np_emu_enter(__func__))
        return np_emu_leave(cudaErrorLaunchFailure);
    stream = np_emu_stream(stream_handle, __func__);
    if (stream->capture)
        np_emu_die(__func__, "a graph within a graph is not emulated");
    np_emu_launched();
    run = np_emu_new(sizeof(*run));
    run->nodes = (*find_exec(handle, __func__))->nodes;
    run->nodes->holders++;
    run->done = np_emu_new((size_t)run->nodes->nr + 1);
    np_emu_queue_graph(stream, run);
    return np_emu_leave(cudaSuccess);
}

void np_emu_drop_run(struct graph_run *run)
{
    drop_nodes(run->nodes);
    free(run->done);
    free(run);
}

bool np_emu_graph_uses(const struct graph_run *run, const void *memory, size_t bytes)
{
    for (int i = 0; i < run->nodes->nr; i++) {
        const struct work *work = run->nodes->list[i].work;

        if (!run->done[i] && work && work->uses && work->uses(work->job, memory, bytes))
            return true;
    }
    return false;
}

/* The first node of the lane that has not run; -1: none, or it must wait. */
static int next_of_lane(const struct graph_run *run, int lane)
{
    for (int i = 0; i < run->nodes->nr; i++) {
        const struct node *node = &run->nodes->list[i];

        if (node->lane == lane && !run->done[i])
            return node->after < 0 || run->done[node->after] ? i : -1;
    }
    return -1;
}

bool np_emu_advance_graph(struct graph_run *run, uint64_t *device_ns)
{
    int nr_ready = 0, chosen;

    if (run->nr_done == run->nodes->nr)
        return false;
    for (int lane = 0; lane < run->nodes->nr_lanes; lane++)
        nr_ready += next_of_lane(run, lane) >= 0;
    if (nr_ready == 0)
        np_emu_die("a graph", "its nodes wait for each other");
    chosen = (int)(np_emu_draw() % (uint64_t)nr_ready);
    for (int lane = 0; lane < run->nodes->nr_lanes; lane++) {
        int i = next_of_lane(run, lane);

        if (i < 0 || chosen-- > 0)
            continue;
        if (run->nodes->list[i].work) {
            np_emu_traffic_node();
            np_emu_run(run->nodes->list[i].work);
            *device_ns += run->nodes->list[i].work->device_ns;
        }
        run->done[i] = true;
        break;
    }
    return ++run->nr_done < run->nodes->nr;
}
