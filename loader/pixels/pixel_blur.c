/* A Gaussian blur, as torchvision's gaussian_blur(): the picture is mirrored at its edges, and
 * sums are rounded to nearest even. torch adds up width x height products in an order of its
 * own, we add one axis after the other, so that a pixel may differ by one level. See pixel_op.h. */
#include <math.h>
#include <string.h>

#include "loader/pixels/pixel_loops.h"

struct kernel {
    int radius;
    float weights[2 * NP_MAX_RADIUS + 1];
};

static void make_kernel(int size, double sigma, struct kernel *ret_kernel)
{
    double weights[2 * NP_MAX_RADIUS + 1], sum = 0;

    ret_kernel->radius = size / 2;
    for (int i = 0; i < size; i++) {
        const double x = (i - size / 2) / sigma;

        sum += weights[i] = exp(-0.5 * x * x);
    }
    for (int i = 0; i < size; i++)
        ret_kernel->weights[i] = (float)(weights[i] / sum);
}

static int mirrored(int at, int n)
{
    const int period = n > 1 ? 2 * (n - 1) : 1;

    at = (at < 0 ? -at : at) % period;
    return at < n ? at : period - at;
}

/* Adds up the lines around y. line: (width, channels). */
static void blur_down(const struct kernel *kernel, const uint8_t *before, int y,
    const struct np_canvas *picture, float *line)
{
    const size_t n = (size_t)picture->width * (size_t)picture->channels;

    memset(line, 0, n * sizeof(*line));
    for (int k = -kernel->radius; k <= kernel->radius; k++) {
        const uint8_t *from = before + (size_t)mirrored(y + k, picture->height) * n;
        const float weight = kernel->weights[k + kernel->radius];

        np_pixel_loops()->add_bytes(from, weight, n, line);
    }
}

/* Fills the pixels on both sides of the line. */
static void mirror_ends(const struct np_canvas *picture, int radius, float *line)
{
    const int w = picture->width, n = picture->channels;

    for (int i = 1; i <= radius; i++)
        for (int c = 0; c < n; c++) {
            line[-i * n + c] = line[mirrored(-i, w) * n + c];
            line[(w - 1 + i) * n + c] = line[mirrored(w - 1 + i, w) * n + c];
        }
}

#define BLOCK 512

static void blur_across(
    const struct kernel *kernel, const struct np_canvas *picture, const float *line, uint8_t *out)
{
    const size_t n = (size_t)picture->width * (size_t)picture->channels;
    const ptrdiff_t step = picture->channels;

    for (size_t at = 0; at < n; at += BLOCK) {
        const size_t count = n - at < BLOCK ? n - at : BLOCK;
        float sums[BLOCK] = {0};

        for (int k = -kernel->radius; k <= kernel->radius; k++) {
            const float *from = line + (ptrdiff_t)at + k * step;
            const float weight = kernel->weights[k + kernel->radius];

            np_pixel_loops()->add_floats(from, weight, count, sums);
        }
        np_pixel_loops()->round(sums, count, out + at);
    }
}

static void blur(const double *values, const struct np_scratch *scratch, struct np_canvas *picture)
{
    const size_t n = (size_t)picture->width * (size_t)picture->channels;
    float *line = scratch->line + NP_MAX_RADIUS * picture->channels;
    struct kernel across, down;

    make_kernel((int)values[0], values[2], &across);
    make_kernel((int)values[1], values[2], &down);
    for (int y = 0; y < picture->height; y++) {
        blur_down(&down, scratch->before, y, picture, line);
        mirror_ends(picture, across.radius, line);
        blur_across(&across, picture, line, picture->pixels + (size_t)y * n);
    }
}
const struct np_pixel_op np_pixel_blur = {blur, true};
