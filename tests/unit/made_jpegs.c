/* See made_jpegs.h. */
#include "tests/unit/made_jpegs.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>

#define SOS 0xda
#define DHT 0xc4
#define DQT 0xdb

static int below(struct np_draws *draws, size_t n)
{
    return (int)np_draw_below(draws, (uint32_t)n);
}

static bool one_of(struct np_draws *draws, int n)
{
    return below(draws, (size_t)n) == 0;
}

/* --- files --------------------------------------------------------------------------------- */

static int side(struct np_draws *draws)
{
    return one_of(draws, 32) ? 1 + below(draws, 8) : 5 + below(draws, one_of(draws, 8) ? 400 : 66);
}

static void draw_sampling(struct np_draws *draws, struct made_jpeg *made)
{
    static const int usual[][2] = {{2, 2}, {2, 1}, {1, 1}, {1, 2}};
    const int kind = below(draws, 4);

    made->h = usual[kind][0];
    made->v = usual[kind][1];
    if (one_of(draws, 50)) {
        made->h = 1 + below(draws, 4);
        made->v = 1 + below(draws, made->h > 2 ? 2 : 4);
    } else if (one_of(draws, 3)) {
        made->h = 1 + below(draws, 2);
        made->v = 1 + below(draws, 2);
        made->chroma_h = 1 + below(draws, 2);
        made->chroma_v = 1 + below(draws, 2);
        made->third_h = 1 + below(draws, 2);
        made->third_v = 1 + below(draws, 2);
        if (made->h * made->v + made->chroma_h * made->chroma_v + made->third_h * made->third_v >
            10) /* blocks of an MCU */
            made->h = 1;
    }
}

void made_any_jpeg(struct np_draws *draws, struct made_jpeg *ret_made)
{
    struct made_jpeg made = {.width = side(draws),
        .height = side(draws),
        .components = one_of(draws, 8) ? 1 : 3,
        .quality = 1 + below(draws, one_of(draws, 7) ? 10 : 100),
        .own_codes = one_of(draws, 2),
        .noise = one_of(draws, 3),
        .smooth = one_of(draws, 6),
        .wide = one_of(draws, 2),
        .restart = one_of(draws, 8) ? 1 + below(draws, 40) : 0};
    const int other = below(draws, 600);

    if (other == 5)
        made.components = 4;
    if (made.components == 3)
        draw_sampling(draws, &made);
    made.progressive = other < 2;
    made.arithmetic = other == 2 || other == 3;
    made.own_codes &= !made.arithmetic;
    made.rgb = other == 4 && made.components == 3;
    *ret_made = made;
}

/* Puts bytes into the file at a place. */
static void insert(struct made_file *file, size_t at, const uint8_t *more, size_t nr_more)
{
    file->bytes = realloc(file->bytes, file->nr_bytes + nr_more);
    memmove(file->bytes + at + nr_more, file->bytes + at, file->nr_bytes - at);
    memcpy(file->bytes + at, more, nr_more);
    file->nr_bytes += nr_more;
}

static void insert_noise(struct np_draws *draws, struct made_file *file, size_t at)
{
    uint8_t noise[24];
    const int nr = 1 + below(draws, sizeof(noise));

    for (int i = 0; i < nr; i++)
        noise[i] = (uint8_t)np_draw_u32(draws);
    insert(file, at, noise, (size_t)nr);
}

struct made_file made_any_file(struct np_draws *draws, const struct made_jpeg *made)
{
    static const uint8_t comment[] = {0xff, 0xfe, 0, 7, 0xff, 0xd9, 'n', 0xff, 0},
                         exif[] = {0xff, 0xe1, 0, 8, 'E', 'x', 'i', 'f', 0, 0}, fill[] = {0xff};
    struct made_file file;

