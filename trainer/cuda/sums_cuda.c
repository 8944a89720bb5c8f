#include "trainer/cuda/sums_cuda.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "loader/base/text.h"
#include "trainer/comm_hops.h"
#include "trainer/cuda/plan_memory.h"

#define BUCKET_BYTES (25u << 20) /* as torch's DistributedDataParallel; NNPIPE_CUDA_BUCKET */
#define MAX_LEVELS   12

struct bucket {
    uint64_t at, n; /* elements of the gradients' array */
    int after;      /* the last node that uses them */
};

struct np_cuda_sums {
    struct np_plan *plan;
    struct np_comm *comm;        /* NULL: one process */
    struct np_cuda_group *group; /* NULL: one process */
    int lanes, own;
    bool fast, halves; /* train.sum: fast; comm_dtype: bf16 */
    cudaStream_t stream;
    cudaEvent_t ready, done;
    struct bucket *buckets;          /* in the order of `after` */
    int nr_buckets, next;            /* next: to be queued, of the current pass */
    uint64_t nr_most;                /* elements of the largest bucket, or the buffers */
    struct np_hop hops[NP_MAX_HOPS]; /* of exact sums */
    int nr_hops;
    /* tree[k], (params + buffers): the sum of 2^k lanes that waits for that of the next ones. */
    float *tree[MAX_LEVELS];
    float *first_buffers;
    void *other; /* (nr_most) of another process, or halves */
};

int np_cuda_sums_lanes(const struct np_cuda_sums *sums)
{
    return sums->lanes;
}

int np_cuda_sums_first(const struct np_cuda_sums *sums)
{
    return np_comm_rank(sums->comm) * sums->own;
}

int np_cuda_sums_own(const struct np_cuda_sums *sums)
{
    return sums->own;
}

int np_cuda_sums_check(const struct np_cuda_sums *sums, struct np_err *err)
{
    return sums ? np_cuda_group_check(sums->group, err) : 0;
}

int np_cuda_sums_any(struct np_cuda_sums *sums, bool *says, struct np_err *err)
{
    uint32_t bits = *says;
    const int code = np_comm_any(sums->comm, &bits, err);

    *says = bits != 0;
    return code;
}

int np_cuda_sums_share(struct np_comm *comm, char **text, struct np_err *err)
{
    uint64_t bytes = *text ? strlen(*text) + 1 : 0;
    int code = np_comm_broadcast(comm, &bytes, sizeof(bytes), err);

    if (code < 0 || bytes == 0)
        return code;
    if (np_comm_rank(comm) > 0) {
        np_free(*text);
        if (!(*text = np_try_alloc(bytes, err)))
            return -ENOMEM;
    }
    code = np_comm_broadcast(comm, *text, bytes, err);
    (*text)[bytes - 1] = '\0';
    return code;
}

/* --- buckets --------------------------------------------------------------------------------- */

struct extent { /* of a parameter */
    uint64_t at, n;
    int after;
};

static int compare_places(const void *a, const void *b)
{
    const struct extent *x = a, *y = b;

    return x->at < y->at ? -1 : x->at > y->at;
}

/* The last node that reads or writes the gradient: batchnorm's input gradient reads those of its
 * parameters. */
static int last_use(const struct np_graph *graph, int grad)
{
    int last = 0;

    for (int n = 0; n < graph->nr_nodes; n++) {
        const struct np_op_node *node = &graph->nodes[n];

        for (int i = 0; i < node->nr_ins; i++)
            last = node->ins[i] == grad ? n : last;
        for (int i = 0; i < node->nr_outs; i++)
            last = node->outs[i] == grad ? n : last;
    }
    return last;
}

/* The parameters in the order of the array, each up to the next one. *ret_n: how many. np_free. */
static struct extent *find_extents(const struct np_cuda_program *program, int *ret_n)
{
    const struct np_graph *graph = program->graph;
    const struct np_cuda_layout *layout = program->arrays.layout;
    struct extent *extents = np_alloc_array((size_t)graph->nr_tensors + 1, sizeof(*extents));
    int n = 0;

    for (int t = 0; t < graph->nr_tensors; t++)
        if (graph->tensors[t].role == NP_ROLE_PARAM)
            extents[n++] =
                (struct extent){layout->offsets[t], 0, last_use(graph, graph->tensors[t].grad)};
    qsort(extents, (size_t)n, sizeof(*extents), compare_places);
    for (int i = 0; i < n; i++)
        extents[i].n = (i + 1 < n ? extents[i + 1].at : layout->nr_params) - extents[i].at;
    *ret_n = n;
    return extents;
}

