#include "loader/ring_wait.h"

#include <assert.h>
#include <errno.h>
#include <time.h>

struct np_ring_sleeper {
    np_ring_holds_fn *holds;
    const void *slot;
    uint64_t seq;
    pthread_cond_t wake;
    struct np_ring_sleeper *next;
};

void np_ring_wait_init(
    struct np_ring_wait *wait, np_ring_holds_fn *is_open, np_ring_holds_fn *is_ready)
{
    wait->holds[NP_RING_READERS] = is_open;
    wait->holds[NP_RING_TRAINER] = is_ready;
    pthread_mutex_init(&wait->lock, NULL);
}

void np_ring_wait_fini(struct np_ring_wait *wait)
{
    pthread_mutex_destroy(&wait->lock);
}

/* Under the lock. */
static bool has_come(const struct np_ring_sleeper *sleeper)
{
    return sleeper->holds(sleeper->slot, sleeper->seq);
}

/* Under the lock: wakes all sleepers of a side, or those whose batch has come. */
static void wake_some(struct np_ring_wait *wait, enum np_ring_side side, bool all)
{
    struct np_ring_sleeper *sleeper = wait->sides[side].first;

    for (; sleeper; sleeper = sleeper->next)
        if (all || has_come(sleeper))
            pthread_cond_signal(&sleeper->wake);
}

/* Under the lock. */
static void stop(struct np_ring_wait *wait, const struct np_err *err)
{
    if (!atomic_load(&wait->stopped) && err)
        wait->stop_err = *err;
    atomic_store(&wait->stopped, true);
    wake_some(wait, NP_RING_READERS, true);
    wake_some(wait, NP_RING_TRAINER, true);
}

/* Under the lock, when a thread starts to sleep or leaves: stops the ring if it is in deadlock. */
static void check_stuck(struct np_ring_wait *wait)
{
    const struct np_ring_sleeper *trainer = wait->sides[NP_RING_TRAINER].first;
    const struct np_ring_sleeper *reader = wait->sides[NP_RING_READERS].first;
    struct np_err err = {0};
    int nr_asleep = 0;

    if (wait->nr_joined == 0 || !trainer || has_come(trainer))
        return;
    for (; reader; reader = reader->next, nr_asleep++)
        if (has_come(reader))
            return;
    if (nr_asleep < wait->nr_working)
        return;
    np_err_set(&err, -EDEADLK,
        "internal error: the trainer waits for batch %llu, which cannot come: of %d readers %d "
        "have ended and %d wait for a free slot",
        (unsigned long long)trainer->seq, wait->nr_joined, wait->nr_joined - wait->nr_working,
        nr_asleep);
    stop(wait, &err);
}

/* Under the lock. */
static void remove_sleeper(
    struct np_ring_wait *wait, enum np_ring_side side, const struct np_ring_sleeper *gone)
{
    struct np_ring_sleeper **at = &wait->sides[side].first;

    while (*at != gone)
        at = &(*at)->next;
    *at = gone->next;
    atomic_fetch_sub(&wait->sides[side].nr_waiting, 1);
}

/* Sleeps at `wake`, whose clock is that of np_now_ns(), at most until until_ns. */
static int sleep_until(pthread_cond_t *wake, pthread_mutex_t *lock, uint64_t until_ns)
{
    const struct timespec until = {(time_t)(until_ns / 1000000000), (long)(until_ns % 1000000000)};

    return until_ns == UINT64_MAX ? pthread_cond_wait(wake, lock)
                                  : pthread_cond_timedwait(wake, lock, &until);
}

void np_ring_wait_sleep(struct np_ring_wait *wait, enum np_ring_side side, const void *slot,
    uint64_t seq, uint64_t until_ns)
{
    struct np_ring_sleeper sleeper = {.holds = wait->holds[side], .slot = slot, .seq = seq};
    pthread_condattr_t monotonic;
    int code = 0;

    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&sleeper.wake, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_lock(&wait->lock);
    sleeper.next = wait->sides[side].first;
    wait->sides[side].first = &sleeper;
    atomic_fetch_add(&wait->sides[side].nr_waiting, 1);
    check_stuck(wait);
    while (code != ETIMEDOUT && !atomic_load(&wait->stopped) && !has_come(&sleeper) &&
           !(side == NP_RING_TRAINER && atomic_load(&wait->interrupted)))
        code = sleep_until(&sleeper.wake, &wait->lock, until_ns);
    remove_sleeper(wait, side, &sleeper);
    pthread_mutex_unlock(&wait->lock);
    pthread_cond_destroy(&sleeper.wake);
}

void np_ring_wait_wake(struct np_ring_wait *wait, enum np_ring_side side)
{
    if (atomic_load(&wait->sides[side].nr_waiting) == 0)
        return;
    pthread_mutex_lock(&wait->lock);
    wake_some(wait, side, false);
    pthread_mutex_unlock(&wait->lock);
}

void np_ring_wait_stop(struct np_ring_wait *wait, const struct np_err *err)
{
    pthread_mutex_lock(&wait->lock);
    stop(wait, err);
    pthread_mutex_unlock(&wait->lock);
}

void np_ring_wait_interrupt(struct np_ring_wait *wait)
{
    pthread_mutex_lock(&wait->lock);
    atomic_store(&wait->interrupted, true);
    wake_some(wait, NP_RING_TRAINER, true);
    pthread_mutex_unlock(&wait->lock);
}

void np_ring_wait_join(struct np_ring_wait *wait)
{
    pthread_mutex_lock(&wait->lock);
    wait->nr_joined++;
    wait->nr_working++;
    pthread_mutex_unlock(&wait->lock);
}

void np_ring_wait_leave(struct np_ring_wait *wait)
{
    pthread_mutex_lock(&wait->lock);
    assert(wait->nr_working > 0);
    wait->nr_working--;
    check_stuck(wait);
    pthread_mutex_unlock(&wait->lock);
}

bool np_ring_wait_why(struct np_ring_wait *wait, struct np_err *ret_err)
{
    pthread_mutex_lock(&wait->lock);
    const bool stopped = atomic_load(&wait->stopped);
    if (stopped)
        *ret_err = wait->stop_err;
    pthread_mutex_unlock(&wait->lock);
    return stopped;
}
