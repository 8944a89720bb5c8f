#include "loader/reader_place.h"

#include <time.h>
#include <unistd.h>

#include "loader/base/clock.h"

void np_reader_place_init(struct np_reader_place *place)
{
    pthread_condattr_t monotonic; /* as np_now_ns() */

    place->where = NP_READER_WORKS;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&place->lock, NULL);
    pthread_cond_init(&place->moved, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

void np_reader_place_fini(struct np_reader_place *place)
{
    pthread_cond_destroy(&place->moved);
    pthread_mutex_destroy(&place->lock);
}

void np_reader_place_move(struct np_reader_place *place, enum np_reader_where where)
{
    pthread_mutex_lock(&place->lock);
    const bool abandoned = place->where == NP_READER_ABANDONED;
    if (!abandoned)
        place->where = where;
    pthread_cond_signal(&place->moved);
    pthread_mutex_unlock(&place->lock);
    while (abandoned)
        pause();
}

bool np_reader_place_hangs(struct np_reader_place *place, uint64_t until_ns)
{
    const struct timespec until = {(time_t)(until_ns / 1000000000), (long)(until_ns % 1000000000)};
    bool hangs = false;

    pthread_mutex_lock(&place->lock);
    while (place->where != NP_READER_ENDED && !hangs) {
        if (np_now_ns() < until_ns)
            pthread_cond_timedwait(&place->moved, &place->lock, &until);
        else if (place->where == NP_READER_CALLS)
            hangs = true;
        else
            pthread_cond_wait(&place->moved, &place->lock);
    }
    if (hangs)
        place->where = NP_READER_ABANDONED;
    pthread_mutex_unlock(&place->lock);
    return hangs;
}
