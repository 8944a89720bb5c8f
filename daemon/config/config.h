/* A checked config, from YAML. Knows every option table; each module parses its own section. One
 * thread. */
#ifndef NP_CONFIG_H
#define NP_CONFIG_H

#include "loader/base/config_file.h"
#include "loader/sets.h"
#include "trainer/average.h"
#include "trainer/device.h"
#include "trainer/early.h"
#include "trainer/graph/graph.h"
#include "trainer/optim.h"
#include "trainer/rules.h"
#include "trainer/sam.h"
#include "trainer/schedule.h"

/* A period: "1 epoch", "2 epochs", "500 steps", "never". */
struct np_period {
    double epochs;
    int64_t steps;
};

/* Of train.best, in the order of its words. */
enum np_best {
    NP_BEST_ACCURACY,
    NP_BEST_LOSS,
    NP_BEST_TOP5,
    NP_BEST_F1,
    NP_BEST_MAP,
    NP_BEST_MAE,
    NP_BEST_RMSE,
    NP_BEST_R2,
    NP_NR_BEST
};

/* Words of train.batchnorm_over. */
enum { NP_BN_AUTO = -1, NP_BN_ALL = -2, NP_BN_PROCESS = -3 };

struct np_train_options {
    double epochs; /* 0: use steps */
    int64_t steps;
    struct np_period eval_every; /* all 0: only at the end */
    int tta;                     /* enum np_tta: of every evaluation */
    int64_t threads;             /* compute threads; -1: auto */
    int64_t accumulate;
    int64_t lanes;          /* of a batch; 1: whole batches; -1: auto, np_run_take_lanes() */
    int64_t batchnorm_over; /* in lanes: rows, or NP_BN_AUTO ... */
    double clip_norm;
    struct np_average_options ema;
    const struct np_node *ema_node; /* NULL: none */
    struct np_sam_options sam;
    const struct np_node *sam_node; /* NULL: none */
    struct np_early_options stop;
    const struct np_node *stop_node; /* NULL: none */
    double mixup, cutmix, mix_share;
    bool deterministic, tf32, recompute;
    bool history;       /* write history.bin: the sample indices of every step */
    bool sample_losses; /* write sample_losses.bin */
    int best;           /* metric of the best checkpoint, enum np_best: np_run_best() */
    char *eval_every_text;
};
enum np_keep_optimizer { NP_OPTIMIZER_ALL, NP_OPTIMIZER_NEWEST };
struct np_checkpoint_options {
    struct np_period every;
    int64_t keep;
    int optimizer; /* enum np_keep_optimizer */
    char *every_text;
};

/* The model; borrows from the config. */
struct np_network {
    const struct np_node *model, *blocks, *loss; /* blocks, loss: NULL where not given */
    const struct np_loader_options *loader;      /* batch, channels, mean, std */
    const struct np_source_options *train;       /* guesses depend on its source */
    const struct np_train_options *run;          /* mixup, cutmix, mix_share */
    const struct np_rules *rules;                /* NULL: none */
    int64_t seed;
};

struct np_config {
    char *path, *dir; /* the file ("-": standard input) and its folder */
    struct np_config_file file;
    struct np_node *root; /* file.root with -o applied; the other nodes point into it */
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
    struct np_set_options sets; /* borrows from the config */
    const struct np_node *data_node, *loader_node;
    const struct np_node *optim_node, *schedule_node, *run_node, *checkpoint_node;
    const struct np_node *freeze_node, *params_node;
    struct np_optim_options optim;
    struct np_rules rules;
    struct np_schedule_options schedule;
    struct np_train_options run;
    struct np_checkpoint_options checkpoint;
    const struct np_node *track_node;
    unsigned track;       /* trackers: np_track_parse() */
    const char *replaced; /* "epochs" or "steps": the file's, if -o gave the other one; or NULL */
};

/* Reads a config, applies `-o key.path=value` overrides (value: YAML flow) and checks everything
 * that needs no data. -EINVAL: report has all mistakes; another errno: the file cannot be read
 * (one entry in report). The caller frees *ret_config. */
int np_config_load(const char *path, const char *const *overrides, int nr_overrides,
    struct np_config **ret_config, struct np_report *report);
/* The same for the text of the file `path`; it must not have a base. */
int np_config_load_text(const char *text, size_t bytes, const char *path,
    const char *const *overrides, int nr_overrides, struct np_config **ret_config,
    struct np_report *report);
void np_config_free(struct np_config *config);
/* Prepares a report for mistakes in the config's nodes; it borrows from config. */
void np_config_report(const struct np_config *config, struct np_report *report);
/* Replaces `device:` by the value of --device. -EINVAL: report has the mistake, under the flag's
 * name. */
int np_config_set_device(struct np_config *config, const char *name, struct np_report *report);
/* The resolved config: every key with its value, in table order. The caller frees it. */
struct np_node *np_config_node(const struct np_config *config);
/* Fills the input of np_network_build(). height and width in pixels. */
void np_network_input(const struct np_network *network, int height, int width, int classes,
    enum np_dtype precision, struct np_graph_input *ret_input);
/* The caller frees the graph. NULL: report has the mistakes. */
struct np_graph *np_network_build(
    const struct np_network *network, const struct np_graph_input *input, struct np_report *report);
/* The evaluation graph of a network, for rows of the size that evaluations see: of train, or, if that
 * is another size, of a graph that has the same parameters. input: of train. NULL: report has the
 * mistakes. The caller frees the graph. */
struct np_graph *np_network_build_eval(const struct np_network *network,
    const struct np_graph_input *input, const struct np_row_sizes *size,
    const struct np_graph *train, struct np_report *report);
/* Checks that the network of the smallest rows of `loader.grow` has train's parameters. input: of
 * train. -EINVAL: report has the mistakes. */
int np_network_check_grown(const struct np_network *network, const struct np_graph_input *input,
    const struct np_graph *train, struct np_report *report);
/* Guesses values that are 0, by the kind of data. True: it guessed, and text names the guesses. */
#define NP_GUESS_TEXT 96
bool np_network_guess(const struct np_network *network, struct np_row_sizes *size, int *classes,
    char text[NP_GUESS_TEXT]);
/* Checks the model for these sizes of images and this class count, guessed where 0. -EINVAL: report
 * has the mistakes. */
int np_network_check(const struct np_network *network, const struct np_row_sizes *size, int classes,
    struct np_report *report);

/* The option tables: struct np_config, np_train_options, np_checkpoint_options. */
extern const struct np_option np_config_table[], np_train_table[], np_checkpoint_table[];

#endif
