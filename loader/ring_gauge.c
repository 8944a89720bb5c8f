#include "loader/ring_gauge.h"

#include <pthread.h>
#include <string.h>

#include "loader/base/clock.h"
#include "loader/base/mem.h"

struct np_ring_gauge {
    pthread_mutex_t lock;
    /* under lock */
    int nr_ready;
    uint64_t ready_ns, since_ns; /* batches x time, until since_ns */
    uint64_t awaited, wait_ns;   /* the batch that is waited for, plus 1; since when */
    uint64_t late;               /* the batch that late_ns describes, plus 1 */
    uint64_t late_ns[NP_NR_STAGES];
};

struct np_ring_gauge *np_ring_gauge_new(struct np_err *err)
{
    struct np_ring_gauge *gauge = np_try_alloc(sizeof(*gauge), err);

    if (gauge)
        pthread_mutex_init(&gauge->lock, NULL);
    return gauge;
}

void np_ring_gauge_free(struct np_ring_gauge *gauge)
{
    if (!gauge)
        return;
    pthread_mutex_destroy(&gauge->lock);
    np_free(gauge);
}

/* Under the lock. Returns the current time. */
static uint64_t count_until_now(struct np_ring_gauge *gauge)
{
    const uint64_t now_ns = np_now_ns();

    gauge->ready_ns += (uint64_t)gauge->nr_ready * (now_ns - gauge->since_ns);
    gauge->since_ns = now_ns;
    return now_ns;
}

void np_ring_gauge_wait(struct np_ring_gauge *gauge, uint64_t seq)
{
    pthread_mutex_lock(&gauge->lock);
    gauge->awaited = seq + 1;
    gauge->wait_ns = np_now_ns();
    pthread_mutex_unlock(&gauge->lock);
}

void np_ring_gauge_ready(struct np_ring_gauge *gauge, uint64_t seq, const struct np_block *block)
{
    pthread_mutex_lock(&gauge->lock);
    const uint64_t now_ns = count_until_now(gauge);
    gauge->nr_ready++;
    if (gauge->awaited == seq + 1) {
        np_stat_recent(block, gauge->wait_ns, now_ns, gauge->late_ns);
        gauge->late = seq + 1;
    }
    pthread_mutex_unlock(&gauge->lock);
}

void np_ring_gauge_take(struct np_ring_gauge *gauge)
{
    pthread_mutex_lock(&gauge->lock);
    count_until_now(gauge);
    gauge->nr_ready--;
    gauge->awaited = 0;
    pthread_mutex_unlock(&gauge->lock);
}

int np_ring_gauge_full(struct np_ring_gauge *gauge)
{
    pthread_mutex_lock(&gauge->lock);
    const int nr_ready = gauge->nr_ready;
    pthread_mutex_unlock(&gauge->lock);
    return nr_ready;
}

uint64_t np_ring_gauge_ready_ns(struct np_ring_gauge *gauge)
{
    pthread_mutex_lock(&gauge->lock);
    count_until_now(gauge);
    const uint64_t ready_ns = gauge->ready_ns;
    pthread_mutex_unlock(&gauge->lock);
    return ready_ns;
}

void np_ring_gauge_late(struct np_ring_gauge *gauge, uint64_t seq, uint64_t ret_ns[NP_NR_STAGES])
{
    pthread_mutex_lock(&gauge->lock);
    if (gauge->late == seq + 1)
        memcpy(ret_ns, gauge->late_ns, sizeof(gauge->late_ns));
    else
        memset(ret_ns, 0, sizeof(gauge->late_ns));
    pthread_mutex_unlock(&gauge->lock);
}
