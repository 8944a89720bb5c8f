/* PNG -> pixels, and pixels -> PNG. Alpha is dropped, palettes are expanded, and 16-bit samples
 * lose their low byte (Pillow clips 16-bit grey instead). Reader threads, a state each.
 *
 * Whether a file is bad depends on its bytes alone: it is bad if Pillow cannot load it
 * (docs/PIXELS.md). So this file finds the chunks and inflates all image data in the same steps as
 * Pillow, whatever part is needed. Rows of 8-bit grey and colour become pixels here; libspng gets
 * the other kinds as a stream of stored blocks. */
#include "loader/pixels/codec.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <spng.h>
#include <zlib.h>

#include "loader/base/mem.h"
#include "loader/pixels/png_filter.h"

#define BLOCK          65536       /* bytes of image data that Pillow reads at a time */
#define AT_ONCE        16384       /* bytes of rows */
#define STORED         65535       /* bytes of a stored block, without STORED_HEAD */
#define MAX_ROWS_BYTES 2147000000u /* rows and heads of their blocks fit in one chunk */
enum {
    MAGIC_BYTES = 8,
    HEADER_BYTES = 25,        /* of IHDR: length, type, 13 bytes, CRC */
    PALETTE_BYTES = 12 + 768, /* of PLTE, at most */
    DATA_HEAD_BYTES = 10,     /* for libspng: length and type of IDAT, a zlib header */
    STORED_HEAD = 5,
};

static const uint8_t magic[MAGIC_BYTES] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};

struct png_state {
    /* The open image: */
    spng_ctx *context; /* libspng cannot use one twice */
    const uint8_t *bytes;
    size_t nr_bytes;
    struct spng_ihdr header;
    const uint8_t *palette; /* the chunk; NULL: none */
    const uint8_t *data;    /* the first IDAT chunk */

    z_stream zlib; /* reused for the next image */
    bool zlib_ready;
    const uint8_t *at;   /* end of the image data read so far */
    uint32_t chunk_left; /* of the current IDAT chunk */

    /* The stream that libspng reads: */
    uint8_t head[MAGIC_BYTES + HEADER_BYTES + PALETTE_BYTES + DATA_HEAD_BYTES];
    size_t nr_head;
    uint8_t *rows;                           /* as inflated: a filter byte and samples each */
    size_t rows_room, rows_kept, rows_bytes; /* kept: stored in rows; bytes: of all rows */
    size_t given;                            /* to libspng so far */

    uint8_t *pixels;
    size_t pixels_bytes;
};

static bool png_sniff(const uint8_t *bytes, size_t nr_bytes)
{
    return nr_bytes >= sizeof(magic) && memcmp(bytes, magic, sizeof(magic)) == 0;
}

static int png_init(void **ret_state, struct np_err *err)
{
    *ret_state = np_try_alloc(sizeof(struct png_state), err);
    return *ret_state ? 0 : -ENOMEM;
}

static void close_image(struct png_state *state)
{
    spng_ctx_free(state->context);
    state->context = NULL;
    state->bytes = NULL;
}

static void png_fini(void *memory)
{
    struct png_state *state = memory;

    if (!state)
        return;
    close_image(state);
    if (state->zlib_ready)
        inflateEnd(&state->zlib);
    np_free(state->rows);
    np_free(state->pixels);
    np_free(state);
}

static int bad(struct np_err *err, const char *what)
{
    return np_err_set(err, -EBADMSG, "bad PNG: %s", what);
}

static int no_memory(const struct png_state *state, struct np_err *err)
{
    return np_err_set(err, -ENOMEM, "out of memory for a PNG of %zu bytes", state->nr_bytes);
}

/* --- chunks -------------------------------------------------------------------------------- */

