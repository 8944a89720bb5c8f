/* Checks one kernel against plain sums.
 *
 * Operands are small whole numbers (in f32 times 1/256), mostly 0, so that every sum is exact in
 * any order, in f32 and, for bf16 results, in bf16 too: the tolerance is only for Winograd's
 * fractions. To test every output element at the cost of one channel, the outputs are added up over
 * channels with random signs and compared with one convolution whose weights were added up
 * likewise: sum s_o (w_o * x) = (sum s_o w_o) * x. (Freivalds, "Probabilistic machines can use less
 * running time", 1977.)
 *
 * This finds a product that is missing, counted twice or of wrong operands, and an element that was
 * not written or is not finite. It cannot find faults that cancel over the channels, lost precision
 * (8-bit numbers pass through a narrower type), and faults that need more rows than were tried.
 * Fused relus are left out. */
#include "trainer/cpu/kernels_check.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "loader/base/mem.h"

#define MAX_ELEMENTS (1u << 18) /* in the rows of one run, at least one row */
#define MAX_LINEAR   16         /* rows of a linear layer without tokens */

struct check {
    enum np_op op;
    struct np_window w;
    int h, w_in, c, out_h, out_w, out_c; /* of x and y; a list's are 1x1 */
    int in, out, taps;                   /* channels of a group; elements of the window */
    int rows, batch;                     /* of a run; in total */
    struct np_check_room *room;
    size_t at; /* bytes of the room in use */
    bool half, has_bias;
    float *x, *y, *weights, *bias; /* NHWC, OIHW; operands and results alike */
    void *half_x, *half_y;         /* the same in bf16 */
    double *sums;
    float *before, *after; /* operands, added up; outputs, added up */
    double typical;
};

bool np_kernel_checkable(enum np_op op)
{
    return op == NP_OP_CONV || op == NP_OP_CONV_DGRAD || op == NP_OP_CONV_WGRAD ||
           op == NP_OP_LINEAR || op == NP_OP_LINEAR_DGRAD || op == NP_OP_LINEAR_WGRAD;
}

static bool is_forward(const struct check *check)
{
    return check->op == NP_OP_CONV || check->op == NP_OP_LINEAR;
}

static bool is_wgrad(const struct check *check)
{
    return check->op == NP_OP_CONV_WGRAD || check->op == NP_OP_LINEAR_WGRAD;
}

/* --- shapes -------------------------------------------------------------------------------- */

/* Tensors of the node, read or written: x, y, weights, bias (-1: none). */
static void tensors_of(const struct np_op_node *node, int tensors[4])
{
    bool forward = node->op == NP_OP_CONV || node->op == NP_OP_LINEAR;
    bool wgrad = node->op == NP_OP_CONV_WGRAD || node->op == NP_OP_LINEAR_WGRAD;

    tensors[0] = forward || wgrad ? node->ins[0] : node->outs[0];
    tensors[1] = forward ? node->outs[0] : wgrad ? node->ins[1] : node->ins[0];
    tensors[2] = wgrad ? node->outs[0] : node->ins[1];
    tensors[3] = forward && node->nr_ins > 2  ? node->ins[2]
                 : wgrad && node->nr_outs > 1 ? node->outs[1]
                                              : -1;
}

static void set_shapes(
    struct check *check, const struct np_graph *graph, const struct np_op_node *node, int max_rows)
{
    int t[4], max;
    bool linear = node->op == NP_OP_LINEAR || node->op == NP_OP_LINEAR_DGRAD ||
                  node->op == NP_OP_LINEAR_WGRAD;

    tensors_of(node, t);
    const int *x = graph->tensors[t[0]].dims, *y = graph->tensors[t[1]].dims;
    bool list = linear && x[1] * x[2] == 1;
    const int *weights = graph->tensors[t[2]].dims;

    check->op = node->op;
    check->half = graph->tensors[t[0]].dtype == NP_BF16;
    check->has_bias = t[3] >= 0;
    check->w = linear ? (struct np_window)NP_SQUARE(1, 1, 0, 1, 1) : node->attrs.window;
    check->h = x[1];
    check->w_in = x[2];
    check->c = x[3];
    check->out_h = y[1];
    check->out_w = y[2];
    check->out_c = weights[0];
    check->in = check->c / check->w.groups;
    check->out = check->out_c / check->w.groups;
    check->taps = check->w.kernel_h * check->w.kernel_w;
    max = (int)(MAX_ELEMENTS / (uint64_t)(check->h * check->w_in * check->c +
                                          check->out_h * check->out_w * check->out_c));
    max = list ? MAX_LINEAR : max < 1 ? 1 : max;
    check->rows = max_rows < max ? max_rows : max;
    check->batch = check->rows + (!list && check->rows > 1); /* so that one row is left over */
}

