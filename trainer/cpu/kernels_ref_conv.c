/* Reference convolution and linear layers, forward and backward: the sums as in the formulas, in
 * f32. Goodfellow et al., "Deep Learning", equations 9.7 to 9.13. */
#include "trainer/cpu/kernels_ref.h"

struct conv {
    struct np_nhwc x, y;
    struct np_window w;
    int in_group, out_group; /* channels of a group */
};

static struct conv conv_of(const struct np_ref *ref, int x, int y)
{
    struct conv conv = {np_ref_shape(ref, x), np_ref_shape(ref, y), ref->node->attrs.window, 0, 0};

    conv.in_group = conv.x.c / conv.w.groups;
    conv.out_group = conv.y.c / conv.w.groups;
    return conv;
}

/* Calls visit for each product of the sum: output (oy, ox, o), input (iy, ix, i), weight at k. */
struct product {
    int n, oy, ox, o, iy, ix, i;
    size_t k;
};

static void each_product(const struct conv *conv, int first, int rows,
    void (*visit)(void *context, const struct product *p), void *context)
{
    const struct np_window *w = &conv->w;
    struct product p;

    for (p.n = first; p.n < first + rows; p.n++)
        for (p.oy = 0; p.oy < conv->y.h; p.oy++)
            for (p.ox = 0; p.ox < conv->y.w; p.ox++)
                for (p.o = 0; p.o < conv->y.c; p.o++)
                    for (int ky = 0; ky < w->kernel_h; ky++)
                        for (int kx = 0; kx < w->kernel_w; kx++) {
                            p.iy = p.oy * w->stride_h - w->pad_h + ky * w->dilation_h;
                            p.ix = p.ox * w->stride_w - w->pad_w + kx * w->dilation_w;
                            if (p.iy < 0 || p.iy >= conv->x.h || p.ix < 0 || p.ix >= conv->x.w)
                                continue;
                            for (int i = 0; i < conv->in_group; i++) {
                                p.i = p.o / conv->out_group * conv->in_group + i;
                                p.k = (((size_t)p.o * (size_t)conv->in_group + (size_t)i) *
                                              (size_t)w->kernel_h +
                                          (size_t)ky) *
                                          (size_t)w->kernel_w +
                                      (size_t)kx;
                                visit(context, &p);
                            }
                        }
}

/* --- y = sum x w + b; dx = sum dy w --------------------------------------------------------- */

struct sums {
    const struct np_ref *ref;
    const struct np_run *run;
    const struct conv *conv;
    float *to; /* f32: of a row of y or dx, or the weights' gradient */
};

static void add_forward(void *context, const struct product *p)
{
    struct sums *s = context;
    const float *weight = s->run->operands->ptr[1];

    s->to[np_ref_at(s->conv->y, 0, p->oy, p->ox, p->o)] +=
        np_ref_in(s->ref, s->run, 0, np_ref_at(s->conv->x, p->n, p->iy, p->ix, p->i)) *
        weight[p->k];
}

static void add_dgrad(void *context, const struct product *p)
{
    struct sums *s = context;
    const float *weight = s->run->operands->ptr[1];

    s->to[np_ref_at(s->conv->x, 0, p->iy, p->ix, p->i)] +=
        np_ref_in(s->ref, s->run, 0, np_ref_at(s->conv->y, p->n, p->oy, p->ox, p->o)) *
        weight[p->k];
}

/* Forward, and the gradient of x. */
void np_ref_conv(void *state, const struct np_run *run)
{
    struct np_ref *ref = state;
    const struct np_op_node *node = ref->node;
    const bool forward = node->op == NP_OP_CONV, relu = forward && node->attrs.relu;
    struct conv conv = forward ? conv_of(ref, node->ins[0], node->outs[0])
                               : conv_of(ref, node->outs[0], node->ins[0]);
    const float *bias = node->nr_ins > 2 ? run->operands->ptr[2] : NULL;
    struct sums sums = {ref, run, &conv, run->scratch};
    size_t row = np_ref_row(forward ? conv.y : conv.x);

    for (int r = run->first_row; r < run->first_row + run->nr_rows; r++) {
        for (size_t i = 0; i < row; i++)
            sums.to[i] = bias ? bias[i % (size_t)conv.y.c] : 0;
        each_product(&conv, r, 1, forward ? add_forward : add_dgrad, &sums);
        for (size_t i = 0; i < row; i++)
            np_ref_out(ref, run, 0, (size_t)r * row + i, relu && sums.to[i] < 0 ? 0 : sums.to[i]);
    }
}

