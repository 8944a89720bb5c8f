/* The losses of `loss:`: a table of names and options. They are three operations with attributes: the
 * cross-entropy over a softmax, the binary one over sigmoids, and differences to numbers. Config time,
 * one thread. */
#include <stddef.h>
#include <string.h>

#include "loader/base/mem.h"
#include "trainer/graph/layers.h"

struct loss {
    double label_smoothing, gamma, threshold, delta;
    int reduce; /* of bce: a word */
    struct np_floats class_weights;
};

#define CLASS_WEIGHTS                                                                              \
    {                                                                                              \
        "class_weights", NP_OPT_FLOATS, offsetof(struct loss, class_weights), "[]", 0, 1e6,        \
            "balanced",                                                                            \
            "A weight for each class, in the order of the classes; `[]`: all classes count the "   \
            "same; `balanced`: samples / (classes * samples of the class), in the training set. "  \
            "A batch's loss is the mean weighted by its labels, as in torch. Evaluation does not " \
            "use them: its loss is that of the set as it is."                                      \
    }

static const struct np_option cross_entropy_options[] = {
    {"label_smoothing", NP_OPT_SHARE, offsetof(struct loss, label_smoothing), "0", 0, 0.999, NULL,
        "Share of the target spread evenly over all classes (arXiv:1512.00567, section 7). The "
        "reported test loss includes it."},
    CLASS_WEIGHTS,
    NP_OPTIONS_END,
};

static const struct np_option focal_options[] = {
    {"gamma", NP_OPT_FLOAT, offsetof(struct loss, gamma), "2", 0, 20, NULL,
        "The exponent: the larger it is, the less do samples count that are already right; 0: "
        "cross-entropy. The reported test loss includes it."},
    CLASS_WEIGHTS,
    NP_OPTIONS_END,
};

static const struct np_option bce_options[] = {
    {"label_smoothing", NP_OPT_SHARE, offsetof(struct loss, label_smoothing), "0", 0, 0.999, NULL,
        "Share of the target spread evenly over all classes, as for `cross_entropy`: the target of "
        "the sample's class is 1 - s + s / classes, of the others s / classes."},
    {"threshold", NP_OPT_FLOAT, offsetof(struct loss, threshold), "0", 0, 0.999, NULL,
        "Targets above it become 1, the others 0; 0: targets stay as they are. timm's "
        "`bce_target_thresh`: with mixup, the classes of both images count in full (or with a "
        "share "
        "above the threshold)."},
    {"reduce", NP_OPT_WORD, offsetof(struct loss, reduce), "mean", 0, 0, "mean|sum",
        "A sample's loss is the mean over its classes (torch, Keras, and timm by default) or their "
        "sum (timm's `bce_sum`)."},
    {"class_weights", NP_OPT_FLOATS, offsetof(struct loss, class_weights), "[]", 0, 1e6, "balanced",
        "A factor on the loss of each class, in the order of the classes; `[]`: 1 for all; "
        "`balanced`: samples / (classes * samples of the class), in the training set. They are not "
        "divided by their sum, as in torch's `weight`. Evaluation does not use them."},
    NP_OPTIONS_END,
};

static const struct np_option no_options[] = {NP_OPTIONS_END};

static const struct np_option huber_options[] = {
    {"delta", NP_OPT_FLOAT, offsetof(struct loss, delta), "1", 1e-9, 1e9, NULL,
        "Where the square of a difference ends and its absolute value begins."},
    NP_OPTIONS_END,
};

