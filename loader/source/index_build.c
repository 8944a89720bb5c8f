/* Builds an index: its arrays grow, names are coded as they come, and classes are numbered as they
 * come and renumbered by name at the end. One thread, that of a source's scan. */
#include "loader/source/index.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "loader/base/mem.h"
#include "loader/base/remote.h"
#include "loader/source/index_names.h"

/* The state of building: capacity of the arrays, and the name and class added last. */
struct np_index_builder {
    size_t records_cap, blocks_cap, names_cap;
    size_t stamps_cap, paths_cap, classes_cap;
    int *slots; /* hash table of class numbers, -1: free */
    int nr_slots;
    bool numbered;  /* np_index_set_numbered() */
    int last_class; /* most samples have the class of the previous one */
    char last_name[NP_MAX_NAME + 1];
    int last_length;
};

struct np_index *np_index_new(struct np_err *err)
{
    struct np_index *index = np_try_alloc(sizeof(*index), err);

    if (index)
        index->builder = np_try_alloc(sizeof(*index->builder), err);
    if (!index || !index->builder) {
        np_free(index);
        return NULL;
    }
    index->builder->last_class = -1;
    return index;
}

static void free_builder(struct np_index *index)
{
    if (index->builder)
        np_free(index->builder->slots);
    np_free(index->builder);
    index->builder = NULL;
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
    np_free(index->values);
    np_free(index->root);
    np_free(index->key);
    np_free(index->cached);
    free_builder(index);
    np_free(index);
}

static int add_stamp(struct np_index *index, const char *path, const struct np_index_stamp *stamp,
    struct np_err *err)
{
    struct np_index_builder *builder = index->builder;
    const uint64_t n = (uint64_t)index->nr_files;

    assert(builder && (path[0] == '/' || np_is_url(path)));
    if (np_try_grow(&index->stamps, &builder->stamps_cap, n + 1, sizeof(*index->stamps), err) ||
        np_try_grow(&index->paths, &builder->paths_cap, n + 1, sizeof(*index->paths), err) ||
        !(index->paths[n] = np_try_strdup(path, err)))
        return -ENOMEM;
    index->stamps[n] = *stamp;
    return index->nr_files++;
}

int np_index_add_file(
    struct np_index *index, const char *path, const struct stat *st, struct np_err *err)
{
    const struct np_index_stamp stamp = np_index_stamp_of(st);

    return add_stamp(index, path, &stamp, err);
}

static uint32_t hash(const char *name)
{
    uint32_t h = 2166136261u;

    for (; *name; name++)
        h = (h ^ (uint8_t)*name) * 16777619u;
    return h;
}

/* The slot of a class name, or the free one where it belongs. */
static int find_slot(const struct np_index *index, const char *name)
{
    const struct np_index_builder *builder = index->builder;
    uint32_t slot = hash(name);

    for (;; slot++) {
        const int number = builder->slots[slot & (uint32_t)(builder->nr_slots - 1)];

        if (number < 0 || strcmp(index->classes[number], name) == 0)
            return (int)(slot & (uint32_t)(builder->nr_slots - 1));
    }
}

static int grow_slots(struct np_index *index, struct np_err *err)
{
    struct np_index_builder *builder = index->builder;
    const int nr_slots = builder->nr_slots ? builder->nr_slots * 2 : 64;
    int *slots;

    if (index->nr_classes * 2 < builder->nr_slots)
        return 0;
    slots = np_try_array((size_t)nr_slots, sizeof(*slots), err);
    if (!slots)
        return -ENOMEM;
    memset(slots, 0xff, (size_t)nr_slots * sizeof(*slots));
    np_free(builder->slots);
    builder->slots = slots;
    builder->nr_slots = nr_slots;
    for (int i = 0; i < index->nr_classes; i++)
        slots[find_slot(index, index->classes[i])] = i;
    return 0;
}

int np_index_add_class(
    struct np_index *index, const char *name, const char *path, struct np_err *err)
{
    struct np_index_builder *builder = index->builder;
    const uint64_t n = (uint64_t)index->nr_classes;
    int slot;

