/* Rows for pillow.sh and pillow_campaign.sh: reads what pillow.py wrote from stdin and writes it to
 * stdout with the CRC-32 of nnpipe's rows instead of Pillow's.
 *   pillow_rows SIMD_LEVEL
 *   line: left top right bottom scaled_w scaled_h window_x window_y window_w window_h flip border
 *         filter rule channels PICTURE CRC
 * PICTURE: a file, or noise:SEED:WIDTH:HEIGHT. A line that begins with # stays. A picture that does
 * not decode has the CRC "none", and one line on stderr. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <zlib.h>

#include "loader/base/io.h"
#include "loader/base/mem.h"
#include "loader/pixels/codec.h"
#include "loader/pixels/geometry.h"
#include "loader/base/vectors.h"
#include "loader/pixels/resize.h"

struct file {
    char name[400];
    uint8_t *bytes;
    size_t nr_bytes;
};

static int row_crc(struct np_decoder *decoder, struct np_resizer *resizer,
    const struct np_geometry *geometry, int channels, const struct file *file, uint32_t *ret_crc,
    struct np_err *err)
{
    size_t n = (size_t)geometry->window_w * (size_t)geometry->window_h * (size_t)channels;
    uint8_t *out = malloc(n);
    struct np_image_info info;
    struct np_pixels pixels;
    int code = np_decoder_open(decoder, file->bytes, file->nr_bytes, NULL, &info, err);

    if (code == 0)
        code = np_decoder_decode(decoder, geometry, channels, &pixels, err);
    if (code == 0)
        code = np_resize(resizer, &pixels, geometry, out, err);
    if (code == 0)
        *ret_crc = (uint32_t)crc32(0, out, (uInt)n);
    free(out);
    return code;
}

static void slurp(struct file *file)
{
    FILE *in = fopen(file->name, "rb");
    long n;

    if (!in || fseek(in, 0, SEEK_END) || (n = ftell(in)) < 0 || fseek(in, 0, SEEK_SET))
        exit(2);
    file->bytes = malloc((size_t)n + 1);
    if (!file->bytes || fread(file->bytes, 1, (size_t)n, in) != (size_t)n)
        exit(2);
    fclose(in);
    file->nr_bytes = (size_t)n;
}

/* A PPM of the numbers that pillow.py draws. */
static void make_noise(struct file *file, uint32_t seed, int width, int height)
{
    const size_t n = (size_t)width * (size_t)height * 3;
    int head;

    file->bytes = malloc(n + 64);
    head = sprintf((char *)file->bytes, "P6 %d %d 255\n", width, height);
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        file->bytes[(size_t)head + i] = (uint8_t)(seed >> 24);
    }
    file->nr_bytes = (size_t)head + n;
}

static void take(struct file *file, const char *name)
{
    unsigned seed;
    int width, height;

    if (strcmp(file->name, name) == 0)
        return;
    free(file->bytes);
    strcpy(file->name, name);
    if (sscanf(name, "noise:%u:%d:%d", &seed, &width, &height) == 3)
        make_noise(file, seed, width, height);
    else
        slurp(file);
}

int main(int argc, char **argv)
{
    struct np_resizer *resizer = np_resizer_new(NULL);
    struct np_decoder *decoder;
    struct file file = {.name = ""};
    char line[1024];

    if (argc != 2 || !resizer || np_decoder_new(&decoder, NULL))
        return 2;
    if (atoi(argv[1]) >= 0)
        np_vectors_limit((enum np_vectors)atoi(argv[1]));
    while (fgets(line, sizeof(line), stdin)) {
        int channels, flip, border, filter, rule, at = 0;
        struct np_geometry g = {0};
        struct np_err err = {0};
        char name[400];
        uint32_t crc;

        if (line[0] == '#') {
            fputs(line, stdout);
            continue;
        }
        if (sscanf(line, "%d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %399s %n", &g.left, &g.top,
                &g.right, &g.bottom, &g.scaled_w, &g.scaled_h, &g.window_x, &g.window_y,
                &g.window_w, &g.window_h, &flip, &border, &filter, &rule, &channels, name,
                &at) != 16)
            return 2;
        g.flip = (uint8_t)flip;
        g.border = (uint8_t)border;
        g.filter = (uint8_t)filter;
        np_geometry_order(&g, rule >= 13 ? NP_RULE_PILLOW_13 : NP_RULE_PILLOW_12);
        take(&file, name);
        if (row_crc(decoder, resizer, &g, channels, &file, &crc, &err) == 0) {
            printf("%.*s%08x\n", at, line, crc);
        } else {
            printf("%.*snone\n", at, line);
            fprintf(stderr, "%s: %s\n", name, err.text);
        }
    }
    free(file.bytes);
    np_decoder_free(decoder);
    np_resizer_free(resizer);
    return 0;
}
