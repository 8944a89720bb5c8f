/* Gathers pictures of many callers into batches for one network.
 *
 *   give() -> waiting -> decoding threads -> batch being filled -> run()'s thread: device -> take()
 *
 * A batch starts when it is full, or when its first picture has waited max_delay for others; its
 * pictures are decoded by then. Two batches: one is filled while the device computes the other. A
 * picture's answer does not depend on its neighbours. */
#ifndef NP_BATCHER_H
#define NP_BATCHER_H

#include "daemon/run/inference.h"

struct np_asked { /* a picture; its giver owns it */
    const void *bytes;
    size_t nr_bytes;
    double *odds; /* (classes): receives the probabilities; of numbers the outputs */
    void *context;
    /* set by the batcher */
    struct np_err err; /* code 0: odds are valid */
    uint64_t given_ns, done_ns;
    int batch_rows; /* pictures computed with it, itself included */
    struct np_asked *next;
};

struct np_batcher_options {
    struct np_inference *net; /* borrowed; opened with .serving, its batch is the largest */
    uint64_t max_delay_ns;
    int nr_decoders;
    int max_waiting; /* pictures given and not yet in a batch */
    int done_fd;     /* eventfd: 1 is added when take() has something; borrowed */
};
struct np_batcher;

int np_batcher_open(
    const struct np_batcher_options *options, struct np_batcher **ret_batcher, struct np_err *err);
/* Computes until np_batcher_stop(), and then what was given before. Blocks: the thread that opened
 * the device. Error: the device failed; all pictures that were given and not answered get its text,
 * with the code -EIO, at once: take() returns them. */
int np_batcher_run(struct np_batcher *batcher, struct np_err *err);
/* False: too many wait, or the batcher has stopped. Otherwise take() returns it. Any thread. */
bool np_batcher_give(struct np_batcher *batcher, struct np_asked *asked);
/* The next finished picture; NULL: none is. Any thread. */
struct np_asked *np_batcher_take(struct np_batcher *batcher);
void np_batcher_stop(struct np_batcher *batcher); /* any thread */
int np_batcher_waiting(struct np_batcher *batcher);
/* Joins the decoding threads. After run() has returned: no picture waits, unless it never ran. Such
 * pictures are forgotten. */
void np_batcher_close(struct np_batcher *batcher);

#endif
