/* `nnpipe eval [CONFIG] --weights FILE`: loss and accuracy on the test set, or another one, and on
 * request figures per class, calibration, confusions and the worst images. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "daemon/cmd.h"
#include "daemon/config/config.h"
#include "daemon/run/eval_report.h"
#include "daemon/run/inference.h"
#include "loader/base/json.h"
#include "daemon/run/compute.h"
#include "daemon/ui/progress.h"

static void say_bad(void *context, const struct np_bad_sample *bad)
{
    struct np_ui *ui = context;

    np_json_begin(&ui->object, "bad_sample");
    np_json_text(&ui->object, "path", bad->path);
    np_json_int(&ui->object, "offset", (int64_t)bad->offset);
    np_json_text(&ui->object, "reason", bad->reason);
    np_ui_event(ui, np_json_end(&ui->object));
    np_ui_say(ui, "bad sample left out: %s: %s", bad->path, bad->reason);
}

static void report(struct np_ui *ui, const char *set, const struct np_eval_report *eval,
    const struct np_inference *inference, const struct np_figures *figures)
{
    const enum np_label_type type = (enum np_label_type)inference->config->data.train.label_type;
    char words[NP_FIGURES_TEXT];
    const int classes = inference->setup.sets.classes ? inference->setup.sets.classes->nr_items : 0;
    char top5[32] = "";
    double images = eval->images ? (double)eval->images : 1;
    double rate = eval->seconds > 0 ? (double)eval->images / eval->seconds : 0;
    struct np_json *line = &ui->object;

    np_json_begin(line, "done");
    np_json_text(line, "set", set);
    np_json_int(line, "images", (int64_t)eval->images);
    np_json_real(line, "loss", eval->loss);
    if (type != NP_LABEL_VALUE)
        np_json_real(line, "accuracy", (double)eval->correct / images);
    if (type == NP_LABEL_CLASS)
        np_json_real(line, "top5_accuracy", (double)eval->top5 / images);
    else
        np_figures_put(line, "", type, figures);
    np_json_real(line, "images_per_second", rate);
    np_json_text(line, "precision", np_precision_names[inference->precision]);
    np_json_text(line, "device", inference->device->name);
    np_json_text(line, "tta", np_tta_names[inference->config->run.tta]);
    np_ui_event(ui, np_json_end(line));
    if (classes > 5)
        snprintf(top5, sizeof(top5), ", top 5 %.2f%%", 100 * (double)eval->top5 / images);
    if (type == NP_LABEL_CLASS)
        snprintf(words, sizeof(words), ", accuracy %.2f%%%s", 100 * (double)eval->correct / images,
            top5);
    else
        np_figures_text(type, figures, words);
    if (!ui->json)
        np_ui_say(ui, "%s set, %llu images: loss %.4f%s, %.0f img/s", set,
            (unsigned long long)eval->images, eval->loss, words, rate);
}

/* What the command line asks for. */
struct request {
    const char *weights;
    const struct np_overrides *overrides;
    const char *html, *predictions; /* files; NULL: none */
    bool classes, json;
};

struct chosen {
    enum np_which_set set;
    struct np_index *index;
    const int32_t *labels;
    const struct np_split *split; /* NULL: all of it */
};

/* Opens the set, unless np_inference_open() has opened all sets to find the classes. */
static int open_chosen(struct np_config *config, const struct np_source_progress *progress,
    struct np_setup *setup, struct chosen *chosen, struct np_err *err)
{
    const bool is_val = chosen->set == NP_SET_VAL && config->data.has_val;
    struct np_index *const *index = chosen->set == NP_SET_TEST ? &setup->sets.test
                                    : is_val                   ? &setup->sets.val
                                                               : &setup->sets.train;
    int code =
        *index ? 0 : np_sets_open_one(&config->sets, chosen->set, progress, &setup->sets, err);

    if (code < 0)
        return code;
    chosen->index = *index;
    chosen->labels = chosen->set == NP_SET_TEST ? setup->sets.test_labels
                     : is_val                   ? setup->sets.val_labels
                                                : setup->sets.train_labels;
    if (chosen->set != NP_SET_VAL || is_val)
        return 0;
    chosen->split = &setup->sets.split;
    return np_sets_split(&config->sets, &setup->sets, err);
}

static bool wants_outcomes(const struct request *request)
{
    return request->html || request->predictions || request->classes || request->json;
}

/* Writes everything that needs the answer for each image. */
static int write_details(struct np_ui *ui, const struct request *request,
    const struct np_eval_facts *facts, struct np_err *err)
{
    int code = 0;

    if (request->json) {
        np_json_begin(&ui->object, "report");
        np_json_text(&ui->object, "set", facts->set);
        if ((code = np_eval_put(&ui->object, facts, err)) == 0)
            np_ui_event(ui, np_json_end(&ui->object));
    }
    if (code == 0 && request->classes && !request->json)
        code = np_eval_table(facts, ui->text, err);
    if (code == 0 && request->predictions)
        code = np_eval_predictions(facts, request->predictions, err);
    if (code == 0 && request->html)
        code = np_eval_html(facts, request->html, err);
    return code;
}

