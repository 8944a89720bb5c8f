/* Random words on the device. Shared by the plugin's .cu files. */
#ifndef NP_KERNELS_DRAWS_CUH
#define NP_KERNELS_DRAWS_CUH

#include <stdint.h>

#include "trainer/cuda/launch.h"

/* Philox4x32-10 (Salmon et al., SC 2011), as loader/base/rng.h. */
static __device__ inline void np_philox(uint32_t key0, uint32_t key1, uint32_t words[4])
{
    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)0xD2511F53u * words[0], b = (uint64_t)0xCD9E8D57u * words[2];
        uint32_t w1 = words[1], w3 = words[3];

        words[0] = (uint32_t)(b >> 32) ^ w1 ^ key0;
        words[1] = (uint32_t)b;
        words[2] = (uint32_t)(a >> 32) ^ w3 ^ key1;
        words[3] = (uint32_t)a;
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
}

#endif
