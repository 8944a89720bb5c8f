/* Opens a loader: options, config, sets; and starts and stops its readers. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "loader/base/mem.h"
#include "loader/base/text.h"
#include "loader/base/yaml.h"
#include "loader/lib/lib.h"
#include "loader/lib/lib_deal.h"

#define DEFAULT_HELD 32
#define MAX_HELD     4096
#define MAX_WORLD    (1 << 20)
#define MAX_GPU      999

/* --- options ------------------------------------------------------------------------------------ */

/* The words of an option, and the values that they stand for. */
struct word {
    const char *word;
    int value;
};
static const struct word set_names[] = {
    {"train", NP_SET_TRAIN}, {"val", NP_SET_VAL}, {"test", NP_SET_TEST}, {0}};
static const struct word dtypes[] = {{"uint8", NP_ROW_U8}, {"float32", NP_ROW_F32},
    {"bfloat16", NP_ROW_BF16}, {"float16", NP_ROW_F16}, {0}};
static const struct word layouts[] = {{"nhwc", false}, {"nchw", true}, {0}};
static const struct word answers[] = {{"yes", true}, {"no", false}, {0}};
static const struct word orders[] = {{"own", false}, {"dealt", true}, {0}};
static const struct word devices[] = {{"cpu", NP_LIB_CPU}, {"cuda", 0}, {0}};

struct parsed {
    int set, rank, world, dtype, planar, drop_last, held, device, dealt;
};
static const struct option {
    const char *key;
    size_t offset;
    const struct word *words; /* NULL: a whole number */
    int min, max;
} option_table[] = {
    {"set", offsetof(struct parsed, set), set_names, 0, 0},
    {"rank", offsetof(struct parsed, rank), NULL, 0, MAX_WORLD - 1},
    {"world", offsetof(struct parsed, world), NULL, 1, MAX_WORLD},
    {"dtype", offsetof(struct parsed, dtype), dtypes, 0, 0},
    {"layout", offsetof(struct parsed, planar), layouts, 0, 0},
    {"drop_last", offsetof(struct parsed, drop_last), answers, 0, 0},
    {"held", offsetof(struct parsed, held), NULL, 1, MAX_HELD},
    {"device", offsetof(struct parsed, device), devices, 0, MAX_GPU},
    {"order", offsetof(struct parsed, dealt), orders, 0, 0},
};

/* Not NULL: the option is a word, or a number behind this. */
static const char *prefix_of(const struct option *option)
{
    return option->words == devices ? "cuda:" : NULL;
}

static int wrong_value(const struct option *option, const char *value, struct np_err *err)
{
    char choices[200] = "";
    size_t n = 0;

    if (!option->words)
        return np_err_set(err, -EINVAL,
            "option %s: expected a whole number from %d to %d, not '%.40s'", option->key,
            option->min, option->max, value);
    for (const struct word *word = option->words; word->word; word++)
        n += (size_t)snprintf(choices + n, sizeof(choices) - n, "%s%s", n ? ", " : "", word->word);
    if (prefix_of(option))
        snprintf(choices + n, sizeof(choices) - n, ", %sN", prefix_of(option));
    return np_err_set(
        err, -EINVAL, "option %s: expected one of %s, not '%.40s'", option->key, choices, value);
}

static int parse_value(
    const struct option *option, const char *value, int *ret_value, struct np_err *err)
{
    const size_t prefix = prefix_of(option) ? strlen(prefix_of(option)) : 0;
    int64_t number;

    for (const struct word *word = option->words; word && word->word; word++)
        if (strcmp(word->word, value) == 0) {
            *ret_value = word->value;
            return 0;
        }
    if (prefix ? strncmp(value, prefix_of(option), prefix) != 0 : option->words != NULL)
        return wrong_value(option, value, err);
    if (!np_text_int(value + prefix, option->min, option->max, &number))
        return wrong_value(option, value, err);
    *ret_value = (int)number;
    return 0;
}