static uint32_t number(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static void put_number(uint8_t *at, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        at[i] = (uint8_t)(value >> (24 - 8 * i));
}

static bool is_type(const uint8_t *at)
{
    for (int i = 0; i < 4; i++)
        if (at[i] >= 0x80 || (!isalnum(at[i]) && at[i] != '_'))
            return false;
    return true;
}

/* Finds the header, the palette and the first image data; checks the CRCs of the chunks before
 * it. */
static int find_chunks(struct png_state *state, struct np_err *err)
{
    const uint8_t *at = state->bytes + MAGIC_BYTES, *end = state->bytes + state->nr_bytes;

    state->palette = NULL;
    for (;; at += 12 + number(at)) {
        if (end - at < 12)
            return bad(err, "the file ends too early");
        if (memcmp(at + 4, "IDAT", 4) == 0)
            break;
        if (!is_type(at + 4) || memcmp(at + 4, "IEND", 4) == 0)
            return bad(err, "it has no image data");
        if (number(at) > (size_t)(end - at) - 12)
            return bad(err, "the file ends too early");
        if (crc32(crc32(0, NULL, 0), at + 4, number(at) + 4) != number(at + 8 + number(at)))
            return np_err_set(
                err, -EBADMSG, "bad PNG: wrong checksum of its %.4s chunk", (const char *)at + 4);
        if (memcmp(at + 4, "PLTE", 4) == 0)
            state->palette = at;
    }
    if (at == state->bytes + MAGIC_BYTES || number(state->bytes + MAGIC_BYTES) != 13)
        return bad(err, "it has no header");
    if (state->bytes[MAGIC_BYTES + 17] == SPNG_COLOR_TYPE_INDEXED && state->palette &&
        number(state->palette) / 3 > 256)
        return bad(err, "it has more than 256 colours");
    state->data = at;
    return 0;
}

/* False if the file ends inside a chunk after the image data. Like Pillow, accepts a missing IEND,
 * stops at bytes that are not a chunk, and checks no CRC. */
static bool tail_is_whole(const uint8_t *at, const uint8_t *end)
{
    while (end - at >= 12) {
        const size_t length = number(at + 4);

        if (!is_type(at + 8) || memcmp(at + 8, "IEND", 4) == 0)
            break;
        at += 12;
        if (length > (size_t)(end - at))
            return false;
        at += length;
    }
    return true;
}

/* --- inflating ----------------------------------------------------------------------------- */

static int bits_of_pixel(const struct spng_ihdr *header)
{
    static const uint8_t samples[8] = {1, 0, 3, 1, 2, 0, 4, 0}; /* by color_type */

    return samples[header->color_type & 7] * header->bit_depth;
}

/* Number of rows in a pass (0 to 6; if not interlaced, pass 0 has all), and the bytes of one. */
static uint32_t rows_of_pass(const struct spng_ihdr *header, int pass, size_t *ret_row_bytes)
{
    static const uint8_t x0[7] = {0, 4, 0, 2, 0, 1, 0}, dx[7] = {8, 8, 4, 4, 2, 2, 1};
    static const uint8_t y0[7] = {0, 0, 4, 0, 2, 0, 1}, dy[7] = {8, 8, 8, 4, 4, 2, 2};
    uint32_t width = header->width, height = header->height;

    if (header->interlace_method) {
        width = (width + dx[pass] - 1 - x0[pass]) / dx[pass];
        height = (height + dy[pass] - 1 - y0[pass]) / dy[pass];
    } else if (pass > 0) {
        height = 0;
    }
    *ret_row_bytes = 1 + ((size_t)width * (size_t)bits_of_pixel(header) + 7) / 8;
    return width ? height : 0;
}

/* Gives zlib the next block of image data, as Pillow reads it; false: there is none. */
static bool next_data(struct png_state *state)
{
    const uint8_t *end = state->bytes + state->nr_bytes;
    size_t n;

    while (state->chunk_left == 0) {
        if (end - state->at < 12 || memcmp(state->at + 8, "IDAT", 4) != 0)
            return false;
        state->chunk_left = number(state->at + 4); /* after the CRC of the chunk before */
        state->at += 12;
    }
    n = state->chunk_left < BLOCK ? state->chunk_left : BLOCK;
    state->chunk_left -= (uint32_t)n;
    if (n > (size_t)(end - state->at))
        n = (size_t)(end - state->at);
    state->zlib.next_in = (uint8_t *)(uintptr_t)state->at;
    state->zlib.avail_in = (uInt)n;
    state->at += n;
    return n > 0;
}

/* 1: the stream has ended with the last of these bytes; else 0. */
static int inflate_bytes(struct png_state *state, uint8_t *rows, size_t n, struct np_err *err)
{
    z_stream *zlib = &state->zlib;

    zlib->next_out = rows;
    zlib->avail_out = (uInt)n;
    do {
        int status;

        if (zlib->avail_in == 0 && !next_data(state))
            return bad(err, "its image data is truncated");
        status = inflate(zlib, Z_NO_FLUSH);
        if (status == Z_MEM_ERROR)
            return no_memory(state, err);
        if (status != Z_OK && status != Z_STREAM_END)
            return bad(err, zlib->msg ? zlib->msg : "its image data is damaged");
        if (status == Z_STREAM_END)
            return zlib->avail_out ? bad(err, "its image data is truncated") : 1;
    } while (zlib->avail_out);
    return 0;
}

static int begin_inflating(struct png_state *state, struct np_err *err)
{
    if (!state->zlib_ready && inflateInit(&state->zlib) != Z_OK)
        return no_memory(state, err);
    state->zlib_ready = true;
    inflateReset(&state->zlib);
    state->zlib.avail_in = 0;
    state->chunk_left = number(state->data);
    state->at = state->data + 8;
    memset(state->rows, 0, state->rows_kept);
    return 0;
}

/* Inflates all rows, at_once bytes of them at a time (0: a row), and checks the checksum at the
 * stream's end if Pillow reads that far. Keeps the first `kept` in state->rows, which has space for
 * at_once bytes, or a row, more. Rows that the stream lacks are zero. */
static int inflate_rows(struct png_state *state, uint32_t kept, size_t at_once, struct np_err *err)
{
    size_t row_bytes, at = 0;
    int code = begin_inflating(state, err);

    for (int pass = 0; code == 0 && pass < 7; pass++) {
        uint32_t n, rows = rows_of_pass(&state->header, pass, &row_bytes);

        for (; code == 0 && rows > 0; rows -= n) {
            n = at_once < row_bytes ? 1 : (uint32_t)(at_once / row_bytes);
            n = n > rows ? rows : n;
            n = kept > 0 && n > kept ? kept : n;
            code = inflate_bytes(state, state->rows + at, n * row_bytes, err);
            for (uint32_t row = 0; code >= 0 && row < n; row++)
                if (state->rows[at + row * row_bytes] > 4)
                    return bad(err, "a filter that does not exist");
            at += kept > 0 ? n * row_bytes : 0;
            kept -= kept > 0 ? n : 0;
        }
    }
    return code;
}

/* Pillow inflates row by row, and whether a file is bad depends on that. But zlib is slow with
 * space for a few bytes only, so this inflates many rows at a time first. If it gets all rows, with
 * data left to read or with the stream's end after the last row, row by row would give the same; if
 * not, it inflates the file again, row by row. */
static int inflate_file(struct png_state *state, uint32_t kept, struct np_err *err)
{
    struct np_err ignored = {0};
    int code = inflate_rows(state, kept, AT_ONCE, &ignored);

    if (code >= 0 && state->zlib.total_out == state->rows_bytes &&
        (code == 1 || state->zlib.avail_in > 0))
        return 0;
    code = inflate_rows(state, kept, 0, err);
    return code < 0 ? code : 0;
}

static int inflate_image(struct png_state *state, uint32_t kept, struct np_err *err)
{
    size_t row_bytes, extra = AT_ONCE;
    uint32_t nr_rows = 0;
    int code;

    state->rows_bytes = state->rows_kept = 0;
    for (int pass = 0; pass < 7; pass++)
        for (uint32_t row = rows_of_pass(&state->header, pass, &row_bytes); row > 0; row--) {
            state->rows_bytes += row_bytes;
            state->rows_kept += nr_rows++ < kept ? row_bytes : 0;
            extra = row_bytes > extra ? row_bytes : extra;
        }
    if (state->rows_bytes > MAX_ROWS_BYTES)
        return bad(err, "its rows take more than 2 GB");
    if (np_hold(&state->rows, &state->rows_room, state->rows_kept + extra, err))
        return -ENOMEM;
    code = inflate_file(state, kept, err);
    if (code)
        return code;
    const size_t rest = (size_t)(state->bytes + state->nr_bytes - state->at);

    state->at += state->chunk_left < rest ? state->chunk_left : rest;
    return tail_is_whole(state->at, state->bytes + state->nr_bytes)
               ? 0
               : bad(err, "the file ends too early");
}

/* --- libspng ------------------------------------------------------------------------------- */

static uint8_t stored_head(size_t rows_bytes, size_t block, size_t at)
{
    const size_t from = block * STORED;
    const size_t length = rows_bytes - from < STORED ? rows_bytes - from : STORED;
    const uint8_t head[STORED_HEAD] = {from + length == rows_bytes, (uint8_t)length,
        (uint8_t)(length >> 8), (uint8_t)~length, (uint8_t)(~length >> 8)};

    return head[at];
}

/* Gives libspng the head, then the rows in stored blocks. Of rows that are not kept it reads at
 * most one filter byte, and ignores it. */
static int give(spng_ctx *context, void *user, void *dest, size_t n)
{
    struct png_state *state = user;
    uint8_t *to = dest;
    size_t here;

    for (; n > 0; n -= here, to += here, state->given += here) {
        if (state->given < state->nr_head) {
            here = state->nr_head - state->given < n ? state->nr_head - state->given : n;
            memcpy(to, state->head + state->given, here);
            continue;
        }
        const size_t at = state->given - state->nr_head;
        const size_t block = at / (STORED + STORED_HEAD), inside = at % (STORED + STORED_HEAD);
        const size_t from = block * STORED + inside - STORED_HEAD;

        here = 1;
        if (inside < STORED_HEAD) {
            *to = stored_head(state->rows_bytes, block, inside);
        } else if (from >= state->rows_kept) {
            *to = 0;
        } else {
            here = STORED + STORED_HEAD - inside;
            here = here < state->rows_kept - from ? here : state->rows_kept - from;
            here = here < n ? here : n;
            memcpy(to, state->rows + from, here);
        }
    }
    return 0;
}

/* Writes a palette of 2^depth colours; those that the file lacks are grey, as in Pillow. Returns
 * its bytes. */
static size_t write_palette(const uint8_t *chunk, int depth, uint8_t *to)
{
    const uint32_t there = chunk ? number(chunk) / 3 : 0, n = 1u << depth;

    put_number(to, 3 * n);
    memcpy(to + 4, "PLTE", 4);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t c = 0; c < 3; c++)
            to[8 + 3 * i + c] = i < there ? chunk[8 + 3 * i + c] : (uint8_t)i;
    return 12 + 3 * n; /* the CRC is not checked */
}

