/* Stores which of cuDNN's plans each convolution uses, so that plans are timed only once. Keys name
 * the operation, its shapes and its type; a choice is an engine and its knobs (np_dnn_offer's id),
 * which does not depend on the order of the offers. A run's choices go into its checkpoints,
 * because another engine rounds differently, and into a file in the user's cache folder for this
 * GPU and cuDNN, so that the next run need not time again. Trainer thread. */
#ifndef NP_ENGINES_CUDA_H
#define NP_ENGINES_CUDA_H

#include "trainer/cuda/device_cuda.h"
#include "trainer/graph/graph.h"

#define NP_ENGINE_KEY   160
#define NP_ENGINE_APART "apart" /* a convolution and its sums: two kernels, not one */
#define NP_ENGINE_MAX   4096    /* choices in the cache file: the newest */

struct np_engine {
    char key[NP_ENGINE_KEY];
    char id[NP_DNN_ID]; /* of the offer; or NP_ENGINE_APART */
    float ms;           /* of one run when it was chosen; 0: not timed */
    bool used;          /* by this run */
    bool chosen;        /* by this run */
};

/* A list in the order of age, and a hash table from keys to places in it. */
struct np_engines {
    struct np_engine *list; /* (room), the oldest first */
    int *places;            /* (2 * room): of a key in list, + 1; 0: free */
    int n, room;            /* room: a power of 2 */
    int nr_old; /* ignored choices of an older version, which stored a place in a list */
};
struct np_engines *np_engines_new(void);
void np_engines_free(struct np_engines *engines);
/* NULL: not known. Valid until the next put, parse or read. */
struct np_engine *np_engines_find(const struct np_engines *engines, const char *key);
/* This run's choice. -ENOMEM. */
int np_engines_put(
    struct np_engines *engines, const char *key, const char *id, float ms, struct np_err *err);
/* Parses lines "plan KEY ID MS"; ignores other lines. Malformed: -EBADMSG. */
int np_engines_parse(struct np_engines *engines, const char *text, struct np_err *err);
/* The same for a checkpoint's state, whose choices np_engines_print() prints again: the run may have
 * networks of other sizes. */
int np_engines_take(struct np_engines *engines, const char *state, struct np_err *err);
/* Appends a line for each choice of this run to *text, an np_alloc'ed text that it
 * replaces. */
void np_engines_print(const struct np_engines *engines, char **text);

/* "conv_conv_+_relu_bf16_256x56x56x64_64x3x3x64_s1_p1_d1_g1". Names rules that change cuDNN's
 * offers: "free", "tf32", "built" (none compiled at run time). */
void np_engine_key(const struct np_graph *graph, const struct np_op_node *node, const char *pattern,
    const struct np_dnn_rules *rules, char key[NP_ENGINE_KEY]);

/* Returns the cache file of this GPU and cuDNN, engines-NVIDIA_H200-91900.txt in the user's cache
 * folder, which it creates. np_free. NULL: there is no folder. */
char *np_engines_path(const struct np_cuda *cuda);
/* np_engines_read() reads a cache file; np_engines_merge() adds this run's choices to it and drops
 * the oldest beyond NP_ENGINE_MAX. Other processes may do the same at once. A path that is NULL,
 * missing or cannot be written is not an error: plans are timed again. */
void np_engines_read(struct np_engines *engines, const char *path);
void np_engines_merge(const struct np_engines *engines, const char *path);

#endif
