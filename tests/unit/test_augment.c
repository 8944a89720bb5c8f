/* Chains: what they parse to, what they draw, and how geometry folds. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/pixels/augment.h"
#include "tests/test.h"

/* "name key value key value ..." -> {name: {key: value}}; "[a,b]" gives a list. */
static struct np_node *op(const char *text)
{
    char copy[256], *rest = copy, *word, *key;
    struct np_node *map = np_node_new(NP_NODE_MAP, 1, 1), *args = np_node_new(NP_NODE_MAP, 1, 1);

    snprintf(copy, sizeof(copy), "%s", text);
    word = strsep(&rest, " ");
    while ((key = strsep(&rest, " "))) {
        char *value = strsep(&rest, " "), *item;
        struct np_node *node;

        if (value[0] == '[') {
            node = np_node_new(NP_NODE_LIST, 1, 1);
            while ((item = strsep(&value, "[],")))
                if (*item)
                    np_node_add(node, NULL, np_node_scalar(item, 1, 1));
        } else {
            node = np_node_scalar(value, 1, 1);
        }
        np_node_add(args, key, node);
    }
    np_node_add(map, word, args);
    return map;
}

/* The chain of these operations (NULL-ended); NULL with the first mistake in text. */
static struct np_chain *chain_of(const char *const *ops, char text[512])
{
    struct np_node *list = np_node_new(NP_NODE_LIST, 1, 1);
    struct np_chain *chain = NULL;
    struct np_report report;

    for (; *ops; ops++)
        np_node_add(list, NULL, strchr(*ops, ' ') ? op(*ops) : np_node_scalar(*ops, 1, 1));
    np_report_init(&report, "t.yaml");
    if (np_chain_parse(list, "augment", &chain, &report)) {
        chain = NULL;
        snprintf(text, 512, "%s", report.nr_errs ? report.errs[0].text : "");
    }
    np_report_fini(&report);
    np_node_free(list);
    return chain;
}
#define CHAIN(...) chain_of((const char *const[]){__VA_ARGS__, NULL}, text)

static bool refuses(const char *const *ops, const char *want)
{
    char text[512] = "";
    struct np_chain *chain = chain_of(ops, text);
    bool right = !chain && strstr(text, want);

    if (!right)
        fprintf(stderr, "not '%s' but '%s'\n", want, text);
    np_chain_free(chain);
    return right;
}
#define REFUSES(want, ...) cr_assert(refuses((const char *const[]){__VA_ARGS__, NULL}, want))

static bool box_is(const struct np_geometry *g, int left, int top, int right, int bottom)
{
    return g->left == left && g->top == top && g->right == right && g->bottom == bottom;
}

Test(augment, an_empty_chain_keeps_the_picture)
{
    struct np_geometry g;
    struct np_chain *chain;
    struct np_report report;
    int w, h;

    np_report_init(&report, "t.yaml");
    cr_assert_eq(np_chain_parse(NULL, "augment", &chain, &report), 0);
    np_augment_draw(chain, 1, 0, 0, 31, 17, &g);
    cr_assert(box_is(&g, 0, 0, 31, 17) && g.window_w == 31 && g.window_h == 17 && !g.flip);
    np_chain_size(chain, &w, &h);
    cr_assert(w == 0 && h == 0);
    np_chain_free(chain);
    np_report_fini(&report);
}

Test(augment, draws_depend_on_seed_epoch_and_position_only)
{
    char text[512];
    struct np_chain *chain = CHAIN("random_resized_crop size 224", "flip");
    struct np_geometry a, b;
    int differ = 0;

    np_augment_draw(chain, 7, 3, 11, 500, 375, &a);
    np_augment_draw(chain, 7, 3, 11, 500, 375, &b);
    cr_assert_eq(memcmp(&a, &b, sizeof(a)), 0);
    for (uint32_t i = 0; i < 20; i++) {
        np_augment_draw(chain, 7, 4 + i, 11, 500, 375, &b);
        differ += memcmp(&a, &b, sizeof(a)) != 0;
        np_augment_draw(chain, 7, 3, 12 + i, 500, 375, &b);
        differ += memcmp(&a, &b, sizeof(a)) != 0;
        np_augment_draw(chain, 8 + i, 3, 11, 500, 375, &b);
        differ += memcmp(&a, &b, sizeof(a)) != 0;
    }
    cr_assert_eq(differ, 60);
    np_chain_free(chain);
}

