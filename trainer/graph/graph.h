/* The static graph: tensors, and nodes in the order they run. Built once from YAML,
 * extended by autodiff, rewritten by fusion, then handed to a device's planner. Names,
 * parameters and checkpoints see the unfused forward graph only. */
#ifndef NP_GRAPH_H
#define NP_GRAPH_H

#include <stdbool.h>
#include <stdint.h>

#include "loader/base/err.h"
#include "loader/base/node.h"
#include "loader/batch.h"
#include "trainer/graph/mix.h"
#include "trainer/graph/act.h"
#include "trainer/graph/regression.h"
#include "trainer/graph/resample.h"
#include "trainer/graph/views.h"

/* Precision of activations and of the weights that kernels read; master weights are f32. */
enum np_dtype { NP_F32, NP_BF16, NP_F16, NP_U8, NP_I32 };

/* Operands in order; optional ones, [x], come last. Activations are (n, h, w, c), NHWC, in the
 * graph's precision; parameters, their gradients and operands marked f32 are f32. Parameters
 * have torch's shapes and layouts (conv weight OIHW, with groups (out, in/groups, kh, kw)). */
enum np_op {
    NP_OP_INPUT, /* images u8 -> x: (u8/255 - mean) / std   attr: mix: of two rows; tta: a view */
    NP_OP_CONV,  /* x, weight, [bias] -> y          attr: conv, [relu] */
    NP_OP_CONV_DGRAD, /* dy, weight -> dx; also x, weight -> y of a transposed convolution */
    NP_OP_CONV_WGRAD, /* x, dy -> dweight, [dbias] */
    NP_OP_BN_STATS,   /* x, running_mean, running_var (updated) -> mean, inv_std (c), f32 */
    /* x, mean, inv_std, gamma, beta, [add] -> y, [mask]      attr: bn, relu. mask: (n, h, w, c / 8)
     * u8, bit k of byte j is y > 0 of channel 8 j + k */
    NP_OP_BN_APPLY,
    NP_OP_BN_EVAL, /* x, running_mean, running_var, gamma, beta, [add] -> y   attr: bn, relu */
    /* dy, x, mean, inv_std, gamma, beta, [y or mask], [dy2] -> dgamma, dbeta, [g]; relu: masks dy
     * first (with [add]: by y > 0; without: by the recomputed sign). attr joins: there is a dy2, which
     * is added to dy before. g: the dy that the sums are of, as its reader gets it */
    NP_OP_BN_REDUCE,
    NP_OP_BN_DGRAD,       /* dy, x, mean, inv_std, gamma, beta, dgamma, dbeta, [y] -> dx, [dadd] */
    NP_OP_RELU,           /* x -> y */
    NP_OP_RELU_DGRAD,     /* dy, y -> dx */
    NP_OP_ACT,            /* x -> y               attr: act, slope */
    NP_OP_ACT_DGRAD,      /* dy, x -> dx */
    NP_OP_MAXPOOL,        /* x -> y, [argmax] (n, ho, wo, c) u8: position in the window */
    NP_OP_MAXPOOL_DGRAD,  /* dy, argmax, [y] -> dx      attr: relu: masks dy first, by y > 0 */
    NP_OP_AVGPOOL,        /* x -> y     padding counts, as in torch */
    NP_OP_AVGPOOL_DGRAD,  /* dy -> dx */
    NP_OP_GLOBAL_AVGPOOL, /* x -> y (n, 1, 1, c) */
    NP_OP_GLOBAL_AVGPOOL_DGRAD, /* dy -> dx */
    NP_OP_LINEAR, /* x (n, h, w, in), weight (out, in), [bias] -> y (n, h, w, out)  attr: [relu] */
    NP_OP_LINEAR_DGRAD, /* dy, weight -> dx */
    NP_OP_LINEAR_WGRAD, /* x, dy -> dweight, [dbias] */
    NP_OP_DROPOUT, /* x -> y     Philox(seed, step, element); attr: rate, [relu]: of max(0, x) */
    NP_OP_DROPOUT_DGRAD, /* dy, [y] -> dx   the same draws; attr: relu: masks by y > 0 instead */
    NP_OP_FLATTEN,       /* x (n, h, w, c) -> y (n, 1, 1, c*h*w) in torch's C, H, W order */
    NP_OP_FLATTEN_DGRAD, /* dy -> dx */
    NP_OP_ADD, /* a, b -> y  (both gradients are dy itself); also sums gradients; attr: [relu] */
    NP_OP_RESAMPLE,       /* x -> y      attr: resample; sizes are those of x and y */
    NP_OP_RESAMPLE_DGRAD, /* dy -> dx */
    NP_OP_MUL,     /* a, b -> y      b: like a, or (n, 1, 1, c) for all pixels; also dy, b -> da */
    NP_OP_MUL_SUM, /* dy, a -> db (n, 1, 1, c): sum over the pixels */
    NP_OP_DROP_ROWS,       /* x -> y      Philox(seed, step, row); attr: rate */
    NP_OP_DROP_ROWS_DGRAD, /* dy -> dx    the same draws */
    NP_OP_CONCAT,          /* a, b [, c, d ...] -> y on channels */
    NP_OP_CONCAT_DGRAD,    /* dy -> da, db ... */
    NP_OP_CROSS_ENTROPY, /* logits, labels -> loss (rows) f32, correct (rows) f32, top5 (rows) f32;
                             masked rows (label -1) give 0. attr: label_smoothing, gamma, mix; with
                             graph->class_weights each row is scaled so that the mean over the
                             rows is the weighted mean: times rows / (sum of their labels' weights) */
    NP_OP_CROSS_ENTROPY_DGRAD, /* logits, labels -> dlogits: of the sum of losses, * loss_scale */
    /* The same operands. The loss is the mean (attr sums_classes: the sum) over the classes of
     * class_weights[c] * -(t log s + (1 - t) log(1 - s)), with s the logit's sigmoid, and t the shares
     * of a row's labels, smoothed, then, with attr threshold above 0, 1 or 0. With graph->values t is
     * the row's value of the class; a row is correct if s is on its value's side of 0.5 in all classes,
     * and top5 is 0. attr: label_smoothing, threshold, sums_classes, mix */
    NP_OP_BCE,
    NP_OP_BCE_DGRAD,
    /* The same operands, with graph->values: the loss is the mean over the outputs of attr regression
     * of their differences to the row's values. correct and top5 are 0. attr: regression, delta,
     * mix */
    NP_OP_REGRESSION,
    NP_OP_REGRESSION_DGRAD,
    /* Layer and group normalisation: of each pixel's channels (attr: groups 0), or of a group of
     * channels over all pixels of a row. attr: eps, groups */
    NP_OP_NORM,        /* x, gamma, beta -> y */
    NP_OP_NORM_WGRAD,  /* x, dy -> dgamma, dbeta */
    NP_OP_NORM_DGRAD,  /* dy, x, gamma -> dx */
    NP_OP_SCALE,       /* x, gamma (c elements) -> y = x * gamma; on dy: dx */
    NP_OP_SCALE_WGRAD, /* x, dy -> dgamma */
    NP_OP_BIAS,        /* x, bias (c elements) -> y = x + bias; dx is dy */
    NP_OP_BIAS_WGRAD,  /* dy -> dbias */
    /* The pixels of a row, in their order, are its tokens: (n, h, w, c) has h * w of them. */
    NP_OP_POSITION,     /* x, position (1, h * w, c) -> y = x + position; dx is dy */
    NP_OP_CLASS_TOKEN,  /* x, token (1, 1, c) -> y (n, 1 + h * w, 1, c): the token, then x's */
    NP_OP_ROWS_SUM,     /* dy -> dparam: the first elements of each row, summed over the rows */
    NP_OP_TOKENS,       /* x -> y: as many tokens of x as y has, from attr first_token on */
    NP_OP_TOKENS_DGRAD, /* dy -> dx, 0 in the other tokens */
    /* Attention of each head to itself, channels (3, heads, c / heads): query, key, value. attr:
     * heads */
    NP_OP_ATTENTION,       /* x (n, h, w, 3c) -> y (n, h, w, c) */
    NP_OP_ATTENTION_DGRAD, /* dy, x -> dx */
    /* logits of a view -> mean, sum f32: the views so far, weighted (views.h); the first one begins
     * the sum. attr: tta */
    NP_OP_VIEWS,
    NP_NR_OPS
};
extern const char *const np_op_names[NP_NR_OPS], *const np_act_names[NP_NR_ACTS];

