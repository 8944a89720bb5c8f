/* Resizing: known values, plain C against vectors, windows, borders and flips. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "loader/pixels/axis.h"
#include "loader/pixels/geometry.h"
#include "loader/base/vectors.h"
#include "loader/pixels/resize.h"
#include "tests/test.h"
#include "tests/unit/made_images.h"
#include "tests/unit/made_memory.h"

static struct np_geometry whole(int width, int height, int scaled_w, int scaled_h)
{
    return (struct np_geometry){.right = width,
        .bottom = height,
        .scaled_w = scaled_w,
        .scaled_h = scaled_h,
        .window_w = scaled_w,
        .window_h = scaled_h};
}

static struct np_pixels view(const uint8_t *data, int width, int height, int channels)
{
    return (struct np_pixels){.data = data,
        .width = width,
        .height = height,
        .channels = channels,
        .stride = (ptrdiff_t)width * channels};
}

/* malloc'd row; NULL when np_resize failed. */
static uint8_t *resized(const struct np_pixels *pixels, const struct np_geometry *geometry)
{
    size_t n = (size_t)geometry->window_w * geometry->window_h * pixels->channels;
    struct np_resizer *resizer = np_resizer_new(NULL);
    uint8_t *out = malloc(n + 1);

    memset(out, 0xa5, n + 1);
    if (np_resize(resizer, pixels, geometry, out, NULL) || out[n] != 0xa5) {
        free(out);
        out = NULL;
    }
    np_resizer_free(resizer);
    return out;
}

Test(resize, halving_weighs_neighbours_as_pillow_does)
{
    /* Image.new('L', (8, 1)), 0 32 64 96 128 160 192 224, resize((4, 1), BILINEAR) */
    const uint8_t ramp[8] = {0, 32, 64, 96, 128, 160, 192, 224}, want[4] = {23, 80, 144, 201};
    struct np_pixels pixels = view(ramp, 8, 1, 1);
    struct np_geometry geometry = whole(8, 1, 4, 1);
    uint8_t *out = resized(&pixels, &geometry);

    cr_assert_arr_eq(out, want, 4);
    free(out);
}

Test(resize, doubling_interpolates)
{
    const uint8_t edge[2] = {0, 200}, want[4] = {0, 50, 150, 200};
    struct np_pixels pixels = view(edge, 1, 2, 1);
    struct np_geometry geometry = whole(1, 2, 1, 4);
    uint8_t *out = resized(&pixels, &geometry);

    cr_assert_arr_eq(out, want, 4);
    free(out);
}

Test(resize, a_tall_picture_is_resized_vertically_first_under_pillow_13)
{
    /* Image.frombytes('L', (5, 14), ...).resize((3, 4), BICUBIC) */
    const uint8_t of_12[12] = {143, 139, 154, 142, 155, 159, 168, 103, 102, 141, 77, 122};
    const uint8_t of_13[12] = {143, 139, 155, 142, 155, 158, 168, 102, 101, 141, 77, 122};
    struct np_geometry geometry = whole(5, 14, 3, 4);
    struct np_pixels pixels;
    uint8_t picture[70], *before, *since;

    for (int i = 0; i < 70; i++)
        picture[i] = (uint8_t)(i * i * 37 + i * 11);
    pixels = view(picture, 5, 14, 1);
    geometry.filter = NP_FILTER_BICUBIC;
    np_geometry_order(&geometry, NP_RULE_PILLOW_12);
    before = resized(&pixels, &geometry);
    np_geometry_order(&geometry, NP_RULE_PILLOW_13);
    since = resized(&pixels, &geometry);
    cr_expect_arr_eq(before, of_12, 12);
    cr_expect_arr_eq(since, of_13, 12);
    free(before);
    free(since);
}

/* Of a box at (5, 7) of the source. */
static bool goes_down_first(int width, int height, int scaled_w, int scaled_h)
{
    struct np_geometry geometry = {.left = 5,
        .top = 7,
        .right = 5 + width,
        .bottom = 7 + height,
        .scaled_w = scaled_w,
        .scaled_h = scaled_h,
        .down_first = 1};

    np_geometry_order(&geometry, NP_RULE_PILLOW_12);
    if (geometry.down_first)
        return true; /* never before 13 */
    np_geometry_order(&geometry, NP_RULE_PILLOW_13);
    return geometry.down_first;
}

Test(resize, vertical_comes_first_if_it_drops_more_than_twice_as_much)
{
    cr_expect(!goes_down_first(100, 120, 90, 100)); /* 20 rows, 10 columns */
    cr_expect(goes_down_first(100, 120, 90, 99));
    cr_expect(goes_down_first(100, 120, 110, 119));  /* 1 row, and 10 columns more */
    cr_expect(!goes_down_first(100, 120, 110, 120)); /* no row */
    cr_expect(!goes_down_first(100, 120, 300, 130)); /* 10 rows more */
}

