/* Named ranges on NVIDIA's timelines (Nsight Systems); a load and a branch each when no tool
 * records. Any thread; ranges of a thread nest. */
#ifndef NP_RANGE_H
#define NP_RANGE_H

#include <nvtx3/nvToolsExt.h>

static inline void np_range_push(const char *name)
{
    nvtxRangePushA(name);
}

static inline void np_range_pop(void)
{
    nvtxRangePop();
}

#endif