static int parse_options(
    const char *const *options, struct np_lib_options *ret_options, struct np_err *err)
{
    struct parsed parsed = {
        .set = NP_SET_TRAIN, .world = 1, .held = DEFAULT_HELD, .device = NP_LIB_CPU};
    int code = 0;

    for (; !code && options && *options; options++) {
        const char *equals = strchr(*options, '=');
        const size_t length = equals ? (size_t)(equals - *options) : 0;
        const struct option *option = NULL;

        for (size_t i = 0; !option && i < sizeof(option_table) / sizeof(*option_table); i++)
            if (strlen(option_table[i].key) == length &&
                strncmp(option_table[i].key, *options, length) == 0)
                option = &option_table[i];
        if (!option)
            return np_err_set(err, -EINVAL, "there is no option '%.80s'", *options);
        code =
            parse_value(option, equals + 1, (int *)(void *)((char *)&parsed + option->offset), err);
    }
    if (!code && parsed.rank >= parsed.world)
        code = np_err_set(err, -EINVAL, "option rank: there is no rank %d of %d (world)",
            parsed.rank, parsed.world);
    *ret_options = (struct np_lib_options){
        .set = parsed.set,
        .rank = parsed.rank,
        .world = parsed.world,
        .format = {(enum np_row_type)parsed.dtype, parsed.planar},
        .drop_last = parsed.drop_last,
        .dealt = parsed.dealt,
        .held = parsed.held,
        .gpu = parsed.device,
    };
    return code;
}

/* --- the config --------------------------------------------------------------------------------- */

/* All mistakes, one a line, in the order of their lines. */
static int report_mistakes(struct np_report *report, char *error, size_t error_bytes)
{
    size_t n = 0;

    if (report->no_memory) {
        snprintf(error, error_bytes, "out of memory");
        return -ENOMEM;
    }
    np_report_sort(report);
    for (int i = 0; i < report->nr_errs && n < error_bytes; i++) {
        char line[1100];

        np_err_format(&report->errs[i], line, sizeof(line));
        n += (size_t)snprintf(error + n, error_bytes - n, "%s%s", n ? "\n" : "", line);
    }
    if (report->nr_dropped && n < error_bytes)
        snprintf(error + n, error_bytes - n, "\nand %d more mistakes", report->nr_dropped);
    return -EINVAL;
}

static void parse_keys(struct nnp_loader *loader, const char *dir, struct np_report *report)
{
    static const struct np_option seed_table[] = {
        {"seed", NP_OPT_INT, 0, "1", 0, 9e15, NULL, "as in a config"}, NP_OPTIONS_END};
    const struct np_node *root = loader->file.root, *data = np_node_get(root, "data");
    const struct np_node *seed = np_node_get(root, "seed");
    struct np_node *map;

    if (root->kind != NP_NODE_MAP) {
        np_report_add(report, 1, 1, "expected a config: `data: ...` and `loader: ...`");
        return;
    }
    if (!loader->sets.train)
        np_data_options_parse(data, dir, &loader->data_options, report);
    np_loader_options_parse(np_node_get(root, "loader"), &loader->loader_options, report);
    map = np_node_new(NP_NODE_MAP, 0, 0);
    if (seed)
        np_node_add(map, "seed", np_node_copy(seed));
    np_options_parse(seed_table, map, "the config", NULL, &loader->seed, report);
    np_node_free(map);
}

static int parse_config(struct nnp_loader *loader, const char *config, const char *folder,
    char *error, size_t error_bytes)
{
    struct np_err err = {0};
    struct np_report report;
    /* No such file: only its folder counts. */
    char *path = np_try_format(&err, "%s/<config>", folder ? folder : ".");
    char *dir = path ? np_config_folder(path, &err) : NULL;
    int code = dir ? 0 : -ENOMEM;

    np_report_init(&report, "config");
    if (!code)
        code = np_config_file_parse(config, strlen(config), path, &loader->file, &report);
    if (!code)
        parse_keys(loader, dir, &report);
    if (report.nr_errs || report.nr_dropped)
        code = report_mistakes(&report, error, error_bytes);
    else if (code)
        snprintf(error, error_bytes, "%s", err.code ? err.text : strerror(-code));
    np_report_fini(&report);
    np_free(path);
    np_free(dir);
    return code;
}

/* --- sets --------------------------------------------------------------------------------------- */

