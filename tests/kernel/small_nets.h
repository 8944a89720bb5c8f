/* Nets built by hand, for tests of the device's plan. */
#ifndef NP_SMALL_NETS_H
#define NP_SMALL_NETS_H

#include "trainer/graph/graph.h"

/* A ResNet for small pictures (He et al., arXiv:1512.03385, section 4.2), with projections: three
 * stages of `blocks` blocks, width, 2 width, 4 width. blocks 3, width 16, side 32: ResNet-20. */
struct np_graph *net_resnet(
    int batch, int side, int blocks, int width, int classes, enum np_dtype dtype);
/* conv(bias, relu), max pool, conv(bias), relu, dropout, flatten, linear (relu), linear: operations
 * that a batchnorm net lacks. */
struct np_graph *net_plain(int batch, int side, int classes, enum np_dtype dtype);

#endif
