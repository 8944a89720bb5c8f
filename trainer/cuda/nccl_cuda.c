/* The only file that calls NCCL. Its thread: join, watch until told to leave or until something is
 * lost, then leave or abort. */
#include "trainer/cuda/nccl_cuda.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "loader/base/clock.h"
#include "loader/base/mem.h"

#define WATCH_MS 100
#define LEAVE_S  10 /* for NCCL to leave or to abort; the process ends soon after, anyway */
#define DRAIN_NS 5000000000ull /* what is queued may end by itself when a process has given up */

struct np_cuda_group {
    struct np_nccl
        nccl; /* set once, as the next ones; a copy, since the thread may outlive the device */
    int rank, world, ordinal;
    np_nccl_id id;
    np_nccl_comm joined; /* its thread's, until it has joined */
    pthread_t thread;

    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool has_joined, leaves, has_left; /* under lock, as all that follows */
    bool abandoned; /* nobody waits for the thread any more: it must touch nothing but the group */
    struct np_comm *comm; /* NULL: abandoned; the trainer thread reads it without lock */
    struct np_err failed; /* code 0: it works */
};

/* --- errors ---------------------------------------------------------------------------------- */

static int set_nccl(
    struct np_cuda_group *group, np_nccl_result result, const char *what, struct np_err *err)
{
    const char *more = group->nccl.last_error ? group->nccl.last_error(NULL) : "";

    return np_err_set(err, -EIO, "NCCL: %s: %s%s%.300s", what, group->nccl.error_string(result),
        more && *more ? ": " : "", more ? more : "");
}

static void fail(struct np_cuda_group *group, const struct np_err *why)
{
    pthread_mutex_lock(&group->lock);
    if (!group->failed.code)
        group->failed = *why;
    pthread_cond_broadcast(&group->changed);
    pthread_mutex_unlock(&group->lock);
}

int np_cuda_group_check(struct np_cuda_group *group, struct np_err *err)
{
    struct np_err why;

    if (!group)
        return 0;
    pthread_mutex_lock(&group->lock);
    why = group->failed;
    pthread_mutex_unlock(&group->lock);
    return why.code ? np_err_set(err, why.code, "%s", why.text) : 0;
}

/* A call that failed because the group was aborted says why it was. */
static int check(
    struct np_cuda_group *group, np_nccl_result result, const char *what, struct np_err *err)
{
    if (result == NP_NCCL_SUCCESS)
        return 0;
    const int code = np_cuda_group_check(group, err);
    return code < 0 ? code : set_nccl(group, result, what, err);
}

/* Has another process ended? One that was told to stop still takes part. */
static bool is_lost(struct np_cuda_group *group, struct np_err *err)
{
    struct np_err heard = {0};

    pthread_mutex_lock(&group->lock);
    const bool lost = np_comm_heard(group->comm, &heard) < 0 && heard.code != -EINTR;
    pthread_mutex_unlock(&group->lock);
    if (lost && err)
        *err = heard;
    return lost;
}

/* --- the thread ------------------------------------------------------------------------------ */

static bool join(struct np_cuda_group *group)
{
    struct np_err err = {0};
    np_nccl_comm joined = NULL;

    if (np_cuda_check(NULL, cudaSetDevice(group->ordinal), "to take the GPU", &err) == 0) {
        const np_nccl_result result =
            group->nccl.init(&joined, group->world, group->id, group->rank);

        if (result != NP_NCCL_SUCCESS)
            set_nccl(group, result, "the processes' GPUs do not find each other", &err);
    }
    pthread_mutex_lock(&group->lock);
    group->joined = joined;
    group->has_joined = err.code == 0;
    if (err.code && !group->failed.code)
        group->failed = err;
    pthread_cond_broadcast(&group->changed);
    pthread_mutex_unlock(&group->lock);
    return err.code == 0;
}

/* False: it is time to leave. */
static bool pause_watch(struct np_cuda_group *group)
{
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += WATCH_MS * 1000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&group->lock);
    if (!group->leaves)
        pthread_cond_timedwait(&group->changed, &group->lock, &until);
    const bool leaves = group->leaves;
    pthread_mutex_unlock(&group->lock);
    return !leaves;
}

/* Returns when it is time to leave, or when something is lost: then group->failed says what. */
static void watch(struct np_cuda_group *group)
{
    uint64_t gave_up_ns = 0;

    while (pause_watch(group)) {
        struct np_err err = {0};
        np_nccl_result error = NP_NCCL_SUCCESS;

        if (is_lost(group, &err)) {
            gave_up_ns = gave_up_ns ? gave_up_ns : np_now_ns();
            if (err.code != -ECONNRESET && np_now_ns() - gave_up_ns < DRAIN_NS)
                continue; /* the step before may still end, and be saved */
            np_err_set(&err, -ECONNRESET, "%s", err.text);
        } else if (group->nccl.async_error(group->joined, &error) != NP_NCCL_SUCCESS ||
                   (error != NP_NCCL_SUCCESS && error != NP_NCCL_IN_PROGRESS)) {
            set_nccl(group, error, "another process or the network has failed", &err);
            err.code = -ECONNRESET; /* nobody waits for what is queued */
        }
        if (err.code) {
            fail(group, &err);
            return;
        }
    }
}

