#include "daemon/config/setup.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "loader/base/mem.h"
#include "loader/pack/fetch.h"
#include "loader/pixels/codec.h"
#include "loader/row.h"

#define MAX_TRIES  16 /* bad samples to skip */
#define NR_HEADERS 32 /* read by check_sizes() */

void np_setup_fini(struct np_setup *setup)
{
    np_graph_free(setup->graph);
    np_graph_free(setup->eval_graph);
    np_index_free(setup->train);
    np_index_free(setup->val);
    np_index_free(setup->test);
    np_free(setup->train_labels);
    np_free(setup->val_labels);
    np_free(setup->test_labels);
    np_node_free(setup->classes);
    np_split_fini(&setup->split);
    memset(setup, 0, sizeof(*setup));
}

/* --- sizes --------------------------------------------------------------------------------- */

static int header_size(const struct np_index *index, const uint8_t *bytes, size_t nr_bytes,
    int *ret_width, int *ret_height, struct np_err *err)
{
    struct np_decoder *decoder = NULL;
    struct np_image_info info = {0};
    int code = np_decoder_new(&decoder, err);

    if (code == 0)
        code = np_decoder_open(decoder, bytes, nr_bytes, &index->raw, &info, err);
    np_decoder_free(decoder);
    if (code == 0) {
        *ret_width = info.width;
        *ret_height = info.height;
    }
    return code;
}

static int sample_size(const struct np_index *index, struct np_fetch *fetch, uint64_t sample,
    int *ret_width, int *ret_height, struct np_err *err)
{
    const uint32_t listed = np_index_record(index, sample)->bytes;
    const uint8_t *bytes;
    uint32_t nr_bytes;

    if (listed > NP_MAX_SAMPLE_BYTES)
        return np_err_set(err, -EBADMSG, "%u bytes are too many for an image", listed);
    int code = np_fetch_get(fetch, sample, &bytes, &nr_bytes, err);
    return code ? code : header_size(index, bytes, nr_bytes, ret_width, ret_height, err);
}

/* Width and height of the first readable sample, from its header or the set's. */
static int first_size(
    const struct np_index *index, int *ret_width, int *ret_height, struct np_err *err)
{
    const struct np_raw *raw = &index->raw;
    struct np_err first = {0};
    struct np_fetch *fetch = NULL;
    char name[1024] = "";
    int code;

    if (raw && raw->kind != NP_RAW_NONE) {
        *ret_width = raw->width;
        *ret_height = raw->height;
        return 0;
    }
    if ((code = np_fetch_open(index, &fetch, err)) < 0)
        return code;
    code = -ENODATA;
    for (uint64_t i = 0; code && i < np_index_samples(index) && i < MAX_TRIES; i++)
        code = sample_size(index, fetch, i, ret_width, ret_height, &first);
    np_fetch_close(fetch);
    if (code == 0)
        return 0;
    np_index_name(index, 0, name, sizeof(name));
    return np_err_set(err, first.code,
        "the network's input size is taken from the first image, %.300s: %.400s", name, first.text);
}

/* Reads the headers of 32 images spread over the set. -EINVAL: more than budget (the allowed share
 * of bad samples) are not width x height; err names one. */
static int check_sizes(
    const struct np_index *index, int width, int height, double budget, struct np_err *err)
{
    const uint64_t n = np_index_samples(index), some = n < NR_HEADERS ? n : NR_HEADERS;
    int other_width = 0, other_height = 0, nr_other = 0, code;
    uint64_t other = 0;
    struct np_fetch *fetch = NULL;
    char name[1024] = "";

    if (index->raw.kind != NP_RAW_NONE)
        return 0;
    if ((code = np_fetch_open(index, &fetch, err)) < 0)
        return code;
    for (uint64_t k = 0; k < some; k++) {
        /* Unequal distances, because sizes may alternate. */
        const uint64_t stride = n / some, i = k * n / some + k * 7919 % stride;
        int w, h;

        if (sample_size(index, fetch, i, &w, &h, NULL) < 0 || (w == width && h == height))
            continue; /* a bad sample has no size */
        if (nr_other++ == 0) {
            other = i;
            other_width = w;
            other_height = h;
        }
    }
    np_fetch_close(fetch);
    if (nr_other < (some == n ? 1 : 2) || nr_other <= budget * (double)some)
        return 0;
    np_index_name(index, other, name, sizeof(name));
    return np_err_set(err, -EINVAL, "its images differ in size: %.300s is %dx%d, others are %dx%d",
        name, other_width, other_height, width, height);
}

