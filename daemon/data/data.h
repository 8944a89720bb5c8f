/* What the `nnpipe data` commands (one file each, cmd_data_NAME.c) share: the sets of a command
 * line, and their samples. Main thread. */
#ifndef NP_DATA_H
#define NP_DATA_H

#include "daemon/cmd.h"
#include "daemon/config/config.h"
#include "daemon/ui/progress.h"
#include "loader/pack/fetch.h"
#include "loader/pixels/codec.h"

int np_data_synth(int argc, char **argv);
int np_data_pack(int argc, char **argv);
int np_data_ls(int argc, char **argv);
int np_data_verify(int argc, char **argv);
int np_data_stats(int argc, char **argv);
int np_data_view(int argc, char **argv);
int np_data_index(int argc, char **argv);
int np_data_cache(int argc, char **argv);

struct np_data_set {
    const char *what; /* "train", "test", "val", or the path */
    struct np_source_options *options;
    uint64_t max_pixels;           /* as np_decoder_limit() */
    const struct np_config *split; /* only the samples that its data.split keeps; NULL: all */
};

struct np_data_sets {
    struct np_config *config;        /* NULL: paths */
    struct np_source_options *paths; /* owned; of paths */
    int nr_paths;
    struct np_data_set *sets;
    int nr_sets;
};

struct np_data_choice {
    const char *split;  /* "train", "test", "val"; NULL: all of a config */
    const char *source; /* of paths: their format; NULL: chosen by their names */
    const char *match;  /* of paths */
    struct np_overrides overrides;
};

/* Opens the sets of a command line. An operand that ends in .yaml or .yml, or "-", is a config, and
 * must be the only operand; any other is a path: a folder, a file of images, archives. Returns 0,
 * or NP_EXIT_USAGE after printing the mistakes. */
int np_data_sets_open(int nr_operands, char **operands, const struct np_data_choice *choice,
    struct np_data_sets *ret_sets);
void np_data_sets_close(struct np_data_sets *sets);
/* As np_source_open(); prints its notes on standard error. */
int np_data_open(const struct np_data_set *set, struct np_index **ret_index, struct np_err *err);

/* Opens one set after another and calls visit() for each, until a call fails. Returns NP_EXIT_DONE,
 * or NP_EXIT_FAILED after printing the error. */
int np_data_each_set(struct np_ui *ui, const struct np_data_sets *sets,
    int (*visit)(
        void *context, const struct np_data_set *set, struct np_index *index, struct np_err *err),
    void *context);
/* Runs a command that only reads sets: parses flags and operands, and returns the exit code of
 * run(). own: two flags of this command; NULL: it has none. */
int np_data_read_sets(int argc, char **argv, const struct np_flag own[2],
    int (*run)(struct np_ui *ui, const struct np_data_sets *sets, void *context), void *context);

/* The samples of a set, read and decoded whole, one after another. */
struct np_data_pixels {
    const struct np_index *index; /* borrowed */
    struct np_fetch *fetch;
    struct np_decoder *decoder;
};

struct np_data_sample {
    const uint8_t *bytes; /* encoded */
    uint32_t nr_bytes;
    struct np_pixels pixels; /* the whole picture, 1 or 3 channels as in the file */
};

int np_data_pixels_open(const struct np_index *index, uint64_t max_pixels,
    struct np_data_pixels *ret_pixels, struct np_err *err);
/* *ret_sample is valid until the next call. -EBADMSG: the sample is bad, err has the cause; other
 * codes: it cannot be read. */
int np_data_pixels_get(struct np_data_pixels *pixels, uint64_t sample,
    struct np_data_sample *ret_sample, struct np_err *err);
void np_data_pixels_close(struct np_data_pixels *pixels);

/* Parses the number of a flag; bytes: with suffixes, as np_option_bytes(). text NULL: *number
 * stays. False, after a message: not a number, or out of range. */
bool np_data_number(
    const char *flag, const char *text, bool bytes, int64_t min, int64_t max, int64_t *number);
/* Writes "FILE:MEMBER" or "FILE" of a sample, for messages. */
void np_data_place(const struct np_index *index, uint64_t sample, char *text, size_t text_bytes);
/* Returns NP_EXIT_USAGE. */
int np_data_usage(const char *text);

#endif
