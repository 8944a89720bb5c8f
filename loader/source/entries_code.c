/* See entries_code.h. Coded entries are a byte CODE_VERSION; the varints mcus_across, mcus_down,
 * step, header_bytes and kept_bytes; the header; the checksums, little-endian; and bits, the most
 * significant of a byte first, padded with zeros. The bits are 5 for the parameter of the Rice code
 * of each of the four columns, and then for each entry but the first a number for each column. A
 * number is a difference, zigzag, to the entry above (in the first row: to the previous entry),
 * which is 8 or 16 pixels away. The first column is the distance from the previous entry, the
 * others are the predictors. A column of zeros has no numbers, except the first column.
 *
 * A number v with parameter k is v >> k ones, a zero, and the low k bits; if there were LONG_ONES
 * ones or more, it is LONG_ONES ones, 6 bits with the length of v, and v. The parameter follows
 * from the sum of the numbers. A picture's entries have exactly one coding; others are refused. */
#include "loader/source/entries_code.h"

#include <errno.h>
#include <string.h>

#include "loader/base/crc32c.h"
#include "loader/base/mem.h"

#define CODE_VERSION 2 /* 1: without a header */
#define NR_COLUMNS   4
#define ALL_ZERO     31 /* in place of a parameter */
#define LONG_ONES    15
#define MAX_LENGTH   36 /* bits of a number: 2^32 bytes are 2^35 bits */
/* Bits of the longest number; of all columns of an entry. */
#define MAX_NUMBER (LONG_ONES + 6 + MAX_LENGTH)

static bool sizes_fit(const struct np_picture_entries *entries)
{
    return entries->mcus_across >= 1 && entries->mcus_across <= NP_MAX_MCUS &&
           entries->mcus_down >= 1 && entries->mcus_down <= NP_MAX_MCUS && entries->step >= 1 &&
           entries->step <= NP_MAX_MCUS;
}

static int per_row(const struct np_picture_entries *entries)
{
    return (entries->mcus_across + entries->step - 1) / entries->step;
}

int np_entries_nr(const struct np_picture_entries *entries)
{
    return entries->mcus_down * per_row(entries);
}

int np_entries_hold(struct np_picture_entries *entries, struct np_err *err)
{
    size_t n;

    if (!sizes_fit(entries))
        return np_err_set(err, -EINVAL, "%d by %d MCUs, an entry every %d: out of range",
            entries->mcus_across, entries->mcus_down, entries->step);
    n = (size_t)np_entries_nr(entries);
    if (np_try_grow(&entries->at, &entries->at_room, n, sizeof(*entries->at), err) ||
        np_try_grow(&entries->crcs, &entries->crcs_room, (size_t)entries->mcus_down + 1,
            sizeof(*entries->crcs), err))
        return -ENOMEM;
    entries->nr = (int)n;
    return 0;
}

void np_entries_fini(struct np_picture_entries *entries)
{
    np_free(entries->at);
    np_free(entries->crcs);
    *entries = (struct np_picture_entries){0};
}

void np_entries_part(
    const struct np_picture_entries *entries, int part, uint32_t *ret_offset, uint32_t *ret_bytes)
{
    const int row = part - 1;
    uint64_t from = 0, to = entries->header_bytes;

    if (part > 0) {
        from = entries->at[row * per_row(entries)].bit / 8;
        to = part == entries->mcus_down ? entries->file_bytes
                                        : (entries->at[part * per_row(entries)].bit + 7) / 8;
    }
    *ret_offset = (uint32_t)from;
    *ret_bytes = (uint32_t)(to - from);
}

/* True if the entries are in order and inside the file. */
static bool in_order(const struct np_picture_entries *entries)
{
    const struct np_entry *at = entries->at;

    if (!sizes_fit(entries) || entries->nr != np_entries_nr(entries) ||
        entries->kept_bytes > NP_MAX_KEPT_HEADER || entries->kept_bytes > entries->header_bytes ||
        at[0].bit != 8ull * entries->header_bytes || at[0].dc[0] || at[0].dc[1] || at[0].dc[2])
        return false;
    for (int i = 1; i < entries->nr; i++)
        if (at[i].bit <= at[i - 1].bit)
            return false;
    return at[entries->nr - 1].bit < 8ull * entries->file_bytes;
}

