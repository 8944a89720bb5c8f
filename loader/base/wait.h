/* The wait that a thread is in, by name, so that others can report one that lasts. The words are
 * borrowed from the waiting thread: who reads them marks the wait (COPYING) meanwhile, and
 * np_wait_end() waits for that copy, and for nothing else. */
#ifndef NP_WAIT_H
#define NP_WAIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct np_wait {
    _Atomic uint64_t since_ns; /* 0: no wait; COPYING while a thread reads its words */
    _Atomic(const char *) what;
    _Atomic(const char *) where; /* or NULL */
    _Atomic uint64_t detail;
    /* Under COPYING: how often the wait that began then has been reported. */
    _Atomic uint64_t told_since_ns, nr_told;
};

/* what and where must live until np_wait_end(). The waiting thread. */
void np_wait_begin(
    struct np_wait *wait, const char *what, const char *where, uint64_t detail, uint64_t since_ns);
/* No wait: nothing. The waiting thread, or one that knows that it never comes back. */
void np_wait_end(struct np_wait *wait);
/* Has it lasted min_ns, or that once more since it was last reported? Then text is "THREAD: WHAT:
 * WHERE DETAIL, for 5.2 s". Any thread. */
bool np_wait_due(
    struct np_wait *wait, const char *thread, uint64_t min_ns, char *text, size_t bytes);

#endif
