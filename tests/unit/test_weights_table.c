/* The table of loaded weights: a line for each layer, short for any network. */
#include <stdio.h>
#include <string.h>

#include "loader/base/mem.h"
#include "tests/test.h"
#include "trainer/checkpoint/weights_table.h"

static void add(struct np_weights_table *table, const char *name, const char *why, bool frozen)
{
    np_weights_table_add(table,
        &(struct np_weights_entry){.name = name, .nr_values = 10, .why = why, .frozen = frozen});
}

static void expect(struct np_weights_table *table, const char *text, const char *misfit)
{
    char *got = np_weights_table_text(table), *one = np_weights_table_misfit(table);

    cr_expect_str_eq(got, text);
    cr_expect_str_eq(one ? one : "", misfit);
    np_free(got);
    np_free(one);
    np_weights_table_free(table);
}

Test(weights_table, neighbours_that_were_loaded_alike_are_one_line)
{
    struct np_weights_table *table = np_weights_table_new("f.pth", NULL, NULL, "");

    add(table, "conv1.weight", NULL, true);
    add(table, "bn1.weight", NULL, true);
    add(table, "bn1.running_mean", NULL, false);
    add(table, "layer1.0.conv1.weight", NULL, true);
    add(table, "layer2.0.conv1.weight", NULL, false);
    add(table, "layer3.0.conv1.weight", NULL, false);
    add(table, "fc.weight", "is missing", false);
    expect(table,
        "weights from f.pth:\n"
        "  conv1 to layer1  loaded  4 tensors, 40 values, 3 frozen\n"
        "  layer2, layer3   loaded  2 tensors, 20 values\n"
        "  fc               fresh   weight is missing",
        "fc: weight is missing");
}

Test(weights_table, a_layer_in_part_names_what_is_left_fresh)
{
    struct np_weights_table *table = np_weights_table_new("f.pth", "model", "ema, net", "module.");
    char name[40];

    for (int i = 0; i < 8; i++) {
        snprintf(name, sizeof(name), "features.%d.weight", i);
        add(table, name, i < 2 ? NULL : "is missing", false);
    }
    add(table, "bias", NULL, false);
    np_weights_table_unused(table, "n_averaged", false);
    expect(table,
        "weights from f.pth, its part 'model' (also there: ema, net; FILE#PART takes another), "
        "names without 'module.':\n"
        "  features  in part 2 of 8 tensors loaded; 2.weight is missing; 3.weight is missing; "
        "4.weight is missing; and 3 more\n"
        "  bias      loaded  1 tensor, 10 values\n"
        "  not of this network: n_averaged",
        "features: 2.weight is missing; 3.weight is missing; 4.weight is missing; and 3 more");
}

Test(weights_table, many_layers_and_names_are_cut)
{
    struct np_weights_table *table = np_weights_table_new("f.pth", NULL, NULL, NULL);
    char name[40];

    for (int i = 0; i < 60; i++) {
        snprintf(name, sizeof(name), "%d.weight", i);
        add(table, name, i % 2 ? "is missing" : NULL, false);
        np_weights_table_unused(table, name, true);
    }
    char *text = np_weights_table_text(table);
    cr_expect(strstr(text, "\n  23  fresh   weight is missing\n  and 36 more layers\n"));
    cr_expect(strstr(text, "not of this network: 0.weight, 1.weight") != NULL);
    cr_expect(strstr(text, ", 9.weight and 50 more") != NULL);
    np_free(text);
    np_weights_table_free(table);
}

Test(weights_table, a_file_that_fits_is_one_line)
{
    struct np_weights_table *table = np_weights_table_new("f.pth", NULL, NULL, NULL);

    add(table, "fc.weight", NULL, false);
    expect(table, "weights from f.pth: all tensors loaded", "");
}
