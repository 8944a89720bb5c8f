/* `nnpipe predict [CONFIG] --weights FILE IMAGE...`: classifies images. They are a set without
 * labels, which goes through the loader and the test chain of the run in batches, as in `eval`. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "daemon/cmd.h"
#include "daemon/config/config.h"
#include "daemon/run/evaluate.h"
#include "daemon/run/images.h"
#include "daemon/run/inference.h"
#include "daemon/run/predictions.h"
#include "loader/base/clock.h"
#include "loader/base/text.h"

#define TOP "5"

struct request {
    const char *weights, *list, *out; /* list, out: NULL: none */
    const struct np_overrides *overrides;
    enum np_prediction_format format;
    char **words; /* images, folders, globs */
    int nr_words, top;
};

struct predictor {
    struct np_inference net;
    struct np_images images;
    struct np_index *index;
    struct np_predictions predictions;
    struct np_ui *ui;
    uint64_t nr_good, nr_bad;
};

/* An error of one image does not stop the others. */
static void blame(struct predictor *p, const struct np_err *err)
{
    np_ui_error(p->ui, err);
    p->nr_bad++;
}

static void on_bad(void *context, const struct np_bad_sample *bad)
{
    struct predictor *p = context;
    struct np_err err = {0};

    np_err_set(&err, -EBADMSG, "%s: %s", p->images.paths[bad->sample], bad->reason);
    blame(p, &err);
}

static int on_answer(void *context, uint64_t sample, const float *logits, struct np_err *err)
{
    struct predictor *p = context;
    const char *path = p->images.paths[sample];
    struct np_err one = {0};

    if (np_outputs_check(logits, p->predictions.classes, &one) < 0) {
        np_err_context(&one, "%s", path);
        blame(p, &one);
        return 0;
    }
    p->nr_good++;
    return np_predictions_put(&p->predictions, path, logits, err);
}

static int find_images(struct predictor *p, const struct request *request, struct np_err *err)
{
    int code = 0;

    for (int i = 0; i < request->nr_words && code == 0; i++)
        code = np_images_add(&p->images, request->words[i], err);
    if (code == 0 && request->list)
        code = np_images_add_list(&p->images, request->list, err);
    if (code == 0 && p->images.nr_paths == 0)
        code = np_err_set(err, -ENOENT, "the lists name no image");
    return code == 0 ? np_images_index(&p->images, &p->index, err) : code;
}

/* What the loader of a run does for its epochs is of no use here. */
static void set_up(struct np_config *config, uint64_t nr_images)
{
    if ((uint64_t)config->loader.batch > nr_images)
        config->loader.batch = (int64_t)nr_images;
    config->loader.cache = NP_CACHE_NONE;
    config->loader.bad_fail = false;
    config->loader.bad_budget = 1;
}

static int run_all(struct predictor *p, const struct request *request, struct np_err *err)
{
    const struct np_config *config = p->net.config;
    const struct np_sets *sets = &p->net.setup.sets;
    struct np_eval_report report;
    const struct np_evaluation evaluation = {
        .config = config,
        .device = p->net.device,
        .plan = p->net.plan,
        .index = p->index,
        .classes = sets->classes,
        .shape = np_setup_shape(config, &p->net.setup),
        .stat = p->net.stat,
        .block = p->net.block,
        .answer = on_answer,
        .bad = on_bad,
        .context = p,
    };
    struct np_err last = {0};

    p->predictions = (struct np_predictions){.format = request->format,
        .top = request->top,
        .sigmoids = np_graph_has_sigmoids(p->net.setup.eval_graph),
        .several = config->data.train.label_type == NP_LABEL_MULTI,
        .numbers = config->data.train.label_type == NP_LABEL_VALUE,
        .classes = sets->classes,
        .ui = p->ui};
    int code = np_predictions_open(&p->predictions, request->out, err);
    if (code == 0)
        code = np_evaluate(&evaluation, &report, err);
    if (np_predictions_close(&p->predictions, &last) < 0 && code == 0) {
        *err = last;
        code = last.code;
    }
    return code;
}

