/* A worker, the process that trains a run with its submitter's rights: the service starts it,
 * reads its reports, asks it to stop, and finds it again after a restart.
 *
 * In the run's folder: `lock` (held while it runs; has its PID), `report` (a FIFO: a line of JSON
 * each second and at the end), `exit.json` (the end of its last attempt), `output/` (its log, in
 * segments). The service reads them with the submitter's rights only. */
#ifndef NP_WORKER_H
#define NP_WORKER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/service/queue.h"
#include "loader/base/err.h"
#include "loader/base/node.h"

struct np_worker_start {
    /* dir: created if missing; user: must still be the uid's name; "": any */
    const struct np_entry *entry;
    const char *config;      /* resolved text */
    const char *environment; /* the submitter's, "NAME=VALUE\n"... */
    int group_fd;            /* of a child: cgroup.procs; 0: none */
};

/* A job: the JSON object that a worker reads from its standard input.
 *
 * {"dir": "/home/ann/runs/cnn-7", "device": "cuda:0", "processes": 1, "attempt": 2, "parent": 812, "umask": 18,
 * "environment": "DATA=/data\n", "overrides": "train.steps=9\nseed=2", "config": "name:
 * cnn\n..."} */
struct np_job {
    const char *dir;    /* the run's folder, absolute */
    const char *device; /* "cuda:1", or "cuda:1,cuda:2": of each process */
    int processes;
    const char *config;      /* resolved text */
    const char *environment; /* the submitter's, "NAME=VALUE\n"... */
    const char *overrides;   /* -o of its submission, one a line */
    int umask;               /* -1: unchanged */
    int64_t attempt;         /* copied to exit.json */
    pid_t parent;            /* the daemon: if it has died, the worker does not start; 0: a unit */
    struct np_node *node;    /* owns the texts */
};
/* The job with a newline (np_free); NULL: out of memory. */
char *np_job_text(const struct np_worker_start *start, pid_t parent, struct np_err *err);
/* Reads a job from a file or pipe up to its end; may block. No text is NULL. -EBADMSG: it is not a
 * job; -ENOMEM. Call np_node_free(job.node) afterwards, also after an error. */
int np_job_read(const char *path, struct np_job *ret_job, struct np_err *err);

/* Exit statuses of a worker that could not take its run's folder, so it wrote no exit.json. */
enum {
    NP_WORKER_TAKEN = 81,  /* the folder existed before the run's first attempt */
    NP_WORKER_UNSAFE = 82, /* the folder or a file in it belongs to another user */
    NP_WORKER_FULL = 83    /* no space or quota for folder, exit.json or lock */
};

struct np_worker {
    pid_t pid;     /* 0: no worker */
    int pid_fd;    /* readable: it has ended */
    int report_fd; /* readable: there are reports; -1: not open yet */
    int start_fd;  /* of a child that does not run nnpipe yet; else -1 */
    bool is_child;
    bool is_parent; /* of the run's processes: it ends after all of them have */
};
#define NP_NO_WORKER ((struct np_worker){.pid_fd = -1, .report_fd = -1, .start_fd = -1})

/* The identity of a process for all time: "PID START BOOT", its PID, start time and boot ID.
 * -ESRCH: there is none, or it is hidden. */
int np_process_text(pid_t pid, char *text, size_t bytes);

/* Forks the run's process, which waits: np_worker_go() starts it, np_worker_forget() ends it. text:
 * as np_process_text(), or "". The process looks up its user itself, so this does not block.
 * -errno of fork() and the like; -ENOMEM. */
int np_worker_start(const struct np_worker_start *start, struct np_worker *ret_worker, char *text,
    size_t bytes, struct np_err *err);
int np_worker_go(struct np_worker *worker);
/* Does the process run nnpipe? 1: yes; 0: not yet; -errno: it failed and has ended. */
int np_worker_begun(struct np_worker *worker);
/* Opens an earlier daemon's worker by its text. It is the right process if np_process_text() of the
 * PID still gives this text afterwards. -ESRCH: it has ended. */
int np_worker_find(const char *text, struct np_worker *ret_worker);
/* Sends a signal to the worker; SIGKILL also to its process group, if it is the daemon's child. A
 * parent gets SIGQUIT for SIGKILL: it kills its processes, and waits for those that do not end. */
void np_worker_signal(const struct np_worker *worker, int number);

struct np_worker_exit {
    int code;   /* NP_EXIT_*; -1: it was killed, or died without exit.json */
    int signal; /* that killed it; 0: none, or unknown */
    int status; /* exit status of a child without exit.json; -1: unknown */
    bool begun; /* it took its folder */
    bool saved; /* a checkpoint in this attempt */
    bool disk_full;
    bool no_device;     /* its device could not be opened */
    bool device_failed; /* its device failed later */
    char device[32];    /* of several, that of the process that failed; "": not known */
    char reason[512];   /* its last error; "": none */
};
/* Reaps a worker that has ended, and closes its descriptors. Does not read exit.json. */
void np_worker_reap(struct np_worker *worker, struct np_worker_exit *ret_exit);
/* Adds the text of exit.json to *exit, unless it is of another attempt. */
void np_worker_read_exit(const char *text, int64_t attempt, struct np_worker_exit *exit);
/* Closes the descriptors; a worker that has started continues. */
void np_worker_forget(struct np_worker *worker);

bool np_pid_fd_has_ended(int pid_fd);

/* Runs as systemd units instead of children (systemd/worker_unit.c). All are Required. Each blocks,
 * usually for milliseconds, so a short-lived child calls them (errand.c). */
struct np_units {
    /* Starts the run's unit; the returned worker may have ended already. -EBUSY: the unit has a
     * process already. */
    int (*start)(const struct np_units *units, int64_t id, const struct np_worker_start *start,
        struct np_worker *ret_worker, struct np_err *err);
    /* Finds the unit's process, which may not hold its lock yet. -ESRCH: none. */
    int (*find)(
        const struct np_units *units, int64_t id, struct np_worker *ret_worker, struct np_err *err);
    /* After the unit's end: adds to *exit the facts that the worker did not record, and removes the
     * unit's files. */
    void (*end)(const struct np_units *units, int64_t id, struct np_worker_exit *exit);
    /* Starts nnpipe-ended@ID.service with this text on its standard input. */
    int (*notify)(const struct np_units *units, int64_t id, const char *text, struct np_err *err);
};
/* The reason of a worker that the kernel killed for lack of memory. */
#define NP_WORKER_NO_MEMORY "the machine had no memory left for it"

#endif
