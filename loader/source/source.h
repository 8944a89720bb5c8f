/* The table of sources: each lists its samples into an index, and readers read them later. A source
 * is one file and one line in source.c. */
#ifndef NP_SOURCE_H
#define NP_SOURCE_H

#include "loader/base/option.h"
#include "loader/source/index.h"

enum np_unlabelled { NP_UNLABELLED_REFUSE, NP_UNLABELLED_SKIP };

/* The options of a set (`data.train:`); one struct for all sources, each of which reads its own
 * keys. */
struct np_source_options {
    char *source;    /* "folder", "tar", "cifar10", "idx", "synth" */
    char *path;      /* ${} expanded, resolved by the config; globs allowed for shards */
    char *labels;    /* idx: the label file; folder, tar: a table of files and labels, or empty */
    char *columns;   /* of that table, as np_label_table_read() takes them; tar: JSON fields */
    char *synsets;   /* folder: the classes that `labels` numbers, one a line, or empty */
    int label_type;  /* folder, tar: enum np_label_type */
    char *separator; /* between the classes of a label; empty: '|' */
    char *match;     /* glob over member names, `*` crosses `/`; empty: all */
    int unlabelled;  /* enum np_unlabelled; for np_setup_data() */
    int64_t samples; /* synth */
    int64_t size;    /* synth: height and width */
    int64_t seed;    /* synth */
    char *cache_dir; /* for indexes and unpacked archives; empty: the default of np_cache_dir() */
    int nr_listers;  /* max threads of a listing, not a key; 0: NP_MAX_LISTERS */
};
extern const struct np_option np_source_option_table[];
extern const char *const np_label_types[]; /* by enum np_label_type; NULL-ended */
/* Reports mistakes in labels, columns, label_type and separator. has_fields: without `labels` the
 * columns are fields of JSON. */
void np_source_check_labels(const struct np_source_options *options, const struct np_node *node,
    bool has_fields, struct np_report *report);
/* The names of `columns` without that of a table's files; "value" where there are none. The caller
 * frees the list. */
struct np_node *np_source_label_names(const struct np_source_options *options);
/* Between the classes of a label. */
char np_source_separator(const struct np_source_options *options);

/* Reports on a long listing. The calling thread calls these functions; each is optional. */
struct np_source_progress {
    /* A message, such as "unpacking FILE into CACHE, once". */
    void (*note)(void *context, const char *text);
    /* At the beginning, and as samples are found; path: the set's, valid until the listing ends. */
    void (*count)(void *context, const char *path, uint64_t samples);
    /* While a file is unpacked: done_bytes of its bytes are read. */
    void (*unpack)(void *context, const char *path, uint64_t done_bytes, uint64_t bytes);
    void *context;
    bool no_unpack;   /* fail with -EAGAIN instead of unpacking a file */
    const char *path; /* set by np_source_open(), for count() */
};

struct np_source {
    const char *name;
    const char *help;
    const char *keys; /* the options it reads beside source and cache_dir: "path match" */
    /* Optional: NULL means any value is valid. Checks the options, not the data, and adds mistakes
     * to report. Config time. */
    void (*check)(const struct np_source_options *options, const struct np_node *node,
        struct np_report *report);
    /* Required. Lists all samples into index. Blocks on the disk. Errors name the file and
     * record. */
    int (*scan)(const struct np_source_options *options, struct np_index *index,
        const struct np_source_progress *progress, struct np_err *err);
};

extern const struct np_source np_source_folder, np_source_tar, np_source_cifar10, np_source_idx,
    np_source_synth;
extern const struct np_source *const np_sources[]; /* NULL-ended */
const struct np_source *np_source_find(const char *name);

/* Parses one set of `data:`. Expands ${NAME} and ${NAME:-default} in paths; a relative path is
 * looked up in config_dir (may be NULL), then in the working directory. */
int np_source_parse(const struct np_node *node, const char *config_dir,
    struct np_source_options *ret_options, struct np_report *report);
void np_source_options_fini(struct np_source_options *options);
/* The options as a config node, defaults included; the caller frees it. */
struct np_node *np_source_options_node(const struct np_source_options *options);

/* Opens the index of a set: a saved one that is not stale, from the cache folder, or from beside
 * the data if it belongs to the caller, root or the data's owner. If there is none, scans the set
 * and saves the index in the cache folder. Blocks on the disk. A set without samples is an
 * error. */
int np_source_open(const struct np_source_options *options,
    const struct np_source_progress *progress, struct np_index **ret_index, struct np_err *err);

/* Saves an index with new CRCs (first epoch, data verify) in the cache folder. After a failure the
 * next run only lacks the CRCs. -ESTALE: the set's files have changed since they were listed. */
int np_source_save(
    const struct np_source_options *options, const struct np_index *index, struct np_err *err);
/* Saves the index beside the data, for all users: `data index --beside`, `data pack`. *ret_path
 * (may be NULL): the file; np_free. */
int np_source_save_beside(const struct np_source_options *options, const struct np_index *index,
    char **ret_path, struct np_err *err);

/* Removes the saved indexes, so that the set is listed again next time: its files have changed in a
 * way that sizes and times do not show. */
void np_source_forget(const struct np_source_options *options);

/* The files that a path or glob names: absolute, in byte order, at least one. -ENOENT: there is
 * none. The name of an existing file is never a glob. {000..999} names each file of a range, in its
 * order; so do the braces of a URL, which gives URLs, without a look at the network. */
struct np_paths {
    char **paths; /* owned */
    int nr_paths;
};
int np_paths_find(const char *pattern, struct np_paths *ret_paths, struct np_err *err);
/* Adds the files that a pattern names to *paths, which keeps its own on failure. */
int np_paths_add(const char *pattern, struct np_paths *paths, struct np_err *err);
void np_paths_fini(struct np_paths *paths);
/* Glob with `*` crossing `/`, `?`, `[...]`. */
bool np_match(const char *pattern, const char *text);
/* The cache folder: option cache_dir, else $XDG_CACHE_HOME/nnpipe, else ~/.cache/nnpipe, else
 * nnpipe-UID in $TMPDIR or /tmp, created if missing. -EPERM: another user owns that folder or can
 * write to it. *ret_dir: np_free. */
int np_cache_dir(const struct np_source_options *options, char **ret_dir, struct np_err *err);
/* Where the cache folder has the index, or what else is kept, of a set that a program names itself;
 * hash identifies the set. Like an index, it is removed when it was not used for long. np_free.
 * NULL: there is no cache folder, or -ENOMEM. */
char *np_source_place(uint64_t hash, struct np_err *err);

#endif
