/* `nnpipe bench WHAT CONFIG`: code shared by the benchmarks. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "daemon/bench/bench.h"
#include "loader/base/mem.h"
#include "loader/base/text.h"

#define DEFAULT_SECONDS 5.0

static int parse_number(const char *flag, const char *text, double most, double *ret_value)
{
    if (!text || (np_text_real(text, 0, most, ret_value) && *ret_value > 0))
        return 0;
    fprintf(stderr, "nnpipe bench: %s takes a number above 0, not '%s'\n", flag, text);
    return NP_EXIT_USAGE;
}

static int parse_flags(
    int argc, char **argv, const struct np_bench_kind *kind, struct np_bench *bench)
{
    const struct np_flag all[] = {
        {"--seconds", &bench->seconds_text, NULL, NULL},
        {"--json", NULL, &bench->json, NULL},
        {"--epochs", &bench->epochs_text, NULL, NULL},
        {"--steps", &bench->steps_text, NULL, NULL},
        {"--device", &bench->device, NULL, NULL},
        {"--cold", NULL, &bench->cold, NULL},
    };
    struct np_flag flags[sizeof(all) / sizeof(*all) + 1] = {all[0], all[1]};
    double steps = 0;
    int nr_operands, code;

    for (size_t i = 2, n = 2; i < sizeof(all) / sizeof(*all); i++)
        if (strstr(kind->flags, all[i].name))
            flags[n++] = all[i];
    code = np_flags_parse(argc, argv, flags, &bench->overrides, &nr_operands);
    if (code == 0 && nr_operands != 1) {
        fprintf(stderr, "nnpipe %s: expected one CONFIG, not %d; see `nnpipe help %s`\n", argv[0],
            nr_operands, argv[0]);
        return NP_EXIT_USAGE;
    }
    if (code == 0)
        code = parse_number("--seconds", bench->seconds_text, 1e6, &bench->seconds);
    if (code == 0)
        code = parse_number("--epochs", bench->epochs_text, 1e6, &bench->epochs);
    if (code == 0)
        code = parse_number("--steps", bench->steps_text, 1e12, &steps);
    bench->steps = (uint64_t)steps;
    if (bench->seconds == 0 && bench->epochs == 0 && bench->steps == 0)
        bench->seconds = DEFAULT_SECONDS;
    return code;
}

/* Guesses what the data would have determined. */
static void guess_data(struct np_bench *bench, struct np_err *err)
{
    struct np_setup *setup = &bench->setup;
    char guess[NP_GUESS_TEXT];
    struct np_report report; /* stays empty: chains that disagree have been reported before */
    int classes = 0;

    np_setup_fini(setup);
    np_config_report(bench->config, &report);
    np_loader_row_size(&bench->config->loader, &setup->height, &setup->width, &report);
    np_report_fini(&report);
    np_network_guess(&bench->config->network, &setup->height, &setup->width, &classes, guess);
    np_ui_say(&bench->ui, "%s; %s", err->text, guess);
    setup->classes = np_node_new(NP_NODE_LIST, 0, 0);
    for (int i = 0; i < classes; i++)
        np_node_add(setup->classes, NULL, np_node_scalar("guessed", 0, 0));
    err->code = 0;
}

static int open_data(struct np_bench *bench, const char *path, bool is_optional, struct np_err *err)
{
    const struct np_source_progress progress = {.note = np_ui_note, .context = &bench->ui};
    struct np_report report;
    int code;

    np_report_init(&report, path);
    code = np_config_load(
        path, bench->overrides.texts, bench->overrides.nr_texts, &bench->config, &report);
    if (code == 0 && bench->device)
        code = np_config_set_device(bench->config, bench->device, &report);
    if (code)
        np_complain_report(&report, &bench->overrides);
    np_report_fini(&report);
    if (code)
        return NP_EXIT_USAGE;
    bench->config->data.has_test = bench->config->data.has_val =
        false; /* the training set is enough */
    if (np_setup_data(bench->config, &progress, &bench->setup, err) < 0 && is_optional)
        guess_data(bench, err);
    if (err->code == 0)
        bench->stat = np_stat_new(err);
    return 0;
}

int np_bench_main(int argc, char **argv, const struct np_bench_kind *kind)
{
    struct np_bench bench = {0};
    struct np_err err = {0};
    int code = parse_flags(argc, argv, kind, &bench);

    if (code)
        return code;
    np_ui_init(&bench.ui, bench.json);
    code = open_data(&bench, argv[1], kind->data_is_optional, &err);
    if (code == 0 && (err.code || kind->run(&bench, &err) < 0)) {
        np_complain(&err);
        code = NP_EXIT_FAILED;
    }
    np_setup_fini(&bench.setup);
    np_config_free(bench.config);
    np_stat_free(bench.stat);
    np_ui_fini(&bench.ui);
    return code;
}

void np_bench_loader_config(const struct np_bench *bench, uint64_t nr_steps,
    const struct np_allocator *allocator, struct np_loader_config *ret_config)
{
    const struct np_config *config = bench->config;
    const struct np_loader_options *options = &config->loader;

    *ret_config = (struct np_loader_config){
        .options = options,
        .sampler =
            {
                .seed = (uint64_t)config->seed,
                .nr_train = np_index_samples(bench->setup.train),
                .batch = (int)options->batch,
                .nr_steps = nr_steps,
                .shuffle = options->shuffle,
                .window = (uint64_t)options->window,
            },
        .train = bench->setup.train,
        .train_labels = bench->setup.train_labels,
        .augment = config->loader.augment,
        .test_augment = config->loader.test_augment,
        .shape = {(int)options->batch, bench->setup.height, bench->setup.width,
            (int)options->channels},
        .allocator = allocator,
        .stat = bench->stat,
        .picture_bytes = np_picture_bytes(bench->setup.train, (int)options->channels),
    };
}

uint64_t np_bench_steps(const struct np_bench *bench, double default_epochs)
{
    const double epoch =
        (double)np_index_samples(bench->setup.train) / (double)bench->config->loader.batch;

    if (bench->steps)
        return bench->steps;
    if (bench->seconds > 0 && bench->epochs == 0)
        return UINT32_MAX;
    return (uint64_t)ceil((bench->epochs > 0 ? bench->epochs : default_epochs) * epoch);
}
