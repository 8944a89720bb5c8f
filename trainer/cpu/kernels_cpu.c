/* The CPU device's own kernels, where oneDNN has none, or none for a few rows at a time. Here:
 * bf16, input, relu, add, flatten, concat. Any pool thread, each its own lane. */
#include "trainer/cpu/kernels_cpu.h"

#include <errno.h>
#include <limits.h>

#include "loader/base/mem.h"
#include "trainer/cpu/simd.h"

#define MIN_TILE     64                       /* elements: shorter loops are not worth starting */
#define MAX_CHANNELS (INT_MAX / NP_CPU_BLOCK) /* beyond, a period would overflow an int */

static void shape_of(const struct np_tensor *tensor, int *ret_h, int *ret_w, int *ret_c)
{
    bool image = tensor->nr_dims > 3;

    *ret_h = image ? tensor->dims[1] : 1;
    *ret_w = image ? tensor->dims[2] : 1;
    *ret_c = tensor->nr_dims > 1 ? tensor->dims[tensor->nr_dims - 1] : 1;
}

int np_cpu_init(struct np_cpu *cpu, const struct np_graph *graph, const struct np_op_node *node)
{
    const struct np_tensor *in = &graph->tensors[node->ins[0]];
    const struct np_tensor *out = &graph->tensors[node->outs[0]];
    int c;

    if (node->op == NP_OP_INPUT)
        in = out;
    if (in->dtype != NP_F32 && in->dtype != NP_BF16)
        return -ENOTSUP;
    cpu->op = node->op;
    cpu->half = in->dtype == NP_BF16;
    cpu->nr_ins = node->nr_ins;
    cpu->nr_outs = node->nr_outs;
    cpu->batch = in->dims[0];
    cpu->attrs = node->attrs;
    shape_of(out, &cpu->out_h, &cpu->out_w, &c);
    shape_of(in, &cpu->h, &cpu->w, &cpu->c);
    if (cpu->c > MAX_CHANNELS)
        return -ENOTSUP;
    cpu->period = cpu->c;
    while (cpu->period % NP_CPU_BLOCK != 0) /* four times at most */
        cpu->period *= 2;
    cpu->tile = cpu->period * ((MIN_TILE + cpu->period - 1) / cpu->period);
    return 0;
}

int np_cpu_prepare(const struct np_graph *graph, const struct np_op_node *node, int max_rows,
    void **ret_state, struct np_needs *ret_needs, struct np_err *err)
{
    struct np_cpu *cpu = np_alloc(sizeof(*cpu));
    const int code = np_cpu_init(cpu, graph, node);

    if (code < 0) {
        np_free(cpu);
        return code;
    }
    *ret_needs = (struct np_needs){.scratch_bytes = 5 * (size_t)cpu->tile * sizeof(float)};
    *ret_state = cpu;
    return 0;
}

NP_LOOP(bf16_from_f32, (uint16_t * out, const float *in, size_t n), (out, in, n))
{
    size_t i = 0;

    for (; i + 8 <= n; i += 8)
        np_store_bf16(out + i, np_load(in + i));
    for (; i < n; i++)
        out[i] = np_to_bf16(in[i]);
}

NP_LOOP(f32_from_bf16, (float *out, const uint16_t *in, size_t n), (out, in, n))
{
    size_t i = 0;

    for (; i + 8 <= n; i += 8)
        np_store(out + i, np_load_bf16(in + i));
    for (; i < n; i++)
        out[i] = np_from_bf16(in[i]);
}

void np_bf16_from_f32(uint16_t *out, const float *in, size_t n)
{
    bf16_from_f32(out, in, n);
}

void np_f32_from_bf16(float *out, const uint16_t *in, size_t n)
{
    f32_from_bf16(out, in, n);
}

NP_LOOP_HALF(normalise,
    (void *out, const uint8_t *in, size_t n, const float *mean, const float *scale, size_t tile),
    (out, in, n, mean, scale, tile))
{
    for (size_t t = 0; t < n; t += tile) {
        size_t end = n - t < tile ? n - t : tile, i = 0;

        for (; i + 8 <= end; i += 8) {
            np_v8b bytes;

            memcpy(&bytes, in + t + i, sizeof(bytes));
            np_put(out, t + i, half,
                (__builtin_convertvector(__builtin_convertvector(bytes, np_v8i), np_v8) -
                    np_load(mean + i)) *
                    np_load(scale + i));
        }
        for (; i < end; i++)
            np_put1(out, t + i, half, ((float)in[t + i] - mean[i]) * scale[i]);
    }
}

