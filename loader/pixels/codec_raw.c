/* PGM (P5) and PPM (P6), 8 and 16 bits: bare pixels after a small header. Samples are scaled from
 * maxval to 255 as in Pillow. Reader threads, a state each. */
#include "loader/pixels/codec.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "loader/base/mem.h"

struct pnm {
    int width, height, channels, maxval;
    size_t offset; /* of the first sample */
};

struct raw_state {
    uint8_t *scaled;
    size_t scaled_bytes;
    uint8_t table[256]; /* sample -> byte, for table_maxval */
    int table_maxval;
};

static bool raw_sniff(const uint8_t *bytes, size_t nr_bytes)
{
    return nr_bytes >= 3 && bytes[0] == 'P' && (bytes[1] == '5' || bytes[1] == '6') &&
           memchr(" \t\n\v\f\r#", bytes[2], 7);
}

static bool is_space(uint8_t byte)
{
    return byte == ' ' || (byte >= '\t' && byte <= '\r');
}

/* The number at *at, after blanks and comments; -1 if there is none. */
static int read_number(const uint8_t *bytes, size_t nr_bytes, size_t *at)
{
    int value = -1;

    while (*at < nr_bytes && (is_space(bytes[*at]) || bytes[*at] == '#'))
        if (bytes[(*at)++] == '#')
            while (*at < nr_bytes && bytes[*at] != '\n' && bytes[*at] != '\r')
                (*at)++;
    for (; *at < nr_bytes && bytes[*at] >= '0' && bytes[*at] <= '9'; (*at)++) {
        value = (value < 0 ? 0 : value) * 10 + (bytes[*at] - '0');
        if (value > 1000000)
            return -1;
    }
    return value;
}

static int read_header(
    const uint8_t *bytes, size_t nr_bytes, struct pnm *ret_pnm, struct np_err *err)
{
    struct pnm pnm = {.channels = bytes[1] == '6' ? 3 : 1};
    size_t at = 2, sample_bytes;

    pnm.width = read_number(bytes, nr_bytes, &at);
    pnm.height = read_number(bytes, nr_bytes, &at);
    pnm.maxval = read_number(bytes, nr_bytes, &at);
    if (pnm.width < 1 || pnm.height < 1 || pnm.maxval < 1 || pnm.maxval > 65535 || at >= nr_bytes ||
        !is_space(bytes[at]))
        return np_err_set(err, -EBADMSG, "bad PNM: no width, height and maxval in its header");
    pnm.offset = at + 1;
    if (pnm.width > NP_MAX_SIDE || pnm.height > NP_MAX_SIDE)
        return np_err_set(err, -EBADMSG, "bad PNM: %d x %d is too large", pnm.width, pnm.height);
    sample_bytes = pnm.maxval > 255 ? 2 : 1;
    if ((nr_bytes - pnm.offset) / sample_bytes / (size_t)pnm.channels / (size_t)pnm.width <
        (size_t)pnm.height)
        return np_err_set(err, -EBADMSG, "bad PNM: the file ends too early");
    *ret_pnm = pnm;
    return 0;
}

static int raw_init(void **ret_state, struct np_err *err)
{
    *ret_state = np_try_alloc(sizeof(struct raw_state), err);
    return *ret_state ? 0 : -ENOMEM;
}

static void raw_fini(void *memory)
{
    struct raw_state *state = memory;

    if (!state)
        return;
    np_free(state->scaled);
    np_free(state);
}

static int raw_info(void *state, const uint8_t *bytes, size_t nr_bytes,
    struct np_image_info *ret_info, struct np_err *err)
{
    struct pnm pnm;
    int code = read_header(bytes, nr_bytes, &pnm, err);

    if (code == 0)
        *ret_info = (struct np_image_info){
            .width = pnm.width, .height = pnm.height, .channels = pnm.channels};
    return code;
}

static uint8_t scale_sample(int sample, int maxval)
{
    double value = rint((double)sample / maxval * 255);

    return (uint8_t)(value > 255 ? 255 : value);
}

static int scale_samples(
    struct raw_state *state, const uint8_t *bytes, const struct pnm *pnm, struct np_err *err)
{
    size_t n = (size_t)pnm->width * (size_t)pnm->height * (size_t)pnm->channels;

    if (np_hold(&state->scaled, &state->scaled_bytes, n, err))
        return -ENOMEM;
    if (pnm->maxval > 255) {
        for (size_t i = 0; i < n; i++)
            state->scaled[i] = scale_sample(bytes[2 * i] << 8 | bytes[2 * i + 1], pnm->maxval);
        return 0;
    }
    if (state->table_maxval != pnm->maxval)
        for (int i = 0; i < 256; i++)
            state->table[i] = scale_sample(i, pnm->maxval);
    state->table_maxval = pnm->maxval;
    for (size_t i = 0; i < n; i++)
        state->scaled[i] = state->table[bytes[i]];
    return 0;
}

static int raw_decode(void *memory, const uint8_t *bytes, size_t nr_bytes,
    const struct np_geometry *geometry, int channels, struct np_pixels *ret_pixels,
    struct np_err *err)
{
    struct raw_state *state = memory;
    struct np_pixels pixels;
    struct pnm pnm;
    int code = read_header(bytes, nr_bytes, &pnm, err);

    if (code)
        return code;
    pixels = (struct np_pixels){.data = bytes + pnm.offset,
        .width = pnm.width,
        .height = pnm.height,
        .channels = pnm.channels,
        .stride = (ptrdiff_t)pnm.width * pnm.channels};
    if (pnm.maxval != 255) {
        code = scale_samples(state, pixels.data, &pnm, err);
        pixels.data = state->scaled;
    }
    if (code == 0)
        *ret_pixels = pixels;
    return code;
}

static int raw_encode(const uint8_t *pixels, int width, int height, int channels, int quality,
    uint8_t **ret_bytes, size_t *ret_nr_bytes, struct np_err *err)
{
    size_t n = (size_t)width * (size_t)height * (size_t)channels;
    char header[64];
    int length;
    uint8_t *bytes;

    assert(channels == 1 || channels == 3);
    length =
        snprintf(header, sizeof(header), "P%d\n%d %d\n255\n", channels == 3 ? 6 : 5, width, height);
    bytes = np_try_alloc((size_t)length + n, err);
    if (!bytes)
        return -ENOMEM;
    memcpy(bytes, header, (size_t)length);
    memcpy(bytes + length, pixels, n);
    *ret_bytes = bytes;
    *ret_nr_bytes = (size_t)length + n;
    return 0;
}

const struct np_codec np_codec_raw = {
    .name = "raw",
    .sniff = raw_sniff,
    .init = raw_init,
    .info = raw_info,
    .decode = raw_decode,
    .encode = raw_encode,
    .fini = raw_fini,
};
