#include "loader/base/vectors.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[] = {"sse2", "avx2", "avx512", "avx512_bf16"};
static enum np_vectors found; /* written only before main() */
static _Atomic int limit = NP_AVX512_BF16;

static enum np_vectors of_cpu(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
        !__builtin_cpu_supports("bmi2"))
        return NP_SSE2;
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw"))
        return NP_AVX2;
    return __builtin_cpu_supports("avx512bf16") ? NP_AVX512_BF16 : NP_AVX512;
#else
    return NP_SSE2;
#endif
}

__attribute__((constructor)) static void find(void)
{
    const char *max = getenv("NNPIPE_CPU");

    found = of_cpu();
    for (int i = NP_SSE2; max && i < (int)found; i++)
        if (strcmp(max, names[i]) == 0)
            found = (enum np_vectors)i;
}

enum np_vectors np_vectors_used(void)
{
    const int max = atomic_load_explicit(&limit, memory_order_relaxed);

    return max < (int)found ? (enum np_vectors)max : found;
}

bool np_vectors_vnni(void)
{
#if defined(__x86_64__)
    return np_vectors_used() >= NP_AVX512 && __builtin_cpu_supports("avx512vnni") &&
           __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vl");
#else
    return false;
#endif
}

const char *np_vectors_name(void)
{
    return names[np_vectors_used()];
}

enum np_vectors np_vectors_limit(enum np_vectors max)
{
    atomic_store_explicit(&limit, (int)max, memory_order_relaxed);
    return np_vectors_used();
}
