/* YAML -> a checked config. Knows every option table; each module parses its own part. */
#ifndef NP_CONFIG_H
#define NP_CONFIG_H

#include "daemon/config/network.h"
#include "loader/base/config_file.h"
#include "loader/loader_options.h"
#include "trainer/device.h"
#include "trainer/optim.h"
#include "trainer/schedule.h"

/* A period: "1 epoch", "2 epochs", "500 steps", "never". */
struct np_period {
    double epochs;
    int64_t steps;
};

struct np_train_options {
    double epochs; /* 0: steps decides */
    int64_t steps;
    struct np_period eval_every; /* both 0: only at the end */
    int64_t threads;             /* compute threads; -1: auto */
    int64_t accumulate;
    double clip_norm;
    bool deterministic, tf32;
    bool history; /* keep history.bin: the sample indices of every step */
    char *eval_every_text;
};
enum np_keep_optimizer { NP_OPTIMIZER_ALL, NP_OPTIMIZER_NEWEST };
struct np_checkpoint_options {
    struct np_period every;
    int64_t keep;
    int optimizer; /* enum np_keep_optimizer */
    char *every_text;
};

struct np_config {
    char *path, *dir; /* of the file; "-": standard input */
    struct np_config_file file;
    struct np_node *root; /* the file's, with -o applied; owns what others borrow */
    const struct np_node *base_node;
    char *name, *runs;
    int64_t seed;
    char *device; /* auto, cpu, cuda:0, sim */
    const struct np_node *device_node;
    struct np_device_options device_options;
    int precision; /* enum np_dtype, or -1: auto */
    struct np_data_options data;
    struct np_loader_options loader;
    struct np_network network;
    const struct np_node *data_node, *loader_node;
    const struct np_node *optim_node, *schedule_node, *run_node, *checkpoint_node;
    struct np_optim_options optim;
    struct np_schedule_options schedule;
    struct np_train_options run;
    struct np_checkpoint_options checkpoint;
    const char
        *replaced; /* "epochs" or "steps": the file's, for which -o gave the other; or NULL */
};

/* Reads, applies `-o key.path=value` overrides (value: YAML flow), checks everything that needs
 * no data: all mistakes into report. Returns 0, or -EINVAL with report filled, or another errno
 * for a file that cannot be read (one entry in report). */
int np_config_load(const char *path, const char *const *overrides, int nr_overrides,
    struct np_config **ret_config, struct np_report *report);
/* The same of a text that stood in the file `path`, and builds on no other. */
int np_config_load_text(const char *text, size_t bytes, const char *path,
    const char *const *overrides, int nr_overrides, struct np_config **ret_config,
    struct np_report *report);
void np_config_free(struct np_config *config);
/* A report for mistakes in the config's nodes, while the config is there. */
void np_config_report(const struct np_config *config, struct np_report *report);
/* `--device NAME`: takes the place of `device:`; -EINVAL with the mistake in report, under the flag's
 * name. */
int np_config_set_device(struct np_config *config, const char *name, struct np_report *report);
/* Every key with its value, in table order; parses back to an equal config. Caller frees. */
struct np_node *np_config_node(const struct np_config *config);
/* Applies `key.path=value`, number `index` of the command line, to the tree. The nodes it makes
 * have line -1 - index, by which np_config_place() finds the text again. */
int np_config_override(struct np_node *root, const char *text, int index, struct np_report *report);
/* Where a mistake stands: "FILE:LINE:COLUMN", "FILE", or "-o KEY". */
void np_config_place(const struct np_err *err, const char *const *overrides, int nr_overrides,
    char *text, size_t text_bytes);

#endif
