/* See codec.h. Samples that are bare pixels, or drawn, need no codec. */
#include "loader/pixels/codec.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "loader/base/mem.h"
#include "loader/base/synth.h"
#include "loader/pixels/place.h"

#define SYNTH_BYTES 8 /* a drawn sample: its number, little-endian */

static const struct np_codec *const codecs[] = {&np_codec_jpeg, &np_codec_png, &np_codec_raw, NULL};

enum { NR_CODECS = sizeof(codecs) / sizeof(*codecs) - 1 };

struct np_decoder {
    void *states[NR_CODECS];
    uint64_t max_pixels;
    /* Set by open: */
    int codec; /* of codecs; -1: raw */
    struct np_raw raw;
    const uint8_t *bytes;
    size_t nr_bytes;
    uint8_t *pixels, *converted;
    size_t pixels_bytes, converted_bytes;
};

int np_decoder_new(struct np_decoder **ret_decoder, struct np_err *err)
{
    struct np_decoder *decoder = np_try_alloc(sizeof(*decoder), err);

    if (!decoder)
        return -ENOMEM;
    decoder->max_pixels = NP_MAX_PIXELS;
    *ret_decoder = decoder;
    return 0;
}

void np_decoder_free(struct np_decoder *decoder)
{
    if (!decoder)
        return;
    for (int i = 0; i < NR_CODECS; i++)
        if (decoder->states[i])
            codecs[i]->fini(decoder->states[i]);
    np_free(decoder->pixels);
    np_free(decoder->converted);
    np_free(decoder);
}

void np_decoder_limit(struct np_decoder *decoder, uint64_t max_pixels)
{
    decoder->max_pixels = max_pixels ? max_pixels : NP_MAX_PIXELS;
}

static int check_limits(
    const struct np_decoder *decoder, const struct np_image_info *info, struct np_err *err)
{
    const uint64_t max = decoder->max_pixels, max_bytes = max + max / 2;

    if ((uint64_t)info->width * (uint64_t)info->height > max)
        return np_err_set(err, -EBADMSG, "%d x %d pixels are more than loader.max_pixels, %llu",
            info->width, info->height, (unsigned long long)max);
    if (info->coefficient_bytes > max_bytes)
        return np_err_set(err, -EBADMSG,
            "its scans take %llu bytes, more than %llu (1.5 for each of loader.max_pixels)",
            (unsigned long long)info->coefficient_bytes, (unsigned long long)max_bytes);
    return 0;
}

static int open_raw(struct np_decoder *decoder, struct np_image_info *ret_info, struct np_err *err)
{
    const struct np_raw *raw = &decoder->raw;
    size_t want = raw->kind == NP_RAW_SYNTH
                      ? SYNTH_BYTES
                      : (size_t)raw->width * (size_t)raw->height * (size_t)raw->channels;

    if (raw->channels != 1 && raw->channels != 3)
        return np_err_set(err, -EBADMSG, "raw pixels of %d channels, not 1 or 3", raw->channels);
    if (decoder->nr_bytes != want)
        return np_err_set(err, -EBADMSG, "a sample of raw pixels has %zu bytes, not %zu",
            decoder->nr_bytes, want);
    *ret_info = (struct np_image_info){
        .width = raw->width, .height = raw->height, .channels = raw->channels};
    return 0;
}

/* A known format that no codec reads; NULL: unknown. */
static const char *other_format(const uint8_t *bytes, size_t nr_bytes)
{
    static const struct {
        const char *name, *magic;
        size_t at, bytes;
    } formats[] = {
        {"WebP", "WEBP", 8, 4},
        {"GIF", "GIF8", 0, 4},
        {"BMP", "BM", 0, 2},
        {"TIFF", "II*\0", 0, 4},
        {"TIFF", "MM\0*", 0, 4},
        {"HEIC", "ftyphei", 4, 7},
        {"HEIC", "ftypmif1", 4, 8},
        {"AVIF", "ftypavif", 4, 8},
        {"JPEG XL", "\0\0\0\fJXL ", 0, 8},
        {"JPEG XL", "\xff\x0a", 0, 2},
        {"JPEG 2000", "\0\0\0\fjP  ", 0, 8},
    };

    for (size_t i = 0; i < sizeof(formats) / sizeof(*formats); i++)
        if (nr_bytes >= formats[i].at + formats[i].bytes &&
            memcmp(bytes + formats[i].at, formats[i].magic, formats[i].bytes) == 0)
            return formats[i].name;
    return NULL;
}

static int unknown(const uint8_t *bytes, size_t nr_bytes, struct np_err *err)
{
    const char *format = other_format(bytes, nr_bytes);

    if (nr_bytes == 0)
        return np_err_set(err, -EBADMSG, "the file is empty");
    if (format)
        return np_err_set(err, -EBADMSG,
            "a %s picture, which is not supported; convert it to JPEG or PNG", format);
    return np_err_set(err, -EBADMSG,
        "neither JPEG, PNG nor PNM: its first bytes are %02x %02x %02x %02x", bytes[0],
        nr_bytes > 1 ? bytes[1] : 0, nr_bytes > 2 ? bytes[2] : 0, nr_bytes > 3 ? bytes[3] : 0);
}

