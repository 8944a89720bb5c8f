/* What the service has in memory: its settings, its runs, and their workers. Everything else in this folder that is
 * named after the service works on it; nothing here writes to the queue's file (commit.h). The service's thread. */
#ifndef NP_BOOK_H
#define NP_BOOK_H

#include "daemon/service/access.h"
#include "daemon/service/cgroup.h"
#include "daemon/service/child.h"
#include "daemon/service/errand.h"
#include "daemon/service/names.h"
#include "daemon/service/queue.h"
#include "daemon/service/service_options.h"
#include "daemon/service/token.h"
#include "daemon/service/worker.h"
#include "daemon/ui/progress_fields.h"

/* dir: of the queue's file, the token and what is in force; made where it is not there. config: service.yaml, or
 * NULL: what is built in. */
struct np_service_start {
    const char *dir, *config, *socket;
    const char *vfs; /* of the queue's file, for tests; NULL: SQLite's own */
    bool for_box;
    const struct np_units *units; /* of systemd: runs are units; NULL: children. Lent */
    /* "RELOADING", "READY", "STOPPING", for who started the daemon; NULL: nobody asks */
    void (*say)(void *context, const char *state);
    void *context;
};

struct np_service_run {
    struct np_entry entry;
    struct np_worker worker; /* pid 0: none */
    struct np_worker_exit left;
    bool ended;              /* its worker has ended; the queue's file does not say so yet */
    struct np_errand errand; /* the one under way, about its folder or process */
    struct np_worker found;  /* a process that may be its worker; not confirmed yet */
    bool starting;           /* systemd has been asked for its worker */
    bool lost;       /* an errand is finding out whether its worker of an earlier daemon lives */
    bool no_lock;    /* no process holds its lock; its unit is asked next */
    bool over;       /* its worker has ended, and what it left is being read */
    bool read;       /* exit.json was read; its unit is asked next */
    bool absent;     /* its worker ended while no daemon was there */
    bool silent;     /* its report cannot be opened, and its reason says so */
    bool wants_room; /* an errand is measuring its disk's free space, since asked_at */
    bool full;       /* queued, and its owner has as many runs running as running_per_user allows */
    double asked_at;
    double room, room_until; /* free bytes, and how long that holds */
    bool never_began;        /* the daemon died before this worker started */
    bool unstarted;          /* no process could be started for it */
    int waits;               /* ends in a row that do not count as tries (decide.h) */
    bool hung;               /* it made no progress, and was killed for that */
    double
        spare; /* bytes of checkpoints that may be removed, once it is over; -1: not measured yet */
    double born;      /* when its worker began, by np_service_ticks() */
    double lived_s;   /* running time of its worker, or of its last one */
    bool noted;       /* its end was counted for its device and for the machine */
    char died_on[32]; /* as in the entry, once its end is written there */
    double killed;    /* when it was first sent SIGKILL, by np_service_ticks(); 0: it was not */
    double told;      /* when it was told to stop, by np_service_ticks(); 0: it was not */
    double went_on;   /* when it last made progress, by the same */
    double listen_at; /* when its pipe is opened or read again, by the same */
    double at;        /* batches done at went_on */
    struct np_progress progress; /* as its worker last reported it; `said` NAN: it has not */
    char line[4096];             /* of the report, under way */
    size_t used;
};

struct np_service {
    struct np_service_start start;
    struct np_service_options options;
    struct np_access access;
    char problem[256];              /* with the daemon's sockets; "": none */
    char token[NP_TOKEN_CHARS + 1]; /* the administrator's */
    struct np_queue *queue;
    struct np_service_run **runs;    /* by id */
    const struct np_entry **entries; /* the same, for dispatch and routes */
    int nr_runs;
    size_t runs_room, entries_room;
    int epoll_fd, signal_fd;
    struct np_retention *retention;
    struct np_notifiers *notifiers;
    struct np_child finder; /* of devices; pid 0: none */
    struct np_names *names;
    double find_at; /* when it is started again if it has not answered; 0: never */
    bool stopping;
    bool replaced; /* its program's file was: runs would be started with another's parts */
#define NP_REPLACED "nnpipe was replaced while its daemon was running: restart the daemon"
    bool held;               /* nothing is started */
    struct np_cgroup cgroup; /* that its runs' are made in */
    double began;            /* Unix time */
    int nr_unstarted;        /* starts in a row for which the machine had no process */
    double start_at;         /* no run is started before this, by np_service_ticks() */
    uint64_t version;
    void (*turn)(void *context); /* http's */
    void *turn_context;
};

double np_service_now(void);   /* Unix time: what is said and kept */
double np_service_ticks(void); /* CLOCK_MONOTONIC, in seconds: for limits and timeouts */
/* Wakes the loop when fd is readable, until fd is closed. */
int np_service_wake_on(struct np_service *service, int fd, struct np_err *err);

/* Room for one more run, so that one that is in the file finds its place in memory. -ENOMEM. */
int np_book_make_room(struct np_service *service, struct np_err *err);
/* Adds a run (service: for np_queue_read()) with copies of entry's texts. -ENOMEM. */
int np_book_add(void *service, const struct np_entry *entry, struct np_err *err);
void np_book_drop(struct np_service *service, struct np_service_run *run);
/* By number; NULL: there is none. */
struct np_service_run *np_book_run(const struct np_service *service, int64_t id);
/* A run's user's name, or their number while it is not known; lent until the next call. */
const char *np_book_owner(const struct np_service *service, const struct np_entry *entry);
/* Fills in entry->user, once the name is known; later it may be another user's. */
void np_book_name_user(const struct np_service *service, struct np_entry *entry);

/* Resets what is known of the run's worker: a new one begins now. */
void np_book_new_worker(struct np_service_run *run);
/* The run has this worker from now on; a stop that was asked for before it existed is sent to it. */
void np_book_take_worker(
    struct np_service *service, struct np_service_run *run, const struct np_worker *worker);
/* Asks the run's worker, where it has one, to write its checkpoint and end; once. */
void np_service_request_stop(struct np_service_run *run);

#endif