static size_t x_floats(const struct check *check)
{
    return (size_t)check->batch * (size_t)check->h * (size_t)check->w_in * (size_t)check->c;
}

static size_t y_floats(const struct check *check)
{
    return (size_t)check->batch * (size_t)check->out_h * (size_t)check->out_w *
           (size_t)check->out_c;
}

static size_t weight_floats(const struct check *check)
{
    return (size_t)check->out_c * (size_t)check->in * (size_t)check->taps;
}

static size_t nr_sums(const struct check *check)
{
    size_t groups = (size_t)check->w.groups;

    return is_forward(check) ? y_floats(check) / (size_t)check->out_c * groups
           : is_wgrad(check) ? groups * (size_t)check->taps * (size_t)check->in
                             : x_floats(check) / (size_t)check->c * groups;
}

/* --- operands ------------------------------------------------------------------------------ */

static uint32_t draw(uint64_t *state) /* Knuth's MMIX generator, upper half */
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 32);
}

/* The first `DRAWN` numbers repeat: drawing all of a large layer would take seconds. A prime, so
 * that rows and channels differ. */
#define DRAWN 65521

static void repeat(float *values, size_t n)
{
    for (size_t at = DRAWN; at < n; at += DRAWN)
        memcpy(values + at, values, (n - at < DRAWN ? n - at : DRAWN) * sizeof(float));
}

/* Draws -256 .. 255, times 1/256: the mean square is a third. */
static void make_up_fine(float *values, size_t n, uint64_t seed)
{
    for (size_t i = 0; i < n && i < DRAWN; i++)
        values[i] = (float)((int)(draw(&seed) >> 23) - 256) * (1.0f / 256);
    repeat(values, n);
}

/* Draws 1 and -1 with this share, else 0: the mean square is the share. */
static void make_up_signs(float *values, size_t n, double share, uint64_t seed)
{
    const uint64_t below = (uint64_t)(share * 0x1p32);

    for (size_t i = 0; i < n && i < DRAWN; i++) {
        uint32_t drawn = draw(&seed);

        values[i] = drawn >= below ? 0 : drawn & 1 ? 1 : -1;
    }
    repeat(values, n);
}

static float sign_of(size_t channel)
{
    return channel * 2654435761u >> 16 & 1 ? 1.0f : -1.0f;
}

/* Draws the operands: `first` is x or dy, `second` the weights, or dy. A bf16 result must not
 * exceed 256, up to which whole numbers are exact: eight times the typical size. */
static void make_up(struct check *check)
{
    bool back = !is_forward(check) && !is_wgrad(check);
    float *first = back ? check->y : check->x;
    float *second = is_wgrad(check) ? check->y : check->weights;
    size_t nr_first = back ? y_floats(check) : x_floats(check);
    size_t nr_second = is_wgrad(check) ? y_floats(check) : weight_floats(check);
    double terms = is_wgrad(check) ? (double)check->batch * check->out_h * check->out_w
                                   : (double)check->taps * (back ? check->out : check->in);
    double share = 2.0 / 3, square = check->half ? share : 1.0 / 3;

    if (check->half && !is_wgrad(check))
        share = fmin(share, 1024 / (terms * square));
    if (check->half)
        make_up_signs(first, nr_first, square, 1);
    else
        make_up_fine(first, nr_first, 1);
    make_up_signs(second, nr_second, share, 2);
    if (is_forward(check) && check->has_bias)
        make_up_signs(check->bias, (size_t)check->out_c, 2.0 / 3, 3);
    check->typical = fmax(sqrt(terms * square * share), 1);
}

/* --- expected sums --------------------------------------------------------------------------- */

/* A window element at an output pixel; pixels are counted over the batch. */
struct place {
    size_t x, y; /* pixel of x, of y */
    int tap;
};

