/* What the `nnpipe data` commands share: which sets a command line means, and how they speak.
 * Each of them is a file, cmd_data_NAME.c. Main thread. */
#ifndef NP_DATA_H
#define NP_DATA_H

#include "daemon/cmd.h"
#include "daemon/config/config.h"
#include "daemon/ui/progress.h"

int np_data_synth(int argc, char **argv);
int np_data_pack(int argc, char **argv);
int np_data_ls(int argc, char **argv);
int np_data_verify(int argc, char **argv);
int np_data_stats(int argc, char **argv);
int np_data_view(int argc, char **argv);
int np_data_index(int argc, char **argv);

struct np_data_set {
    const char *what; /* "train", "test", "val", or the path */
    struct np_source_options *options;
    uint64_t max_pixels; /* as np_decoder_limit() */
    const struct np_config
        *split; /* of this one's data.train the samples that data.split keeps; NULL: all */
};

/* CONFIG|PATH... of a command line. */
struct np_data_sets {
    struct np_config *config;        /* NULL: paths */
    struct np_source_options *paths; /* owned, of paths */
    int nr_paths;
    struct np_data_set *sets;
    int nr_sets;
};

/* What a command line says of its sets, beside the operands. */
struct np_data_choice {
    const char *split;  /* "train", "test", "val"; NULL: all of a config */
    const char *source; /* paths: instead of what they look like */
    const char *match;  /* paths */
    struct np_overrides overrides;
};

/* A word that ends in .yaml or .yml, or "-", is a config, and then the only operand. Anything
 * else is a path: a folder, files of images, archives. Mistakes are printed: NP_EXIT_USAGE. */
int np_data_sets_open(int nr_operands, char **operands, const struct np_data_choice *choice,
    struct np_data_sets *ret_sets);
void np_data_sets_close(struct np_data_sets *sets);
/* np_source_open() with its notes on standard error. */
int np_data_open(const struct np_data_set *set, struct np_index **ret_index, struct np_err *err);

/* A whole command that only reads sets: flags, operands, then run(), whose exit code is its own. */
int np_data_read_sets(
    int argc, char **argv, int (*run)(struct np_ui *ui, const struct np_data_sets *sets));

/* The number of a flag, with K, M or G (1024) where `bytes`; text NULL: *number stays. False, after
 * saying so, when it is none or out of range. */
bool np_data_number(
    const char *flag, const char *text, bool bytes, int64_t min, int64_t max, int64_t *number);
/* "FILE:MEMBER" or "FILE" of a sample, for messages. */
void np_data_place(const struct np_index *index, uint64_t sample, char *text, size_t text_bytes);
/* NP_EXIT_USAGE, with a line that says what is expected. */
int np_data_usage(const char *text);

#endif