int np_entries_sum(struct np_picture_entries *entries, const uint8_t *file, struct np_err *err)
{
    if (!in_order(entries))
        return np_err_set(err, -EINVAL, "the entries are not in order");
    for (int part = 0; part <= entries->mcus_down; part++) {
        uint32_t offset, bytes;

        np_entries_part(entries, part, &offset, &bytes);
        entries->crcs[part] = np_crc32c(0, file + offset, bytes);
    }
    return 0;
}

/* --- the numbers ------------------------------------------------------------------------------ */

/* The entry that predicts entry i's DC predictors. */
static const struct np_entry *above(const struct np_entry *at, int i, int nr_in_row)
{
    return &at[i - (i < nr_in_row ? 1 : nr_in_row)];
}

/* The expected distance of entry i from the previous entry. */
static int64_t distance(const struct np_entry *at, int i, int nr_in_row)
{
    const int like = i > nr_in_row ? i - nr_in_row : i - 1;

    return like > 0 ? (int64_t)(at[like].bit - at[like - 1].bit) : 0;
}

static inline uint64_t zigzag(int64_t difference)
{
    return (uint64_t)difference << 1 ^ (difference < 0 ? UINT64_MAX : 0);
}

static inline void numbers_of(
    const struct np_entry *at, int i, int nr_in_row, uint64_t numbers[NR_COLUMNS])
{
    const struct np_entry *like = above(at, i, nr_in_row);

    numbers[0] = zigzag((int64_t)(at[i].bit - at[i - 1].bit) - distance(at, i, nr_in_row));
    for (int c = 0; c < NR_COLUMNS - 1; c++)
        numbers[1 + c] = zigzag(at[i].dc[c] - like->dc[c]);
}

/* The parameter of a column of n numbers: about the logarithm of their mean. A position takes at
 * least one bit, so that a few bytes never decode to many entries. */
static int parameter(int column, uint64_t sum, uint64_t n)
{
    int k = 0;

    if (sum == 0 && (column > 0 || n == 0))
        return ALL_ZERO;
    while (k < ALL_ZERO - 1 && n << (k + 1) <= sum)
        k++;
    return k;
}

/* --- coding ----------------------------------------------------------------------------------- */

static uint8_t *put_varint(uint8_t *at, uint32_t value)
{
    for (; value >= 128; value >>= 7)
        *at++ = (uint8_t)(value | 128);
    *at++ = (uint8_t)value;
    return at;
}

struct bits {
    uint8_t *at;
    uint64_t word; /* the low nr bits are not stored yet */
    int nr;
};

/* n: at most 32. */
static void put_bits(struct bits *bits, uint64_t value, int n)
{
    bits->word = bits->word << n | value;
    for (bits->nr += n; bits->nr >= 8; bits->nr -= 8)
        *bits->at++ = (uint8_t)(bits->word >> (bits->nr - 8));
}

static void put_number(struct bits *bits, uint64_t value, int k)
{
    const uint64_t ones = value >> k;

    if (ones < LONG_ONES && ones + (unsigned)k < 32) {
        put_bits(bits, ((2ull << ones) - 2) << k | (value & ((1ull << k) - 1)), (int)ones + 1 + k);
        return;
    }
    if (ones < LONG_ONES) {
        put_bits(bits, (2ull << ones) - 2, (int)ones + 1);
        put_bits(bits, value & ((1ull << k) - 1), k);
        return;
    }
    const int length = 64 - __builtin_clzll(value), high = length > 18 ? length - 18 : 0;

    put_bits(bits, (1u << LONG_ONES) - 1, LONG_ONES);
    put_bits(bits, (uint64_t)length, 6);
    put_bits(bits, value >> (length - high), high);
    put_bits(bits, value & ((1ull << (length - high)) - 1), length - high);
}