struct np_window {
    int kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w, groups;
};
/* A window that is the same along both sides. */
#define NP_SQUARE(kernel, stride, pad, dilation, groups)                                           \
    {                                                                                              \
        kernel, kernel, stride, stride, pad, pad, dilation, dilation, groups                       \
    }
/* Writes "3", or "1x7" where the sides differ. */
char *np_axes_text(char text[24], int h, int w);

struct np_attrs {
    struct np_window window; /* conv, pools */
    bool relu;               /* a relu fused after the operation */
    bool joins;              /* bn_reduce: its last operand is the second dy */
    double momentum, eps;    /* batchnorm: torch's meaning, running = (1-m)*running + m*batch */
    double rate;             /* dropout, drop_rows */
    enum np_act act;
    enum np_resample resample;
    double slope; /* leaky_relu: of negative numbers */
    double label_smoothing;
    double gamma;      /* cross_entropy: of a focal loss; 0: none */
    double threshold;  /* bce: of the targets; 0: none */
    bool sums_classes; /* bce */
    enum np_regression regression;
    double delta;          /* huber */
    struct np_mix mix;     /* input and losses */
    float mean[4], std[4]; /* input */
    uint64_t seed;         /* dropout, drop_rows: of the node */
    int groups;            /* norm; 0: each pixel alone */
    int heads, first_token;
    enum np_tta tta; /* input, views: of an evaluation */
    /* batchnorm: in steps before this one it uses the running statistics and leaves them as they
     * are; NP_NEVER: in all */
    uint64_t thaw;
    int lane_rows; /* of a batch in lanes: rows of a lane; 0: the batch is whole */
    /* batchnorm in lanes: rows of this process that it averages over, and all of them, with those of
     * other processes */
    int over_rows, over_all_rows;
};