/* Begins the stream for libspng: the header, and the palette if the picture uses one. */
static void write_head(struct png_state *state)
{
    const uint8_t *header = state->bytes + MAGIC_BYTES + 8;

    memcpy(state->head, state->bytes, MAGIC_BYTES + HEADER_BYTES);
    state->nr_head = MAGIC_BYTES + HEADER_BYTES;
    if (header[9] == SPNG_COLOR_TYPE_INDEXED && header[8] <= 8)
        state->nr_head += write_palette(state->palette, header[8], state->head + state->nr_head);
    state->given = 0;
}

static void write_data_head(struct png_state *state)
{
    const size_t blocks = (state->rows_bytes + STORED - 1) / STORED;
    uint8_t *to = state->head + state->nr_head;

    put_number(to, (uint32_t)(2 + state->rows_bytes + blocks * STORED_HEAD));
    memcpy(to + 4, "IDAT\x78\x01", 6);
    state->nr_head += DATA_HEAD_BYTES;
}

/* Leaves state->context with its header read. */
static int open_image(
    struct png_state *state, const uint8_t *bytes, size_t nr_bytes, struct np_err *err)
{
    int code;

    if (state->context && state->bytes == bytes && state->nr_bytes == nr_bytes)
        return 0;
    close_image(state);
    state->bytes = bytes;
    state->nr_bytes = nr_bytes;
    code = find_chunks(state, err);
    if (code)
        return code;
    write_head(state);
    state->context = spng_ctx_new(SPNG_CTX_IGNORE_ADLER32);
    if (!state->context)
        return no_memory(state, err);
    spng_set_image_limits(state->context, NP_MAX_SIDE, NP_MAX_SIDE);
    spng_set_crc_action(state->context, SPNG_CRC_USE, SPNG_CRC_USE); /* find_chunks() did */
    code = spng_set_png_stream(state->context, give, state);
    if (!code)
        code = spng_get_ihdr(state->context, &state->header);
    if (code == SPNG_EMEM)
        return no_memory(state, err);
    if (code)
        return bad(err, spng_strerror(code));
    return 0;
}

