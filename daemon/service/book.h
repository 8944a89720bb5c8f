/* The service's state: its settings, its runs and their workers. All service_*.c files work on
 * it. A run changes first in the queue's file, then in memory. Called by the service's thread. */
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
 * path of service.yaml, or NULL for the defaults. */
struct np_service_start {
    const char *dir, *config, *socket;
    bool for_box;
    const struct np_units *units; /* runs are systemd units; NULL: children. Borrowed */
    /* Called with "RELOADING", "READY" and "STOPPING", for systemd; NULL: none */
    void (*notify)(void *context, const char *state);
    void (*turn)(void *context); /* called in each turn of the loop; NULL: none */
    void *context;
};

struct np_service_run {
    struct np_entry entry;
    struct np_worker worker; /* pid 0: none */
    struct np_worker_exit left;
    bool ended;              /* its worker has ended; not yet recorded in the queue's file */
    struct np_errand errand; /* the current one, on its folder or process */
    struct np_worker found;  /* a process that may be its worker, to be confirmed */
    bool starting;           /* systemd is starting its worker */
    bool lost;       /* an errand checks whether its worker from an earlier daemon still runs */
    bool no_lock;    /* no process holds its lock; next, systemd is asked about its unit */
    bool over;       /* its worker has ended, and exit.json is being read */
    bool read;       /* exit.json was read; next, systemd is asked about its unit */
    bool absent;     /* its worker ended while no daemon was running */
    bool silent;     /* its report cannot be opened, as its reason explains */
    bool wants_room; /* an errand measures its disk's free space, since asked_at */
    bool full;       /* queued, but its owner has running_per_user runs running */
    double asked_at;
    double room, room_until; /* free bytes, valid until room_until */
    bool never_began;        /* the daemon died before this worker started */
    bool unstarted;          /* no process could be started for it */
    int waits;               /* ends in a row that do not count as attempts (decide.h) */
    bool hung;               /* it was killed because it made no progress */
    double spare;     /* bytes of checkpoints that may be removed after its end; -1: not measured */
    double born;      /* when its worker started, by np_book_ticks() */
    double lived_s;   /* running time of its current or last worker */
    bool noted;       /* its end was counted for its device and its machine */
    char died_on[32]; /* as in the entry, once its end is recorded there */
    double killed;    /* when it was first sent SIGKILL, by np_book_ticks(); 0: never */
    double stop_asked;           /* when it was asked to stop, by np_book_ticks(); 0: never */
    double progressed;           /* when it last made progress, by np_book_ticks() */
    double listen_at;            /* when its pipe is next opened or read, by np_book_ticks() */
    double at;                   /* batches done at progressed */
    struct np_progress progress; /* as its worker last reported it; `said` NAN: never */
    char line[4096];             /* the report's incomplete last line */
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
    const struct np_entry **entries; /* their entries, for dispatch and routes */
    int nr_runs;
    size_t runs_room, entries_room;
    int epoll_fd, signal_fd;
    struct np_retention *retention;
    struct np_notifiers *notifiers;
    struct np_child finder; /* asks for the devices; pid 0: none */
    struct np_names *names;
    double find_at; /* when to start it again if it has not answered; 0: never */
    bool stopping;
    bool replaced; /* its program file was replaced: new runs would load parts of another version */
#define NP_REPLACED "nnpipe was replaced while its daemon was running: restart the daemon"
    bool held;               /* no run is started */
    struct np_cgroup cgroup; /* parent of its runs' cgroups */
    double began;            /* Unix time */
    int nr_unstarted;        /* starts in a row for which no process was available */
    double start_at;         /* no run is started before this, by np_book_ticks() */
    uint64_t version;
};

double np_book_now(void);   /* Unix time: for users and files */
double np_book_ticks(void); /* CLOCK_MONOTONIC in seconds: for limits and timeouts */
/* Wakes the loop when fd becomes readable, until fd is closed. */
int np_book_wake_on(struct np_service *service, int fd, struct np_err *err);

/* Allocates room for one more run, so that a run added to the file fits into memory. -ENOMEM. */
int np_book_make_room(struct np_service *service, struct np_err *err);
/* Adds a run with copies of entry's texts; context: the service (a callback of np_queue_read()).
 * -ENOMEM. */
int np_book_add(void *context, const struct np_entry *entry, struct np_err *err);
void np_book_drop(struct np_service *service, struct np_service_run *run);
struct np_service_run *np_book_run(const struct np_service *service, int64_t id); /* or NULL */
/* The name of a run's owner, or the number while the name is unknown; borrowed until the next
 * call. */
const char *np_book_owner(const struct np_service *service, const struct np_entry *entry);
/* Sets entry->user once the name is known: a number may belong to another user later. */
void np_book_name_user(const struct np_service *service, struct np_entry *entry);

/* Replaces run's entry by *to, which shares its texts. On failure the entry is unchanged; errors
 * as np_queue_update(). */
int np_book_commit(struct np_service *service, struct np_service_run *run,
    const struct np_entry *to, struct np_err *err);
/* Sets the run's reason; if the file cannot be written, the reason is unchanged. */
void np_book_set_reason(struct np_service *service, struct np_service_run *run, const char *format,
    ...) __attribute__((format(printf, 3, 4)));
/* Delays the start of a queued run by so many seconds; why becomes its reason. */
int np_book_delay(struct np_service *service, struct np_service_run *run, double seconds,
    const char *why, struct np_err *err);
/* Does the end of this run need a notification (notify.h)? */
bool np_book_notifies(const struct np_service_options *options, const struct np_entry *entry);

/* Resets the state of the run's worker, because a new one starts. */
void np_book_new_worker(struct np_service_run *run);
/* The start failed: that is a death at once, for this reason. */
void np_book_unstarted(struct np_service_run *run, const char *why);
/* Gives the run its worker; asks it to stop if a stop was requested before it existed. */
void np_book_take_worker(
    struct np_service *service, struct np_service_run *run, const struct np_worker *worker);
/* Asks the run's worker, if any, to write a checkpoint and end; sends one signal only. */
void np_book_request_stop(struct np_service_run *run);

#endif
