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
                            p.iy = p.oy * w->stride - w->pad + ky * w->dilation;
                            p.ix = p.ox * w->stride - w->pad + kx * w->dilation;
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

/* --- forward: y = sum x w + b -------------------------------------------------------------- */

struct sums {
    const struct np_ref *ref;
    const struct conv *conv;
    const void *from;
    const float *weight;
    float *to; /* f32 accumulators of the current rows, or the partial */
    int first_row;
    const void *dy;
};

static void add_forward(void *context, const struct product *p)
{
    struct sums *s = context;

    s->to[np_ref_at(s->conv->y, p->n - s->first_row, p->oy, p->ox, p->o)] +=
        np_ref_get(s->from, s->ref->dtype, np_ref_at(s->conv->x, p->n, p->iy, p->ix, p->i)) *
        s->weight[p->k];
}

void np_ref_conv(void *state, const struct np_run *run)
{
    struct np_ref *ref = state;
    const struct np_op_node *node = ref->node;
    struct conv conv = conv_of(ref, node->ins[0], node->outs[0]);
    const float *bias = node->nr_ins > 2 ? run->operands->ptr[2] : NULL;
    void *y = run->operands->ptr[node->nr_ins];
    size_t row = np_ref_row(conv.y);

    for (int r = run->first_row; r < run->first_row + run->nr_rows; r++) {
        struct sums sums = {
            ref, &conv, run->operands->ptr[0], run->operands->ptr[1], run->scratch, r, NULL};

        for (size_t i = 0; i < row; i++)
            sums.to[i] = bias ? bias[i % (size_t)conv.y.c] : 0;
        each_product(&conv, r, 1, add_forward, &sums);
        for (size_t i = 0; i < row; i++)
            np_ref_put(y, ref->dtype, (size_t)r * row + i,
                node->attrs.relu && sums.to[i] < 0 ? 0 : sums.to[i]);
    }
}

/* --- gradient of x: dx = sum dy w ---------------------------------------------------------- */

static void add_dgrad(void *context, const struct product *p)
{
    struct sums *s = context;

    s->to[np_ref_at(s->conv->x, p->n - s->first_row, p->iy, p->ix, p->i)] +=
        np_ref_get(s->from, s->ref->dtype, np_ref_at(s->conv->y, p->n, p->oy, p->ox, p->o)) *
        s->weight[p->k];
}

void np_ref_conv_dgrad(void *state, const struct np_run *run)
{
    struct np_ref *ref = state;
    const struct np_op_node *node = ref->node;
    struct conv conv = conv_of(ref, node->outs[0], node->ins[0]);
    void *dx = run->operands->ptr[node->nr_ins];
    size_t row = np_ref_row(conv.x);

    for (int r = run->first_row; r < run->first_row + run->nr_rows; r++) {
        struct sums sums = {
            ref, &conv, run->operands->ptr[0], run->operands->ptr[1], run->scratch, r, NULL};

        memset(sums.to, 0, row * sizeof(float));
        each_product(&conv, r, 1, add_dgrad, &sums);
        for (size_t i = 0; i < row; i++)
            np_ref_put(dx, ref->dtype, (size_t)r * row + i, sums.to[i]);
    }
}

/* --- gradient of w: dw = sum over the batch of x dy, db = sum of dy ------------------------- */

static void add_wgrad(void *context, const struct product *p)
{
    struct sums *s = context;

    s->to[p->k] +=
        np_ref_get(s->from, s->ref->dtype, np_ref_at(s->conv->x, p->n, p->iy, p->ix, p->i)) *
        np_ref_get(s->dy, s->ref->dtype, np_ref_at(s->conv->y, p->n, p->oy, p->ox, p->o));
}

