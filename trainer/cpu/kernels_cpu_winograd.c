/* 3x3 convolutions of stride 1 by Winograd's F(4x4, 3x3): a quarter of the multiplications.
 * Forward, gradient of the input (a convolution with the flipped weights) and of the weights.
 *
 * A run works in blocks of tiles whose transforms fit in the core's cache. Rounding errors are a
 * few units in the last place larger than the plain sum's: see the tolerances in tests/kernel. */
#include "trainer/cpu/kernels_cpu.h"

#include <errno.h>
#include <string.h>

#include "loader/base/mem.h"
#include "trainer/cpu/winograd.h"

#define CACHE_BYTES   (384u << 10) /* of transformed tiles */
#define MIN_TILES     24           /* of a block; more if the weights do not fit in a cache */
#define MAX_TILES     96
#define WEIGHTS_CACHE (1u << 20)
#define MAX_WEIGHTS   (12u << 20) /* bytes transformed; beyond, saving memory matters more */

struct winograd {
    struct np_cpu cpu;
    int pad;
    struct np_wg_image in;  /* x; for the input's gradient dy. Its data belong to a run */
    struct np_wg_image out; /* y, dx; for the weights' gradient dy, an input too */
    int tiles_y, tiles_x, block;
    bool has_bias;
    /* bytes in the scratch */
    size_t tiles_at, zeros_at, in_at, out_at;
    size_t in_row, in_point, out_row, out_point; /* floats */
};

static bool is_wgrad(const struct winograd *wg)
{
    return wg->cpu.op == NP_OP_CONV_WGRAD;
}

static size_t weight_floats(const struct winograd *wg)
{
    return (size_t)NP_WG_POINTS * (size_t)wg->in.c * (size_t)wg->out.c;
}

/* Of a lane's gradients in the files' layout. */
static size_t leaf_floats(const struct winograd *wg)
{
    return 9 * (size_t)wg->in.c * (size_t)wg->out.c + (wg->has_bias ? (size_t)wg->out.c : 0);
}

/* --- preparing ----------------------------------------------------------------------------- */

static bool takes(const struct winograd *wg, const struct np_window *w)
{
    int covered = wg->tiles_y * wg->tiles_x * NP_WG_OUT * NP_WG_OUT;

    return np_winograd_usable() && w->kernel_h == 3 && w->kernel_w == 3 && w->stride_h == 1 &&
           w->stride_w == 1 && w->pad_h == w->pad_w && w->dilation_h == 1 && w->dilation_w == 1 &&
           w->groups == 1 && w->pad_h <= 2 && wg->in.c % 8 == 0 && wg->out.c % 8 == 0 &&
           weight_floats(wg) * sizeof(float) <= MAX_WEIGHTS &&
           2 * wg->out.h * wg->out.w >= covered; /* at most half of the tiles' pixels are outside */
}

/* Avoids strides that are powers of two: the points of a tile would share one cache set. */
static void lay_out(struct winograd *wg, struct np_needs *ret_needs)
{
    size_t n = (size_t)wg->block, at = 0;
    int max_c = wg->in.c > wg->out.c ? wg->in.c : wg->out.c;

    wg->in_row = (size_t)wg->in.c + (wg->in.c >= 128 ? 16 : 0);
    wg->out_row = (size_t)wg->out.c + (wg->out.c >= 128 ? 16 : 0);
    wg->in_point = n * wg->in_row + 16;
    wg->out_point = n * wg->out_row + 16;
    wg->tiles_at = at;
    at += (2 * n * sizeof(struct np_wg_tile) + NP_ALIGN - 1) / NP_ALIGN * NP_ALIGN;
    wg->zeros_at = at;
    at += 6 * (size_t)max_c * sizeof(float);
    wg->in_at = at;
    at += NP_WG_POINTS * wg->in_point * sizeof(float);
    wg->out_at = at;
    at += NP_WG_POINTS * wg->out_point * sizeof(float);
    ret_needs->scratch_bytes = at;
}

static void set_shapes(
    struct winograd *wg, const struct np_graph *graph, const struct np_op_node *node)
{
    const int *in = graph->tensors[node->ins[0]].dims;
    const int *out = graph->tensors[is_wgrad(wg) ? node->ins[1] : node->outs[0]].dims;

    wg->in = (struct np_wg_image){NULL, wg->cpu.half, in[1], in[2], in[3]};
    wg->out = (struct np_wg_image){NULL, wg->cpu.half, out[1], out[2], out[3]};
    wg->pad = wg->cpu.op == NP_OP_CONV_DGRAD ? 2 - wg->cpu.attrs.window.pad_h
                                             : wg->cpu.attrs.window.pad_h;
    wg->tiles_y = (wg->out.h + NP_WG_OUT - 1) / NP_WG_OUT;
    wg->tiles_x = (wg->out.w + NP_WG_OUT - 1) / NP_WG_OUT;
    wg->has_bias = is_wgrad(wg) ? node->nr_outs > 1 && node->outs[1] >= 0
                                : wg->cpu.op == NP_OP_CONV && node->nr_ins > 2 && node->ins[2] >= 0;
}

