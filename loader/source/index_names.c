/* The names of an index, and the checksums of a set. Any thread. */
#include "loader/source/index_names.h"

#include <assert.h>
#include <string.h>

#define XXH_STATIC_LINKING_ONLY /* a state on the stack */
#include <xxhash.h>

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