/* The mean of two rows' bytes with shares keep and 1 - keep, normalised. */
NP_LOOP_HALF(normalise_two,
    (void *out, const uint8_t *a, const uint8_t *b, float keep, size_t n, const float *mean,
        const float *scale, size_t tile),
    (out, a, b, keep, n, mean, scale, tile))
{
    for (size_t t = 0; t < n; t += tile)
        for (size_t i = 0; i < tile && i < n - t; i++) {
            float value = keep * (float)a[t + i] + (1 - keep) * (float)b[t + i];

            np_put1(out, t + i, half, (value - mean[i]) * scale[i]);
        }
}

/* A row mixed with its partner: all pixels, or the lines of a box from the partner. */
static void mix_row(const struct np_cpu *cpu, const struct np_run *run, int r,
    const struct np_mixed *mixed, const float *mean, const float *scale)
{
    const size_t row = np_cpu_row(cpu), c = (size_t)cpu->c, tile = (size_t)cpu->tile;
    const uint8_t *images = run->operands->ptr[0], *own = images + (size_t)r * row;
    const uint8_t *other =
        images + (size_t)np_mix_partner_in(r, cpu->batch, cpu->attrs.lane_rows) * row;
    void *out = run->operands->ptr[1];

    if (!mixed->box) {
        normalise_two(cpu->half, np_cpu_at(cpu, out, (size_t)r * row), own, other, mixed->keep, row,
            mean, scale, tile);
        return;
    }
    normalise(cpu->half, np_cpu_at(cpu, out, (size_t)r * row), own, row, mean, scale, tile);
    for (int y = mixed->top; y < mixed->bottom && mixed->right > mixed->left; y++) {
        const size_t from = ((size_t)y * (size_t)cpu->w + (size_t)mixed->left) * c;

        normalise(cpu->half, np_cpu_at(cpu, out, (size_t)r * row + from), other + from,
            (size_t)(mixed->right - mixed->left) * c, mean, scale, tile);
    }
}

/* A picture as a view shows it, in `made` (a row's bytes). */
static void make_view(const struct np_cpu *cpu, int view, const uint8_t *picture, uint8_t *made)
{
    const size_t c = (size_t)cpu->c;
    int from_y, from_x;

    for (int y = 0; y < cpu->h; y++)
        for (int x = 0; x < cpu->w; x++, made += c) {
            np_view_pixel(view, y, x, cpu->h, cpu->w, &from_y, &from_x);
            const uint8_t *pixel = picture + ((size_t)from_y * (size_t)cpu->w + (size_t)from_x) * c;
            for (size_t i = 0; i < c; i++)
                made[i] = pixel[i];
        }
}

static int input_prepare(const struct np_graph *graph, const struct np_op_node *node, int max_rows,
    void **ret_state, struct np_needs *ret_needs, struct np_err *err)
{
    const int code = np_cpu_prepare(graph, node, max_rows, ret_state, ret_needs, err);

    if (code == 0 && node->attrs.tta != NP_TTA_NONE)
        ret_needs->scratch_bytes += np_cpu_row(*ret_state);
    return code;
}

/* (u8 / 255 - mean) / std */
static void input_run(void *state, const struct np_run *run)
{
    struct np_cpu *cpu = state;
    size_t row = np_cpu_row(cpu), first = np_cpu_first(run, row);
    float *mean = run->scratch, *scale = mean + cpu->tile;
    struct np_mixed mixed;

    for (int i = 0; i < cpu->tile; i++) {
        mean[i] = cpu->attrs.mean[i % cpu->c] * 255;
        scale[i] = 1 / (cpu->attrs.std[i % cpu->c] * 255);
    }
    np_mix_draw(&cpu->attrs.mix, run->info->step, &mixed);
    for (int r = run->first_row; mixed.keep < 1 && r < run->first_row + run->nr_rows; r++)
        mix_row(cpu, run, r, &mixed, mean, scale);
    for (int r = 0; run->info->view > 0 && r < run->nr_rows; r++) {
        uint8_t *made = (uint8_t *)(scale + 4 * (size_t)cpu->tile);
        const size_t at = first + (size_t)r * row;

        make_view(cpu, run->info->view, (const uint8_t *)run->operands->ptr[0] + at, made);
        normalise(cpu->half, np_cpu_at(cpu, run->operands->ptr[1], at), made, row, mean, scale,
            (size_t)cpu->tile);
    }
    if (mixed.keep < 1 || run->info->view > 0)
        return;
    normalise(cpu->half, np_cpu_at(cpu, run->operands->ptr[1], first),
        (const uint8_t *)run->operands->ptr[0] + first, row * (size_t)run->nr_rows, mean, scale,
        (size_t)cpu->tile);
}

