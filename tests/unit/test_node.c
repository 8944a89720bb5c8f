/* Trees of a config: building, copying, removing, finding. */
#include <stdio.h>
#include <string.h>

#include "loader/base/node.h"

#include "tests/test.h"

/* {out: 3, pad: [1, 2]} */
static struct np_node *sample(void)
{
    struct np_node *map = np_node_new(NP_NODE_MAP, 2, 5), *list = np_node_new(NP_NODE_LIST, 2, 20);

    np_node_add(list, NULL, np_node_scalar("1", 2, 21));
    np_node_add(list, NULL, np_node_scalar("2", 2, 24));
    np_node_add(map, "out", np_node_scalar("3", 2, 11));
    np_node_add(map, "pad", list);
    return map;
}

Test(node, get_finds_by_key_and_only_in_mappings)
{
    struct np_node *map = sample();

    cr_assert_str_eq(np_node_get(map, "out")->text, "3");
    cr_assert_eq(np_node_get(map, "pad")->items[1]->column, 24);
    cr_assert_null(np_node_get(map, "o"));
    cr_assert_null(np_node_get(np_node_get(map, "out"), "out"));
    cr_assert_null(np_node_get(NULL, "out"));
    cr_assert(np_node_is(np_node_get(map, "out"), "3"));
    cr_assert_not(np_node_is(np_node_get(map, "pad"), "3"));
    cr_assert_not(np_node_is(NULL, "3"));
    np_node_free(map);
    np_node_free(NULL);
}

Test(node, a_copy_is_deep_and_whole)
{
    struct np_node *map = sample(), *copy;

    map->items[0]->quoted = true;
    map->items[0]->key_line = 2;
    map->items[0]->key_column = 6;
    copy = np_node_copy(map);
    np_node_free(map);
    cr_assert_eq(copy->nr_items, 2);
    cr_assert_eq(copy->line, 2);
    cr_assert_eq(copy->column, 5);
    cr_assert(copy->items[0]->quoted);
    cr_assert_eq(copy->items[0]->key_line, 2);
    cr_assert_eq(copy->items[0]->key_column, 6);
    cr_assert_str_eq(copy->items[0]->key, "out");
    cr_assert_str_eq(copy->items[1]->items[0]->text, "1");
    cr_assert_null(copy->items[1]->items[0]->key);
    np_node_free(copy);
    cr_assert_null(np_node_copy(NULL));
}

Test(node, items_are_added_and_removed_in_order)
{
    struct np_node *list = np_node_new(NP_NODE_LIST, 1, 1);
    char text[16];

    for (int round = 0; round < 3; round++) { /* over the edges at which the list grows */
        for (int i = list->nr_items; i < 40; i++) {
            snprintf(text, sizeof(text), "%d", i);
            np_node_add(list, NULL, np_node_scalar(text, 1, 1));
        }
        for (int i = 0; i < 40; i++) {
            snprintf(text, sizeof(text), "%d", i);
            cr_assert_str_eq(list->items[i]->text, text);
        }
        while (list->nr_items > round * 7)
            np_node_remove(list, list->nr_items - 1);
    }
    np_node_remove(list, 3);
    np_node_remove(list, 0);
    cr_assert_str_eq(list->items[0]->text, "1");
    cr_assert_str_eq(list->items[1]->text, "2");
    cr_assert_str_eq(list->items[2]->text, "4");
    cr_assert_eq(list->nr_items, 12);
    np_node_free(list);
}

Test(node, a_child_may_be_added_under_its_own_key)
{
    struct np_node *map = np_node_new(NP_NODE_MAP, 1, 1), *child = np_node_scalar("x", 1, 1);

    child->key = strdup("mine");
    np_node_add(map, child->key, child);
    cr_assert_str_eq(np_node_get(map, "mine")->text, "x");
    np_node_free(map);
}

Test(node, a_name_may_stand_alone_or_with_arguments)
{
    struct np_node *word = np_node_scalar("flip", 1, 1), *map = np_node_new(NP_NODE_MAP, 1, 1);
    const char *name = NULL;
    const struct np_node *args = word;

    cr_assert(np_node_named(word, &name, &args));
    cr_assert_str_eq(name, "flip");
    cr_assert_null(args);
    cr_assert_not(np_node_named(map, &name, &args));
    np_node_add(map, "conv", sample());
    cr_assert(np_node_named(map, &name, &args));
    cr_assert_str_eq(name, "conv");
    cr_assert_str_eq(np_node_get(args, "out")->text, "3");
    np_node_add(map, "relu", np_node_scalar("", 1, 1));
    cr_assert_not(np_node_named(map, &name, &args));
    np_node_free(word);
    np_node_free(map);
}

static void note_leaf(void *context, const char *path, const char *text)
{
    strcat(strcat(strcat(strcat(context, path), "="), text), " ");
}

Test(node, leaves_have_their_paths_and_empty_lists_are_leaves)
{
    struct np_node *map = np_node_new(NP_NODE_MAP, 1, 1), *list = np_node_new(NP_NODE_LIST, 1, 1);
    char seen[256] = "";

    np_node_add(map, "seed", np_node_scalar("1", 1, 1));
    np_node_add(list, NULL, np_node_scalar("flip", 1, 1));
    np_node_add(list, NULL, sample());
    np_node_add(map, "augment", list);
    np_node_add(map, "none", np_node_new(NP_NODE_MAP, 1, 1));
    np_node_leaves(map, note_leaf, seen);
    cr_assert(strstr(seen, "seed=1 augment.0=flip augment.1.") == seen, "%s", seen);
    cr_assert(strstr(seen, "augment.1.out=3 ") && strstr(seen, " none={} "), "%s", seen);
    np_node_free(map);
}
