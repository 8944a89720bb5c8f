/* Tables, and code for the keys that a table cannot describe: sets, shuffle, cache, entries,
 * bad_samples, normalize, chains. */
#include "loader/loader_options.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "loader/base/mem.h"
#include "loader/base/path.h"
#include "loader/base/text.h"
#include "loader/source/entries.h"

/* --- data: ----------------------------------------------------------------------------------- */

#define AT(field) offsetof(struct np_data_options, field)
const struct np_option np_data_option_table[] = {
    {"train", NP_OPT_NODE, AT(train_node), NULL, 0, 0, NULL, "Required. The set to train on."},
    {"test", NP_OPT_NODE, AT(test_node), NULL, 0, 0, NULL,
        "The set to test on. Its classes are matched with those of `train` by name."},
    {"val", NP_OPT_NODE, AT(val_node), NULL, 0, 0, NULL,
        "The set to evaluate on while training; `test` is then used only at the end."},
    {"classes", NP_OPT_STRING, AT(classes), "", 0, 0, NULL,
        "A text file with the names of all classes in order, one per line. Default: the classes "
        "of `train` in byte order, as in torchvision (1, 10, 2)."},
    {"split", NP_OPT_SHARE, AT(split), "0", 0, 0.9, NULL,
        "Share of `train` that becomes the `val` set: `10%`. The run's `val.txt` and `nnpipe data "
        "ls CONFIG --split val` list its samples."},
    {"split_seed", NP_OPT_INT, AT(split_seed), "1", 0, 9e15, NULL,
        "Chooses the samples of `split`, or deals those of `fold`, independently of `seed`."},
    {"split_by", NP_OPT_WORD, AT(split_by), "class", 0, 0, "class|random",
        "`class`: takes the share of each class, at least one image if it has two. `random`: "
        "ignores classes, as runs did before this key existed, and as sets with another "
        "`label_type` than `class` always are."},
    {"fold", NP_OPT_STRING, AT(fold), "", 0, 0, NULL,
        "In place of `split`, for cross-validation: `2/5` makes the second of five equal parts of "
        "`train` the `val` set, and trains on the others. With the same `split_seed` and "
        "`split_by` "
        "each sample is in exactly one of the parts; by class they have as many of each class, but "
        "for one."},
    NP_OPTIONS_END,
};

static void resolve_classes(const struct np_node *node, const char *dir,
    struct np_data_options *options, struct np_report *report)
{
    struct np_err err = {0};
    char *text = options->classes;

    options->classes = text && *text ? np_resolve_path(text, dir, &err) : NULL;
    np_free(text);
    if (err.code)
        np_report_add(
            report, node ? node->line : 0, node ? node->column : 0, "classes: %s", err.text);
    report->no_memory |= err.code == -ENOMEM;
}

bool np_data_set_fold(struct np_data_options *options, const char *text)
{
    if (!np_fold_read(text, &options->fold_at, &options->nr_folds))
        return false;
    options->split = 1.0 / options->nr_folds;
    return true;
}

static void check_fold(
    const struct np_node *node, struct np_data_options *options, struct np_report *report)
{
    if (!node || !options->fold)
        return;
    if (options->split > 0)
        np_report_add(
            report, node->line, node->column, "fold: there is also a 'split'; give one of the two");
    else if (!np_data_set_fold(options, options->fold))
        np_report_add(report, node->line, node->column,
            "fold: '%.40s': expected a part and their number, 2 to %d, such as 1/5 ... 5/5",
            options->fold, NP_MAX_FOLDS);
}

struct np_split_options np_data_split(const struct np_data_options *options)
{
    /* Nearly every image has a label of its own, which is no class to take a share of. */
    const enum np_split_rule rule = options->train.label_type == NP_LABEL_CLASS
                                        ? (enum np_split_rule)options->split_by
                                        : NP_SPLIT_RANDOM;