Test(augment, random_crop_reaches_every_position_and_no_other)
{
    char text[512];
    struct np_chain *chain = CHAIN("random_crop size 32 pad 4");
    int seen[9][9] = {{0}}, missing = 0;

    for (uint32_t i = 0; i < 4000; i++) {
        struct np_geometry g;
        int x, y;

        np_augment_draw(chain, 1, 0, i, 32, 32, &g);
        x = g.left + g.window_x + 4;
        y = g.top + g.window_y + 4;
        cr_assert(x >= 0 && x <= 8 && y >= 0 && y <= 8 && g.window_w == 32 && g.window_h == 32);
        seen[y][x]++;
    }
    for (int i = 0; i < 81; i++)
        missing += seen[i / 9][i % 9] < 20 || seen[i / 9][i % 9] > 90; /* mean 49, sd 7 */
    cr_assert_eq(missing, 0);
    np_chain_free(chain);
}

Test(augment, random_crop_takes_height_and_width)
{
    char text[512];
    struct np_chain *chain = CHAIN("random_crop height 10 width 20");
    struct np_geometry g;
    int w, h;

    np_augment_draw(chain, 1, 0, 5, 40, 30, &g);
    cr_assert(g.right - g.left == 20 && g.bottom - g.top == 10 && g.right <= 40 && g.bottom <= 30);
    np_chain_size(chain, &w, &h);
    cr_assert(w == 20 && h == 10);
    np_chain_free(chain);
}

Test(augment, a_picture_smaller_than_its_crop_lies_in_the_middle)
{
    char text[512];
    struct np_chain *chain = CHAIN("random_crop size 40"), *middle = CHAIN("center_crop size 41");
    struct np_geometry g;

    np_augment_draw(chain, 1, 0, 5, 30, 50, &g);
    cr_assert(g.window_x == -5 && g.window_w == 40 && box_is(&g, 0, g.top, 30, g.top + 40));
    np_augment_draw(middle, 1, 0, 5, 30, 30, &g);
    cr_assert(g.window_x == -5 && g.window_y == -5 && g.window_w == 41);
    np_chain_free(chain);
    np_chain_free(middle);
}

Test(augment, center_crop_rounds_half_to_even)
{
    char text[512];
    struct np_chain *chain = CHAIN("center_crop size [4,3]");
    struct np_geometry g;

    np_augment_draw(chain, 1, 0, 0, 8, 7, &g); /* 2.5 -> 2 across, 1.5 -> 2 down */
    cr_assert(box_is(&g, 2, 2, 5, 6));
    np_chain_free(chain);
}

Test(augment, resize_sets_the_shorter_side_and_cuts_the_longer)
{
    char text[512];
    struct np_chain *chain = CHAIN("resize size 256", "center_crop size 224");
    struct np_geometry g;
    int w, h;

    np_augment_draw(chain, 1, 0, 0, 500, 375, &g); /* 256 * 500 / 375 = 341.33 */
    cr_assert(g.scaled_w == 341 && g.scaled_h == 256 && box_is(&g, 0, 0, 500, 375));
    cr_assert(g.window_x == 58 && g.window_y == 16 && g.window_w == 224); /* 58.5 -> 58 */
    np_augment_draw(chain, 1, 0, 0, 375, 500, &g);
    cr_assert(g.scaled_w == 256 && g.scaled_h == 341);
    np_chain_size(chain, &w, &h);
    cr_assert(w == 224 && h == 224);
    np_chain_free(chain);
}

Test(augment, a_crop_before_the_resize_bounds_its_support)
{
    char text[512];
    struct np_chain *chain = CHAIN("center_crop size 100", "resize size [50,60]");
    struct np_geometry g;

    np_augment_draw(chain, 1, 0, 0, 200, 300, &g);
    cr_assert(box_is(&g, 50, 100, 150, 200) && g.scaled_w == 60 && g.scaled_h == 50);
    np_chain_free(chain);
}

