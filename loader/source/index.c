/* An index in memory. Immutable except for the CRCs, so any thread may read it. */
#include "loader/source/index.h"

#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "loader/base/mem.h"
#include "loader/base/remote.h"

uint64_t np_index_samples(const struct np_index *index)
{
    return index->kept ? index->nr_kept : index->nr_samples;
}

uint64_t np_index_unlabelled(const struct np_index *index, uint64_t *ret_first)
{
    uint64_t n = 0;

    for (uint64_t i = np_index_samples(index); i-- > 0;)
        if (np_index_record(index, i)->no_label) {
            *ret_first = i;
            n++;
        }
    return n;
}

int np_index_skip_unlabelled(struct np_index *index, struct np_err *err)
{
    uint64_t first, n = np_index_unlabelled(index, &first);

    if (n == 0)
        return 0;
    index->kept = np_try_array(index->nr_samples - n, sizeof(*index->kept), err);
    if (!index->kept)
        return -ENOMEM;
    for (uint64_t i = 0; i < index->nr_samples; i++)
        if (!index->records[i].no_label)
            index->kept[index->nr_kept++] = (uint32_t)i;
    return 0;
}

uint64_t np_index_number(const struct np_index *index, uint64_t i)
{
    assert(i < np_index_samples(index));
    return index->kept ? index->kept[i] : i;
}

int np_index_keep(
    struct np_index *index, const uint32_t *samples, uint64_t nr_samples, struct np_err *err)
{
    uint32_t *kept = np_try_array((size_t)nr_samples + 1, sizeof(*kept), err);

    if (!kept)
        return -ENOMEM;
    for (uint64_t i = 0; i < nr_samples; i++)
        kept[i] = (uint32_t)np_index_number(index, samples[i]);
    np_free(index->kept);
    index->kept = kept;
    index->nr_kept = nr_samples;
    return 0;
}

const struct np_record *np_index_record(const struct np_index *index, uint64_t i)
{
    return &index->records[np_index_number(index, i)];
}

int np_index_set_key(struct np_index *index, const char *key, struct np_err *err)
{
    np_free(index->key);
    index->key = np_try_strdup(key, err);
    return index->key ? 0 : -ENOMEM;
}

bool np_index_is_remote(const struct np_index *index)
{
    return index->nr_files > 0 && np_is_url(index->paths[0]);
}

uint32_t np_index_mean_extent(const struct np_index *index)
{
    return index->nr_samples ? (uint32_t)(index->extents_bytes / index->nr_samples) : 0;
}

void np_index_set_crc(struct np_index *index, uint64_t i, uint32_t crc32c)
{
    uint32_t *words = (uint32_t *)(void *)&index->records[np_index_number(index, i)];

    __atomic_store_n(&words[5], crc32c, __ATOMIC_RELAXED);
    /* Release: pairs with the acquire in np_index_get(), which reads this word first. */
    __atomic_or_fetch(&words[7], 1u << 23, __ATOMIC_RELEASE);
    __atomic_add_fetch(&index->nr_new_crcs, 1, __ATOMIC_RELAXED);
}

_Static_assert(sizeof(struct np_record) == 32, "the record is the file's");
_Static_assert(offsetof(struct np_record, crc32c) == 20, "np_index_set_crc() writes word 5");
