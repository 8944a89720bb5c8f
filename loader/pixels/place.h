/* Copies pixels that are not scaled: the columns of a window with its black border, in order or
 * reversed; and planes to pixels. Uses plain C, AVX2 or AVX-512, as the CPU allows, with equal
 * bytes. Any thread. */
#ifndef NP_PLACE_H
#define NP_PLACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct np_placing {
    const uint8_t *src; /* the pixel of column `first` */
    ptrdiff_t stride;   /* bytes from row to row of src */
    int channels;
    int n;          /* columns of the result */
    int first, end; /* columns that have a pixel, before the flip; the others become 0 */
    bool flip;
};
/* out: (nr_rows, n, channels), dense, does not overlap src. */
void np_place_rows(const struct np_placing *placing, int nr_rows, uint8_t *out);
/* Three planes of n bytes, `plane` bytes apart, to n pixels. */
void np_place_planes(const uint8_t *planes, size_t plane, size_t n, uint8_t *out);

#endif