    return (struct np_split_options){
        options->split, (uint64_t)options->split_seed, rule, options->fold_at, options->nr_folds};
}

static void check_type(const struct np_node *node, const struct np_source_options *set,
    const struct np_source_options *train, struct np_report *report)
{
    if (set->source && train->source && set->label_type != train->label_type)
        np_report_add(report, node->line, node->column,
            "label_type: %s, but that of `train` is %s; all sets have the same",
            np_label_types[set->label_type], np_label_types[train->label_type]);
}

int np_data_options_parse(const struct np_node *node, const char *dir,
    struct np_data_options *ret_options, struct np_report *report)
{
    struct np_data_options *options = ret_options;
    const int before = report->nr_errs + report->nr_dropped;

    *options = (struct np_data_options){0};
    if (!node)
        return np_report_add(report, 1, 1,
            "data: the key is missing; it names the sets: "
            "data: {train: {source: folder, path: DIR}}");
    np_options_parse(np_data_option_table, node, "data", NULL, options, report);
    if (options->train_node)
        np_source_parse(options->train_node, dir, &options->train, report);
    else if (node->kind == NP_NODE_MAP)
        np_report_add(report, node->key_line, node->key_column, "data: the key 'train' is missing");
    options->has_test = options->test_node != NULL;
    if (options->has_test)
        np_source_parse(options->test_node, dir, &options->test, report);
    options->has_val = options->val_node != NULL;
    if (options->has_val)
        np_source_parse(options->val_node, dir, &options->val, report);
    if (options->has_test)
        check_type(options->test_node, &options->test, &options->train, report);
    if (options->has_val)
        check_type(options->val_node, &options->val, &options->train, report);
    resolve_classes(np_node_get(node, "classes"), dir, options, report);
    const struct np_node *split = np_node_get(node, "split");
    check_fold(np_node_get(node, "fold"), options, report);
    split = options->nr_folds ? np_node_get(node, "fold") : split;
    if (options->split > 0 && options->has_val)
        np_report_add(report, split->line, split->column,
            "%s: there is also a 'val' set; give one of the two", split->key);
    return report->nr_errs + report->nr_dropped > before ? -EINVAL : 0;
}

void np_data_options_fini(struct np_data_options *options)
{
    np_source_options_fini(&options->train);
    np_source_options_fini(&options->test);
    np_source_options_fini(&options->val);
    np_options_fini(np_data_option_table, options);
}

struct np_node *np_data_options_node(const struct np_data_options *options)
{
    struct np_node *map = np_node_new(NP_NODE_MAP, 0, 0);
    char text[40];

    np_node_add(map, "train", np_source_options_node(&options->train));
    if (options->has_test)
        np_node_add(map, "test", np_source_options_node(&options->test));
    if (options->has_val)
        np_node_add(map, "val", np_source_options_node(&options->val));
    if (options->classes)
        np_node_add(map, "classes", np_node_scalar(options->classes, 0, 0));
    if (options->split > 0) {
        if (options->nr_folds)
            snprintf(text, sizeof(text), "%d/%d", options->fold_at + 1, options->nr_folds);
        else
            snprintf(text, sizeof(text), "%.17g", options->split);
        np_node_add(map, options->nr_folds ? "fold" : "split", np_node_scalar(text, 0, 0));
        snprintf(text, sizeof(text), "%lld", (long long)options->split_seed);
        np_node_add(map, "split_seed", np_node_scalar(text, 0, 0));
        np_node_add(map, "split_by", np_node_scalar(np_split_rules[options->split_by], 0, 0));
    }
    return map;
}

/* --- loader: --------------------------------------------------------------------------------- */

#undef AT
#define AT(field) offsetof(struct np_loader_options, field)

/* A larger one is a typing error. */
#define MAX_BATCH 1048576
/* So the bytes of an image's pixels fit 32 bits. */
#define MAX_PIXELS 1073741824

