/* Parses a config with the top-level option table, and each section with the table of its module.
 * Reads only the config's files and writes none; all mistakes go into one report. */
#include "daemon/config/config.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/config/config_lanes.h"
#include "daemon/config/config_override.h"
#include "daemon/track/track.h"
#include "loader/base/path.h"
#include "loader/base/yaml.h"

#define DEFAULT_EPOCHS 10

/* An image size and class count that most models accept. */
#define GUESS_SIDE         224
#define GUESS_SMALL        96 /* sets of images up to this size have few classes */
#define GUESS_CLASSES      10
#define GUESS_MANY_CLASSES 1000

/* --- tables -------------------------------------------------------------------------------- */

#define AT(field) offsetof(struct np_config, field)

const struct np_option np_config_table[] = {
    {"base", NP_OPT_NODE, AT(base_node), NULL, 0, 0, NULL,
        "Another config that this one builds on: see below."},
    {"name", NP_OPT_STRING, AT(name), "", 0, 0, NULL,
        "Name of the run and its folder; default: the file's name."},
    {"seed", NP_OPT_INT, AT(seed), "1", 0, 9e15, NULL,
        "Seed of all randomness: order, augmentation, initial weights, dropout."},
    {"device", NP_OPT_NODE, AT(device_node), "auto", 0, 0, NULL,
        "`auto` (a usable GPU, else the CPU, with a warning if a GPU was found but is not usable), "
        "`cpu`, `gpu` (the first GPU; in the service any GPU; same as `cuda`), `cuda:0`, or "
        "`{sim: {h2d_gbps: 25, step_ms: 20}}`: a simulated device, to test a pipeline."},
    {"precision", NP_OPT_WORD, AT(precision), "auto", 0, 0, "auto|f32|bf16|f16",
        "Precision of activations; weights are always f32. `auto` is bf16 on a GPU and on a CPU "
        "with AVX512-BF16, else f32; a run, `eval` and `predict` print it."},
    {"data", NP_OPT_NODE, AT(data_node), NULL, 0, 0, NULL, "Required. The sets: see below."},
    {"loader", NP_OPT_NODE, AT(loader_node), NULL, 0, 0, NULL, "How images reach the device."},
    {"model", NP_OPT_NODE, AT(network.model), NULL, 0, 0, NULL,
        "Required. The layers: a list runs in order; `name:` and `from:` make any graph."},
    {"blocks", NP_OPT_NODE, AT(network.blocks), NULL, 0, 0, NULL,
        "Named lists of layers with parameters (`$out`), for `block: {use: NAME}`."},
    {"loss", NP_OPT_NODE, AT(network.loss), "cross_entropy", 0, 0, NULL,
        "`cross_entropy`, `{cross_entropy: {label_smoothing: 0.1}}` or `focal`."},
    {"optimizer", NP_OPT_NODE, AT(optim_node), "sgd", 0, 0, NULL,
        "How gradients change the weights: `sgd`, or `{adamw: {lr: 1e-3}}`."},
    {"freeze", NP_OPT_NODE, AT(freeze_node), "[]", 0, 0, NULL,
        "Parameters that keep their values: patterns of their names, like `[\"conv1*\", layer1]`, "
        "or "
        "`{names: [...], until: {epoch: 3}}`: see below."},
    {"params", NP_OPT_NODE, AT(params_node), "[]", 0, 0, NULL,
        "Rates and weight decays of their own for some parameters: `[{names: [\"fc.*\"], lr: "
        "10}]`: "
        "see below."},
    {"schedule", NP_OPT_NODE, AT(schedule_node), "constant", 0, 0, NULL,
        "The learning rate as a function of the step and the run's length. When a run is resumed, "
        "`-o` can change the schedule and the length: the new schedule covers the whole run, from "
        "its first step; with `--reset-schedule` it starts at the step where the run resumes."},
    {"train", NP_OPT_NODE, AT(run_node), NULL, 0, 0, NULL, "How long to train, and how."},
    {"checkpoint", NP_OPT_NODE, AT(checkpoint_node), NULL, 0, 0, NULL,
        "When checkpoints are written, and how many are kept."},
    {"track", NP_OPT_NODE, AT(track_node), "[]", 0, 0, NULL,
        "Programs for which a run also writes its numbers: `tensorboard` (event files in the run's "
        "folder), `mlflow` (its file store, in `mlruns` beside the run folders), `wandb` (a file "
        "in "
        "the run's folder that `wandb sync` sends), or a list of them."},
    {"runs", NP_OPT_STRING, AT(runs), "runs", 0, 0, NULL,
        "The folder of the run folders; relative to the working directory. May contain "
        "`${NAME}`."},
    NP_OPTIONS_END,
};

