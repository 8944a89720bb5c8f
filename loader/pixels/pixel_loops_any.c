/* The loops of pixel_loops.h for any CPU. */
#define LOOPS np_pixel_loops_any
#include "loader/pixels/pixel_loops_body.h"