const struct np_option np_loader_option_table[] = {
    {"batch", NP_OPT_INT, AT(batch), "128", 1, MAX_BATCH, NULL, "Images in a batch."},
    {"readers", NP_OPT_INT, AT(readers), "auto", 1, 1024, "auto",
        "Threads that read, decompress, decode and augment images. `auto`: as many as the CPUs "
        "that "
        "the process may use; several processes of a run on one machine divide them, and the "
        "memory "
        "for `cache`, too."},
    {"io", NP_OPT_STRING, AT(io), "auto", 0, 0, NULL,
        "How files are read: `uring`, `pread`, or `auto`: uring if the kernel allows it."},
    {"depth", NP_OPT_INT, AT(depth), "auto", 1, 4096, "auto", "Reads in flight per reader."},
    {"prefetch", NP_OPT_INT, AT(prefetch), "auto", 2, 1024, "auto",
        "Batches made ahead of the trainer, in pinned memory."},
    {"cache", NP_OPT_NODE, AT(cache_node), "auto", 0, 0, NULL,
        "What is kept in memory between epochs: `none`, `encoded` (file bytes), `decoded` (whole "
        "images), `device` or `auto`. `{encoded: 2G}` sets the limit; default: a quarter of the "
        "memory. `auto` is `decoded` if images have at most 64 KiB of pixels, all of them fit an "
        "eighth of the memory and a quarter of the free memory, and at least three epochs remain: "
        "later epochs of CIFAR-10 then take the readers a sixth of the time, the first one 5 % "
        "more. Else it is `none`: the page cache holds files that fit the memory, and of a large "
        "image only the crop is decoded. `device` keeps whole images in the GPU's memory too; from "
        "the second epoch the GPU makes the rows itself, byte for byte the same, and only the "
        "random draws cross the bus. It takes up to half of the GPU's free memory and a quarter of "
        "the memory, or `{device: 20G}`; other images are loaded as usual. Without a GPU it is "
        "`decoded`. Jobs of one user share the pictures of `decoded` caches; see `share`."},
    {"entries", NP_OPT_NODE, AT(entries_node), "auto", 0, 0, NULL,
        "Beside the set's index, in the user's cache folder: the places in each JPEG at which a "
        "decoder can begin. From the second epoch, and in later runs, a crop is then decoded from "
        "its first row on, not from the picture's. `off`: none are kept or used; a size (`200M`): "
        "at most this size; `auto`: 2 % of the set, at least 64 MiB. Pixels never depend on "
        "them."},
    {"page_cache", NP_OPT_BYTES, AT(page_cache), "auto", 0, 1e18, "auto",
        "How much of the set is read through the page cache; the rest is read past it (O_DIRECT). "
        "`auto`: all of it if it fits the free memory or there is a `cache`, else four fifths of "
        "the free memory: always the same files, because the page cache would forget each before "
        "its next epoch. Takes effect with io_uring."},
    {"disk_cache", NP_OPT_BYTES, AT(disk_cache), "auto", 1 << 20, 1e18, "auto|none",
        "Data on servers (URLs): how many bytes of objects the cache folder keeps on local disk, "
        "for all "
        "sets and jobs of the user, so that later epochs and runs do not fetch them again. `auto`: "
        "half "
        "of the disk's free space, if the whole set fits and more than one epoch is read; else "
        "`none`. "
        "What came first stays for the run; sets that no run uses make room for others."},
    {"read_timeout", NP_OPT_INT, AT(read_timeout), "120", 1, 86400, NULL,
        "Data on servers (URLs): the seconds for which a read is repeated while it fails, with "
        "pauses "
        "that double up to 8 s. Then the run saves and ends with 74."},
    {"share", NP_OPT_NODE, AT(share_node), "auto", 0, 0, NULL,
        "Jobs of one user on one machine that want the same batches (the same data, seed, and keys "
        "of `loader:` that change a row) make each of them once, and those with `cache: decoded` "
        "over "
        "the same data, whatever their augmentation, decode each image once: `auto`, `off`, a name "
        "(only jobs with this name share), or a mapping; see below. Batches never depend on it."},
    {"shuffle", NP_OPT_NODE, AT(shuffle_node), "full", 0, 0, NULL,
        "Order of the training samples: `full`, `none`, or `{window: N}`: blocks of N samples in "
        "random order, shuffled within each block."},
    {"balance", NP_OPT_WORD, AT(balance), "none", 0, 0, "none|classes",
        "`classes`: each class comes equally often, however many samples it has. An epoch has as "
        "many images as without; a class has all its samples once, in random order, before one of "
        "them comes again. Needs `shuffle: full`."},
    {"repeat", NP_OPT_INT, AT(repeat), "1", 1, 1000, NULL,
        "Repeated augmentation: each sample of an epoch comes so many times in a row, augmented "
        "differently, and an epoch has so many times fewer of the samples. Not with `shuffle: "
        "none`."},
    {"bad_samples", NP_OPT_NODE, AT(bad_node), "{policy: replace, budget: 0.1%}", 0, 0, NULL,
        "What to do with samples that cannot be decoded: `{policy: replace, budget: 0.1%}`; see "
        "below."},
    {"channels", NP_OPT_INT, AT(channels), "3", 1, 3, NULL,
        "Channels of the images: 3 (RGB) or 1 (grey)."},
    {"pixels", NP_OPT_WORD, AT(pixels), "pillow-13", 0, 0, "pillow-12|pillow-13",
        "Which Pillow a resize matches, byte for byte: Pillow 13 does the vertical pass first when "
        "an image loses many more rows than columns, older versions never do. If the config lacks "
        "this key, a resumed run keeps its own, and `eval` and `predict` use the checkpoint's."},
    {"max_pixels", NP_OPT_INT, AT(max_pixels), "178956970", 1, MAX_PIXELS, NULL,
        "An image with more pixels is a bad sample. So is a JPEG with several scans (for example a "
        "progressive one) whose coefficients take more than 1.5 bytes for each of these pixels: "
        "256 MiB by default."},
    {"augment", NP_OPT_NODE, AT(augment_node), "[]", 0, 0, NULL,
        "Operations on training images, in order."},
    {"grow", NP_OPT_NODE, AT(grow_node), "none", 0, 0, NULL,
        "Training images that are smaller in the first epochs (progressive resizing): `{from: 160, "
        "since: 11, until: 13}`; see below. The first epochs then take less time."},
    {"test_augment", NP_OPT_NODE, AT(test_augment_node), "[]", 0, 0, NULL,
        "Operations on test images, in order. They may give another size than `augment`, if the "
        "network's "
        "weights do not depend on it."},
    {"normalize", NP_OPT_NODE, AT(normalize_node), "{mean: [0.5], std: [0.25]}", 0, 0, NULL,
        "`{mean: [...], std: [...]}` for pixels from 0 to 1; see below. `nnpipe data stats` "
        "computes them."},
    NP_OPTIONS_END,
};

