/* Shared by the reference kernels: element access and the facts of a node. Plain and slow on
 * purpose; internal to kernels_ref*.c. */
#ifndef NP_KERNELS_REF_H
#define NP_KERNELS_REF_H

#include <string.h>

#include "trainer/cpu/kernels.h"

struct np_ref {
    const struct np_op_node *node;
    const struct np_graph *graph;
    enum np_dtype dtype; /* of activations */
};

/* An activation's shape; missing dimensions are 1. */
struct np_nhwc {
    int n, h, w, c;
};

static inline struct np_nhwc np_ref_shape(const struct np_ref *ref, int tensor)
{
    const int *d = ref->graph->tensors[tensor].dims;
    int nr = ref->graph->tensors[tensor].nr_dims;

    return (struct np_nhwc){d[0], nr > 3 ? d[1] : 1, nr > 3 ? d[2] : 1,
        nr > 3   ? d[3]
        : nr > 1 ? d[nr - 1]
                 : 1};
}

static inline size_t np_ref_row(struct np_nhwc s) /* elements of a row */
{
    return (size_t)s.h * (size_t)s.w * (size_t)s.c;
}

static inline size_t np_ref_at(struct np_nhwc s, int n, int y, int x, int c)
{
    return (((size_t)n * (size_t)s.h + (size_t)y) * (size_t)s.w + (size_t)x) * (size_t)s.c +
           (size_t)c;
}

static inline float np_ref_get(const void *data, enum np_dtype dtype, size_t i)
{
    float value;
    uint32_t word;

    if (dtype == NP_F32)
        return ((const float *)data)[i];
    word = (uint32_t)((const uint16_t *)data)[i] << 16;
    memcpy(&value, &word, sizeof(value));
    return value;
}

static inline void np_ref_put(void *data, enum np_dtype dtype, size_t i, float value)
{
    if (dtype == NP_F32)
        ((float *)data)[i] = value;
    else
        np_bf16_from_f32((uint16_t *)data + i, &value, 1);
}

/* The value that an activation would have. */
static inline float np_ref_round(const struct np_ref *ref, float value)
{
    float rounded;

    np_ref_put(&rounded, ref->dtype, 0, value);
    return np_ref_get(&rounded, ref->dtype, 0);
}

static inline float np_ref_in(const struct np_ref *ref, const struct np_run *run, int k, size_t i)
{
    return np_ref_get(run->operands->ptr[k], ref->dtype, i);
}

static inline void np_ref_out(
    const struct np_ref *ref, const struct np_run *run, int k, size_t i, float value)
{
    np_ref_put(run->operands->ptr[ref->node->nr_ins + k], ref->dtype, i, value);
}

/* Fills the facts that every prepare needs; rows of the table differ only in partial_floats. */
int np_ref_prepare(const struct np_graph *graph, const struct np_op_node *node, int max_rows,
    void **ret_state, struct np_needs *ret_needs, struct np_err *err);
/* Sums lanes' partials (n floats each) in lane order into out. */
void np_ref_sum(const struct np_finish *finish, size_t from, size_t n, float *out);

/* batchnorm, also of groups of rows (attr over_rows): kernels_ref_bn.c */
void np_ref_bn_stats(void *state, const struct np_run *run);
void np_ref_bn_stats_finish(void *state, const struct np_finish *finish);
void np_ref_bn_apply(void *state, const struct np_run *run);
void np_ref_bn_reduce(void *state, const struct np_run *run);
void np_ref_bn_reduce_finish(void *state, const struct np_finish *finish);
void np_ref_bn_dgrad(void *state, const struct np_run *run);
size_t np_ref_bn_groups(const struct np_ref *ref);  /* of the rows; 1: all together */
size_t np_ref_bn_doubles(const struct np_ref *ref); /* of a partial */

/* conv and linear, with their gradients: kernels_ref_conv.c */
void np_ref_conv(void *state, const struct np_run *run);
void np_ref_conv_wgrad(void *state, const struct np_run *run);
void np_ref_linear(void *state, const struct np_run *run);
void np_ref_linear_wgrad(void *state, const struct np_run *run);
void np_ref_wgrad_finish(void *state, const struct np_finish *finish);

/* activation functions: kernels_ref_act.c */
void np_ref_act(void *state, const struct np_run *run);

/* products and rows dropped: kernels_ref_gate.c */
void np_ref_mul(void *state, const struct np_run *run);
void np_ref_mul_sum(void *state, const struct np_run *run);
void np_ref_drop_rows(void *state, const struct np_run *run);

/* adaptive average pool, upsampling: kernels_ref_resample.c */
void np_ref_resample(void *state, const struct np_run *run);

/* max and average pools: kernels_ref_pool.c */
void np_ref_pool(void *state, const struct np_run *run);
void np_ref_pool_dgrad(void *state, const struct np_run *run);
void np_ref_global_avgpool(void *state, const struct np_run *run);
void np_ref_global_avgpool_dgrad(void *state, const struct np_run *run);

/* the loss: kernels_ref_loss.c */
void np_ref_cross_entropy(void *state, const struct np_run *run);
void np_ref_cross_entropy_dgrad(void *state, const struct np_run *run);
void np_ref_bce(void *state, const struct np_run *run);
void np_ref_bce_dgrad(void *state, const struct np_run *run);
void np_ref_regression(void *state, const struct np_run *run);
void np_ref_regression_dgrad(void *state, const struct np_run *run);

/* normalisation, scale, tokens, attention: kernels_ref_token.c */
void np_ref_norm(void *state, const struct np_run *run);
void np_ref_norm_dgrad(void *state, const struct np_run *run);
void np_ref_norm_wgrad(void *state, const struct np_run *run);
void np_ref_scale(void *state, const struct np_run *run);
void np_ref_scale_wgrad(void *state, const struct np_run *run);
void np_ref_bias_wgrad(void *state, const struct np_run *run);
void np_ref_position(void *state, const struct np_run *run);
void np_ref_class_token(void *state, const struct np_run *run);
void np_ref_rows_sum(void *state, const struct np_run *run);
void np_ref_tokens(void *state, const struct np_run *run);
void np_ref_attention(void *state, const struct np_run *run);
void np_ref_attention_dgrad(void *state, const struct np_run *run);

#endif