Test(augment, a_resize_crops_the_longer_side)
{
    char text[512];
    struct np_chain *chain = CHAIN("random_crop size 20 pad 4", "resize size [8,8]");
    struct np_geometry g;

    for (uint32_t i = 0; i < 100; i++) {
        np_augment_draw(chain, 1, 0, i, 20, 20, &g);
        cr_assert(g.left >= 0 && g.right <= 20 && g.left < g.right && g.scaled_w == 8);
        cr_assert(g.window_x == 0 && g.window_w == 8);
    }
    np_chain_free(chain);
}

Test(augment, a_crop_after_a_flip_counts_from_the_other_side)
{
    struct np_fold fold;

    np_fold_init(&fold, 10, 4);
    np_fold_flip(&fold);
    np_fold_crop(&fold, 1, 0, 3, 4, NP_BORDER_ZERO);
    cr_assert(box_is(&fold.geometry, 6, 0, 9, 4) && fold.geometry.flip);
    np_fold_flip(&fold);
    cr_assert_not(fold.geometry.flip);
}

Test(augment, a_crop_beyond_an_earlier_crop_is_cut_to_it)
{
    struct np_fold fold;

    np_fold_init(&fold, 40, 40);
    np_fold_resize(&fold, 20, 20, NP_FILTER_BILINEAR);
    np_fold_crop(&fold, 5, 5, 10, 10, NP_BORDER_ZERO);
    np_fold_crop(&fold, -2, 0, 10, 10, NP_BORDER_ZERO);
    cr_assert(fold.geometry.window_x == 3 && fold.geometry.shown_x == 5);
    cr_assert_eq(fold.geometry.shown_w, 8);
}

Test(augment, random_resized_crop_keeps_area_and_ratio_in_range)
{
    char text[512];
    struct np_chain *chain = CHAIN("random_resized_crop size 224");
    double least = 1, largest = 0, mean = 0;

    for (uint32_t i = 0; i < 5000; i++) {
        struct np_geometry g;
        double share, ratio;

        np_augment_draw(chain, 1, 0, i, 500, 375, &g);
        cr_assert(g.left >= 0 && g.top >= 0 && g.right <= 500 && g.bottom <= 375);
        cr_assert(g.scaled_w == 224 && g.scaled_h == 224 && g.window_w == 224);
        share = (double)(g.right - g.left) * (g.bottom - g.top) / (500 * 375);
        ratio = (double)(g.right - g.left) / (g.bottom - g.top);
        cr_assert(ratio > 0.74 && ratio < 1.35);
        least = share < least ? share : least;
        largest = share > largest ? share : largest;
        mean += share / 5000;
    }
    cr_assert(least > 0.079 && least < 0.09 && largest > 0.9 && largest <= 1);
    cr_assert(mean > 0.42 && mean < 0.445); /* 0.433: large boxes of another shape do not fit */
    np_chain_free(chain);
}

Test(augment, random_resized_crop_falls_back_to_the_middle)
{
    char text[512];
    struct np_chain *chain = CHAIN("random_resized_crop size 8 scale [1,1]");
    struct np_geometry g;

    np_augment_draw(chain, 1, 0, 0, 1000, 10, &g); /* 10 * 4/3 = 13.3 wide */
    cr_assert(box_is(&g, 493, 0, 506, 10));
    np_augment_draw(chain, 1, 0, 0, 10, 1000, &g); /* 10 / (3/4) = 13.3 high */
    cr_assert(box_is(&g, 0, 493, 10, 506));
    np_augment_draw(chain, 1, 0, 0, 1, 1, &g);
    cr_assert(box_is(&g, 0, 0, 1, 1));
    np_chain_free(chain);
}

static int side_of(const struct np_chain *chain, uint32_t epoch, uint32_t position, uint64_t sample)
{
    struct np_drawn drawn = {0};

    np_augment_draw_row(chain, 1, epoch, position, sample, 8, 8, &drawn);
    return drawn.geometry.flip;
}

Test(augment, alternating_flip_shows_each_side_once_in_two_epochs)
{
    char text[512];
    struct np_chain *chain = CHAIN("alternating_flip");
    int flips = 0;

    for (uint32_t i = 0; i < 10000; i++) {
        const uint64_t sample = i % 2 == 0 ? i : i + (1ull << 32);
        const int side = side_of(chain, 0, i, sample);

        cr_assert_eq(side_of(chain, 1, 10000 - i, sample), !side);
        cr_assert_eq(side_of(chain, 6, 3 * i, sample), side);
        flips += side;
    }
    cr_assert(flips > 4800 && flips < 5200, "%d", flips);
    cr_assert_str_eq(np_chain_needs_epoch(chain), "alternating_flip");
    np_chain_free(chain);
}