struct bad_options {
    int policy;
    double budget;
};
const struct np_option np_bad_option_table[] = {
    {"policy", NP_OPT_WORD, offsetof(struct bad_options, policy), "replace", 0, 0, "replace|fail",
        "`replace`: another sample takes its place; `fail`: the run fails."},
    {"budget", NP_OPT_SHARE, offsetof(struct bad_options, budget), "0.1%", 0, 1, NULL,
        "The share of an epoch's samples that may be bad; above it the run fails."},
    NP_OPTIONS_END,
};

struct share_options {
    char *name, *wait;
    int64_t memory;
};
const struct np_option np_share_option_table[] = {
    {"name", NP_OPT_STRING, offsetof(struct share_options, name), "auto", 0, 0, NULL,
        "`auto`, `off`, or a name: only jobs with this name share."},
    {"wait", NP_OPT_STRING, offsetof(struct share_options, wait), "50ms", 0, 0, NULL,
        "How long a job without a batch waits while another one, which makes it, makes no row "
        "of it; then it makes the batch itself."},
    {"memory", NP_OPT_BYTES, offsetof(struct share_options, memory), "256M", 0, 1e15, NULL,
        "The most memory, per job, for batches offered to other jobs, at least two batches; it is "
        "taken when another job is there. Never more than a sixteenth of the machine's."},
    NP_OPTIONS_END,
};

