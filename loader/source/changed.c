/* See changed.h. Readers add, whoever tells reads. */
#include "loader/source/changed.h"

#include <pthread.h>
#include <stdio.h>

#include "loader/base/mem.h"

struct np_changed {
    pthread_mutex_t lock;
    uint8_t *seen; /* under lock: a bit a sample */
    uint64_t nr;   /* under lock */
    char first[1024];
};

struct np_changed *np_changed_new(uint64_t nr_samples, struct np_err *err)
{
    struct np_changed *changed = np_try_alloc(sizeof(*changed), err);

    if (changed && !(changed->seen = np_try_alloc(nr_samples / 8 + 1, err))) {
        np_free(changed);
        changed = NULL;
    }
    if (changed)
        pthread_mutex_init(&changed->lock, NULL);
    return changed;
}

void np_changed_free(struct np_changed *changed)
{
    if (!changed)
        return;
    pthread_mutex_destroy(&changed->lock);
    np_free(changed->seen);
    np_free(changed);
}

void np_changed_add(struct np_changed *changed, uint64_t sample, const char *path)
{
    const uint8_t bit = (uint8_t)(1u << sample % 8);

    pthread_mutex_lock(&changed->lock);
    if (!(changed->seen[sample / 8] & bit) && changed->nr++ == 0)
        snprintf(changed->first, sizeof(changed->first), "%s", path);
    changed->seen[sample / 8] |= bit;
    pthread_mutex_unlock(&changed->lock);
}

uint64_t np_changed_read(struct np_changed *changed, char *first, size_t first_bytes)
{
    uint64_t nr;

    pthread_mutex_lock(&changed->lock);
    nr = changed->nr;
    if (nr)
        snprintf(first, first_bytes, "%s", changed->first);
    pthread_mutex_unlock(&changed->lock);
    return nr;
}