Test(augment, flip_happens_as_often_as_asked)
{
    char text[512];
    struct np_chain *chain = CHAIN("flip p 0.3"), *never = CHAIN("flip p 0"),
                    *always = CHAIN("flip p 1");
    int flips = 0;

    for (uint32_t i = 0; i < 10000; i++) {
        struct np_geometry g;

        np_augment_draw(chain, 1, 0, i, 8, 8, &g);
        flips += g.flip;
        np_augment_draw(never, 1, 0, i, 8, 8, &g);
        cr_assert_eq(g.flip, 0);
        np_augment_draw(always, 1, 0, i, 8, 8, &g);
        cr_assert_eq(g.flip, 1);
    }
    cr_assert(flips > 2800 && flips < 3200);
    np_chain_free(chain);
    np_chain_free(never);
    np_chain_free(always);
}

Test(augment, normal_form_names_every_option)
{
    char text[512];
    struct np_chain *chain = CHAIN("random_crop size 32 pad 4 border reflect", "flip");
    struct np_node *list = np_chain_node(chain);
    const struct np_node *args = np_node_get(list->items[0], "random_crop");

    cr_assert_eq(list->nr_items, 2);
    cr_assert(np_node_is(np_node_get(args, "border"), "reflect"));
    cr_assert(np_node_is(np_node_get(args, "pad"), "4"));
    cr_assert(np_node_is(np_node_get(np_node_get(list->items[1], "flip"), "p"), "0.5") ||
              np_node_is(np_node_get(np_node_get(list->items[1], "flip"), "p"), "50%"));
    np_node_free(list);
    np_chain_free(chain);
}

Test(augment, a_bare_value_is_the_first_option)
{
    struct np_node *list = np_node_new(NP_NODE_LIST, 1, 1), *map = np_node_new(NP_NODE_MAP, 1, 1);
    struct np_report report;
    struct np_chain *chain;
    int w, h;

    np_node_add(map, "center_crop", np_node_scalar("24", 1, 1));
    np_node_add(list, NULL, map);
    np_report_init(&report, "t.yaml");
    cr_assert_eq(np_chain_parse(list, "augment", &chain, &report), 0);
    np_chain_size(chain, &w, &h);
    cr_assert(w == 24 && h == 24);
    np_chain_free(chain);
    np_node_free(list);
    np_report_fini(&report);
}

Test(augment, mistakes_are_named)
{
    REFUSES("did you mean 'flip'", "flup");
    REFUSES("the size is missing", "random_crop pad 4");
    REFUSES("second operation with pad", "random_crop size 9 pad 4 border reflect", "flip",
        "random_crop size 9 pad 2");
    REFUSES("second operation with pad", "random_crop size 9 pad 4",
        "random_crop size 9 pad 2 border reflect");
    REFUSES("must be smaller than the crop", "random_crop size 4 pad 4");
    REFUSES("border", "random_crop size 4 border mirror");
    REFUSES("size", "center_crop");
    REFUSES("whole number", "center_crop size 2.5");
    REFUSES("size", "resize size [1,2,3]");
    REFUSES("out of range", "resize size 0");
    REFUSES("scale must be", "random_resized_crop size 8 scale [0.5]");
    REFUSES("ratio must be", "random_resized_crop size 8 ratio [2,1]");
    REFUSES("may resize only once", "resize size 8", "random_resized_crop size 8");
    REFUSES("out of range", "flip p 1.5");
}

Test(augment, anything_but_a_list_is_refused)
{
    struct np_node *node = np_node_scalar("flip", 3, 4);
    struct np_report report;
    struct np_chain *chain;

    np_report_init(&report, "t.yaml");
    cr_assert_lt(np_chain_parse(node, "augment", &chain, &report), 0);
    cr_assert(report.nr_errs == 1 && report.errs[0].line == 3);
    np_report_fini(&report);
    np_node_free(node);
}
