/* The CUDA device's rows of resident pictures against the loader's resizer, to the byte. */
#ifdef NP_EMULATED_CUDA
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/pixels/augment.h"
#include "loader/pixels/geometry.h"
#include "loader/pixels/resize.h"
#include "tests/test.h"
#include "trainer/cuda/kernels_cuda.h"

enum { ROWS = 24, HEIGHT = 11, WIDTH = 13, ROW_PIXELS = HEIGHT * WIDTH, SIDE = 64 };

void np_emu_seed(uint64_t seed); /* tests/emu/grid.h, which is C++ */

static uint64_t rng = 1;
static int below(int n)
{
    rng = rng * 6364136223846793005u + 1442695040888963407u;
    return (int)((rng >> 33) % (uint64_t)n);
}

/* Crop, scale, a window that may stick out, flip: what a chain may come to. */
static void draw(struct np_row *row)
{
    static const enum np_filter filters[] = {
        NP_FILTER_BILINEAR, NP_FILTER_BICUBIC, NP_FILTER_NEAREST};
    struct np_fold fold;
    int scaled_w = WIDTH - 4 + below(9), scaled_h = HEIGHT - 4 + below(9);

    row->source_w = 1 + below(SIDE);
    row->source_h = 1 + below(SIDE);
    np_fold_init(&fold, row->source_w, row->source_h);
    if (below(2)) {
        int w = 1 + below(row->source_w), h = 1 + below(row->source_h);

        np_fold_crop(&fold, below(row->source_w - w + 1), below(row->source_h - h + 1), w, h,
            NP_BORDER_ZERO);
    }
    if (below(3) == 0)
        np_fold_flip(&fold);
    if (below(4))
        np_fold_resize(&fold, scaled_w, scaled_h, filters[below(3)]);
    if (below(2))
        np_fold_flip(&fold);
    np_fold_crop(&fold, below(7) - 3, below(7) - 3, WIDTH, HEIGHT,
        below(2) ? NP_BORDER_REFLECT : NP_BORDER_ZERO);
    row->geometry = fold.geometry;
    np_geometry_order(&row->geometry, below(2) ? NP_RULE_PILLOW_12 : NP_RULE_PILLOW_13);
}

/* Rows that differ from the resizer's. */
static int differing(int channels, uint64_t seed)
{
    const size_t picture = (size_t)SIDE * SIDE * (size_t)channels;
    const size_t row_bytes = (size_t)ROW_PIXELS * (size_t)channels;
    uint8_t *arena = malloc(ROWS * picture), *images = malloc(ROWS * row_bytes);
    uint8_t *wanted = malloc(row_bytes);
    struct np_row rows[ROWS] = {0};
    struct np_resizer *resizer = np_resizer_new(NULL);
    int wrong = 0;

    rng = seed;
    for (size_t i = 0; i < ROWS * picture; i++)
        arena[i] = (uint8_t)below(256);
    memset(images, 0x5a, ROWS * row_bytes);
    for (int i = 0; i < ROWS; i++) {
        draw(&rows[i]);
        rows[i].sample = i % 8 == 5 ? UINT64_MAX : (uint64_t)i;
        rows[i].resident = i % 8 == 6 ? NP_NOT_RESIDENT : (uint64_t)i * picture;
    }
    np_emu_seed(seed);
    np_cuda_make_rows(NULL, rows, ROWS, HEIGHT, WIDTH, channels, arena, images);
    for (int i = 0; i < ROWS; i++) {
        const struct np_pixels pixels = {.data = arena + (size_t)i * picture,
            .width = rows[i].source_w,
            .height = rows[i].source_h,
            .channels = channels,
            .stride = (ptrdiff_t)rows[i].source_w * channels};

        if (i % 8 == 5)
            memset(wanted, 0, row_bytes);
        else if (i % 8 == 6)
            memset(wanted, 0x5a, row_bytes); /* the host's pixels are left alone */
        else
            wrong += np_resize(resizer, &pixels, &rows[i].geometry, wanted, NULL) < 0;
        wrong += memcmp(wanted, images + (size_t)i * row_bytes, row_bytes) != 0;
    }
    np_resizer_free(resizer);
    free(wanted);
    free(images);
    free(arena);
    return wrong;
}

Test(kernels_rows, equal_those_of_the_loader)
{
    for (uint64_t seed = 1; seed <= 40; seed++) {
        cr_assert_eq(differing(3, seed), 0, "seed %d", (int)seed);
        cr_assert_eq(differing(1, seed), 0, "seed %d, grey", (int)seed);
    }
}
#endif