/* --- gradient of w: dw = sum over the batch of x dy, db = sum of dy ------------------------- */

static void add_wgrad(void *context, const struct product *p)
{
    struct sums *s = context;

    s->to[p->k] += np_ref_in(s->ref, s->run, 0, np_ref_at(s->conv->x, p->n, p->iy, p->ix, p->i)) *
                   np_ref_in(s->ref, s->run, 1, np_ref_at(s->conv->y, p->n, p->oy, p->ox, p->o));
}

void np_ref_conv_wgrad(void *state, const struct np_run *run)
{
    struct np_ref *ref = state;
    const struct np_op_node *node = ref->node;
    struct conv conv = conv_of(ref, node->ins[0], node->ins[1]);
    size_t nr_weights = np_tensor_elements(&ref->graph->tensors[node->outs[0]]);
    size_t row = np_ref_row(conv.y), channels = node->nr_outs > 1 ? (size_t)conv.y.c : 0;
    struct sums sums = {ref, run, &conv, run->partial};
    float *dbias = sums.to + nr_weights;

    if (run->first_in_lane)
        memset(sums.to, 0, (nr_weights + channels) * sizeof(float));
    each_product(&conv, run->first_row, run->nr_rows, add_wgrad, &sums);
    for (size_t i = 0; channels && i < row * (size_t)run->nr_rows; i++)
        dbias[i % channels] += np_ref_in(ref, run, 1, (size_t)run->first_row * row + i);
}

/* dw then db, for conv and linear. */
void np_ref_wgrad_finish(void *state, const struct np_finish *finish)
{
    struct np_ref *ref = state;
    const struct np_op_node *node = ref->node;
    size_t nr_weights = np_tensor_elements(&ref->graph->tensors[node->outs[0]]);

    np_ref_sum(finish, 0, nr_weights, finish->operands->ptr[node->nr_ins]);
    if (node->nr_outs > 1)
        np_ref_sum(finish, nr_weights, np_tensor_elements(&ref->graph->tensors[node->outs[1]]),
            finish->operands->ptr[node->nr_ins + 1]);
}

/* --- linear: y = x w' + b; dx = dy w; of each pixel ------------------------------------------ */

static size_t pixels(const struct np_ref *ref) /* of a row */
{
    struct np_nhwc x = np_ref_shape(ref, ref->node->ins[0]);

    return (size_t)x.h * (size_t)x.w;
}

void np_ref_linear(void *state, const struct np_run *run)
{
    struct np_ref *ref = state;
    const struct np_op_node *node = ref->node;
    const bool forward = node->op == NP_OP_LINEAR, relu = forward && node->attrs.relu;
    size_t from = (size_t)np_ref_shape(ref, node->ins[0]).c, n = pixels(ref);
    size_t to = (size_t)np_ref_shape(ref, node->outs[0]).c;
    const float *weight = run->operands->ptr[1];
    const float *bias = node->nr_ins > 2 ? run->operands->ptr[2] : NULL;

    for (size_t r = (size_t)run->first_row * n; r < (size_t)(run->first_row + run->nr_rows) * n;
         r++)
        for (size_t t = 0; t < to; t++) {
            float sum = bias ? bias[t] : 0;

            for (size_t f = 0; f < from; f++)
                sum += np_ref_in(ref, run, 0, r * from + f) *
                       weight[forward ? t * from + f : f * to + t];
            np_ref_out(ref, run, 0, r * to + t, relu && sum < 0 ? 0 : sum);
        }
}

void np_ref_linear_wgrad(void *state, const struct np_run *run)
{
    struct np_ref *ref = state;
    const struct np_op_node *node = ref->node;
    size_t in = (size_t)np_ref_shape(ref, node->ins[0]).c, n = pixels(ref);
    size_t out = (size_t)np_ref_shape(ref, node->ins[1]).c;
    float *dweight = run->partial, *dbias = dweight + in * out;

    if (run->first_in_lane)
        memset(dweight, 0, (in * out + (node->nr_outs > 1 ? out : 0)) * sizeof(float));
    for (size_t r = (size_t)run->first_row * n; r < (size_t)(run->first_row + run->nr_rows) * n;
         r++)
        for (size_t o = 0; o < out; o++) {
            float dy = np_ref_in(ref, run, 1, r * out + o);

            for (size_t i = 0; i < in; i++)
                dweight[o * in + i] += dy * np_ref_in(ref, run, 0, r * in + i);
            if (node->nr_outs > 1)
                dbias[o] += dy;
        }
}
