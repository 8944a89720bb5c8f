#include "loader/sets.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "loader/base/mem.h"
#include "loader/pack/fetch.h"
#include "loader/pixels/codec.h"
#include "loader/row.h"

#define MAX_TRIES  16 /* bad samples to skip */
#define NR_HEADERS 32 /* read by check_sizes() */

void np_sets_fini(struct np_sets *sets)
{
    np_index_free(sets->train);
    np_index_free(sets->val);
    np_index_free(sets->test);
    np_free(sets->train_labels);
    np_free(sets->val_labels);
    np_free(sets->test_labels);
    np_node_free(sets->classes);
    np_split_fini(&sets->split);
    memset(sets, 0, sizeof(*sets));
}

/* --- sizes ----------------------------------------------------------------------------------- */

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
static int images_size(const struct np_index *index, const struct np_set_options *options,
    const char *what, int *ret_width, int *ret_height, struct np_err *err)
{
    struct np_err differ = {0};
    int code = first_size(index, ret_width, ret_height, err);

    if (code < 0)
        return np_err_context(err, "%s", what);
    code = check_sizes(index, *ret_width, *ret_height, options->loader->bad_budget, &differ);
    if (code == -EINVAL)
        return np_err_set(err, code,
            "%s: %.500s; a resize or center_crop in loader.%s makes them equal", what, differ.text,
            chain_of(what));
    return code < 0 ? np_err_set(err, code, "%s: %.700s", what, differ.text) : 0;
}

/* The size of the rows that a chain makes of a set. */
static int find_size(const struct np_set_options *options, const struct np_index *index,
    const struct np_chain *chain, const char *what, int *ret_height, int *ret_width,
    struct np_err *err)
{
    np_chain_size(chain, ret_width, ret_height);
    return *ret_width > 0 ? 0 : images_size(index, options, what, ret_width, ret_height, err);
}

/* The rows of val and test may have another size than those of training if the test chain says so,
 * but one size. */
static int eval_size(const struct np_set_options *options, const struct np_index *index,
    const char *what, struct np_sets *sets, struct np_err *err)
{
    struct np_row_sizes *size = &sets->size, chains;
    int height = 0, width = 0;
    int code = find_size(options, index, options->loader->test_augment, what, &height, &width, err);

    if (code < 0)
        return code;
    np_loader_row_sizes(options->loader, &chains);
    if (size->eval_width == 0 && chains.eval_width == 0) {
        size->eval_height = size->height;
        size->eval_width = size->width;
    }
    if (size->eval_width && (size->eval_width != width || size->eval_height != height))
        return np_err_set(err, -EINVAL,
            "%s: its images are %dx%d, the network is built for %dx%d; a resize or center_crop in "
            "loader.test_augment makes them equal",
            what, width, height, size->eval_width, size->eval_height);
    size->eval_height = height;
    size->eval_width = width;
    return 0;
}

int np_sets_adopt(const struct np_set_options *options, bool for_training, struct np_sets *sets,
    struct np_err *err)
{
    struct np_row_sizes *size = &sets->size;
    const int code = find_size(options, sets->train,
        for_training ? options->loader->augment : options->loader->test_augment,
        for_training ? "data.train" : "data.test", &size->height, &size->width, err);

    size->eval_height = size->height;
    size->eval_width = size->width;
    return code;
}

bool np_sets_is_mistake(int code)
{
    static const int codes[] = {-EINVAL, -ENOENT, -ENOTDIR, -EISDIR, -ENODATA, -EACCES, -ELOOP,
        -ENAMETOOLONG, -E2BIG, -EBADMSG};

    for (size_t i = 0; i < sizeof(codes) / sizeof(*codes); i++)
        if (codes[i] == code)
            return true;
    return false;
}

/* --- data ------------------------------------------------------------------------------------ */

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

static int open_other(const struct np_set_options *options, const struct other *other,
    const struct np_source_progress *progress, struct np_sets *sets, struct np_err *err)
{
    int code = open_set(other->options, other->what, progress, other->ret_index, err);

    if (code == 0)
        code = np_match_labels(
            other->options, sets->classes, *other->ret_index, other->what, other->ret_labels, err);
    if (code == 0)
        code = eval_size(options, *other->ret_index, other->what, sets, err);
    return code;
}

const char *const np_set_names[] = {"test", "val", "train", NULL};

int np_sets_open_one(const struct np_set_options *options, enum np_which_set set,
    const struct np_source_progress *progress, struct np_sets *sets, struct np_err *err)
{
    const struct other test = {"data.test", &options->data->test, &sets->test, &sets->test_labels},
                       val = {"data.val", &options->data->val, &sets->val, &sets->val_labels},
                       train = {
                           "data.train", &options->data->train, &sets->train, &sets->train_labels};

    return open_other(options,
        set == NP_SET_TEST                            ? &test
        : set == NP_SET_VAL && options->data->has_val ? &val
                                                      : &train,
        progress, sets, err);
}

enum np_split_rule np_split_rule(const struct np_node *node)
{
    return np_node_is(node, np_split_rules[NP_SPLIT_BY_CLASS]) ? NP_SPLIT_BY_CLASS
                                                               : NP_SPLIT_RANDOM;
}

static const char *split_text(const struct np_split_options *split, char text[40])
{
    if (split->nr_folds)
        snprintf(text, 40, "%d/%d", split->fold + 1, split->nr_folds);
    else
        snprintf(text, 40, "%g", split->share);
    return text;
}

int np_sets_split(const struct np_set_options *options, struct np_sets *sets, struct np_err *err)
{
    char text[40];

    np_split_fini(&sets->split);
    const struct np_split_options split = np_data_split(options->data);
    int code = np_split_make(sets->train, &split, &sets->split, err);

    if (code == 0 && (sets->split.nr_train == 0 || sets->split.nr_eval == 0))
        code = np_err_set(err, -EINVAL, "data.%s: %.40s of %llu samples leaves one part empty",
            split.nr_folds ? "fold" : "split", split_text(&split, text),
            (unsigned long long)np_index_samples(sets->train));
    return code;
}

int np_sets_open(const struct np_set_options *options, const struct np_source_progress *progress,
    struct np_sets *sets, struct np_err *err)
{
    int code = open_set(&options->data->train, "data.train", progress, &sets->train, err);

    if (code < 0)
        return code;
    if ((code = np_sets_classes(options, sets, err)) < 0)
        return code;
    struct np_row_sizes *size = &sets->size;
    code = find_size(options, sets->train, options->loader->augment, "data.train", &size->height,
        &size->width, err);
    if (code == 0 && options->data->split > 0) /* the val part uses the test chain */
        code = eval_size(options, sets->train, "data.split", sets, err);
    if (code == 0 && options->data->has_val)
        code = np_sets_open_one(options, NP_SET_VAL, progress, sets, err);
    if (code == 0 && options->data->has_test)
        code = np_sets_open_one(options, NP_SET_TEST, progress, sets, err);
    if (size->eval_width == 0) { /* no set is evaluated */
        size->eval_height = size->height;
        size->eval_width = size->width;
    }
    return code;
}