static int compare_buckets(const void *a, const void *b)
{
    const struct bucket *x = a, *y = b;

    return x->after != y->after ? x->after - y->after : x->at > y->at ? -1 : x->at < y->at;
}

static void add_bucket(struct np_cuda_sums *sums, uint64_t at, uint64_t n, int after, size_t *room)
{
    np_grow(&sums->buckets, room, (size_t)sums->nr_buckets + 1, sizeof(*sums->buckets));
    sums->buckets[sums->nr_buckets++] = (struct bucket){at, n, after};
    sums->nr_most = n > sums->nr_most ? n : sums->nr_most;
}

/* From the end of the array, since the backward pass begins there: parameters beside each other share a
 * bucket until it is full; a large one is cut. Convolutions, which come first and may have halves, share
 * none with others. The list is the same in all processes. */
static void find_buckets(struct np_cuda_sums *sums, const struct np_cuda_program *program)
{
    const uint64_t convs = program->arrays.layout->nr_convs;
    const char *own = getenv("NNPIPE_CUDA_BUCKET");
    int64_t bytes = BUCKET_BYTES;
    struct bucket open = {0};
    size_t room = 0;
    int n;
    struct extent *extents = find_extents(program, &n);

    if (own)
        np_text_int(own, 1024, 1 << 30, &bytes);
    const uint64_t full = (uint64_t)bytes / sizeof(float) / NP_CUDA_CHUNK * NP_CUDA_CHUNK;
    for (int i = n - 1; i >= 0; i--) {
        const struct extent *extent = &extents[i];
        uint64_t end = extent->at + extent->n;

        if (open.n > 0 && (open.n + extent->n > full || end == convs)) {
            add_bucket(sums, open.at, open.n, open.after, &room);
            open = (struct bucket){0};
        }
        for (; end - extent->at > full; end -= full)
            add_bucket(sums, end - full, full, extent->after, &room);
        open = (struct bucket){extent->at, open.n + end - extent->at,
            open.n > 0 && open.after > extent->after ? open.after : extent->after};
    }
    if (open.n > 0)
        add_bucket(sums, open.at, open.n, open.after, &room);
    np_free(extents);
    qsort(sums->buckets, (size_t)sums->nr_buckets, sizeof(*sums->buckets), compare_buckets);
}

/* --- opening --------------------------------------------------------------------------------- */

/* Level k of the tree is filled by lane 2^k - 1 first, and the last lane of this process fills none. */
static int nr_levels(const struct np_cuda_sums *sums)
{
    int levels = 0;

    while (1 << levels < sums->own)
        levels++;
    return levels;
}

static int take_arrays(struct np_cuda_sums *sums, struct np_err *err)
{
    struct np_plan *plan = sums->plan;
    const uint64_t all = plan->layout->nr_params + plan->nr_buffers;
    int code = 0;

    if (plan->nr_buffers > sums->nr_most)
        sums->nr_most = plan->nr_buffers;
    for (int k = 0; code == 0 && k < nr_levels(sums); k++)
        code = np_cuda_take(plan, all * sizeof(float), &sums->tree[k], err);
    if (code == 0 && sums->own > 1)
        code = np_cuda_take(plan, plan->nr_buffers * sizeof(float), &sums->first_buffers, err);
    if (code == 0 && sums->group && (!sums->fast || sums->halves))
        code = np_cuda_take(plan, sums->nr_most * sizeof(float), &sums->other, err);
    return code < 0 ? np_err_context(err, "the sums of gradients") : 0;
}

static int make_stream(struct np_cuda_sums *sums, struct np_err *err)
{
    const struct np_plan *plan = sums->plan;
    cudaError_t status = cudaStreamCreateWithFlags(&sums->stream, cudaStreamNonBlocking);

    if (status == cudaSuccess)
        status = cudaEventCreateWithFlags(&sums->ready, cudaEventDisableTiming);
    if (status == cudaSuccess)
        status = cudaEventCreateWithFlags(&sums->done, cudaEventDisableTiming);
    return np_cuda_plan_check(plan, status, "a stream for sums", err);
}

int np_cuda_sums_new(struct np_plan *plan, const struct np_plan_options *options,
    struct np_cuda_sums **ret_sums, struct np_err *err)
{
    struct np_cuda_sums *sums = np_alloc(sizeof(*sums));
    int code = 0;