static uint8_t *put_numbers(const struct np_picture_entries *entries, uint8_t *at)
{
    const int in_row = per_row(entries);
    struct bits bits = {.at = at};
    uint64_t numbers[NR_COLUMNS], sums[NR_COLUMNS] = {0};
    int k[NR_COLUMNS];

    for (int i = 1; i < entries->nr; i++) {
        numbers_of(entries->at, i, in_row, numbers);
        for (int c = 0; c < NR_COLUMNS; c++)
            sums[c] += numbers[c];
    }
    for (int c = 0; c < NR_COLUMNS; c++) {
        k[c] = parameter(c, sums[c], (uint64_t)entries->nr - 1);
        put_bits(&bits, (uint64_t)k[c], 5);
    }
    for (int i = 1; i < entries->nr; i++) {
        numbers_of(entries->at, i, in_row, numbers);
        for (int c = 0; c < NR_COLUMNS; c++)
            if (k[c] != ALL_ZERO)
                put_number(&bits, numbers[c], k[c]);
    }
    if (bits.nr > 0)
        put_bits(&bits, 0, 8 - bits.nr);
    return bits.at;
}

int np_entries_encode(const struct np_picture_entries *entries, uint8_t **coded, size_t *room,
    size_t *ret_bytes, struct np_err *err)
{
    uint8_t *at;
    size_t most;

    if (!in_order(entries))
        return np_err_set(err, -EINVAL, "the entries are not in order");
    most = 32 + entries->kept_bytes + 4 * (size_t)(entries->mcus_down + 1) +
           (size_t)entries->nr * (NR_COLUMNS * MAX_NUMBER / 8 + 1);
    if (np_hold(coded, room, most, err))
        return -ENOMEM;
    at = *coded;
    *at++ = CODE_VERSION;
    at = put_varint(at, (uint32_t)entries->mcus_across);
    at = put_varint(at, (uint32_t)entries->mcus_down);
    at = put_varint(at, (uint32_t)entries->step);
    at = put_varint(at, entries->header_bytes);
    at = put_varint(at, entries->kept_bytes);
    memcpy(at, entries->header, entries->kept_bytes);
    at += entries->kept_bytes;
    memcpy(at, entries->crcs, 4 * ((size_t)entries->mcus_down + 1));
    at = put_numbers(entries, at + 4 * (entries->mcus_down + 1));
    *ret_bytes = (size_t)(at - *coded);
    return 0;
}

/* --- decoding --------------------------------------------------------------------------------- */

struct coded {
    const uint8_t *bytes;
    size_t nr_bytes;
    uint64_t bit; /* the next one; past the end: bits were missing */
};

static bool get_varint(struct coded *coded, size_t *at, uint32_t max, uint32_t *ret_value)
{
    uint64_t value = 0;

    for (int shift = 0; *at < coded->nr_bytes && shift < 35; shift += 7) {
        const uint8_t byte = coded->bytes[(*at)++];

        value |= (uint64_t)(byte & 127) << shift;
        if (byte < 128) {
            *ret_value = (uint32_t)value;
            return value <= max && (byte || shift == 0);
        }
    }
    return false;
}

/* The next 57 bits or more, at the top; zeros past the end. */
static uint64_t peek(const struct coded *coded)
{
    const uint64_t byte = coded->bit / 8;
    uint64_t word = 0;

    if (byte + 8 <= coded->nr_bytes)
        memcpy(&word, coded->bytes + byte, 8);
    else if (byte < coded->nr_bytes)
        memcpy(&word, coded->bytes + byte, coded->nr_bytes - byte);
    return __builtin_bswap64(word) << coded->bit % 8;
}

/* UINT64_MAX: not a coding of a number with the parameter k. */
static inline uint64_t get_number(struct coded *coded, int k)
{
    const uint64_t word = peek(coded);
    const int ones = ~word ? __builtin_clzll(~word) : 64;
    uint64_t value;

    if (ones < LONG_ONES) {
        coded->bit += (uint64_t)(ones + 1 + k);
        return (uint64_t)ones << k | (word << (ones + 1)) >> (63 - k) >> 1;
    }
    const int length = (int)(word << LONG_ONES >> 58);

    if (length == 0 || length > MAX_LENGTH)
        return UINT64_MAX;
    value = word << (LONG_ONES + 6) >> (64 - length);
    coded->bit += (uint64_t)(LONG_ONES + 6 + length);
    return value >> (length - 1) && value >> k >= LONG_ONES ? value : UINT64_MAX;
}

