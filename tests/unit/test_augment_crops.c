/* Chains of crops, borders and flips, beside a reference that makes the picture of each step, pixel
 * by pixel. */
#include <stdlib.h>
#include <string.h>

#include "loader/pixels/augment.h"
#include "loader/pixels/resize.h"
#include "tests/test.h"

#define MAX_SIDE 64

/* u8 (h, w); pixels are not 0 where they show the source. */
struct grey {
    int w, h;
    uint8_t at[MAX_SIDE][MAX_SIDE];
};

static int mirrored(int at, int n)
{
    at = n == 1 ? 0 : abs(at) % (2 * (n - 1));
    return at < n ? at : 2 * (n - 1) - at;
}

static void crop(struct grey *grey, int x, int y, int w, int h, enum np_border border)
{
    const struct grey of = *grey;

    grey->w = w;
    grey->h = h;
    for (int i = 0; i < h; i++)
        for (int k = 0; k < w; k++) {
            int row = y + i, column = x + k;

            if (border == NP_BORDER_REFLECT) {
                row = mirrored(row, of.h);
                column = mirrored(column, of.w);
            }
            grey->at[i][k] = 0;
            if (row >= 0 && row < of.h && column >= 0 && column < of.w)
                grey->at[i][k] = of.at[row][column];
        }
}

static void flip(struct grey *grey)
{
    const struct grey of = *grey;

    for (int i = 0; i < of.h; i++)
        for (int k = 0; k < of.w; k++)
            grey->at[i][k] = of.at[i][of.w - 1 - k];
}

/* The nearest pixel, as Pillow finds it. */
static void resize(struct grey *grey, int w, int h)
{
    const struct grey of = *grey;
    const double step_x = (double)of.w / w, step_y = (double)of.h / h;
    double y = step_y / 2;

    grey->w = w;
    grey->h = h;
    for (int i = 0; i < h; i++, y += step_y) {
        double x = step_x / 2;

        for (int k = 0; k < w; k++, x += step_x)
            grey->at[i][k] = of.at[(int)y][(int)x];
    }
}

static int below(int n)
{
    return rand() % n;
}

/* A chain in both ways, of up to five crops and flips. A mirroring crop is the only one that exceeds
 * its picture. */
struct both {
    struct np_fold fold;
    struct grey grey;
    bool mirrors;
};

static void crop_both(struct both *both, bool exceeds)
{
    const int w = exceeds ? 1 + below(9) : 1 + below(both->grey.w);
    const int h = exceeds ? 1 + below(9) : 1 + below(both->grey.h);
    const int x = exceeds ? below(20) - 8 : below(both->grey.w - w + 1);
    const int y = exceeds ? below(20) - 8 : below(both->grey.h - h + 1);
    /* A crop that stays inside has the default border. */
    const enum np_border border = exceeds && both->mirrors ? NP_BORDER_REFLECT : NP_BORDER_ZERO;

    np_fold_crop(&both->fold, x, y, w, h, border);
    crop(&both->grey, x, y, w, h, border);
}

static void flip_both(struct both *both)
{
    np_fold_flip(&both->fold);
    flip(&both->grey);
}

static void resize_both(struct both *both)
{
    const int w = 1 + below(20), h = 1 + below(20);

    np_fold_resize(&both->fold, w, h, NP_FILTER_NEAREST);
    resize(&both->grey, w, h);
}

static void run_chain(struct both *both)
{
    const int nr_ops = 1 + below(5), mirror_at = below(nr_ops), resizes = below(3) == 0;

    both->mirrors = below(2);
    if (below(4) == 0)
        flip_both(both);
    if (resizes)
        resize_both(both);
    for (int i = 0; i < nr_ops; i++) {
        if (below(4) == 0)
            flip_both(both);
        crop_both(both, both->mirrors ? i == mirror_at : below(2));
    }
}

static bool shows(
    const struct np_geometry *g, const uint8_t *source, int w, int h, const struct grey *want)
{
    const struct np_pixels pixels = {
        .data = source, .width = w, .height = h, .channels = 1, .stride = w};
    struct np_resizer *resizer = np_resizer_new(NULL);
    uint8_t out[MAX_SIDE * MAX_SIDE];
    bool equal = g->window_w == want->w && g->window_h == want->h;

    equal = equal && np_resize(resizer, &pixels, g, out, NULL) == 0;
    for (int i = 0; equal && i < want->h; i++)
        equal = memcmp(out + i * want->w, want->at[i], (size_t)want->w) == 0;
    np_resizer_free(resizer);
    return equal;
}

Test(augment_crops, chains_of_crops_show_the_pixels_of_each_crop_in_turn)
{
    int nr_black = 0;

    srand(1);
    for (int n = 0; n < 30000; n++) {
        const int w = 1 + below(9), h = 1 + below(9);
        uint8_t source[81];
        struct both both = {.grey = {.w = w, .h = h}};

        for (int i = 0; i < w * h; i++)
            source[i] = both.grey.at[i / w][i % w] = (uint8_t)(i + 1);
        np_fold_init(&both.fold, w, h);
        run_chain(&both);
        cr_assert(shows(&both.fold.geometry, source, w, h, &both.grey), "chain %d", n);
        nr_black += both.grey.at[0][0] == 0;
    }
    cr_assert(nr_black > 1000 && nr_black < 29000);
}

/* The first crop is beside the picture; the second one would come back to it. */
Test(augment_crops, a_crop_within_the_border_leaves_black_for_later_crops)
{
    uint8_t source[16];
    struct both both = {.grey = {.w = 4, .h = 4}};

    memset(source, 9, sizeof(source));
    memset(both.grey.at, 9, sizeof(both.grey.at));
    np_fold_init(&both.fold, 4, 4);
    for (int i = 0; i < 2; i++) {
        const int x = i == 0 ? 5 : -6;

        np_fold_crop(&both.fold, x, 0, 4, 4, NP_BORDER_ZERO);
        crop(&both.grey, x, 0, 4, 4, NP_BORDER_ZERO);
    }
    cr_assert_eq(both.grey.at[0][0], 0);
    cr_assert(shows(&both.fold.geometry, source, 4, 4, &both.grey));
}
