/* The service: keeps runs, starts them one process each, and answers for them.
 *
 *   nnpipe submit, ls, ...   the page   Prometheus
 *            |                  |           |        HTTP/1.1 + JSON (docs/SERVICE.md, docs/openapi.json)
 *            v                  v           v
 *        http.c   the socket and, where asked for, loopback TCP: bytes -> requests of callers (libmicrohttpd)
 *            v
 *        routes.c   request -> may they (access.c)? -> a call below -> JSON
 *            v
 *        service.c   the one loop: entries, devices, timers; carries out what dispatch.c orders
 *          |      |
 *          v      v
 *      queue.c  worker.c   a process a run (a unit of systemd's: worker_unit.c): started, watched over a pipe,
 *      (SQLite)   |        told to stop, found again
 *                 v
 *             run folder: config.yaml, checkpoints, metrics.jsonl, output/, report (the pipe)
 *
 * Beside it short-lived processes with the rights of a run's owner, so that the loop waits for nobody's disk
 * (child.c, as_user.c): a submission's check (checker.c), its log and curves (reader.c), old checkpoints (keep.c);
 * and one that tells of a run that is over (ending.c).
 *
 * One thread, one epoll: nothing here is locked. The queue's file is the truth of what is to be done, a run's
 * folder of what was done; all else can be lost at any moment. A change is in the file before it is answered
 * or carried out. */
#ifndef NP_SERVICE_H
#define NP_SERVICE_H

#include <stdio.h>

#include "daemon/service/http/access.h"
#include "daemon/service/dispatch.h"
#include "daemon/service/queue.h"
#include "daemon/ui/progress_fields.h"

/* Of a box's members; config_bytes, checks, memory_per_run and cpus_per_run hold for root and in a user's own service,
 * too. */
struct np_limits {
    int64_t queued_per_user;  /* runs that are not over, of one user */
    int64_t running_per_user; /* 0: any number */
    int64_t config_bytes;     /* of a config, as it is sent and in its normal form */
    int64_t checks;           /* of submissions at a time; of one caller half of them */
    int64_t priority_max;     /* that a member may give a run; lower ones are free */
    int64_t memory_per_run;   /* bytes, of one that is submitted without; 0: any */
    double cpus_per_run;      /* the same; 0: any */
};

/* service.yaml, as it is in force. */
struct np_service_options {
    struct np_slotted *devices; /* `devices: auto` is what `nnpipe devices` says */
    int nr_devices;
    int auto_slots; /* `devices: auto`: of each that is found; 0: the list is the settings' own */
    bool preempt;
    double retry_first_s, retry_cap_s; /* doubled from one try to the next */
    double hang_s;                     /* without a sign of progress: a worker is ended */
    double stop_s;                     /* that a worker has to write its checkpoint and end */
    struct np_limits limits;
    int64_t keep_runs; /* of each owner, that are over; older ones are forgotten, folders stay */
    double keep_s;
    uint64_t
        keep_bytes; /* of checkpoints of runs that are over, but for the best of each; 0: any (keep.h) */
    uint64_t spare_bytes; /* free on the disk of a run's folder, for it to be started */
    char *on_end;  /* a command, or NULL: run when a run is over; its JSON on standard input */
    char *webhook; /* an URL, or NULL: the same by POST */
    char *listen;  /* "127.0.0.1:7411", or NULL: no TCP */
};

struct np_service;
struct np_units;
/* dir: of the queue's file, the token and what is in force; made where it is not there. config: service.yaml, or
 * NULL: what is built in. Runs that have a worker from before are found again. */
struct np_service_start {
    const char *dir, *config, *socket;
    const char *vfs; /* of the queue's file, for tests; NULL: SQLite's own */
    bool for_box;
    struct np_units *units; /* of systemd: runs are units; NULL: children. Lent */
    /* "RELOADING", "READY", "STOPPING", for who started the daemon; NULL: nobody asks */
    void (*say)(void *context, const char *state);
    void *context;
};
int np_service_open(
    const struct np_service_start *start, struct np_service **ret_service, struct np_err *err);
/* The loop wakes up when fd is readable (until fd is closed), and calls turn in each round. */
int np_service_wake_on(struct np_service *service, int fd, struct np_err *err);
void np_service_each_turn(struct np_service *service, void (*turn)(void *context), void *context);
/* Until SIGTERM or SIGINT: then every run is told to write its checkpoint, and stays queued. */
int np_service_run(struct np_service *service, struct np_err *err);
void np_service_close(struct np_service *service);

