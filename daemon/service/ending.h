/* When a run is over: a command and a webhook are told, a few at a time, in processes of their own; that they were is
 * in the queue's file, so that over a restart of the service it is done at least once. And what of runs that are over
 * is kept. The service's thread. */
#ifndef NP_ENDING_H
#define NP_ENDING_H

#include "daemon/service/service.h"

#define NP_MOST_TELLERS 4

struct np_tellers {
    struct np_teller {
        pid_t pid; /* 0: none */
        int pid_fd;
        int64_t id;
        double ended; /* of the run: it may have been tried again, and have ended again, since */
    } at[NP_MOST_TELLERS];
    double not_before; /* on the clock that nobody sets: one could not be started */
};

/* With each turn of the loop: begins to tell of runs of which nobody was told, and notes of whom it was done. Where
 * runs are units, so is this: the daemon's sandbox is not for other people's commands. What cannot be started is
 * said, and tried again; errors of the command or the address go to standard error, and are not. */
struct np_service;
void np_ending_turn(struct np_service *service);
/* Tells in this process, which ends within some minutes: {"on_end", "webhook", "run": TEXT}, read from fd.
 * -EBADMSG: it is not that. */
int np_ending_do(int fd, struct np_err *err);
/* Which of the runs that are over is to be forgotten now, by keep_runs (of each owner) and keep_s; 0: none.
 * entries: by id. */
int64_t np_ending_oldest(const struct np_service_options *options,
    const struct np_entry *const *entries, int nr, double now);

#endif