    if (builder->last_class >= 0 && strcmp(index->classes[builder->last_class], name) == 0)
        return builder->last_class;
    if (grow_slots(index, err))
        return -ENOMEM;
    slot = find_slot(index, name);
    if (builder->slots[slot] < 0) {
        if (index->nr_classes >= NP_MAX_CLASSES)
            return np_err_set(
                err, -E2BIG, "%s: over %d classes: are its folders classes?", path, NP_MAX_CLASSES);
        if (np_try_grow(
                &index->classes, &builder->classes_cap, n + 1, sizeof(*index->classes), err) ||
            !(index->classes[n] = np_try_strdup(name, err)))
            return -ENOMEM;
        builder->slots[slot] = index->nr_classes++;
    }
    builder->last_class = builder->slots[slot];
    return builder->last_class;
}

static uint8_t *put_varint(uint8_t *to, unsigned value)
{
    for (; value >= 128; value >>= 7)
        *to++ = (uint8_t)(value | 128);
    *to++ = (uint8_t)value;
    return to;
}

/* Codes a name by its difference to the previous one, at both ends: names in shuffled archives
 * share little at the front, but their extension at the end. */
static int add_name(struct np_index *index, const char *name, const char *path, struct np_err *err)
{
    struct np_index_builder *builder = index->builder;
    const int length = (int)strnlen(name, NP_MAX_NAME + 1);
    const bool first = index->nr_samples % NP_INDEX_RESTART == 0;
    const int max = first ? 0 : builder->last_length < length ? builder->last_length : length;
    const char *last_end = builder->last_name + builder->last_length, *end = name + length;
    int front = 0, back = 0;
    uint8_t *to;

    if (length == 0 || length > NP_MAX_NAME)
        return np_err_set(err, -ENAMETOOLONG, "%s: the name '%.40s...' is empty or over %d bytes",
            path, name, NP_MAX_NAME);
    while (front < max && name[front] == builder->last_name[front])
        front++;
    while (back < max - front && end[-1 - back] == last_end[-1 - back])
        back++;
    if (np_try_grow(
            &index->names, &builder->names_cap, index->names_bytes + NP_MAX_NAME + 16, 1, err))
        return -ENOMEM;
    to = put_varint(index->names + index->names_bytes, (unsigned)front);
    to = put_varint(to, (unsigned)back);
    to = put_varint(to, (unsigned)(length - front - back));
    memcpy(to, name + front, (size_t)(length - front - back));
    index->names_bytes = (uint64_t)(to - index->names) + (uint64_t)(length - front - back);
    memcpy(builder->last_name, name, (size_t)length + 1);
    builder->last_length = length;
    return 0;
}

int np_index_add(struct np_index *index, const struct np_record *record, const char *name,
    const char *path, struct np_err *err)
{
    struct np_index_builder *builder = index->builder;
    const uint64_t n = index->nr_samples, block = n / NP_INDEX_RESTART;
    const uint64_t names_before = index->names_bytes;
    int code;

    if (n >= UINT32_MAX)
        return np_err_set(err, -E2BIG, "%s: over %u samples in one set", path, UINT32_MAX);
    if (np_try_grow(&index->records, &builder->records_cap, n + 1, sizeof(*record), err) ||
        np_try_grow(&index->blocks, &builder->blocks_cap, block + 1, sizeof(*index->blocks), err))
        return -ENOMEM;
    code = add_name(index, name, path, err);
    if (code)
        return code;
    if (n % NP_INDEX_RESTART == 0)
        index->blocks[block] = names_before;
    index->records[n] = *record;
    index->nr_samples++;
    return 0;
}

/* labels[class of part] = class of index. */
static int append_samples(struct np_index *index, const struct np_index *part, uint32_t first_file,
    const int *labels, const char *path, struct np_err *err)
{
    struct np_index_names names;
    int code = 0;

    np_index_names_begin(part, &names);
    while (!code && np_index_names_next(&names)) {
        struct np_record record = part->records[names.sample];

        record.file += first_file;
        if (!record.no_label)
            record.label = (uint32_t)labels[record.label];
        code = np_index_add(index, &record, names.name, path, err);
    }
    return code;
}

int np_index_append(
    struct np_index *index, const struct np_index *part, const char *path, struct np_err *err)
{
    const uint32_t first_file = (uint32_t)index->nr_files;
    int *labels = np_try_array((size_t)part->nr_classes, sizeof(*labels), err);
    int code = labels ? 0 : -ENOMEM;

    for (int i = 0; !code && i < part->nr_files; i++)
        code = add_stamp(index, part->paths[i], &part->stamps[i], err) < 0 ? -ENOMEM : 0;
    for (int i = 0; !code && i < part->nr_classes; i++) {
        labels[i] = np_index_add_class(index, part->classes[i], path, err);
        code = labels[i] < 0 ? labels[i] : 0;
    }
    if (!code)
        code = append_samples(index, part, first_file, labels, path, err);
    if (!code)
        np_index_set_max_inner(index, part->max_inner);
    np_free(labels);
    return code;
}

