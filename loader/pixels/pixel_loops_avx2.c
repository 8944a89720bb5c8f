/* The loops of pixel_loops.h for AVX2. Headers come first: their functions are for any CPU. */
#include "loader/pixels/pixel_loops.h"

#if defined(__x86_64__)
#include <math.h>

#pragma GCC target("avx2")
#define LOOPS np_pixel_loops_avx2
#include "loader/pixels/pixel_loops_body.h"
#endif