uint64_t np_picture_bytes(const struct np_index *index, int channels)
{
    int width, height;

    if (first_size(index, &width, &height, NULL) < 0)
        return 0;
    return (uint64_t)width * (uint64_t)height * (uint64_t)channels;
}

static const char *chain_of(const char *what)
{
    return strcmp(what, "data.train") == 0 ? "augment" : "test_augment";
}

/* If the chain does not change the size: that of the images. */
static int images_size(const struct np_index *index, const struct np_config *config,
    const char *what, int *ret_width, int *ret_height, struct np_err *err)
{
    struct np_err differ = {0};
    int code = first_size(index, ret_width, ret_height, err);

    if (code < 0)
        return np_err_context(err, "%s", what);
    code = check_sizes(index, *ret_width, *ret_height, config->loader.bad_budget, &differ);
    if (code == -EINVAL)
        return np_err_set(err, code,
            "%s: %.500s; a resize or center_crop in loader.%s makes them equal", what, differ.text,
            chain_of(what));
    return code < 0 ? np_err_set(err, code, "%s: %.700s", what, differ.text) : 0;
}

static int set_size(const struct np_config *config, const struct np_index *index,
    const struct np_chain *chain, const char *what, struct np_setup *setup, struct np_err *err)
{
    int width, height;
    int code;

    np_chain_size(chain, &width, &height);
    if (width == 0 && (code = images_size(index, config, what, &width, &height, err)) < 0)
        return code;
    if (setup->width && (setup->width != width || setup->height != height))
        return np_err_set(err, -EINVAL,
            "%s: its images are %dx%d, the network is built for %dx%d; a resize or center_crop in "
            "loader.%s makes them equal",
            what, width, height, setup->width, setup->height, chain_of(what));
    setup->width = width;
    setup->height = height;
    return 0;
}

bool np_setup_is_mistake(int code)
{
    static const int codes[] = {-EINVAL, -ENOENT, -ENOTDIR, -EISDIR, -ENODATA, -EACCES, -ELOOP,
        -ENAMETOOLONG, -E2BIG, -EBADMSG};

    for (size_t i = 0; i < sizeof(codes) / sizeof(*codes); i++)
        if (codes[i] == code)
            return true;
    return false;
}

/* --- data ---------------------------------------------------------------------------------- */

/* Samples in no class have no gradient and would only make batches smaller. */
static int check_unlabelled(const struct np_source_options *options, const char *what,
    const struct np_source_progress *progress, struct np_index *index, struct np_err *err)
{
    const uint64_t all = np_index_samples(index);
    uint64_t first = 0;
    const uint64_t n = np_index_unlabelled(index, &first);
    char name[512], text[1024];

    if (n == 0)
        return 0;
    np_index_name(index, first, name, sizeof(name));
    np_text_clean(name);
    if (options->unlabelled != NP_UNLABELLED_SKIP || n == all)
        return np_err_set(err, -EINVAL,
            "%s: %s: %llu of its %llu samples are in no class, the first is '%s'; give each class "
            "a folder, choose other samples with `match:`, or leave these out with "
            "`unlabelled: skip`",
            what, options->path, (unsigned long long)n, (unsigned long long)all, name);
    if (np_index_skip_unlabelled(index, err))
        return -ENOMEM;
    snprintf(text, sizeof(text),
        "%s: %llu of its %llu samples are in no class and left out, the first is '%s'", what,
        (unsigned long long)n, (unsigned long long)all, name);
    if (progress && progress->note)
        progress->note(progress->context, text);
    return 0;
}

