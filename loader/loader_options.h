/* The sections `data:` and `loader:` of a config: tables, parsing, and the resolved form. One
 * thread. */
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
    struct np_node const *train_node, *test_node, *val_node; /* while it is parsed */
    bool has_test, has_val;
    char *classes; /* a file; NULL: the classes of train, in byte order */
    double split;  /* share of train for validation; 0: none */
    int64_t split_seed;
    int split_by; /* enum np_split_rule */
};
extern const struct np_option np_data_option_table[];
/* Parses `data:`; node NULL: the key is missing, a mistake. Relative paths are made absolute,
 * from dir, else from the working directory. -EINVAL: report has the mistakes. The caller frees
 * *ret_options in any case. */
int np_data_options_parse(const struct np_node *node, const char *dir,
    struct np_data_options *ret_options, struct np_report *report);
void np_data_options_fini(struct np_data_options *options);
/* The resolved form. The caller frees it. */
struct np_node *np_data_options_node(const struct np_data_options *options);

enum np_cache_kind {
    NP_CACHE_AUTO,
    NP_CACHE_NONE,
    NP_CACHE_ENCODED,
    NP_CACHE_DECODED,
    NP_CACHE_DEVICE
};

extern const char *const np_cache_names[]; /* by enum np_cache_kind, NULL-ended */

/* `loader:` of the config. -1 stands for auto. */
struct np_loader_options {
    int64_t batch, readers, depth, prefetch;
    char *io;              /* auto uring pread */
    int cache;             /* enum np_cache_kind */
    int64_t cache_bytes;   /* -1: auto */
    int64_t entries_bytes; /* as np_entries_open() */
    int64_t page_cache;    /* bytes */
    struct np_node const *shuffle_node, *bad_node, *augment_node, *test_augment_node,
        *normalize_node, *cache_node, *entries_node;
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
    /* Not in configs; set by measurements. Bits 1 << enum np_stage: the stage is replaced by a
     * replay of its output (loader/row_replay.h); batch: a ring so long that readers never wait
     * for slots. entries_fixed: none are added, so that runs after each other have the same. */
    unsigned stubs;
    bool entries_fixed;
};
extern const struct np_option np_loader_option_table[];
extern const struct np_option np_bad_option_table[];       /* of bad_samples */
extern const struct np_option np_normalize_option_table[]; /* of normalize */
extern const char *const np_pixels_names[];                /* by enum np_pixels_rule, NULL-ended */
/* The rule called name. -EINVAL: there is none. Any thread. */
int np_pixels_find(const char *name, enum np_pixels_rule *ret_rule);
/* Parses `loader:`; frees *ret_options (zeroed, or of an earlier call) first. -EINVAL: report
 * has the mistakes. */
int np_loader_options_parse(
    const struct np_node *node, struct np_loader_options *ret_options, struct np_report *report);
/* Sets mean and std from `{mean: [...], std: [...]}` (NULL: the defaults) for options->channels.
 * -EINVAL: report has the mistakes, options is unchanged. */
int np_loader_normalize_parse(
    const struct np_node *node, struct np_loader_options *options, struct np_report *report);
void np_loader_options_fini(struct np_loader_options *options);
/* Height and width of a row as the chains set them, 0 if they keep the images' size. -EINVAL:
 * the two chains differ; report has the mistake. */
int np_loader_row_size(const struct np_loader_options *options, int *ret_height, int *ret_width,
    struct np_report *report);
/* The resolved form. The caller frees it. */
struct np_node *np_loader_options_node(const struct np_loader_options *options);

#endif
