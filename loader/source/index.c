/* An index in memory. Immutable except for the CRCs, so any thread may read it. */
#include "loader/source/index_file.h"

#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>

#define XXH_STATIC_LINKING_ONLY /* a state on the stack */
#include <xxhash.h>

#include "loader/base/mem.h"

void np_index_builder_free(struct np_index_builder *builder)
{
    if (builder)
        np_free(builder->slots);
    np_free(builder);
}

void np_index_free(struct np_index *index)
{
    if (!index)
        return;
    if (!index->whole) {
        np_free(index->records);
        np_free(index->blocks);
        np_free(index->names);
    }
    np_free(index->whole);
    np_free(index->kept);
    np_free(index->stamps);
    for (int i = 0; index->paths && i < index->nr_files; i++)
        np_free(index->paths[i]);
    for (int i = 0; index->classes && i < index->nr_classes; i++)
        np_free(index->classes[i]);
    np_free(index->paths);
    np_free(index->classes);
    np_free(index->root);
    np_free(index->key);
    np_free(index->cached);
    np_index_builder_free(index->builder);
    np_free(index);
}

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

static bool get_varint(const uint8_t **at, const uint8_t *end, int *ret_value)
{
    unsigned value = 0;

    for (int shift = 0; *at < end && shift < 21; shift += 7) {
        const uint8_t byte = *(*at)++;

        value |= (unsigned)(byte & 127) << shift;
        if (byte < 128) {
            *ret_value = (int)value;
            return true;
        }
    }
    return false;
}

bool np_index_decode_name(
    const uint8_t **at, const uint8_t *end, bool first, char *text, int *length)
{
    const int before = first ? 0 : *length;
    int front, back, middle;

    if (!get_varint(at, end, &front) || !get_varint(at, end, &back) ||
        !get_varint(at, end, &middle) || front + back > before || middle > end - *at ||
        front + middle + back > NP_MAX_NAME || front + middle + back == 0)
        return false;
    memmove(text + front + middle, text + before - back, (size_t)back);
    memcpy(text + front, *at, (size_t)middle);
    *length = front + middle + back;
    text[*length] = '\0';
    *at += middle;
    return true;
}

int np_index_name(const struct np_index *index, uint64_t i, char *text, int text_bytes)
{
    const uint64_t number = np_index_number(index, i);
    const uint8_t *at = index->names + index->blocks[number / NP_INDEX_RESTART];
    const uint8_t *end = index->names + index->names_bytes;
    char name[NP_MAX_NAME + 1];
    int length = 0, kept;

    assert(text_bytes > 0);
    for (uint64_t n = 0; n <= number % NP_INDEX_RESTART; n++)
        if (!np_index_decode_name(&at, end, n == 0, name, &length))
            assert(!"names are checked when an index is opened");
    kept = length < text_bytes ? length : text_bytes - 1;
    memcpy(text, name, (size_t)kept);
    text[kept] = '\0';
    return length;
}

void np_index_names_begin(const struct np_index *index, struct np_index_names *names)
{
    names->index = index;
    names->next = names->next_listed = 0;
    names->at = index->names;
    names->length = 0;
}

bool np_index_names_next(struct np_index_names *names)
{
    const struct np_index *index = names->index;
    const uint8_t *end = index->names + index->names_bytes;

    if (names->next == np_index_samples(index))
        return false;
    for (const uint64_t wanted = np_index_number(index, names->next); names->next_listed <= wanted;
         names->next_listed++)
        if (!np_index_decode_name(&names->at, end, names->next_listed % NP_INDEX_RESTART == 0,
                names->name, &names->length))
            assert(!"names are checked when an index is opened");
    names->sample = names->next++;
    return true;
}

static int32_t label_of(const struct np_record *record, const int32_t *labels)
{
    if (record->no_label)
        return -1;
    return labels ? labels[record->label] : (int32_t)record->label;
}

uint64_t np_index_names_sum(const struct np_index *index, const int32_t *labels)
{
    struct np_index_names names;
    XXH64_state_t state;

    XXH64_reset(&state, 0);
    for (np_index_names_begin(index, &names); np_index_names_next(&names);) {
        const struct np_record record = np_index_get(index, names.sample);
        const int32_t label = label_of(&record, labels);

        XXH64_update(&state, names.name, (size_t)names.length + 1);
        XXH64_update(&state, &label, sizeof(label));
    }
    return XXH64_digest(&state);
}

uint64_t np_index_sizes_sum(const struct np_index *index, const int32_t *labels)
{
    XXH64_state_t state;

    XXH64_reset(&state, 0);
    for (uint64_t i = 0; i < np_index_samples(index); i++) {
        const struct np_record record = np_index_get(index, i);
        const uint32_t words[] = {record.no_label ? 0 : (uint32_t)label_of(&record, labels),
            record.no_label, record.inner_bytes};

        XXH64_update(&state, words, sizeof(words));
    }
    return XXH64_digest(&state);
}

int np_index_set_key(struct np_index *index, const char *key, struct np_err *err)
{
    np_free(index->key);
    index->key = np_try_strdup(key, err);
    return index->key ? 0 : -ENOMEM;
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
