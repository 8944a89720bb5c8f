/* Chains with operations on pixels: which steps they draw, and that a painter makes the row in their order. The
 * operations themselves: tests/golden/pixel_ops.sh. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "loader/base/yaml.h"
#include "loader/pixels/painter.h"
#include "tests/test.h"
#include "tests/unit/made_memory.h"

enum { SIDE = 8, MAX_STEPS = 64, BYTES = SIDE * SIDE * 3 };

/* Parses the list of a config; *ret_chain NULL: text has the first mistake. */
static struct np_chain *parse(const char *yaml, char text[512])
{
    struct np_chain *chain = NULL;
    struct np_node *list = NULL;
    struct np_report report;

    np_report_init(&report, "test");
    cr_assert_eq(np_yaml_parse(yaml, strlen(yaml), &list, &report), 0);
    if (np_chain_parse(list, "augment", &chain, &report)) {
        chain = NULL;
        snprintf(text, 512, "%s", report.errs[0].text);
    }
    np_report_fini(&report);
    np_node_free(list);
    return chain;
}

static struct np_chain *chain_of(const char *yaml)
{
    char text[512] = "";
    struct np_chain *chain = parse(yaml, text);

    cr_assert(chain, "%s", text);
    return chain;
}

static void refused(const char *yaml, const char *with)
{
    char text[512] = "";

    cr_expect(!parse(yaml, text) && strstr(text, with), "%s: %s", yaml, text);
}

/* Draws the sample at this position, of SIDE x SIDE pixels. */
static struct np_drawn draw(const struct np_chain *chain, uint32_t position)
{
    static struct np_step steps[MAX_STEPS];
    struct np_drawn drawn = {.steps = steps};

    cr_assert(np_chain_max_steps(chain) <= MAX_STEPS);
    np_augment_draw_row(chain, 7, 0, position, position, SIDE, SIDE, &drawn);
    cr_assert(drawn.nr_steps <= np_chain_max_steps(chain));
    return drawn;
}

/* The row of the picture whose pixel x, y is (16 * x + y, 100, x). */
static void paint(const struct np_drawn *drawn, uint8_t row[BYTES])
{
    struct np_painter *painter = np_painter_new(NP_RULE_PILLOW_13, NULL);
    uint8_t picture[BYTES + 64] = {0};
    struct np_err err = {0};

    for (int y = 0; y < SIDE; y++)
        for (int x = 0; x < SIDE; x++)
            memcpy(picture + (y * SIDE + x) * 3,
                (uint8_t[3]){(uint8_t)(16 * x + y), 100, (uint8_t)x}, 3);
    cr_assert_eq(
        np_painter_row(painter,
            &(struct np_pixels){
                .data = picture, .width = SIDE, .height = SIDE, .channels = 3, .stride = 3 * SIDE},
            drawn, row, &err),
        0, "%s", err.text);
    np_painter_free(painter);
}

Test(painter, geometry_alone_has_no_steps)
{
    struct np_chain *chain = chain_of("[{center_crop: 4}, flip]");

    cr_expect(!np_chain_touches(chain) && np_chain_max_steps(chain) == 0);
    cr_expect_eq(draw(chain, 0).nr_steps, 0);
    np_chain_free(chain);
}

Test(painter, geometry_behind_an_operation_is_a_step_of_its_own)
{
    struct np_chain *chain = chain_of(
        "[{center_crop: 6}, {invert: 1}, {flip: 1}, {center_crop: 4}, {vertical_flip: 1}]");
    const struct np_drawn drawn = draw(chain, 0);
    uint8_t row[BYTES];

    cr_assert(np_chain_touches(chain));
    cr_assert_eq(drawn.nr_steps, 3);
    cr_expect(drawn.geometry.window_w == 6 && !drawn.geometry.flip);
    cr_expect(drawn.steps[0].op == &np_pixel_invert && drawn.steps[2].op == &np_pixel_flip_down);
    cr_expect(!drawn.steps[1].op && drawn.steps[1].geometry.flip &&
              drawn.steps[1].geometry.window_w == 4);
    cr_expect(drawn.width == 4 && drawn.height == 4);
    paint(&drawn, row);
    for (int y = 0; y < 4; y++)
        for (int x = 0; x < 4; x++) { /* of pixel 5 - x, 5 - y */
            const uint8_t *pixel = row + (y * 4 + x) * 3;

            cr_expect(pixel[0] == 255 - (16 * (5 - x) + 5 - y) && pixel[1] == 155 &&
                      pixel[2] == 255 - (5 - x));
        }
    np_chain_free(chain);
}

