#include "trainer/recompute.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "loader/base/mem.h"
#include "trainer/plan.h"

/* Of the forward pass; all arrays are those of the graph before it is rewritten. */
struct cut {
    struct np_graph *graph;
    int nr_tensors, nr_segments;
    int *segment; /* (nr_forward) of each node */
    int *writer;  /* (tensors) the forward node; -1: parameters, inputs, gradients */
    bool *kept;   /* (tensors) a later segment reads it */
    int *copy;    /* (tensors) where it is calculated again; -1: not */
    bool *done;   /* (nr_segments) its nodes run again by now */
};

static bool runs_once(enum np_op op)
{
    return op == NP_OP_INPUT || op == NP_OP_BN_STATS || np_op_is_loss(op);
}

static uint64_t bytes_of(const struct np_graph *graph, int t)
{
    const struct np_tensor *tensor = &graph->tensors[t];

    return tensor->role == NP_ROLE_ACTIVATION || tensor->role == NP_ROLE_SAVED
               ? np_tensor_elements(tensor) * np_dtype_bytes(tensor->dtype)
               : 0;
}

/* --- where to cut --------------------------------------------------------------------------- */

/* (nr_forward + 1) bytes that nodes from n on read of those before n; and the sums of what the
 * nodes before n write. */
static void weigh(const struct cut *cut, uint64_t *crossing, uint64_t *written)
{
    const struct np_graph *graph = cut->graph;
    int *last = np_alloc_array((size_t)graph->nr_tensors, sizeof(*last));

    for (int n = 0; n < graph->nr_forward; n++)
        for (int i = 0; i < graph->nodes[n].nr_ins; i++)
            last[graph->nodes[n].ins[i]] = n;
    for (int t = 0; t < graph->nr_tensors; t++)
        for (int n = cut->writer[t]; n >= 0 && n < last[t]; n++)
            crossing[n + 1] += bytes_of(graph, t);
    for (int n = 0; n < graph->nr_forward; n++) {
        written[n + 1] = written[n];
        for (int o = 0; o < graph->nodes[n].nr_outs; o++)
            written[n + 1] += bytes_of(graph, graph->nodes[n].outs[o]);
    }
    np_free(last);
}

/* Segments that write about the same, each cut moved to where the least crosses it: behind a block
 * rather than inside, where its shortcut would be kept, too. */
static void place_cuts(const struct cut *cut)
{
    const int n = cut->graph->nr_forward;
    uint64_t *crossing = np_alloc_array((size_t)n + 1, sizeof(*crossing));
    uint64_t *written = np_alloc_array((size_t)n + 1, sizeof(*written));
    int segment = 0, from = 0;

    weigh(cut, crossing, written);
    const uint64_t share = written[n] / (uint64_t)cut->nr_segments;

    for (int p = 1; p < n && segment < cut->nr_segments - 1; p++) {
        int best = p;

        if (written[p] - written[from] < share)
            continue;
        for (int q = p; q < n && written[q] - written[from] <= share + share / 2; q++)
            best = crossing[q] < crossing[best] ? q : best;
        for (; from < best; from++)
            cut->segment[from] = segment;
        segment++;
        p = best;
    }
    for (; from < n; from++)
        cut->segment[from] = segment;
    np_free(crossing);
    np_free(written);
}

static void find_kept(const struct cut *cut)
{
    const struct np_graph *graph = cut->graph;

    for (int n = 0; n < graph->nr_forward; n++)
        for (int i = 0; i < graph->nodes[n].nr_ins; i++) {
            const int t = graph->nodes[n].ins[i], from = cut->writer[t];

            if (from >= 0 && cut->segment[from] != cut->segment[n])
                cut->kept[t] = true;
        }
}

/* --- the backward pass again ----------------------------------------------------------------- */

/* Is tensor t gone when the backward pass begins? */
static bool is_gone(const struct cut *cut, int t)
{
    const int last = cut->segment[cut->graph->nr_forward - 1];
    const int from = t < cut->nr_tensors ? cut->writer[t] : -1;

    return from >= 0 && !cut->kept[t] && cut->segment[from] < last &&
           !runs_once(cut->graph->nodes[from].op);
}

/* Marks what has to run again so that backward nodes, and the marked ones, find what they read. */
static void mark(
    const struct cut *cut, const struct np_op_node *backward, int nr_backward, bool *marked)
{
    const struct np_graph *graph = cut->graph;

    for (int b = 0; b < nr_backward; b++)
        for (int i = 0; i < backward[b].nr_ins; i++)
            if (backward[b].ins[i] >= 0 && is_gone(cut, backward[b].ins[i]))
                marked[cut->writer[backward[b].ins[i]]] = true;
    for (int n = graph->nr_forward - 1; n >= 0; n--)
        for (int i = 0; marked[n] && i < graph->nodes[n].nr_ins; i++)
            if (is_gone(cut, graph->nodes[n].ins[i]))
                marked[cut->writer[graph->nodes[n].ins[i]]] = true;
}

static int tensor_again(struct np_graph *graph, int t)
{
    const struct np_tensor like = graph->tensors[t];
    char name[256];

    snprintf(name, sizeof(name), "%.240s again", like.name);
    return np_graph_tensor(graph, name, like.role, like.dtype, like.nr_dims, like.dims);
}

static void read_copies(const struct cut *cut, struct np_op_node *node)
{
    for (int i = 0; i < node->nr_ins; i++)
        if (node->ins[i] >= 0 && node->ins[i] < cut->nr_tensors && cut->copy[node->ins[i]] >= 0)
            node->ins[i] = cut->copy[node->ins[i]];
}