/* --- for routes.c: each is in the queue's file when it returns 0 -------------------------------- */

const struct np_access *np_service_access(const struct np_service *service);
/* All, by id; lent until the next call that changes something. */
const struct np_entry *const *np_service_entries(const struct np_service *service, int *ret_nr);
const struct np_entry *np_service_find(const struct np_service *service, int64_t id);
/* A run's progress, as its worker last reported it; `said` NAN: it has not. Lent until the next turn. */
const struct np_progress *np_service_progress(const struct np_service *service, int64_t id);
const struct np_service_options *np_service_options(const struct np_service *service);
/* A run's config in its normal form, read from the queue's file; np_free. */
int np_service_config(struct np_service *service, int64_t id, char **ret_text, struct np_err *err);
/* entry: key, name, uid, gid, path, config, device, priority, max_retries, after, and dir: the folder of runs,
 * in which its own will be NAME-ID; its texts are copied. The
 * config was checked. -ENODEV: no such device; -ENOENT: no such run in after; -EDQUOT: as np_service_may_queue(). */
int np_service_submit(struct np_service *service, const struct np_entry *entry, int64_t *ret_id,
    bool *ret_known, struct np_err *err);
/* -EDQUOT: this user has as many runs that are not over as a member may. */
int np_service_may_queue(const struct np_service *service, uid_t uid, struct np_err *err);
/* -ENOTSUP: the entry has a limit of memory or CPUs, and this service cannot enforce one. */
int np_service_may_limit(
    const struct np_service *service, const struct np_entry *entry, struct np_err *err);
/* Sets the settings' memory and CPU limits where the entry has none of its own and the service can enforce them. */
void np_service_default_limits(const struct np_service *service, struct np_entry *entry);
/* -EALREADY: it is so already; -EINVAL: a run that is over; both leave all as it is. */
int np_service_stop(struct np_service *service, int64_t id, struct np_err *err);
int np_service_pause(struct np_service *service, int64_t id, struct np_err *err);
int np_service_resume(struct np_service *service, int64_t id, struct np_err *err);
/* Queued again, in the same folder, from its checkpoint; retries and running time are counted from zero. time_limit_s
 * below 0: as it was. -EINVAL: it is done, or not over; -ENODEV: its device is gone. */
int np_service_retry(
    struct np_service *service, int64_t id, double time_limit_s, struct np_err *err);
/* A queued run becomes paused, until np_service_resume(). -EINVAL: it is not queued. */
int np_service_hold(struct np_service *service, int64_t id, struct np_err *err);
/* drained: no run is started on the device until it is undrained; running ones continue. -ENOENT: no such device. */
int np_service_drain(
    struct np_service *service, const char *device, bool drained, struct np_err *err);
int np_service_hold_all(struct np_service *service, bool held, struct np_err *err);
bool np_service_is_held(const struct np_service *service);
/* Seconds that its processes have run, since it was submitted or tried again. */
double np_service_ran(const struct np_service *service, const struct np_entry *entry);
int np_service_set_time_limit(
    struct np_service *service, int64_t id, double seconds, struct np_err *err);
int np_service_set_priority(
    struct np_service *service, int64_t id, int64_t priority, struct np_err *err);
/* -EBUSY: it is not over. Its folder stays. */
int np_service_remove(struct np_service *service, int64_t id, struct np_err *err);
/* A problem for /healthz, beside those of the queue's disk; "": none. */
void np_service_set_problem(struct np_service *service, const char *text);
const char *np_service_problem(const struct np_service *service);
/* The administrator's token for TCP; lent, and current for as long as the service lives. */
const char *np_service_token(const struct np_service *service);
/* A new token for a caller on the socket, which takes the place of the one before: the administrator's for root and
 * the service's own user, else the user's own, of which only a hash is kept. */
#define NP_SERVICE_TOKEN_BYTES 65
int np_service_new_token(struct np_service *service, uid_t uid,
    char ret_token[NP_SERVICE_TOKEN_BYTES], struct np_err *err);
/* Revokes the user's own token, where there is one. */
int np_service_drop_token(struct np_service *service, uid_t uid, struct np_err *err);
/* Finds the user who has this token of their own. False: no user has it. */
bool np_service_find_token(struct np_service *service, const char *token, uid_t *ret_uid);
/* service.yaml again; one that is wrong changes nothing. */
int np_service_reload(struct np_service *service, struct np_err *err);
/* A number that grows with every change of an entry or its progress: what long polls wait for. */
uint64_t np_service_version(const struct np_service *service);

#endif
