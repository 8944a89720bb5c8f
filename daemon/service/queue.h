/* The queue: every run that was submitted, in one SQLite file (WAL, synchronous=EXTRA). A call that has
 * returned 0 is on the disk, and a power cut does not take it back. The service's thread alone. */
#ifndef NP_QUEUE_H
#define NP_QUEUE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "loader/base/err.h"

/* What a run is at. Each is reached from the one before, or from where the arrows say:
 *
 *   queued -> running -> done | failed
 *             running -> pausing -> paused -> queued   pause, resume
 *             running -> yielding -> queued            a run of higher priority wants the device
 *             running -> stopping -> stopped | timeout   told to; its time limit is over
 *   queued, paused -> stopped                          nothing to wait for
 *   queued, paused -> failed                           what it comes after will never be done
 *   running -> queued                                  its worker died: another try, not before a time
 *   stopped, failed, timeout -> queued                 retry: from its checkpoint
 */
enum np_entry_state {
    NP_ENTRY_QUEUED,
    NP_ENTRY_RUNNING,
    NP_ENTRY_PAUSING,
    NP_ENTRY_YIELDING,
    NP_ENTRY_STOPPING,
    NP_ENTRY_PAUSED,
    NP_ENTRY_STOPPED,
    NP_ENTRY_DONE,
    NP_ENTRY_FAILED,
    NP_ENTRY_TIMEOUT,
    NP_NR_ENTRY_STATES
};
extern const char *const np_entry_states[NP_NR_ENTRY_STATES];

#define NP_MAX_AFTER 16

struct np_entry {
    int64_t id; /* from 1 on, never given twice */
    char key
        [40]; /* the client's own, or "": who submits twice for want of an answer gets the same run */
    char name[64]; /* letters, digits, - _ . */
    uid_t uid;     /* the submitter's */
    gid_t gid;
    char user[40]; /* the submitter's name, once it is known; "": it is not, or they have none */
    char *path;    /* of the config, as it was named; np_free */
    char *config;  /* its normal form, which a later edit does not change; np_free. Of what is added
                        * alone: NULL in what is read, for np_queue_text() reads it when it is needed */
    char *environment; /* the same: of the submitter's, "NAME=VALUE" a line, or NULL */
    char *overrides;   /* as they were submitted, a line each, or NULL; np_free */
    char *on_end;      /* the submitter's command for its end (hook.h), or NULL; np_free */
    char device[32];   /* wanted: "auto", or one by name */
    int64_t priority;  /* -100..100, higher first */
    int64_t max_retries;
    int64_t after[NP_MAX_AFTER]; /* ids that must be done first */
    int nr_after;
    int64_t umask; /* the submitter's, for what the run writes; -1: the service's own */

    char died_on
        [32]; /* the device of its last death, for the next start; not in the file; "": none */

    /* these change */
    enum np_entry_state state;
    char assigned[32]; /* the device it runs on; "": none */
    char process[96];  /* its worker: "PID START BOOT" (np_process_text); "": none, or not known */
    char kind[8];      /* of the device it first began on: "gpu", "cpu", "sim"; "": not begun */
    char *dir;         /* its run folder, RUNS/NAME-ID; np_free */
    char reason[512];  /* why it waits, failed, or was tried again; "" */
    int64_t attempt;   /* how often it was started */
    int64_t retries;   /* so far, since it last made progress */
    int64_t exit_code; /* of its last worker; -1: none has ended */
    double not_before; /* Unix time; it is not started before */
    double submitted, started, ended; /* Unix time; 0: not yet */
    double time_limit_s;              /* that it may run, all attempts together; 0: any */
    double ran_s;                     /* that its attempts before this one ran */
    double lived_s;                   /* and this one so far, as far as it was written down */
    int64_t memory_bytes;             /* that its processes may use; 0: any */
    double cpus;                      /* CPUs' worth of time that they may use; 0: any */
    bool
        unready; /* not in the file: passed over: its disk does not answer, or its folder is being pruned */
    bool told; /* on_end and webhook have been told that it is over */
};
void np_entry_fini(struct np_entry *entry);
bool np_entry_is_over(const struct np_entry *entry); /* stopped, done, failed, timeout */
bool np_entry_has_worker(const struct np_entry *entry);

struct np_queue;
/* Makes the file, 0600, where there is none. A damaged one, or one of a later nnpipe, is left as it is:
 * -EBADMSG. -EAGAIN: another daemon has it. vfs: SQLite's name of one; NULL: its own. */
int np_queue_open(
    const char *path, const char *vfs, struct np_queue **ret_queue, struct np_err *err);
void np_queue_close(struct np_queue *queue);
/* entry's dir is the folder of runs; the new one's is NAME-ID in it. *ret_id: the new run's; *ret_known: the key was there already, nothing was added, and it is that run's. */
int np_queue_add(struct np_queue *queue, const struct np_entry *entry, int64_t *ret_id,
    bool *ret_known, struct np_err *err);
/* What changes of an entry; its config is not written again. */
int np_queue_update(struct np_queue *queue, const struct np_entry *entry, struct np_err *err);
int np_queue_remove(struct np_queue *queue, int64_t id, struct np_err *err);
/* A device that gets no new runs until this is undone, NP_ALL_DEVICES: none does. */
#define NP_ALL_DEVICES "*"
int np_queue_drain(struct np_queue *queue, const char *device, bool drained, struct np_err *err);
/* Those; each is lent to `each` for the call. */
int np_queue_drained(struct np_queue *queue, void (*each)(void *context, const char *device),
    void *context, struct np_err *err);
/* All entries by id, without config and environment; each is lent to `each` for the call. */
int np_queue_read(struct np_queue *queue,
    int (*each)(void *context, const struct np_entry *entry, struct np_err *err), void *context,
    struct np_err *err);
/* A run's config and environment; np_free. -ENOENT: there is no such run. */
int np_queue_text(struct np_queue *queue, int64_t id, char **ret_config, char **ret_environment,
    struct np_err *err);

/* A user's token for TCP, as the hex digits of its SHA-256; replaces the one before. */
int np_queue_set_token(
    struct np_queue *queue, uid_t uid, const char *hash, double now, struct np_err *err);
int np_queue_drop_token(struct np_queue *queue, uid_t uid, struct np_err *err);
/* Whose token it is; *ret_found: somebody's. */
int np_queue_find_token(
    struct np_queue *queue, const char *hash, uid_t *ret_uid, bool *ret_found, struct np_err *err);

#endif
