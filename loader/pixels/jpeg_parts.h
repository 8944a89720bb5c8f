/* The parts of the JPEG decoder (jpeg.h): header, tables and entropy decoding, kernels. Private. */
#ifndef NP_JPEG_PARTS_H
#define NP_JPEG_PARTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "loader/pixels/jpeg.h"

/* --- header (jpeg_header.c) ---------------------------------------------------------------- */

#define NP_JPEG_COMPONENTS 3
#define NP_JPEG_MCU_BLOCKS 10 /* maximum (B.2.3) */

struct np_jpeg_component {
    int id;
    int h, v;          /* sampling factors: blocks of an MCU */
    int quant, dc, ac; /* numbers of its tables */
    int first;         /* of its blocks in an MCU */
    int width, height; /* samples inside the picture */
    int across, down;  /* pixels a sample: 1 or 2 */
};

/* A Huffman table in the file: 16 counts, then the symbols. */
struct np_jpeg_huff {
    const uint8_t *counts; /* NULL: none */
    int nr_symbols;
};

struct np_jpeg_frame {
    int width, height, nr_components;
    int mcu_width, mcu_height; /* pixels */
    int mcu_blocks;
    int mcus_across, mcus_down;
    int restart; /* MCUs of a restart interval; 0: none */
    struct np_jpeg_component component[NP_JPEG_COMPONENTS];
    uint16_t quant[4][64]; /* natural order */
    bool has_quant[4];
    struct np_jpeg_huff dc[4], ac[4];
    const uint8_t *bytes, *scan, *end; /* the file, its entropy-coded data, its end */
};

extern const uint8_t np_jpeg_natural[64]; /* zigzag position -> natural position (A.3.6) */

bool np_jpeg_parse(const uint8_t *bytes, size_t nr_bytes, struct np_jpeg_frame *ret_frame);

/* --- entropy decoding (jpeg_entropy.c) ----------------------------------------------------- */

#define NP_JPEG_LOOK 10 /* bits that index a table */

/* The meaning of the next bits of a stream: one or two symbols with their values. Places count from
 * the last coefficient, in zigzag order. A single symbol is the first and the second. */
struct np_jpeg_symbols {
    uint8_t bits;   /* their number; 128 more: the block ends */
    uint8_t back;   /* 64 less their number */
    uint8_t first;  /* the first value's place */
    uint8_t last;   /* the second one's; 255: decode slowly */
    int16_t value1; /* the first value */
    int16_t value2; /* the second one, less the bits taken as a number, modulo 2^16 */
};

/* A symbol's code. */
struct np_jpeg_code {
    uint8_t length, size; /* bits of the code and of its value; length 0: longer than an index */
    uint8_t bits;         /* of both; 128 more: the block ends */
    uint8_t reach;        /* the place of its value, or of the block's end: its run and one more */
    uint8_t rest;         /* bits that it leaves of an index to a second symbol */
    bool slow;            /* too long for an entry */
    int16_t part;         /* of the value, see code_of() */
};

/* A Huffman table (F.2.2.3) for fast decoding: an entry has one symbol or two, the second of them
 * from the pair's AC table. */
struct np_jpeg_table {
    struct np_jpeg_symbols entries[1 << NP_JPEG_LOOK]; /* by the next bits, as are the codes */
    struct np_jpeg_code codes[1 << NP_JPEG_LOOK];
    uint32_t limit[17];       /* by length: first 16-bit value past its codes */
    int offset[17];           /* by length: index of a symbol less its code */
    uint8_t source[16 + 256]; /* counts and symbols, as in the file */
    int source_bytes;
};

struct np_jpeg_tables {
    struct np_jpeg_table dc, ac;
};

bool np_jpeg_make_tables(
    const struct np_jpeg_huff *dc, const struct np_jpeg_huff *ac, struct np_jpeg_tables *tables);
/* True if `table` was made from `huff`. */
bool np_jpeg_is_of(const struct np_jpeg_table *table, const struct np_jpeg_huff *huff);

