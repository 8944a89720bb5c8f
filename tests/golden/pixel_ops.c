/* Operations on pixels for pixel_ops.sh: reads what pixel_ops.py wrote from stdin and writes it to
 * stdout with the CRC-32 of nnpipe's pixels instead of Pillow's.
 *   line: OP VALUE,VALUE... PICTURE CHANNELS CRC
 * PICTURE: KIND:SEED:WIDTH:HEIGHT. A line that begins with # stays. Argument: the CPU's vectors, as
 * np_vectors_limit() takes them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <zlib.h>

#include "loader/base/vectors.h"
#include "loader/pixels/pixel_op.h"

static const struct {
    const char *name;
    const struct np_pixel_op *op;
} ops[] = {
    {"brightness", &np_pixel_brightness},
    {"contrast", &np_pixel_contrast},
    {"saturation", &np_pixel_saturation},
    {"hue", &np_pixel_hue},
    {"grayscale", &np_pixel_grayscale},
    {"solarize", &np_pixel_solarize},
    {"posterize", &np_pixel_posterize},
    {"invert", &np_pixel_invert},
    {"autocontrast", &np_pixel_autocontrast},
    {"equalize", &np_pixel_equalize},
    {"sharpness", &np_pixel_sharpness},
    {"flip_down", &np_pixel_flip_down},
};

static uint32_t next(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 24;
}

/* The pictures of pixel_ops.py: noise; smooth, with few values; or every colour once. */
static void draw(const char *kind, uint32_t seed, struct np_canvas *canvas)
{
    const int w = canvas->width, h = canvas->height, n = canvas->channels;
    uint8_t *out = canvas->pixels;

    for (int y = 0; y < h; y++)
        for (int x = 0; x < w; x++)
            for (int c = 0; c < n; c++) {
                const uint32_t colour = (uint32_t)(y * w + x);

                if (strcmp(kind, "noise") == 0)
                    *out++ = (uint8_t)next(&seed);
                else if (strcmp(kind, "smooth") == 0)
                    *out++ = (uint8_t)(40 + (x * (c + 2) + y * 3) % 97 + (int)(next(&seed) >> 5));
                else
                    *out++ = (uint8_t)(colour >> (8 * c));
            }
}

static const struct np_pixel_op *find(const char *name)
{
    for (size_t i = 0; i < sizeof(ops) / sizeof(*ops); i++)
        if (strcmp(ops[i].name, name) == 0)
            return ops[i].op;
    fprintf(stderr, "there is no operation %s\n", name);
    exit(2);
}

static uint32_t crc_of(const char *name, const double *values, const char *picture, int channels)
{
    const struct np_pixel_op *op = find(name);
    struct np_canvas canvas = {.channels = channels};
    uint8_t *before = NULL;
    char kind[20];
    unsigned seed;
    size_t n;
    uint32_t crc;

    if (sscanf(picture, "%19[^:]:%u:%d:%d", kind, &seed, &canvas.width, &canvas.height) != 4)
        exit(2);
    n = np_canvas_bytes(&canvas);
    canvas.pixels = malloc(n);
    draw(kind, seed, &canvas);
    if (op->wants_copy)
        before = memcpy(malloc(n), canvas.pixels, n);
    op->apply(values, before, &canvas);
    crc = (uint32_t)crc32(0, canvas.pixels, (uInt)n);
    free(before);
    free(canvas.pixels);
    return crc;
}

int main(int argc, char **argv)
{
    char line[1000], name[40], list[500], picture[100];
    int channels;

    np_vectors_limit((enum np_vectors)(argc > 1 ? atoi(argv[1]) : 3));
    while (fgets(line, sizeof(line), stdin)) {
        double values[NP_STEP_VALUES] = {0};
        char *at = list;

        if (line[0] == '#') {
            fputs(line, stdout);
            continue;
        }
        if (sscanf(line, "%39s %499s %99s %d", name, list, picture, &channels) != 4)
            return 2;
        for (int i = 0; i < NP_STEP_VALUES && *at; i++) {
            values[i] = strtod(at, &at);
            at += *at == ',';
        }
        printf("%s %s %s %d %08x\n", name, list, picture, channels,
            crc_of(name, values, picture, channels));
    }
    return 0;
}
