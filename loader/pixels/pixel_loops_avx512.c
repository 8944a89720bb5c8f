/* The loops of pixel_loops.h for AVX-512. Headers come first: their functions are for any CPU. */
#include "loader/pixels/pixel_loops.h"

#if defined(__x86_64__)
#include <math.h>

#pragma GCC target("avx512f,avx512bw,prefer-vector-width=512")
#define LOOPS np_pixel_loops_avx512
#include "loader/pixels/pixel_loops_body.h"
#endif
