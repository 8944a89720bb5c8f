/* Width and height of a picture from the few bytes of its file that have them. */
#ifndef NP_LIB_HEADER_H
#define NP_LIB_HEADER_H

#include <stdbool.h>
#include <stdint.h>

/* Reads the headers of JPEG and PNG pictures, nr_bytes at `start` of the file: 4 KiB at the start, and
 * for a JPEG as much at each place that a long segment (EXIF, ICC) leads to. False: another format, or
 * anything unusual; the decoder decides. A decoder that opens the picture finds the same size. Blocks
 * on the disk; any thread. */
bool np_header_size(
    int fd, uint64_t start, uint64_t nr_bytes, int32_t *ret_width, int32_t *ret_height);

#endif