/* The source ends where its memory ends: the address sanitizer watches. */
static bool vectors_agree(const int size[4], const struct np_geometry *of, int channels)
{
    static const enum np_vectors levels[] = {NP_AVX2, NP_AVX512_BF16};
    uint8_t *data = made_pixels(size[0], size[1], channels, 7), *plain, *out;
    const struct np_pixels pixels = view(data, size[0], size[1], channels);
    const size_t n = (size_t)of->window_w * of->window_h * channels;
    bool equal;

    np_vectors_limit(NP_SSE2);
    plain = resized(&pixels, of);
    equal = plain != NULL;
    for (size_t i = 0; i < sizeof(levels) / sizeof(*levels); i++) {
        np_vectors_limit(levels[i]);
        out = resized(&pixels, of);
        equal = equal && out && memcmp(plain, out, n) == 0;
        free(out);
    }
    free(plain);
    free(data);
    return equal;
}

Test(resize, vectors_give_the_bytes_of_plain_c)
{
    static const int sizes[][4] = {{1, 1, 9, 7}, {5, 3, 224, 2}, {37, 41, 17, 90}, {64, 64, 64, 31},
        {64, 64, 31, 64}, {300, 7, 11, 11}, {7, 300, 11, 11}, {500, 375, 224, 224}, {33, 9, 33, 9},
        {13, 13, 5, 64}, {100, 100, 99, 101}, {9, 40, 7, 9}, {34, 200, 40, 37}, {1200, 40, 224, 30},
        {900, 5, 301, 4}, {2000, 3, 7, 2}, {3, 2000, 4, 7}, {3001, 2, 1, 1}, {448, 20, 224, 11},
        {222, 9, 221, 64}, {2, 2, 3, 3}};

    for (int filter = NP_FILTER_BILINEAR; filter <= NP_FILTER_NEAREST; filter++)
        for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
            for (int channels = 1; channels <= 3; channels += 2)
                for (int flip = 0; flip < 4; flip++) {
                    const int *s = sizes[i];
                    struct np_geometry geometry = whole(s[0], s[1], s[2], s[3]);

                    geometry.filter = (uint8_t)filter;
                    geometry.flip = flip % 2;
                    geometry.down_first = flip / 2;
                    cr_assert(vectors_agree(s, &geometry, channels), "size %zu filter %d x %d: %d",
                        i, filter, channels, flip);
                }
}

Test(resize, vectors_agree_in_boxes_and_windows_with_borders)
{
    unsigned seed = 1;

    for (int i = 0; i < 400; i++) {
        int r[12], size[4];
        struct np_geometry g = {0};

        for (int k = 0; k < 12; k++) {
            seed = seed * 1103515245 + 12345;
            r[k] = (int)(seed >> 16 & 0x7fff);
        }
        size[0] = 1 + r[0] % 150;
        size[1] = 1 + r[1] % 60;
        g.left = r[2] % size[0];
        g.top = r[3] % size[1];
        g.right = g.left + 1 + r[4] % (size[0] - g.left);
        g.bottom = g.top + 1 + r[5] % (size[1] - g.top);
        g.scaled_w = 1 + r[6] % 70;
        g.scaled_h = 1 + r[7] % 70;
        g.window_x = r[8] % 100 - 30;
        g.window_y = r[9] % 100 - 30;
        g.window_w = 1 + r[10] % 80;
        g.window_h = 1 + r[11] % 80;
        g.filter = (uint8_t)(i % 3);
        g.flip = i / 3 % 2;
        g.down_first = i / 6 % 2;
        g.border = (uint8_t)(i / 12 % 2 ? NP_BORDER_REFLECT : NP_BORDER_ZERO);
        cr_assert(vectors_agree(size, &g, i / 24 % 2 ? 3 : 1), "case %d", i);
    }
}

static bool window_is_a_part(bool down_first)
{
    uint8_t *data = made_pixels(90, 70, 3, 5), *all, *part;
    struct np_pixels pixels = view(data, 90, 70, 3);
    struct np_geometry geometry = whole(90, 70, 50, 40);
    bool equal = true;

    geometry.down_first = down_first;
    all = resized(&pixels, &geometry);
    geometry.window_x = 7;
    geometry.window_y = 9;
    geometry.window_w = 30;
    geometry.window_h = 20;
    part = resized(&pixels, &geometry);
    for (int y = 0; y < 20; y++)
        equal &= memcmp(part + y * 90, all + ((9 + y) * 50 + 7) * 3, 90) == 0;
    free(all);
    free(part);
    free(data);
    return equal;
}