    file.bytes = made_jpeg(made, &file.nr_bytes);
    switch (below(draws, 64)) {
    case 0: insert(&file, file.nr_bytes - 2, fill, 1); break;
    case 1:
    case 2:
    case 3: insert(&file, 2, comment, sizeof(comment)); break;
    case 4:
    case 5:
    case 6: insert(&file, 2, exif, sizeof(exif)); break;
    case 7:
    case 8:
    case 9: insert_noise(draws, &file, file.nr_bytes);
    }
    return file;
}

/* --- damage -------------------------------------------------------------------------------- */

/* Where the entropy-coded data begin, of a file that this program wrote; nr, at: the tables'
 * segments before it. */
static size_t scan_of(const struct made_file *file, size_t at[32], int *nr)
{
    size_t place = 2;

    for (*nr = 0; file->bytes[place + 1] != SOS;) {
        const int marker = file->bytes[place + 1];

        if (*nr < 32 && (marker == DHT || marker == DQT))
            at[(*nr)++] = place;
        place += 2 + (size_t)(file->bytes[place + 2] << 8 | file->bytes[place + 3]);
    }
    return place + 2 + (size_t)(file->bytes[place + 2] << 8 | file->bytes[place + 3]);
}

/* Gives a table another's number or class, or a component another table. */
static void swap_tables(struct np_draws *draws, struct made_file *file, size_t scan)
{
    size_t at[32];
    int nr;

    scan_of(file, at, &nr);
    if (one_of(draws, 3)) { /* a component's two numbers; in a grey file perhaps their count */
        file->bytes[scan - 4 - 2 * (size_t)below(draws, 3)] ^= (uint8_t)(1 << 4 * below(draws, 2));
        return;
    }
    uint8_t *one = &file->bytes[at[below(draws, (size_t)nr)] + 4];
    uint8_t *other = &file->bytes[at[below(draws, (size_t)nr)] + 4];
    const uint8_t number = *one;

    *one = *other;
    *other = number;
}

static void put_marker(struct np_draws *draws, struct made_file *file, size_t scan)
{
    static const uint8_t codes[] = {0xd9, 0xd0, 0xd1, 0xd2, 0xd7, 0xfe, 0xc4, 0xdb, 0xd8, 1, 0xff};
    const uint8_t marker[] = {0xff, codes[below(draws, sizeof(codes))]};
    const size_t at = scan + (size_t)below(draws, file->nr_bytes - scan);

    if (one_of(draws, 2) || at + 2 > file->nr_bytes)
        insert(file, at, marker, 2);
    else
        memcpy(file->bytes + at, marker, 2);
}

static void lose_bytes(struct np_draws *draws, struct made_file *file, size_t scan)
{
    const size_t at = scan + (size_t)below(draws, file->nr_bytes - scan),
                 rest = file->nr_bytes - at;
    const size_t nr = 1 + (size_t)below(draws, rest < 20 ? rest : 20);

    memmove(file->bytes + at, file->bytes + at + nr, rest - nr);
    file->nr_bytes -= nr;
}

static void flip_bits(struct np_draws *draws, struct made_file *file, size_t from)
{
    for (int nr = 1 + below(draws, 3); nr > 0; nr--)
        file->bytes[from + (size_t)below(draws, file->nr_bytes - from)] ^=
            (uint8_t)(1 << below(draws, 8));
}

struct made_file made_damaged_file(struct np_draws *draws, const struct made_file *file)
{
    struct made_file damaged = {malloc(file->nr_bytes), file->nr_bytes};
    size_t at[32], scan;
    int nr;

