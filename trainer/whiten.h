/* Whitening of the first convolution (Jordan, arXiv:2404.00498, section 3.2; Page's "How to train
 * your ResNet"): its filters become the eigenvectors of the second moments of the pictures' windows,
 * each divided by the root of its eigenvalue, then the same again with the other sign. Any one
 * thread, at the start of a run. */
#ifndef NP_WHITEN_H
#define NP_WHITEN_H

#include "trainer/graph/graph.h"

#define NP_WHITEN_PICTURES 5000

struct np_whiten;
/* NULL: no parameter of the graph has NP_INIT_WHITENING. height, width: of the rows. */
struct np_whiten *np_whiten_new(const struct np_graph *graph, int height, int width);
void np_whiten_free(struct np_whiten *whiten);
/* Adds the windows of one picture, u8 (height, width, channels); of a large one, about 1,024 that
 * lie on a grid. */
void np_whiten_add(struct np_whiten *whiten, const uint8_t *pixels);
/* Writes the weight into params (flat): filter i of the first half is v_i / sqrt(lambda_i + 5e-4),
 * largest eigenvalue first, its largest element positive. Nothing was added: it stays as it is. */
void np_whiten_write(const struct np_whiten *whiten, float *params);

#endif