static int open_sets(struct nnp_loader *loader, struct np_err *err)
{
    const struct np_data_options *data = &loader->data_options;
    const struct np_set_options options = {data, &loader->loader_options};
    const enum np_which_set which = (enum np_which_set)loader->options.set;
    struct np_data_options own = *data;
    struct np_sets *sets = &loader->sets;
    int code;

    own.has_test = data->has_test && which == NP_SET_TEST;
    own.has_val = data->has_val && which == NP_SET_VAL;
    if (which == NP_SET_TEST && !data->has_test)
        return np_err_set(err, -EINVAL, "set=test: the config has no data.test");
    if (which == NP_SET_VAL && !data->has_val && data->split == 0)
        return np_err_set(err, -EINVAL, "set=val: the config has neither data.val nor data.split");
    code = np_sets_open(&(struct np_set_options){&own, &loader->loader_options}, NULL, sets, err);
    if (!code && data->split > 0 && which != NP_SET_TEST)
        code = np_sets_split(&options, sets, err);
    if (code)
        return code;
    if (which == NP_SET_TEST) {
        loader->index = sets->test;
        loader->labels = sets->test_labels;
    } else if (which == NP_SET_VAL && data->has_val) {
        loader->index = sets->val;
        loader->labels = sets->val_labels;
    } else {
        loader->index = sets->train;
        loader->labels = sets->train_labels;
    }
    return 0;
}

/* The program's own data take the place of the sets; nnp_open() takes them over when all is well. */
static int adopt(struct nnp_loader *loader, const struct nnp_data *data, struct np_err *err)
{
    const struct np_set_options options = {&loader->data_options, &loader->loader_options};

    loader->index = loader->sets.train;
    loader->labels = loader->sets.train_labels = data->labels;
    loader->sets.classes = data->classes;
    return np_sets_adopt(&options, loader->options.set == NP_SET_TRAIN, &loader->sets, err);
}

/* --- the order ---------------------------------------------------------------------------------- */

static int make_order(struct nnp_loader *loader, struct np_err *err)
{
    const struct np_loader_options *options = &loader->loader_options;
    const bool train = loader->options.set == NP_SET_TRAIN;
    const struct np_split *split = &loader->sets.split;
    struct np_sampler_options *order = &loader->order;

    if (loader->options.dealt && (options->balance || options->repeat > 1))
        return np_err_set(err, -EINVAL,
            "loader.%s: the program deals the order of the samples; remove the key, or let nnpipe "
            "choose the order",
            options->balance ? "balance" : "repeat");
    if (train && options->grow.from)
        return np_err_set(
            err, -EINVAL, "loader.grow: the batches of a program have one size; remove the key");
    *order = (struct np_sampler_options){
        .seed = (uint64_t)loader->seed,
        .nr_train = np_index_samples(loader->index),
        .batch = (int)options->batch,
        .shuffle = train ? options->shuffle : NP_SHUFFLE_NONE,
        .window = (uint64_t)options->window,
        .repeat = train ? (int)options->repeat : 1,
        .balance = train && options->balance,
        .epochs = loader->options.drop_last ? NP_EPOCHS_DROP_LAST : NP_EPOCHS_SHORT_LAST,
        .rank = loader->options.rank,
        .world = loader->options.world,
        .keep_bad = !train || loader->options.dealt,
    };
    if (loader->index == loader->sets.train && split->order) {
        order->nr_train = train ? split->nr_train : split->nr_eval;
        order->split = split->order + (train ? split->nr_eval : 0);
    }
    loader->length = np_sampler_epoch_steps(order);
    order->nr_steps = NP_LIB_STEPS;
    if (loader->length == 0 && !loader->options.dealt) /* np_sampler_new() has the words */
        return np_sampler_new(order, &(struct np_sampler *){NULL}, err);
    return 0;
}

static void make_fingerprint(struct nnp_loader *loader)
{
    struct np_node *node = np_loader_options_node(&loader->loader_options);
    char *text = np_node_yaml(node, NULL);
    const uint64_t facts[] = {np_index_names_sum(loader->index, loader->labels),
        (uint64_t)loader->seed, (uint64_t)loader->options.world, loader->options.drop_last,
        (uint64_t)loader->options.set, loader->order.nr_train,
        loader->order.split
            ? XXH3_64bits(loader->order.split, loader->order.nr_train * sizeof(uint32_t))
            : 0,
        text ? XXH3_64bits(text, strlen(text)) : 0};

    loader->fingerprint = XXH3_64bits(facts, sizeof(facts));
    np_free(text);
    np_node_free(node);
}

