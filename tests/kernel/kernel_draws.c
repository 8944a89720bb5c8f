#include "tests/kernel/kernel_draws.h"

#include <stdio.h>
#include <stdlib.h>

#include "tests/test.h"

#define FEW_SHAPES   8
#define MAX_ELEMENTS 8000 /* the reference is through in a millisecond */

void kernel_draws_init(struct kernel_draws *draws, int which)
{
    const char *shapes = getenv("KERNEL_SHAPES"), *seed = getenv("KERNEL_SEED");

    *draws = (struct kernel_draws){
        .nr_shapes = shapes ? atoi(shapes) : FEW_SHAPES, .seed = seed ? seed : "1"};
    np_draws_init(
        &draws->draws, strtoull(draws->seed, NULL, 10), NP_STREAM_TEST, (uint32_t)which, 0, 0);
}

int kernel_draws_int(struct kernel_draws *draws, int least, int most)
{
    return least + (int)np_draw_below(&draws->draws, (uint32_t)(most - least + 1));
}

struct kernel_shape kernel_draws_shape(struct kernel_draws *draws)
{
    bool pixel = kernel_draws_int(draws, 0, 3) == 0, deep = kernel_draws_int(draws, 0, 3) == 0;
    struct kernel_shape shape = {.batch = kernel_draws_int(draws, 1, 5),
        .h = pixel ? 1 : kernel_draws_int(draws, 1, 24),
        .w = pixel ? 1 : kernel_draws_int(draws, 1, 24)};
    int most = MAX_ELEMENTS / (shape.batch * shape.h * shape.w), wanted = deep ? 600 : 70;

    shape.c = kernel_draws_int(draws, 1, most < wanted ? most : wanted);
    shape.lanes = kernel_draws_int(draws, 1, shape.batch < 3 ? shape.batch : 3);
    shape.chunk = kernel_draws_int(draws, 1, shape.batch);
    return shape;
}

int kernel_pool_out(int in, int kernel, int stride, int pad, bool up)
{
    int out = (in + 2 * pad - kernel + (up ? stride - 1 : 0)) / stride + 1;

    return out - (up && (out - 1) * stride >= in + pad);
}

struct np_window kernel_draws_pool(struct kernel_draws *draws, struct kernel_shape shape)
{
    const int sides[2] = {shape.h, shape.w};
    int kernel[2], pad[2], stride[2];

    for (int i = 0; i < 2; i++) {
        do {
            kernel[i] = kernel_draws_int(draws, 1, 7);
            pad[i] = kernel_draws_int(draws, 0, kernel[i] / 2);
        } while (kernel[i] > sides[i] + 2 * pad[i]);
        stride[i] = kernel_draws_int(draws, 1, 4);
    }
    return (struct np_window){kernel[0], kernel[1], stride[0], stride[1], pad[0], pad[1], 1, 1, 1};
}

void kernel_draws_note(struct kernel_draws *draws, bool right)
{
    draws->nr_results++;
    draws->nr_wrong += !right;
}

void kernel_draws_done(const struct kernel_draws *draws)
{
    if (draws->nr_shapes > FEW_SHAPES)
        fprintf(stderr, "%d results\n", draws->nr_results);
    cr_assert_eq(draws->nr_wrong, 0, "%d of %d results are wrong (seed %s)", draws->nr_wrong,
        draws->nr_results, draws->seed);
}
