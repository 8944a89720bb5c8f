/* The commands of the program. main.c has the table; each command is one file, cmd_NAME.c.
 * A command returns its exit code: 0 done, 1 failed, 2 the command line or the config is
 * wrong, 3 a comparison found a regression, 74 gave up by itself with a checkpoint, 75 told to stop, with a
 * checkpoint. */
#ifndef NP_CMD_H
#define NP_CMD_H

#include <stdbool.h>
#include <stdio.h>

#include "loader/base/err.h"

enum {
    NP_EXIT_DONE = 0,
    NP_EXIT_FAILED = 1,
    NP_EXIT_USAGE = 2,
    NP_EXIT_GAVE_UP = 74, /* storage or device failed; --resume continues from the checkpoint */
    NP_EXIT_STOPPED = 75  /* a signal asked for it; --resume continues from the checkpoint */
};

/* argv[0] is the command's name. Main thread. */
int np_cmd_train(int argc, char **argv);
int np_cmd_eval(int argc, char **argv);
int np_cmd_predict(int argc, char **argv);
int np_cmd_check(int argc, char **argv);
int np_cmd_show(int argc, char **argv);
int np_cmd_devices(int argc, char **argv);
int np_cmd_doctor(int argc, char **argv);
int np_cmd_selftest(int argc, char **argv);
int np_cmd_profile(int argc, char **argv);
int np_cmd_top(int argc, char **argv);
int np_cmd_runs(int argc, char **argv);
int np_cmd_prune(int argc, char **argv);
int np_cmd_worker(int argc, char **argv);
int np_cmd_ended(int argc, char **argv);
int np_cmd_daemon(int argc, char **argv);
int np_cmd_submit(int argc, char **argv);
int np_cmd_ls(int argc, char **argv);
int np_cmd_status(int argc, char **argv);
int np_cmd_logs(int argc, char **argv);
int np_cmd_change(int argc, char **argv); /* stop, pause, resume, retry, rm */
int np_cmd_priority(int argc, char **argv);
int np_cmd_hold(int argc, char **argv);  /* hold, release */
int np_cmd_drain(int argc, char **argv); /* drain, undrain */
int np_cmd_wait(int argc, char **argv);
int np_cmd_token(int argc, char **argv);

/* Pages of `nnpipe help`, from the option tables: docs/CONFIG.md; every key that -o takes, one per
 * line ("loader.cache auto|none|..."); docs/SERVICE_CONFIG.md. */
void np_config_reference(FILE *out);
void np_config_keys(FILE *out);
void np_service_reference(FILE *out);

/* One flag of a command. */
struct np_flag {
    const char *name;  /* "--json" */
    const char **text; /* takes a value: where it goes; given twice, the last one counts */
    bool *set;         /* takes none: true when given. With text too: the value may be absent,
                          and counts as given when it does not start with '-' and
                          `maybe` says so */
    bool (*maybe)(const char *word); /* NULL: a flag's value is always there */
};

/* -o key=value of a command line, in order. */
#define NP_MAX_OVERRIDES 64
struct np_overrides {
    const char *texts[NP_MAX_OVERRIDES];
    int nr_texts;
};

/* Takes flags out of argv[1..]; what is left are the operands, moved to argv[1..], their number in
 * *ret_nr. Flags may stand anywhere; `--` ends them; `--flag=value` works. `overrides` NULL: the
 * command has no -o. The table ends with a NULL name. Returns 0, or NP_EXIT_USAGE with the mistake
 * (nearest flag suggested) printed to stderr. */
int np_flags_parse(int argc, char **argv, const struct np_flag *flags,
    struct np_overrides *overrides, int *ret_nr);

struct np_config;
/* The config of a command line, checked: every mistake printed, the model's too as far as it can be
 * told without data. device NULL: the config's own. Returns 0 or NP_EXIT_USAGE. */
int np_cmd_config(const char *path, const struct np_overrides *overrides, const char *device,
    struct np_config **ret_config);

/* "nnpipe: text" to stderr, with file, line and column where the error has them. */
void np_complain(const struct np_err *err);
/* All mistakes of a report, sorted, one a line, and how many more there were. */
void np_complain_report(struct np_report *report, const struct np_overrides *overrides);

#endif