/* A place in a stream of bits without stuffed bytes. */
struct np_jpeg_bits {
    const uint8_t *at; /* the next byte to load */
    uint64_t window;   /* the next bits, at the top */
    uint64_t count;    /* lowest 6 bits: their minimum number */
};

#define NP_JPEG_SLACK 256 /* readable bytes past a stream, for each block of a lane */

struct np_jpeg_block {
    int16_t coef[64];                   /* natural order; DC as a difference */
    const struct np_jpeg_symbols *ac;   /* of its np_jpeg_tables */
    const struct np_jpeg_symbols *next; /* the next block's dc, or a table that stops the lane */
};

struct np_jpeg_lane {
    struct np_jpeg_bits bits;
    const struct np_jpeg_symbols *table;
    int64_t last; /* the last decoded coefficient of block, in zigzag order; -1: none */
    struct np_jpeg_block *block, *end;
    bool bad;
};

void np_jpeg_seek(struct np_jpeg_bits *bits, const uint8_t *stream, uint64_t bit);
/* Bits from stream to the next bit. */
uint64_t np_jpeg_position(const struct np_jpeg_bits *bits, const uint8_t *stream);
/* Prepares a lane to decode nr blocks. Their coefficients must be zero, ac set, and next set except
 * in the last. */
void np_jpeg_arm(struct np_jpeg_lane *lane, struct np_jpeg_block *blocks, int nr);
/* Decodes with one or two lanes (b may be NULL), a symbol of each in turn, until one reaches its
 * end or finds bad codes (and sets bad). Neither may start at its end. */
void np_jpeg_run(struct np_jpeg_lane *a, struct np_jpeg_lane *b);
/* Entropy-coded data without stuffed bytes (B.1.1.5). */
struct np_jpeg_stream {
    uint8_t *bytes;
    size_t nr_bytes;
    uint32_t *stuffed; /* positions of the ff bytes after which a stuffed byte was left out */
    size_t nr_stuffed;
};

/* Appends the data from `at` up to a marker or the end; returns where it stopped. The stream has
 * space. */
const uint8_t *np_jpeg_unstuff(
    struct np_jpeg_stream *stream, const uint8_t *at, const uint8_t *end);

/* --- kernels (jpeg_kernels.c, jpeg_avx2.c, jpeg_avx512.c) ---------------------------------- */

#define NP_JPEG_PAD 64 /* bytes past a row that kernels may read and write */

struct np_jpeg_kernels {
    int blocks;                                         /* of one call of idct */
    void (*clear)(struct np_jpeg_block *blocks, int n); /* their coefficients */
    /* Inverse DCT (A.3.3) of `blocks` blocks side by side, coefficients and quant in natural order,
     * to 8 rows. False: a coefficient is too large for 8-bit samples. */
    bool (*idct)(
        const int16_t *const *block, const uint16_t *quant, uint8_t *out, ptrdiff_t stride);
    /* Makes two samples of each of near[0..n-1], reading near[-1] and near[n], too; blends rows
     * near and far 3 to 1 first (far NULL: near alone). */
    void (*widen)(const uint8_t *near, const uint8_t *far, int n, uint8_t *out);
    /* out[i] = (3 * near[i] + far[i] + bias) / 4 */
    void (*blend)(const uint8_t *near, const uint8_t *far, int n, int bias, uint8_t *out);
    void (*rgb)(const uint8_t *y, const uint8_t *cb, const uint8_t *cr, int n, uint8_t *out);
    void (*grey)(const uint8_t *y, int n, uint8_t *out); /* to RGB */
};

extern const struct np_jpeg_kernels np_jpeg_plain, np_jpeg_avx2, np_jpeg_avx512;

/* --- rows of pixels (jpeg_rows.c) ---------------------------------------------------------- */

/* Samples of one component: the last two rows of MCUs, in the columns that the crop needs. */
struct np_jpeg_plane {
    uint8_t *samples;
    size_t bytes;
    ptrdiff_t stride;
    int rows; /* of the ring: a power of two */
    int left; /* column of the first sample */
};

