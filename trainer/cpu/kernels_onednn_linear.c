/* Linear layers by oneDNN's matrix product, forward and backward, in f32; rows in bf16 are
 * converted. The weight gradient is one product over the batch, made in finish(): one sum per lane
 * would cost as much memory as the weights, and AlexNet's are 150 MB. Where a row has many tokens
 * it is the other way round: each lane adds up its chunks' products, which are still in the
 * cache. In a run with train.lanes finish() makes a product per lane of each tile, and adds them in a
 * binary tree; and where weights are large it makes the forward products and those of the inputs'
 * gradients, too: a slice of the outputs for all lanes, so that the weights are read once. */
#include "trainer/cpu/kernels_onednn_api.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "loader/base/mem.h"
#include "trainer/cpu/kernels.h"
#include "trainer/cpu/simd.h"
#include "trainer/plan.h"

/* Outputs of a product in finish(): fixed, for equal rounding. */
#define BLOCK 64
/* Of a tile of a gradient in lanes: outputs, and inputs. */
#define HEIGHT 128
#define WIDTH  512
/* Columns of a slice of weights, forward and backward, and weights from which on slices are worth
 * their packing: fixed, too. */
#define FORWARD_SLICE  32
#define BACKWARD_SLICE 128
#define LARGE          (128u << 10)

struct linear {
    enum np_op op;
    bool half, relu, in_lanes;
    int nr_operands_in, max_rows;
    size_t in, out; /* features */
    size_t tokens;  /* of a row, each a row of the matrices */
};

/* Rows that a lane's run keeps for finish() when they are bf16. */
struct lane_rows {
    size_t nr_rows;
    float rows[]; /* x (max_rows, in), dy (max_rows, out) */
};

/* Sums of a tree of this process's lanes that wait at one time: 1 or more. */
static size_t levels_of(const struct np_graph *graph, const struct np_op_node *node)
{
    const int lanes = graph->tensors[node->ins[0]].dims[0] / node->attrs.lane_rows;
    size_t levels = 1;

    while (1 << levels < lanes)
        levels++;
    return levels;
}

static int linear_prepare(const struct np_graph *graph, const struct np_op_node *node, int max_rows,
    void **ret_state, struct np_needs *ret_needs, struct np_err *err)
{
    struct linear *linear = np_alloc(sizeof(*linear));
    const struct np_tensor *weight =
        &graph->tensors[node->op == NP_OP_LINEAR_WGRAD ? node->outs[0] : node->ins[1]];

    linear->op = node->op;
    linear->half = graph->tensors[node->ins[0]].dtype == NP_BF16;
    linear->relu = node->attrs.relu;
    linear->in_lanes = node->attrs.lane_rows > 0;
    linear->nr_operands_in = node->nr_ins;
    linear->max_rows = max_rows;
    linear->out = (size_t)weight->dims[0];
    linear->in = (size_t)weight->dims[1];
    linear->tokens =
        (size_t)graph->tensors[node->ins[0]].dims[1] * (size_t)graph->tensors[node->ins[0]].dims[2];
    *ret_needs = (struct np_needs){.max_rows = max_rows};
    if (node->op == NP_OP_LINEAR_WGRAD && linear->tokens > 1)
        ret_needs->partial_bytes = ret_needs->leaf_bytes =
            (linear->in + 1) * linear->out * sizeof(float);
    if (linear->half) {
        size_t rows = (size_t)max_rows * linear->tokens;
        size_t bytes = (linear->in + linear->out) * rows * sizeof(float);

        if (node->op == NP_OP_LINEAR_WGRAD && linear->tokens == 1)
            ret_needs->partial_bytes = sizeof(struct lane_rows) + bytes;
        else
            ret_needs->scratch_bytes = bytes;
    }
    if (node->op == NP_OP_LINEAR_WGRAD && linear->tokens == 1 && linear->in_lanes)
        ret_needs->scratch_bytes = levels_of(graph, node) * HEIGHT * WIDTH * sizeof(float);
    *ret_state = linear;
    return 0;
}

static const float *rows_in(const struct linear *linear, const struct np_run *run, size_t features,
    const void *data, float *room)
{
    size_t first = (size_t)run->first_row * linear->tokens * features;

    if (!linear->half)
        return (const float *)data + first;
    np_f32_from_bf16(
        room, (const uint16_t *)data + first, features * linear->tokens * (size_t)run->nr_rows);
    return room;
}

/* (rows, columns) at `at`, a row pitch apart. */
struct tile {
    float *at;
    size_t rows, columns, pitch;
};

