/* Entropy decoding (T.81 F.2.2) with tables of one or two symbols an entry. */
#include <string.h>

#include "loader/pixels/jpeg_parts.h"

#define LOOK     NP_JPEG_LOOK
#define MAX_BITS 18   /* of an entry: three of them are in a window of 56 bits */
#define ENDS     0x80 /* added to an entry's bits: the block ends */
#define SLOW     0xff00
#define BMI2     __attribute__((target("bmi2")))
#define INLINE   static inline __attribute__((always_inline)) BMI2

const uint8_t np_jpeg_natural[64] = {0, 1, 8, 16, 9, 2, 3, 10, 17, 24, 32, 25, 18, 11, 4, 5, 12, 19,
    26, 33, 40, 48, 41, 34, 27, 20, 13, 6, 7, 14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22,
    15, 23, 30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63};

/* An entry is what the next bits of a stream stand for: `bits` bits are one symbol with its value,
 * or two. Its fields, from bit 0:
 *     bits     8   plus ENDS
 *     reach    8   the last coefficient of the entry, or the place of its end of block, less where
 *                  it begins; 255 (SLOW): a code or a value does not fit, it must be decoded slowly
 *     first    8   where the first value stands, less where the entry begins
 *     second   8   where the second value stands
 *     value1  16   the first value
 *     value2  16   the second one, less the entry's bits taken as a number, modulo 2^16
 * A single symbol is the second; its first value, 0, is stored before it at the same place. Because
 * of the way in which value2 is kept, the lower bits of a value need not be known: its sign is
 * enough (F.2.2.1, EXTEND). */
static uint64_t make_entry(int bits, int reach, int first, int second, int value1, int value2)
{
    return (uint64_t)bits | (uint64_t)reach << 8 | (uint64_t)first << 16 | (uint64_t)second << 24 |
           (uint64_t)(uint16_t)value1 << 32 | (uint64_t)(uint16_t)value2 << 48;
}

/* --- tables ------------------------------------------------------------------------------------ */

/* A code with the bits `code`, whose value's sign is known. Added to the code's and the value's bits
 * taken as a number, `part` gives the value. */
static struct np_jpeg_code code_of(int symbol, int length, bool is_dc, uint32_t code, bool positive)
{
    const int size = symbol & 15, run = is_dc ? 0 : symbol >> 4;
    const bool ends = !is_dc && size == 0 && run != 15;

    return (struct np_jpeg_code){.length = (uint8_t)length,
        .run = (uint8_t)(ends ? 0 : run),
        .size = (uint8_t)size,
        .ends = ends,
        .part = (int16_t)((positive || size == 0 ? 0 : 1 - (1 << size)) - (int)(code << size))};
}

/* Fills the indexes that begin with a code: first those whose value is negative. */
static uint32_t fill_codes(
    struct np_jpeg_code *codes, uint32_t at, int symbol, int length, bool is_dc, uint32_t code)
{
    const uint32_t nr = 1u << (LOOK - length);

    for (int positive = 0; positive < 2; positive++) {
        const struct np_jpeg_code filled = code_of(symbol, length, is_dc, code, positive);

        for (const uint32_t end = at + nr / 2; at < end; at++)
            codes[at] = filled;
    }
    if (nr == 1) /* its sign is not known */
        codes[at++] = code_of(symbol, length, is_dc, code, false);
    return at;
}

/* Reads a table (C.2); false if it has too many codes of a length, or a symbol without meaning. */
static bool read_codes(const struct np_jpeg_huff *huff, bool is_dc, struct np_jpeg_code *codes,
    uint32_t *limits, int *offsets)
{
    const uint8_t *symbols = huff->counts + 16;
    uint32_t code = 0, filled = 0;
    int k = 0;

    for (int length = 1; length <= 16; length++, code <<= 1) {
        const int nr = huff->counts[length - 1];

        offsets[length] = k - (int)code;
        if (nr > 0 && code + (uint32_t)nr >= 1u << length)
            return false; /* no code is all ones */
        for (int i = 0; i < nr; i++, k++, code++) {
            if (is_dc && symbols[k] > 15)
                return false;
            if (length <= LOOK)
                filled = fill_codes(codes, filled, symbols[k], length, is_dc, code);
        }
        limits[length] = code << (16 - length);
    }
    memset(codes + filled, 0, ((1u << LOOK) - filled) * sizeof(*codes));
    return true;
}

/* Does a code fit `known` bits, with the sign of its value? */
static bool fits(const struct np_jpeg_code *code, int known)
{
    return code->length > 0 && code->length + (code->size > 0) <= known;
}

