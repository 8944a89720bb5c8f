/* Operations on pixels for pixel_ops.sh: reads what pixel_ops.py wrote from stdin and writes it to
 * stdout with the CRC-32 of nnpipe's pixels instead of Pillow's.
 *   line: OP VALUE,VALUE... PICTURE CHANNELS CRC
 *         near OP VALUE,VALUE... PICTURE CHANNELS HEX
 *         torch VERSION:SEED PICTURE CHANNELS CRC CHAIN
 * PICTURE: KIND:SEED:WIDTH:HEIGHT. CHAIN: of a config, drawn as torchvision's transforms of that
 * version draw after torch.manual_seed(SEED). A line that begins with # stays, and so
 * does one with `near` if no pixel differs by more than 1. Argument: the CPU's vectors, as
 * np_vectors_limit() takes them. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <zlib.h>

#include "loader/base/vectors.h"
#include "loader/base/yaml.h"
#include "loader/pixels/painter.h"

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
    {"blur", &np_pixel_blur},
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

static struct np_canvas picture_of(const char *picture, int channels)
{
    struct np_canvas canvas = {.channels = channels};
    char kind[20];
    unsigned seed;

    if (sscanf(picture, "%19[^:]:%u:%d:%d", kind, &seed, &canvas.width, &canvas.height) != 4)
        exit(2);
    canvas.pixels = malloc(np_canvas_bytes(&canvas) + 64);
    draw(kind, seed, &canvas);
    return canvas;
}

static float torch_exp(void *context, float x)
{
    (void)context;
    return expf(x);
}

static float torch_log(void *context, float x)
{
    (void)context;
    return logf(x);
}

static struct np_chain *parse(const char *text)
{
    struct np_node *list = NULL;
    struct np_chain *chain = NULL;
    struct np_report report;

    np_report_init(&report, "chain");
    if (np_yaml_parse(text, strlen(text), &list, &report) ||
        np_chain_parse(list, "augment", &chain, &report)) {
        fprintf(stderr, "%s: %s\n", text, report.errs[0].text);
        exit(2);
    }
    np_report_fini(&report);
    np_node_free(list);
    return chain;
}

/* What the chain makes of the picture, drawn by torch. */
static uint32_t chain_crc(const char *text, const char *version_seed, struct np_canvas canvas)
{
    struct np_chain *chain = parse(text);
    struct np_painter *painter = np_painter_new(NP_RULE_PILLOW_13, NULL);
    struct np_torch_rng rng;
    struct np_torch_draws draws = {&rng, version_seed[0] - '0', true, torch_exp, torch_log, NULL};
    struct np_drawn drawn = {
        .steps = malloc((size_t)np_chain_max_steps(chain) * sizeof(struct np_step) + 1)};
    const struct np_pixels pixels = {.data = canvas.pixels,
        .width = canvas.width,
        .height = canvas.height,
        .channels = canvas.channels,
        .stride = (ptrdiff_t)canvas.width * canvas.channels};
    uint8_t *row;
    uint32_t crc;
    size_t n;

    np_torch_seed(&rng, strtoul(version_seed + 2, NULL, 10));
    if (!np_augment_draw_torch(chain, &draws, canvas.width, canvas.height, &drawn))
        exit(2);
    np_geometry_order(&drawn.geometry, NP_RULE_PILLOW_13);
    n = (size_t)drawn.width * (size_t)drawn.height * (size_t)canvas.channels;
    row = malloc(n);
    if (np_painter_row(painter, &pixels, &drawn, row, NULL))
        exit(2);
    crc = (uint32_t)crc32(0, row, (uInt)n);
    free(row);
    free(drawn.steps);
    free(canvas.pixels);
    np_painter_free(painter);
    np_chain_free(chain);
    return crc;
}

static void apply(const char *name, const double *values, struct np_canvas canvas)
{
    const struct np_pixel_op *op = find(name);
    const size_t n = np_canvas_bytes(&canvas);
    struct np_scratch scratch = {
        malloc(n), malloc((size_t)(canvas.width + 2 * NP_MAX_RADIUS) * 3 * sizeof(float))};

    memcpy((uint8_t *)scratch.before, canvas.pixels, n);
    op->apply(values, op->wants_scratch ? &scratch : NULL, &canvas);
    free((uint8_t *)scratch.before);
    free(scratch.line);
}

static uint32_t op_crc(const char *name, const double *values, struct np_canvas canvas)
{
    uint32_t crc;

    apply(name, values, canvas);
    crc = (uint32_t)crc32(0, canvas.pixels, (uInt)np_canvas_bytes(&canvas));
    free(canvas.pixels);
    return crc;
}

static bool is_near(
    const char *name, const double *values, struct np_canvas canvas, const char *hex)
{
    unsigned byte;
    bool near = true;

    apply(name, values, canvas);
    for (size_t i = 0; near && i < np_canvas_bytes(&canvas); i++)
        near = sscanf(hex + 2 * i, "%2x", &byte) == 1 && abs((int)byte - canvas.pixels[i]) <= 1;
    free(canvas.pixels);
    return near;
}

static void read_values(const char *list, double values[NP_STEP_VALUES])
{
    char *at = (char *)list;

    for (int i = 0; i < NP_STEP_VALUES && *at; i++) {
        values[i] = strtod(at, &at);
        at += *at == ',';
    }
}

int main(int argc, char **argv)
{
    char line[8000], hex[7000], name[40], list[500], picture[100];
    int channels, end;

    np_vectors_limit((enum np_vectors)(argc > 1 ? atoi(argv[1]) : 3));
    while (fgets(line, sizeof(line), stdin)) {
        double values[NP_STEP_VALUES] = {0};

        if (line[0] == '#') {
            fputs(line, stdout);
            continue;
        }
        channels = 0;
        if (sscanf(line, "%39s %499s %99s %d", name, list, picture, &channels) < 3)
            return 2;
        if (strcmp(name, "torch") == 0) {
            if (sscanf(line, "%*s %*s %*s %*s %*s %n", &end) != 0)
                return 2;
            printf("torch %s %s %d %08x %s", list, picture, channels,
                chain_crc(line + end, list, picture_of(picture, channels)), line + end);
            continue;
        }
        if (strcmp(name, "near") == 0) {
            if (sscanf(line, "%*s %39s %499s %99s %d %6999s", name, list, picture, &channels,
                    hex) != 5)
                return 2;
            read_values(list, values);
            if (is_near(name, values, picture_of(picture, channels), hex))
                fputs(line, stdout);
            continue;
        }
        read_values(list, values);
        printf("%s %s %s %d %08x\n", name, list, picture, channels,
            op_crc(name, values, picture_of(picture, channels)));
    }
    return 0;
}
