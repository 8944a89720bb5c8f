/* Which of cuDNN's plans a convolution takes: timed once, kept. Keys name the operation, its shapes
 * and its type; a run's choices go into its checkpoints, because another engine rounds differently,
 * and into a file of the user's cache folder for this GPU and this cuDNN, so that the next run need
 * not time again. Trainer thread. */
#ifndef NP_ENGINES_CUDA_H
#define NP_ENGINES_CUDA_H

#include "trainer/cuda/device_cuda.h"
#include "trainer/graph.h"

#define NP_ENGINE_KEY 160

struct np_engines;                       /* key -> number of the plan in cuDNN's order */
struct np_engines *np_engines_new(void); /* NULL: no memory */
void np_engines_free(struct np_engines *engines);
/* -1: not known. */
int np_engines_find(const struct np_engines *engines, const char *key);
int np_engines_put(struct np_engines *engines, const char *key, int plan, struct np_err *err);
int np_engines_count(const struct np_engines *engines);
/* A line each, "engine KEY PLAN"; lines of another kind are left alone. Malformed: -EBADMSG. */
int np_engines_parse(struct np_engines *engines, const char *text, struct np_err *err);
/* Appends the lines to *text, which grows; caller frees with np_free(). */
int np_engines_print(const struct np_engines *engines, char **text, struct np_err *err);

/* "conv_conv_+_relu_bf16_256x56x56x64_64x3x3x64_s1_p1_d1_g1". Rules that let cuDNN offer other plans than
 * usual, in another order therefore, are in it: "free", "tf32", "built" (none compiled at run time). */
void np_engine_key(const struct np_graph *graph, const struct np_op_node *node, const char *pattern,
    const struct np_dnn_rules *rules, char key[NP_ENGINE_KEY]);

/* The cache file of this GPU and cuDNN: read into engines, written whole. No file, or one that cannot be
 * written, is no error: the plans are timed again. */
void np_engines_load(struct np_engines *engines, const struct np_cuda *cuda);
void np_engines_save(const struct np_engines *engines, const struct np_cuda *cuda);

#endif