#undef AT
#define AT(field) offsetof(struct np_train_options, field)
const struct np_option np_train_table[] = {
    {"epochs", NP_OPT_FLOAT, AT(epochs), "10", 0, 1e6, NULL,
        "Passes over the training set; give this or `steps`."},
    {"steps", NP_OPT_INT, AT(steps), "0", 0, 1e12, NULL,
        "Batches to train on, instead of `epochs`."},
    {"eval_every", NP_OPT_STRING, AT(eval_every_text), "1 epoch", 0, 0, NULL,
        "How often to evaluate while training: `1 epoch`, `0.5 epochs`, `500 steps` or `never`; a "
        "run "
        "always evaluates at its end."},
    {"tta", NP_OPT_WORD, AT(tta), "none", 0, 0, NP_TTA_WORDS,
        "Test-time augmentation: evaluations of the run, `eval`, `predict` and `serve` take the "
        "mean of the logits over several views of each picture. `flip`: it and its mirror image. "
        "`flip_shift`: six views, as airbench has them: these two, and both of the picture moved "
        "by a pixel to the upper left, and to the lower right (reflected at the edge); the first "
        "two "
        "have weights of 1/4, the others of 1/8. An evaluation computes two or six times as much."},
    {"threads", NP_OPT_INT, AT(threads), "auto", 1, 1024, "auto",
        "Compute threads of the CPU device. Rounding depends on their number, so a resumed run "
        "keeps it."},
    {"accumulate", NP_OPT_INT, AT(accumulate), "1", 1, 65536, NULL,
        "Number of batches whose gradients make one update."},
    {"lanes", NP_OPT_INT, AT(lanes), "auto", 1, 1024, "auto",
        "Equal parts of a batch, whose gradients are summed in a fixed binary tree. Several "
        "processes (`--processes`, mpirun, srun, torchrun) have as many each; where that is 1, 2, "
        "4, 8 ..., they compute the bits of one process. A CPU computes the parts side by side, on "
        "at most as many threads; rounding then does not depend on `threads`. `auto`: 1 for one "
        "process; for several the smallest of 1, 2, 4 ... times their number that is at least 8 "
        "and `threads`, as far as they divide the batch; on GPUs as many as processes; a resumed "
        "run keeps them. "
        "docs/CLUSTER.md."},
    {"batchnorm_over", NP_OPT_INT, AT(batchnorm_over), "auto", 1, 1 << 20, "auto|all|process",
        "With `lanes`: the rows that a batchnorm averages over. `all`: those of the batch, in all "
        "processes. `process`: those of one process, as in PyTorch's DistributedDataParallel; the "
        "weights then depend on the number of processes, and the running statistics are those of "
        "the "
        "first one. A number: groups of so many rows (ghost batches), whole lanes or an equal part "
        "of "
        "one; the running statistics are the mean over the groups. `auto`: `all` on a CPU; the "
        "rows of "
        "a lane on a device that computes one lane after the other."},
    {"sum", NP_OPT_WORD, AT(sum), "exact", 0, 0, "exact|fast",
        "How the gradients of several GPUs are summed. `exact`: in the tree of `lanes`, the same "
        "bits for any number of processes. `fast`: by NCCL's own sum, the same bits for one number "
        "of processes only. CPUs always sum exactly."},
    {"comm_dtype", NP_OPT_WORD, AT(comm_dtype), "f32", 0, 0, "f32|bf16",
        "The type in which gradients travel between GPUs; `bf16` takes half the time, rounds, and "
        "needs `sum: fast`."},
    {"clip_norm", NP_OPT_FLOAT, AT(clip_norm), "0", 0, 1e9, NULL,
        "Larger gradients are scaled down to this norm; 0: no limit."},
    {"ema", NP_OPT_NODE, AT(ema_node), NULL, 0, 0, NULL,
        "`{}`, or `{decay: 0.999}`: keeps a moving average of weights and running statistics. It "
        "is "
        "evaluated, and it is what checkpoints hold as the weights; `optimizer.safetensors` has "
        "the "
        "weights that training continues from, as `raw.NAME`."},
    {"sam", NP_OPT_NODE, AT(sam_node), NULL, 0, 0, NULL,
        "`{}`, or `{rho: 0.05}`: sharpness-aware minimization (SAM, arXiv:2010.01412) with any "
        "optimizer. Each batch is computed twice, the second time at weights a little uphill, "
        "whose gradient updates the weights: a step takes twice as long, and memory for a second "
        "copy of weights and running statistics. These statistics, and the loss that is shown, are "
        "the first pass's. Needs `accumulate: 1`."},
    {"stop", NP_OPT_NODE, AT(stop_node), NULL, 0, 0, NULL,
        "`{}`, or `{metric: accuracy, patience: 5}`: ends the run when its evaluations no longer "
        "improve; the exit code is 0, and the last lines say why it ended. `checkpoints/best` has "
        "the "
        "best weights. Such a run resumes only with its own `stop`, `eval_every`, `tta` and "
        "evaluated set."},
    {"mixup", NP_OPT_FLOAT, AT(mixup), "0", 0, 100, NULL,
        "Mix each picture of a batch and its label with another one of the batch (mixup, "
        "arXiv:1710.09412): the alpha of Beta(alpha, alpha), from which a batch's share is drawn; "
        "0: "
        "never. The accuracy of training counts the larger label. Test pictures are never mixed."},
    {"cutmix", NP_OPT_FLOAT, AT(cutmix), "0", 0, 100, NULL,
        "The same, but a box of the picture comes from the other one (cutmix, arXiv:1905.04899). "
        "With `mixup`, too, each batch has one of them, with equal probability."},
    {"mix_share", NP_OPT_SHARE, AT(mix_share), "1", 0, 1, NULL,
        "Share of the batches that `mixup` and `cutmix` mix."},
    {"deterministic", NP_OPT_BOOL, AT(deterministic), "true", 0, 0, NULL,
        "Two runs of one config give the same weights, bit for bit."},
    {"tf32", NP_OPT_BOOL, AT(tf32), "false", 0, 0, NULL,
        "Lets a GPU in f32 round the factors of products to TF32's 10 bits: faster, less exact."},
    {"recompute", NP_OPT_BOOL, AT(recompute), "false", 0, 0, NULL,
        "Gradient checkpointing (arXiv:1604.06174): the backward pass calculates most activations "
        "again instead of finding them in memory. It takes up to a third more time, and leaves "
        "memory "
        "for larger batches and pictures; the log says how much. The weights stay the same."},
    {"history", NP_OPT_BOOL, AT(history), "false", 0, 0, NULL,
        "Write history.bin: the sample numbers of every step."},
    {"sample_losses", NP_OPT_BOOL, AT(sample_losses), "false", 0, 0, NULL,
        "Write sample_losses.bin: the loss of every row of every step. `nnpipe replay RUN --worst "
        "20` "
        "shows the pictures with the highest losses: wrong labels are among them."},
    {"best", NP_OPT_WORD, AT(best), "accuracy", 0, 0, "accuracy|loss|top5|f1|map|mae|rmse|r2",
        "Which evaluation makes the best checkpoint (`checkpoints/best`): the one with the highest "
        "accuracy, top-5 accuracy or F1 (the mean of the classes), or with the lowest loss. With "
        "`label_type: multi`, `map` is the highest mean average precision, and accuracy the share "
        "of "
        "images whose classes are all right; with `label_type: value` it is the lowest loss (then "
        "the default), mean absolute error (`mae`), root mean square error (`rmse`), or the "
        "highest "
        "R² (`r2`)."},
    NP_OPTIONS_END,
};