static void each_place(struct check *check, const float *added,
    void (*visit)(struct check *check, const float *added, const struct place *place))
{
    const struct np_window *w = &check->w;

    for (int n = 0; n < check->batch; n++)
        for (int oy = 0; oy < check->out_h; oy++)
            for (int ox = 0; ox < check->out_w; ox++)
                for (int tap = 0; tap < check->taps; tap++) {
                    int y = oy * w->stride_h - w->pad_h + tap / w->kernel_w * w->dilation_h;
                    int x = ox * w->stride_w - w->pad_w + tap % w->kernel_w * w->dilation_w;
                    struct place place = {.tap = tap};

                    if (y < 0 || y >= check->h || x < 0 || x >= check->w_in)
                        continue;
                    place.x = ((size_t)n * (size_t)check->h + (size_t)y) * (size_t)check->w_in +
                              (size_t)x;
                    place.y =
                        ((size_t)n * (size_t)check->out_h + (size_t)oy) * (size_t)check->out_w +
                        (size_t)ox;
                    visit(check, added, &place);
                }
}

static double dot(const float *a, const float *b, size_t n)
{
    double sum[4] = {0};
    size_t i = 0;

    for (; i + 4 <= n; i += 4)
        for (int k = 0; k < 4; k++)
            sum[k] += (double)a[i + (size_t)k] * b[i + (size_t)k];
    for (; i < n; i++)
        sum[0] += (double)a[i] * b[i];
    return sum[0] + sum[1] + sum[2] + sum[3];
}

/* added: weights (groups, taps, in), added up over a group's outputs. */
static void visit_forward(struct check *check, const float *added, const struct place *place)
{
    size_t in = (size_t)check->in, taps = (size_t)check->taps, groups = (size_t)check->w.groups;
    const float *x = check->x + place->x * (size_t)check->c;

    for (size_t g = 0; g < groups; g++)
        check->sums[place->y * groups + g] +=
            dot(x + g * in, added + (g * taps + (size_t)place->tap) * in, in);
}

/* added: weights (groups, taps, out), added up over a group's inputs. */
static void visit_dgrad(struct check *check, const float *added, const struct place *place)
{
    size_t out = (size_t)check->out, taps = (size_t)check->taps, groups = (size_t)check->w.groups;
    const float *dy = check->y + place->y * (size_t)check->out_c;

    for (size_t g = 0; g < groups; g++)
        check->sums[place->x * groups + g] +=
            dot(dy + g * out, added + (g * taps + (size_t)place->tap) * out, out);
}

/* added: dy (pixels, groups), added up over a group's outputs. */
static void visit_wgrad(struct check *check, const float *added, const struct place *place)
{
    size_t in = (size_t)check->in, taps = (size_t)check->taps, groups = (size_t)check->w.groups;
    const float *x = check->x + place->x * (size_t)check->c;

    for (size_t g = 0; g < groups; g++) {
        double *sums = check->sums + (g * taps + (size_t)place->tap) * in;
        double dy = (double)added[place->y * groups + g];

        for (size_t i = 0; i < in; i++)
            sums[i] += (double)x[g * in + i] * dy;
    }
}

/* Weights (out, in, taps), added up over outputs into (groups, taps, in), or (back) over inputs
 * into (groups, taps, out). */
static void add_weights(const struct check *check, bool back, float *added)
{
    size_t in = (size_t)check->in, out = (size_t)check->out, taps = (size_t)check->taps;

    for (size_t o = 0; o < (size_t)check->out_c; o++) {
        const float *weights = check->weights + o * in * taps;
        float *to = added + o / out * taps * (back ? out : in);
        float sign = sign_of(o);

        for (size_t tap = 0; tap < taps; tap++)
            for (size_t i = 0; i < in; i++)
                if (back)
                    to[tap * out + o % out] += sign_of(o / out * in + i) * weights[i * taps + tap];
                else
                    to[tap * in + i] += sign * weights[i * taps + tap];
    }
}

/* Rows of y (pixels, out_c), added up into (pixels, groups). */
static void add_pixels(const float *from, size_t pixels, int channels, int of_a_group, float *added)
{
    size_t groups = (size_t)(channels / of_a_group);

    for (size_t p = 0; p < pixels; p++)
        for (size_t c = 0; c < (size_t)channels; c++)
            added[p * groups + c / (size_t)of_a_group] +=
                sign_of(c) * from[p * (size_t)channels + c];
}

static void expect(struct check *check, float *added)
{
    size_t groups = (size_t)check->w.groups;

    if (is_wgrad(check)) {
        add_pixels(
            check->y, y_floats(check) / (size_t)check->out_c, check->out_c, check->out, added);
        each_place(check, added, visit_wgrad);
        return;
    }
    add_weights(check, !is_forward(check), added);
    each_place(check, added, is_forward(check) ? visit_forward : visit_dgrad);
    for (size_t c = 0; is_forward(check) && check->has_bias && c < (size_t)check->out_c; c++)
        for (size_t p = 0; p < nr_sums(check) / groups; p++)
            check->sums[p * groups + c / (size_t)check->out] +=
                (double)(sign_of(c) * check->bias[c]);
}

