/* Entropy decoding (T.81 F.2.2) with tables of one or two symbols an entry. */
#include <string.h>

#include "loader/pixels/jpeg_parts.h"

#define LOOK     NP_JPEG_LOOK
#define MAX_BITS 18   /* of an entry: three of them are in a window of 56 bits */
#define ENDS     0x80 /* added to an entry's bits: the block ends */
#define SLOW     255  /* an entry's last place: decode it slowly */
#define NEW      (-1) /* the last coefficient of a block before its first */
#define BMI2     __attribute__((target("bmi2")))
#define INLINE   static inline __attribute__((always_inline)) BMI2

const uint8_t np_jpeg_natural[64] = {0, 1, 8, 16, 9, 2, 3, 10, 17, 24, 32, 25, 18, 11, 4, 5, 12, 19,
    26, 33, 40, 48, 41, 34, 27, 20, 13, 6, 7, 14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22,
    15, 23, 30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63};

/* --- tables -------------------------------------------------------------------------------- */

/* Makes the code with the bits `code` and a value of known sign. The value is `part` plus the bits
 * of code and value, read as one number. So an entry needs the sign of a value, not its lower bits
 * (F.2.2.1, EXTEND). */
static struct np_jpeg_code code_of(int symbol, int length, bool is_dc, uint32_t code, bool positive)
{
    const int size = symbol & 15, run = is_dc ? 0 : symbol >> 4, bits = length + size;
    const bool ends = !is_dc && size == 0 && run != 15;

    return (struct np_jpeg_code){.length = (uint8_t)length,
        .size = (uint8_t)size,
        .bits = (uint8_t)(bits | (ends ? ENDS : 0)),
        .reach = (uint8_t)(ends ? 1 : run + 1),
        .rest = (int8_t)(ends || bits > LOOK ? 0 : LOOK - bits),
        .slow = length + (size > 0) > LOOK || bits > MAX_BITS,
        .part = (int16_t)((positive || size == 0 ? 0 : 1 - (1 << size)) - (int)(code << size))};
}

/* Fills the indexes that begin with a code: first those with a negative value, or one of unknown
 * sign. */
static uint32_t fill_codes(
    struct np_jpeg_code *codes, uint32_t at, int symbol, int length, bool is_dc, uint32_t code)
{
    const uint32_t nr = 1u << (LOOK - length);

    for (uint32_t positive = 0; positive < 2; positive++) {
        const struct np_jpeg_code filled = code_of(symbol, length, is_dc, code, positive);

        for (const uint32_t end = at + (nr + 1 - positive) / 2; at < end; at++)
            codes[at] = filled;
    }
    return at;
}

/* Reads a table's codes (C.2); false: too many of a length, or an invalid symbol. */
static bool read_codes(const struct np_jpeg_huff *huff, bool is_dc, struct np_jpeg_table *table)
{
    const uint8_t *symbols = huff->counts + 16;
    uint32_t code = 0, filled = 0;
    int k = 0;

    for (int length = 1; length <= 16; length++, code <<= 1) {
        const int nr = huff->counts[length - 1];

        table->offset[length] = k - (int)code;
        if (nr > 0 && code + (uint32_t)nr >= 1u << length)
            return false; /* no code is all ones */
        for (int i = 0; i < nr; i++, k++, code++) {
            if (is_dc && symbols[k] > 15)
                return false;
            if (length <= LOOK)
                filled = fill_codes(table->codes, filled, symbols[k], length, is_dc, code);
        }
        table->limit[length] = code << (16 - length);
    }
    for (; filled < 1u << LOOK; filled++)
        table->codes[filled] = (struct np_jpeg_code){.slow = true};
    table->source_bytes = 16 + huff->nr_symbols;
    memcpy(table->source, huff->counts, (size_t)table->source_bytes);
    return true;
}

/* Lists the second symbols of entries by the `rest` bits of the index that the first one leaves,
 * from seconds[1 << rest] on. A symbol that does not fit has 0 bits. */
static void list_seconds(const struct np_jpeg_code *codes, struct np_jpeg_code *seconds)
{
    for (int rest = 0; rest < LOOK; rest++)
        for (uint32_t i = 0; i < 1u << rest; i++) {
            const struct np_jpeg_code *code = &codes[i << (LOOK - rest)];
            const bool fits = !code->slow && code->length + (code->size > 0) <= rest &&
                              LOOK - rest + code->length + code->size <= MAX_BITS;

            seconds[(1u << rest) + i] = fits ? *code : (struct np_jpeg_code){.bits = 0};
        }
}

/* Makes each entry from the first two symbols of its index, or from the first alone if no second
 * fits: its value is then value2, and overwrites value1. */