void np_index_cut(struct np_index *index, uint64_t nr_samples)
{
    struct np_index_builder *builder = index->builder;
    const uint64_t block = nr_samples / NP_INDEX_RESTART;
    const uint8_t *at = index->names, *end = index->names + index->names_bytes;

    assert(builder && nr_samples <= index->nr_samples);
    if (nr_samples == index->nr_samples)
        return;
    at += index->blocks[block];
    for (uint64_t i = 0; i < nr_samples % NP_INDEX_RESTART; i++)
        if (!np_index_decode_name(&at, end, i == 0, builder->last_name, &builder->last_length))
            assert(!"the names are our own");
    index->names_bytes = (uint64_t)(at - index->names);
    index->nr_samples = nr_samples;
}

void np_index_set_label(struct np_index *index, uint64_t i, int label)
{
    assert(index->builder && i < index->nr_samples && label < index->nr_classes);
    index->records[i].label = label < 0 ? 0 : (uint32_t)label;
    index->records[i].no_label = label < 0;
}

void np_index_set_extent(struct np_index *index, uint64_t i, uint64_t offset, uint32_t bytes)
{
    assert(index->builder && i < index->nr_samples);
    index->records[i].offset = offset;
    index->records[i].bytes = bytes;
}

void np_index_set_max_inner(struct np_index *index, uint32_t bytes)
{
    if (bytes > index->max_inner)
        index->max_inner = bytes;
}

void np_index_set_numbered(struct np_index *index)
{
    index->builder->numbered = true;
}

static int by_name(const void *a, const void *b, void *classes)
{
    char *const *names = classes;

    return strcmp(names[*(const int *)a], names[*(const int *)b]);
}

static int by_value(const void *a, const void *b, void *classes)
{
    char *const *names = classes;
    const long long va = atoll(names[*(const int *)a]), vb = atoll(names[*(const int *)b]);

    return va != vb ? (va > vb) - (va < vb) : by_name(a, b, classes);
}

/* order[new number] = old number. */
static void sort_classes(const struct np_index *index, int *order)
{
    for (int i = 0; i < index->nr_classes; i++)
        order[i] = i;
    qsort_r(order, (size_t)index->nr_classes, sizeof(*order),
        index->builder->numbered ? by_value : by_name, index->classes);
}

static int renumber_classes(struct np_index *index, struct np_err *err)
{
    const size_t n = (size_t)index->nr_classes;
    int *order = np_try_array(n, sizeof(*order), err),
        *number = np_try_array(n, sizeof(*number), err);
    char **sorted = np_try_array(n, sizeof(*sorted), err);
    int code = order && number && sorted ? 0 : -ENOMEM;

    if (!code) {
        sort_classes(index, order);
        for (size_t i = 0; i < n; i++) {
            number[order[i]] = (int)i;
            sorted[i] = index->classes[order[i]];
        }
        for (uint64_t i = 0; i < index->nr_samples; i++)
            if (!index->records[i].no_label)
                index->records[i].label = (uint32_t)number[index->records[i].label];
        np_free(index->classes);
        index->classes = sorted;
        sorted = NULL;
    }
    np_free(order);
    np_free(number);
    np_free(sorted);
    return code;
}

/* Frees the unused end of an array; ignores a failure. */
static void trim(void *array, uint64_t used, size_t bytes)
{
    void **place = array;
    void *exact = used ? np_try_array(used, bytes, NULL) : NULL;

    if (exact) {
        memcpy(exact, *place, used * bytes);
        np_free(*place);
        *place = exact;
    }
}

int np_index_finish(struct np_index *index, struct np_err *err)
{
    int code = renumber_classes(index, err);

    if (code)
        return code;
    for (uint64_t i = 0; i < index->nr_samples; i++) {
        const struct np_record *record = &index->records[i];
        const uint64_t inner = (uint64_t)record->inner_offset + record->inner_bytes;

        index->max_extent = record->bytes > index->max_extent ? record->bytes : index->max_extent;
        index->extents_bytes += record->bytes;
        np_index_set_max_inner(index, inner > UINT32_MAX ? UINT32_MAX : (uint32_t)inner);
    }
    trim(&index->records, index->nr_samples, sizeof(*index->records));
    trim(&index->names, index->names_bytes, 1);
    free_builder(index);
    return 0;
}