static int png_info(void *memory, const uint8_t *bytes, size_t nr_bytes,
    struct np_image_info *ret_info, struct np_err *err)
{
    struct png_state *state = memory;
    const struct spng_ihdr *header = &state->header;
    int code = open_image(state, bytes, nr_bytes, err);

    if (code) {
        close_image(state);
        return code;
    }
    *ret_info = (struct np_image_info){.width = (int)header->width,
        .height = (int)header->height,
        .channels = header->color_type == SPNG_COLOR_TYPE_GRAYSCALE ? 1
                    : header->color_type & 4                        ? 4
                                                                    : 3};
    return 0;
}

/* Rows first..end-1 into state->pixels (all rows of an interlaced file). */
static int read_rows(
    struct png_state *state, int first, int end, size_t row_bytes, struct np_err *err)
{
    const bool interlaced = state->header.interlace_method;
    uint8_t *scratch = state->pixels + (size_t)(end - first) * row_bytes; /* for rows above */
    int code = spng_decode_image(state->context, NULL, 0, SPNG_FMT_RGB8, SPNG_DECODE_PROGRESSIVE);

    for (int row = 0; code == 0 && row < end && !interlaced; row++)
        code = spng_decode_row(state->context,
            row < first ? scratch : state->pixels + (size_t)(row - first) * row_bytes, row_bytes);
    while (code == 0 && interlaced) {
        struct spng_row_info info;

        code = spng_get_row_info(state->context, &info);
        if (code == 0)
            code = spng_decode_row(
                state->context, state->pixels + info.row_num * row_bytes, row_bytes);
    }
    /* The stream is our own: libspng can only run out of memory. */
    return code == 0 || code == SPNG_EOI ? 0 : no_memory(state, err);
}