Test(resize, a_window_is_a_part_of_the_whole_result)
{
    cr_expect(window_is_a_part(false));
    cr_expect(window_is_a_part(true));
}

/* The codec may give exactly np_geometry_need(): nothing around it is touched. */
static bool needs_no_more(bool down_first)
{
    uint8_t *data = made_pixels(90, 70, 3, 6), *part, *a, *b;
    struct np_pixels pixels = view(data, 90, 70, 3), cut;
    struct np_geometry geometry = whole(90, 70, 50, 40);
    struct np_rect need;
    bool equal;

    geometry.window_x = 20;
    geometry.window_y = 13;
    geometry.window_w = 9;
    geometry.window_h = 11;
    geometry.down_first = down_first;
    np_geometry_need(&geometry, &need);
    cr_assert(need.left > 0 && need.right < 90 && need.top > 0 && need.bottom < 70);
    cut = view(NULL, need.right - need.left, need.bottom - need.top, 3);
    cut.origin_x = need.left;
    cut.origin_y = need.top;
    part = malloc((size_t)cut.width * cut.height * 3); /* exact: the address sanitizer watches */
    for (int y = 0; y < cut.height; y++)
        memcpy(part + (size_t)y * cut.width * 3, data + ((need.top + y) * 90 + need.left) * 3,
            (size_t)cut.width * 3);
    cut.data = part;
    a = resized(&pixels, &geometry);
    b = resized(&cut, &geometry);
    equal = memcmp(a, b, 9 * 11 * 3) == 0;
    free(a);
    free(b);
    free(part);
    free(data);
    return equal;
}

Test(resize, only_needed_pixels_are_read)
{
    cr_expect(needs_no_more(false));
    cr_expect(needs_no_more(true));
}

/* 3 x 2 pixels 1..6. */
static const uint8_t six[6] = {1, 2, 3, 4, 5, 6};

static bool row_is(const struct np_geometry *geometry, const uint8_t *want)
{
    struct np_pixels pixels = view(six, 3, 2, 1);
    uint8_t *out = resized(&pixels, geometry);
    bool equal = memcmp(out, want, (size_t)geometry->window_w * geometry->window_h) == 0;

    free(out);
    return equal;
}

Test(resize, a_zero_border_is_black)
{
    const uint8_t want[20] = {0, 0, 0, 0, 0, 0, 1, 2, 3, 0, 0, 4, 5, 6, 0, 0, 0, 0, 0, 0};
    const uint8_t flipped[20] = {0, 0, 0, 0, 0, 0, 3, 2, 1, 0, 0, 6, 5, 4, 0, 0, 0, 0, 0, 0};
    struct np_geometry geometry = whole(3, 2, 3, 2);

    geometry.window_x = geometry.window_y = -1;
    geometry.window_w = 5;
    geometry.window_h = 4;
    cr_assert(row_is(&geometry, want));
    geometry.flip = 1;
    cr_assert(row_is(&geometry, flipped));
}

Test(resize, a_reflected_border_does_not_repeat_the_edge)
{
    const uint8_t want[28] = {
        6, 5, 4, 5, 6, 5, 4, 3, 2, 1, 2, 3, 2, 1, 6, 5, 4, 5, 6, 5, 4, 3, 2, 1, 2, 3, 2, 1};
    struct np_geometry geometry = whole(3, 2, 3, 2);

    geometry.border = NP_BORDER_REFLECT;
    geometry.window_x = -2;
    geometry.window_y = -1;
    geometry.window_w = 7;
    geometry.window_h = 4;
    cr_assert(row_is(&geometry, want));
}

Test(resize, a_window_outside_the_picture_is_all_border)
{
    const uint8_t black[4] = {0}, mirrored[4] = {1, 2, 4, 5};
    struct np_geometry geometry = whole(3, 2, 3, 2);

    geometry.window_x = 4;
    geometry.window_w = geometry.window_h = 2;
    cr_assert(row_is(&geometry, black));
    geometry.border = NP_BORDER_REFLECT; /* 4 -> 0, 5 -> 1 */
    cr_assert(row_is(&geometry, mirrored));
}

Test(resize, only_visible_pixels_count)
{
    const uint8_t want[6] = {0, 2, 0, 0, 5, 0};
    struct np_geometry geometry = whole(3, 2, 3, 2);

    geometry.shown_x = 1;
    geometry.shown_w = 1;
    geometry.shown_h = 2;
    cr_assert(row_is(&geometry, want));
}

