/* A sum over lanes in a fixed binary tree: lanes 0 and 1, lanes 2 and 3, then these two sums, and so
 * on, whichever thread computes which lane when; a last one without a neighbour goes up as it is. Vectors are added as soon as both are there, while
 * they are in the cache. Any pool thread. */
#ifndef NP_TREE_H
#define NP_TREE_H

#include <stddef.h>

struct np_tree;

/* n: floats of a vector. Threads take lanes in order, each one at a time, so that some vectors are
 * enough for many lanes: np_tree_floats() is what all of them take. room: of as many, aligned;
 * borrowed, and free for other uses between a root that was given back and the next take. */
size_t np_tree_floats(int nr_leaves, size_t n, int nr_threads);
struct np_tree *np_tree_new(int nr_leaves, size_t n, int nr_threads, float *room);
void np_tree_free(struct np_tree *tree);
/* Returns a vector for a lane, with any values. */
float *np_tree_take(struct np_tree *tree);
/* The lane's vector is complete: adds it. */
void np_tree_put(struct np_tree *tree, int lane, float *vector);
/* After all lanes: returns the sum, which the caller gives back. */
float *np_tree_root(struct np_tree *tree);
/* Takes back what a sum that is not wanted has left. NULL: nothing. */
void np_tree_clear(struct np_tree *tree);
void np_tree_give(struct np_tree *tree, float *vector);

#endif
