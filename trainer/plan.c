/* The memory plan: lifetimes of tensors, and a place in the arena for each. All devices use it,
 * once, at prepare. */
#include "trainer/plan.h"

#include <stdlib.h>

#include "loader/base/mem.h"

#define NOWHERE UINT64_MAX
#define FOREVER 0x7fffffff

struct life {
    int tensor;      /* root of an alias class */
    int first, last; /* times, inclusive */
    int last_node;   /* the last node that reads or writes it */
    int last_sum;    /* time of the last np_op_is_wgrad() that reads it; -1: none */
    int root;        /* the tensor whose place this tensor takes; itself for roots */
    bool used;
    uint64_t bytes;
};

static uint64_t tensor_bytes(const struct np_tensor *tensor)
{
    uint64_t bytes = np_tensor_elements(tensor) * np_dtype_bytes(tensor->dtype);

    return (bytes + NP_ALIGN - 1) / NP_ALIGN * NP_ALIGN;
}

static bool in_arena(const struct np_tensor *tensor)
{
    return tensor->role == NP_ROLE_ACTIVATION || tensor->role == NP_ROLE_SAVED;
}

/* The output that may take an operand's place, or -1. */
static int placed_output(const struct np_op_node *node)
{
    if (node->op == NP_OP_BN_REDUCE) /* in lanes it has sums of groups there */
        return node->nr_outs > 2 && node->attrs.lane_rows == 0 ? node->outs[2] : -1;
    return node->nr_outs ? node->outs[0] : -1;
}

/* True: that output may take the place of this operand. */
static bool in_place(const struct np_op_node *node, int in)
{
    switch (node->op) {
    case NP_OP_RELU:
    case NP_OP_RELU_DGRAD:
    case NP_OP_ACT:
    case NP_OP_ACT_DGRAD:
    case NP_OP_DROPOUT:
    case NP_OP_DROPOUT_DGRAD:
    case NP_OP_MUL:
    case NP_OP_DROP_ROWS:
    case NP_OP_DROP_ROWS_DGRAD:
    case NP_OP_BN_EVAL:
    case NP_OP_SCALE:
    case NP_OP_BIAS:
    case NP_OP_POSITION:
    case NP_OP_BN_DGRAD: return in == 0;
    case NP_OP_ADD: return in <= 1;
    case NP_OP_BN_REDUCE: return in == 0 || (node->attrs.joins && in == node->nr_ins - 1);
    default: return false;
    }
}

/* Finds the lifetime of each tensor, in node order, before aliases are taken. */
static void find_lives(const struct np_graph *graph, const int *when, struct life *lives)
{
    const int kept[] = {graph->logits, graph->loss, graph->correct, graph->top5};

    for (int t = 0; t < graph->nr_tensors; t++)
        lives[t] = (struct life){.tensor = t,
            .first = FOREVER,
            .last = -1,
            .last_node = -1,
            .last_sum = -1,
            .root = t,
            .bytes = tensor_bytes(&graph->tensors[t])};
    for (int n = 0; n < graph->nr_nodes; n++) {
        const struct np_op_node *node = &graph->nodes[n];
        int time = when ? when[n] : n;

        for (int i = 0; i < node->nr_ins + node->nr_outs; i++) {
            int t = i < node->nr_ins ? node->ins[i] : node->outs[i - node->nr_ins];

            if (t < 0 || !in_arena(&graph->tensors[t]))
                continue;
            lives[t].used = true;
            lives[t].first = time < lives[t].first ? time : lives[t].first;
            lives[t].last = time;
            lives[t].last_node = n;
            if (i < node->nr_ins && np_op_is_wgrad(node->op)) /* it may run last of its time */
                lives[t].last_sum = time;
        }
    }
    for (int n = 0; n < graph->nr_nodes; n++) /* a sum lives from one run to the next */
        if (graph->nodes[n].op == NP_OP_VIEWS) {
            struct life *sum = &lives[graph->nodes[n].outs[1]];

            sum->first = 0;
            sum->last = sum->last_node = FOREVER;
        }
    for (size_t i = 0; i < sizeof(kept) / sizeof(*kept); i++)
        if (kept[i] >= 0)
            lives[kept[i]].last = lives[kept[i]].last_node = FOREVER;
}