void np_ref_conv_wgrad(void *state, const struct np_run *run)
{
    struct np_ref *ref = state;
    const struct np_op_node *node = ref->node;
    struct conv conv = conv_of(ref, node->ins[0], node->ins[1]);
    size_t nr_weights = np_tensor_elements(&ref->graph->tensors[node->outs[0]]);
    const void *dy = run->operands->ptr[1];
    struct sums sums = {ref, &conv, run->operands->ptr[0], NULL, run->partial, 0, dy};
    float *dbias = sums.to + nr_weights;
    size_t row = np_ref_row(conv.y);

    if (run->first_in_lane)
        memset(
            sums.to, 0, (nr_weights + (node->nr_outs > 1 ? (size_t)conv.y.c : 0)) * sizeof(float));
    each_product(&conv, run->first_row, run->nr_rows, add_wgrad, &sums);
    for (size_t i = 0; node->nr_outs > 1 && i < row * (size_t)run->nr_rows; i++)
        dbias[i % (size_t)conv.y.c] += np_ref_get(dy, ref->dtype, (size_t)run->first_row * row + i);
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

/* --- linear: y = x w' + b ------------------------------------------------------------------ */

void np_ref_linear(void *state, const struct np_run *run)
{
    struct np_ref *ref = state;
    const struct np_op_node *node = ref->node;
    size_t in = np_ref_row(np_ref_shape(ref, node->ins[0]));
    size_t out = np_ref_row(np_ref_shape(ref, node->outs[0]));
    const float *weight = run->operands->ptr[1];
    const float *bias = node->nr_ins > 2 ? run->operands->ptr[2] : NULL;

    for (int r = run->first_row; r < run->first_row + run->nr_rows; r++)
        for (size_t o = 0; o < out; o++) {
            float sum = bias ? bias[o] : 0;

            for (size_t i = 0; i < in; i++)
                sum += np_ref_get(run->operands->ptr[0], ref->dtype, (size_t)r * in + i) *
                       weight[o * in + i];
            np_ref_put(run->operands->ptr[node->nr_ins], ref->dtype, (size_t)r * out + o,
                node->attrs.relu && sum < 0 ? 0 : sum);
        }
}

void np_ref_linear_dgrad(void *state, const struct np_run *run)
{
    struct np_ref *ref = state;
    const struct np_op_node *node = ref->node;
    size_t in = np_ref_row(np_ref_shape(ref, node->outs[0]));
    size_t out = np_ref_row(np_ref_shape(ref, node->ins[0]));
    const float *weight = run->operands->ptr[1];

    for (int r = run->first_row; r < run->first_row + run->nr_rows; r++)
        for (size_t i = 0; i < in; i++) {
            float sum = 0;

            for (size_t o = 0; o < out; o++)
                sum += np_ref_get(run->operands->ptr[0], ref->dtype, (size_t)r * out + o) *
                       weight[o * in + i];
            np_ref_put(run->operands->ptr[node->nr_ins], ref->dtype, (size_t)r * in + i, sum);
        }
}

void np_ref_linear_wgrad(void *state, const struct np_run *run)
{
    struct np_ref *ref = state;
    const struct np_op_node *node = ref->node;
    size_t in = np_ref_row(np_ref_shape(ref, node->ins[0]));
    size_t out = np_ref_row(np_ref_shape(ref, node->ins[1]));
    float *dweight = run->partial, *dbias = dweight + in * out;

    if (run->first_in_lane)
        memset(dweight, 0, (in * out + (node->nr_outs > 1 ? out : 0)) * sizeof(float));
    for (int r = run->first_row; r < run->first_row + run->nr_rows; r++)
        for (size_t o = 0; o < out; o++) {
            float dy = np_ref_get(run->operands->ptr[1], ref->dtype, (size_t)r * out + o);

            for (size_t i = 0; i < in; i++)
                dweight[o * in + i] +=
                    dy * np_ref_get(run->operands->ptr[0], ref->dtype, (size_t)r * in + i);
            if (node->nr_outs > 1)
                dbias[o] += dy;
        }
}