Test(painter, an_operation_that_is_not_drawn_cuts_the_geometry_all_the_same)
{
    struct np_chain *chain = chain_of("[{resize: [6, 6]}, {invert: 0}, {resize: [4, 5]}]");
    const struct np_drawn drawn = draw(chain, 0);

    cr_expect(drawn.nr_steps == 1 && !drawn.steps[0].op);
    cr_expect(drawn.width == 5 && drawn.height == 4);
    np_chain_free(chain);
}

Test(painter, a_crop_at_the_corner_is_a_step_too)
{
    struct np_chain *chain = chain_of("[{invert: 1}, {random_crop: 7}]");
    int nr_corners = 0;

    for (uint32_t i = 0; i < 100; i++) {
        const struct np_drawn drawn = draw(chain, i);

        cr_assert_eq(drawn.nr_steps, 2);
        nr_corners += drawn.steps[1].geometry.left == 0 && drawn.steps[1].geometry.top == 0;
    }
    cr_expect(nr_corners > 5, "%d", nr_corners);
    np_chain_free(chain);
}

Test(painter, a_border_is_pixels_for_what_comes_behind)
{
    struct np_chain *chain =
        chain_of("[{center_crop: 10}, {invert: 1}, {center_crop: 12}, {invert: 1}]");
    const struct np_drawn drawn = draw(chain, 0);
    uint8_t row[12 * 12 * 3];

    cr_assert(drawn.width == 12);
    paint(&drawn, row);
    cr_expect_eq(row[0], 255);          /* black, inverted once */
    cr_expect_eq(row[(12 + 1) * 3], 0); /* twice */
    cr_expect_eq(row[(24 + 2) * 3 + 1], 100);
    np_chain_free(chain);
}

Test(painter, a_jitter_draws_each_value_within_its_range_in_all_orders)
{
    struct np_chain *chain = chain_of(
        "[{color_jitter: {brightness: 0.4, contrast: [0.5, 3], saturation: 2, hue: 0.1}}]");
    static const struct {
        const struct np_pixel_op *op;
        double lo, hi;
    } ranges[] = {{&np_pixel_brightness, 0.6, 1.4}, {&np_pixel_contrast, 0.5, 3},
        {&np_pixel_saturation, 0, 3}, {&np_pixel_hue, -0.1, 0.1}};
    int first[4] = {0};

    for (uint32_t i = 0; i < 200; i++) {
        const struct np_drawn drawn = draw(chain, i);
        unsigned seen = 0;

        cr_assert_eq(drawn.nr_steps, 4);
        for (int s = 0; s < 4; s++)
            for (int k = 0; k < 4; k++)
                if (drawn.steps[s].op == ranges[k].op) {
                    const double value = drawn.steps[s].values[0];

                    seen |= 1u << k;
                    first[k] += s == 0;
                    cr_expect(value >= ranges[k].lo && value <= ranges[k].hi);
                }
        cr_expect_eq(seen, 15);
    }
    for (int k = 0; k < 4; k++)
        cr_expect(first[k] > 25 && first[k] < 75, "%d", first[k]);
    np_chain_free(chain);
}

Test(painter, a_jitter_leaves_out_what_changes_nothing)
{
    struct np_chain *chain =
        chain_of("[{color_jitter: {brightness: 0, contrast: [1, 1], hue: [0.2, 0.2]}}]");
    const struct np_drawn drawn = draw(chain, 3);

    cr_assert_eq(drawn.nr_steps, 1);
    cr_expect(drawn.steps[0].op == &np_pixel_hue && drawn.steps[0].values[0] == 0.2);
    np_chain_free(chain);
}

Test(painter, p_is_the_share_of_pictures)
{
    struct np_chain *chain =
        chain_of("[{color_jitter: {brightness: 1, p: 20%}}, {posterize: {bits: 2, p: 0.7}}]");
    int nr_jittered = 0, nr_posterized = 0;

    for (uint32_t i = 0; i < 1000; i++) {
        const struct np_drawn drawn = draw(chain, i);

        for (int s = 0; s < drawn.nr_steps; s++) {
            nr_jittered += drawn.steps[s].op == &np_pixel_brightness;
            nr_posterized += drawn.steps[s].op == &np_pixel_posterize;
        }
    }
    cr_expect(nr_jittered > 150 && nr_jittered < 250, "%d", nr_jittered);
    cr_expect(nr_posterized > 640 && nr_posterized < 760, "%d", nr_posterized);
    np_chain_free(chain);
}