/* True if the rows are those of the picture, with a byte for each sample. */
static bool is_simple(const struct spng_ihdr *header)
{
    return header->bit_depth == 8 && !header->interlace_method &&
           (header->color_type == SPNG_COLOR_TYPE_GRAYSCALE ||
               header->color_type == SPNG_COLOR_TYPE_TRUECOLOR ||
               header->color_type == SPNG_COLOR_TYPE_TRUECOLOR_ALPHA);
}

/* Makes pixels of the rows of a simple picture, in place, and returns those from row `first` on. */
static int unfilter_rows(
    struct png_state *state, int first, int end, struct np_pixels *ret_pixels, struct np_err *err)
{
    const int width = (int)state->header.width, pixel = bits_of_pixel(&state->header) / 8;
    const size_t n = (size_t)width * (size_t)pixel, row_bytes = 1 + n;
    const uint8_t *above = memset(state->rows + state->rows_kept, 0, n);
    struct np_pixels pixels = {.data = state->rows + (size_t)first * row_bytes + 1,
        .width = width,
        .height = end - first,
        .channels = pixel == 1 ? 1 : 3,
        .stride = (ptrdiff_t)row_bytes,
        .origin_y = first};

    for (int y = 0; y < end; y++) {
        uint8_t *row = state->rows + (size_t)y * row_bytes;

        np_png_unfilter(row[0], row + 1, above, n, pixel);
        above = row + 1;
    }
    if (pixel == 4) { /* drop alpha */
        pixels.stride = 3 * (ptrdiff_t)width;
        if (np_hold(&state->pixels, &state->pixels_bytes,
                (size_t)pixels.stride * (size_t)pixels.height, err))
            return -ENOMEM;
        for (int y = 0; y < pixels.height; y++)
            for (int x = 0; x < width; x++)
                memcpy(state->pixels + y * pixels.stride + 3 * x,
                    pixels.data + (size_t)y * row_bytes + 4 * (size_t)x, 3);
        pixels.data = state->pixels;
    }
    *ret_pixels = pixels;
    return 0;
}