    sums->plan = plan;
    sums->comm = options->comm;
    sums->lanes = options->parts;
    sums->own = options->parts / np_comm_world(options->comm);
    sums->nr_hops =
        np_hops_find(np_comm_rank(options->comm), np_comm_world(options->comm), sums->hops);
    sums->fast = options->sum_fast;
    sums->halves = options->comm_halves;
    code = make_stream(sums, err);
    if (code == 0 && sums->comm)
        code = np_cuda_group_open(plan->device, sums->comm, &sums->group, err);
    if (code < 0)
        np_cuda_sums_free(sums);
    else
        *ret_sums = sums;
    return code;
}

int np_cuda_sums_take(struct np_cuda_sums *sums, struct np_err *err)
{
    find_buckets(sums, sums->plan->train);
    return take_arrays(sums, err);
}

void np_cuda_sums_part(struct np_cuda_sums *sums)
{
    np_cuda_group_close(sums->group);
    sums->group = NULL;
}

void np_cuda_sums_free(struct np_cuda_sums *sums)
{
    if (!sums)
        return;
    np_cuda_sums_part(sums);
    for (int k = 0; k < MAX_LEVELS; k++)
        if (sums->tree[k])
            cudaFree(sums->tree[k]);
    if (sums->first_buffers)
        cudaFree(sums->first_buffers);
    if (sums->other)
        cudaFree(sums->other);
    if (sums->ready)
        cudaEventDestroy(sums->ready);
    if (sums->done)
        cudaEventDestroy(sums->done);
    if (sums->stream)
        cudaStreamDestroy(sums->stream);
    np_free(sums->buckets);
    np_free(sums);
}

/* --- this process's lanes -------------------------------------------------------------------- */

/* The level that lane `lane` completes: it closes as many pairs as its number ends in ones. */
static int level_of(int lane)
{
    return __builtin_ctz(~(unsigned)lane);
}

static int check_launch(const struct np_cuda_sums *sums, cudaError_t status, struct np_err *err)
{
    return np_cuda_plan_check(sums->plan, status != cudaSuccess ? status : cudaPeekAtLastError(),
        "the sums of gradients", err);
}

static cudaError_t copy(float *to, const float *from, uint64_t n, cudaStream_t stream)
{
    return n ? cudaMemcpyAsync(to, from, n * sizeof(float), cudaMemcpyDeviceToDevice, stream)
             : cudaSuccess;
}

int np_cuda_sums_begin(struct np_cuda_sums *sums, int lane, struct np_err *err)
{
    const struct np_plan *plan = sums->plan;
    float *buffers = plan->arrays.buffers;
    cudaError_t status;

    if (sums->own == 1)
        return 0;
    if (lane == 0)
        status = copy(sums->first_buffers, buffers, plan->nr_buffers, np_cuda_stream(plan));
    else
        status = copy(buffers, sums->first_buffers, plan->nr_buffers, np_cuda_stream(plan));
    return check_launch(sums, status, err);
}

/* x, (n) at element `at` of the tree's arrays, becomes the sum of the lanes that wait and itself. The last
 * lane takes all that wait: level k does where bit k of its number is set. */
static void climb(
    const struct np_cuda_sums *sums, int lane, float *x, uint64_t at, uint64_t n, void *stream)
{
    const int end = lane + 1 == sums->own ? nr_levels(sums) : level_of(lane);

    for (int k = 0; n > 0 && k < end; k++)
        if (lane >> k & 1)
            np_cuda_accumulate(stream, sums->tree[k] + at, x, false, n);
}

int np_cuda_sums_add(struct np_cuda_sums *sums, int lane, struct np_err *err)
{
    const struct np_plan *plan = sums->plan;
    const uint64_t n = plan->layout->nr_params;
    float *to = sums->tree[level_of(lane)];
    cudaStream_t stream = np_cuda_stream(plan);

    climb(sums, lane, plan->arrays.grads, 0, n, stream);
    climb(sums, lane, plan->arrays.buffers, n, plan->nr_buffers, stream);
    cudaError_t status = copy(to, plan->arrays.grads, n, stream);
    if (status == cudaSuccess)
        status = copy(to + n, plan->arrays.buffers, plan->nr_buffers, stream);
    return check_launch(sums, status, err);
}

/* --- all processes' -------------------------------------------------------------------------- */