static int choose_block(const struct winograd *wg, int max_rows)
{
    size_t tile = NP_WG_POINTS * sizeof(float) * (size_t)(wg->in.c + wg->out.c);
    int n = (int)(CACHE_BYTES / tile), all = max_rows * wg->tiles_y * wg->tiles_x;

    n = n < MIN_TILES ? MIN_TILES : n;
    if (n > MAX_TILES || is_wgrad(wg) || weight_floats(wg) * sizeof(float) > WEIGHTS_CACHE)
        n = MAX_TILES;
    return n < all ? n : all;
}

static int winograd_prepare(const struct np_graph *graph, const struct np_op_node *node,
    int max_rows, void **ret_state, struct np_needs *ret_needs, struct np_err *err)
{
    struct winograd *wg = np_alloc(sizeof(*wg));
    int code = np_cpu_init(&wg->cpu, graph, node);

    if (code == 0) {
        set_shapes(wg, graph, node);
        code = takes(wg, &node->attrs.window) ? 0 : -ENOTSUP;
    }
    if (code < 0) {
        np_free(wg);
        return code;
    }
    wg->block = choose_block(wg, max_rows);
    *ret_needs = (struct np_needs){.max_rows = max_rows};
    lay_out(wg, ret_needs);
    if (is_wgrad(wg))
        ret_needs->partial_bytes =
            (weight_floats(wg) + (wg->has_bias ? (size_t)wg->out.c : 0)) * sizeof(float);
    if (is_wgrad(wg))
        ret_needs->leaf_bytes = leaf_floats(wg) * sizeof(float);
    else
        ret_needs->shared_bytes = weight_floats(wg) * sizeof(float);
    *ret_state = wg;
    return 0;
}

static void winograd_begin(void *state, const struct np_operands *operands, void *shared)
{
    const struct winograd *wg = state;
    bool back = wg->cpu.op == NP_OP_CONV_DGRAD;

    np_wg_weights(
        operands->ptr[1], back ? wg->in.c : wg->out.c, back ? wg->out.c : wg->in.c, back, shared);
}

/* --- running ------------------------------------------------------------------------------- */

struct block {
    struct np_wg_tile *in, *out;
    struct np_wg_matrices v, m; /* of the input; of the output, or of dy */
    const float *zeros;
};

static struct block make_block(const struct winograd *wg, const struct np_run *run)
{
    char *scratch = run->scratch;
    struct np_wg_tile *tiles = (struct np_wg_tile *)(void *)(scratch + wg->tiles_at);
    struct block block = {.in = tiles,
        .out = tiles + wg->block,
        .v = {(float *)(void *)(scratch + wg->in_at), wg->in_point, wg->in_row, 0},
        .m = {(float *)(void *)(scratch + wg->out_at), wg->out_point, wg->out_row, 0},
        .zeros = (float *)(void *)(scratch + wg->zeros_at)};

    memset(scratch + wg->zeros_at, 0, wg->in_at - wg->zeros_at);
    return block;
}

static void place_tiles(
    const struct winograd *wg, const struct np_run *run, int first, struct block *block)
{
    int a_row = wg->tiles_y * wg->tiles_x, left = run->nr_rows * a_row - first;
    int n = left < wg->block ? left : wg->block;

    for (int i = 0; i < n; i++) {
        int tile = first + i, row = run->first_row + tile / a_row;
        int y = tile % a_row / wg->tiles_x * NP_WG_OUT, x = tile % wg->tiles_x * NP_WG_OUT;

        block->in[i] = (struct np_wg_tile){row, y - wg->pad, x - wg->pad};
        block->out[i] = (struct np_wg_tile){row, y, x};
    }
    block->v.nr_tiles = block->m.nr_tiles = n;
}

/* Forward, and the gradient of the input. */
static void data_run(void *state, const struct np_run *run)
{
    const struct winograd *wg = state;
    void *const *ptr = run->operands->ptr;
    void *out = ptr[wg->cpu.nr_ins];
    struct np_wg_image from = wg->in;
    struct block block = make_block(wg, run);
    int all = run->nr_rows * wg->tiles_y * wg->tiles_x;

    from.data = ptr[0];
    for (int first = 0; first < all; first += wg->block) {
        place_tiles(wg, run, first, &block);
        np_wg_input(&from, block.in, &block.v, block.zeros);
        for (size_t point = 0; point < NP_WG_POINTS; point++)
            np_wg_multiply(&(struct np_wg_product){.a = block.v.data + point * wg->in_point,
                .a_row = wg->in_row,
                .a_step = 1,
                .b = (const float *)run->shared + point * (size_t)wg->in.c * (size_t)wg->out.c,
                .c = block.m.data + point * wg->out_point,
                .c_row = wg->out_row,
                .m = block.v.nr_tiles,
                .n = wg->out.c,
                .k = wg->in.c});
        np_wg_output(&block.m, block.out, &wg->out, out, wg->has_bias ? ptr[2] : NULL,
            wg->cpu.op == NP_OP_CONV && wg->cpu.attrs.relu);
    }
}

