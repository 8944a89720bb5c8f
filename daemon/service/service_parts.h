/* Between the service_*.c files. */
#ifndef NP_SERVICE_PARTS_H
#define NP_SERVICE_PARTS_H

#include "loader/base/json.h"
#include "daemon/service/cgroup.h"
#include "daemon/service/notify.h"
#include "daemon/service/errand.h"
#include "daemon/service/retention.h"
#include "daemon/service/names.h"
#include "daemon/service/service.h"
#include "daemon/service/token.h"
#include "daemon/service/worker.h"

#define NP_DISK_WAIT_S 5.0 /* before a run whose disk is full is tried again */

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
    bool unbegun;            /* the daemon died before this worker started */
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
    struct np_progress progress;
    char line[4096]; /* of the report, under way */
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
    int nr_runs, room;
    int epoll_fd, signal_fd, timer_fd;
    struct np_json json; /* a run that is over, for on_end and webhook */
    struct np_retention retention;
    struct np_notifiers notifiers;
    struct np_steady clock;
    struct np_child finder; /* of devices; pid 0: none */
    struct np_names *names;
    double find_at; /* when it is started again if it has not answered; 0: never */
    bool stopping;
    bool replaced; /* its program's file was: runs would be started with another's parts */
    bool held;     /* nothing is started */
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
int np_service_add(void *service, const struct np_entry *entry, struct np_err *err);
void np_service_drop(struct np_service *service, int index);
struct np_service_run *np_service_run_of(const struct np_service *service, int64_t id);
/* Into the file, then into memory: *run's entry becomes *to (its texts are the entry's own). */
int np_service_commit(struct np_service *service, struct np_service_run *run,
    const struct np_entry *to, struct np_err *err);
/* service_limits.c: of a child that is about to start: *ret_fd: cgroup.procs of its group, the caller's to close; it stays
 * where the run has no limits. */
int np_service_enter_group(const struct np_service *service, const struct np_entry *entry,
    int *ret_fd, struct np_err *err);
/* The settings have default limits of memory or CPUs that this service cannot enforce: sets text, for /healthz. */
#define NP_LIMITS_TEXT 512
bool np_service_lacks_limits(const struct np_service *service, char *text, size_t bytes);
/* The same for the log, once the settings are in force. */
void np_service_warn_of_limits(const struct np_service *service);
/* Marks the queued runs that limits.running_per_user keeps from starting. */
void np_service_mark_full(struct np_service *service);
/* Its worker has ended: removes the group; run->left's reason says so where it needed more memory than its limit. */
void np_service_leave_group(const struct np_service *service, struct np_service_run *run);
/* service_queue.c: sets `drained` of devices, and `held`, from the queue's file. */
int np_service_mark_drained(struct np_service *service, struct np_err *err);
/* Gives queued runs that wait for a suspect device that reason. */
void np_service_say_suspects(struct np_service *service);
/* Takes down the running time of a run that has a worker, and stops it at its time limit. */
void np_service_watch_time(struct np_service *service, struct np_service_run *run);
/* Its worker has ended: adds its running time to *to, whose state becomes timeout where the limit is reached. */
void np_service_count_time(const struct np_service_run *run, struct np_entry *to);
/* Finds out whether another file has taken the place of the program's; then queued runs get that reason. It stays so
 * until a restart. */
#define NP_REPLACED "nnpipe was replaced while its daemon was running: restart the daemon"
void np_service_look_at_program(struct np_service *service);
/* service_open.c: gives queued runs whose device is missing that reason. */
void np_service_say_unplaced(struct np_service *service);
/* service_errands.c: begins a run's next errand, and takes the answer of the one under way. */
void np_service_run_errands(struct np_service *service, struct np_service_run *run);
/* Begins to look for the worker that an earlier daemon started for this run. */
void np_service_adopt(struct np_service *service, struct np_service_run *run);
/* service_life.c: a worker's beginning, signs of life, and end. */
int np_service_begin(
    struct np_service *service, struct np_service_run *run, const char *device, struct np_err *err);
/* 0: its disk has room; 1: it has not, or does not answer, so the run waits, and says so; 2: it is being asked;
 * -errno. */
int np_service_await_room(
    struct np_service *service, struct np_service_run *run, struct np_err *err);
/* A queued run is not started before so many seconds from now, and says why. */
int np_service_put_off(struct np_service *service, struct np_service_run *run, double seconds,
    const char *why, struct np_err *err);
/* Watches the worker; sends it a stop that was asked for before it existed. */
void np_service_take_worker(
    struct np_service *service, struct np_service_run *run, const struct np_worker *worker);
void np_service_tell(struct np_service *service, struct np_service_run *run); /* to stop */
void np_service_look_after(struct np_service *service, struct np_service_run *run);
void np_service_begin_life(
    struct np_service_run *run); /* born is now; resets what is known of its worker */
/* run_json.c: a run's user's name, or their number while it is not known; lent until the next call. */
const char *np_service_owner(const struct np_service *service, const struct np_entry *entry);
/* The fields of RUN (docs/SERVICE.md), into the object that is open. Not whole: without names of users and files. */
void np_service_write_run(const struct np_service *service, struct np_json *json,
    const struct np_entry *entry, bool whole);
/* service_options.c */
int np_service_options_read(
    const char *path, struct np_service_options *ret_options, struct np_err *err);
void np_service_options_fini(struct np_service_options *options);

#endif