#undef AT
#define AT(field) offsetof(struct np_checkpoint_options, field)
const struct np_option np_checkpoint_table[] = {
    {"every", NP_OPT_STRING, AT(every_text), "1 epoch", 0, 0, NULL,
        "How often to write a checkpoint: `1 epoch`, `0.5 epochs`, `500 steps` or `never`; a run "
        "always "
        "writes one at its end."},
    {"keep", NP_OPT_INT, AT(keep), "3", 2, 1e6, NULL,
        "How many of the newest checkpoints are kept, beside the best one. A run's first lines "
        "print their size."},
    {"optimizer", NP_OPT_WORD, AT(optimizer), "all", 0, 0, "all|newest",
        "`newest`: older checkpoints keep only their weights, half (SGD) or a third (AdamW) of the "
        "size; a run can then resume only from the newest one, and not if it is damaged."},
    NP_OPTIONS_END,
};

#undef AT

/* --- the model ----------------------------------------------------------------------------- */

void np_network_input(const struct np_network *network, int height, int width, int classes,
    enum np_dtype precision, struct np_graph_input *ret_input)
{
    *ret_input = (struct np_graph_input){
        .batch = (int)network->loader->batch,
        .height = height,
        .width = width,
        .channels = (int)network->loader->channels,
        .classes = classes,
        .mean = network->loader->mean,
        .std = network->loader->std,
        .precision = precision,
        .label_type = (enum np_label_type)network->train->label_type,
        .seed = (uint64_t)network->seed,
        .mix = {.mixup = network->run->mixup,
            .cutmix = network->run->cutmix,
            .share = network->run->mix_share},
    };
}