static void make_entries(struct np_jpeg_table *table, const struct np_jpeg_code *seconds)
{
    for (uint32_t i = 0; i < 1u << LOOK; i++) {
        const struct np_jpeg_code *code = &table->codes[i];
        const uint32_t rests = 1u << code->rest, first = i >> code->rest;
        const struct np_jpeg_code *next = &seconds[rests + (i & (rests - 1))];
        const int bits = code->bits + next->bits;

        table->entries[i] = (struct np_jpeg_symbols){.bits = (uint8_t)bits,
            .back = (uint8_t)(-bits & 63),
            .first = code->reach,
            .last = code->slow ? SLOW : (uint8_t)(code->reach + next->reach),
            .value1 = (int16_t)(code->part + (int)first),
            .value2 = (int16_t)(next->bits ? next->part - (int)(first << (next->bits & 31))
                                           : code->part)};
    }
}

bool np_jpeg_make_tables(
    const struct np_jpeg_huff *dc, const struct np_jpeg_huff *ac, struct np_jpeg_tables *tables)
{
    struct np_jpeg_code seconds[1 << LOOK];

    tables->dc.source_bytes = tables->ac.source_bytes = 0;
    if (!read_codes(dc, true, &tables->dc) || !read_codes(ac, false, &tables->ac))
        return false;
    list_seconds(tables->ac.codes, seconds);
    make_entries(&tables->dc, seconds);
    make_entries(&tables->ac, seconds);
    return true;
}

bool np_jpeg_is_of(const struct np_jpeg_table *table, const struct np_jpeg_huff *huff)
{
    return table->source_bytes == 16 + huff->nr_symbols &&
           memcmp(table->source, huff->counts, (size_t)table->source_bytes) == 0;
}

/* --- bits ---------------------------------------------------------------------------------- */

static uint64_t load(const uint8_t *at)
{
    uint64_t bytes;

    memcpy(&bytes, at, sizeof(bytes));
    return __builtin_bswap64(bytes);
}

void np_jpeg_seek(struct np_jpeg_bits *bits, const uint8_t *stream, uint64_t bit)
{
    stream += bit >> 3;
    bits->window = load(stream) << (bit & 7);
    bits->at = stream + 7;
    bits->count = 56 - (bit & 7);
}

uint64_t np_jpeg_position(const struct np_jpeg_bits *bits, const uint8_t *stream)
{
    return (uint64_t)(bits->at - stream) * 8 - (bits->count & 63);
}

/* Not 0 if one of eight bytes is ff; the lowest bit set shows the first. */
static uint64_t find_ff(uint64_t bytes)
{
    return (~bytes - 0x0101010101010101) & bytes & 0x8080808080808080;
}

const uint8_t *np_jpeg_unstuff(struct np_jpeg_stream *stream, const uint8_t *at, const uint8_t *end)
{
    uint8_t *out = stream->bytes + stream->nr_bytes;

    for (;;) {
        uint64_t bytes, found = 0;

        while (!found && end - at >= 8) {
            memcpy(&bytes, at, 8);
            memcpy(out, &bytes, 8);
            found = find_ff(bytes);
            at += found ? __builtin_ctzll(found) / 8 : 8;
            out += found ? __builtin_ctzll(found) / 8 : 8;
        }
        while (!found && at < end && *at != 0xff)
            *out++ = *at++;
        if (end - at < 2 || at[1] != 0)
            break;
        stream->stuffed[stream->nr_stuffed++] = (uint32_t)(out - stream->bytes);
        *out++ = 0xff;
        at += 2;
    }
    stream->nr_bytes = (size_t)(out - stream->bytes);
    return at;
}

/* --- blocks -------------------------------------------------------------------------------- */

static const struct np_jpeg_tables *tables_of(const struct np_jpeg_block *block)
{
    return (const void *)((const char *)block->ac - offsetof(struct np_jpeg_tables, ac));
}

void np_jpeg_arm(struct np_jpeg_lane *lane, struct np_jpeg_block *blocks, int nr)
{
    static const struct np_jpeg_symbols stop[1 << LOOK] = {[0 ...(1 << LOOK) - 1] = {.last = SLOW}};

    blocks[nr - 1].next = stop;
    lane->block = blocks;
    lane->end = blocks + nr;
    lane->table = tables_of(blocks)->dc.entries;
    lane->bad = false;
    lane->last = NEW;
}

/* Sets the last coefficient, or moves to the next block if `bits` has ENDS. Without a branch,
 * because the CPU cannot predict the end of a block. */