Test(painter, a_blur_wider_than_the_picture_leaves_one_colour_as_it_is)
{
    struct np_chain *chain = chain_of("[{gaussian_blur: {kernel: 127, sigma: 9}}]");
    static uint8_t row[BYTES], picture[BYTES + 64];
    struct np_painter *painter = np_painter_new(NP_RULE_PILLOW_13, NULL);

    for (int w = 1; w <= SIDE; w++) {
        struct np_step steps[4];
        struct np_drawn drawn = {.steps = steps};

        memset(picture, 77, sizeof(picture));
        np_augment_draw_row(chain, 7, 0, 0, 0, w, SIDE, &drawn);
        cr_assert_eq(
            np_painter_row(painter,
                &(struct np_pixels){
                    .data = picture, .width = w, .height = SIDE, .channels = 3, .stride = 3 * w},
                &drawn, row, NULL),
            0);
        for (int i = 0; i < w * SIDE * 3; i++)
            cr_assert_eq(row[i], 77);
    }
    np_painter_free(painter);
    np_chain_free(chain);
}

Test(painter, a_cutout_stays_within_the_picture_and_is_smaller_at_its_edge)
{
    struct np_chain *chain = chain_of("[{cutout: {size: 4, value: [1, 2, 3]}}]");
    bool is_cut = false;

    for (uint32_t i = 0; i < 200; i++) {
        const struct np_drawn drawn = draw(chain, i);
        const double *v = drawn.steps[0].values;

        cr_assert_eq(drawn.nr_steps, 1);
        cr_assert(
            drawn.steps[0].op == &np_pixel_erase && v[0] >= 0 && v[1] >= 0 && v[2] > 0 && v[3] > 0);
        cr_assert(v[0] + v[2] <= SIDE && v[1] + v[3] <= SIDE && v[2] <= 4 && v[3] <= 4);
        is_cut |= v[2] < 4;
    }
    cr_expect(is_cut);
    np_chain_free(chain);
}

Test(painter, three_augment_makes_one_of_three)
{
    struct np_chain *chain = chain_of("[three_augment]");
    const struct np_pixel_op *const ops[] = {
        &np_pixel_grayscale, &np_pixel_solarize, &np_pixel_blur};
    int seen[3] = {0};

    for (uint32_t i = 0; i < 300; i++) {
        const struct np_drawn drawn = draw(chain, i);

        cr_assert_eq(drawn.nr_steps, 1);
        for (int k = 0; k < 3; k++)
            seen[k] += drawn.steps[0].op == ops[k];
    }
    for (int k = 0; k < 3; k++)
        cr_expect(seen[k] > 60 && seen[k] < 140, "%d", seen[k]);
    np_chain_free(chain);
}

Test(painter, mistakes_are_named)
{
    refused("[{color_jitter: {brightness: [0.5, 0.2]}}]",
        "brightness must be one number from 0, or [minimum, maximum]");
    refused("[{color_jitter: {hue: -0.1}}]", "hue must be one number");
    refused("[{posterize: {}}]", "bits");
    refused("[{alternating_flip: 0.5}]", "alternating_flip");
    refused("[{alternating_flip: {p: 1}}]", "p");
    refused("[{resize: 8}, {resize: 9}, invert]", "second operation that resizes");
}

Test(painter, reports_each_failed_allocation)
{
    struct np_chain *chain =
        chain_of("[{invert: 1}, {flip: 1}, {sharpness: {factor: 2, p: 1}}, {flip: 1}]");
    const struct np_drawn drawn = draw(chain, 0);
    const struct np_pixels pixels = {.data = (const uint8_t[BYTES + 64]){0},
        .width = SIDE,
        .height = SIDE,
        .channels = 3,
        .stride = 3 * SIDE};
    int code, n = 0;

    do {
        struct np_painter *painter;
        struct np_err err = {0};
        uint8_t row[BYTES];

        made_memory_fail(++n);
        painter = np_painter_new(NP_RULE_PILLOW_13, &err);
        code = painter ? np_painter_row(painter, &pixels, &drawn, row, &err) : -ENOMEM;
        cr_expect(
            code == 0 || (code == -ENOMEM && *err.text), "allocation %d: %d %s", n, code, err.text);
        cr_expect_eq(code != 0, made_memory_failed());
        np_painter_free(painter);
    } while (made_memory_failed() && n < 100);
    made_memory_fail(0);
    cr_expect(n > 4, "%d", n);
    np_chain_free(chain);
}