struct normalize_options {
    struct np_floats mean, std;
};
const struct np_option np_normalize_option_table[] = {
    {"mean", NP_OPT_FLOATS, offsetof(struct normalize_options, mean), "[0.5]", 0, 1, NULL,
        "Subtracted: one number per channel, or one for all."},
    {"std", NP_OPT_FLOATS, offsetof(struct normalize_options, std), "[0.25]", 1e-6, 1e3, NULL,
        "Divided by: one number per channel, or one for all."},
    NP_OPTIONS_END,
};

const char *const np_pixels_names[] = {"pillow-12", "pillow-13", NULL};

int np_pixels_find(const char *name, enum np_pixels_rule *ret_rule)
{
    for (int i = 0; np_pixels_names[i]; i++)
        if (strcmp(np_pixels_names[i], name) == 0) {
            *ret_rule = (enum np_pixels_rule)i;
            return 0;
        }
    return -EINVAL;
}

static void complain(
    const struct np_node *node, const char *what, const char *wanted, struct np_report *report)
{
    if (node->kind == NP_NODE_SCALAR)
        np_report_add(report, node->line, node->column, "%s: expected %s, not '%.80s'", what,
            wanted, node->text);
    else
        np_report_add(report, node->line, node->column, "%s: expected %s", what, wanted);
}

/* Parses the number under the only key of a mapping. */
static void keyed_number(const struct np_node *node, const char *what, enum np_option_type type,
    int64_t *ret_value, struct np_report *report)
{
    const struct np_option table[] = {
        {node->items[0]->key, type, 0, "1", 1, 1e15, NULL, NULL},
        NP_OPTIONS_END,
    };

    np_options_parse(table, node, what, NULL, ret_value, report);
}

static void parse_shuffle(struct np_loader_options *options, struct np_report *report)
{
    const struct np_node *node = options->shuffle_node;

    options->shuffle = NP_SHUFFLE_FULL;
    if (!node || np_node_is(node, "full"))
        return;
    if (np_node_is(node, "none")) {
        options->shuffle = NP_SHUFFLE_NONE;
    } else if (node->kind == NP_NODE_MAP && node->nr_items == 1 &&
               strcmp(node->items[0]->key, "window") == 0) {
        options->shuffle = NP_SHUFFLE_WINDOW;
        keyed_number(node, "shuffle", NP_OPT_INT, &options->window, report);
    } else {
        complain(node, "shuffle", "full, none or {window: N}", report);
    }
}

/* After parse_shuffle(). */
static void check_order(
    const struct np_loader_options *options, const struct np_node *node, struct np_report *report)
{
    const struct np_node *balance = np_node_get(node, "balance");
    const struct np_node *repeat = np_node_get(node, "repeat");

    if (balance && options->balance && options->shuffle != NP_SHUFFLE_FULL)
        np_report_add(report, balance->line, balance->column,
            "balance: the classes come in random order, each from the whole set; this needs "
            "`shuffle: full`");
    if (repeat && options->repeat > 1 && options->shuffle == NP_SHUFFLE_NONE)
        np_report_add(report, repeat->line, repeat->column,
            "repeat: with `shuffle: none` every epoch would have the same first samples; use "
            "`full` or a window");
}

const char *const np_cache_names[] = {"auto", "none", "encoded", "decoded", "device", NULL};