enum np_role {
    NP_ROLE_ACTIVATION,
    NP_ROLE_PARAM,
    NP_ROLE_BUFFER,
    NP_ROLE_GRAD /* of a param */,
    NP_ROLE_SAVED,
    NP_ROLE_INPUT
};

enum np_init {
    NP_INIT_ZERO,
    NP_INIT_ONE,
    NP_INIT_KAIMING_NORMAL /* fan_out, relu */,
    NP_INIT_KAIMING_UNIFORM /* fan_in, relu */,
    NP_INIT_XAVIER_UNIFORM,
    NP_INIT_NORMAL /* std 0.01 */,
    NP_INIT_FAN_IN_UNIFORM /* 1/sqrt(fan_in): torch's default for weights and biases */,
    NP_INIT_NORMAL_002 /* std 0.02 */,
    NP_INIT_VALUE /* init_value */,
    NP_INIT_DIRAC /* (out, in, kh, kw): the first filters pass on their input channel, others as
                     FAN_IN_UNIFORM */
    ,
    NP_INIT_WHITENING /* np_whiten_init(); without pictures FAN_IN_UNIFORM */
};

/* How updates treat a parameter. */
#define NP_NEVER UINT64_MAX
struct np_rule {
    double lr, decay; /* factors on the optimizer's rate and weight decay */
    uint64_t thaw;    /* frozen in updates before this one, which count from 0; NP_NEVER: in all */
    uint64_t stop;    /* frozen in this update and later ones; 0: in none */
};
static inline bool np_rule_freezes(const struct np_rule *rule, uint64_t update)
{
    return update < rule->thaw || (rule->stop > 0 && update >= rule->stop);
}

struct np_tensor {
    char *name; /* params and buffers: torch's ("layer1.0.conv1.weight"); else for messages */
    enum np_role role;
    enum np_dtype dtype;
    int dims[4], nr_dims;
    int grad;          /* tensor with its gradient, or -1 */
    uint64_t offset;   /* params, grads, buffers: first element in the flat array of their role */
    enum np_init init; /* params, buffers */
    int fan_in, fan_out;
    float init_value;
    int entry;           /* params: their entry of `model:`, from 0 */
    struct np_rule rule; /* params; decay is 1 for weights of conv and linear, else 0 */
};

#define NP_MAX_OPERANDS 16
#define NP_MAX_WHITENED 108 /* values of a kernel with whitening: 3 x 6 x 6 */
struct np_op_node {
    enum np_op op;
    char *name; /* of the layer; owned */
    int line;   /* in the config; 0: not from there */
    int ins[NP_MAX_OPERANDS], nr_ins;
    int outs[NP_MAX_OPERANDS], nr_outs;
    struct np_attrs attrs;
    int forward; /* backward nodes: the forward node they differentiate; else -1 */
    int again;   /* the forward node that this one repeats (np_recompute()); else -1 */
};

struct np_graph {
    struct np_tensor *tensors;
    struct np_op_node *nodes;
    size_t tensors_room, nodes_room;
    int nr_tensors;
    int nr_nodes;       /* in execution order */
    int nr_forward;     /* nodes before this one are the forward pass and the loss */
    int images, labels; /* tensors: u8 (n, h, w, c), i32 (n), with values n more for each */
    int input;          /* normalised images */
    int logits, loss, correct, top5;
    uint64_t nr_params, nr_buffers; /* elements */
    int batch, classes;
    int values;           /* floats of a row's label: classes; 0: the label is a class */
    float *class_weights; /* (classes) of the loss; NULL: all 1. Owned */
};

struct np_graph_input {
    int batch, height, width, channels, classes;
    enum np_label_type label_type;
    bool classes_guessed; /* number of classes unknown: accepts a last layer of any size */
    const float *mean, *std;
    enum np_dtype precision;
    uint64_t seed;
    struct np_mix mix; /* mixup, cutmix and share; the rest is set here */
    /* (classes) training samples of each class, for `class_weights: balanced`; borrowed. NULL: not
     * known: the weights are 1, as those of a network that is not trained. */
    const uint64_t *class_samples;
};