struct np_graph *np_network_build(
    const struct np_network *network, const struct np_graph_input *input, struct np_report *report)
{
    return np_graph_build(network->model, network->blocks, network->loss, input, report);
}

static int guess_side(const struct np_source_options *source)
{
    if (!source->source)
        return GUESS_SIDE;
    return strcmp(source->source, "cifar10") == 0 ? 32
           : strcmp(source->source, "idx") == 0   ? 28
           : strcmp(source->source, "synth") == 0 ? (int)source->size
                                                  : GUESS_SIDE;
}

/* Graphs for rows of two sizes share their parameters, whose shapes may depend on the size: those of a
 * linear layer behind a flatten, or of positions. key: has the rows of b. */
static int check_alike(const struct np_graph *a, const struct np_graph *b, const char *key,
    const struct np_node *at, struct np_report *report)
{
    const int *of_a = a->tensors[a->images].dims, *of_b = b->tensors[b->images].dims;
    char here[NP_DIMS_TEXT], there[NP_DIMS_TEXT];
    int other = 0;
    const int t = np_graph_differs(a, b, &other);

    if (t < 0)
        return 0;
    np_dims_text(here, &a->tensors[t]);
    np_dims_text(there, &b->tensors[other]);
    return np_report_add(report, at ? at->line : 0, at ? at->column : 0,
        "%s: its images are %dx%d, those of augment %dx%d, and %s has %s values for the one, %s "
        "for "
        "the other: this network takes one size",
        key, of_b[2], of_b[1], of_a[2], of_a[1], a->tensors[t].name, there, here);
}

int np_network_check_grown(const struct np_network *network, const struct np_graph_input *input,
    const struct np_graph *train, struct np_report *report)
{
    struct np_graph_input small = *input;
    int code = -EINVAL;

    if (network->loader->grow.from == 0)
        return 0;
    small.height = small.width = (int)network->loader->grow.from;
    struct np_graph *graph = np_network_build(network, &small, report);
    if (graph)
        code = check_alike(train, graph, "grow", network->loader->grow_node, report);
    np_graph_free(graph);
    return code;
}

struct np_graph *np_network_build_eval(const struct np_network *network,
    const struct np_graph_input *input, const struct np_row_sizes *size,
    const struct np_graph *train, struct np_report *report)
{
    struct np_graph_input other = *input;
    struct np_graph *graph, *eval = NULL;

    if (size->eval_width == input->width && size->eval_height == input->height)
        return np_graph_eval(train);
    other.height = size->eval_height;
    other.width = size->eval_width;
    graph = np_network_build(network, &other, report);
    if (graph &&
        check_alike(train, graph, "test_augment", network->loader->test_augment_node, report) == 0)
        eval = np_graph_eval(graph);
    np_graph_free(graph);
    return eval;
}

bool np_network_guess(const struct np_network *network, struct np_row_sizes *size, int *classes,
    char text[NP_GUESS_TEXT])
{
    const bool none = size->width == 0 && size->eval_width == 0, count = *classes == 0;

    if (size->width == 0) {
        const int side = guess_side(network->train);

        size->height = none ? side : size->eval_height;
        size->width = none ? side : size->eval_width;
    }
    if (size->eval_width == 0) {
        size->eval_height = size->height;
        size->eval_width = size->width;
    }
    if (count)
        *classes = size->height > GUESS_SMALL ? GUESS_MANY_CLASSES : GUESS_CLASSES;
    if (none && count)
        snprintf(text, NP_GUESS_TEXT, "images of %dx%d and %d classes are assumed", size->width,
            size->height, *classes);
    else if (none)
        snprintf(text, NP_GUESS_TEXT, "images of %dx%d are assumed", size->width, size->height);
    else if (count)
        snprintf(text, NP_GUESS_TEXT, "%d classes are assumed", *classes);
    return none || count;
}