static void parse_cache(struct np_loader_options *options, struct np_report *report)
{
    const struct np_node *node = options->cache_node, *args;
    const char *name;

    options->cache = NP_CACHE_AUTO;
    options->cache_bytes = -1;
    if (!node)
        return;
    for (int i = 0; np_node_named(node, &name, &args) && np_cache_names[i]; i++) {
        if (strcmp(name, np_cache_names[i]) != 0)
            continue;
        options->cache = i;
        if (args)
            keyed_number(node, "cache", NP_OPT_BYTES, &options->cache_bytes, report);
        return;
    }
    complain(node, "cache", "auto, none, encoded, decoded, device or {encoded: BYTES}", report);
}

static void parse_entries(struct np_loader_options *options, struct np_report *report)
{
    const struct np_node *node = options->entries_node;

    options->entries_bytes = NP_ENTRIES_AUTO;
    if (!node || np_node_is(node, "auto"))
        return;
    if (np_node_is(node, "off"))
        options->entries_bytes = 0;
    else if (node->kind != NP_NODE_SCALAR ||
             !np_option_bytes(node->text, &options->entries_bytes) || options->entries_bytes < 1)
        complain(node, "entries", "auto, off or a size such as 200M", report);
}

#define DEFAULT_WAIT_MS     50
#define DEFAULT_SHARE_BYTES (256 << 20)

/* "50ms", "2s". */
static bool parse_wait(const char *text, int64_t *ret_ms)
{
    int64_t number;
    const char *unit = np_text_int_end(text, &number);

    if (!unit || number < 0 || number > 3600000 ||
        (strcmp(unit, "ms") != 0 && strcmp(unit, "s") != 0))
        return false;
    *ret_ms = strcmp(unit, "s") == 0 ? number * 1000 : number;
    return true;
}

static void parse_share(struct np_loader_options *options, struct np_report *report)
{
    const struct np_node *node = options->share_node;
    const bool is_map = node && node->kind == NP_NODE_MAP;
    struct share_options share = {0};
    const char *name = "auto";

    np_options_parse(np_share_option_table, is_map ? node : NULL, "share", NULL, &share, report);
    if (node && node->kind == NP_NODE_SCALAR)
        name = node->text;
    else if (is_map && share.name)
        name = share.name;
    else if (node && !is_map)
        complain(node, "share", "auto, off, a name, or {wait: 50ms}", report);
    if (!*name || strlen(name) >= sizeof(options->share_name))
        complain(node, "share", "auto, off or a name of at most 63 bytes", report);
    snprintf(options->share_name, sizeof(options->share_name), "%s", name);
    options->share = strcmp(name, "off") != 0;
    options->share_wait_ms = DEFAULT_WAIT_MS;
    if (share.wait && !parse_wait(share.wait, &options->share_wait_ms))
        complain(np_node_get(node, "wait"), "wait", "a time such as 50ms or 1s", report);
    options->share_bytes = share.memory;
    np_options_fini(np_share_option_table, &share);
}

static void parse_bad(struct np_loader_options *options, struct np_report *report)
{
    struct bad_options bad = {0};

    np_options_parse(np_bad_option_table, options->bad_node, "bad_samples", NULL, &bad, report);
    options->bad_fail = bad.policy == 1;
    options->bad_budget = bad.budget;
}

static void spread(const struct np_floats *floats, int channels, float *out)
{
    for (int c = 0; c < channels; c++)
        out[c] = (float)floats->values[floats->nr_values == 1 ? 0 : c];
}

static void check_count(const struct np_floats *floats, const char *key,
    const struct np_node *normalize, int channels, struct np_report *report)
{
    const struct np_node *node = np_node_get(normalize, key);

    if (node && floats->nr_values != 1 && floats->nr_values != channels)
        np_report_add(report, node->line, node->column,
            "%s: %d numbers for %d channels; expected one per channel, or one for all", key,
            floats->nr_values, channels);
}

