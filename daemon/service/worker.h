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

#include "daemon/service/queue.h"
#include "loader/base/err.h"

struct np_worker_start {
    /* dir: made where it is not there; user: must still be the uid's name, "": any */
    const struct np_entry *entry;
    const char *config;      /* its text, in normal form */
    const char *environment; /* of the submitter's, "NAME=VALUE\n"... */
    int group_fd;            /* of a child: cgroup.procs of the group it is to be in; 0: none */
};
/* The job that the worker reads from its standard input (job.h). parent: the daemon that it is a child of; 0: a unit.
 * np_free; NULL: -ENOMEM. */
char *np_worker_job(const struct np_worker_start *start, pid_t parent, struct np_err *err);

struct np_worker {
    pid_t pid;
    int pid_fd;    /* readable: it has ended */
    int report_fd; /* readable: it has said something; -1: not open yet */
    int start_fd;  /* of a child that is not nnpipe's own code yet; else -1 */
    bool is_child;
};
#define NP_NO_WORKER ((struct np_worker){.pid_fd = -1, .report_fd = -1, .start_fd = -1})

/* What tells a process from every other one before and after it: its number, its start and the machine's boot;
 * "PID START BOOT". -ESRCH: there is none, or it is not to be seen. */
int np_process_text(pid_t pid, char *text, size_t bytes);

/* The run's process, made but not begun: np_worker_go() begins it, np_worker_forget() sends it away. text: as
 * np_process_text(), or "". It becomes the user by itself: nothing here waits for that. */
int np_worker_start(const struct np_worker_start *start, struct np_worker *ret_worker, char *text,
    size_t bytes, struct np_err *err);
int np_worker_go(struct np_worker *worker);
/* Has it begun? 1: it has; 0: not yet; -errno: it cannot, and has ended. */
int np_worker_begun(struct np_worker *worker);
/* A worker that an earlier daemon started, by its text: np_process_text() of the number must still say that once this has
 * returned 0. -ESRCH: it has ended. */
int np_worker_find(const char *text, struct np_worker *ret_worker);
/* To it; SIGKILL to all of its group, where that is ours. */
void np_worker_signal(const struct np_worker *worker, int number);

struct np_worker_exit {
    int code;   /* NP_EXIT_*; -1: it was killed, or died, and said nothing */
    int signal; /* the signal that killed it; 0: none, or not known */
    int status; /* it exited with, where it is a child and left no record; -1: not known */
    bool begun; /* it came as far as to have its folder */
    bool saved; /* it has written a checkpoint in this try */
    bool disk_full;
    bool no_device;     /* its device could not be opened */
    bool device_failed; /* while it was at work */
    char reason[512];   /* what it said last; "" */
};
/* Reaps a worker that has ended; exit.json is not read yet. */
void np_worker_reap(struct np_worker *worker, struct np_worker_exit *ret_exit);
/* exit.json of that try, as its text; another try's says nothing. */
void np_worker_read_exit(const char *text, int64_t attempt, struct np_worker_exit *exit);
void np_worker_forget(
    struct np_worker *worker); /* closes its descriptors; a worker that has begun continues */

/* Has the process of a pidfd ended? */
bool np_pid_fd_is_over(int pid_fd);

/* Where runs are units of systemd's instead of the service's children: what the service asks of it
 * (systemd/worker_unit.c). All Required; each blocks, milliseconds as a rule, so a short-lived child asks (errand.c). */
struct np_units {
    /* Starts the run's unit. -EBUSY: it has a process already. A process that has ended at once is there as a worker
     * that is over. */
    int (*start)(const struct np_units *units, int64_t id, const struct np_worker_start *start,
        struct np_worker *ret_worker, struct np_err *err);
    /* Finds the unit's process, which may not have taken its lock yet. -ESRCH: there is none. */
    int (*find)(
        const struct np_units *units, int64_t id, struct np_worker *ret_worker, struct np_err *err);
    /* The unit has ended: adds to *exit what the worker itself has not said; the unit is forgotten. */
    void (*end)(const struct np_units *units, int64_t id, struct np_worker_exit *exit);
    /* Starts nnpipe-ended@ID.service with this text as its standard input. */
    int (*notify)(const struct np_units *units, int64_t id, const char *text, struct np_err *err);
};
/* The reason of a worker that the kernel killed for want of memory. */
#define NP_WORKER_NO_MEMORY "the machine had no memory left for it"

#endif
