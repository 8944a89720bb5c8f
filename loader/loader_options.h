/* `data:` and `loader:` of a config: which sets there are, how they are read, shuffled, cached and
 * augmented. Tables, parsing, and the normal form. Config time, one thread. */
#ifndef NP_LOADER_OPTIONS_H
#define NP_LOADER_OPTIONS_H

#include "loader/base/option.h"
#include "loader/pixels/augment.h"
#include "loader/pixels/codec.h"
#include "loader/sampler.h"
#include "loader/source/source.h"

/* `data:` of the config. */
struct np_data_options {
    struct np_source_options train, test, val;
    bool has_test, has_val;
    char *classes; /* a file; NULL: train's own, in byte order */
    double split;  /* share of train kept for validation; 0: none */
    int64_t split_seed;
    int split_by; /* enum np_split_rule */
};
extern const struct np_option np_data_option_table[];
/* Paths come out absolute: relative ones start at dir, else at the working directory. node NULL: the key is
 * missing, a mistake. -EINVAL: mistakes in report; *ret_options is to be freed in any case. */
int np_data_options_parse(const struct np_node *node, const char *dir,
    struct np_data_options *ret_options, struct np_report *report);
void np_data_options_fini(struct np_data_options *options);
/* Normal form. Caller frees. */
struct np_node *np_data_options_node(const struct np_data_options *options);

enum np_cache_kind {
    NP_CACHE_AUTO,
    NP_CACHE_NONE,
    NP_CACHE_ENCODED,
    NP_CACHE_DECODED,
    NP_CACHE_DEVICE
};

/* `loader:` of the config. -1 stands for auto. */
struct np_loader_options {
    int64_t batch, readers, depth, prefetch;
    char *io;            /* auto uring pread */
    int cache;           /* enum np_cache_kind */
    int64_t cache_bytes; /* -1: auto */
    struct np_node const *shuffle_node, *bad_node, *augment_node, *test_augment_node,
        *normalize_node, *cache_node;
    enum np_shuffle shuffle;
    int64_t window;
    struct np_chain *augment, *test_augment; /* owned */
    bool bad_fail;                           /* policy: fail */
    double bad_budget;                       /* share of an epoch */
    float mean[4], std[4];
    int nr_mean;
    int64_t channels; /* 1 or 3 */
    int pixels;       /* enum np_pixels_rule */
    int64_t max_pixels;
    /* Bits 1 << enum np_stage: replaced by replay of what it put out (loader/row_replay.h). Of no config:
     * set by who measures a run. batch: a ring so long that nobody waits for its slots. */
    unsigned stubs;
};
extern const struct np_option np_loader_option_table[];
extern const struct np_option np_bad_option_table[];       /* of bad_samples */
extern const struct np_option np_normalize_option_table[]; /* of normalize */
extern const char *const np_pixels_names[];                /* by enum np_pixels_rule, NULL-ended */
/* The rule of that name; -EINVAL: there is none. Any thread. */
int np_pixels_find(const char *name, enum np_pixels_rule *ret_rule);
/* Parses `loader:`. */
int np_loader_options_parse(
    const struct np_node *node, struct np_loader_options *ret_options, struct np_report *report);
/* `{mean: [...], std: [...]}` (NULL: the defaults) for options->channels. -EINVAL: mistakes in report,
 * options untouched. */
int np_loader_normalize_parse(
    const struct np_node *node, struct np_loader_options *options, struct np_report *report);
void np_loader_options_fini(struct np_loader_options *options);
/* Height and width of a row by the chains alone: 0 where the images decide. -EINVAL: the two chains
 * disagree, said at its place in report. */
int np_loader_row_size(const struct np_loader_options *options, int *ret_height, int *ret_width,
    struct np_report *report);
/* Normal form. Caller frees. */
struct np_node *np_loader_options_node(const struct np_loader_options *options);

#endif