static int evaluate(const struct request *request, const struct np_inference *inference,
    const struct chosen *chosen, struct np_ui *ui, struct np_err *err)
{
    const struct np_config *config = inference->config;
    const struct np_sets *sets = &inference->setup.sets;
    const enum np_label_type type = (enum np_label_type)config->data.train.label_type;
    struct np_kept kept = {.type = type, .width = sets->classes->nr_items};
    struct np_figures figures = {0};
    struct np_outcomes outcomes = {.nr_classes = sets->classes->nr_items,
        .sigmoids = np_graph_has_sigmoids(inference->setup.eval_graph)};
    struct np_eval_report result;
    const struct np_evaluation evaluation = {
        .config = config,
        .device = inference->device,
        .plan = inference->plan,
        .index = chosen->index,
        .split = chosen->split,
        .labels = chosen->labels,
        .classes = sets->classes,
        .shape = np_setup_shape(config, &inference->setup),
        .stat = inference->stat,
        .block = inference->block,
        .outcomes = type == NP_LABEL_CLASS && wants_outcomes(request) ? &outcomes : NULL,
        .kept = type == NP_LABEL_CLASS ? NULL : &kept,
        .bad = say_bad,
        .context = ui,
    };
    const struct np_eval_facts facts = {.set = np_set_names[chosen->set],
        .name = config->name,
        .weights = request->weights,
        .precision = np_precision_names[inference->precision],
        .evaluation = &evaluation,
        .report = &result};
    int code = np_evaluate(&evaluation, &result, err);

    if (code == 0 && evaluation.kept)
        code = np_figures_make(&kept, NULL, &figures, err);
    if (code == 0)
        code = write_details(ui, request, &facts, err);
    if (code == 0)
        report(ui, facts.set, &result, inference, &figures);
    np_outcomes_fini(&outcomes);
    np_kept_fini(&kept);
    return code;
}

static int eval(struct np_config *config, const struct request *request, struct chosen *chosen,
    struct np_ui *ui, struct np_err *err)
{
    const struct np_source_progress progress = {
        .note = np_ui_note, .count = np_ui_listing, .context = ui};
    struct np_inference inference = {0};
    char how[224];
    int code =
        np_inference_open(config, request->weights, request->overrides, &progress, &inference, err);

    if (code == 0) {
        np_inference_text(&inference, how, sizeof(how));
        np_ui_say(ui, "evaluating %s", how);
        code = open_chosen(config, &progress, &inference.setup, chosen, err);
    }
    if (code == 0)
        code = evaluate(request, &inference, chosen, ui, err);
    np_inference_close(&inference);
    return code;
}

/* --set NAME; NULL: test, or val if there is no test. */
static int choose(
    const struct np_config *config, const char *name, const char *path, enum np_which_set *ret_set)
{
    const bool has[] = {
        config->data.has_test, config->data.has_val || config->data.split > 0, true};
    int set = has[NP_SET_TEST] || !has[NP_SET_VAL] ? NP_SET_TEST : NP_SET_VAL;

    for (set = name ? 0 : set; name && np_set_names[set]; set++)
        if (strcmp(np_set_names[set], name) == 0)
            break;
    if (!np_set_names[set])
        return np_usage("eval", "--set takes test, val or train, not %s", name);
    if (!has[set]) {
        fprintf(stderr, "%s: data: there is no '%s' set to evaluate on%s\n", path,
            np_set_names[set],
            !name              ? ", and no 'val'; use --set train for the training set"
            : has[NP_SET_TEST] ? "; there is 'test'"
            : has[NP_SET_VAL]  ? "; there is 'val'"
                               : "; there is only 'train'");
        return NP_EXIT_USAGE;
    }
    *ret_set = (enum np_which_set)set;
    return 0;
}

int np_cmd_eval(int argc, char **argv)
{
    const char *device = NULL, *set = NULL, *tta = NULL;
    struct np_overrides overrides = {0};
    struct request request = {.overrides = &overrides};
    const struct np_flag flags[] = {
        {"--weights", &request.weights, NULL, NULL},
        {"--set", &set, NULL, NULL},
        {"--html", &request.html, NULL, NULL},
        {"--predictions", &request.predictions, NULL, NULL},
        {"--classes", NULL, &request.classes, NULL},
        {"--tta", &tta, NULL, NULL},
        {"--device", &device, NULL, NULL},
        {"--json", NULL, &request.json, NULL},
        {NULL, NULL, NULL, NULL},
    };
    struct np_config *config = NULL;
    struct chosen chosen = {0};
    struct np_err err = {0};
    struct np_ui ui;
    int nr, code = np_flags_parse(argc, argv, flags, &overrides, &nr);

    if (code)
        return code;
    char *own = nr == 0 && request.weights ? np_inference_config(request.weights) : NULL;
    const char *path = nr == 1 ? argv[1] : own;
    if (!request.weights || !path || nr > 1)
        code = np_usage("eval", "expected CONFIG --weights FILE, or only --weights RUN");
    if (code == 0)
        code = np_inference_tta("eval", tta, &overrides);
    if (code == 0)
        code = np_cmd_config(path, &overrides, device, &config);
    if (code == 0)
        code = choose(config, set, path, &chosen.set);
    np_free(own);
    if (code) {
        np_config_free(config);
        return code;
    }
    np_ui_init(&ui, request.json);
    if (eval(config, &request, &chosen, &ui, &err) < 0) {
        code = err.code == -ENOEXEC ? NP_EXIT_USAGE : NP_EXIT_FAILED;
        np_ui_error(&ui, &err);
    }
    np_ui_fini(&ui);
    np_config_free(config);
    return code;
}
