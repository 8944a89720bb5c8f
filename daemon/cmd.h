/* The commands of the program: main.c has their table, each command is one file, cmd_NAME.c.
 * What they share: exit codes, flags, messages. Main thread. */
#ifndef NP_CMD_H
#define NP_CMD_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "loader/base/err.h"

/* Exit codes; NP_EXIT_REGRESSED (3) is in daemon/profile/trial.h. */
enum {
    NP_EXIT_DONE = 0,
    NP_EXIT_FAILED = 1,
    NP_EXIT_USAGE = 2,    /* the command line, the config or its data are wrong */
    NP_EXIT_GAVE_UP = 74, /* storage or device failed; --resume continues from the checkpoint */
    NP_EXIT_STOPPED = 75  /* stopped by a signal; --resume continues from the checkpoint */
};

/* A command: argv[0] is its name; returns the exit code. */
typedef int np_cmd_fn(int argc, char **argv);
np_cmd_fn np_cmd_train, np_cmd_eval, np_cmd_predict, np_cmd_serve, np_cmd_replay, np_cmd_check,
    np_cmd_show, np_cmd_devices, np_cmd_doctor, np_cmd_selftest, np_cmd_profile, np_cmd_lr,
    np_cmd_top, np_cmd_runs, np_cmd_compare, np_cmd_prune, np_cmd_worker, np_cmd_ended,
    np_cmd_daemon, np_cmd_submit, np_cmd_ls, np_cmd_status, np_cmd_logs, np_cmd_priority,
    np_cmd_wait, np_cmd_token, np_cmd_change, /* stop, pause, resume, retry, rm */
    np_cmd_hold,                              /* hold, release */
    np_cmd_drain,                             /* drain, undrain */
    np_cmd_bench;                             /* bench loader, io, feed, step */

/* Pages of `nnpipe help`, printed from the option tables: docs/CONFIG.md; all keys for -o, one
 * per line ("loader.cache auto|none|..."); docs/SERVICE_CONFIG.md. */
void np_config_reference(FILE *out);
void np_config_keys(FILE *out);
void np_service_reference(FILE *out);

/* As `maybe` of a flag that may be repeated: text is then an array of NP_MAX_REPEATS + 1, which
 * gets all its values, in order; NULL ends them. */
#define NP_MAX_REPEATS 16
bool np_flag_repeats(const char *word);

struct np_flag {
    const char *name;
    const char **text; /* for a flag with a value: gets it; the last one counts */
    bool *set;         /* for a flag without a value: becomes true. With text too the value is
                          optional: the next word is one if it has no '-' in front and maybe()
                          accepts it */
    bool (*maybe)(const char *word); /* NULL unless the value is optional */
};

/* -o KEY=VALUE of a command line, in order. */
#define NP_MAX_OVERRIDES 64
struct np_overrides {
    const char *texts[NP_MAX_OVERRIDES];
    int nr_texts;
};

/* Parses the flags in argv[1..] and moves the operands to argv[1..], their number to *ret_nr.
 * Flags may stand anywhere; `--` ends them; `--flag=value` works. flags ends with a NULL name;
 * overrides NULL: the command has no -o. 0, or NP_EXIT_USAGE after a message. */
int np_flags_parse(int argc, char **argv, const struct np_flag *flags,
    struct np_overrides *overrides, int *ret_nr);

struct np_config;
/* Loads and checks a config; device NULL: the config's own. The caller frees *ret_config with
 * np_config_free(). 0, or NP_EXIT_USAGE after printing every mistake. */
int np_cmd_config(const char *path, const struct np_overrides *overrides, const char *device,
    struct np_config **ret_config);

/* Prints "nnpipe COMMAND: TEXT" to stderr and returns NP_EXIT_USAGE. */
int np_usage(const char *command, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Prints a line to stderr. context: unused; so it can be a function for notes. */
void np_note(void *context, const char *text);
/* Prints "listing PATH: N files" to stderr, at most every five seconds; a function for counts of
 * np_source_open(). context: uint64_t, np_now_ns() at the beginning. */
void np_note_listing(void *context, const char *path, uint64_t samples);
/* Prints "nnpipe: FILE:LINE:COLUMN: TEXT" to stderr, or "nnpipe: TEXT". */
void np_complain(const struct np_err *err);
/* Sorts a report and prints its mistakes to stderr, one per line, and how many were dropped. */
void np_complain_report(struct np_report *report, const struct np_overrides *overrides);

#endif
