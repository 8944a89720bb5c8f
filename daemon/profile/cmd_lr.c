/* `nnpipe lr CONFIG`: trains for a few steps at growing rates, and says which ones to use. The run
 * is in a temporary folder, without evaluations and checkpoints; nothing of it is kept. */
#include <errno.h>
#include <ftw.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/cmd.h"
#include "daemon/config/config.h"
#include "daemon/profile/range_test.h"
#include "daemon/run/run.h"
#include "daemon/run/run_folder.h"
#include "daemon/run/run_parts.h"
#include "daemon/ui/page.h"
#include "daemon/ui/terminal.h"
#include "loader/base/text.h"

struct range_run {
    struct np_range_test test;
    int accumulate;
    double loss_sum; /* of the run, up to the last update */
    uint64_t rows;
    char device[32];
    const char *precision;
};

struct request {
    const char *from_text, *to_text, *steps_text, *html;
    double from, to;
    int steps;
    bool json;
};

static bool on_step(void *context, struct np_run *run, const struct np_observed *seen)
{
    struct range_run *range = context;

    if (seen->steps % (uint64_t)range->accumulate != 0)
        return false;
    const uint64_t rows = run->total.rows - range->rows;
    const double loss = (run->total.loss_sum - range->loss_sum) / (double)(rows ? rows : 1);

    range->loss_sum = run->total.loss_sum;
    range->rows = run->total.rows;
    range->precision = np_precision_names[run->precision];
    snprintf(range->device, sizeof(range->device), "%s", run->device->name);
    return np_range_add(&range->test, run->lr, loss);
}

static int remove_one(const char *path, const struct stat *stat_, int kind, struct FTW *where)
{
    return remove(path);
}

/* Everything that is not training, or another schedule, is left out of the run. */
static void change_config(struct np_config *config, const struct request *ask, const char *dir)
{
    const double lr = config->optim.lr, rest = config->optim.rest_lr;

    np_free(config->runs);
    config->runs = np_strdup(dir);
    np_schedule_fini(&config->schedule);
    config->schedule = (struct np_schedule_options){
        .kind = NP_RANGE, .growth = pow(ask->to / ask->from, 1.0 / (ask->steps - 1))};
    config->optim.rest_lr = lr > 0 ? ask->from * (rest / lr) : ask->from;
    config->optim.lr = ask->from;
    config->checkpoint.every = (struct np_period){0};
    config->track = 0;
}