int np_decoder_open(struct np_decoder *decoder, const uint8_t *bytes, size_t nr_bytes,
    const struct np_raw *raw, struct np_image_info *ret_info, struct np_err *err)
{
    decoder->bytes = bytes;
    decoder->nr_bytes = nr_bytes;
    decoder->codec = -1;
    if (raw && raw->kind != NP_RAW_NONE) {
        decoder->raw = *raw;
        return open_raw(decoder, ret_info, err);
    }
    for (int i = 0; i < NR_CODECS; i++) {
        const struct np_codec *codec = codecs[i];
        struct np_image_info info = {0};
        int code;

        if (!codec->sniff(bytes, nr_bytes))
            continue;
        if (!decoder->states[i] && codec->init(&decoder->states[i], err))
            return -ENOMEM;
        decoder->codec = i;
        code = codec->info(decoder->states[i], bytes, nr_bytes, &info, err);
        if (!code)
            code = check_limits(decoder, &info, err);
        if (!code)
            *ret_info = info;
        return code;
    }
    return unknown(bytes, nr_bytes, err);
}

static int decode_raw(struct np_decoder *decoder, const struct np_geometry *geometry,
    struct np_pixels *ret_pixels, struct np_err *err)
{
    const struct np_raw *raw = &decoder->raw;
    struct np_pixels pixels = {.data = decoder->bytes,
        .width = raw->width,
        .height = raw->height,
        .channels = raw->channels,
        .stride = (ptrdiff_t)raw->width * raw->channels};
    struct np_rect need;

    if (raw->kind == NP_RAW_SYNTH) {
        uint64_t number;

        memcpy(&number, decoder->bytes, sizeof(number));
        if (np_hold(&decoder->pixels, &decoder->pixels_bytes,
                (size_t)pixels.stride * (size_t)pixels.height, err))
            return -ENOMEM;
        np_synth_draw(raw->seed, number, raw->height, decoder->pixels, NULL);
        pixels.data = decoder->pixels;
    } else if (raw->kind == NP_RAW_CHW && raw->channels == 3) {
        np_geometry_need(geometry, &need);
        pixels.origin_y = need.top;
        pixels.height = need.bottom - need.top;
        if (np_hold(&decoder->pixels, &decoder->pixels_bytes,
                (size_t)pixels.stride * (size_t)pixels.height, err))
            return -ENOMEM;
        np_place_planes(decoder->bytes + (size_t)need.top * raw->width,
            (size_t)raw->width * (size_t)raw->height, (size_t)pixels.height * (size_t)raw->width,
            decoder->pixels);
        pixels.data = decoder->pixels;
    }
    *ret_pixels = pixels;
    return 0;
}

/* ITU-R BT.601 luma in 16-bit fixed point, rounded. */
static uint8_t luma(const uint8_t *rgb)
{
    return (uint8_t)((rgb[0] * 19595u + rgb[1] * 38470u + rgb[2] * 7471u + 0x8000u) >> 16);
}

/* a * b / 255, rounded, without a division: exact for bytes. */
static int times(int a, int b)
{
    int product = a * b + 128;

    return ((product >> 8) + product) >> 8;
}

/* Ink stored as 255 - ink. */
static void cmyk_to_rgb(const uint8_t *cmyk, uint8_t rgb[3])
{
    int white = cmyk[3]; /* 255 - black */

    for (int c = 0; c < 3; c++)
        rgb[c] = (uint8_t)(white - times(255 - cmyk[c], white));
}

static void convert_row(
    const uint8_t *from, int width, int from_channels, int to_channels, uint8_t *to)
{
    uint8_t rgb[3];

    for (int x = 0; x < width; x++, from += from_channels, to += to_channels) {
        if (from_channels == 1) {
            to[0] = to[1] = to[2] = from[0];
        } else if (from_channels == 3) {
            to[0] = luma(from);
        } else {
            cmyk_to_rgb(from, rgb);
            if (to_channels == 1)
                to[0] = luma(rgb);
            else
                memcpy(to, rgb, 3);
        }
    }
}

static int convert(
    struct np_decoder *decoder, struct np_pixels *pixels, int channels, struct np_err *err)
{
    const size_t stride = (size_t)pixels->width * (size_t)channels;

    if (pixels->channels == channels)
        return 0;
    if (np_hold(
            &decoder->converted, &decoder->converted_bytes, stride * (size_t)pixels->height, err))
        return -ENOMEM;
    for (int y = 0; y < pixels->height; y++)
        convert_row(pixels->data + y * pixels->stride, pixels->width, pixels->channels, channels,
            decoder->converted + (size_t)y * stride);
    pixels->data = decoder->converted;
    pixels->stride = (ptrdiff_t)stride;
    pixels->channels = channels;
    return 0;
}

int np_decoder_decode(struct np_decoder *decoder, const struct np_geometry *geometry, int channels,
    struct np_pixels *ret_pixels, struct np_err *err)
{
    struct np_pixels pixels;
    int code;

    assert(channels == 1 || channels == 3);
    code = decoder->codec < 0
               ? decode_raw(decoder, geometry, &pixels, err)
               : codecs[decoder->codec]->decode(decoder->states[decoder->codec], decoder->bytes,
                     decoder->nr_bytes, geometry, channels, &pixels, err);
    if (!code)
        code = convert(decoder, &pixels, channels, err);
    if (!code)
        *ret_pixels = pixels;
    return code;
}

struct np_jpeg *np_decoder_jpeg(struct np_decoder *decoder)
{
    const struct np_codec *codec = decoder->codec < 0 ? NULL : codecs[decoder->codec];

    return codec && codec->jpeg ? codec->jpeg(decoder->states[decoder->codec]) : NULL;
}
