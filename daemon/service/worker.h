/* A run's process, as the service sees it: started with its submitter's rights, watched over a pipe, told to
 * stop, and found again by a daemon that comes back.
 *
 * In the run's folder: `lock` (held while it runs, with its process number), `report` (a FIFO; a line of JSON each
 * second and when it ends), `exit.json` (how its last try ended), `output/` (what it printed, in segments). The
 * service reads them with the submitter's rights alone. */
#ifndef NP_WORKER_H
#define NP_WORKER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "loader/base/err.h"

struct np_worker_start {
    uid_t uid;
    gid_t gid;
    const char *dir;         /* the run's folder, absolute; made where it is not there */
    const char *config;      /* its text, in normal form */
    const char *device;      /* "cuda:1" */
    const char *environment; /* of the submitter's, "NAME=VALUE\n"... */
    int umask;               /* the submitter's; -1: the service's */
    int64_t attempt;         /* comes back in exit.json */
};

struct np_worker {
    pid_t pid;
    int pid_fd;    /* readable: it has ended */
    int report_fd; /* readable: it has said something; -1: not open yet */
    bool is_child;
};

/* The run's process, which goes on with what the folder has. Errors of its own end come as exits. */
int np_worker_start(
    const struct np_worker_start *start, struct np_worker *ret_worker, struct np_err *err);
/* One that is there already, of another daemon's life. -ESRCH: there is none; else it is not known: ask again. */
int np_worker_find(
    uid_t uid, gid_t gid, const char *dir, struct np_worker *ret_worker, struct np_err *err);
/* Opens its pipe where that is not open, once the worker has made it; -EAGAIN: not yet. */
int np_worker_listen(struct np_worker *worker, uid_t uid, gid_t gid, const char *dir);
/* To it and all of its group. */
void np_worker_signal(const struct np_worker *worker, int number);

struct np_worker_exit {
    int code;   /* NP_EXIT_*; -1: it was killed, or died, and said nothing */
    int signal; /* that killed it; 0: none, or not known */
    int status; /* it exited with, where it is a child and left no record; -1: not known */
    bool begun; /* it came as far as to have its folder */
    bool saved; /* it has written a checkpoint in this try */
    bool disk_full;
    bool no_device;     /* its device could not be opened */
    bool device_failed; /* while it was at work */
    char reason[512];   /* what it said last; "" */
};
/* Of one that has ended: reaps it, and reads what it left. */
void np_worker_end(struct np_worker *worker, uid_t uid, gid_t gid, const char *dir, int64_t attempt,
    struct np_worker_exit *ret_exit);
void np_worker_forget(struct np_worker *worker); /* closes what is open; it goes on */

/* Has the process of a pidfd ended? */
bool np_pid_fd_is_over(int pid_fd);

#endif