static bool border_and_scale(bool down_first)
{
    uint8_t *data = made_pixels(40, 30, 3, 9), *inner, *outer;
    struct np_pixels pixels = view(data, 40, 30, 3);
    struct np_geometry geometry = whole(40, 30, 20, 16);
    bool equal = true;

    geometry.down_first = down_first;
    inner = resized(&pixels, &geometry);
    geometry.window_x = -3;
    geometry.window_y = -2;
    geometry.window_w = 26;
    geometry.window_h = 20;
    geometry.flip = 1;
    outer = resized(&pixels, &geometry);
    for (int y = 0; y < 20; y++)
        for (int x = 0; x < 26; x++) {
            int sx = 25 - x - 3, sy = y - 2;
            const uint8_t black[3] = {0};
            const uint8_t *want =
                sx < 0 || sx >= 20 || sy < 0 || sy >= 16 ? black : inner + (sy * 20 + sx) * 3;

            equal &= memcmp(outer + (y * 26 + x) * 3, want, 3) == 0;
        }
    free(inner);
    free(outer);
    free(data);
    return equal;
}

Test(resize, border_and_scale_together)
{
    cr_expect(border_and_scale(false));
    cr_expect(border_and_scale(true));
}

Test(resize, weights_fit_their_digits)
{
    int start[40], count[40];
    int32_t weight[40 * 90], max = 0, min = 0;
    double scratch[90];
    struct np_taps taps = {.start = start, .count = count, .weight = weight, .scratch = scratch};

    for (int box = 1; box < 400; box += 1 + box / 10)
        for (int scaled = 1 + box / 20; scaled <= 40; scaled++) {
            const struct np_axis axis = {.box = box, .scaled = scaled, .filter = NP_FILTER_BICUBIC};

            np_axis_taps(&axis, 0, scaled, &taps);
            for (int i = 0; i < scaled; i++)
                for (int k = 0; k < count[i]; k++) {
                    const int32_t w = weight[i * taps.room + k];

                    max = w > max ? w : max;
                    min = w < min ? w : min;
                }
        }
    cr_expect_leq(max, 1.13 * (1 << NP_RESIZE_BITS));
    cr_expect_geq(min, -0.13 * (1 << NP_RESIZE_BITS));
}

Test(resize, weights_of_a_position_sum_to_one)
{
    struct np_axis axis = {.box = 1000, .scaled = 224, .filter = NP_FILTER_BICUBIC};
    int start[224], count[224], most = np_axis_max_taps(&axis);
    struct np_taps taps = {.start = start, .count = count};
    bool near = true;

    taps.weight = calloc((size_t)most * 224, sizeof(*taps.weight));
    taps.scratch = calloc((size_t)most, sizeof(*taps.scratch));
    np_axis_taps(&axis, 0, 224, &taps);
    for (int i = 0; i < 224; i++) {
        int64_t sum = 0;

        for (int k = 0; k < count[i]; k++)
            sum += taps.weight[i * taps.room + k];
        near &= llabs(sum - (1 << NP_RESIZE_BITS)) <= count[i] && start[i] >= 0 &&
                start[i] + count[i] <= 1000;
    }
    free(taps.weight);
    free(taps.scratch);
    cr_assert(near);
}

/* Each allocation of np_resize() fails once; the next call makes the row with the same resizer. */
static bool survives_no_memory(const struct np_geometry *geometry)
{
    uint8_t *data = made_pixels(60, 50, 3, 4), *want, *out = malloc(40 * 30 * 3);
    const struct np_pixels pixels = view(data, 60, 50, 3);
    bool good = true, failed = true;
    int calls = 0;

    want = resized(&pixels, geometry);
    for (int n = 1; failed && good; n++) {
        struct np_resizer *resizer = np_resizer_new(NULL);
        struct np_err err = {0};
        int code;

        made_memory_fail(n);
        code = np_resize(resizer, &pixels, geometry, out, &err);
        failed = made_memory_failed();
        made_memory_fail(0);
        calls += failed;
        good = code == (failed ? -ENOMEM : 0) && (err.text[0] != '\0') == failed &&
               np_resize(resizer, &pixels, geometry, out, NULL) == 0 &&
               memcmp(out, want, 40 * 30 * 3) == 0;
        np_resizer_free(resizer);
    }
    free(want);
    free(out);
    free(data);
    return good && calls > 5;
}

Test(resize, without_memory_it_fails_and_the_next_call_works)
{
    struct np_geometry geometry = whole(60, 50, 40, 30);

    cr_expect(survives_no_memory(&geometry));
    geometry.down_first = 1;
    cr_expect(survives_no_memory(&geometry));
    geometry.border = NP_BORDER_REFLECT;
    geometry.window_x = -2;
    geometry.scaled_w = 36;
    cr_expect(survives_no_memory(&geometry));
}
