/* The queue: all submitted runs, in one SQLite file (WAL, synchronous=EXTRA). A change is on the
 * disk and survives a power cut when its call has returned 0. Called by the service's thread only;
 * blocks on the disk. Errors of all calls: -EIO, -ENOSPC, -EBADMSG, -ENOMEM. */
#ifndef NP_QUEUE_H
#define NP_QUEUE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "loader/base/err.h"

/* States of a run, and the causes of a change:
 *
 *   queued -> running -> done | failed
 *             running -> pausing -> paused -> queued   pause, resume
 *             running -> yielding -> queued            a run of higher priority wants the device
 *             running -> stopping -> stopped | timeout   stop, or its time limit
 *   queued, paused -> stopped                          stop
 *   queued, paused -> failed                           a run that it depends on failed
 *   running -> queued                                  its worker died: a retry, after a delay
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
#define NP_MAX_GANG  64                 /* processes of a run */
#define NP_ASSIGNED  (NP_MAX_GANG * 10) /* bytes of their devices' names */

struct np_entry {
    /* all char *: np_free */
    int64_t id;     /* from 1 on, never reused */
    char key[40];   /* the client's: a repeated submission with it gets the same run; "": none */
    char name[64];  /* letters, digits, - _ . */
    char sweep[64]; /* name of the sweep that it belongs to, as name; "": none */
    uid_t uid;      /* the submitter's */
    gid_t gid;
    char user[40]; /* the submitter's name; "": not known yet, or none */
    char *path;    /* of the config, as submitted */
    /* The resolved config and the submitter's environment ("NAME=VALUE" a line, or NULL): for
     * np_queue_add() only; else NULL, and np_queue_text() reads them. */
    char *config, *environment;
    char *overrides; /* as submitted, one a line, or NULL */
    char *on_end;    /* the submitter's on_end command (hook.h), or NULL */
    char device[32]; /* requested: "auto" or a device's name */
    /* Each has a GPU of its own, or a slot of the CPU or the sim device; 0 is 1. */
    int64_t processes;
    int64_t priority; /* -100..100, higher first */
    int64_t max_retries;
    int64_t after[NP_MAX_AFTER]; /* IDs of runs that must be done first */
    int nr_after;
    int64_t umask;    /* the submitter's, for the run's files; -1: the service's own */
    char died_on[32]; /* device of its last death, or ""; not in the file */

    /* these change */
    enum np_entry_state state;
    /* The devices it runs on, of rank 0 first: "cuda:1", "cuda:0,cuda:3"; "cpu" for all of its
     * processes. "": none. */
    char assigned[NP_ASSIGNED];
    double reserves;   /* Unix time since when devices are kept free for it; 0: none are */
    char process[96];  /* its worker: "PID START BOOT" (np_process_text); "": none, or unknown */
    char kind[8];      /* kind of its first device: "gpu", "cpu", "sim"; "": not started yet */
    char *dir;         /* its run folder, RUNS/NAME-ID */
    char reason[512];  /* why it waits, failed, or is retried; "": none */
    int64_t attempt;   /* number of starts */
    int64_t retries;   /* in a row without progress */
    int64_t exit_code; /* of its last worker; -1: none has ended */
    double not_before; /* Unix time; the earliest next start */
    double submitted, started, ended; /* Unix time; 0: not yet */
    double time_limit_s;              /* running time of all attempts together; 0: no limit */
    double ran_s;                     /* running time of its earlier attempts */
    double lived_s;                   /* of this attempt, as last recorded */
    int64_t memory_bytes;             /* for all its processes; 0: no limit */
    double cpus;                      /* CPU time per second, for all its processes; 0: no limit */
    bool unready;  /* cannot start: its disk hangs, or it is being pruned; not in the file */
    bool notified; /* of its end; true if nothing is to be notified */
};
void np_entry_fini(struct np_entry *entry);
/* Finished: stopped, done, failed or timeout. */
bool np_entry_is_finished(const struct np_entry *entry);
/* Running, pausing, yielding or stopping. */
bool np_entry_has_worker(const struct np_entry *entry);
/* Number of its processes, at least 1. */
int np_entry_processes(const struct np_entry *entry);
/* Slots of a device that its processes take, by `assigned`. */
int np_entry_slots_on(const struct np_entry *entry, const char *device);
/* The index of this ID in a list sorted by ID; -1: none. */
int np_entry_find(const struct np_entry *const *entries, int nr, int64_t id);

struct np_queue;
/* Opens the file, or creates it with mode 0600. vfs: name of an SQLite VFS; NULL: the default.
 * -EBADMSG: the file is damaged or of a later nnpipe, and was not changed; -EAGAIN: another daemon
 * uses it. */
int np_queue_open(
    const char *path, const char *vfs, struct np_queue **ret_queue, struct np_err *err);
void np_queue_close(struct np_queue *queue);
/* Adds a run. entry's dir is the folder of runs; the run's own becomes NAME-ID in it. *ret_known:
 * nothing was added, because a run has this key: *ret_id is its ID. */
int np_queue_add(struct np_queue *queue, const struct np_entry *entry, int64_t *ret_id,
    bool *ret_known, struct np_err *err);
int np_queue_update(struct np_queue *queue, const struct np_entry *entry, struct np_err *err);
int np_queue_remove(struct np_queue *queue, int64_t id, struct np_err *err);
/* Records whether a device is drained; NP_ALL_DEVICES: whether the queue is held. */
#define NP_ALL_DEVICES "*"
int np_queue_drain(struct np_queue *queue, const char *device, bool drained, struct np_err *err);
/* Calls each with every drained device; the text is borrowed for the call. */
int np_queue_drained(struct np_queue *queue, void (*each)(void *context, const char *device),
    void *context, struct np_err *err);
/* Calls each with every entry, by ID; the entry is borrowed for the call. */
int np_queue_read(struct np_queue *queue,
    int (*each)(void *context, const struct np_entry *entry, struct np_err *err), void *context,
    struct np_err *err);
/* Reads a run's config and environment (NULL: not wanted); np_free. -ENOENT: no such run. */
int np_queue_text(struct np_queue *queue, int64_t id, char **ret_config, char **ret_environment,
    struct np_err *err);

/* Replaces the hash of a user's token for TCP (np_token_hash()). */
int np_queue_set_token(
    struct np_queue *queue, uid_t uid, const char *hash, double now, struct np_err *err);
int np_queue_drop_token(struct np_queue *queue, uid_t uid, struct np_err *err);
int np_queue_find_token(
    struct np_queue *queue, const char *hash, uid_t *ret_uid, bool *ret_found, struct np_err *err);

#endif