NP_LOOP(relu_f32, (float *out, const float *in, size_t n), (out, in, n))
{
    size_t i = 0;

    for (; i + 8 <= n; i += 8)
        np_store(out + i, np_relu(np_load(in + i)));
    for (; i < n; i++)
        out[i] = in[i] < 0 ? 0 : in[i];
}

/* Compares the bits as signed integers: -0 is the smallest, then negative numbers up to
 * -infinity, then NaNs. -0 stays, as in f32; a NaN gets its quiet bit, which rounding to bf16
 * sets too. */
NP_LOOP(relu_bf16, (int16_t * out, const int16_t *in, size_t n), (out, in, n))
{
    const int16_t minus_zero = INT16_MIN, minus_infinity = -0x80, size = INT16_MAX;
    const int16_t infinity = 0x7f80, quiet = 0x40;
    size_t i = 0;

    for (; i + 8 <= n; i += 8) {
        np_v8s x;

        memcpy(&x, in + i, sizeof(x));
        x &= ~((x > minus_zero) & (x <= minus_infinity));
        x |= ((x & size) > infinity) & quiet;
        memcpy(out + i, &x, sizeof(x));
    }
    for (; i < n; i++) {
        int16_t x = in[i] > minus_zero && in[i] <= minus_infinity ? 0 : in[i];

        out[i] = (x & size) > infinity ? x | quiet : x;
    }
}

void np_cpu_relu(bool half, void *out, const void *in, size_t n)
{
    if (half)
        relu_bf16(out, in, n);
    else
        relu_f32(out, in, n);
}

NP_LOOP_HALF(relu_dgrad, (void *dx, const void *dy, const void *y, size_t n), (dx, dy, y, n))
{
    size_t i = 0;

    for (; i + 8 <= n; i += 8)
        np_put(dx, i, half, np_mask(np_get(y, i, half) > np_zero(), np_get(dy, i, half)));
    for (; i < n; i++) {
        float d = np_get1(dy, i, half);

        np_put1(dx, i, half, np_get1(y, i, half) > 0 ? d : 0);
    }
}

NP_LOOP_HALF(add, (void *out, const void *a, const void *b, size_t n), (out, a, b, n))
{
    size_t i = 0;

    for (; i + 8 <= n; i += 8)
        np_put(out, i, half, np_get(a, i, half) + np_get(b, i, half));
    for (; i < n; i++)
        np_put1(out, i, half, np_get1(a, i, half) + np_get1(b, i, half));
}

NP_LOOP_HALF(add_relu, (void *out, const void *a, const void *b, size_t n), (out, a, b, n))
{
    size_t i = 0;

    for (; i + 8 <= n; i += 8)
        np_put(out, i, half, np_relu(np_get(a, i, half) + np_get(b, i, half)));
    for (; i < n; i++) {
        float sum = np_get1(a, i, half) + np_get1(b, i, half);

        np_put1(out, i, half, sum < 0 ? 0 : sum);
    }
}

static void elements_run(void *state, const struct np_run *run)
{
    struct np_cpu *cpu = state;
    size_t row = np_cpu_row(cpu), first = np_cpu_first(run, row), n = row * (size_t)run->nr_rows;
    void *a = np_cpu_at(cpu, run->operands->ptr[0], first);
    void *b = cpu->nr_ins > 1 ? np_cpu_at(cpu, run->operands->ptr[1], first) : NULL;
    void *out = np_cpu_at(cpu, run->operands->ptr[cpu->nr_ins], first);

    if (cpu->op == NP_OP_RELU)
        np_cpu_relu(cpu->half, out, a, n);
    else if (cpu->op == NP_OP_RELU_DGRAD)
        relu_dgrad(cpu->half, out, a, b, n);
    else
        (cpu->attrs.relu ? add_relu : add)(cpu->half, out, a, b, n);
}

/* (pixels, c) -> (c, pixels) or back, of elements of 2 or 4 bytes. */
static void transpose(const struct np_cpu *cpu, void *out, const void *in, size_t m, size_t n)
{
    for (size_t i = 0; i < m; i++)
        for (size_t k = 0; k < n; k++)
            if (cpu->half)
                ((uint16_t *)out)[k * m + i] = ((const uint16_t *)in)[i * n + k];
            else
                ((float *)out)[k * m + i] = ((const float *)in)[i * n + k];
}

