/* The kernel that gives rows the format of a program. Any thread; queues on the stream. */
#ifndef NP_FORMAT_CUDA_H
#define NP_FORMAT_CUDA_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* All pointers: device memory, the first two 16-byte aligned. */
struct np_cuda_format {
    const uint8_t *pixels; /* u8 (rows, height, width, channels) */
    void *out; /* (rows, height, width, channels), or planar (rows, channels, height, width) */
    const uint32_t *words;              /* (channels, 256): the bits of each pixel's value */
    int rows, pixels_per_row, channels; /* pixels_per_row: height * width; channels: 1 or 3 */
    int type_bytes;                     /* of an element of out: 1, 2 or 4 */
    bool planar;
};
void np_cuda_format_rows(void *stream, const struct np_cuda_format *format);

#ifdef __cplusplus
}
#endif

#endif
