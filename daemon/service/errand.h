/* What the service wants to know of a run's folder or process, asked by a short-lived child with its owner's rights,
 * in a user's own service too: the service's thread opens no path that leads to a run, and so never waits for storage.
 * A child that has no answer in time is killed; where storage delays even that, the run's next errand waits until it
 * has ended. The service's thread. */
#ifndef NP_ERRAND_H
#define NP_ERRAND_H

#include "daemon/service/child.h"
#include "daemon/service/worker.h"

enum np_errand_kind {
    NP_ERRAND_ROOM,   /* number: free bytes where the folder is, or will be */
    NP_ERRAND_PIPE,   /* fd: its report, opened; the caller's */
    NP_ERRAND_EXIT,   /* text: exit.json, its beginning; -ENOENT: there is none */
    NP_ERRAND_HOLDER, /* text: the process that holds its lock (np_process_text); -ESRCH: none does */
    NP_ERRAND_PROCESS, /* text: the process that has the number; -ESRCH: none */
    NP_ERRAND_UNIT_START, /* text: the unit's process; -ECHILD: it has ended already; -errno, text: why not */
    NP_ERRAND_UNIT_FIND, /* the same; -ESRCH: the unit has no process */
    NP_ERRAND_UNIT_END, /* number: the signal that ended it, 0: none; text: what systemd says of it */
};

struct np_errand {
    enum np_errand_kind kind;
    struct np_child child; /* pid 0: none is under way */
    pid_t left;            /* a killed child of the last errand that has not ended yet; 0: none */
    int failures;          /* in a row: timed out or failed */
    double began, next;    /* on the clock of np_service_ticks(); next: not before */
};

struct np_errand_wish {
    enum np_errand_kind kind;
    uid_t uid; /* whose rights it has; of a unit: the service's own */
    gid_t gid;
    const char *dir; /* the run's folder */
    pid_t pid;       /* PROCESS */
    const struct np_units *units;
    int64_t id;
    const struct np_worker_start *start; /* UNIT_START */
    struct np_worker_exit *exit;         /* UNIT_END: what is known already */
};

struct np_errand_answer {
    int code;
    double number;
    int fd;           /* -1: none */
    const char *text; /* lent until np_errand_end() */
};

#define NP_ERRAND_S      10.0 /* time limit of an errand; of one that asks systemd: the next */
#define NP_ERRAND_UNIT_S 60.0

/* Starts the child. *wish and its strings may be freed afterwards. -EBUSY: as np_child_start(). */
int np_errand_begin(struct np_errand *errand, const struct np_errand_wish *wish, int epoll_fd,
    double now, struct np_err *err);
/* 1: *ret_answer is the answer; 0: not yet; -ETIMEDOUT: it took too long; -EIO: it died without an answer. After all
 * but 0 call np_errand_end(). */
int np_errand_turn(struct np_errand *errand, struct np_errand_answer *ret_answer);
/* Frees the answer. failed: the next errand waits, longer after each failure in a row. */
void np_errand_end(struct np_errand *errand, bool failed, double now);
/* May the next errand begin? Its wait is over, and the last child has ended. */
bool np_errand_may(struct np_errand *errand, double now);

#endif
