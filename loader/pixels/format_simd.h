/* The loop over a row, for format_avx2.c and format_avx512.c, which define TARGET, INLINE, VECTOR
 * (values), STEP (three vectors), value_of() and store(). */
#ifndef NP_FORMAT_SIMD_H
#define NP_FORMAT_SIMD_H

TARGET INLINE size_t convert(const struct np_format_run *run, enum np_row_type type,
    const uint8_t *src, size_t n, uint8_t *dst, bool stream)
{
    const size_t bytes = type == NP_ROW_F32 ? 4 : 2;
    size_t i = 0;

    for (; i + STEP <= n; i += STEP)
#pragma GCC unroll 3
        for (int v = 0; v < 3; v++)
            store(type, value_of(run, src + i, v * VECTOR),
                dst + (i + (size_t)(v * VECTOR)) * bytes, stream);
    return i;
}

TARGET static size_t values(const struct np_format_run *run, enum np_row_type type,
    const uint8_t *src, size_t n, void *dst, bool stream)
{
    switch (type) { /* a constant makes it faster */
    case NP_ROW_F32:
        return stream ? convert(run, NP_ROW_F32, src, n, dst, true)
                      : convert(run, NP_ROW_F32, src, n, dst, false);
    case NP_ROW_BF16:
        return stream ? convert(run, NP_ROW_BF16, src, n, dst, true)
                      : convert(run, NP_ROW_BF16, src, n, dst, false);
    case NP_ROW_F16:
        return stream ? convert(run, NP_ROW_F16, src, n, dst, true)
                      : convert(run, NP_ROW_F16, src, n, dst, false);
    default: return 0;
    }
}

static void fence(void)
{
    _mm_sfence();
}

#endif
