/* The service's state: settings, runs and their workers. A run changes first in the queue's file,
 * then in memory. Called by the service's thread. */
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

/* dir: folder of the queue's file, the token and the known devices; created if missing. config:
 * service.yaml; NULL: the defaults. */
struct np_service_start {
    const char *dir, *config, *socket;
    bool for_box;
    const struct np_units *units; /* runs are systemd units; NULL: children. Borrowed */
    /* Called with "RELOADING", "READY" and "STOPPING", for systemd. Optional: NULL */
    void (*notify)(void *context, const char *state);
    void (*turn)(void *context); /* called in each turn of the loop. Optional: NULL */
    void *context;
};

struct np_service_run {
    struct np_entry entry;
    struct np_worker worker;
    struct np_worker_exit left;
    bool ended; /* its worker's end is not yet in the queue's file */
    struct np_errand errand;
    struct np_worker found; /* a process that may be its worker, to be confirmed */
    bool starting;          /* systemd is starting its worker */
    bool lost;              /* an errand checks whether an earlier daemon's worker still runs */
    bool no_lock;      /* no process holds its lock; the next errand asks systemd about its unit */
    bool over;         /* its worker has ended; an errand reads exit.json */
    bool read;         /* exit.json was read; the next errand asks systemd about its unit */
    bool absent;       /* its worker ended while no daemon was running */
    bool silent;       /* its report cannot be opened; its reason has the error */
    bool wants_room;   /* since asked_at an errand measures the free space of its disk */
    bool full;         /* queued, but its owner has running_per_user runs running */
    uint64_t reserved; /* devices that are kept free for it, a bit for the index of each */
    int nr_reserved;   /* slots on them */
    double asked_at;
    double room, room_until;           /* free bytes, valid until room_until */
    bool never_began, unstarted, hung; /* as in struct np_end */
    int waits;                         /* ends in a row that do not count as attempts (decide.h) */
    double spare;     /* bytes of checkpoints that retention may prune; -1: not measured */
    double lived_s;   /* running time of its current or last worker */
    bool noted;       /* its end was counted for its device and its machine */
    char died_on[32]; /* for the entry, which gets it with the end */
    /* Times by np_book_ticks(); 0: never */
    double born;       /* start of its worker */
    double killed;     /* first SIGKILL */
    double stop_asked; /* request to stop */
    double progressed; /* last progress, and `at` the batches done then */
    double at;
    double listen_at;            /* next time to open or read its report */
    struct np_progress progress; /* its worker's last report; `said` NAN: none */
    char line[4096];             /* the report's incomplete last line */
    size_t used;
};

struct np_service {
    struct np_service_start start;
    struct np_service_options options;
    struct np_access access;
    char problem[256];              /* of the daemon's sockets; "": none */
    char token[NP_TOKEN_CHARS + 1]; /* the administrator's */
    struct np_queue *queue;
    struct np_service_run **runs;    /* by id */
    const struct np_entry **entries; /* of runs, for dispatch and routes */
    int nr_runs;
    size_t runs_room, entries_room;
    int epoll_fd, signal_fd;
    struct np_retention *retention;
    struct np_notifiers *notifiers;
    struct np_child finder; /* `nnpipe devices` */
    struct np_names *names;
    double find_at; /* when to start finder again; 0: not needed */
    bool stopping;
    bool replaced; /* another nnpipe is installed: new runs would load parts of it */
#define NP_REPLACED "nnpipe was replaced while its daemon was running: restart the daemon"
    bool held;               /* the whole queue */
    struct np_cgroup cgroup; /* parent of its runs' cgroups */
    double began;            /* Unix time */
    int nr_unstarted;        /* starts in a row that got no process */
    double start_at;         /* the earliest next start, by np_book_ticks() */
    uint64_t version;        /* of runs, settings and names: for the ETag of lists */
};

double np_book_now(void);   /* Unix time: for users and files */
double np_book_ticks(void); /* CLOCK_MONOTONIC in seconds: for limits and timeouts */
/* Wakes the loop when fd becomes readable, until fd is closed. */
int np_book_wake_on(struct np_service *service, int fd, struct np_err *err);

/* Allocates memory for one more run, before the run is added to the file. -ENOMEM. */
int np_book_make_room(struct np_service *service, struct np_err *err);
/* Adds a run with copies of entry's texts. A callback of np_queue_read(); context: the service.
 * -ENOMEM. */
int np_book_add(void *context, const struct np_entry *entry, struct np_err *err);
void np_book_drop(struct np_service *service, struct np_service_run *run);
struct np_service_run *np_book_run(const struct np_service *service, int64_t id); /* or NULL */
/* The owner's name, or the number while the name is unknown; borrowed until the next call. */
const char *np_book_owner(const struct np_service *service, const struct np_entry *entry);
/* Sets entry->user once the name is known: the number may belong to another user later. */
void np_book_name_user(const struct np_service *service, struct np_entry *entry);

/* Replaces run's entry by *to, which shares its texts. On failure the entry is unchanged; errors
 * as np_queue_update(). */
int np_book_commit(struct np_service *service, struct np_service_run *run,
    const struct np_entry *to, struct np_err *err);
/* If the file cannot be written, the reason is unchanged. */
void np_book_set_reason(struct np_service *service, struct np_service_run *run, const char *format,
    ...) __attribute__((format(printf, 3, 4)));
/* Delays the start of a queued run; why becomes its reason. */
int np_book_delay(struct np_service *service, struct np_service_run *run, double seconds,
    const char *why, struct np_err *err);
bool np_book_notifies(const struct np_service_options *options, const struct np_entry *entry);

/* Resets the fields of the run's last worker. */
void np_book_new_worker(struct np_service_run *run);
/* Records that no process could be started: the run ends at once, for this reason. */
void np_book_unstarted(struct np_service_run *run, const char *why);
/* Gives the run its worker, and asks it to stop if the run is stopping already. */
void np_book_take_worker(
    struct np_service *service, struct np_service_run *run, const struct np_worker *worker);
/* Asks the run's worker, if any, to write a checkpoint and end. Only the first call sends the
 * signal. */
void np_book_request_stop(struct np_service_run *run);

#endif
