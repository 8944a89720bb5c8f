/* Lists a zip file of stored entries. The format: PKWARE's APPNOTE.TXT 6.3.10, sections 4.3.7 (local
 * header), 4.3.12 (directory), 4.3.14 to 4.3.16 (its end, and zip64's), 4.5.3 (zip64's sizes). */
#include "trainer/checkpoint/zip_stored.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "loader/base/mem.h"

#define LOCAL_BYTES   30
#define ROW_BYTES     46 /* of the directory */
#define END_BYTES     22
#define END64_BYTES   56
#define WHERE64_BYTES 20
#define MAX_COMMENT   65535
#define MAX_DIRECTORY (64u << 20) /* bytes: half a million entries */
#define ENCRYPTED     1u          /* of an entry's flags */

static uint64_t number(const void *bytes, size_t at, size_t n)
{
    uint64_t value = 0;

    while (n-- > 0)
        value = value << 8 | ((const uint8_t *)bytes)[at + n];
    return value;
}

static bool has_magic(const uint8_t *bytes, const char *magic)
{
    return memcmp(bytes, magic, 4) == 0;
}

static int damaged(const struct np_st_file *file, const char *what, struct np_err *err)
{
    return np_err_set(err, -EBADMSG, "%s: damaged or truncated: %s", file->name, what);
}

/* --- the end: where the directory is --------------------------------------------------------- */

struct place {
    uint64_t offset, bytes, n;
};

/* A large file has a second end before the first, with 64-bit numbers. at: of the first end. */
static int find_large(
    const struct np_st_file *file, uint64_t at, struct place *ret_place, struct np_err *err)
{
    uint8_t where[WHERE64_BYTES], end[END64_BYTES];
    uint64_t offset;
    int code;

    if (at < WHERE64_BYTES)
        return 0;
    code = np_st_read_at(file, at - WHERE64_BYTES, where, sizeof(where), err);
    if (code < 0 || !has_magic(where, "PK\6\7"))
        return code;
    offset = number(where, 8, 8);
    if (offset > at - WHERE64_BYTES || at - WHERE64_BYTES - offset < END64_BYTES)
        return damaged(file, "the end of the zip file is not where it should be", err);
    code = np_st_read_at(file, offset, end, sizeof(end), err);
    if (code < 0)
        return code;
    if (!has_magic(end, "PK\6\6"))
        return damaged(file, "the end of the zip file is not where it should be", err);
    *ret_place = (struct place){number(end, 48, 8), number(end, 40, 8), number(end, 32, 8)};
    return 0;
}

static int find_directory(
    const struct np_st_file *file, struct place *ret_place, struct np_err *err)
{
    const uint64_t all = file->nr_bytes,
                   tail = all < END_BYTES + MAX_COMMENT ? all : END_BYTES + MAX_COMMENT;
    uint8_t *bytes = np_try_alloc(tail, err);
    int code = bytes ? np_st_read_at(file, all - tail, bytes, tail, err)
                     : np_err_context(err, "%s", file->name);
    uint64_t at = tail < END_BYTES ? 0 : tail - END_BYTES + 1;
    bool found = false;

    while (code == 0 && !found && at-- > 0)
        found =
            has_magic(bytes + at, "PK\5\6") && number(bytes, at + 20, 2) == tail - at - END_BYTES;
    if (code == 0 && !found)
        code = damaged(file, "the zip file has no end, the list of its entries", err);
    if (code == 0) {
        *ret_place = (struct place){
            number(bytes, at + 16, 4), number(bytes, at + 12, 4), number(bytes, at + 10, 2)};
        code = find_large(file, all - tail + at, ret_place, err);
    }
    np_free(bytes);
    if (code == 0 && (ret_place->offset > all || ret_place->bytes > all - ret_place->offset ||
                         ret_place->n > ret_place->bytes / ROW_BYTES))
        return damaged(file, "the list of the zip file's entries lies outside of it", err);
    if (code == 0 && ret_place->bytes > MAX_DIRECTORY)
        return np_err_set(err, -E2BIG,
            "%s: the list of the zip file's entries is larger than %u MiB", file->name,
            MAX_DIRECTORY >> 20);
    return code;
}

/* --- the directory ---------------------------------------------------------------------------- */

/* Numbers that do not fit 32 bits stand in an extra field, in this order. */
static void take_large(const uint8_t *extra, size_t bytes, uint64_t *const values[3])
{
    for (size_t at = 0; at + 4 <= bytes;) {
        const size_t n = number(extra, at + 2, 2), end = at + 4 + n;
        size_t from = at + 4;

        if (end > bytes)
            return;
        for (int i = 0; i < 3 && number(extra, at, 2) == 1; i++)
            if (*values[i] == UINT32_MAX && from + 8 <= end) {
                *values[i] = number(extra, from, 8);
                from += 8;
            }
        at = end;
    }
}