/* --- running ------------------------------------------------------------------------------- */

struct room { /* memory of a prepared kernel; starts as NaN */
    void *state, *scratch, *partial, *shared;
    struct np_needs needs;
};

static size_t align(size_t bytes)
{
    return (bytes + NP_ALIGN - 1) / NP_ALIGN * NP_ALIGN;
}

static int hold(struct room *room, struct np_check_room *memory, struct np_err *err)
{
    const size_t scratch = align(room->needs.scratch_bytes),
                 partial = align(room->needs.partial_bytes);
    const size_t all = scratch + partial + align(room->needs.shared_bytes) + NP_ALIGN;

    if (np_hold(&memory->kernel, &memory->kernel_bytes, all, err) < 0)
        return -ENOMEM;
    memset(memory->kernel, 0xff, all);
    room->scratch = memory->kernel;
    room->partial = (char *)room->scratch + scratch;
    room->shared = (char *)room->partial + partial;
    return 0;
}

static void run_rows(const struct check *check, const struct np_kernel *kernel,
    const struct room *room, const struct np_operands *operands)
{
    const struct np_step_info info = {.loss_scale = 1};
    void *const partials[] = {room->partial};
    const struct np_finish finish = {.operands = operands,
        .info = &info,
        .partials = partials,
        .nr_lanes = 1,
        .batch = check->batch,
        .nr_parts = 1,
        .scratch = room->scratch};

    if (kernel->begin)
        kernel->begin(room->state, operands, room->shared);
    for (int row = 0; row < check->batch; row += check->rows)
        kernel->run(room->state,
            &(struct np_run){.operands = operands,
                .info = &info,
                .first_row = row,
                .nr_rows = check->batch - row < check->rows ? check->batch - row : check->rows,
                .first_in_lane = row == 0,
                .scratch = room->scratch,
                .partial = room->partial,
                .shared = room->shared});
    if (kernel->finish)
        kernel->finish(room->state, &finish);
}

/* Operands in the node's order; activations in the kernel's type. */
static void set_operands(
    const struct check *check, const struct np_op_node *node, struct np_operands *ret_operands)
{
    void *x = check->half ? check->half_x : check->x, *y = check->half ? check->half_y : check->y;
    void **ptr = ret_operands->ptr, **outs = ptr + node->nr_ins;

    memset(ret_operands, 0, sizeof(*ret_operands));
    ptr[0] = is_forward(check) || is_wgrad(check) ? x : y;
    ptr[1] = is_wgrad(check) ? y : (void *)check->weights;
    outs[0] = is_forward(check) ? y : is_wgrad(check) ? (void *)check->weights : x;
    if (check->has_bias)
        *(is_forward(check) ? &ptr[2] : &outs[1]) = check->bias;
}

/* Converts activations to bf16, and back: the outputs. */
static void convert(const struct check *check, bool back)
{
    if (!check->half)
        return;
    if (back) {
        np_f32_from_bf16(check->x, check->half_x, x_floats(check));
        np_f32_from_bf16(check->y, check->half_y, y_floats(check));
    } else {
        np_bf16_from_f32(check->half_x, check->x, x_floats(check));
        np_bf16_from_f32(check->half_y, check->y, y_floats(check));
    }
}

/* Does not change the operands. */
static int run(const struct check *check, const struct np_kernel *kernel,
    const struct np_graph *graph, const struct np_op_node *node, struct np_err *err)
{
    struct np_op_node plain = *node; /* borrows the name */
    struct np_operands operands;
    struct room room = {0};

    plain.attrs.relu = false;
    int code = kernel->prepare(graph, &plain, check->rows, &room.state, &room.needs, err);
    if (code < 0)
        return code;
    code = hold(&room, check->room, err);
    if (code == 0) {
        set_operands(check, node, &operands);
        convert(check, false);
        run_rows(check, kernel, &room, &operands);
        convert(check, true);
    }
    kernel->free(room.state);
    return code;
}

/* --- comparing ------------------------------------------------------------------------------- */

/* A NaN counts as the largest. */
static double worse(double a, double b)
{
    return isnan(a) || isnan(b) ? NAN : fmax(a, b);
}