NP_LOOP(add_bias_row, (float *y, const float *bias, size_t n, bool relu), (y, bias, n, relu))
{
    size_t i = 0;

    for (; i + 8 <= n; i += 8) {
        const np_v8 sum = bias ? np_load(y + i) + np_load(bias + i) : np_load(y + i);

        np_store(y + i, relu ? np_relu(sum) : sum);
    }
    for (; i < n; i++) {
        const float sum = bias ? y[i] + bias[i] : y[i];

        y[i] = relu && sum < 0 ? 0 : sum;
    }
}

static void add_bias(const struct linear *linear, const struct tile *y, const float *bias)
{
    for (size_t r = 0; (bias || linear->relu) && r < y->rows; r++)
        add_bias_row(y->at + r * y->pitch, bias, y->columns, linear->relu);
}

static const float *bias_of(const struct linear *linear, const struct np_operands *operands)
{
    return linear->nr_operands_in > 2 ? operands->ptr[2] : NULL;
}

/* Forward: y = x w' + b; dgrad: dx = dy w. */
static void linear_run(void *state, const struct np_run *run)
{
    struct linear *linear = state;
    bool forward = linear->op == NP_OP_LINEAR;
    size_t from = forward ? linear->in : linear->out, to = forward ? linear->out : linear->in;
    size_t rows = (size_t)run->nr_rows * linear->tokens;
    size_t first = (size_t)run->first_row * linear->tokens * to;
    void *out = run->operands->ptr[linear->nr_operands_in];
    float *room = run->scratch;
    const float *in = rows_in(linear, run, from, run->operands->ptr[0], room);
    float *result = linear->half ? room + rows * from : (float *)out + first;

    np_sgemm('N', forward ? 'T' : 'N', rows, to, from, 1, in, from, run->operands->ptr[1],
        linear->in, 0, result, to);
    if (forward)
        add_bias(linear, &(struct tile){result, rows, to, to}, bias_of(linear, run->operands));
    if (linear->half)
        np_bf16_from_f32((uint16_t *)out + first, result, rows * to);
}

/* Adds a chunk's dw (out, in), then db (out), to the lane's. */
static void add_chunk(const struct linear *linear, const struct np_run *run)
{
    size_t rows = (size_t)run->nr_rows * linear->tokens;
    float *dw = run->partial, *db = dw + linear->in * linear->out, *room = run->scratch;
    const float *x = rows_in(linear, run, linear->in, run->operands->ptr[0], room);
    const float *dy = rows_in(
        linear, run, linear->out, run->operands->ptr[1], room ? room + rows * linear->in : NULL);

    np_sgemm('T', 'N', linear->out, linear->in, rows, 1, dy, linear->out, x, linear->in,
        run->first_in_lane ? 0 : 1, dw, linear->in);
    if (run->first_in_lane)
        memset(db, 0, linear->out * sizeof(float));
    for (size_t r = 0; r < rows; r++)
        for (size_t o = 0; o < linear->out; o++)
            db[o] += dy[r * linear->out + o];
}

static void wgrad_run(void *state, const struct np_run *run)
{
    struct linear *linear = state;
    struct lane_rows *lane = run->partial;
    float *dy;

    if (linear->tokens > 1) {
        add_chunk(linear, run);
        return;
    }
    if (!linear->half)
        return;                 /* finish() reads the batch in place */
    assert(run->first_in_lane); /* one run a lane */
    lane->nr_rows = (size_t)run->nr_rows;
    rows_in(linear, run, linear->in, run->operands->ptr[0], lane->rows);
    dy = lane->rows + lane->nr_rows * linear->in;
    rows_in(linear, run, linear->out, run->operands->ptr[1], dy);
}

static void wgrad_block(const struct linear *linear, const struct np_finish *finish, size_t first,
    size_t n, const float *x, const float *dy, size_t rows, bool add)
{
    float *dw = (float *)finish->operands->ptr[linear->nr_operands_in] + first * linear->in;
    float *db = finish->operands->ptr[linear->nr_operands_in + 1];

    np_sgemm('T', 'N', n, linear->in, rows, 1, dy + first, linear->out, x, linear->in, add ? 1 : 0,
        dw, linear->in);
    for (size_t o = first; db && o < first + n; o++) {
        float sum = add ? db[o] : 0;

        for (size_t r = 0; r < rows; r++)
            sum += dy[r * linear->out + o];
        db[o] = sum;
    }
}