static int decode_open(struct png_state *state, const struct np_rect *need,
    struct np_pixels *ret_pixels, struct np_err *err)
{
    const struct spng_ihdr *header = &state->header;
    int first = header->interlace_method ? 0 : need->top;
    int end = header->interlace_method ? (int)header->height : need->bottom;
    size_t row_bytes = (size_t)header->width * 3;
    int code = inflate_image(state, header->interlace_method ? UINT32_MAX : (uint32_t)end, err);

    if (code)
        return code;
    if (is_simple(header))
        return unfilter_rows(state, first, end, ret_pixels, err);
    if (np_hold(&state->pixels, &state->pixels_bytes, row_bytes * (size_t)(end - first + 1), err))
        return -ENOMEM;
    write_data_head(state);
    code = read_rows(state, first, end, row_bytes, err);
    if (code)
        return code;
    *ret_pixels = (struct np_pixels){.data = state->pixels,
        .width = (int)header->width,
        .height = end - first,
        .channels = 3,
        .stride = (ptrdiff_t)row_bytes,
        .origin_y = first};
    return 0;
}

static void keep_first_channel(struct png_state *state, struct np_pixels *pixels)
{
    size_t n = (size_t)pixels->width * (size_t)pixels->height;

    for (size_t i = 0; i < n; i++)
        state->pixels[i] = state->pixels[3 * i];
    pixels->channels = 1;
    pixels->stride = pixels->width;
}

static int png_decode(void *memory, const uint8_t *bytes, size_t nr_bytes,
    const struct np_geometry *geometry, int channels, struct np_pixels *ret_pixels,
    struct np_err *err)
{
    struct png_state *state = memory;
    const struct spng_ihdr *header = &state->header;
    struct np_rect need;
    int code;

    np_geometry_need(geometry, &need);
    code = open_image(state, bytes, nr_bytes, err);
    if (code == 0) {
        assert(need.left >= 0 && need.right <= (int)header->width);
        assert(need.top >= 0 && need.bottom <= (int)header->height);
        code = decode_open(state, &need, ret_pixels, err);
    }
    close_image(state);
    if (code)
        return code;
    if (channels == 1 && ret_pixels->channels == 3 &&
        !(header->color_type & SPNG_COLOR_TYPE_TRUECOLOR))
        keep_first_channel(state, ret_pixels);
    return 0;
}

static int png_encode(const uint8_t *pixels, int width, int height, int channels, int quality,
    uint8_t **ret_bytes, size_t *ret_nr_bytes, struct np_err *err)
{
    struct spng_ihdr header = {.width = (uint32_t)width,
        .height = (uint32_t)height,
        .bit_depth = 8,
        .color_type = channels == 1 ? SPNG_COLOR_TYPE_GRAYSCALE : SPNG_COLOR_TYPE_TRUECOLOR};
    size_t n = (size_t)width * (size_t)height * (size_t)channels, nr_bytes;
    spng_ctx *context = spng_ctx_new(SPNG_CTX_ENCODER);
    uint8_t *png = NULL;
    int code = context ? spng_set_ihdr(context, &header) : SPNG_EMEM;

    assert(channels == 1 || channels == 3);
    if (code == 0)
        code = spng_set_option(context, SPNG_ENCODE_TO_BUFFER, 1);
    if (code == 0)
        code = spng_encode_image(context, pixels, n, SPNG_FMT_PNG, SPNG_ENCODE_FINALIZE);
    if (code == 0)
        png = spng_get_png_buffer(context, &nr_bytes, &code);
    spng_ctx_free(context);
    if (code)
        return np_err_set(err, code == SPNG_EMEM ? -ENOMEM : -EINVAL,
            "cannot write an image of %d x %d as PNG: %s", width, height, spng_strerror(code));
    *ret_bytes = png;
    *ret_nr_bytes = nr_bytes;
    return 0;
}

const struct np_codec np_codec_png = {
    .name = "png",
    .sniff = png_sniff,
    .init = png_init,
    .info = png_info,
    .decode = png_decode,
    .encode = png_encode,
    .fini = png_fini,
};