/* The entry of the index's first two symbols, or of the first alone if the second does not fit. */
static uint64_t entry_of(
    const struct np_jpeg_code *codes, const struct np_jpeg_code *ac_codes, uint32_t index)
{
    const struct np_jpeg_code *code = &codes[index];
    const int bits1 = code->length + code->size, known = LOOK - bits1;
    const struct np_jpeg_code *next = &ac_codes[index << bits1 & ((1u << LOOK) - 1)];
    const int bits2 = next->length + next->size;

    if (!fits(code, LOOK) || bits1 > MAX_BITS)
        return SLOW;
    if (code->ends || !fits(next, known) || bits1 + bits2 > MAX_BITS)
        return make_entry(
            bits1 | (code->ends ? ENDS : 0), code->run, code->run, code->run, 0, code->part);
    const int first = (int)(index >> known), second = code->run + 1 + next->run;

    return make_entry((bits1 + bits2) | (next->ends ? ENDS : 0), second, code->run, second,
        code->part + first, next->part - (first << bits2));
}

static int keep_source(const struct np_jpeg_huff *huff, uint8_t *source)
{
    memcpy(source, huff->counts, (size_t)(16 + huff->nr_symbols));
    return 16 + huff->nr_symbols;
}

bool np_jpeg_make_tables(
    const struct np_jpeg_huff *dc, const struct np_jpeg_huff *ac, struct np_jpeg_tables *tables)
{
    tables->dc_source_bytes = tables->ac_source_bytes = 0;
    if (!read_codes(dc, true, tables->dc_code, tables->dc_limit, tables->dc_offset) ||
        !read_codes(ac, false, tables->ac_code, tables->ac_limit, tables->ac_offset))
        return false;
    for (uint32_t i = 0; i < 1u << LOOK; i++) {
        tables->dc[i] = entry_of(tables->dc_code, tables->ac_code, i);
        tables->ac[i] = entry_of(tables->ac_code, tables->ac_code, i);
    }
    tables->dc_source_bytes = keep_source(dc, tables->dc_source);
    tables->ac_source_bytes = keep_source(ac, tables->ac_source);
    return true;
}

bool np_jpeg_has_tables(const struct np_jpeg_tables *tables, const struct np_jpeg_huff *dc,
    const struct np_jpeg_huff *ac)
{
    return tables->dc_source_bytes == 16 + dc->nr_symbols &&
           tables->ac_source_bytes == 16 + ac->nr_symbols &&
           memcmp(tables->dc_source, dc->counts, (size_t)tables->dc_source_bytes) == 0 &&
           memcmp(tables->ac_source, ac->counts, (size_t)tables->ac_source_bytes) == 0;
}

/* --- bits -------------------------------------------------------------------------------------- */

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
    bits->count = 56 - (int64_t)(bit & 7);
}

uint64_t np_jpeg_position(const struct np_jpeg_bits *bits, const uint8_t *stream)
{
    return (uint64_t)(bits->at - stream) * 8 - (uint64_t)bits->count;
}

const uint8_t *np_jpeg_unstuff(struct np_jpeg_stream *stream, const uint8_t *at, const uint8_t *end)
{
    while (at < end) {
        const uint8_t *found = memchr(at, 0xff, (size_t)(end - at));
        const size_t nr = (size_t)((found ? found : end) - at);

        memcpy(stream->bytes + stream->nr_bytes, at, nr);
        stream->nr_bytes += nr;
        at += nr;
        if (!found || end - at < 2 || at[1] != 0)
            break;
        stream->stuffed[stream->nr_stuffed++] = (uint32_t)stream->nr_bytes;
        stream->bytes[stream->nr_bytes++] = 0xff;
        at += 2;
    }
    return at;
}

/* --- blocks ------------------------------------------------------------------------------------ */

static const struct np_jpeg_tables *tables_of(const struct np_jpeg_block *block)
{
    return (const void *)((const char *)block->ac - offsetof(struct np_jpeg_tables, ac));
}

void np_jpeg_arm(struct np_jpeg_lane *lane, struct np_jpeg_block *blocks, int nr)
{
    static const uint64_t stop[1 << LOOK] = {[0 ...(1 << LOOK) - 1] = SLOW};

    blocks[nr - 1].next = stop;
    lane->block = blocks;
    lane->end = blocks + nr;
    lane->table = tables_of(blocks)->dc;
    lane->bad = 0;
    lane->k = 0;
}

/* Goes to coefficient k, or to the next block if the entry ends this one. Without a branch: none could
 * predict the end of a block. */
INLINE void advance(struct np_jpeg_lane *lane, uint64_t entry, uint64_t k)
{
    const uint64_t *table = lane->block->ac;
    struct np_jpeg_block *block = lane->block;

#if defined(__x86_64__)
    /* gcc would branch. */
    __asm__("testb %b[entry], %b[entry]\n\t"
            "cmovs %[next_table], %[table]\n\t"
            "cmovs %[next_block], %[block]\n\t"
            "cmovs %[zero], %[k]"
            : [k] "+&r"(k), [table] "+&r"(table), [block] "+&r"(block)
            : [entry] "q"(entry), [next_table] "m"(lane->block->next),
            [next_block] "r"(lane->block + 1), [zero] "r"(0ull)
            : "cc");
#else
    if (entry & ENDS) {
        table = block->next;
        block++;
        k = 0;
    }
#endif
    lane->table = table;
    lane->block = block;
    lane->k = k;
}

