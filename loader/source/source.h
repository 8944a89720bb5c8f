/* The dataset table: each source lists its samples into an index. Reading them is the
 * pipeline's business. A source is one file and one line in source.c. */
#ifndef NP_SOURCE_H
#define NP_SOURCE_H

#include "loader/base/option.h"
#include "loader/source/index.h"

enum np_unlabelled { NP_UNLABELLED_REFUSE, NP_UNLABELLED_SKIP };

/* What `data.train:` holds; one struct for all sources, each reads its own keys. */
struct np_source_options {
    char *source;    /* "folder", "tar", "cifar10", "idx", "synth" */
    char *path;      /* ${} expanded, resolved by the config; globs allowed for shards */
    char *labels;    /* idx: the label file */
    char *match;     /* glob over member names, `*` crosses `/`; empty: all */
    int unlabelled;  /* enum np_unlabelled: what np_setup_data() does with samples in no class */
    int64_t samples; /* synth */
    int64_t size;    /* synth: height and width */
    int64_t seed;    /* synth */
    char *cache_dir; /* where indexes and unpacked archives go; empty: np_cache_dir()'s default */
};
extern const struct np_option np_source_option_table[];

/* Progress and notes of a long listing ("unpacking FILE into CACHE, once"), from the calling thread. Each
 * function is optional. */
struct np_source_progress {
    void (*note)(void *context, const char *text);
    /* At the beginning, and as samples are found: the set's path, which stays, and how many so far. */
    void (*count)(void *context, const char *path, uint64_t samples);
    /* While a file is unpacked: how many of its bytes are. */
    void (*unpack)(void *context, const char *path, uint64_t done_bytes, uint64_t bytes);
    void *context;
    bool no_unpack;   /* what must be unpacked first is an error, -EAGAIN, and not unpacked */
    const char *path; /* set by np_source_open(), for count() */
};

struct np_source {
    const char *name;
    const char *help;
    const char *keys; /* the options it reads beside source and cache_dir: "path match" */
    /* Optional: NULL means any value is right. Checks options without touching data; entries in
     * report. Config time. */
    void (*check)(const struct np_source_options *options, const struct np_node *node,
        struct np_report *report);
    /* Required. Lists all samples into index. Blocks on the disk. Errors name file and record. */
    int (*scan)(const struct np_source_options *options, struct np_index *index,
        const struct np_source_progress *progress, struct np_err *err);
};

extern const struct np_source *const np_sources[]; /* NULL-ended */
const struct np_source *np_source_find(const char *name);

/* Parses one split of `data:`. Paths: ${NAME}, ${NAME:-default}; relative ones start at
 * config_dir, then the working directory. */
int np_source_parse(const struct np_node *node, const char *config_dir,
    struct np_source_options *ret_options, struct np_report *report);
void np_source_options_fini(struct np_source_options *options);
/* Normal form. Caller frees. */
struct np_node *np_source_options_node(const struct np_source_options *options);

/* The index of a split: the saved one when it is fresh (the caller's own in the cache folder, else one that
 * the caller, root or the data's owner has put beside the data), else a scan, then saved in the cache
 * folder: nothing is written beside the data. A set without samples is an error. */
int np_source_open(const struct np_source_options *options,
    const struct np_source_progress *progress, struct np_index **ret_index, struct np_err *err);

/* Saves an index whose CRCs have been filled in (first epoch, data verify) in the cache folder. An error is
 * not fatal: the set is scanned again next time. -ESTALE: its files are no longer those that were
 * listed. */
int np_source_save(
    const struct np_source_options *options, const struct np_index *index, struct np_err *err);
/* The same beside the data, for all who read them: `data index --beside`, `data pack`. *ret_path (NULL:
 * not asked for): the file; np_free. */
int np_source_save_beside(const struct np_source_options *options, const struct np_index *index,
    char **ret_path, struct np_err *err);

/* Removes the kept indexes, so that the set is listed anew next time: files of it have changed in a way
 * that the index does not see. */
void np_source_forget(const struct np_source_options *options);

/* The files that a path or glob names: absolute, in byte order, at least one. -ENOENT says what
 * was looked for. Brackets and stars in the name of a file that exists are no glob. */
struct np_paths {
    char **paths; /* owned */
    int nr_paths;
};
int np_paths_find(const char *pattern, struct np_paths *ret_paths, struct np_err *err);
void np_paths_fini(struct np_paths *paths);
/* Glob with `*` crossing `/`, `?`, `[...]`. */
bool np_match(const char *pattern, const char *text);
/* Cache folder: cache_dir option, else $XDG_CACHE_HOME/nnpipe, else ~/.cache/nnpipe, else nnpipe-UID in
 * $TMPDIR or /tmp, which is made. -EPERM: that one is not the caller's alone. np_free. */
int np_cache_dir(const struct np_source_options *options, char **ret_dir, struct np_err *err);

#endif
