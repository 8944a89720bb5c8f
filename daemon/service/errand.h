/* An errand is a short-lived child that looks at a run's folder or process, with the owner's
 * rights (also in a user's own service): the service's thread opens no path below a run's folder,
 * so it never waits for storage. A child that exceeds its time limit is killed; if hanging storage
 * delays even that, the run's next errand waits until the child has ended. Called by the service's
 * thread. */
#ifndef NP_ERRAND_H
#define NP_ERRAND_H

#include "daemon/service/child.h"
#include "daemon/service/worker.h"

enum np_errand_kind {
    NP_ERRAND_ROOM,    /* number: free bytes where the folder is, or will be */
    NP_ERRAND_PIPE,    /* fd: its report, opened; the caller closes it */
    NP_ERRAND_EXIT,    /* text: the start of exit.json; -ENOENT: no such file */
    NP_ERRAND_HOLDER,  /* text: the process that holds its lock (np_process_text); -ESRCH: none */
    NP_ERRAND_PROCESS, /* text: the process with this PID; -ESRCH: none */
    NP_ERRAND_UNIT_START, /* text: the unit's process; -ECHILD: it has ended; -errno, text: error */
    NP_ERRAND_UNIT_FIND,  /* the same; -ESRCH: the unit has no process */
    NP_ERRAND_UNIT_END,   /* number: the signal that ended it, or 0; text: systemd's explanation */
};

struct np_errand {
    enum np_errand_kind kind;
    struct np_child child;
    pid_t left;   /* a killed child of the last errand that has not ended; 0: none */
    int failures; /* in a row */
    double next;  /* earliest start of the next errand, by np_book_ticks() */
};

struct np_errand_request {
    enum np_errand_kind kind;
    uid_t uid; /* the child's; for units: the service's own */
    gid_t gid;
    const char *dir;
    pid_t pid; /* PROCESS */
    const struct np_units *units;
    int64_t id;
    const struct np_worker_start *start; /* UNIT_START */
    struct np_worker_exit *exit;         /* UNIT_END: the facts known so far */
};

struct np_errand_answer {
    int code; /* 0 or -errno; -ETIMEDOUT: too late; -EIO: the child died without an answer */
    double number;
    int fd;           /* -1: none */
    const char *text; /* borrowed until np_errand_end() */
};

/* Starts the child; *request and its texts may be freed afterwards. Errors as np_child_start(). */
int np_errand_begin(struct np_errand *errand, const struct np_errand_request *request, int epoll_fd,
    struct np_err *err);
/* Takes the answer; then call np_errand_end(). False: no answer yet. */
bool np_errand_turn(struct np_errand *errand, struct np_errand_answer *ret_answer);
/* Frees the answer. failed: the next errand is delayed, longer after each failure in a row. */
void np_errand_end(struct np_errand *errand, bool failed, double now);
/* May the next errand begin: is its delay over, and has the last child ended? */
bool np_errand_may(struct np_errand *errand, double now);

#endif
