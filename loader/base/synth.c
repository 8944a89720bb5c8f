/* Each shape is a distance function in its own coordinates (1: its radius). The coverage of a pixel
 * follows from its distance to the outline, which gives soft edges with one evaluation per
 * pixel. */
#include "loader/base/synth.h"

#include <math.h>

#include "loader/base/rng.h"

const char *const np_synth_names[NP_SYNTH_CLASSES] = {
    "circle", "cross", "moon", "ring", "rod", "square", "star", "triangle"};

/* Drawn before the first pixel. */
struct scene {
    int label;
    double x, y, radius;                            /* pixels */
    double turn_x, turn_y;                          /* cosine and sine */
    double ink[3], paper[3];                        /* 0..255 */
    double wave_x[2], wave_y[2], phase[2], wave[2]; /* stripes behind it, and their height */
    double noise;
};

/* hypot() of glibc 2.35 has a version of its own, which a wheel for glibc 2.34 cannot need. */
static double norm(double x, double y)
{
    return sqrt(x * x + y * y);
}

/* Signed distance to the outline of a shape of radius 1; below 0 inside. */
static double distance_to(int label, double x, double y)
{
    const double along = fabs(x), across = fabs(y), length = norm(x, y);

    switch (label) {
    case 0: return length - 0.9;
    case 1: return fmin(fmax(along - 1, across - 0.32), fmax(across - 1, along - 0.32));
    case 2: return fmax(length - 1, 0.8 - norm(x - 0.55, y));
    case 3: return fabs(length - 0.76) - 0.22;
    case 4: return fmax(along - 1.1, across - 0.3);
    case 5: return fmax(along, across) - 0.82;
    case 6: { /* a star: one wedge of 36 degrees, a straight edge from tip to notch */
        const double wedge = 2 * M_PI / 5, angle = atan2(y, x);
        const double folded = fabs(angle - wedge * floor(angle / wedge + 0.5));
        const double px = length * cos(folded), py = length * sin(folded);
        const double nx = 0.5 * cos(wedge / 2), ny = 0.5 * sin(wedge / 2); /* the notch */
        const double ex = nx - 1.1, ey = ny, edge = norm(ex, ey);          /* tip at (1.1, 0) */

        return ((px - 1.1) * ey - py * ex) / edge;
    }
    default: /* a triangle: three half-planes, their corners at 1.1 */
        return fmax(-x, fmax(0.5 * x + 0.8660254037844386 * y, 0.5 * x - 0.8660254037844386 * y)) -
               0.55;
    }
}

static void start(struct np_draws *draws, uint64_t seed, uint64_t i)
{
    np_draws_init(draws, seed, NP_STREAM_SYNTH, (uint32_t)(i >> 32), (uint32_t)i, 0);
}

int np_synth_label(uint64_t seed, uint64_t i)
{
    struct np_draws draws;

    start(&draws, seed, i);
    return (int)np_draw_below(&draws, NP_SYNTH_CLASSES);
}

static double between(struct np_draws *draws, double low, double high)
{
    return low + (high - low) * np_draw_uniform(draws);
}

/* Draws two colours of sufficiently different brightness. */
static void draw_colours(struct np_draws *draws, struct scene *scene)
{
    const double gap = between(draws, 70, 140), low = between(draws, 30, 225 - gap);
    const int dark_ink = np_draw_u32(draws) & 1;

    for (int c = 0; c < 3; c++) {
        scene->ink[c] = (dark_ink ? low : low + gap) + between(draws, -45, 45);
        scene->paper[c] = (dark_ink ? low + gap : low) + between(draws, -45, 45);
    }
}

static void draw_scene(struct np_draws *draws, int size, struct scene *scene)
{
    double turn;

    scene->label = (int)np_draw_below(draws, NP_SYNTH_CLASSES);
    scene->radius = between(draws, 0.25, 0.40) * size;
    scene->x = between(draws, 0.85 * scene->radius, size - 0.85 * scene->radius);
    scene->y = between(draws, 0.85 * scene->radius, size - 0.85 * scene->radius);
    turn = between(draws, 0, 2 * M_PI);
    scene->turn_x = cos(turn);
    scene->turn_y = sin(turn);
    draw_colours(draws, scene);
    for (int w = 0; w < 2; w++) {
        const double angle = between(draws, 0, 2 * M_PI), length = between(draws, 0.12, 0.6) * size;

        scene->wave_x[w] = cos(angle) * 2 * M_PI / length;
        scene->wave_y[w] = sin(angle) * 2 * M_PI / length;
        scene->phase[w] = between(draws, 0, 2 * M_PI);
        scene->wave[w] = between(draws, 4, 18);
    }
    scene->noise = between(draws, 4, 14);
}

static uint8_t to_u8(double value)
{
    return value <= 0 ? 0 : value >= 255 ? 255 : (uint8_t)(value + 0.5);
}

static void draw_pixel(
    const struct scene *scene, struct np_draws *draws, double x, double y, uint8_t *rgb)
{
    const double dx = (x - scene->x) / scene->radius, dy = (y - scene->y) / scene->radius;
    const double distance = distance_to(scene->label, dx * scene->turn_x + dy * scene->turn_y,
                                dy * scene->turn_x - dx * scene->turn_y) *
                            scene->radius;
    const double cover = distance < -0.5 ? 1 : distance > 0.5 ? 0 : 0.5 - distance;
    const uint32_t bits = np_draw_u32(draws); /* noise: three sums of uniform bytes */
    double ground = 0;

    for (int w = 0; w < 2; w++)
        ground +=
            scene->wave[w] * sin(x * scene->wave_x[w] + y * scene->wave_y[w] + scene->phase[w]);
    for (int c = 0; c < 3; c++) {
        const double grain = ((bits >> 10 * c & 1023) / 511.5 - 1) * 1.7 * scene->noise;

        rgb[c] = to_u8(cover * scene->ink[c] + (1 - cover) * (scene->paper[c] + ground) + grain);
    }
}

void np_synth_draw(uint64_t seed, uint64_t i, int size, uint8_t *rgb, int *ret_label)
{
    struct np_draws draws;
    struct scene scene;

    start(&draws, seed, i);
    draw_scene(&draws, size, &scene);
    for (int y = 0; y < size; y++)
        for (int x = 0; x < size; x++)
            draw_pixel(&scene, &draws, x + 0.5, y + 0.5, rgb + 3 * (y * size + x));
    if (ret_label)
        *ret_label = scene.label;
}