/* Builds the forward graph from `model:` and `blocks:`, with the loss from `loss:`. Every
 * mistake goes into report with the layer's line: unknown layers and keys, shapes that do not
 * fit, unused blocks, names used twice. NULL if there is one. Caller frees. */
struct np_graph *np_graph_build(const struct np_node *model, const struct np_node *blocks,
    const struct np_node *loss, const struct np_graph_input *input, struct np_report *report);
struct np_graph *np_graph_copy(const struct np_graph *graph);
void np_graph_free(struct np_graph *graph);
/* Returns `loss:` with every key, as `nnpipe show` prints it; loss NULL: the default. Caller
 * frees. */
struct np_node *np_graph_loss_node(const struct np_node *loss);
/* Returns a list of layers with every key of every layer, as `nnpipe show` prints `model:` and
 * each list of `blocks:`. Entries that do not parse are copied unchanged. Caller frees. */
struct np_node *np_graph_model_node(const struct np_node *model);

/* Append a tensor or a node and return its number. Names are copied. */
int np_graph_tensor(struct np_graph *graph, const char *name, enum np_role role,
    enum np_dtype dtype, int nr_dims, const int *dims);
int np_graph_node(struct np_graph *graph, enum np_op op, const char *name, int line);
void np_graph_in(struct np_graph *graph, int node, int tensor);
void np_graph_out(struct np_graph *graph, int node, int tensor);
/* Makes the readers of `from`, and the logits, read `to`. */
void np_graph_redirect(struct np_graph *graph, int from, int to);
/* BN_APPLY(x, mean, inv_std, ...) becomes BN_EVAL(x, running_mean, running_var, ...), with the
 * running statistics of its BN_STATS, which is dropped. Returns the number of nodes that were
 * dropped before it: 1. */
int np_graph_use_running(struct np_graph *graph, int apply);
/* FNV-1a of a name; its start value is XORed with seed. */
uint64_t np_graph_hash(uint64_t seed, const char *name);

uint64_t np_tensor_elements(const struct np_tensor *tensor);
/* Writes "64 x 3 x 7 x 7". */
#define NP_DIMS_TEXT 56
void np_dims_text(char text[NP_DIMS_TEXT], const struct np_tensor *tensor);
uint64_t np_dtype_bytes(enum np_dtype dtype);
/* True for the gradients of a convolution's or linear layer's weights: products over all rows. */
bool np_op_is_wgrad(enum np_op op);
/* True for an operation that computes the loss. */
bool np_op_is_loss(enum np_op op);
/* True if the loss takes each logit through a sigmoid, not all through a softmax. */
bool np_graph_has_sigmoids(const struct np_graph *graph);
/* Multiply-adds times two of one image's forward pass through a conv, linear or attention node; 0
 * for others. */
uint64_t np_node_flops(const struct np_graph *graph, const struct np_op_node *node);
/* Fills params (flat, f32) and buffers with initial values; Philox by (seed, tensor name), so that
 * a tensor's values do not depend on the rest of the network. */
void np_graph_init(const struct np_graph *graph, uint64_t seed, float *params, float *buffers);

/* Appends the backward pass: a gradient for every parameter, sums where a tensor has
 * several readers. autodiff.c. Baydin et al., arXiv:1502.05767, reverse mode. */
int np_autodiff(struct np_graph *graph, struct np_err *err);
/* Returns the evaluation graph, a copy: forward only, BN_EVAL for BN_STATS + BN_APPLY, no
 * dropout, no class weights, unmixed. Caller frees. */
struct np_graph *np_graph_eval(const struct np_graph *graph);
/* The first parameter or buffer of a that b has otherwise (name, shape or place), and b's tensor at
 * its place; -1: all are alike, and the graphs can share their values. */
int np_graph_differs(const struct np_graph *a, const struct np_graph *b, int *ret_other);
/* Runs of the graph that evaluate a batch. */
int np_graph_nr_views(const struct np_graph *graph);
/* Applies the fusions that the device supports. fuse.c */
struct np_fusions {
    bool bn_relu, bn_add_relu, conv_relu, linear_relu, add_relu;
    bool relu_pool; /* MAXPOOL_DGRAD masks for a relu before the pool, by the smaller y behind it */
    bool
        relu_dropout; /* DROPOUT_DGRAD masks for a relu before it, by y; DROPOUT does a lone relu's work */
    bool bn_gradient; /* BN_REDUCE adds and masks gradients, by bits; BN_DGRAD reads the result */
};
void np_fuse(struct np_graph *graph, const struct np_fusions *fusions);

#endif
