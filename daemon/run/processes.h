/* `nnpipe train --processes N`: starts the processes of a run on this machine, and waits for them. */
#ifndef NP_PROCESSES_H
#define NP_PROCESSES_H

#include <stdbool.h>

struct np_processes {
    char **argv; /* NULL at the end */
    int nr;
    int death_signal; /* that they get when this process ends; 0: SIGTERM */
    bool same_input;  /* all of them have its standard input; else rank 0 alone */
    /* Set by np_processes_run(). */
    int first_failed; /* the rank that failed by itself first; -1: none */
    int first_code;   /* its exit code; 128 + N: it was killed by signal N */
};
/* Runs argv nr times, as ranks 0 to nr - 1 of trainer/comm.h. Passes SIGINT, SIGTERM, SIGHUP and
 * SIGUSR1 on; SIGQUIT kills all. After one has failed, those that do not end by themselves get
 * SIGTERM, and a minute later SIGKILL. Returns, when all have ended, the exit code of rank 0, or,
 * where that was done, of the rank that failed. Main thread; no other thread has been started. */
int np_processes_run(struct np_processes *processes);

struct np_overrides;
/* cmd_train.c. The words of a command without --processes N, as its ranks get them; NULL at the end.
 * np_free. */
char **np_processes_words(int argc, char **argv);
/* Carries out --processes TEXT of a command: np_processes_run(), or NP_EXIT_USAGE after a message.
 * config NULL: that of the run that is resumed. */
int np_processes_start(const char *command, char **words, const char *text, const char *config,
    const struct np_overrides *overrides, const char *device);

#endif
