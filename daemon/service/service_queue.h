/* Requests of users: submit, stop, pause, retry, remove runs; and tokens. A call that returns 0
 * is in the queue's file. Besides the named errors, all return those of queue.h. Called by the
 * service's thread. */
#ifndef NP_SERVICE_QUEUE_H
#define NP_SERVICE_QUEUE_H

#include "daemon/service/book.h"

/* Queues a run whose config was checked. Used of entry: key, name, uid, gid, path, config,
 * device, priority, max_retries, after and dir (the folder of runs; its own will be NAME-ID in
 * it); texts are copied. *ret_known: as np_queue_add(). -ENODEV: no such device; -ENOENT: no
 * such run in after; -EDQUOT: as np_service_may_queue(). */
int np_service_submit(struct np_service *service, const struct np_entry *entry, int64_t *ret_id,
    bool *ret_known, struct np_err *err);
/* -EALREADY: the run is in that state already; -EINVAL: it has finished. Both change nothing. */
int np_service_stop(struct np_service *service, struct np_service_run *run, struct np_err *err);
int np_service_pause(struct np_service *service, struct np_service_run *run, struct np_err *err);
int np_service_resume(struct np_service *service, struct np_service_run *run, struct np_err *err);
/* Queues a finished run again: it resumes from its checkpoint in its folder; retries and running
 * time count from zero. time_limit_s below 0: unchanged. -EINVAL: it is done, or not over;
 * -ENODEV: its device is gone. */
int np_service_retry(struct np_service *service, struct np_service_run *run, double time_limit_s,
    struct np_err *err);
/* Pauses a queued run until np_service_resume(). -EINVAL: it is not queued. */
int np_service_hold(struct np_service *service, struct np_service_run *run, struct np_err *err);
/* Changes the priority, unless it is INT64_MAX, and the time limit, unless it is below 0. */
int np_service_change(struct np_service *service, struct np_service_run *run, int64_t priority,
    double time_limit_s, struct np_err *err);
/* Removes a run from the queue; its folder stays. -EBUSY: it is not over, or another run comes
 * after it. */
int np_service_remove(struct np_service *service, struct np_service_run *run, struct np_err *err);

/* Makes a new token for a caller on the socket, in place of the old one: the administrator's for
 * root and the service's own user, else the user's own, of which only a hash is kept. */
int np_service_new_token(
    struct np_service *service, uid_t uid, char ret_token[NP_TOKEN_CHARS + 1], struct np_err *err);
/* Finds the user with this token. Returns false if there is none. */
bool np_service_find_token(struct np_service *service, const char *token, uid_t *ret_uid);

#endif
