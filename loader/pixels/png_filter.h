/* PNG's row filters (PNG specification, third edition, section 9). Any thread. */
#ifndef NP_PNG_FILTER_H
#define NP_PNG_FILTER_H

#include <stddef.h>
#include <stdint.h>

/* Undoes filter 0 to 4 in a row of n bytes, in place. pixel: bytes of a pixel, 1, 3 or 4; n is a
 * multiple of it. above: the n unfiltered bytes of the previous row; zeros for the first row. */
void np_png_unfilter(int filter, uint8_t *row, const uint8_t *above, size_t n, int pixel);

#endif
