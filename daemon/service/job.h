/* A run as it is handed to its process: one JSON object on standard input, whether that is a child of the daemon
 * or a unit of systemd's.
 *
 *   {"dir": "/home/ann/runs/cnn-7", "device": "cuda:0", "attempt": 2, "parent": 812, "umask": 18,
 *    "environment": "DATA=/data\n", "overrides": "train.steps=9\nseed=2",
 *    "config": "name: cnn\n..."} */
#ifndef NP_JOB_H
#define NP_JOB_H

#include <stdint.h>
#include <sys/types.h>

#include "loader/base/err.h"
#include "loader/base/node.h"

/* Exit statuses of a worker that has not taken its run's folder, and so leaves no record there. */
enum {
    NP_WORKER_TAKEN = 81, /* the folder was there before the run's first try */
    NP_WORKER_FULL = 83,  /* no room, or no quota, for its folder, the record or the lock */
    NP_WORKER_UNSAFE = 82 /* it, or something in it, is not the submitter's */
};

struct np_job {
    const char *dir;         /* the run's folder, absolute */
    const char *device;      /* "cuda:1" */
    const char *config;      /* its text, in normal form */
    const char *environment; /* "NAME=VALUE\n"... of the submitter's; NULL: none */
    const char *overrides;   /* -o of its submission, a line each; NULL: none */
    int umask;               /* for what it writes; -1: as it is */
    int64_t attempt;         /* comes back in exit.json */
    pid_t parent; /* the daemon that it is a child of: without it it does not begin; 0: a unit */
    struct np_node *node; /* owns the texts of one that was read */
};

/* The object, with a newline; np_free. NULL: -ENOMEM. */
char *np_job_text(const struct np_job *job, struct np_err *err);
/* Reads fd to its end; it may block. -EBADMSG: that is no job. np_job_fini in any case. */
int np_job_read(int fd, struct np_job *ret_job, struct np_err *err);
void np_job_fini(struct np_job *job);

#endif
