/* PNG -> pixels by libspng, and pixels -> PNG. Alpha is dropped, palettes are looked up and 16-bit
 * samples lose their low byte (Pillow clips 16-bit grey instead). A checksum of image data below
 * the last row that is needed is not checked; that the file goes on to its end chunk is. Reader
 * threads, a state each. */
#include "loader/codec.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <spng.h>

#include "loader/base/mem.h"
#include "loader/codec_convert.h"
#include "loader/geometry.h"

#define CHUNK_BYTES (64u << 20) /* of any one chunk but IDAT; attacks inflate text and profiles */

struct png_state {
    spng_ctx *context;    /* of the image that is open; libspng cannot use one twice */
    const uint8_t *bytes; /* whose header it has read */
    size_t nr_bytes;
    uint8_t *pixels, *converted;
    size_t pixels_bytes, converted_bytes;
};

static bool png_sniff(const uint8_t *bytes, size_t nr_bytes)
{
    static const uint8_t magic[8] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};

    return nr_bytes >= sizeof(magic) && memcmp(bytes, magic, sizeof(magic)) == 0;
}

static int png_init(void **ret_state)
{
    *ret_state = np_alloc(sizeof(struct png_state));
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
    np_free(state->pixels);
    np_free(state->converted);
    np_free(state);
}

static int bad(int code, struct np_err *err)
{
    return np_err_set(
        err, code == SPNG_EMEM ? -ENOMEM : -EBADMSG, "bad PNG: %s", spng_strerror(code));
}

/* Leaves state->context with its header read. */
static int open_image(struct png_state *state, const uint8_t *bytes, size_t nr_bytes,
    struct spng_ihdr *ret_header, struct np_err *err)
{
    int code;

    if (!state->context || state->bytes != bytes || state->nr_bytes != nr_bytes) {
        close_image(state);
        state->context = spng_ctx_new(0);
        if (!state->context)
            return np_err_set(err, -ENOMEM, "out of memory for reading a PNG");
        spng_set_image_limits(state->context, NP_MAX_SIDE, NP_MAX_SIDE);
        spng_set_chunk_limits(state->context, CHUNK_BYTES, CHUNK_BYTES);
        code = spng_set_png_buffer(state->context, bytes, nr_bytes);
        if (code)
            return bad(code, err);
        state->bytes = bytes;
        state->nr_bytes = nr_bytes;
    }
    code = spng_get_ihdr(state->context, ret_header);
    if (code)
        return bad(code, err);
    if ((uint64_t)ret_header->width * ret_header->height > NP_MAX_PIXELS)
        return np_err_set(err, -EBADMSG, "bad PNG: it has more than 178956970 pixels");
    return 0;
}

static int png_info(void *memory, const uint8_t *bytes, size_t nr_bytes,
    struct np_image_info *ret_info, struct np_err *err)
{
    struct png_state *state = memory;
    struct spng_ihdr header;
    int code = open_image(state, bytes, nr_bytes, &header, err);

    if (code) {
        close_image(state);
        return code;
    }
    *ret_info = (struct np_image_info){(int)header.width, (int)header.height,
        header.color_type == SPNG_COLOR_TYPE_GRAYSCALE ? 1
        : header.color_type & 4                        ? 4
                                                       : 3};
    return 0;
}

/* Rows first..end-1 into state->pixels (all rows of an interlaced file). */
static int read_rows(struct png_state *state, const struct spng_ihdr *header, int first, int end,
    size_t row_bytes, struct np_err *err)
{
    uint8_t *scratch = state->pixels + (size_t)(end - first) * row_bytes; /* for rows above */
    int code = spng_decode_image(state->context, NULL, 0, SPNG_FMT_RGB8, SPNG_DECODE_PROGRESSIVE);

    for (int row = 0; code == 0 && row < end && !header->interlace_method; row++)
        code = spng_decode_row(state->context,
            row < first ? scratch : state->pixels + (size_t)(row - first) * row_bytes, row_bytes);
    while (code == 0 && header->interlace_method) {
        struct spng_row_info info;

        code = spng_get_row_info(state->context, &info);
        if (code == 0)
            code = spng_decode_row(
                state->context, state->pixels + info.row_num * row_bytes, row_bytes);
    }
    return code == 0 || code == SPNG_EOI ? 0 : bad(code, err);
}

/* The end chunk, anywhere after the header: empty, so always the same twelve bytes. */
static bool has_end(const uint8_t *bytes, size_t nr_bytes)
{
    static const uint8_t end[12] = {0, 0, 0, 0, 'I', 'E', 'N', 'D', 0xae, 0x42, 0x60, 0x82};

    if (nr_bytes >= sizeof(end) && memcmp(bytes + nr_bytes - sizeof(end), end, sizeof(end)) == 0)
        return true;
    return memmem(bytes, nr_bytes, end, sizeof(end)) != NULL;
}

static int decode_open(struct png_state *state, const struct spng_ihdr *header,
    const struct np_rect *need, struct np_pixels *ret_pixels, struct np_err *err)
{
    int first = header->interlace_method ? 0 : need->top;
    int end = header->interlace_method ? (int)header->height : need->bottom;
    size_t row_bytes = (size_t)header->width * 3;
    int code;

    if (np_hold(&state->pixels, &state->pixels_bytes, row_bytes * (size_t)(end - first + 1)))
        return np_err_set(
            err, -ENOMEM, "out of memory for an image of %u x %u", header->width, header->height);
    code = read_rows(state, header, first, end, row_bytes, err);
    if (code == 0 && !has_end(state->bytes, state->nr_bytes))
        code = np_err_set(err, -EBADMSG, "bad PNG: the file ends too early");
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

/* Grey as one channel out of three equal ones, in place. */
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
    struct spng_ihdr header;
    struct np_pixels pixels;
    struct np_rect need;
    int code;

    np_geometry_need(geometry, &need);
    code = open_image(state, bytes, nr_bytes, &header, err);
    if (code == 0) {
        assert(need.left >= 0 && need.right <= (int)header.width);
        assert(need.top >= 0 && need.bottom <= (int)header.height);
        code = decode_open(state, &header, &need, &pixels, err);
    }
    close_image(state);
    if (code)
        return code;
    if (channels == 1 && !(header.color_type & SPNG_COLOR_TYPE_TRUECOLOR))
        keep_first_channel(state, &pixels);
    if (np_convert(&pixels, channels, &state->converted, &state->converted_bytes))
        return np_err_set(err, -ENOMEM, "out of memory for converting an image");
    *ret_pixels = pixels;
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
    uint8_t *png = NULL, *copy;
    int code = SPNG_EMEM;

    (void)quality;
    assert(channels == 1 || channels == 3);
    if (!context)
        goto out;
    spng_set_option(context, SPNG_ENCODE_TO_BUFFER, 1);
    code = spng_set_ihdr(context, &header);
    if (code == 0)
        code = spng_encode_image(context, pixels, n, SPNG_FMT_PNG, SPNG_ENCODE_FINALIZE);
    if (code == 0)
        png = spng_get_png_buffer(context, &nr_bytes, &code);
    if (code)
        goto out;
    copy = np_alloc(nr_bytes);
    if (!copy) {
        code = SPNG_EMEM;
        goto out;
    }
    memcpy(copy, png, nr_bytes);
    *ret_bytes = copy;
    *ret_nr_bytes = nr_bytes;
out:
    free(png);
    spng_ctx_free(context);
    return code ? np_err_set(err, code == SPNG_EMEM ? -ENOMEM : -EINVAL,
                      "cannot write an image of %d x %d as PNG: %s", width, height,
                      spng_strerror(code))
                : 0;
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