/* False: the result is outside the file or the range of a predictor. */
static bool take_number(
    struct np_picture_entries *entries, int i, int column, int nr_in_row, uint64_t value)
{
    struct np_entry *at = &entries->at[i];
    int64_t sum = value & 1 ? -(int64_t)(value + 1) / 2 : (int64_t)value / 2;

    if (column == 0) {
        sum += distance(entries->at, i, nr_in_row);
        at->bit = at[-1].bit + (uint64_t)sum;
        return sum > 0 && at->bit < 8ull * entries->file_bytes;
    }
    sum += above(entries->at, i, nr_in_row)->dc[column - 1];
    at->dc[column - 1] = (int16_t)sum;
    return sum == at->dc[column - 1];
}

static bool get_numbers(struct coded *coded, struct np_picture_entries *entries)
{
    uint64_t sums[NR_COLUMNS] = {0};
    const int in_row = per_row(entries);
    int k[NR_COLUMNS];

    for (int c = 0; c < NR_COLUMNS; c++) {
        k[c] = (int)(peek(coded) >> 59);
        coded->bit += 5;
    }
    for (int i = 1; i < entries->nr; i++)
        for (int c = 0; c < NR_COLUMNS; c++) {
            const uint64_t value = k[c] == ALL_ZERO ? 0 : get_number(coded, k[c]);

            if (value == UINT64_MAX || !take_number(entries, i, c, in_row, value))
                return false;
            sums[c] += value;
        }
    for (int c = 0; c < NR_COLUMNS; c++)
        if (k[c] != parameter(c, sums[c], (uint64_t)entries->nr - 1))
            return false;
    return (coded->bit + 7) / 8 == coded->nr_bytes && peek(coded) == 0;
}

static bool get_sizes(struct coded *coded, size_t *at, struct np_picture_entries *entries)
{
    uint32_t across, down, step;

    if (coded->nr_bytes < 1 || coded->bytes[0] != CODE_VERSION)
        return false;
    *at = 1;
    if (!get_varint(coded, at, NP_MAX_MCUS, &across) ||
        !get_varint(coded, at, NP_MAX_MCUS, &down) || !get_varint(coded, at, NP_MAX_MCUS, &step) ||
        !get_varint(coded, at, entries->file_bytes, &entries->header_bytes) ||
        !get_varint(coded, at, NP_MAX_KEPT_HEADER, &entries->kept_bytes) ||
        entries->kept_bytes > entries->header_bytes || coded->nr_bytes - *at < entries->kept_bytes)
        return false;
    memcpy(entries->header, coded->bytes + *at, entries->kept_bytes);
    *at += entries->kept_bytes;
    entries->mcus_across = (int)across;
    entries->mcus_down = (int)down;
    entries->step = (int)step;
    /* Each entry but the first takes at least one bit. */
    return sizes_fit(entries) && coded->nr_bytes - *at >= 4 * ((size_t)down + 1) &&
           (uint64_t)np_entries_nr(entries) <= 8 * (uint64_t)coded->nr_bytes;
}

int np_entries_decode(const uint8_t *bytes, size_t nr_bytes, uint32_t file_bytes,
    struct np_picture_entries *entries, struct np_err *err)
{
    struct coded coded = {.bytes = bytes, .nr_bytes = nr_bytes};
    size_t at;

    entries->file_bytes = file_bytes;
    if (!get_sizes(&coded, &at, entries) || entries->header_bytes >= file_bytes)
        return np_err_set(err, -EBADMSG, "damaged entries: their sizes");
    if (np_entries_hold(entries, err))
        return -ENOMEM;
    memcpy(entries->crcs, bytes + at, 4 * ((size_t)entries->mcus_down + 1));
    coded.bit = 8 * (at + 4 * ((size_t)entries->mcus_down + 1));
    memset(entries->at, 0, (size_t)entries->nr * sizeof(*entries->at));
    entries->at[0].bit = 8ull * entries->header_bytes;
    if (!get_numbers(&coded, entries))
        return np_err_set(err, -EBADMSG, "damaged entries: their positions");
    return 0;
}
