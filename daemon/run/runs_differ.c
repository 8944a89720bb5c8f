/* Finds the keys in which runs of the same network differ, as in a sweep. */
#include <stdio.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "daemon/config/config.h"
#include "daemon/run/runs_found.h"
#include "loader/base/mem.h"
#include "loader/base/text.h"

#define NETWORK 20 /* bytes of "network 1234abcd", with its end */

/* One scalar of one run's config. */
struct leaf {
    uint64_t network; /* hash of the run's model */
    int run;
    char *path;       /* "optimizer.sgd.lr"; owned */
    const char *text; /* borrowed from the config */
};

struct leaves {
    struct leaf *leaves;
    size_t nr_leaves, room;
    uint64_t network;
    int run;
};

/* Keys that differ in every run, or that are compared as a whole. */
static bool left_out(const char *path)
{
    static const char *const keys[] = {"name", "runs", "model", "blocks", NULL};

    for (int i = 0; keys[i]; i++)
        if (strlen(keys[i]) == strcspn(path, ".") && strncmp(keys[i], path, strlen(keys[i])) == 0)
            return true;
    return false;
}

static void add_leaf(struct leaves *all, const char *path, const char *text)
{
    np_grow(&all->leaves, &all->room, all->nr_leaves + 1, sizeof(*all->leaves));
    all->leaves[all->nr_leaves++] = (struct leaf){all->network, all->run, np_strdup(path), text};
}

static void take_leaf(void *context, const char *path, const char *text)
{
    if (!left_out(path))
        add_leaf(context, path, text);
}

static uint64_t hash(const struct np_node *node, uint64_t seed)
{
    if (!node)
        return seed;
    if (node->key)
        seed = XXH3_64bits_withSeed(node->key, strlen(node->key), seed);
    if (node->kind == NP_NODE_SCALAR)
        return XXH3_64bits_withSeed(node->text, strlen(node->text), seed + 1);
    for (int i = 0; i < node->nr_items; i++)
        seed = hash(node->items[i], seed + 2);
    return seed + 3;
}

static int by_network_and_path(const void *left, const void *right)
{
    const struct leaf *a = left, *b = right;
    int order;

    if (a->network != b->network)
        return a->network < b->network ? -1 : 1;
    order = strcmp(a->path, b->path);
    return order ? order : a->run - b->run;
}

static int runs_of(const struct np_found_runs *runs, const uint64_t *networks, uint64_t network)
{
    int n = 0;

    for (int i = 0; i < runs->nr_runs; i++)
        n += runs->runs[i].config && networks[i] == network;
    return n;
}

/* The leaves [first, end) have the same key. Do all of the network's runs have it, with one
 * value? */
static bool same(const struct leaf *first, const struct leaf *end, int nr_runs)
{
    if (end - first != nr_runs)
        return false;
    for (const struct leaf *leaf = first; leaf < end; leaf++)
        if (strcmp(leaf->text, first->text) != 0)
            return false;
    return true;
}

/* A resolved config has 0.20000000000000001; shows 0.2. */
static struct np_node *readable(const char *text)
{
    char number[32] = "";
    double value;
    struct np_node *node;

    if (np_text_real(text, -INFINITY, INFINITY, &value))
        snprintf(number, sizeof(number), "%.9g", value);
    node = np_node_scalar(*number && strlen(text) > strlen(number) ? number : text, 0, 0);
    node->quoted = true;
    return node;
}

static void add_differs(
    struct np_found_runs *runs, const struct leaf *first, const struct leaf *end)
{
    for (const struct leaf *leaf = first; leaf < end; leaf++) {
        struct np_found_run *run = &runs->runs[leaf->run];

        if (!run->differs)
            run->differs = np_node_new(NP_NODE_MAP, 0, 0);
        np_node_add(run->differs, leaf->path, readable(leaf->text));
    }
}

static void compare(struct np_found_runs *runs, const struct leaves *all, const uint64_t *networks)
{
    const struct leaf *end = all->leaves + all->nr_leaves;
    uint64_t network = 0;
    int nr_runs = 0;

    for (const struct leaf *first = all->leaves, *next; first < end; first = next) {
        if (nr_runs == 0 || first->network != network)
            nr_runs = runs_of(runs, networks, network = first->network);
        for (next = first + 1;
             next < end && next->network == network && strcmp(next->path, first->path) == 0;)
            next++;
        if (!same(first, next, nr_runs))
            add_differs(runs, first, next);
    }
}

void np_runs_differ(struct np_found_runs *runs, bool all_networks)
{
    uint64_t *networks = np_alloc_array((size_t)runs->nr_runs + 1, sizeof(*networks));
    struct leaves all = {0};
    char(*names)[NETWORK] = np_alloc_array((size_t)runs->nr_runs + 1, sizeof(*names));

    for (int i = 0; i < runs->nr_runs; i++) {
        const struct np_node *config = runs->runs[i].config;

        if (!config || config->kind != NP_NODE_MAP)
            continue;
        networks[i] = hash(np_node_get(config, "blocks"), hash(np_node_get(config, "model"), 1));
        snprintf(names[i], NETWORK, "network %08jx", (uintmax_t)networks[i] & UINT32_MAX);
        if (all_networks)
            networks[i] = 0;
        all.network = networks[i];
        all.run = i;
        np_node_leaves(config, take_leaf, &all);
        if (all_networks)
            add_leaf(&all, "model", names[i]);
    }
    if (all.nr_leaves > 0) {
        qsort(all.leaves, all.nr_leaves, sizeof(*all.leaves), by_network_and_path);
        compare(runs, &all, networks);
    }
    for (size_t i = 0; i < all.nr_leaves; i++)
        np_free(all.leaves[i].path);
    np_free(all.leaves);
    np_free(names);
    np_free(networks);
}