static void release(struct np_cuda_group *group)
{
    pthread_cond_destroy(&group->changed);
    pthread_mutex_destroy(&group->lock);
    np_free(group);
}

static bool is_abandoned(struct np_cuda_group *group)
{
    pthread_mutex_lock(&group->lock);
    const bool abandoned = group->abandoned;
    pthread_mutex_unlock(&group->lock);
    return abandoned;
}

/* What an abandoned thread has joined is left to the end of the process: its GPU is closed. */
static void leave(struct np_cuda_group *group)
{
    if (is_abandoned(group))
        return;
    if (np_cuda_group_check(group, NULL) < 0)
        group->nccl.abort(group->joined);
    else
        group->nccl.destroy(group->joined);
}

static void *run(void *context)
{
    struct np_cuda_group *group = context;

    if (join(group)) {
        watch(group);
        leave(group);
    }
    pthread_mutex_lock(&group->lock);
    group->has_left = true;
    const bool alone = group->abandoned;
    pthread_cond_broadcast(&group->changed);
    pthread_mutex_unlock(&group->lock);
    if (alone)
        release(group);
    return NULL;
}

/* --- the trainer ----------------------------------------------------------------------------- */

struct member { /* what each says before NCCL is asked */
    char version[32], gpu[32], host[64];
    np_nccl_id id; /* rank 0's counts */
    int32_t code;  /* negative: it cannot come */
};

static void introduce(
    const struct np_cuda *cuda, struct np_comm *comm, struct member *own, struct np_err *err)
{
    const struct np_cuda_libs *libs = &cuda->libs;

    snprintf(own->version, sizeof(own->version), "%s", libs->nccl_library.version);
    if (gethostname(own->host, sizeof(own->host) - 1) < 0)
        own->host[0] = '\0';
    if (!libs->nccl_library.handle)
        own->code = np_err_set(err, -EINVAL, "several processes need NCCL: %s", libs->no_nccl.text);
    else if (np_comm_rank(comm) == 0 && libs->nccl.get_id(&own->id) != NP_NCCL_SUCCESS)
        own->code = np_err_set(err, -EIO, "NCCL: no id for the processes: %s",
            libs->nccl.last_error ? libs->nccl.last_error(NULL) : "");
    if (cudaDeviceGetPCIBusId(own->gpu, sizeof(own->gpu), cuda->ordinal) != cudaSuccess)
        snprintf(own->gpu, sizeof(own->gpu), "%d", cuda->ordinal);
}

static int compare(const struct member *all, int world, struct np_err *err)
{
    for (int r = 0; r < world; r++) {
        if (all[r].code < 0)
            return np_err_set(err, all[r].code, "rank %d cannot join: its machine has no NCCL", r);
        if (strcmp(all[r].version, all[0].version) != 0)
            return np_err_set(err, -EINVAL,
                "rank 0 has NCCL %s, rank %d has %s: all processes need the same", all[0].version,
                r, all[r].version);
        for (int other = 0; other < r; other++)
            if (strcmp(all[r].host, all[other].host) == 0 &&
                strcmp(all[r].gpu, all[other].gpu) == 0)
                return np_err_set(err, -EINVAL,
                    "rank %d and rank %d have the same GPU (%s on %s): each process needs its own",
                    other, r, all[r].gpu, all[r].host);
    }
    return 0;
}

static int meet(struct np_cuda_group *group, const struct np_cuda *cuda, struct np_err *err)
{
    struct member own = {0}, *all = np_try_array((size_t)group->world, sizeof(*all), err);
    struct np_err why = {0};

    if (!all)
        return -ENOMEM;
    introduce(cuda, group->comm, &own, &why);
    int code = np_comm_gather(group->comm, &own, all, sizeof(own), err);
    for (int r = 0; code == 0 && r < group->world; r++) {
        all[r].version[sizeof(all[r].version) - 1] = '\0';
        all[r].gpu[sizeof(all[r].gpu) - 1] = '\0';
        all[r].host[sizeof(all[r].host) - 1] = '\0';
    }
    if (code == 0 && why.code)
        code = np_err_set(err, why.code, "%s", why.text);
    if (code == 0)
        code = compare(all, group->world, err);
    if (code == 0)
        group->id = all[0].id;
    np_free(all);
    return code;
}

/* Waits for a change until the time (CLOCK_REALTIME); lock is held. False: the time is over. */
static bool wait_change(struct np_cuda_group *group, time_t until_s)
{
    const struct timespec until = {.tv_sec = until_s};

    return pthread_cond_timedwait(&group->changed, &group->lock, &until) == 0;
}