/* a + b and b + a have the same bits, so all have the same sum. */
static int sum_exact(struct np_cuda_sums *sums, float *x, uint64_t n, struct np_err *err)
{
    const int rank = np_comm_rank(sums->comm);
    int code = 0;

    for (int i = 0; code == 0 && i < sums->nr_hops; i++) {
        const enum np_hop_kind kind = sums->hops[i].kind;

        code = np_cuda_group_swap(sums->group, kind == NP_HOP_TAKE ? NULL : x,
            kind == NP_HOP_GIVE   ? NULL
            : kind == NP_HOP_TAKE ? x
                                  : sums->other,
            n, NP_CUDA_F32, rank ^ (1 << sums->hops[i].link), sums->stream, err);
        if (code == 0 && kind == NP_HOP_SWAP)
            np_cuda_accumulate(sums->stream, sums->other, x, false, n);
    }
    return code;
}

static int sum_halves(struct np_cuda_sums *sums, float *x, uint64_t n, struct np_err *err)
{
    np_cuda_cast(sums->stream, NP_CUDA_F32, x, NP_CUDA_BF16, sums->other, n);
    const int code =
        np_cuda_group_sum(sums->group, sums->other, n, NP_CUDA_BF16, sums->stream, err);
    np_cuda_cast(sums->stream, NP_CUDA_BF16, sums->other, NP_CUDA_F32, x, n);
    return code;
}

static int sum_all(struct np_cuda_sums *sums, float *x, uint64_t n, bool halves, struct np_err *err)
{
    if (!sums->group || n == 0)
        return 0;
    return !sums->fast ? sum_exact(sums, x, n, err)
           : halves    ? sum_halves(sums, x, n, err)
                       : np_cuda_group_sum(sums->group, x, n, NP_CUDA_F32, sums->stream, err);
}

/* The stream of sums waits for what is queued for the compute stream. */
static int follow(struct np_cuda_sums *sums, struct np_err *err)
{
    cudaError_t status = cudaEventRecord(sums->ready, np_cuda_stream(sums->plan));

    if (status == cudaSuccess)
        status = cudaStreamWaitEvent(sums->stream, sums->ready, 0);
    return np_cuda_plan_check(sums->plan, status, "to follow an event", err);
}

static int queue_bucket(
    struct np_cuda_sums *sums, const struct np_cuda_program *program, struct np_err *err)
{
    const struct bucket *bucket = &sums->buckets[sums->next++];
    const struct np_cuda_arrays *arrays = &program->arrays;
    float *x = arrays->grads + bucket->at;

    if (arrays->half_grads && bucket->at < arrays->layout->nr_convs)
        np_cuda_cast(sums->stream, program->dtype, (uint16_t *)arrays->half_grads + bucket->at,
            NP_CUDA_F32, x, bucket->n);
    climb(sums, sums->own - 1, x, bucket->at, bucket->n, sums->stream);
    const int code = sum_all(sums, x, bucket->n, sums->halves, err);
    return code == 0 ? check_launch(sums, cudaSuccess, err) : code;
}

/* After a node of the last lane. */
static int queue_ready(void *context, int node, struct np_err *err)
{
    struct np_cuda_sums *sums = context;
    int code = 0;

    if (sums->next < sums->nr_buckets && sums->buckets[sums->next].after <= node)
        code = follow(sums, err);
    while (code == 0 && sums->next < sums->nr_buckets && sums->buckets[sums->next].after <= node)
        code = queue_bucket(sums, sums->plan->train, err);
    return code;
}

/* The lanes' mean. */
static int queue_buffers(struct np_cuda_sums *sums, struct np_err *err)
{
    const struct np_plan *plan = sums->plan;
    const uint64_t n = plan->nr_buffers;
    float *buffers = plan->arrays.buffers;

    if (n == 0)
        return 0;
    climb(sums, sums->own - 1, buffers, plan->layout->nr_params, n, sums->stream);
    const int code = sum_all(sums, buffers, n, false, err);
    np_cuda_combine(sums->stream, 1.0f / (float)sums->lanes, buffers, 0, buffers, n);
    return code == 0 ? check_launch(sums, cudaSuccess, err) : code;
}

int np_cuda_sums_queue_last(
    struct np_cuda_sums *sums, struct np_cuda_program *program, struct np_err *err)
{
    sums->next = 0;
    program->after = queue_ready;
    program->after_context = sums;
    int code = np_cuda_program_queue(program, err);
    program->after = NULL;
    if (code == 0)
        code = follow(sums, err);
    if (code == 0)
        code = queue_buffers(sums, err);
    if (code < 0)
        return code;
    cudaError_t status = cudaEventRecord(sums->done, sums->stream);
    if (status == cudaSuccess)
        status = cudaStreamWaitEvent(np_cuda_stream(sums->plan), sums->done, 0);
    return np_cuda_plan_check(sums->plan, status, "to follow an event", err);
}