const struct np_choice np_loss_choices[] = {
    {"cross_entropy", cross_entropy_options, "Softmax and negative log-likelihood of the class."},
    {"focal", focal_options,
        "Cross-entropy times (1 - p)^gamma, where p is the probability of the sample's class "
        "(arXiv:1708.02002, equation 4, over a softmax): for sets with many easy samples."},
    {"bce", bce_options,
        "Binary cross-entropy of each class over a sigmoid, with the sample's class as target 1 "
        "and "
        "the others as 0; a mixed batch's targets are the shares of both classes "
        "(arXiv:2110.00476, section 2.1). `predict` gives the sigmoids. With `label_type: multi` "
        "the "
        "targets are the image's classes."},
    {"mse", no_options,
        "For `label_type: value`: the square of the difference to the label, the mean of its "
        "numbers."},
    {"l1", no_options, "For `label_type: value`: the absolute value of the difference."},
    {"huber", huber_options,
        "For `label_type: value`: half the square of a difference up to `delta`, then `delta` "
        "times "
        "its absolute value less `delta` / 2 (torch's `huber_loss`)."},
    {NULL, NULL, NULL},
};

/* The operation of a loss, and the type of label that it takes besides a class. */
static const struct {
    const char *name;
    enum np_op op;
    enum np_regression regression;
    bool types[3]; /* by enum np_label_type: it takes such labels */
} kinds[] = {
    {"cross_entropy", NP_OP_CROSS_ENTROPY, 0, {[NP_LABEL_CLASS] = true}},
    {"focal", NP_OP_CROSS_ENTROPY, 0, {[NP_LABEL_CLASS] = true}},
    {"bce", NP_OP_BCE, 0, {[NP_LABEL_CLASS] = true, [NP_LABEL_MULTI] = true}},
    {"mse", NP_OP_REGRESSION, NP_REGRESSION_MSE, {[NP_LABEL_VALUE] = true}},
    {"l1", NP_OP_REGRESSION, NP_REGRESSION_L1, {[NP_LABEL_VALUE] = true}},
    {"huber", NP_OP_REGRESSION, NP_REGRESSION_HUBER, {[NP_LABEL_VALUE] = true}},
};

/* A loss that does not fit the labels, or an option that does not. */
static int check_labels(int kind, const struct loss *loss, const struct np_node *node,
    enum np_label_type type, struct np_report *report)
{
    static const char *const fitting[] = {"cross_entropy, focal or bce", "bce", "mse, l1 or huber"};
    static const char *const types[] = {"class", "multi", "value"};
    const int line = node ? node->line : 0, column = node ? node->column : 0;
    const char *key = NULL;

    if (!kinds[kind].types[type]) {
        np_report_add(report, line, column,
            "loss: %s%s does not fit labels of the set's `label_type: %s`; choose %s",
            kinds[kind].name, node ? "" : ", the default,", types[type], fitting[type]);
        return -1;
    }
    if (type == NP_LABEL_MULTI)
        key = loss->label_smoothing > 0           ? "label_smoothing"
              : loss->class_weights.nr_values < 0 ? "class_weights: balanced"
                                                  : NULL;
    if (!key)
        return 0;
    np_report_add(report, line, column, "%s: it does not work with `label_type: multi`", key);
    return -1;
}

/* Samples over classes times the samples of the class, as scikit-learn's "balanced". A class without
 * samples counts neither as a class nor otherwise. */
static void balance(struct np_graph *graph, const uint64_t *class_samples)
{
    double samples = 0, classes = 0;

    if (!class_samples)
        return;
    for (int i = 0; i < graph->classes; i++) {
        samples += (double)class_samples[i];
        classes += class_samples[i] > 0;
    }
    graph->class_weights = np_alloc_array((size_t)graph->classes, sizeof(float));
    for (int i = 0; i < graph->classes; i++)
        graph->class_weights[i] =
            class_samples[i] ? (float)(samples / (classes * (double)class_samples[i])) : 0;
}

