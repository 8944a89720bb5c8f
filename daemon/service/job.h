/* A job: the JSON object that a worker reads from its standard input, as a child of the daemon or
 * as a systemd unit.
 *
 * {"dir": "/home/ann/runs/cnn-7", "device": "cuda:0", "attempt": 2, "parent": 812, "umask": 18,
 * "environment": "DATA=/data\n", "overrides": "train.steps=9\nseed=2", "config": "name:
 * cnn\n..."} */
#ifndef NP_JOB_H
#define NP_JOB_H

#include <stdint.h>
#include <sys/types.h>

#include "loader/base/err.h"
#include "loader/base/node.h"

/* Exit statuses of a worker that could not take its run's folder, and so left no record there. */
enum {
    NP_WORKER_TAKEN = 81, /* the folder existed before the run's first attempt */
    NP_WORKER_FULL = 83,  /* no space or quota for its folder, the record or the lock */
    NP_WORKER_UNSAFE = 82 /* it, or a file in it, belongs to another user */
};

struct np_job {
    const char *dir;         /* the run's folder, absolute */
    const char *device;      /* "cuda:1" */
    const char *config;      /* its text, resolved */
    const char *environment; /* the submitter's, "NAME=VALUE\n"...; NULL: none */
    const char *overrides;   /* -o of its submission, one a line; NULL: none */
    int umask;               /* for the files it writes; -1: unchanged */
    int64_t attempt;         /* copied to exit.json */
    pid_t parent; /* the daemon; if it has died, the worker does not start; 0: it is a unit */
    struct np_node *node; /* owns the texts of a job that was read */
};

/* The JSON object with a newline (np_free), or NULL: -ENOMEM. */
char *np_job_text(const struct np_job *job, struct np_err *err);
/* Reads a job from a file or pipe up to its end; may block. Its texts are not NULL. -EBADMSG: it
 * is not a job; -ENOMEM. Always call np_job_fini(). */
int np_job_read(const char *path, struct np_job *ret_job, struct np_err *err);
void np_job_fini(struct np_job *job);

#endif