static void run_again(const struct cut *cut, int segment, const bool *marked)
{
    struct np_graph *graph = cut->graph;

    for (int n = 0; n < graph->nr_forward; n++) {
        if (!marked[n] || cut->segment[n] != segment)
            continue;
        const struct np_op_node from = graph->nodes[n];
        const int node = np_graph_node(graph, from.op, from.name, from.line);

        graph->nodes[node].attrs = from.attrs;
        graph->nodes[node].again = n;
        for (int i = 0; i < from.nr_ins; i++)
            np_graph_in(graph, node, from.ins[i]);
        read_copies(cut, &graph->nodes[node]);
        for (int o = 0; o < from.nr_outs; o++) {
            const int t = tensor_again(graph, from.outs[o]);

            np_graph_out(graph, node, t);
            if (is_gone(cut, from.outs[o]))
                cut->copy[from.outs[o]] = t;
        }
    }
}

/* Takes the backward nodes off the graph and puts them back, each behind what it needs. */
static void rewrite(const struct cut *cut)
{
    struct np_graph *graph = cut->graph;
    const int nr = graph->nr_nodes - graph->nr_forward;
    struct np_op_node *backward = np_alloc_array((size_t)nr, sizeof(*backward));
    bool *marked = np_alloc_array((size_t)graph->nr_forward, sizeof(*marked));

    memcpy(backward, graph->nodes + graph->nr_forward, (size_t)nr * sizeof(*backward));
    graph->nr_nodes = graph->nr_forward;
    mark(cut, backward, nr, marked);
    for (int b = 0; b < nr; b++) {
        for (int i = 0; i < backward[b].nr_ins; i++) {
            const int t = backward[b].ins[i];

            if (t < 0 || !is_gone(cut, t) || cut->done[cut->segment[cut->writer[t]]])
                continue;
            cut->done[cut->segment[cut->writer[t]]] = true;
            run_again(cut, cut->segment[cut->writer[t]], marked);
        }
        read_copies(cut, &backward[b]);
        np_grow(
            &graph->nodes, &graph->nodes_room, (size_t)graph->nr_nodes + 1, sizeof(*graph->nodes));
        graph->nodes[graph->nr_nodes++] = backward[b];
    }
    np_free(marked);
    np_free(backward);
}

void np_recompute(struct np_graph *graph, int nr_segments)
{
    const size_t tensors = (size_t)graph->nr_tensors, nodes = (size_t)graph->nr_forward;
    struct cut cut = {
        .graph = graph,
        .nr_tensors = graph->nr_tensors,
        .nr_segments = nr_segments,
        .segment = np_alloc_array(nodes, sizeof(int)),
        .writer = np_alloc_array(tensors, sizeof(int)),
        .kept = np_alloc_array(tensors, sizeof(bool)),
        .copy = np_alloc_array(tensors, sizeof(int)),
        .done = np_alloc_array((size_t)nr_segments, sizeof(bool)),
    };

    assert(nr_segments > 0);
    for (size_t t = 0; t < tensors; t++)
        cut.writer[t] = cut.copy[t] = -1;
    for (int n = 0; n < graph->nr_forward; n++)
        for (int o = 0; o < graph->nodes[n].nr_outs; o++)
            cut.writer[graph->nodes[n].outs[o]] = n;
    place_cuts(&cut);
    find_kept(&cut);
    rewrite(&cut);
    np_free(cut.segment);
    np_free(cut.writer);
    np_free(cut.kept);
    np_free(cut.copy);
    np_free(cut.done);
}

/* --- how many segments ------------------------------------------------------------------------ */

static uint64_t arena_bytes(const struct np_graph *graph)
{
    struct np_memory memory;

    np_memory_plan(graph, NULL, &memory);
    const uint64_t bytes = memory.arena_bytes;
    np_memory_fini(&memory);
    return bytes;
}

/* The best is near the root of the number of layers. */
#define MAX_SEGMENTS 32

struct np_recomputed np_recompute_best(struct np_graph *graph)
{
    struct np_recomputed best = {.bytes_before = arena_bytes(graph)};

    best.bytes = best.bytes_before;
    if (graph->nr_nodes == graph->nr_forward)
        return best;
    for (int n = 2; n <= MAX_SEGMENTS && n <= graph->nr_forward; n++) {
        struct np_graph *copy = np_graph_copy(graph);

        np_recompute(copy, n);
        const uint64_t bytes = arena_bytes(copy);
        if (bytes < best.bytes) {
            best.bytes = bytes;
            best.nr_segments = n;
            best.nr_nodes = copy->nr_nodes - graph->nr_nodes;
        }
        np_graph_free(copy);
    }
    if (best.nr_segments > 0)
        np_recompute(graph, best.nr_segments);
    return best;
}

void np_recompute_as(struct np_graph *graph, const struct np_plan_options *options)
{
    char text[200];

    if (!options->recompute || graph->nr_nodes == graph->nr_forward)
        return;
    const struct np_recomputed r = np_recompute_best(graph);

    if (r.nr_segments > 0)
        snprintf(text, sizeof(text),
            "recompute: activations take %.1f MiB instead of %.1f: %d segments, %d nodes run twice",
            (double)r.bytes / 1048576, (double)r.bytes_before / 1048576, r.nr_segments, r.nr_nodes);
    else
        snprintf(text, sizeof(text),
            "recompute: it saves nothing here, activations take %.1f MiB; each is kept",
            (double)r.bytes_before / 1048576);
    if (options->note)
        options->note(options->note_context, text);
}