/* dbias is the sum of dy over pixels. */
static double bias_error(const struct check *check, const float *dy)
{
    const size_t channels = (size_t)check->out_c, pixels = y_floats(check) / channels;
    double worst = 0;

    for (size_t c = 0; check->has_bias && c < channels; c++) {
        double sum = 0;

        for (size_t p = 0; p < pixels; p++)
            sum += (double)dy[p * channels + c];
        worst = worse(worst, fabs((double)check->bias[c] - sum) / sqrt((double)pixels));
    }
    return worst;
}

/* Returns the difference between the outputs, added up into added, and the expected sums. */
static double compare(struct check *check, float *added)
{
    int channels = is_forward(check) || is_wgrad(check) ? check->out : check->in;
    double worst = 0;

    if (is_forward(check))
        add_pixels(
            check->y, y_floats(check) / (size_t)check->out_c, check->out_c, check->out, added);
    else if (is_wgrad(check))
        add_weights(check, false, added);
    else
        add_pixels(check->x, x_floats(check) / (size_t)check->c, check->c, check->in, added);
    for (size_t i = 0; i < nr_sums(check); i++)
        worst = worse(worst, fabs((double)added[i] - check->sums[i]));
    worst /= sqrt((double)channels) * check->typical;
    return is_wgrad(check) ? worse(worst, bias_error(check, check->y)) : worst;
}

/* Floats in before, and in after. */
static size_t added_floats(const struct check *check)
{
    int max_c = check->c > check->out_c ? check->c : check->out_c;
    size_t weights = (size_t)check->taps * (size_t)max_c;
    size_t pixels = y_floats(check) / (size_t)check->out;

    weights = weights > pixels ? weights : pixels;
    return weights > nr_sums(check) ? weights : nr_sums(check);
}

/* Sets the memory's bytes; before there is memory, only counts them. */
static void *take(struct check *check, size_t n, size_t bytes, int byte)
{
    void *memory = check->room->arrays ? (char *)check->room->arrays + check->at : NULL;

    check->at += align(n * bytes);
    if (memory && byte >= 0)
        memset(memory, byte, n * bytes);
    return memory;
}

enum { MADE_UP = -1, ZERO = 0, NO_NUMBER = 0xff };

/* Outputs start as NaN. */
static void take_arrays(struct check *check)
{
    const int x = is_forward(check) || is_wgrad(check) ? MADE_UP : NO_NUMBER;
    const int y = is_forward(check) ? NO_NUMBER : MADE_UP;
    const int weights = is_wgrad(check) ? NO_NUMBER : MADE_UP;

    check->at = 0;
    check->x = take(check, x_floats(check), sizeof(float), x);
    check->y = take(check, y_floats(check), sizeof(float), y);
    check->weights = take(check, weight_floats(check), sizeof(float), weights);
    check->bias = take(check, (size_t)check->out_c, sizeof(float), weights);
    check->half_x = take(check, check->half ? x_floats(check) : 0, sizeof(uint16_t), x);
    check->half_y = take(check, check->half ? y_floats(check) : 0, sizeof(uint16_t), y);
    check->sums = take(check, nr_sums(check), sizeof(double), ZERO);
    check->before = take(check, added_floats(check), sizeof(float), ZERO);
    check->after = take(check, added_floats(check), sizeof(float), ZERO);
}

static int hold_arrays(struct check *check, struct np_err *err)
{
    struct np_check_room counted = {0}, *room = check->room;

    check->room = &counted;
    take_arrays(check);
    check->room = room;
    if (np_hold(&room->arrays, &room->arrays_bytes, check->at, err) < 0)
        return -ENOMEM;
    take_arrays(check);
    return 0;
}

int np_kernel_error(const struct np_kernel *kernel, const struct np_graph *graph,
    const struct np_op_node *node, int max_rows, struct np_check_room *room, double *ret_error,
    struct np_err *err)
{
    struct check check = {.room = room};
    int code;

    set_shapes(&check, graph, node, max_rows);
    code = hold_arrays(&check, err);
    if (code < 0)
        return code;
    make_up(&check);
    code = run(&check, kernel, graph, node, err);
    if (code < 0)
        return code;
    expect(&check, check.before);
    *ret_error = compare(&check, check.after);
    return 0;
}

void np_check_room_fini(struct np_check_room *room)
{
    np_free(room->arrays);
    np_free(room->kernel);
    *room = (struct np_check_room){0};
}