/* Adds up what add_chunk() made in each lane. */
static void add_lanes(const struct linear *linear, const struct np_finish *finish)
{
    float *dw = finish->operands->ptr[linear->nr_operands_in];
    float *db = finish->operands->ptr[linear->nr_operands_in + 1];
    size_t weights = linear->in * linear->out, n = weights + (db ? linear->out : 0);

    for (size_t i = n * (size_t)finish->part / (size_t)finish->nr_parts;
         i < n * (size_t)(finish->part + 1) / (size_t)finish->nr_parts; i++) {
        float *out = i < weights ? &dw[i] : &db[i - weights];
        float sum = finish->accumulate ? *out : 0;

        for (int lane = 0; lane < finish->nr_lanes; lane++)
            sum += ((const float *)finish->partials[lane])[i];
        *out = sum;
    }
}

/* --- gradients of weights in lanes ----------------------------------------------------------- */

struct lane {
    const float *x, *dy;
    size_t rows;
};

static struct lane lane_of(const struct linear *linear, const struct np_finish *finish, int lane)
{
    if (linear->half) {
        const struct lane_rows *kept = finish->partials[lane];

        return (struct lane){kept->rows, kept->rows + kept->nr_rows * linear->in, kept->nr_rows};
    }
    const size_t first = (size_t)np_lane_start(finish->batch, finish->nr_lanes, lane);
    return (struct lane){(const float *)finish->operands->ptr[0] + first * linear->in,
        (const float *)finish->operands->ptr[1] + first * linear->out,
        (size_t)np_lane_start(finish->batch, finish->nr_lanes, lane + 1) - first};
}

NP_LOOP(add_row, (float *to, const float *from, size_t n), (to, from, n))
{
    size_t i = 0;

    for (; i + 8 <= n; i += 8)
        np_store(to + i, np_load(to + i) + np_load(from + i));
    for (; i < n; i++)
        to[i] += from[i];
}

static void add_tile(const struct tile *to, const struct tile *from)
{
    for (size_t r = 0; r < to->rows; r++)
        add_row(to->at + r * to->pitch, from->at + r * from->pitch, to->columns);
}

/* The sum over the lanes of what `make` makes of each, in a binary tree: level k has the sum of 2^k
 * lanes, the last lane ends in `out`, with all levels that are there: the ones of its number. */
static void sum_lanes(const struct linear *linear, const struct np_finish *finish, size_t first_out,
    size_t first_in, const struct tile *out,
    void (*make)(const struct linear *linear, const struct lane *lane, size_t first_out,
        size_t first_in, const struct tile *to))
{
    for (int l = 0; l < finish->nr_lanes; l++) {
        const struct lane lane = lane_of(linear, finish, l);
        const bool last = l + 1 == finish->nr_lanes;
        const int level = __builtin_ctz(~(unsigned)l);
        struct tile own = *out, below = *out;

        below.pitch = out->columns;
        if (!last) {
            own.pitch = out->columns;
            own.at = (float *)finish->scratch + (size_t)level * HEIGHT * WIDTH;
        }
        make(linear, &lane, first_out, first_in, &own);
        for (int k = 0; last ? l >> k > 0 : k < level; k++)
            if (l >> k & 1) {
                below.at = (float *)finish->scratch + (size_t)k * HEIGHT * WIDTH;
                add_tile(&own, &below);
            }
    }
}

static void lane_weights(const struct linear *linear, const struct lane *lane, size_t first_out,
    size_t first_in, const struct tile *to)
{
    np_sgemm('T', 'N', to->rows, to->columns, lane->rows, 1, lane->dy + first_out, linear->out,
        lane->x + first_in, linear->in, 0, to->at, to->pitch);
}

static void lane_bias(const struct linear *linear, const struct lane *lane, size_t first_out,
    size_t first_in, const struct tile *to)
{
    for (size_t o = 0; o < to->columns; o++) {
        float sum = 0;

        for (size_t r = 0; r < lane->rows; r++)
            sum += lane->dy[r * linear->out + first_out + o];
        to->at[o] = sum;
    }
}

static void finish_in_lanes(const struct linear *linear, const struct np_finish *finish)
{
    float *dw = finish->operands->ptr[linear->nr_operands_in];
    float *db = finish->operands->ptr[linear->nr_operands_in + 1];
    const size_t step = (size_t)finish->nr_parts * HEIGHT;

    for (size_t o = (size_t)finish->part * HEIGHT; o < linear->out; o += step) {
        const size_t n = linear->out - o < HEIGHT ? linear->out - o : HEIGHT;

        for (size_t i = 0; i < linear->in; i += WIDTH) {
            const size_t columns = linear->in - i < WIDTH ? linear->in - i : WIDTH;
            const struct tile out = {dw + o * linear->in + i, n, columns, linear->in};

            sum_lanes(linear, finish, o, i, &out, lane_weights);
        }
        if (db)
            sum_lanes(linear, finish, o, 0, &(struct tile){db + o, 1, n, n}, lane_bias);
    }
}