/* A weight for each class, of which one is positive. */
static int set_weights(struct np_graph *graph, const struct np_floats *weights,
    const struct np_graph_input *input, const struct np_node *node, struct np_report *report)
{
    double largest = 0;

    if (weights->nr_values == 0)
        return 0;
    if (weights->nr_values < 0) {
        balance(graph, input->class_samples);
        return 0;
    }
    if (weights->nr_values != graph->classes && !input->classes_guessed) {
        np_report_add(report, node->line, node->column,
            "class_weights: %d weights are given, but there are %d classes", weights->nr_values,
            graph->classes);
        return -1;
    }
    graph->class_weights = np_alloc_array((size_t)graph->classes, sizeof(float));
    for (int i = 0; i < weights->nr_values; i++) {
        if (i < graph->classes)
            graph->class_weights[i] = (float)weights->values[i];
        largest = weights->values[i] > largest ? weights->values[i] : largest;
    }
    if (largest > 0)
        return 0;
    np_report_add(report, node->line, node->column, "class_weights: all weights are 0");
    return -1;
}

static void add_node(
    struct np_graph *graph, int logits, int kind, const struct loss *loss, int line)
{
    static const char *const outs[] = {"loss", "correct", "top5"};
    int *const numbers[] = {&graph->loss, &graph->correct, &graph->top5};
    const int op = np_graph_node(graph, kinds[kind].op, "loss", line);

    graph->nodes[op].attrs.label_smoothing = loss->label_smoothing;
    graph->nodes[op].attrs.gamma = loss->gamma;
    graph->nodes[op].attrs.threshold = loss->threshold;
    graph->nodes[op].attrs.sums_classes = loss->reduce != 0;
    graph->nodes[op].attrs.regression = kinds[kind].regression;
    graph->nodes[op].attrs.delta = loss->delta;
    graph->nodes[op].attrs.mix = graph->nodes[0].attrs.mix; /* of NP_OP_INPUT */
    graph->logits = logits;
    np_graph_in(graph, op, logits);
    np_graph_in(graph, op, graph->labels);
    for (int i = 0; i < 3; i++) {
        *numbers[i] = np_graph_tensor(graph, outs[i], NP_ROLE_SAVED, NP_F32, 1, &graph->batch);
        np_graph_out(graph, op, *numbers[i]);
    }
}

int np_loss_add(struct np_graph *graph, int logits, const struct np_node *node,
    const struct np_graph_input *input, struct np_report *report)
{
    const struct np_node *args = NULL;
    struct loss loss = {0};
    int kind = np_choice_find(np_loss_choices, node, "loss", "cross_entropy", &args, report);

    if (kind < 0)
        return kind;
    const struct np_choice *choice = &np_loss_choices[kind];
    int code = np_options_parse(choice->table, args, choice->name, NULL, &loss, report);

    if (code == 0 && logits >= 0)
        code = set_weights(graph, &loss.class_weights, input,
            args ? np_node_get(args, "class_weights") : NULL, report);
    if (code == 0)
        code = check_labels(kind, &loss, node, input->label_type, report);
    if (code == 0 && logits >= 0) {
        if (input->label_type != NP_LABEL_CLASS) { /* behind the labels of the rows: their values */
            graph->values = graph->classes;
            graph->tensors[graph->labels].dims[0] = graph->batch * (1 + graph->values);
        }
        add_node(graph, logits, kind, &loss, node ? node->line : 0);
    }
    np_options_fini(choice->table, &loss);
    return code;
}

struct np_node *np_graph_loss_node(const struct np_node *loss)
{
    const struct np_node *args = NULL;
    const char *name = np_loss_choices[0].name;

    if (loss)
        np_node_named(loss, &name, &args);
    const struct np_choice *choice = np_choice_named(np_loss_choices, name);
    struct np_node *map = np_node_new(NP_NODE_MAP, 0, 0);
    struct np_node *options =
        args && args->kind == NP_NODE_MAP ? np_node_copy(args) : np_node_new(NP_NODE_MAP, 0, 0);

    for (const struct np_option *o = choice ? choice->table : NULL; o && o->key; o++)
        if (!np_node_get(options, o->key) && o->type != NP_OPT_FLOATS)
            np_node_add(options, o->key, np_node_scalar(o->fallback, 0, 0));
    np_node_add(map, name, options);
    return map;
}
