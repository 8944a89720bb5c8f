/* `nnpipe train --processes N`: starts the processes of a run on this machine, and waits for them. */
#ifndef NP_PROCESSES_H
#define NP_PROCESSES_H

#include <stdbool.h>

#include "loader/base/err.h"

struct np_processes {
    char **argv; /* NULL at the end */
    int nr;
    const int *gpus;  /* (nr) the GPU of each, as np_launch.gpu; NULL: not given */
    int death_signal; /* that they get when this process ends; 0: SIGTERM */
    bool same_input;  /* all of them have its standard input; else rank 0 alone */
    /* Set by np_processes_run(). */
    int first_failed; /* the rank that failed by itself first; -1: none */
    int first_code;   /* its exit code; 128 + N: it was killed by signal N */
};
/* Runs argv nr times, as ranks 0 to nr - 1 of trainer/comm.h. Passes SIGINT, SIGTERM, SIGHUP and
 * SIGUSR1 on; SIGQUIT kills all. After one has failed, those that do not end by themselves get
 * SIGTERM, and a minute later SIGKILL. Returns, when all have ended, the exit code of rank 0; if a signal
 * that was sent for this ended it, the code of the rank that failed, or 1 if that was killed. Main thread; no
 * other thread has been started. */
int np_processes_run(struct np_processes *processes);

struct np_overrides;
struct np_several { /* flags; NULL: not given */
    const char *processes, *gpus;
};
/* cmd_train.c. The words of a command without --processes N and --gpus LIST, as its ranks get them; NULL at the end.
 * np_free. */
char **np_processes_words(int argc, char **argv);
/* Carries out these flags of a command: np_processes_run(), or NP_EXIT_USAGE after a message.
 * path NULL: the config is that of the run that is resumed. */
int np_processes_start(const char *command, char **words, const struct np_several *several,
    const char *path, const struct np_overrides *overrides, const char *device);

/* The GPUs that the driver reports; counted in a process of its own. */
int np_processes_count_gpus(void);
/* Parses --gpus: "0-3", "0,2", "all" and so on; gpus: (room). Returns how many; -EINVAL: not such a list;
 * -ENODEV: a GPU that this machine does not have. counts: the machine's GPUs are counted; else there are
 * as many as wanted (sim). */
int np_processes_gpus(const char *list, bool counts, int *gpus, int room, struct np_err *err);

#endif