/* In node order, so that a chain of in-place nodes ends in one class. */
static void take_places(const struct np_graph *graph, const int *when, struct life *lives)
{
    for (int n = 0; n < graph->nr_nodes; n++) {
        const struct np_op_node *node = &graph->nodes[n];
        int out = placed_output(node);

        for (int i = 0; i < node->nr_ins && out >= 0; i++) {
            int in = node->ins[i];
            struct life *root;

            if (in < 0 || !in_place(node, i) || !in_arena(&graph->tensors[in]) ||
                lives[in].last_node != n || lives[in].bytes != lives[out].bytes ||
                lives[in].last_sum == (when ? when[n] : n))
                continue;
            /* The place is free only when all tensors that share it end here. */
            root = &lives[lives[in].root];
            if (root->last_node > n)
                continue;
            lives[out].root = root->tensor;
            root->last = lives[out].last;
            root->last_node = lives[out].last_node;
            break;
        }
    }
}

static int bigger_first(const void *left, const void *right)
{
    const struct life *a = *(const struct life *const *)left;
    const struct life *b = *(const struct life *const *)right;

    if (a->bytes != b->bytes)
        return a->bytes > b->bytes ? -1 : 1;
    return a->first != b->first ? a->first - b->first : a->tensor - b->tensor;
}

struct place {
    uint64_t offset, end;
};

static int lower_first(const void *left, const void *right)
{
    const struct place *a = left, *b = right;

    return a->offset < b->offset ? -1 : a->offset > b->offset;
}

/* The smallest gap between the places of tensors that live at the same time. */
static uint64_t best_gap(struct place *busy, int nr_busy, uint64_t bytes)
{
    uint64_t end = 0, best = NOWHERE, best_gap_bytes = NOWHERE;

    qsort(busy, (size_t)nr_busy, sizeof(*busy), lower_first);
    for (int i = 0; i < nr_busy; i++) {
        if (busy[i].offset > end && busy[i].offset - end >= bytes &&
            busy[i].offset - end < best_gap_bytes) {
            best = end;
            best_gap_bytes = busy[i].offset - end;
        }
        end = busy[i].end > end ? busy[i].end : end;
    }
    return best != NOWHERE ? best : end;
}

static void place_all(
    struct life **roots, int nr_roots, struct place *busy, struct np_memory *memory)
{
    qsort(roots, (size_t)nr_roots, sizeof(*roots), bigger_first);
    for (int i = 0; i < nr_roots; i++) {
        int nr_busy = 0;
        uint64_t offset;

        for (int j = 0; j < i; j++)
            if (roots[j]->first <= roots[i]->last && roots[i]->first <= roots[j]->last) {
                uint64_t at = memory->offsets[roots[j]->tensor];

                busy[nr_busy++] = (struct place){at, at + roots[j]->bytes};
            }
        offset = best_gap(busy, nr_busy, roots[i]->bytes);
        memory->offsets[roots[i]->tensor] = offset;
        if (offset + roots[i]->bytes > memory->arena_bytes)
            memory->arena_bytes = offset + roots[i]->bytes;
    }
}

void np_memory_plan(const struct np_graph *graph, const int *when, struct np_memory *ret_memory)
{
    size_t n = (size_t)graph->nr_tensors;
    struct life *lives = np_alloc_array(n, sizeof(*lives));
    struct life **roots = np_alloc_array(n, sizeof(struct life *));
    struct place *busy = np_alloc_array(n, sizeof(*busy));
    struct np_memory memory = {.offsets = np_alloc_array(n, sizeof(uint64_t))};
    int nr_roots = 0;

    find_lives(graph, when, lives);
    take_places(graph, when, lives);
    for (size_t t = 0; t < n; t++) {
        memory.offsets[t] = NOWHERE;
        if (lives[t].used && lives[t].root == (int)t)
            roots[nr_roots++] = &lives[t];
    }
    place_all(roots, nr_roots, busy, &memory);
    for (size_t t = 0; t < n; t++)
        if (lives[t].used)
            memory.offsets[t] = memory.offsets[lives[t].root];
    *ret_memory = memory;
    np_free(busy);
    np_free(roots);
    np_free(lives);
}

void np_memory_fini(struct np_memory *memory)
{
    np_free(memory->offsets);
    memory->offsets = NULL;
    memory->arena_bytes = 0;
}

int np_lane_start(int batch, int nr_lanes, int lane)
{
    return (int)((int64_t)batch * lane / nr_lanes);
}