int np_loader_normalize_parse(
    const struct np_node *node, struct np_loader_options *options, struct np_report *report)
{
    struct normalize_options values = {0};
    int before = report->nr_errs + report->nr_dropped;

    np_options_parse(np_normalize_option_table, node, "normalize", NULL, &values, report);
    check_count(&values.mean, "mean", node, (int)options->channels, report);
    check_count(&values.std, "std", node, (int)options->channels, report);
    bool good = report->nr_errs + report->nr_dropped == before;
    if (good) {
        options->nr_mean = (int)options->channels;
        spread(&values.mean, options->nr_mean, options->mean);
        spread(&values.std, options->nr_mean, options->std);
    }
    np_options_fini(np_normalize_option_table, &values);
    return good ? 0 : -EINVAL;
}

static void check_io(
    const struct np_loader_options *options, const struct np_node *node, struct np_report *report)
{
    static const char *const names[] = {"auto", "uring", "pread", NULL};

    for (int i = 0; names[i]; i++)
        if (strcmp(options->io, names[i]) == 0)
            return;
    complain(np_node_get(node, "io"), "io", "one of auto, uring, pread", report);
}

int np_loader_options_parse(
    const struct np_node *node, struct np_loader_options *ret_options, struct np_report *report)
{
    struct np_loader_options options = {0};
    int before = report->nr_errs + report->nr_dropped;

    np_options_parse(np_loader_option_table, node, "loader", NULL, &options, report);
    if (options.channels == 2)
        complain(np_node_get(node, "channels"), "channels", "1 or 3", report);
    if (options.io)
        check_io(&options, node, report);
    parse_shuffle(&options, report);
    check_order(&options, node, report);
    parse_cache(&options, report);
    parse_entries(&options, report);
    parse_share(&options, report);
    parse_bad(&options, report);
    np_loader_normalize_parse(options.normalize_node, &options, report);
    np_chain_parse(options.augment_node, "augment", &options.augment, report);
    np_chain_parse(options.test_augment_node, "test_augment", &options.test_augment, report);
    if (options.grow_node && !np_node_is(options.grow_node, "none"))
        np_grow_parse(options.grow_node, options.augment, &options.grow, report);
    np_loader_options_fini(ret_options);
    *ret_options = options;
    return report->nr_errs + report->nr_dropped > before ? -EINVAL : 0;
}

void np_loader_options_fini(struct np_loader_options *options)
{
    np_options_fini(np_loader_option_table, options);
    np_chain_free(options->augment);
    np_chain_free(options->test_augment);
    options->augment = options->test_augment = NULL;
}

void np_loader_row_sizes(const struct np_loader_options *options, struct np_row_sizes *ret_sizes)
{
    *ret_sizes = (struct np_row_sizes){0};
    if (options->augment)
        np_chain_size(options->augment, &ret_sizes->width, &ret_sizes->height);
    if (options->test_augment)
        np_chain_size(options->test_augment, &ret_sizes->eval_width, &ret_sizes->eval_height);
}

static struct np_node *number_node(double value)
{
    char text[64];

    for (int digits = 6; digits <= 9; digits++) { /* the shortest that gives the same float */
        snprintf(text, sizeof(text), "%.*g", digits, value);
        float back = 0;
        if (sscanf(text, "%f", &back) == 1 && back == (float)value)
            break;
    }
    return np_node_scalar(text, 0, 0);
}

static struct np_node *keyed_node(const char *key, int64_t value)
{
    struct np_node *map = np_node_new(NP_NODE_MAP, 0, 0);
    char text[32];

    snprintf(text, sizeof(text), "%lld", (long long)value);
    np_node_add(map, key, np_node_scalar(text, 0, 0));
    return map;
}

static struct np_node *floats_node(const float *values, int n)
{
    struct np_node *list = np_node_new(NP_NODE_LIST, 0, 0);

    for (int i = 0; i < n; i++)
        np_node_add(list, NULL, number_node((double)values[i]));
    return list;
}

static struct np_node *entries_node(int64_t bytes)
{
    char text[24];

