/* See kernels.h: bf16 <-> f32. Any thread. */
#include "trainer/cpu/kernels.h"

#include "trainer/cpu/simd.h"

/* Round to nearest, ties to even; a NaN stays one. */
NP_LOOP(bf16_from_f32, (uint16_t * out, const float *in, size_t n), (out, in, n))
{
    size_t i = 0;

    for (; i + 8 <= n; i += 8)
        np_store_bf16(out + i, np_load(in + i));
    for (; i < n; i++)
        out[i] = np_to_bf16(in[i]);
}

NP_LOOP(f32_from_bf16, (float *out, const uint16_t *in, size_t n), (out, in, n))
{
    size_t i = 0;

    for (; i + 8 <= n; i += 8)
        np_store(out + i, np_load_bf16(in + i));
    for (; i < n; i++)
        out[i] = np_from_bf16(in[i]);
}

void np_bf16_from_f32(uint16_t *out, const float *in, size_t n)
{
    bf16_from_f32(out, in, n);
}

void np_f32_from_bf16(float *out, const uint16_t *in, size_t n)
{
    f32_from_bf16(out, in, n);
}
