/* Parses the sections `data:` and `loader:` of a config by their option tables, and prints the
 * resolved form. One thread. */
#ifndef NP_LOADER_OPTIONS_H
#define NP_LOADER_OPTIONS_H

#include "loader/base/option.h"
#include "loader/growth.h"
#include "loader/pixels/augment.h"
#include "loader/pixels/codec.h"
#include "loader/sampler.h"
#include "loader/source/source.h"
#include "loader/source/split.h"

struct np_data_options {
    struct np_source_options train, test, val;
    struct np_node const *train_node, *test_node, *val_node; /* during parsing */
    bool has_test, has_val;
    char *classes; /* path of a file; NULL: the classes of train, in byte order */
    double split;  /* share of train for validation; 0: none. With folds, that of one */
    int64_t split_seed;
    int split_by;          /* enum np_split_rule */
    char *fold;            /* as written, "2/5"; "": none */
    int fold_at, nr_folds; /* np_split_options.fold and nr_folds */
};
extern const struct np_option np_data_option_table[];
/* Parses `data:` (node NULL: missing, which is a mistake). Relative paths are made absolute, from
 * dir, else from the working directory. -EINVAL: report has the mistakes. The caller frees
 * *ret_options in any case. */
int np_data_options_parse(const struct np_node *node, const char *dir,
    struct np_data_options *ret_options, struct np_report *report);
void np_data_options_fini(struct np_data_options *options);
/* How train is split. */
struct np_split_options np_data_split(const struct np_data_options *options);
/* Sets split, fold_at and nr_folds of a fold as written. False: text is no fold. */
bool np_data_set_fold(struct np_data_options *options, const char *text);
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

/* A number of -1 stands for auto. */
struct np_loader_options {
    int64_t batch, readers, depth, prefetch;
    char *io;              /* auto uring pread */
    int cache;             /* enum np_cache_kind */
    int64_t cache_bytes;   /* -1: auto */
    int64_t entries_bytes; /* as np_entries_open() */
    int64_t page_cache;    /* bytes */
    int64_t read_timeout;  /* seconds; of objects of servers */
    int64_t disk_cache;    /* bytes; -1: auto, -2: none */
    struct np_node const *shuffle_node, *bad_node, *augment_node, *test_augment_node,
        *normalize_node, *cache_node, *entries_node, *share_node, *grow_node;
    enum np_shuffle shuffle;
    int64_t window;
    int64_t repeat;
    int balance;                             /* 1: classes */
    struct np_chain *augment, *test_augment; /* owned */
    struct np_grow_options grow;
    bool bad_fail;
    double bad_budget;
    float mean[4], std[4];
    int nr_mean;
    int64_t channels; /* 1 or 3 */
    int pixels;       /* enum np_pixels_rule */
    int64_t max_pixels;
    bool share;            /* other than `off` */
    char share_name[64];   /* `auto`, or a name */
    int64_t share_wait_ms; /* for a row of a batch that another job makes */
    int64_t share_bytes;   /* max; of batches offered to others */
    /* Not in configs; measurements set them. stubs: bits 1 << enum np_stage of the stages that
     * loader/row_replay.h replays; with NP_STAGE_BATCH the ring is so long that readers never wait
     * for slots. entries_fixed: adds no entries, so that several runs find the same ones. */
    unsigned stubs;
    bool entries_fixed;
    /* Not in configs: loaders of one run on this machine, which share its CPUs and memory; 0: 1. */
    int nr_sharing;
    int nr_near; /* of these, those that share the CPUs to which this thread is bound; 0: all */
};
extern const struct np_option np_loader_option_table[];
extern const struct np_option np_bad_option_table[];       /* `bad_samples:` */
extern const struct np_option np_share_option_table[];     /* `share:` */
extern const struct np_option np_normalize_option_table[]; /* `normalize:` */
extern const char *const np_pixels_names[];                /* by enum np_pixels_rule, NULL-ended */
/* Finds a rule by name. -EINVAL: there is none. Any thread. */
int np_pixels_find(const char *name, enum np_pixels_rule *ret_rule);
/* Parses `loader:`; first frees *ret_options, which must be zeroed or from an earlier call.
 * -EINVAL: report has the mistakes. */
int np_loader_options_parse(
    const struct np_node *node, struct np_loader_options *ret_options, struct np_report *report);
/* Sets mean and std from `{mean: [...], std: [...]}` (NULL: the defaults) for options->channels.
 * -EINVAL: report has the mistakes, options is unchanged. */
int np_loader_normalize_parse(
    const struct np_node *node, struct np_loader_options *options, struct np_report *report);
void np_loader_options_fini(struct np_loader_options *options);
/* Height and width of the rows as the two chains set them; 0: the images keep their size. */
void np_loader_row_sizes(const struct np_loader_options *options, struct np_row_sizes *ret_sizes);
/* The resolved form. The caller frees it. */
struct np_node *np_loader_options_node(const struct np_loader_options *options);

#endif