static int predict(struct np_config *config, const struct request *request, struct np_ui *ui)
{
    uint64_t last_ns = np_now_ns();
    const struct np_source_progress progress = {
        .note = np_note, .count = np_note_listing, .context = &last_ns};
    struct predictor p = {.ui = ui};
    struct np_err err = {0};
    char how[224];
    int code = find_images(&p, request, &err);

    if (code == 0) {
        set_up(config, p.images.nr_paths);
        code = np_inference_open(
            config, request->weights, request->overrides, &progress, &p.net, &err);
    }
    if (code == 0) {
        np_inference_text(&p.net, how, sizeof(how));
        fprintf(stderr, "predicting %s\n", how);
        code = run_all(&p, request, &err);
    }
    if (code < 0)
        np_ui_error(ui, &err);
    else if (p.nr_good + p.nr_bad > 1)
        fprintf(stderr, "%llu images, %llu bad ones\n", (unsigned long long)(p.nr_good + p.nr_bad),
            (unsigned long long)p.nr_bad);
    np_inference_close(&p.net);
    np_index_free(p.index);
    np_images_fini(&p.images);
    return code == -ENOEXEC           ? NP_EXIT_USAGE
           : code < 0 || p.nr_bad > 0 ? NP_EXIT_FAILED
                                      : NP_EXIT_DONE;
}

/* --format, or what the name of --out ends with; --json is jsonl, too. */
static int choose_format(const char *word, bool json, struct request *request)
{
    const char *dot = request->out ? strrchr(request->out, '.') : NULL;
    int format = json ? NP_PREDICT_JSONL : NP_PREDICT_TEXT;

    if (!word && dot && (strcmp(dot, ".csv") == 0 || strcmp(dot, ".jsonl") == 0))
        word = dot + 1;
    for (format = word ? 0 : format; word && np_prediction_formats[format]; format++)
        if (strcmp(np_prediction_formats[format], word) == 0)
            break;
    if (!np_prediction_formats[format])
        return np_usage("predict", "--format takes text, jsonl or csv, not %.40s", word);
    request->format = (enum np_prediction_format)format;
    return 0;
}

/* Splits the operands into the config and the images. *ret_config: NULL: the run's own. */
static int take_operands(
    int nr, char **argv, const char *top, struct request *request, const char **ret_config)
{
    int64_t number;

    if (!np_text_int(top, 1, INT32_MAX, &number))
        return np_usage("predict", "--top takes a number of at least 1");
    request->top = (int)number;
    const bool named =
        nr > 0 && request->weights && np_inference_names_config(argv[1], request->weights);
    request->words = argv + 1 + named;
    request->nr_words = nr - named;
    if (!request->weights || (request->nr_words < 1 && !request->list))
        return np_usage("predict",
            "expected [CONFIG] --weights FILE IMAGE...; the weights of a RUN need no CONFIG");
    *ret_config = named ? argv[1] : NULL;
    return 0;
}

int np_cmd_predict(int argc, char **argv)
{
    const char *device = NULL, *top = TOP, *format = NULL, *path = NULL, *tta = NULL;
    bool json = false;
    struct np_overrides overrides = {0};
    struct request request = {.overrides = &overrides};
    const struct np_flag flags[] = {
        {"--weights", &request.weights, NULL, NULL},
        {"--list", &request.list, NULL, NULL},
        {"--top", &top, NULL, NULL},
        {"--format", &format, NULL, NULL},
        {"--out", &request.out, NULL, NULL},
        {"--tta", &tta, NULL, NULL},
        {"--device", &device, NULL, NULL},
        {"--json", NULL, &json, NULL},
        {NULL, NULL, NULL, NULL},
    };
    struct np_config *config = NULL;
    struct np_ui ui;
    int nr, code = np_flags_parse(argc, argv, flags, &overrides, &nr);

    if (code || (code = take_operands(nr, argv, top, &request, &path)) ||
        (code = choose_format(format, json, &request)) ||
        (code = np_inference_tta("predict", tta, &overrides)))
        return code;
    char *own = path ? NULL : np_inference_config(request.weights);
    code = np_cmd_config(path ? path : own, &overrides, device, &config);
    np_free(own);
    if (code)
        return code;
    np_ui_init(&ui, json);
    code = predict(config, &request, &ui);
    np_ui_fini(&ui);
    np_config_free(config);
    return code;
}