    snprintf(text, sizeof(text), "%lld", (long long)bytes);
    return np_node_scalar(bytes == NP_ENTRIES_AUTO ? "auto" : bytes ? text : "off", 0, 0);
}

static struct np_node *share_node(const struct np_loader_options *options)
{
    const char *name = options->share ? options->share_name : "off";
    struct np_node *map;
    char text[32];

    if (!options->share ||
        (options->share_wait_ms == DEFAULT_WAIT_MS && options->share_bytes == DEFAULT_SHARE_BYTES))
        return np_node_scalar(name, 0, 0);
    map = np_node_new(NP_NODE_MAP, 0, 0);
    np_node_add(map, "name", np_node_scalar(name, 0, 0));
    snprintf(text, sizeof(text), "%lldms", (long long)options->share_wait_ms);
    np_node_add(map, "wait", np_node_scalar(text, 0, 0));
    snprintf(text, sizeof(text), "%lld", (long long)options->share_bytes);
    np_node_add(map, "memory", np_node_scalar(text, 0, 0));
    return map;
}

static struct np_node *special_node(const struct np_loader_options *options, const char *key)
{
    if (strcmp(key, "shuffle") == 0) {
        if (options->shuffle == NP_SHUFFLE_WINDOW)
            return keyed_node("window", options->window);
        return np_node_scalar(options->shuffle == NP_SHUFFLE_NONE ? "none" : "full", 0, 0);
    }
    if (strcmp(key, "cache") == 0) {
        const char *name = np_cache_names[options->cache];
        return options->cache_bytes < 0 ? np_node_scalar(name, 0, 0)
                                        : keyed_node(name, options->cache_bytes);
    }
    if (strcmp(key, "entries") == 0)
        return entries_node(options->entries_bytes);
    if (strcmp(key, "share") == 0)
        return share_node(options);
    if (strcmp(key, "bad_samples") == 0) {
        struct bad_options bad = {options->bad_fail, options->bad_budget};
        return np_options_node(np_bad_option_table, &bad);
    }
    if (strcmp(key, "normalize") == 0) {
        struct np_node *map = np_node_new(NP_NODE_MAP, 0, 0);
        np_node_add(map, "mean", floats_node(options->mean, options->nr_mean));
        np_node_add(map, "std", floats_node(options->std, options->nr_mean));
        return map;
    }
    if (strcmp(key, "grow") == 0)
        return options->grow.from ? np_options_node(np_grow_option_table, &options->grow) : NULL;
    if (strcmp(key, "augment") == 0)
        return np_chain_node(options->augment);
    if (strcmp(key, "test_augment") == 0)
        return np_chain_node(options->test_augment);
    return NULL;
}

/* Left out, so that configs of runs older than these keys stay equal. */
static bool is_newer_default(const struct np_node *value, const char *key)
{
    return (strcmp(key, "balance") == 0 && np_node_is(value, "none")) ||
           (strcmp(key, "repeat") == 0 && np_node_is(value, "1"));
}

struct np_node *np_loader_options_node(const struct np_loader_options *options)
{
    struct np_loader_options plain = *options;
    struct np_node *map = np_node_new(NP_NODE_MAP, 0, 0);

    /* special_node() makes them. */
    plain.shuffle_node = plain.bad_node = plain.cache_node = plain.entries_node = NULL;
    plain.share_node = plain.grow_node = NULL;
    plain.augment_node = plain.test_augment_node = plain.normalize_node = NULL;
    struct np_node *all = np_options_node(np_loader_option_table, &plain);
    for (const struct np_option *option = np_loader_option_table; option->key; option++) {
        struct np_node *value = option->type == NP_OPT_NODE
                                    ? special_node(options, option->key)
                                    : np_node_copy(np_node_get(all, option->key));
        if (value && !is_newer_default(value, option->key))
            np_node_add(map, option->key, value);
        else
            np_node_free(value);
    }
    np_node_free(all);
    return map;
}