static void wgrad_finish(void *state, const struct np_finish *finish)
{
    struct linear *linear = state;
    size_t step = (size_t)finish->nr_parts * BLOCK;

    if (linear->tokens == 1 && linear->in_lanes) {
        finish_in_lanes(linear, finish);
        return;
    }
    if (linear->tokens > 1) {
        add_lanes(linear, finish);
        return;
    }

    for (size_t o = (size_t)finish->part * BLOCK; o < linear->out; o += step) {
        size_t n = linear->out - o < BLOCK ? linear->out - o : BLOCK;

        if (!linear->half)
            wgrad_block(linear, finish, o, n, finish->operands->ptr[0], finish->operands->ptr[1],
                (size_t)finish->batch, finish->accumulate);
        for (int l = 0; linear->half && l < finish->nr_lanes; l++) {
            const struct lane_rows *lane = finish->partials[l];

            wgrad_block(linear, finish, o, n, lane->rows, lane->rows + lane->nr_rows * linear->in,
                lane->nr_rows, finish->accumulate || l > 0);
        }
    }
}

/* --- the other products in lanes -------------------------------------------------------------- */

bool np_linear_waits(const struct np_graph *graph, const struct np_op_node *node)
{
    const int *x = graph->tensors[node->ins[0]].dims;

    return (node->op == NP_OP_LINEAR || node->op == NP_OP_LINEAR_DGRAD) &&
           node->attrs.lane_rows > 0 && x[1] * x[2] == 1 &&
           np_tensor_elements(&graph->tensors[node->ins[1]]) >= LARGE;
}

static size_t slice_of(const struct linear *linear)
{
    return linear->op == NP_OP_LINEAR ? FORWARD_SLICE : BACKWARD_SLICE;
}

static int slices_prepare(const struct np_graph *graph, const struct np_op_node *node, int max_rows,
    void **ret_state, struct np_needs *ret_needs, struct np_err *err)
{
    if (!np_linear_waits(graph, node))
        return -ENOTSUP;
    int code = linear_prepare(graph, node, max_rows, ret_state, ret_needs, err);
    const struct linear *linear = *ret_state;
    const bool forward = linear->op == NP_OP_LINEAR;
    const size_t from = forward ? linear->in : linear->out, rows = (size_t)max_rows;

    ret_needs->partial_bytes =
        linear->half ? sizeof(struct lane_rows) + rows * from * sizeof(float) : 0;
    ret_needs->scratch_bytes = (from + rows) * slice_of(linear) * sizeof(float);
    return code;
}

/* Keeps the lane's rows as f32. */
static void slices_run(void *state, const struct np_run *run)
{
    const struct linear *linear = state;
    struct lane_rows *lane = run->partial;

    if (!linear->half)
        return;                 /* finish() reads the batch in place */
    assert(run->first_in_lane); /* one run a lane */
    lane->nr_rows = (size_t)run->nr_rows;
    rows_in(linear, run, linear->op == NP_OP_LINEAR ? linear->in : linear->out,
        run->operands->ptr[0], lane->rows);
}

/* Transposes 8 x 8 values. */
NP_INLINE void transpose8(float *to, size_t to_pitch, const float *from, size_t from_pitch)
{
    np_v8 a[8], b[8];

    for (size_t i = 0; i < 8; i++)
        a[i] = np_load(from + i * from_pitch);
    for (int i = 0; i < 8; i += 2) { /* pairs of rows: every second value, in pairs */
        b[i] = __builtin_shuffle(a[i], a[i + 1], (np_v8i){0, 8, 2, 10, 4, 12, 6, 14});
        b[i + 1] = __builtin_shuffle(a[i], a[i + 1], (np_v8i){1, 9, 3, 11, 5, 13, 7, 15});
    }
    for (int i = 0; i < 8; i += 4)
        for (int k = 0; k < 2; k++) {
            a[i + k] =
                __builtin_shuffle(b[i + k], b[i + k + 2], (np_v8i){0, 1, 8, 9, 4, 5, 12, 13});
            a[i + k + 2] =
                __builtin_shuffle(b[i + k], b[i + k + 2], (np_v8i){2, 3, 10, 11, 6, 7, 14, 15});
        }
    for (size_t k = 0; k < 4; k++) {
        np_store(to + k * to_pitch,
            __builtin_shuffle(a[k], a[k + 4], (np_v8i){0, 1, 2, 3, 8, 9, 10, 11}));
        np_store(to + (k + 4) * to_pitch,
            __builtin_shuffle(a[k], a[k + 4], (np_v8i){4, 5, 6, 7, 12, 13, 14, 15}));
    }
}