static void wgrad_run(void *state, const struct np_run *run)
{
    const struct winograd *wg = state;
    void *const *ptr = run->operands->ptr;
    struct np_wg_image x = wg->in, dy = wg->out;
    struct block block = make_block(wg, run);
    int all = run->nr_rows * wg->tiles_y * wg->tiles_x;
    float *sum = run->partial;

    x.data = ptr[0];
    dy.data = ptr[1];
    for (int first = 0; first < all; first += wg->block) {
        place_tiles(wg, run, first, &block);
        np_wg_input(&x, block.in, &block.v, block.zeros);
        np_wg_gradient(&dy, block.out, &block.m, block.zeros);
        for (size_t point = 0; point < NP_WG_POINTS; point++)
            np_wg_multiply(&(struct np_wg_product){.a = block.v.data + point * wg->in_point,
                .a_row = 1,
                .a_step = wg->in_row,
                .b = block.m.data + point * wg->out_point,
                .c = sum + point * (size_t)wg->in.c * (size_t)wg->out.c,
                .c_panels = true,
                .add = !run->first_in_lane || first > 0,
                .m = wg->in.c,
                .n = wg->out.c,
                .k = block.v.nr_tiles});
    }
    if (wg->has_bias)
        np_wg_sum(&dy, run->first_row, run->nr_rows, !run->first_in_lane, sum + weight_floats(wg));
}

/* Sums of transformed lanes would round otherwise than transformed sums: in lanes each is transformed
 * back by itself. */
static void wgrad_leaf(void *state, const void *partial, float *out)
{
    const struct winograd *wg = state;

    np_wg_weight_gradient(partial, wg->out.c, wg->in.c, 0, wg->in.c, out);
    if (wg->has_bias)
        memcpy(out + 9 * (size_t)wg->in.c * (size_t)wg->out.c,
            (const float *)partial + weight_floats(wg), (size_t)wg->out.c * sizeof(float));
}

/* Adds the lanes in order into the first one; each part has its own inputs. */
static void add_lanes(const struct winograd *wg, const struct np_finish *finish, int first, int end)
{
    float *sum = finish->partials[0];

    for (int lane = 1; lane < finish->nr_lanes; lane++) {
        const float *from = finish->partials[lane];

        for (int point = 0; point < NP_WG_POINTS; point++)
            for (int c = 0; c < wg->out.c; c += NP_WG_PANEL) {
                int width = wg->out.c - c < NP_WG_PANEL ? wg->out.c - c : NP_WG_PANEL;
                size_t at = ((size_t)point * (size_t)wg->out.c + (size_t)c) * (size_t)wg->in.c +
                            (size_t)(first * width);

                np_wg_add(sum + at, from + at, (size_t)((end - first) * width));
            }
    }
}

static void wgrad_finish(void *state, const struct np_finish *finish)
{
    const struct winograd *wg = state;
    int first = wg->in.c * finish->part / finish->nr_parts;
    int end = wg->in.c * (finish->part + 1) / finish->nr_parts;
    float *dbias = finish->operands->ptr[wg->cpu.nr_ins + 1];

    add_lanes(wg, finish, first, end);
    np_wg_weight_gradient(finish->partials[0], wg->out.c, wg->in.c, first, end,
        finish->operands->ptr[wg->cpu.nr_ins]);
    if (!wg->has_bias || finish->part > 0)
        return;
    for (int c = 0; c < wg->out.c; c++) {
        dbias[c] = 0;
        for (int lane = 0; lane < finish->nr_lanes; lane++)
            dbias[c] += ((const float *)finish->partials[lane])[weight_floats(wg) + (size_t)c];
    }
}

const struct np_kernel np_kernels_winograd[] = {
    NP_KERNEL_ROWS("cpu winograd", NP_OP_CONV, winograd_prepare, winograd_begin, data_run, NULL),
    NP_KERNEL_ROWS(
        "cpu winograd dgrad", NP_OP_CONV_DGRAD, winograd_prepare, winograd_begin, data_run, NULL),
    NP_SUM_ROWS("cpu winograd wgrad", NP_OP_CONV_WGRAD, winograd_prepare, wgrad_run, wgrad_leaf,
        wgrad_finish),
    {NULL},
};
