/* `nnpipe bench`: measures single parts of a run, each with its own command line. Main thread.
 * Shared by them: the config with its data, and the facts of a measurement. */
#ifndef NP_BENCH_H
#define NP_BENCH_H

#include "daemon/cmd.h"
#include "daemon/config/setup.h"
#include "daemon/ui/progress.h"
#include "loader/loader.h"

/* argv[0] is the benchmark's name. Exit codes as of commands. */
int np_bench_loader(int argc, char **argv);
int np_bench_io(int argc, char **argv);
int np_bench_feed(int argc, char **argv);
int np_bench_step(int argc, char **argv);

struct np_bench {
    const char *seconds_text, *epochs_text, *steps_text, *device;
    bool json, cold;
    double seconds, epochs; /* 0: not given */
    uint64_t steps;
    struct np_overrides overrides;
    struct np_config *config;
    struct np_setup setup;
    struct np_ui ui;
    struct np_stat *stat;
};

struct np_bench_kind {
    const char *flags;     /* besides --seconds and --json: "--steps --device" */
    bool data_is_optional; /* without data, size and classes are guessed, with a message */
    /* Measures for bench->seconds (default: five) and prints the result. */
    int (*run)(struct np_bench *bench, struct np_err *err);
};
/* Parses flags, opens config and training set, calls run(). Returns an exit code. */
int np_bench_main(int argc, char **argv, const struct np_bench_kind *kind);

/* Starts the training loader for nr_steps batches, without evaluations. */
void np_bench_loader_config(const struct np_bench *bench, uint64_t nr_steps,
    const struct np_allocator *allocator, struct np_loader_config *ret_config);
/* Number of training batches: of `steps` or `epochs`, else more than `seconds` can take. */
uint64_t np_bench_steps(const struct np_bench *bench, double default_epochs);

#endif
