/* Records whether a reader thread is inside a call that may hang with the storage. np_reader_join()
 * abandons a thread that hangs in one, and waits for any other. */
#ifndef NP_READER_PLACE_H
#define NP_READER_PLACE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

enum np_reader_where { NP_READER_WORKS, NP_READER_CALLS, NP_READER_ABANDONED, NP_READER_ENDED };

struct np_reader_place {
    pthread_mutex_t lock;
    pthread_cond_t moved; /* with `lock` */
    /* under lock */
    enum np_reader_where where;
};

void np_reader_place_init(struct np_reader_place *place);
void np_reader_place_fini(struct np_reader_place *place);
/* The reader thread calls it before and after a call that may hang with the storage
 * (NP_READER_CALLS, NP_READER_WORKS); in between it touches only its own memory. If it was
 * abandoned meanwhile, the second call never returns, because the shared memory is gone. */
void np_reader_place_move(struct np_reader_place *place, enum np_reader_where where);
/* Waits until the thread has ended, or is in a call at until_ns (np_now_ns()) or later. True: it
 * hangs in that call, and is abandoned. The thread that stops the loader. */
bool np_reader_place_hangs(struct np_reader_place *place, uint64_t until_ns);

#endif