static int open_set(const struct np_source_options *options, const char *what,
    const struct np_source_progress *progress, struct np_index **ret_index, struct np_err *err)
{
    int code = np_source_open(options, progress, ret_index, err);

    if (code < 0)
        return np_err_context(err, "%s", what);
    return check_unlabelled(options, what, progress, *ret_index, err);
}

struct other {
    const char *what;
    const struct np_source_options *options;
    struct np_index **ret_index;
    int32_t **ret_labels;
};

static int open_other(const struct np_config *config, const struct other *other,
    const struct np_source_progress *progress, struct np_setup *setup, struct np_err *err)
{
    int code = open_set(other->options, other->what, progress, other->ret_index, err);

    if (code == 0)
        code = np_match_classes(setup->classes, *other->ret_index, other->what, "the training set",
            other->ret_labels, err);
    if (code == 0)
        code = set_size(
            config, *other->ret_index, config->loader.test_augment, other->what, setup, err);
    return code;
}

const char *const np_set_names[] = {"test", "val", "train", NULL};

int np_setup_set(const struct np_config *config, enum np_which_set set,
    const struct np_source_progress *progress, struct np_setup *setup, struct np_err *err)
{
    const struct other test = {"data.test", &config->data.test, &setup->test, &setup->test_labels},
                       val = {"data.val", &config->data.val, &setup->val, &setup->val_labels},
                       train = {
                           "data.train", &config->data.train, &setup->train, &setup->train_labels};

    return open_other(config,
        set == NP_SET_TEST                          ? &test
        : set == NP_SET_VAL && config->data.has_val ? &val
                                                    : &train,
        progress, setup, err);
}

enum np_split_rule np_split_rule(const struct np_node *node)
{
    return np_node_is(node, np_split_rules[NP_SPLIT_BY_CLASS]) ? NP_SPLIT_BY_CLASS
                                                               : NP_SPLIT_RANDOM;
}

int np_setup_split(const struct np_config *config, struct np_setup *setup, struct np_err *err)
{
    np_split_fini(&setup->split);
    int code = np_split_make(setup->train, config->data.split, (uint64_t)config->data.split_seed,
        (enum np_split_rule)config->data.split_by, &setup->split, err);

    if (code == 0 && (setup->split.nr_train == 0 || setup->split.nr_eval == 0))
        code = np_err_set(err, -EINVAL, "data.split: %g of %llu samples leaves one part empty",
            config->data.split, (unsigned long long)np_index_samples(setup->train));
    return code;
}

int np_setup_data(const struct np_config *config, const struct np_source_progress *progress,
    struct np_setup *setup, struct np_err *err)
{
    int code = open_set(&config->data.train, "data.train", progress, &setup->train, err);

    if (code < 0)
        return code;
    if ((code = np_setup_classes(config, setup, err)) < 0)
        return code;
    code = set_size(config, setup->train, config->loader.augment, "data.train", setup, err);
    if (code == 0 && config->data.split > 0) /* the val part uses the test chain */
        code =
            set_size(config, setup->train, config->loader.test_augment, "data.split", setup, err);
    if (code == 0 && config->data.has_val)
        code = np_setup_set(config, NP_SET_VAL, progress, setup, err);
    if (code == 0 && config->data.has_test)
        code = np_setup_set(config, NP_SET_TEST, progress, setup, err);
    return code;
}

int np_setup_graph(const struct np_config *config, enum np_dtype precision, struct np_setup *setup,
    struct np_report *report)
{
    struct np_graph_input input;
    struct np_err err = {0};

    np_network_input(
        &config->network, setup->height, setup->width, setup->classes->nr_items, precision, &input);
    setup->graph = np_network_build(&config->network, &input, report);
    if (!setup->graph)
        return -EINVAL;
    for (int i = 0; config->optim.decay_all && i < setup->graph->nr_tensors; i++)
        setup->graph->tensors[i].decay = true; /* by default only weights of conv and linear */
    setup->eval_graph = np_graph_eval(setup->graph);
    if (!setup->eval_graph || np_autodiff(setup->graph, &err) < 0)
        return np_report_add(report, 0, 0, "%s", err.code ? err.text : "out of memory");
    return 0;
}
