/* Requests of users: submit, stop, pause, retry, remove runs; tokens. When a call returns 0, its
 * change is in the queue's file. All calls also return the errors of queue.h. Called by the
 * service's thread. */
#ifndef NP_SERVICE_QUEUE_H
#define NP_SERVICE_QUEUE_H

#include "daemon/service/book.h"

/* Queues a run whose config was checked. Copies texts of entry; dir and *ret_known as in
 * np_queue_add(). -ENODEV: no such device; -ENOENT: no such run in after; -EDQUOT: as
 * np_service_may_queue(). */
int np_service_submit(struct np_service *service, const struct np_entry *entry, int64_t *ret_id,
    bool *ret_known, struct np_err *err);
/* Would np_service_submit() know its device and the runs in after? -ENODEV, -ENOENT. */
int np_service_may_submit(
    const struct np_service *service, const struct np_entry *entry, struct np_err *err);
/* -EALREADY: the run has this state or is about to; -EINVAL: it has finished. */
int np_service_stop(struct np_service *service, struct np_service_run *run, struct np_err *err);
int np_service_pause(struct np_service *service, struct np_service_run *run, struct np_err *err);
int np_service_resume(struct np_service *service, struct np_service_run *run, struct np_err *err);
/* Queues a finished run again, to resume from its checkpoint; retries and running time start at
 * zero. time_limit_s below 0: unchanged. -EINVAL: it is done, or has not finished; -ENODEV: the
 * service no longer has its device. */
int np_service_retry(struct np_service *service, struct np_service_run *run, double time_limit_s,
    struct np_err *err);
/* Pauses a queued run. -EINVAL: it is not queued. */
int np_service_hold(struct np_service *service, struct np_service_run *run, struct np_err *err);
/* priority INT64_MAX, or time_limit_s below 0: unchanged. */
int np_service_change(struct np_service *service, struct np_service_run *run, int64_t priority,
    double time_limit_s, struct np_err *err);
/* Removes a run from the queue; its folder stays. -EBUSY: it has not finished, or an unfinished run
 * depends on it. */
int np_service_remove(struct np_service *service, struct np_service_run *run, struct np_err *err);

/* Replaces the token of a caller on the socket: the administrator's for root and the service's own
 * user, else the user's own, of which only a hash is kept. */
int np_service_new_token(
    struct np_service *service, uid_t uid, char ret_token[NP_TOKEN_CHARS + 1], struct np_err *err);
/* The user with this token; false: none. */
bool np_service_find_token(struct np_service *service, const char *token, uid_t *ret_uid);

#endif