int np_network_check(const struct np_network *network, const struct np_row_sizes *known,
    int classes, struct np_report *report)
{
    struct np_row_sizes size = *known;
    char guess[NP_GUESS_TEXT];
    struct np_graph_input input;
    bool guessed = classes == 0;

    np_network_guess(network, &size, &classes, guess);
    np_network_input(network, size.height, size.width, classes, NP_F32, &input);
    input.classes_guessed = guessed;
    if (input.batch < 1) /* reported already */
        input.batch = 1;
    if (input.channels != 1)
        input.channels = 3;
    const struct np_rules_time any = {1, 1, 1};
    struct np_graph *graph = np_network_build(network, &input, report), *eval = NULL;
    int code = graph ? 0 : -EINVAL;

    if (graph && network->rules)
        code = np_rules_apply(network->rules, &any, graph, report);
    if (graph && !(eval = np_network_build_eval(network, &input, &size, graph, report)))
        code = -EINVAL;
    if (graph && np_network_check_grown(network, &input, graph, report) < 0)
        code = -EINVAL;
    np_graph_free(eval);
    np_graph_free(graph);
    return code;
}

/* --- sections ------------------------------------------------------------------------------ */

static bool plain_name(const char *name)
{
    static const char good[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";

    return *name && *name != '.' && *name != '-' && strlen(name) <= 64 &&
           strspn(name, good) == strlen(name);
}

/* The file's name without folder and suffix, unusual characters replaced by '-'. */
static char *name_of_file(const char *path)
{
    const char *base = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    char *name = np_format("%.*s", (int)(strcspn(base, ".") > 64 ? 64 : strcspn(base, ".")), base);

    for (char *at = name; at && *at; at++)
        if (!(*at == '_' || (*at >= '0' && *at <= '9') || ((*at | 32) >= 'a' && (*at | 32) <= 'z')))
            *at = '-';
    if (!name || !plain_name(name)) {
        np_free(name);
        return np_strdup("run");
    }
    return name;
}

static void check_name(struct np_config *config, struct np_report *report)
{
    const struct np_node *node = np_node_get(config->root, "name");

    if (config->name && config->name[0] == '\0') {
        np_free(config->name);
        config->name = name_of_file(config->path);
    } else if (node && config->name && !plain_name(config->name)) {
        np_report_add(report, node->line, node->column,
            "name: '%.80s' cannot be a folder's name; use letters, digits, '.', '_' and '-', "
            "at most 64, not '.' or '-' first",
            config->name);
    }
}

int np_config_set_device(struct np_config *config, const char *name, struct np_report *report)
{
    struct np_node *node = np_node_scalar(name, 0, 0);
    char *new_name = NULL, *flag = np_format("--device %.40s", name);
    const char *file = report->file;

    report->file = flag; /* messages name the flag */
    int code = np_device_parse(node, &new_name, &config->device_options, report);
    report->file = file;
    np_free(flag);
    np_node_free(node);
    if (code == 0) {
        np_free(config->device);
        config->device = new_name;
    }
    return code;
}

/* "1 epoch", "0.5 epochs", "500 steps", "never". */
static bool parse_period(const char *text, struct np_period *ret_period)
{
    struct np_period period = {0};
    char *end;

    if (strcmp(text, "never") == 0) {
        *ret_period = period;
        return true;
    }
    double number = strtod(text, &end);
    if (end == text || *end != ' ' || !isfinite(number) || number <= 0 || number > 1e12)
        return false;
    end += strspn(end, " ");
    if (strcmp(end, "epoch") == 0 || strcmp(end, "epochs") == 0)
        period.epochs = number;
    else if ((strcmp(end, "step") == 0 || strcmp(end, "steps") == 0) && floor(number) == number)
        period.steps = (int64_t)number;
    else
        return false;
    *ret_period = period;
    return true;
}

static void check_period(const struct np_node *map, const char *key, const char *text,
    struct np_period *ret_period, struct np_report *report)
{
    const struct np_node *node = np_node_get(map, key);

    if (text && !parse_period(text, ret_period))
        np_report_add(report, node ? node->line : 0, node ? node->column : 0,
            "%s: expected '1 epoch', '0.5 epochs', '500 steps' or 'never', not '%.80s'", key, text);
}

/* The way uphill would need the gradient of all batches of an update, and then all of them again. */
static void parse_sam(struct np_config *config, struct np_report *report)
{
    struct np_train_options *run = &config->run;

    np_options_parse(np_sam_table, run->sam_node, "sam", NULL, &run->sam, report);
    if (run->accumulate > 1)
        np_report_add(report, run->sam_node->line, run->sam_node->column,
            "train.sam computes each batch twice and cannot accumulate %lld batches; leave out "
            "train.accumulate, or take a larger loader.batch",
            (long long)run->accumulate);
    config->optim.sam_rho = run->sam.rho;
    config->optim.sam_adaptive = run->sam.adaptive;
}

static void check_sum(const struct np_config *config, struct np_report *report)
{
    const struct np_node *sum = np_node_get(config->run_node, "sum"),
                         *dtype = np_node_get(config->run_node, "comm_dtype");
    const bool fast = config->run.sum == NP_SUM_FAST;

    if (dtype && config->run.comm_dtype != NP_F32 && !fast)
        np_report_add(report, dtype->line, dtype->column,
            "train.comm_dtype: gradients in bf16 round between the processes: it needs "
            "train.sum: fast");
    if (sum && fast && strcmp(config->device, "cpu") == 0)
        np_report_add(report, sum->line, sum->column,
            "train.sum: fast is NCCL's sum of GPUs; `device: cpu` sums exactly");
}

static void parse_train(struct np_config *config, struct np_report *report)
{
    struct np_train_options *run = &config->run;
    const struct np_node *node = config->run_node;
    const int before = report->nr_errs + report->nr_dropped;

    np_options_parse(np_train_table, node, "train", NULL, run, report);
    if (run->ema_node)
        np_options_parse(np_average_table, run->ema_node, "ema", NULL, &run->ema, report);
    if (run->sam_node)
        parse_sam(config, report);
    if (run->stop_node)
        np_options_parse(np_early_table, run->stop_node, "stop", NULL, &run->stop, report);
    check_period(node, "eval_every", run->eval_every_text, &run->eval_every, report);
    const struct np_node *epochs = np_node_get(node, "epochs"), *steps = np_node_get(node, "steps");
    if (run->steps > 0 && !epochs)
        run->epochs = 0;
    if (run->epochs > 0 && run->steps > 0)
        np_report_add(report, steps->line, steps->column,
            "steps: there is also 'epochs'; give one of the two");
    if (run->epochs == 0 && run->steps == 0) {
        if ((epochs || steps) && report->nr_errs + report->nr_dropped == before)
            np_report_add(report, (epochs ? epochs : steps)->line,
                (epochs ? epochs : steps)->column, "%s: nothing to train; give epochs or steps",
                epochs ? "epochs" : "steps");
        run->epochs = DEFAULT_EPOCHS;
    }
    config->optim.clip_norm = run->clip_norm;
}

static void parse_checkpoint(struct np_config *config, struct np_report *report)
{
    np_options_parse(np_checkpoint_table, config->checkpoint_node, "checkpoint", NULL,
        &config->checkpoint, report);
    check_period(config->checkpoint_node, "every", config->checkpoint.every_text,
        &config->checkpoint.every, report);
}

static void expand_runs(struct np_config *config, struct np_report *report)
{
    const struct np_node *node = np_node_get(config->root, "runs");
    struct np_err err = {0};
    char *runs = np_expand(config->runs, &err);

    if (!runs) {
        np_report_add(report, node ? node->line : 0, node ? node->column : 0, "runs: %s", err.text);
        return;
    }
    np_free(config->runs);
    config->runs = runs;
}

/* Of train.stop, or the schedule plateau. */
static void check_metric(
    int metric, int type, const struct np_node *at, const char *key, struct np_report *report)
{
    static const struct {
        unsigned has;
        const char *words;
    } types[] = {
        [NP_LABEL_CLASS] = {1u << NP_METRIC_LOSS | 1u << NP_METRIC_ACCURACY, "loss or accuracy"},
        [NP_LABEL_MULTI] = {1u << NP_METRIC_LOSS | 1u << NP_METRIC_ACCURACY | 1u << NP_METRIC_MAP,
            "loss, accuracy or map"},
        [NP_LABEL_VALUE] = {1u << NP_METRIC_LOSS | 1u << NP_METRIC_MAE | 1u << NP_METRIC_RMSE |
                                1u << NP_METRIC_R2,
            "loss, mae, rmse or r2"},
    };

    if (at && !(types[type].has & 1u << metric))
        np_report_add(report, at->line, at->column, "%s: sets with `label_type: %s` have %s", key,
            np_label_types[type], types[type].words);
}

/* Metrics that the labels do not have. */
static void check_metrics(struct np_config *config, struct np_report *report)
{
    static const unsigned has[] = {[NP_LABEL_CLASS] = 1u << NP_BEST_ACCURACY | 1u << NP_BEST_LOSS |
                                                      1u << NP_BEST_TOP5 | 1u << NP_BEST_F1,
        [NP_LABEL_MULTI] =
            1u << NP_BEST_ACCURACY | 1u << NP_BEST_LOSS | 1u << NP_BEST_F1 | 1u << NP_BEST_MAP,
        [NP_LABEL_VALUE] =
            1u << NP_BEST_LOSS | 1u << NP_BEST_MAE | 1u << NP_BEST_RMSE | 1u << NP_BEST_R2};
    static const char *const words[] = {
        "accuracy, loss, top5 or f1", "accuracy, loss, f1 or map", "loss, mae, rmse or r2"};
    const int type = config->data.train.label_type;
    const struct np_node *best = np_node_get(config->run_node, "best");
    const struct np_node *stop = config->run.stop_node, *schedule = config->schedule_node;

    if (!best && type == NP_LABEL_VALUE)
        config->run.best = NP_BEST_LOSS;
    else if (best && !(has[type] & 1u << config->run.best))
        np_report_add(report, best->line, best->column, "best: sets with `label_type: %s` have %s",
            np_label_types[type], words[type]);
    if (type != NP_LABEL_CLASS && config->loader.balance)
        np_report_add(report, config->loader_node->line, config->loader_node->column,
            "loader.balance: it draws classes, and the sets have `label_type: %s`",
            np_label_types[type]);
    check_metric(config->run.stop.metric, type, stop, "stop.metric", report);
    if (config->schedule.kind == NP_PLATEAU)
        check_metric(config->schedule.metric, type, schedule, "schedule.plateau.metric", report);
}

/* A GPU's limits are checked by its plugin. */
static void check_precision(const struct np_config *config, struct np_report *report)
{
    const struct np_node *node = np_node_get(config->root, "precision");

    if (config->precision == NP_F16 && config->device && strcmp(config->device, "cpu") == 0)
        np_report_add(report, node->line, node->column,
            "precision: f16 needs a GPU; the CPU computes in f32 or bf16");
}

/* Checks the model if the augmentation chain fixes the input's size, or if the config is wrong
 * anyway: with a guessed size a correct shape could be reported as wrong. */
static void check_model(struct np_config *config, struct np_report *report)
{
    struct np_row_sizes size;

    config->network.loader = &config->loader;
    config->network.train = &config->data.train;
    config->network.run = &config->run;
    config->sets = (struct np_set_options){&config->data, &config->loader};
    config->network.seed = config->seed;
    np_loader_row_sizes(&config->loader, &size);
    if (config->network.model && (size.width > 0 || report->nr_errs))
        np_network_check(&config->network, &size, 0, report);
}

/* "": it evaluates while it trains. */
static const char *lacks_evaluations(const struct np_config *config)
{
    if (config->run.eval_every.epochs == 0 && config->run.eval_every.steps == 0)
        return ": it needs evaluations, and train.eval_every is 'never'";
    return np_node_get(config->data_node, "test") || np_node_get(config->data_node, "val") ||
                   config->data.split > 0
               ? ""
               : ": it needs evaluations: data.test, data.val or data.split";
}

/* Checks that involve two sections. */
static void check_schedule(const struct np_config *config, struct np_report *report)
{
    const struct np_schedule_options *schedule = &config->schedule;
    const struct np_node *at = config->schedule_node;
    const char *why = NULL, *lacks = "";

    if (schedule->momentum_high > 0 && !np_optim_has_momentum(&config->optim))
        why = "momentum_high: this optimizer has no momentum that a schedule could move";
    else if (schedule->kind == NP_PLATEAU && *(lacks = lacks_evaluations(config)))
        why = "plateau";
    if (why)
        np_report_add(report, at ? at->line : 0, at ? at->column : 0, "schedule.%s%s", why, lacks);
    if (config->run.stop_node && *(lacks = lacks_evaluations(config)))
        np_report_add(report, config->run.stop_node->line, config->run.stop_node->column,
            "train.stop%s", lacks);
}

static void parse_sections(struct np_config *config, struct np_report *report)
{
    np_options_parse(np_config_table, config->root, "the config", NULL, config, report);
    config->precision--; /* from the index of its word: auto is -1 */
    check_name(config, report);
    expand_runs(config, report);
    if (config->root->kind != NP_NODE_MAP)
        return;              /* one message is enough */
    if (config->base_node) { /* missing keys may be in the base */
        np_report_add(report, config->base_node->line, config->base_node->column,
            "base: only a config file can build on another one");
        return;
    }
    np_device_parse(config->device_node, &config->device, &config->device_options, report);
    np_data_options_parse(config->data_node, config->dir, &config->data, report);
    np_loader_options_parse(config->loader_node, &config->loader, report);
    if (!config->network.model)
        np_report_add(report, 1, 1, "model: the key is missing; it lists the layers");
    np_optim_parse(config->optim_node, &config->optim, report);
    if (np_rules_parse(config->freeze_node, config->params_node, &config->rules, report) == 0)
        config->network.rules = &config->rules;
    config->rules.layer_decay = config->optim.layer_decay;
    np_schedule_parse(config->schedule_node, &config->schedule, report);
    parse_train(config, report); /* sets optim.clip_norm */
    parse_checkpoint(config, report);
    check_schedule(config, report);
    np_track_parse(config->track_node, &config->track, report);
    check_precision(config, report);
    check_metrics(config, report);
    np_config_check_lanes(config, report);
    check_sum(config, report);
    check_model(config, report);
}

/* --- the file ------------------------------------------------------------------------------ */

static bool has_length(const struct np_config *config, const char *key)
{
    return np_node_get(np_node_get(config->root, "train"), key) != NULL;
}

/* Takes ownership of config. */
static int finish(struct np_config *config, const char *const *overrides, int nr_overrides,
    struct np_config **ret_config, struct np_report *report)
{
    config->root = config->file.root;
    if (config->root) {
        const bool epochs = has_length(config, "epochs"), steps = has_length(config, "steps");

        for (int i = 0; i < nr_overrides; i++)
            np_config_override(config->root, overrides[i], i, report);
        config->replaced = epochs && !has_length(config, "epochs") ? "epochs"
                           : steps && !has_length(config, "steps") ? "steps"
                                                                   : NULL;
        parse_sections(config, report);
    }
    if (report->nr_errs) {
        np_report_sort(report);
        report->files = NULL; /* owned by the config */
        np_config_free(config);
        return -EINVAL;
    }
    *ret_config = config;
    return 0;
}

static struct np_config *begin(const char *path, struct np_report *report)
{
    struct np_config *config = np_alloc(sizeof(*config));

    if (!report->file)
        report->file = path;
    config->path = np_strdup(path);
    config->dir = np_config_folder(path, NULL);
    return config;
}

int np_config_load_text(const char *text, size_t bytes, const char *path,
    const char *const *overrides, int nr_overrides, struct np_config **ret_config,
    struct np_report *report)
{
    struct np_config *config = begin(path, report);

    *ret_config = NULL;
    np_yaml_parse(text, bytes, &config->file.root, report);
    return finish(config, overrides, nr_overrides, ret_config, report);
}

int np_config_load(const char *path, const char *const *overrides, int nr_overrides,
    struct np_config **ret_config, struct np_report *report)
{
    struct np_config *config = begin(path, report);

    *ret_config = NULL;
    const int code = np_config_file_read(path, &config->file, report);
    const int finished = finish(config, overrides, nr_overrides, ret_config, report);
    return finished < 0 && code < 0 ? code : finished;
}

void np_config_report(const struct np_config *config, struct np_report *report)
{
    np_report_init(report, config->path);
    report->files = (const char *const *)config->file.bases;
}

void np_config_free(struct np_config *config)
{
    if (!config)
        return;
    np_options_fini(np_config_table, config);
    np_options_fini(np_train_table, &config->run);
    np_options_fini(np_checkpoint_table, &config->checkpoint);
    np_loader_options_fini(&config->loader);
    np_data_options_fini(&config->data);
    np_schedule_fini(&config->schedule);
    np_rules_fini(&config->rules);
    np_free(config->device);
    np_free(config->path);
    np_free(config->dir);
    np_config_file_fini(&config->file);
    np_free(config);
}
