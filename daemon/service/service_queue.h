/* What users ask of the queue: runs submitted, stopped, paused, retried, removed; and their tokens. Each call that
 * returns 0 is in the queue's file. The service's thread. */
#ifndef NP_SERVICE_QUEUE_H
#define NP_SERVICE_QUEUE_H

#include "daemon/service/book.h"

/* A run's config in its normal form, read from the queue's file; np_free. */
int np_service_config(struct np_service *service, int64_t id, char **ret_text, struct np_err *err);
/* entry: key, name, uid, gid, path, config, device, priority, max_retries, after, and dir: the folder of runs,
 * in which its own will be NAME-ID; its texts are copied. The
 * config was checked. -ENODEV: no such device; -ENOENT: no such run in after; -EDQUOT: as np_service_may_queue(). */
int np_service_submit(struct np_service *service, const struct np_entry *entry, int64_t *ret_id,
    bool *ret_known, struct np_err *err);
/* -EALREADY: it is so already; -EINVAL: a run that is over; both leave all as it is. */
int np_service_stop(struct np_service *service, struct np_service_run *run, struct np_err *err);
int np_service_pause(struct np_service *service, struct np_service_run *run, struct np_err *err);
int np_service_resume(struct np_service *service, struct np_service_run *run, struct np_err *err);
/* Queued again, in the same folder, from its checkpoint; retries and running time are counted from zero. time_limit_s
 * below 0: as it was. -EINVAL: it is done, or not over; -ENODEV: its device is gone. */
int np_service_retry(struct np_service *service, struct np_service_run *run, double time_limit_s,
    struct np_err *err);
/* A queued run becomes paused, until np_service_resume(). -EINVAL: it is not queued. */
int np_service_hold(struct np_service *service, struct np_service_run *run, struct np_err *err);
int np_service_set_time_limit(
    struct np_service *service, struct np_service_run *run, double seconds, struct np_err *err);
int np_service_set_priority(
    struct np_service *service, struct np_service_run *run, int64_t priority, struct np_err *err);
/* -EBUSY: it is not over. Its folder stays. */
int np_service_remove(struct np_service *service, struct np_service_run *run, struct np_err *err);

/* A new token for a caller on the socket, which takes the place of the one before: the administrator's for root and
 * the service's own user, else the user's own, of which only a hash is kept. */
int np_service_new_token(
    struct np_service *service, uid_t uid, char ret_token[NP_TOKEN_CHARS + 1], struct np_err *err);
/* Revokes the user's own token, where there is one. */
int np_service_drop_token(struct np_service *service, uid_t uid, struct np_err *err);
/* Finds the user who has this token of their own. False: no user has it. */
bool np_service_find_token(struct np_service *service, const char *token, uid_t *ret_uid);

#endif