/* out (columns, rows) = the rows at `in`, pitch apart. */
NP_LOOP(transpose, (float *out, const float *in, size_t rows, size_t columns, size_t pitch),
    (out, in, rows, columns, pitch))
{
    const size_t r8 = rows / 8 * 8, c8 = columns / 8 * 8;

    for (size_t r = 0; r < r8; r += 8)
        for (size_t c = 0; c < c8; c += 8)
            transpose8(out + c * rows + r, rows, in + r * pitch + c, pitch);
    for (size_t r = 0; r < rows; r++)
        for (size_t c = r < r8 ? c8 : 0; c < columns; c++)
            out[c * rows + r] = in[r * pitch + c];
}

/* A slice's weights: (from, n). */
static void take_slice(
    const struct linear *linear, const float *weights, size_t first, size_t n, float *out)
{
    if (linear->op == NP_OP_LINEAR) {
        transpose(out, weights + first * linear->in, n, linear->in, linear->in);
        return;
    }
    for (size_t o = 0; o < linear->out; o++)
        memcpy(out + o * n, weights + o * linear->in + first, n * sizeof(float));
}

/* A lane's product with a slice, at `first` of the outputs; tile: room for it. */
static void multiply(const struct linear *linear, const struct np_finish *finish, int lane,
    const struct tile *slice, size_t first, float *tile)
{
    const bool forward = linear->op == NP_OP_LINEAR;
    const size_t from = slice->rows, to = forward ? linear->out : linear->in, n = slice->columns;
    const size_t row = (size_t)np_lane_start(finish->batch, finish->nr_lanes, lane);
    const size_t rows = (size_t)np_lane_start(finish->batch, finish->nr_lanes, lane + 1) - row;
    const float *in = (const float *)finish->operands->ptr[0] + row * from;
    void *out = finish->operands->ptr[linear->nr_operands_in];
    struct tile y = {(float *)out + row * to + first, rows, n, to};
    const float *bias = forward ? bias_of(linear, finish->operands) : NULL;

    if (linear->half) {
        in = ((const struct lane_rows *)finish->partials[lane])->rows;
        y = (struct tile){tile, rows, n, n};
    }
    np_sgemm('N', 'N', rows, n, from, 1, in, from, slice->at, n, 0, y.at, y.pitch);
    if (forward)
        add_bias(linear, &y, bias ? bias + first : NULL);
    for (size_t r = 0; linear->half && r < rows; r++)
        np_bf16_from_f32((uint16_t *)out + (row + r) * to + first, tile + r * n, n);
}

static void slices_finish(void *state, const struct np_finish *finish)
{
    const struct linear *linear = state;
    const bool forward = linear->op == NP_OP_LINEAR;
    const size_t from = forward ? linear->in : linear->out, to = forward ? linear->out : linear->in;
    const size_t width = slice_of(linear), step = (size_t)finish->nr_parts * width;
    float *weights = finish->scratch;

    for (size_t i = (size_t)finish->part * width; i < to; i += step) {
        const size_t n = to - i < width ? to - i : width;
        const struct tile slice = {weights, from, n, n};

        take_slice(linear, finish->operands->ptr[1], i, n, weights);
        for (int lane = 0; lane < finish->nr_lanes; lane++) {
            const int first = np_lane_start(finish->batch, finish->nr_lanes, lane);
            const int end = np_lane_start(finish->batch, finish->nr_lanes, lane + 1);

            if (!np_may_skip(finish->info, first, end - first))
                multiply(linear, finish, lane, &slice, i, weights + from * width);
        }
    }
}

const struct np_kernel np_kernels_linear[] = {
    NP_KERNEL_ROWS(
        "onednn linear in slices", NP_OP_LINEAR, slices_prepare, NULL, slices_run, slices_finish),
    NP_KERNEL_ROWS("onednn linear dgrad in slices", NP_OP_LINEAR_DGRAD, slices_prepare, NULL,
        slices_run, slices_finish),
    NP_KERNEL_ROWS("onednn linear", NP_OP_LINEAR, linear_prepare, NULL, linear_run, NULL),
    NP_KERNEL_ROWS(
        "onednn linear dgrad", NP_OP_LINEAR_DGRAD, linear_prepare, NULL, linear_run, NULL),
    NP_KERNEL_ROWS(
        "onednn linear wgrad", NP_OP_LINEAR_WGRAD, linear_prepare, NULL, wgrad_run, wgrad_finish),
    {NULL},
};