/* The code of any length at the top of window; its length is 0 if there is none. */
static struct np_jpeg_code find_code(
    const struct np_jpeg_tables *tables, bool is_dc, uint64_t window)
{
    const struct np_jpeg_code short_code =
        (is_dc ? tables->dc_code : tables->ac_code)[window >> (64 - LOOK)];
    const uint32_t *limits = is_dc ? tables->dc_limit : tables->ac_limit;
    const int *offsets = is_dc ? tables->dc_offset : tables->ac_offset;
    const uint8_t *symbols = (is_dc ? tables->dc_source : tables->ac_source) + 16;
    const uint32_t ahead = (uint32_t)(window >> 48);

    if (short_code.length > 0)
        return short_code;
    for (int length = LOOK + 1; length <= 16; length++)
        if (ahead < limits[length])
            return code_of(
                symbols[(int)(ahead >> (16 - length)) + offsets[length]], length, is_dc, 0, false);
    return (struct np_jpeg_code){0};
}

/* Loads bytes until the window has 56 bits or more. */
INLINE void refill(struct np_jpeg_bits *bits)
{
    bits->window |= load(bits->at) >> (bits->count & 63);
    bits->at += (63 - bits->count) >> 3;
    bits->count |= 56;
}

/* Decodes one symbol of any length, or ends the lane; false then. */
BMI2 static __attribute__((noinline)) bool slow_step(struct np_jpeg_lane *lane)
{
    struct np_jpeg_block *block = lane->block;
    const bool is_dc = lane->k == 0;

    if (block == lane->end)
        return false;
    refill(&lane->bits);
    const struct np_jpeg_code code = find_code(tables_of(block), is_dc, lane->bits.window);
    const uint64_t value = lane->bits.window << code.length, k = lane->k + code.run;

    lane->bad = code.length == 0 || k > 63;
    if (lane->bad)
        return false;
    if (code.size > 0)
        block->coef[np_jpeg_natural[k]] =
            (int16_t)((int)(value >> (64 - code.size)) + (value >> 63 ? 0 : 1 - (1 << code.size)));
    else if (is_dc)
        block->coef[0] = 0;
    lane->bits.window <<= code.length + code.size;
    lane->bits.count -= code.length + code.size;
    refill(&lane->bits); /* up to two entries follow before the next one */
    advance(lane, code.ends || k == 63 ? ENDS : 0, k + 1);
    return true;
}

/* Decodes a symbol or two. An entry that goes past the block's last coefficient is decoded slowly, a
 * symbol at a time: no end of block follows that coefficient. `home` holds the lane for
 * slow_step(). */
INLINE bool step(struct np_jpeg_lane *lane, struct np_jpeg_lane *home)
{
    uint64_t entry = lane->table[lane->bits.window >> (64 - LOOK)];
    const uint64_t reach = lane->k + (uint8_t)(entry >> 8);

    if (__builtin_expect(reach >= 63, 0)) {
        if (reach > 63) {
            bool continues;

            *home = *lane;
            continues = slow_step(home);
            *lane = *home;
            return continues;
        }
        entry |= ENDS;
    }
    const uint64_t top = lane->bits.window >> (-entry & 63);
    const uint8_t *place = np_jpeg_natural + lane->k;

    lane->bits.window <<= entry & 63;
    lane->bits.count -= (int64_t)(entry & 63);
    lane->block->coef[place[(uint8_t)(entry >> 16)]] = (int16_t)(entry >> 32);
    lane->block->coef[place[(uint8_t)(entry >> 24)]] = (int16_t)((entry >> 48) + top);
    advance(lane, entry, reach + 1);
    return true;
}

BMI2 static int run_one(struct np_jpeg_lane *lanes)
{
    struct np_jpeg_lane a = lanes[0];

    do
        refill(&a.bits);
    while (step(&a, &lanes[0]) && step(&a, &lanes[0]) && step(&a, &lanes[0]));
    lanes[0] = a;
    return 0;
}

BMI2 static int run_two(struct np_jpeg_lane *lanes)
{
    struct np_jpeg_lane a = lanes[0], b = lanes[1];
    int stopped;

    for (;;) {
        refill(&a.bits);
        refill(&b.bits);
        for (int i = 0; i < 3; i++) {
            stopped = 0;
            if (!step(&a, &lanes[0]))
                goto out;
            stopped = 1;
            if (!step(&b, &lanes[1]))
                goto out;
        }
    }
out:
    lanes[0] = a;
    lanes[1] = b;
    return stopped;
}

int np_jpeg_run(struct np_jpeg_lane *lanes, int nr)
{
    return nr == 2 ? run_two(lanes) : run_one(lanes);
}