/* --- start and stop ----------------------------------------------------------------------------- */

static struct np_loader_config running_config(struct nnp_loader *loader)
{
    return (struct np_loader_config){
        .options = &loader->loader_options,
        .sampler = loader->order,
        .train = loader->index,
        .train_labels = loader->labels,
        .augment = loader->chain,
        .shape = np_lib_ring_shape(loader),
        .first_step = loader->dealer ? np_dealer_start(loader->dealer)
                                     : loader->epoch * loader->length + loader->taken,
        .picture_bytes = np_picture_bytes(loader->index, loader->shape.channels),
        .formatter = loader->formatter,
        .share_key = loader->share_key,
        .pictures_key = loader->pictures_key,
    };
}

int np_lib_start(struct nnp_loader *loader, struct np_err *err)
{
    struct np_stat *stat = np_stat_new(err);
    struct np_block *block = stat ? np_stat_join(stat, "program", err) : NULL;
    const struct np_batch_shape shape = np_lib_ring_shape(loader);
    const int held = loader->options.held + (loader->plugin ? NP_AHEAD : 0);
    struct nnp_store *store = NULL;
    struct np_store_gpu gpu;
    struct np_loader *running = NULL;
    int code = block ? np_lib_open_gpu(loader, &gpu, err) : -ENOMEM;

    if (!code && !(store = np_store_new(&shape, held, &gpu, loader->tally, err)))
        code = -ENOMEM;
    if (store) {
        const struct np_allocator allocator = np_store_allocator(store);
        struct np_loader_config config = running_config(loader);

        config.allocator = &allocator;
        config.stat = stat;
        code = np_loader_start(&config, &running, err);
        if (code)
            np_store_explain(store, err);
    }
    if (code) {
        np_stat_free(stat);
        np_store_drop(store);
        return code;
    }
    pthread_mutex_lock(&loader->error_lock); /* nnp_counters() reads them */
    loader->running = running;
    loader->stat = stat;
    loader->store = store;
    pthread_mutex_unlock(&loader->error_lock);
    loader->block = block;
    loader->nr_judged = 0;
    return 0;
}

void np_lib_stop(struct nnp_loader *loader)
{
    struct np_loader *running = loader->running;
    struct np_stat *stat = loader->stat;
    struct nnp_store *store = loader->store;

    pthread_mutex_lock(&loader->error_lock); /* nnp_counters() reads them */
    loader->running = NULL;
    loader->stat = NULL;
    loader->block = NULL;
    loader->store = NULL;
    pthread_mutex_unlock(&loader->error_lock);
    np_ahead_drop(&loader->ahead);
    if (running)
        np_loader_flush(running);
    np_loader_stop(running);
    np_stat_free(stat);
    np_store_drop(store);
}

/* --- open and close ----------------------------------------------------------------------------- */

struct opening {
    struct nnp_loader *loader;
    struct nnp_data *data;
    const char *config, *folder;
    const char *const *options;
    char *error;
    size_t error_bytes;
};