static void flatten_run(void *state, const struct np_run *run)
{
    struct np_cpu *cpu = state;
    bool back = cpu->op == NP_OP_FLATTEN_DGRAD;
    size_t row = np_cpu_row(cpu);
    size_t pixels = (size_t)(back ? cpu->out_h * cpu->out_w : cpu->h * cpu->w), c = row / pixels;

    for (int r = run->first_row; r < run->first_row + run->nr_rows; r++) {
        void *in = np_cpu_at(cpu, run->operands->ptr[0], (size_t)r * row);
        void *out = np_cpu_at(cpu, run->operands->ptr[1], (size_t)r * row);

        transpose(cpu, out, in, back ? c : pixels, back ? pixels : c);
    }
}

struct concat {
    struct np_cpu cpu;
    size_t bytes[NP_MAX_OPERANDS]; /* of a pixel of each part */
    size_t whole, pixels;          /* bytes of a pixel of all; pixels of a row */
    int nr_parts;
};

static int concat_prepare(const struct np_graph *graph, const struct np_op_node *node, int max_rows,
    void **ret_state, struct np_needs *ret_needs, struct np_err *err)
{
    bool back = node->op == NP_OP_CONCAT_DGRAD;
    struct concat *concat = np_alloc(sizeof(*concat));
    int code, h, w, c;

    code = np_cpu_init(&concat->cpu, graph, node);
    if (code < 0) {
        np_free(concat);
        return code;
    }
    concat->pixels = (size_t)concat->cpu.h * (size_t)concat->cpu.w;
    concat->nr_parts = back ? node->nr_outs : node->nr_ins;
    for (int i = 0; i < concat->nr_parts; i++) {
        shape_of(&graph->tensors[back ? node->outs[i] : node->ins[i]], &h, &w, &c);
        concat->bytes[i] = (size_t)c * (concat->cpu.half ? sizeof(uint16_t) : sizeof(float));
        concat->whole += concat->bytes[i];
    }
    *ret_needs = (struct np_needs){0};
    *ret_state = concat;
    return 0;
}

/* Parts lie side by side in each pixel; dgrad splits them. */
static void concat_run(void *state, const struct np_run *run)
{
    const struct concat *concat = state;
    bool back = concat->cpu.op == NP_OP_CONCAT_DGRAD;
    size_t first = (size_t)run->first_row * concat->pixels, at = 0;
    size_t end = first + (size_t)run->nr_rows * concat->pixels;
    char *whole = run->operands->ptr[back ? 0 : concat->nr_parts];

    for (int i = 0; i < concat->nr_parts; i++) {
        char *part = run->operands->ptr[back ? i + 1 : i];
        size_t bytes = concat->bytes[i];

        for (size_t p = first; p < end; p++) {
            char *in_whole = whole + p * concat->whole + at, *alone = part + p * bytes;

            memcpy(back ? alone : in_whole, back ? in_whole : alone, bytes);
        }
        at += bytes;
    }
}

const struct np_kernel np_kernels_cpu[] = {
    NP_KERNEL_ROWS("cpu input", NP_OP_INPUT, input_prepare, NULL, input_run, NULL),
    NP_KERNEL_ROWS("cpu relu", NP_OP_RELU, np_cpu_prepare, NULL, elements_run, NULL),
    NP_KERNEL_ROWS("cpu relu_dgrad", NP_OP_RELU_DGRAD, np_cpu_prepare, NULL, elements_run, NULL),
    NP_KERNEL_ROWS("cpu add", NP_OP_ADD, np_cpu_prepare, NULL, elements_run, NULL),
    NP_KERNEL_ROWS("cpu flatten", NP_OP_FLATTEN, np_cpu_prepare, NULL, flatten_run, NULL),
    NP_KERNEL_ROWS(
        "cpu flatten_dgrad", NP_OP_FLATTEN_DGRAD, np_cpu_prepare, NULL, flatten_run, NULL),
    NP_KERNEL_ROWS("cpu concat", NP_OP_CONCAT, concat_prepare, NULL, concat_run, NULL),
    NP_KERNEL_ROWS("cpu concat_dgrad", NP_OP_CONCAT_DGRAD, concat_prepare, NULL, concat_run, NULL),
    {NULL},
};
