/* Finds the vector width of this run, once, before main(). */
#include "trainer/cpu/simd.h"

#include <stdlib.h>

static const char *const names[] = {"sse2", "avx2", "avx512", "avx512_bf16"};
static enum np_vectors level; /* written only before main() */

__attribute__((constructor)) static void find(void)
{
    const char *max = getenv("NNPIPE_CPU");

    __builtin_cpu_init();
    level = __builtin_cpu_supports("avx512bf16")                              ? NP_AVX512_BF16
            : __builtin_cpu_supports("avx512f")                               ? NP_AVX512
            : __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? NP_AVX2
                                                                              : NP_SSE2;
    for (int i = NP_SSE2; max && i < (int)level; i++)
        if (strcmp(max, names[i]) == 0)
            level = (enum np_vectors)i;
}

enum np_vectors np_vectors_used(void)
{
    return level;
}

const char *np_cpu_vectors(void)
{
    return names[level];
}