/* Ends with 0 also when the loss or the gradients are no longer finite: the rate is too high. */
static int train(struct np_config *config, const struct request *ask, const char *weights,
    struct range_run *range, struct np_err *err)
{
    const struct np_overrides none = {0};
    const struct np_run_probe probe = {.step = on_step, .context = range, .err = err};
    const struct np_run_options options = {.probe = &probe, .overrides = &none, .weights = weights};
    const char *tmp = getenv("TMPDIR");
    char *dir = np_format("%s/nnpipe-lr-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    int code = 0;

    if (!mkdtemp(dir)) {
        code = np_err_set(err, -errno, "%s: cannot be created: %s", dir, strerror(errno));
        np_free(dir);
        return code;
    }
    change_config(config, ask, dir);
    const int exit_code = np_run_train(config, &options);
    if (err->code == -EDOM && range->test.nr_points > 0)
        range->test.diverged = true;
    else if (exit_code != NP_EXIT_DONE)
        code = err->code ? err->code : -EIO;
    nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    np_free(dir);
    if (code == 0)
        *err = (struct np_err){0}; /* of the probe's end */
    return code;
}

/* --- the outcome --------------------------------------------------------------------------- */

static void put_outcome(struct np_json *json, const struct range_run *range)
{
    const struct np_range_test *test = &range->test;

    np_json_text(json, "device", range->device);
    np_json_text(json, "precision", range->precision);
    np_json_int(json, "steps", test->nr_points);
    np_json_bool(json, "diverged", test->diverged);
    np_json_real(json, "steepest", test->steep);
    np_json_real(json, "minimum_tenth", test->minimum);
}

static void put_point(struct np_json *json, const struct np_range_point *point)
{
    np_json_real(json, "lr", point->lr);
    np_json_real(json, "loss", point->loss);
    np_json_real(json, "smooth", point->smooth);
}

static void print_json(const struct range_run *range)
{
    struct np_json line = {0};

    for (int i = 0; i < range->test.nr_points; i++) {
        np_json_begin(&line, "rate");
        np_json_int(&line, "step", i + 1);
        put_point(&line, &range->test.points[i]);
        np_json_print(&line, stdout);
    }
    np_json_begin(&line, "done");
    put_outcome(&line, range);
    np_json_print(&line, stdout);
    np_json_fini(&line);
}

static void page_to(FILE *out, const void *json)
{
    np_page_fill_json(out, "/assets/lr.html", "/assets/lr.js", json);
}

static int write_page(
    const struct range_run *range, const char *name, const char *path, struct np_err *err)
{
    struct np_json json = {0};

    np_json_begin(&json, NULL);
    np_json_text(&json, "name", name);
    put_outcome(&json, range);
    np_json_open(&json, "points", '[');
    for (int i = 0; i < range->test.nr_points; i++) {
        np_json_open(&json, NULL, '{');
        put_point(&json, &range->test.points[i]);
        np_json_close(&json, '}');
    }
    np_json_close(&json, ']');
    char *text = np_json_take(&json, err);
    const int code = text ? np_page_write(path, page_to, text, err) : -ENOMEM;
    np_free(text);
    np_json_fini(&json);
    return code;
}

static void print_text(const struct range_run *range, const char *kind)
{
    const struct np_range_test *test = &range->test;
    const int columns = np_terminal_columns(STDOUT_FILENO);

    printf("loss (smoothed) over the learning rate, %d updates, %s on %s\n", test->nr_points,
        range->precision, range->device);
    np_range_plot(test, columns > 0 ? columns : 80, stdout);
    if (isnan(test->steep) || isnan(test->minimum)) {
        puts("the loss does not fall: no rate follows from this; try more --steps, another --from");
        return;
    }
    printf("steepest fall:            %.2g\n", test->steep);
    printf("a tenth of the minimum's: %.2g\n", test->minimum);
    printf("a first choice: -o optimizer.%s.lr=%.2g\n", kind, test->minimum);
}

/* --- the command --------------------------------------------------------------------------- */

static int check_rate(const char *flag, const char *text, double *ret_rate)
{
    if (!text || np_text_real(text, 1e-12, 1e6, ret_rate))
        return 0;
    return np_usage("lr", "%s takes a learning rate, 1e-12 to 1e6, not %s", flag, text);
}

static int check_usage(struct request *ask, char **argv, int nr)
{
    int64_t steps = ask->steps;

    if (nr != 1)
        return np_usage("lr", "expected one CONFIG, not %d", nr);
    if (np_is_folder(argv[1]))
        return np_usage("lr", "%s is a folder, CONFIG is a file", argv[1]);
    if (check_rate("--from", ask->from_text, &ask->from) ||
        check_rate("--to", ask->to_text, &ask->to))
        return NP_EXIT_USAGE;
    if (!(ask->from < ask->to))
        return np_usage("lr", "--to, %g, is not above --from, %g", ask->to, ask->from);
    if (ask->steps_text && !np_text_int(ask->steps_text, 10, NP_RANGE_MAX_POINTS, &steps))
        return np_usage(
            "lr", "--steps takes 10 to %d updates, not %s", NP_RANGE_MAX_POINTS, ask->steps_text);
    ask->steps = (int)steps;
    return 0;
}

static int report(const struct np_config *config, const struct request *ask,
    struct range_run *range, struct np_err *err)
{
    np_range_judge(&range->test);
    int code = ask->html ? write_page(range, config->name, ask->html, err) : 0;
    if (code < 0)
        return code;
    if (ask->json)
        print_json(range);
    else
        print_text(range, np_optim_choices[config->optim.kind].name);
    return 0;
}

int np_cmd_lr(int argc, char **argv)
{
    struct np_overrides overrides = {0};
    struct request ask = {.from = 1e-7, .to = 10, .steps = 100};
    const char *device = NULL, *weights = NULL;
    const struct np_flag flags[] = {
        {"--from", &ask.from_text, NULL, NULL},
        {"--to", &ask.to_text, NULL, NULL},
        {"--steps", &ask.steps_text, NULL, NULL},
        {"--weights", &weights, NULL, NULL},
        {"--html", &ask.html, NULL, NULL},
        {"--device", &device, NULL, NULL},
        {"--json", NULL, &ask.json, NULL},
        {NULL, NULL, NULL, NULL},
    };
    struct range_run range = {.device = ""};
    struct np_config *config = NULL;
    struct np_err err = {0};
    int nr, code = np_flags_parse(argc, argv, flags, &overrides, &nr);

    if (code == 0)
        code = check_usage(&ask, argv, nr);
    if (code == 0)
        code = np_cmd_config(argv[1], &overrides, device, &config);
    if (code)
        return code;
    range.accumulate = (int)config->run.accumulate;
    range.test.room = ask.steps;
    range.test.points = np_alloc_array((size_t)ask.steps, sizeof(*range.test.points));
    int failed = train(config, &ask, weights, &range, &err);
    if (failed == 0)
        failed = report(config, &ask, &range, &err);
    if (failed < 0 && failed != -EINTR)
        np_complain(&err);
    np_free(range.test.points);
    np_config_free(config);
    return failed == 0 ? NP_EXIT_DONE : failed == -EINTR ? NP_EXIT_STOPPED : NP_EXIT_FAILED;
}
