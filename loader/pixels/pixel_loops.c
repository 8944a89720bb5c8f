/* See pixel_loops.h. */
#include "loader/pixels/pixel_loops.h"

#include "loader/base/vectors.h"

const struct np_pixel_loops *np_pixel_loops(void)
{
#if defined(__x86_64__)
    if (np_vectors_used() >= NP_AVX512)
        return &np_pixel_loops_avx512;
    if (np_vectors_used() >= NP_AVX2)
        return &np_pixel_loops_avx2;
#endif
    return &np_pixel_loops_any;
}
