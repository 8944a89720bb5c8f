/* See wait.h. */
#include "loader/base/wait.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>

#include "loader/base/clock.h"

#define COPYING (1ull << 63) /* of since_ns */

static uint64_t get(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

static void set(_Atomic uint64_t *counter, uint64_t n)
{
    atomic_store_explicit(counter, n, memory_order_relaxed);
}

void np_wait_begin(
    struct np_wait *wait, const char *what, const char *where, uint64_t detail, uint64_t since_ns)
{
    atomic_store_explicit(&wait->what, what, memory_order_relaxed);
    atomic_store_explicit(&wait->where, where, memory_order_relaxed);
    set(&wait->detail, detail);
    /* Pairs with the exchange in np_wait_due(). */
    atomic_store_explicit(&wait->since_ns, since_ns, memory_order_release);
}

void np_wait_end(struct np_wait *wait)
{
    uint64_t since = get(&wait->since_ns);

    for (;;) {
        since &= ~COPYING;
        /* Pairs with the release at the end of np_wait_due(). */
        if (atomic_compare_exchange_weak_explicit(
                &wait->since_ns, &since, 0, memory_order_acquire, memory_order_relaxed))
            return;
        if (since & COPYING)
            sched_yield(); /* another thread prints a line */
    }
}

/* Under COPYING: has the wait lasted min_ns once more since it was last reported? */
static bool is_due(struct np_wait *wait, uint64_t since, uint64_t lasted_ns, uint64_t min_ns)
{
    const uint64_t nr_told = get(&wait->told_since_ns) == since ? get(&wait->nr_told) : 0;

    if (lasted_ns < (nr_told + 1) * min_ns)
        return false;
    set(&wait->told_since_ns, since);
    set(&wait->nr_told, nr_told + 1);
    return true;
}

bool np_wait_due(
    struct np_wait *wait, const char *thread, uint64_t min_ns, char *text, size_t bytes)
{
    uint64_t since = get(&wait->since_ns);
    const uint64_t now = np_now_ns();

    /* COPYING: another thread is at this wait and reports it. The exchange fails where it has ended. */
    if (since == 0 || since & COPYING || now < since || now - since < min_ns ||
        !atomic_compare_exchange_strong_explicit(
            &wait->since_ns, &since, since | COPYING, memory_order_acquire, memory_order_relaxed))
        return false;
    const bool due = is_due(wait, since, now - since, min_ns);
    if (due) {
        const char *where = atomic_load_explicit(&wait->where, memory_order_relaxed);

        snprintf(text, bytes, "%s: %s: %s %llu, for %.1f s", thread,
            atomic_load_explicit(&wait->what, memory_order_relaxed), where ? where : "",
            (unsigned long long)get(&wait->detail), (double)(now - since) * 1e-9);
    }
    atomic_store_explicit(&wait->since_ns, since, memory_order_release);
    return due;
}