static int await_joined(struct np_cuda_group *group, struct np_err *err)
{
    const int seconds = np_comm_timeout_s();
    const time_t end_s = time(NULL) + seconds;
    struct np_err lost = {0};
    int code = 0;

    pthread_mutex_lock(&group->lock);
    while (code == 0 && !group->has_joined && !group->failed.code) {
        wait_change(group, time(NULL) + 1);
        pthread_mutex_unlock(&group->lock);
        if (is_lost(group, &lost))
            code = np_err_set(err, lost.code, "%s", lost.text);
        else if (time(NULL) > end_s)
            code = np_err_set(err, -ETIMEDOUT,
                "NCCL has not joined the processes within %d s (NNPIPE_COMM_TIMEOUT); "
                "NCCL_DEBUG=INFO shows what it does",
                seconds);
        pthread_mutex_lock(&group->lock);
    }
    if (code == 0 && group->failed.code)
        code = np_err_set(err, group->failed.code, "%s", group->failed.text);
    pthread_mutex_unlock(&group->lock);
    return code;
}

static int start(struct np_cuda_group *group, struct np_err *err)
{
    sigset_t all, before;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* NCCL's threads inherit it, too */
    const int why = pthread_create(&group->thread, NULL, run, group);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (why)
        return np_err_set(err, -why, "the thread of NCCL does not start: %s", strerror(why));
    pthread_detach(group->thread);
    return 0;
}

int np_cuda_group_open(struct np_device *device, struct np_comm *comm,
    struct np_cuda_group **ret_group, struct np_err *err)
{
    const struct np_cuda *cuda = device->state;
    struct np_cuda_group *group = np_alloc(sizeof(*group));

    group->nccl = cuda->libs.nccl;
    group->comm = comm;
    group->rank = np_comm_rank(comm);
    group->world = np_comm_world(comm);
    group->ordinal = cuda->ordinal;
    pthread_mutex_init(&group->lock, NULL);
    pthread_cond_init(&group->changed, NULL);
    int code = meet(group, cuda, err);
    if (code == 0)
        code = start(group, err);
    if (code < 0) {
        release(group);
        return np_err_context(err, "%s", device->name);
    }
    if ((code = await_joined(group, err)) < 0) {
        np_cuda_group_close(group);
        return np_err_context(err, "%s", device->name);
    }
    *ret_group = group;
    return 0;
}

void np_cuda_group_close(struct np_cuda_group *group)
{
    if (!group)
        return;
    const time_t end_s = time(NULL) + LEAVE_S;
    struct np_err why = {.code = -ECONNRESET, .text = "the run ends"};

    if (np_comm_over(group->comm) || is_lost(group, NULL))
        fail(group, &why); /* the others do not leave at this point: do not wait for them */
    pthread_mutex_lock(&group->lock);
    group->leaves = true;
    pthread_cond_broadcast(&group->changed);
    while (group->has_joined && !group->has_left && wait_change(group, end_s))
        ;
    /* Otherwise NCCL hangs: the thread ends with the process. */
    const bool over = group->has_left;
    group->abandoned = !over;
    group->comm = NULL;
    pthread_mutex_unlock(&group->lock);
    if (over)
        release(group);
}

/* --- operations ------------------------------------------------------------------------------ */

static np_nccl_type type_of(enum np_cuda_dtype type)
{
    return (np_nccl_type)(type == NP_CUDA_F32    ? NP_NCCL_F32
                          : type == NP_CUDA_BF16 ? NP_NCCL_BF16
                                                 : NP_NCCL_F16);
}

int np_cuda_group_swap(struct np_cuda_group *group, const void *from, void *to, uint64_t n,
    enum np_cuda_dtype type, int peer, cudaStream_t stream, struct np_err *err)
{
    const struct np_nccl *nccl = &group->nccl;
    int code = np_cuda_group_check(group, err);

    if (code < 0)
        return code;
    np_nccl_result result = nccl->group_start();
    if (result == NP_NCCL_SUCCESS) {
        if (from)
            result = nccl->send(from, n, type_of(type), peer, group->joined, stream);
        if (to && result == NP_NCCL_SUCCESS)
            result = nccl->receive(to, n, type_of(type), peer, group->joined, stream);
        const np_nccl_result end = nccl->group_end(); /* also after an error: it was started */
        result = result == NP_NCCL_SUCCESS ? end : result;
    }
    return check(group, result, "a sum of gradients", err);
}

int np_cuda_group_sum(struct np_cuda_group *group, void *x, uint64_t n, enum np_cuda_dtype type,
    cudaStream_t stream, struct np_err *err)
{
    const int code = np_cuda_group_check(group, err);

    if (code < 0)
        return code;
    return check(group,
        group->nccl.all_reduce(x, x, n, type_of(type), NP_NCCL_SUM, group->joined, stream),
        "a sum of gradients", err);
}
