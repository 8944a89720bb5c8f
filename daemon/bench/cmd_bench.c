/* `nnpipe bench WHAT CONFIG`: the four parts with their flags; opens config and training set for
 * them. */
#include <math.h>
#include <string.h>

#include "daemon/bench/bench.h"
#include "loader/base/mem.h"
#include "loader/base/text.h"

#define DEFAULT_SECONDS 5.0

static const struct kind {
    const char *name, *flags; /* flags: besides --seconds, --json and -o */
    bool data_is_optional;    /* if data is missing, size and classes are guessed, with a message */
    int (*measure)(struct np_bench *bench, struct np_err *err);
} kinds[] = {
    {"bench loader", "--epochs --steps --entries", false, np_bench_loader},
    {"bench io", "--epochs --cold", false, np_bench_io},
    {"bench feed", "--epochs --steps --device", false, np_bench_feed},
    {"bench step", "--steps --device", true, np_bench_step},
};

static int parse_flags(int argc, char **argv, const struct kind *kind, struct np_bench *bench)
{
    struct {
        const char *flag, *text;
        double max, *value;
    } numbers[] = {{"--seconds", NULL, 1e6, &bench->seconds},
        {"--epochs", NULL, 1e6, &bench->epochs}, {"--steps", NULL, 1e12, &bench->steps}};
    const struct np_flag all[] = {
        {"--seconds", &numbers[0].text, NULL, NULL},
        {"--json", NULL, &bench->json, NULL},
        {"--epochs", &numbers[1].text, NULL, NULL},
        {"--steps", &numbers[2].text, NULL, NULL},
        {"--device", &bench->device, NULL, NULL},
        {"--cold", NULL, &bench->cold, NULL},
        {"--entries", NULL, &bench->entries, NULL},
    };
    struct np_flag flags[sizeof(all) / sizeof(*all) + 1] = {all[0], all[1]};
    int nr_operands, code;

    for (size_t i = 2, n = 2; i < sizeof(all) / sizeof(*all); i++)
        if (strstr(kind->flags, all[i].name))
            flags[n++] = all[i];
    code = np_flags_parse(argc, argv, flags, &bench->overrides, &nr_operands);
    if (code == 0 && nr_operands != 1)
        return np_usage(
            argv[0], "expected one CONFIG, not %d; see `nnpipe help %s`", nr_operands, argv[0]);
    for (int i = 0; code == 0 && i < 3; i++)
        if (numbers[i].text &&
            (!np_text_real(numbers[i].text, 0, numbers[i].max, numbers[i].value) ||
                *numbers[i].value == 0))
            code = np_usage(
                "bench", "%s takes a number above 0, not '%s'", numbers[i].flag, numbers[i].text);
    bench->steps = floor(bench->steps);
    if (bench->seconds == 0 && bench->epochs == 0 && bench->steps == 0)
        bench->seconds = DEFAULT_SECONDS;
    return code;
}

/* Guesses size and classes, which the data would have. */
static void guess_data(struct np_bench *bench, struct np_err *err)
{
    struct np_setup *setup = &bench->setup;
    char guess[NP_GUESS_TEXT];
    int classes = 0;

    np_setup_fini(setup);
    np_loader_row_sizes(&bench->config->loader, &setup->sets.size);
    np_network_guess(&bench->config->network, &setup->sets.size, &classes, guess);
    np_ui_say(&bench->ui, "%s; %s", err->text, guess);
    setup->sets.classes = np_node_new(NP_NODE_LIST, 0, 0);
    for (int i = 0; i < classes; i++)
        np_node_add(setup->sets.classes, NULL, np_node_scalar("guessed", 0, 0));
    err->code = 0;
}

static void open_data(struct np_bench *bench, bool is_optional, struct np_err *err)
{
    const struct np_source_progress progress = {
        .note = np_ui_note, .count = np_ui_listing, .context = &bench->ui};
    struct np_data_options *data = &bench->config->data;

    data->has_test = data->has_val = false; /* the training set is enough */
    if (np_sets_open(&bench->config->sets, &progress, &bench->setup.sets, err) < 0 && is_optional)
        guess_data(bench, err);
    if (err->code == 0)
        bench->stat = np_stat_new(err);
}

int np_cmd_bench(int argc, char **argv)
{
    const struct kind *kind = kinds;
    struct np_bench bench = {0};
    struct np_err err = {0};

    while (strcmp(kind->name, argv[0]) != 0)
        kind++;
    int code = parse_flags(argc, argv, kind, &bench);
    if (code == 0)
        code = np_cmd_config(argv[1], &bench.overrides, bench.device, &bench.config);
    if (code)
        return code;
    bench.config->loader.entries_fixed = !bench.entries;
    np_ui_init(&bench.ui, bench.json);
    open_data(&bench, kind->data_is_optional, &err);
    if (err.code || kind->measure(&bench, &err) < 0) {
        np_complain(&err);
        code = NP_EXIT_FAILED;
    }
    np_setup_fini(&bench.setup);
    np_config_free(bench.config);
    np_stat_free(bench.stat);
    np_ui_fini(&bench.ui);
    return code;
}

static uint64_t nr_steps(const struct np_bench *bench)
{
    const double epoch =
        (double)np_index_samples(bench->setup.sets.train) / (double)bench->config->loader.batch;

    if (bench->steps > 0)
        return (uint64_t)bench->steps;
    return bench->epochs > 0 ? (uint64_t)ceil(bench->epochs * epoch) : NP_BENCH_ENDLESS;
}

struct np_loader_config np_bench_loader_config(
    const struct np_bench *bench, const struct np_allocator *allocator)
{
    const struct np_config *config = bench->config;
    const struct np_loader_options *options = &config->loader;

    return (struct np_loader_config){
        .options = options,
        .sampler = {.seed = (uint64_t)config->seed,
            .nr_train = np_index_samples(bench->setup.sets.train),
            .batch = (int)options->batch,
            .nr_steps = nr_steps(bench),
            .shuffle = options->shuffle,
            .window = (uint64_t)options->window,
            .repeat = (int)options->repeat,
            .balance = options->balance},
        .train = bench->setup.sets.train,
        .train_labels = bench->setup.sets.train_labels,
        .augment = config->loader.augment,
        .test_augment = config->loader.test_augment,
        .shape = np_setup_shape(config, &bench->setup),
        .allocator = allocator,
        .stat = bench->stat,
        .picture_bytes = np_picture_bytes(bench->setup.sets.train, (int)options->channels),
    };
}
