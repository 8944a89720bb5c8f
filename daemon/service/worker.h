/* A worker, the process of a run: started with its submitter's rights, watched over a pipe, asked
 * to stop, and found again by the next daemon.
 *
 * In the run's folder: `lock` (held while it runs, contains its PID), `report` (a FIFO: one line
 * of JSON each second and at the end), `exit.json` (how its last attempt ended), `output/` (what
 * it printed, in segments). The service reads these only with the submitter's rights. */
#ifndef NP_WORKER_H
#define NP_WORKER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/service/queue.h"
#include "loader/base/err.h"
#include "loader/base/node.h"

struct np_worker_start {
    /* dir: created if missing; user: must still be the uid's name, "": any */
    const struct np_entry *entry;
    const char *config;      /* its text, resolved */
    const char *environment; /* of the submitter's, "NAME=VALUE\n"... */
    int group_fd;            /* of a child: cgroup.procs of its group; 0: none */
};

/* A job: the JSON object that a worker reads from its standard input, as a child of the daemon or
 * as a systemd unit.
 *
 * {"dir": "/home/ann/runs/cnn-7", "device": "cuda:0", "attempt": 2, "parent": 812, "umask": 18,
 * "environment": "DATA=/data\n", "overrides": "train.steps=9\nseed=2", "config": "name:
 * cnn\n..."} */
struct np_job {
    const char *dir;         /* the run's folder, absolute */
    const char *device;      /* "cuda:1" */
    const char *config;      /* its text, resolved */
    const char *environment; /* the submitter's, "NAME=VALUE\n"... */
    const char *overrides;   /* -o of its submission, one a line */
    int umask;               /* for the files it writes; -1: unchanged */
    int64_t attempt;         /* copied to exit.json */
    pid_t parent; /* the daemon; if it has died, the worker does not start; 0: it is a unit */
    struct np_node *node; /* owns the texts */
};
/* The job with a newline; np_free; NULL: -ENOMEM. */
char *np_job_text(const struct np_worker_start *start, pid_t parent, struct np_err *err);
/* Reads a job from a file or pipe up to its end; may block. Its texts are not NULL. -EBADMSG: it
 * is not a job; -ENOMEM. Then call np_node_free(job.node), also after an error. */
int np_job_read(const char *path, struct np_job *ret_job, struct np_err *err);

/* Exit statuses of a worker that could not take its run's folder, and so left no record there. */
enum {
    NP_WORKER_TAKEN = 81,  /* the folder existed before the run's first attempt */
    NP_WORKER_UNSAFE = 82, /* it, or a file in it, belongs to another user */
    NP_WORKER_FULL = 83    /* no space or quota for its folder, the record or the lock */
};

struct np_worker {
    pid_t pid;
    int pid_fd;    /* readable: it has ended */
    int report_fd; /* readable: it has reported; -1: not open yet */
    int start_fd;  /* of a child that does not yet run nnpipe; else -1 */
    bool is_child;
};
#define NP_NO_WORKER ((struct np_worker){.pid_fd = -1, .report_fd = -1, .start_fd = -1})

/* Identifies a process for all time, by PID, start time and boot ID: "PID START BOOT". -ESRCH:
 * there is none, or it is hidden. */
int np_process_text(pid_t pid, char *text, size_t bytes);

/* Forks the run's process, which waits: np_worker_go() lets it start, np_worker_forget() ends
 * it. text: as np_process_text(), or "". It looks up its user itself, so nothing here blocks for
 * that. -errno of fork() and its like; -ENOMEM. */
int np_worker_start(const struct np_worker_start *start, struct np_worker *ret_worker, char *text,
    size_t bytes, struct np_err *err);
int np_worker_go(struct np_worker *worker);
/* Does it run nnpipe already? 1: yes; 0: not yet; -errno: it failed and has ended. */
int np_worker_begun(struct np_worker *worker);
/* Opens a worker that an earlier daemon started, by its text. np_process_text() of its PID must
 * still be equal after this has returned 0. -ESRCH: it has ended. */
int np_worker_find(const char *text, struct np_worker *ret_worker);
/* Sends a signal to the worker; SIGKILL also to its process group, if it is our child. */
void np_worker_signal(const struct np_worker *worker, int number);

struct np_worker_exit {
    int code;   /* NP_EXIT_*; -1: it was killed, or died without a record */
    int signal; /* the signal that killed it; 0: none, or unknown */
    int status; /* exit status of a child without a record; -1: unknown */
    bool begun; /* it took its folder */
    bool saved; /* it wrote a checkpoint in this attempt */
    bool disk_full;
    bool no_device;     /* its device could not be opened */
    bool device_failed; /* its device failed later */
    char reason[512];   /* its last error; "": none */
};
/* Reaps a worker that has ended, without reading exit.json, and closes its descriptors. */
void np_worker_reap(struct np_worker *worker, struct np_worker_exit *ret_exit);
/* Takes the text of exit.json into *exit, unless it is of another attempt. */
void np_worker_read_exit(const char *text, int64_t attempt, struct np_worker_exit *exit);
/* Closes its descriptors; a worker that has started continues. */
void np_worker_forget(struct np_worker *worker);

bool np_pid_fd_is_over(int pid_fd); /* has its process ended? */

/* Runs as systemd units instead of the service's children: how the service starts and finds them
 * (systemd/worker_unit.c). All are Required. Each blocks, usually for milliseconds, so a
 * short-lived child calls them (errand.c). */
struct np_units {
    /* Starts the run's unit. -EBUSY: it has a process already. If the process ends at once, the
     * worker is returned as ended. */
    int (*start)(const struct np_units *units, int64_t id, const struct np_worker_start *start,
        struct np_worker *ret_worker, struct np_err *err);
    /* Finds the unit's process, which may not hold its lock yet. -ESRCH: there is none. */
    int (*find)(
        const struct np_units *units, int64_t id, struct np_worker *ret_worker, struct np_err *err);
    /* After the unit's end: adds to *exit what the worker did not record, and removes the unit's
     * files. */
    void (*end)(const struct np_units *units, int64_t id, struct np_worker_exit *exit);
    /* Starts nnpipe-ended@ID.service with this text on its standard input. */
    int (*notify)(const struct np_units *units, int64_t id, const char *text, struct np_err *err);
};
/* The reason of a worker that the kernel killed because memory ran out. */
#define NP_WORKER_NO_MEMORY "the machine had no memory left for it"

#endif