/* offset: of the entry's local header, which lies before limit. */
static int find_content(const struct np_st_file *file, uint64_t offset, uint64_t limit,
    struct np_zip_entry *entry, struct np_err *err)
{
    uint8_t local[LOCAL_BYTES];

    if (offset > limit || limit - offset < LOCAL_BYTES)
        return damaged(file, "an entry of the zip file lies outside of it", err);
    const int code = np_st_read_at(file, offset, local, sizeof(local), err);
    if (code < 0)
        return code;
    if (!has_magic(local, "PK\3\4"))
        return damaged(file, "an entry of the zip file is not where its list says", err);
    entry->offset = offset + LOCAL_BYTES + number(local, 26, 2) + number(local, 28, 2);
    if (entry->offset > limit || entry->bytes > limit - entry->offset)
        return damaged(file, "an entry of the zip file lies outside of it", err);
    return 0;
}

/* The row at *at of the directory, whose first byte is directory[0] and the file's byte limit.
 * Moves the name to the front of the row, which leaves space for its NUL. */
static int read_row(const struct np_st_file *file, uint8_t *directory, const struct place *place,
    uint64_t *at, struct np_zip_entry *entry, struct np_err *err)
{
    uint8_t *row = directory + *at;
    const uint64_t left = place->bytes - *at;

    if (left < ROW_BYTES || !has_magic(row, "PK\1\2"))
        return damaged(file, "the list of the zip file's entries is not one", err);
    const size_t name = number(row, 28, 2), extra = number(row, 30, 2),
                 comment = number(row, 32, 2);
    const uint64_t flags = number(row, 8, 2), method = number(row, 10, 2);
    uint64_t packed = number(row, 20, 4), bytes = number(row, 24, 4), offset = number(row, 42, 4);

    if (left - ROW_BYTES < name + extra + comment || memchr(row + ROW_BYTES, 0, name))
        return damaged(file, "the list of the zip file's entries is not one", err);
    take_large(row + ROW_BYTES + name, extra, (uint64_t *const[3]){&bytes, &packed, &offset});
    entry->crc32 = (uint32_t)number(row, 16, 4);
    memmove(row, row + ROW_BYTES, name);
    row[name] = '\0';
    entry->name = (const char *)row;
    entry->bytes = packed;
    *at += ROW_BYTES + name + extra + comment;
    entry->packed = flags & ENCRYPTED                ? "encrypted"
                    : method != 0 || packed != bytes ? "compressed"
                                                     : NULL;
    return find_content(file, offset, place->offset, entry, err);
}

static int by_place(const void *a, const void *b)
{
    const struct np_zip_entry *x = a, *y = b;

    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

int np_zip_open(const struct np_st_file *file, struct np_zip *zip, struct np_err *err)
{
    struct place place = {0};
    uint64_t at = 0;
    int code = find_directory(file, &place, err);

    *zip = (struct np_zip){0};
    if (code < 0)
        return code;
    zip->directory = np_try_alloc(place.bytes + 1, err);
    zip->entries = np_try_array(place.n, sizeof(*zip->entries), err);
    if (!zip->directory || !zip->entries)
        return np_err_context(err, "%s", file->name);
    code = np_st_read_at(file, place.offset, zip->directory, place.bytes, err);
    for (; code == 0 && zip->n < (int)place.n; zip->n++)
        code = read_row(file, (uint8_t *)zip->directory, &place, &at, &zip->entries[zip->n], err);
    if (code < 0)
        return code;
    qsort(zip->entries, (size_t)zip->n, sizeof(*zip->entries), by_place);
    for (int i = 1; i < zip->n; i++)
        if (zip->entries[i].offset - LOCAL_BYTES <
            zip->entries[i - 1].offset + zip->entries[i - 1].bytes)
            return damaged(file, "two entries of the zip file overlap", err);
    return 0;
}

void np_zip_fini(struct np_zip *zip)
{
    np_free(zip->entries);
    np_free(zip->directory);
    *zip = (struct np_zip){0};
}

const struct np_zip_entry *np_zip_find(const struct np_zip *zip, const char *name)
{
    for (int i = 0; i < zip->n; i++)
        if (strcmp(zip->entries[i].name, name) == 0)
            return &zip->entries[i];
    return NULL;
}
