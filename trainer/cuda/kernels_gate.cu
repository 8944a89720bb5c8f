/* Products of activations, by pixel or by channel, and stochastic depth. One thread per element,
 * channels across threads: a warp's reads are adjacent. Twin: kernels_ref_gate.c. */
#include "trainer/cuda/kernels_draws.cuh"
#include "trainer/cuda/kernels_half.cuh"

/* row: elements of a row of a; 0: b has all of them. */
template <typename T>
static __global__ void mul(const T *a, const T *b, T *y, uint64_t row, int c, uint64_t n)
{
    for (uint64_t i = np_thread(); i < n; i += np_stride())
        np_put(&y[i], np_get(a[i]) * np_get(b[row ? i / row * c + i % c : i]));
}

extern "C" void np_cuda_mul(void *stream, enum np_cuda_dtype dtype, const void *a, const void *b,
    bool pixels, void *y, uint64_t rows, int hw, int c)
{
    uint64_t row = (uint64_t)hw * c;

    NP_FOR_DTYPE(dtype, T,
        NP_LAUNCH(mul<T>, np_blocks(rows * row), NP_THREADS, 0, stream, (const T *)a, (const T *)b,
            (T *)y, pixels ? 0 : row, c, rows * row));
}

/* One thread per channel of a picture: its pixels in their order. */
template <typename T>
static __global__ void mul_sum(const T *dy, const T *a, T *db, int hw, int c, uint64_t n)
{
    for (uint64_t i = np_thread(); i < n; i += np_stride()) {
        uint64_t from = i / c * hw * c + i % c;
        float sum = 0;

        for (int p = 0; p < hw; p++)
            sum += np_get(dy[from + (uint64_t)p * c]) * np_get(a[from + (uint64_t)p * c]);
        np_put(&db[i], sum);
    }
}

extern "C" void np_cuda_mul_sum(void *stream, enum np_cuda_dtype dtype, const void *dy,
    const void *a, void *db, uint64_t rows, int hw, int c)
{
    NP_FOR_DTYPE(dtype, T,
        NP_LAUNCH(mul_sum<T>, np_blocks(rows * c), NP_THREADS, 0, stream, (const T *)dy,
            (const T *)a, (T *)db, hw, c, rows * c));
}

template <typename T>
static __global__ void drop_rows(const np_cuda_step *step, uint64_t seed, double rate, float scale,
    const T *x, T *y, uint64_t row, uint64_t n)
{
    uint64_t number = step->step;

    for (uint64_t i = np_thread(); i < n; i += np_stride()) {
        uint32_t r = (uint32_t)(i / row);
        uint32_t words[4] = {r / 4, 0, (uint32_t)number, (uint32_t)(number >> 32)};

        np_philox((uint32_t)seed, (uint32_t)(seed >> 32), words);
        uint32_t word = r % 4 == 0   ? words[0]
                        : r % 4 == 1 ? words[1]
                        : r % 4 == 2 ? words[2]
                                     : words[3];
        np_put(&y[i], word * 0x1p-32 >= rate ? np_get(x[i]) * scale : 0.0f);
    }
}

extern "C" void np_cuda_drop_rows(void *stream, enum np_cuda_dtype dtype, const np_cuda_step *step,
    uint64_t seed, double rate, const void *x, void *y, uint64_t rows, uint64_t row_elements)
{
    float scale = (float)(1 / (1 - rate));

    NP_FOR_DTYPE(dtype, T,
        NP_LAUNCH(drop_rows<T>, np_blocks(rows * row_elements), NP_THREADS, 0, stream, step, seed,
            rate, scale, (const T *)x, (T *)y, row_elements, rows * row_elements));
}