/* The part of the picture to decode. */
struct np_jpeg_area {
    struct np_rect need;          /* pixels */
    int left, top, right, bottom; /* MCUs; right and bottom are outside */
};

struct np_jpeg_rows {
    const struct np_jpeg_kernels *kernels; /* set by the owner */
    const struct np_jpeg_frame *frame;
    struct np_jpeg_area area;
    int channels, next_y; /* of pixels: the next row to write */
    struct np_jpeg_plane plane[NP_JPEG_COMPONENTS];
    uint8_t *widened[NP_JPEG_COMPONENTS]; /* one row at the picture's resolution */
    uint8_t *pixels;                      /* of area.need */
    ptrdiff_t stride;
    size_t widened_bytes[NP_JPEG_COMPONENTS], pixels_bytes;
};

/* Decoded blocks of MCUs mcu..mcu+nr-1 of a row. */
struct np_jpeg_segment {
    const struct np_jpeg_block *blocks;
    int row, mcu, nr;
};

/* Sets the area, and allocates its memory. 0 or -ENOMEM. */
int np_jpeg_rows_begin(struct np_jpeg_rows *rows, const struct np_jpeg_frame *frame,
    const struct np_rect *need, int channels, struct np_err *err);
void np_jpeg_rows_fini(struct np_jpeg_rows *rows);
/* Transforms the blocks of a segment that the area needs; segments come in order within a row.
 * False: a coefficient is too large for 8-bit samples. */
bool np_jpeg_rows_transform(struct np_jpeg_rows *rows, const struct np_jpeg_segment *segment);
/* Writes the rows of pixels that row `row` of MCUs completes; rows come in order. */
void np_jpeg_rows_write(struct np_jpeg_rows *rows, int row);

/* --- segments (jpeg_segments.c) ------------------------------------------------------------ */

#define NP_JPEG_MAX_BLOCKS (NP_JPEG_STEP * NP_JPEG_MCU_BLOCKS)
#define NP_JPEG_NR_TABLES  4 /* cached pairs; a picture uses at most three */

/* The work of one lane. */
struct np_jpeg_scan {
    struct np_jpeg_lane lane;
    const uint8_t *stream;
    uint64_t end;                   /* of its data, in bits of stream */
    struct np_jpeg_segment segment; /* nr is 0: none */
    int dc[NP_JPEG_COMPONENTS];     /* predictors */
    struct np_jpeg_block blocks[NP_JPEG_MAX_BLOCKS + 1];
};

struct np_jpeg {
    bool plain; /* np_jpeg_use_plain() */
    struct np_jpeg_frame frame;
    struct np_jpeg_rows rows;
    struct np_jpeg_entries entries;
    size_t entries_bytes;

    struct np_jpeg_tables tables[NP_JPEG_NR_TABLES];
    uint64_t last_use[NP_JPEG_NR_TABLES], nr_uses;
    const struct np_jpeg_symbols *next; /* of the last block of an MCU */

    struct np_jpeg_stream stream;
    size_t stream_bytes, stuffed_bytes;
    size_t *starts; /* of the restart intervals in the stream, and its end */
    int nr_intervals;
    size_t starts_bytes;

    struct np_jpeg_scan scan[2]; /* the second one only where rows have entries */
    bool enters;                 /* each segment begins at an entry */
    int row, mcu, end_row;       /* the next segment's place; the row to stop at */
    int interval, left;          /* without entries: of restart; MCUs up to the next one */
};

/* Decodes the area's rows before end_row, all of which have entries. 0, -EBADMSG or -ENOMEM. */
int np_jpeg_enter(struct np_jpeg *jpeg, int end_row, struct np_err *err);
/* Decodes the other rows of the area, and notes entries. 0, -EBADMSG or -ENOMEM. */
int np_jpeg_go_through(struct np_jpeg *jpeg, struct np_err *err);

#endif