static int open_all(struct nnp_loader *loader, const struct opening *opening, struct np_err *err)
{
    int code = parse_options(opening->options, &loader->options, err);

    if (!code && loader->options.dealt && !opening->data)
        code = np_err_set(err, -EINVAL, "order=dealt: the program must name its data");
    if (code)
        return code;
    if (opening->data)
        loader->sets.train = opening->data->index;
    code = parse_config(
        loader, opening->config, opening->folder, opening->error, opening->error_bytes);
    if (code)
        return code;
    code = opening->data ? adopt(loader, opening->data, err) : open_sets(loader, err);
    if (code)
        return code;
    loader->chain = loader->options.set == NP_SET_TRAIN ? loader->loader_options.augment
                                                        : loader->loader_options.test_augment;
    if (loader->options.dealt && np_chain_needs_epoch(loader->chain))
        return np_err_set(err, -EINVAL,
            "order=dealt: torchvision has no operation like '%s' of loader.augment; use flip",
            np_chain_needs_epoch(loader->chain));
    const struct np_row_sizes *size = &loader->sets.size;
    const bool trains = loader->options.set == NP_SET_TRAIN;
    loader->shape = (struct np_batch_shape){
        .rows = (int)loader->loader_options.batch,
        .height = trains ? size->height : size->eval_height,
        .width = trains ? size->width : size->eval_width,
        .channels = (int)loader->loader_options.channels,
        .format = loader->options.format,
        .values = loader->index->values ? loader->index->nr_values : 0,
    };
    if (loader->options.gpu != NP_LIB_CPU && (code = np_lib_find_gpu(loader, err)) < 0)
        return code;
    if ((code = make_order(loader, err)) < 0 || (code = np_lib_format(loader, NULL, err)) < 0)
        return code;
    make_fingerprint(loader);
    loader->pictures_key =
        np_share_pictures_key(&(struct np_loader_config){.options = &loader->loader_options,
            .train = loader->index,
            .picture_bytes = np_picture_bytes(loader->index, loader->shape.channels)});
    if (loader->options.dealt) {
        const struct np_batch_shape shape = np_lib_ring_shape(loader);
        const int nr_batches = np_loader_slots(&loader->loader_options, &shape);

        loader->dealer = np_dealer_new(loader, nr_batches, err);
        if (!loader->dealer)
            return -ENOMEM;
        loader->order.dealt = np_dealer_rows_of(loader->dealer);
        loader->order.nr_dealt = (uint64_t)nr_batches;
        loader->length = 0; /* until an epoch is dealt */
        return 0;
    }
    loader->share_key = np_share_key(&(struct np_loader_config){.options = &loader->loader_options,
                                         .train = loader->index,
                                         .train_labels = loader->labels},
        (uint64_t)loader->options.set + 1);
    return np_lib_start(loader, err);
}

/* np_recover() runs it, since parts of the parser end the process where memory runs out. */
static int open_guarded(void *context)
{
    const struct opening *opening = context;
    struct np_err err = {0};
    int code = open_all(opening->loader, opening, &err);

    if (code && err.code)
        snprintf(opening->error, opening->error_bytes, "%s", err.text);
    return code;
}

int nnp_open(const char *config, const char *folder, struct nnp_data *data,
    const char *const *options, struct nnp_loader **ret_loader, char *error, size_t error_bytes)
{
    char spare[1200]; /* where the program wants no text */
    struct np_err err = {0};
    struct nnp_loader *loader = np_try_alloc(sizeof(*loader), &err);
    struct opening opening = {loader, data, config, folder, options, error, error_bytes};
    int code;

    if (!error || error_bytes == 0) {
        opening.error = error = spare;
        opening.error_bytes = error_bytes = sizeof(spare);
    }
    snprintf(error, error_bytes, "%s", err.text);
    if (!loader)
        return -ENOMEM;
    loader->pid = getpid();
    pthread_mutex_init(&loader->lock, NULL);
    pthread_mutex_init(&loader->error_lock, NULL);
    loader->tally = np_tally_new(&err);
    code = loader->tally ? np_recover(open_guarded, &opening) : -ENOMEM;
    if (code && data) { /* still the program's */
        loader->sets.train = NULL;
        loader->sets.train_labels = NULL;
        loader->sets.classes = NULL;
    }
    if (!code && data)
        np_free(data); /* the loader has what it pointed to */
    if (code) {
        if (code == -ENOMEM && !*error)
            snprintf(error, error_bytes, "out of memory");
        nnp_close(loader);
        return code;
    }
    *ret_loader = loader;
    return 0;
}

void nnp_close(struct nnp_loader *loader)
{
    /* In a child of fork() the threads are not there, and the locks may be held: what it has of
     * the loader ends with it. */
    if (!loader || np_lib_is_foreign(loader))
        return;
    pthread_mutex_lock(&loader->error_lock); /* ends a wait of nnp_next() in another thread */
    if (loader->running)
        np_ring_interrupt(loader->running->ring);
    pthread_mutex_unlock(&loader->error_lock);
    pthread_mutex_lock(&loader->lock);
    np_lib_stop(loader);
    pthread_mutex_unlock(&loader->lock);
    np_dealer_free(loader->dealer);
    np_formatter_free(loader->formatter);
    np_sets_fini(&loader->sets);
    np_loader_options_fini(&loader->loader_options);
    np_data_options_fini(&loader->data_options);
    np_config_file_fini(&loader->file);
    np_tally_drop(loader->tally);
    pthread_mutex_destroy(&loader->lock);
    pthread_mutex_destroy(&loader->error_lock);
    np_free(loader);
}
