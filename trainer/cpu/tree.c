#include "trainer/cpu/tree.h"

#include <assert.h>
#include <pthread.h>

#include "loader/base/mem.h"
#include "trainer/cpu/simd.h"

struct np_tree {
    /* set once */
    int nr_leaves;
    int levels; /* of a full tree with room for the leaves */
    size_t n;
    /* under lock */
    pthread_mutex_t lock;
    int nr_free;
    float **free;
    /* (2 << levels) sums that wait for their neighbour: 1 is the root, 2i and 2i + 1 are below i,
     * (1 << levels) + lane is a leaf. NULL: not there, or taken */
    float **waiting;
};

static int levels_for(int nr_leaves)
{
    int levels = 0;

    while (1 << levels < nr_leaves)
        levels++;
    return levels;
}

/* Vectors that a sum needs at one time: every lane that is being computed may have a complete neighbour at each level of its path up; the
 * uppermost levels of the paths are shared. */
static int vectors_for(int nr_leaves, int nr_threads)
{
    int shared = 0;

    while (2 << shared <= nr_threads)
        shared++;
    if (nr_threads >= nr_leaves)
        return nr_leaves;
    const int most = nr_threads * (1 + levels_for(nr_leaves) - shared);
    return most < nr_leaves ? most : nr_leaves;
}

static size_t pitch(size_t n)
{
    return (n + NP_ALIGN / sizeof(float) - 1) / (NP_ALIGN / sizeof(float)) *
           (NP_ALIGN / sizeof(float));
}

size_t np_tree_floats(int nr_leaves, size_t n, int nr_threads)
{
    return (size_t)vectors_for(nr_leaves, nr_threads) * pitch(n);
}

struct np_tree *np_tree_new(int nr_leaves, size_t n, int nr_threads, float *room)
{
    struct np_tree *tree = np_alloc(sizeof(*tree));

    pthread_mutex_init(&tree->lock, NULL);
    tree->nr_leaves = nr_leaves;
    tree->n = n;
    tree->levels = levels_for(nr_leaves);
    tree->nr_free = vectors_for(nr_leaves, nr_threads);
    tree->free = np_alloc_array((size_t)tree->nr_free, sizeof(*tree->free));
    tree->waiting = np_alloc_array((size_t)2 << tree->levels, sizeof(*tree->waiting));
    for (int i = 0; i < tree->nr_free; i++)
        tree->free[i] = room + (size_t)i * pitch(n);
    return tree;
}

void np_tree_free(struct np_tree *tree)
{
    if (!tree)
        return;
    np_free(tree->free);
    np_free(tree->waiting);
    pthread_mutex_destroy(&tree->lock);
    np_free(tree);
}

float *np_tree_take(struct np_tree *tree)
{
    pthread_mutex_lock(&tree->lock);
    assert(tree->nr_free > 0);
    float *vector = tree->free[--tree->nr_free];
    pthread_mutex_unlock(&tree->lock);
    return vector;
}

void np_tree_give(struct np_tree *tree, float *vector)
{
    pthread_mutex_lock(&tree->lock);
    tree->free[tree->nr_free++] = vector;
    pthread_mutex_unlock(&tree->lock);
}

NP_LOOP(add, (float *to, const float *from, size_t n), (to, from, n))
{
    size_t i = 0;

    for (; i + 8 <= n; i += 8)
        np_store(to + i, np_load(to + i) + np_load(from + i));
    for (; i < n; i++)
        to[i] += from[i];
}

/* Leaves the sum at the node, unless its neighbour is there: then the neighbour's is taken. */
static float *take_neighbour(struct np_tree *tree, int node, float *sum)
{
    pthread_mutex_lock(&tree->lock);
    float **other = &tree->waiting[node ^ 1], *taken = node > 1 ? *other : NULL;

    if (taken)
        *other = NULL;
    else
        tree->waiting[node] = sum;
    pthread_mutex_unlock(&tree->lock);
    return taken;
}

/* The nearest node on the way up that has a neighbour, or the root. level: the node's, 0 of a leaf. */
static int climb_alone(const struct np_tree *tree, int node, int *level)
{
    while (node > 1 && ((node ^ 1) << *level) - (1 << tree->levels) >= tree->nr_leaves) {
        node /= 2;
        ++*level;
    }
    return node;
}

void np_tree_put(struct np_tree *tree, int lane, float *vector)
{
    int level = 0, node = climb_alone(tree, (1 << tree->levels) + lane, &level);

    for (float *other; (other = take_neighbour(tree, node, vector));) {
        add(vector, other, tree->n); /* a + b and b + a have the same bits */
        np_tree_give(tree, other);
        level++;
        node = climb_alone(tree, node / 2, &level);
    }
}

void np_tree_clear(struct np_tree *tree)
{
    for (int node = 1; tree && node < 2 << tree->levels; node++)
        if (tree->waiting[node]) {
            tree->free[tree->nr_free++] = tree->waiting[node];
            tree->waiting[node] = NULL;
        }
}

float *np_tree_root(struct np_tree *tree)
{
    float *root = tree->waiting[1];

    assert(root);
    tree->waiting[1] = NULL;
    return root;
}