    memcpy(damaged.bytes, file->bytes, file->nr_bytes);
    scan = scan_of(file, at, &nr);
    switch (below(draws, 16)) {
    case 0: damaged.nr_bytes = (size_t)below(draws, file->nr_bytes); break;
    case 1:
    case 2: swap_tables(draws, &damaged, scan); break;
    case 3: put_marker(draws, &damaged, scan); break;
    case 4: lose_bytes(draws, &damaged, scan); break;
    case 5:
        insert_noise(draws, &damaged, scan + (size_t)below(draws, file->nr_bytes - scan));
        break;
    case 6:
    case 7:
    case 8:
    case 9: flip_bits(draws, &damaged, 0); break;
    default: flip_bits(draws, &damaged, scan);
    }
    damaged.bytes = realloc(damaged.bytes, damaged.nr_bytes ? damaged.nr_bytes : 1);
    return damaged;
}

/* --- blocks -------------------------------------------------------------------------------- */

/* A coefficient of 1 to max_bits bits. */
static int16_t coefficient(struct np_draws *draws, int max_bits)
{
    const int bits = 1 + below(draws, (size_t)max_bits), low = 1 << (bits - 1);
    const int value = low + below(draws, (size_t)low);

    return (int16_t)(one_of(draws, 2) ? -value : value);
}

static void draw_block(struct np_draws *draws, int max_bits, int16_t *block)
{
    const int share = 1 + below(draws, 40);
    const int end = one_of(draws, 4) ? 64 : below(draws, 64);

    block[0] = one_of(draws, 3) ? 0 : coefficient(draws, max_bits);
    max_bits = 1 + below(draws, (size_t)max_bits);
    for (int i = 1; i < end; i++)
        block[i] = one_of(draws, share) ? coefficient(draws, max_bits) : 0;
    if (end == 64)
        block[63] = coefficient(draws, max_bits); /* the last in zigzag order, too: no EOB */
}

int16_t *made_blocks(struct np_draws *draws, int nr, int max_bits)
{
    int16_t *blocks = calloc((size_t)nr, 64 * sizeof(*blocks));

    for (int i = 0; i < nr; i++)
        draw_block(draws, max_bits, blocks + (size_t)i * 64);
    return blocks;
}

static void write_blocks(j_compress_ptr cinfo, const int16_t *blocks, int across, int down)
{
    const JDIMENSION w = (JDIMENSION)across, h = (JDIMENSION)down;
    jvirt_barray_ptr array =
        (*cinfo->mem->request_virt_barray)((j_common_ptr)cinfo, JPOOL_IMAGE, TRUE, w, h, 1);

    jpeg_write_coefficients(cinfo, &array);
    for (JDIMENSION y = 0; y < h; y++) {
        JBLOCKARRAY rows =
            (*cinfo->mem->access_virt_barray)((j_common_ptr)cinfo, array, y, 1, TRUE);

        memcpy(rows[0], blocks + (size_t)y * w * 64, w * 64 * sizeof(*blocks));
    }
    jpeg_finish_compress(cinfo);
}

struct made_file made_blocks_file(
    const int16_t *blocks, int across, int down, int quant, bool own_codes)
{
    struct jpeg_compress_struct cinfo;
    struct jpeg_error_mgr errors;
    struct made_file file = {NULL, 0};
    unsigned long nr_bytes = 0;
    unsigned int table[64];

    static_assert(sizeof(JCOEF) == sizeof(int16_t), "blocks are copied");
    for (int i = 0; i < 64; i++)
        table[i] = (unsigned)quant;
    cinfo.err = jpeg_std_error(&errors); /* exits on error */
    jpeg_create_compress(&cinfo);
    jpeg_mem_dest(&cinfo, &file.bytes, &nr_bytes);
    cinfo.image_width = (JDIMENSION)across * 8;
    cinfo.image_height = (JDIMENSION)down * 8;
    cinfo.input_components = 1;
    cinfo.in_color_space = JCS_GRAYSCALE;
    jpeg_set_defaults(&cinfo);
    jpeg_add_quant_table(&cinfo, 0, table, 100, FALSE);
    cinfo.optimize_coding = own_codes;
    write_blocks(&cinfo, blocks, across, down);
    jpeg_destroy_compress(&cinfo);
    file.nr_bytes = nr_bytes;
    return file;
}