INLINE void advance(struct np_jpeg_lane *lane, uint64_t bits, int64_t last)
{
    const struct np_jpeg_symbols *table = lane->block->ac;
    struct np_jpeg_block *block = lane->block;

#if defined(__x86_64__)
    /* In C gcc makes a branch. */
    __asm__("testb %b[bits], %b[bits]\n\t"
            "cmovs %[next_table], %[table]\n\t"
            "cmovs %[next_block], %[block]\n\t"
            "cmovs %[new], %[last]"
            : [table] "+&r"(table), [block] "+r"(block), [last] "+r"(last)
            : [bits] "q"(bits), [next_table] "m"(block->next), [next_block] "r"(block + 1),
            [new] "r"((int64_t)NEW)
            : "cc");
#else
    if (bits & ENDS) {
        table = block->next;
        block++;
        last = NEW;
    }
#endif
    lane->table = table;
    lane->block = block;
    lane->last = last;
}

/* The code of any length at the top of window; length 0: none. */
static struct np_jpeg_code find_code(
    const struct np_jpeg_tables *tables, bool is_dc, uint64_t window)
{
    const struct np_jpeg_table *table = is_dc ? &tables->dc : &tables->ac;
    const struct np_jpeg_code short_code = table->codes[window >> (64 - LOOK)];
    const uint32_t ahead = (uint32_t)(window >> 48);

    if (short_code.length > 0)
        return short_code;
    for (int length = LOOK + 1; length <= 16; length++)
        if (ahead < table->limit[length]) {
            const int k = (int)(ahead >> (16 - length)) + table->offset[length];

            return code_of(table->source[16 + k], length, is_dc, 0, false);
        }
    return (struct np_jpeg_code){0};
}

/* Loads bytes until the window has 56 bits or more. */
INLINE void refill(struct np_jpeg_bits *bits)
{
    bits->window |= load(bits->at) >> (bits->count & 63);
    bits->at += (~bits->count & 63) >> 3;
    bits->count |= 56;
}

/* Decodes one symbol of any length; false: ended the lane. */
BMI2 static __attribute__((noinline)) bool slow_step(struct np_jpeg_lane *lane)
{
    struct np_jpeg_block *block = lane->block;
    const bool is_dc = lane->last == NEW;

    if (block == lane->end)
        return false;
    refill(&lane->bits);
    const struct np_jpeg_code code = find_code(tables_of(block), is_dc, lane->bits.window);
    const uint64_t value = lane->bits.window << code.length;
    const int64_t last = lane->last + code.reach;

    lane->bad = code.length == 0 || last > 63;
    if (lane->bad)
        return false;
    if (code.size > 0)
        block->coef[np_jpeg_natural[last]] =
            (int16_t)((int)(value >> (64 - code.size)) + (value >> 63 ? 0 : 1 - (1 << code.size)));
    else if (is_dc)
        block->coef[0] = 0;
    lane->bits.window <<= code.length + code.size;
    lane->bits.count -= (uint64_t)(code.length + code.size);
    refill(&lane->bits); /* enough for two more entries */
    advance(lane, last == 63 ? ENDS : code.bits, last);
    return true;
}

/* Decodes one or two symbols. An entry that reaches past the block's last coefficient is decoded
 * slowly, one symbol at a time: no end of block follows that coefficient. home: the lane in memory,
 * for slow_step(). */
INLINE bool step(struct np_jpeg_lane *lane, struct np_jpeg_lane *home)
{
    const struct np_jpeg_symbols *entry = &lane->table[lane->bits.window >> (64 - LOOK)];
    const int64_t last = lane->last + entry->last;
    uint64_t bits = entry->bits;

    if (__builtin_expect(last >= 63, 0)) {
        if (last > 63) {
            bool continues;

            *home = *lane;
            continues = slow_step(home);
            *lane = *home;
            return continues;
        }
        bits |= ENDS;
    }
    const uint64_t top = lane->bits.window >> (entry->back & 63);
    int16_t *coef = lane->block->coef;

    lane->bits.window <<= bits & 63;
    lane->bits.count -= bits;
    coef[np_jpeg_natural[lane->last + entry->first]] = entry->value1;
    coef[np_jpeg_natural[last]] = (int16_t)((uint64_t)entry->value2 + top);
    advance(lane, bits, last);
    return true;
}

BMI2 static void run_one(struct np_jpeg_lane *home)
{
    struct np_jpeg_lane lane = *home;

    do
        refill(&lane.bits);
    while (step(&lane, home) && step(&lane, home) && step(&lane, home));
    *home = lane;
}

BMI2 static void run_two(struct np_jpeg_lane *home_a, struct np_jpeg_lane *home_b)
{
    struct np_jpeg_lane a = *home_a, b = *home_b;

    do {
        refill(&a.bits);
        refill(&b.bits);
    } while (step(&a, home_a) && step(&b, home_b) && step(&a, home_a) && step(&b, home_b) &&
             step(&a, home_a) && step(&b, home_b));
    *home_a = a;
    *home_b = b;
}

void np_jpeg_run(struct np_jpeg_lane *a, struct np_jpeg_lane *b)
{
    if (b)
        run_two(a, b);
    else
        run_one(a);
}
