/* A hash of arrays, by which processes compare what they have: the sum, modulo 2^64, of a number for each element,
 * which all bits of the element and its place decide. So blocks add up in any order, and a single bit that differs
 * always shows. */
#include "trainer/cuda/kernels_half.cuh"

#define WARP    32
#define AT_ONCE 4 /* loads of a thread */

/* splitmix64 of state number `place`, moved on by the element's bits (Steele, Lea and Flood, "Fast splittable
 * pseudorandom number generators", 2014): for one place it maps different bits to different numbers. */
static __device__ inline uint64_t number_of(uint64_t place, uint32_t bits)
{
    uint64_t z = place * 0x9e3779b97f4a7c15ull + bits;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

/* Thread 0 gets the sum over the block. */
static __device__ uint64_t sum_block(uint64_t value)
{
    NP_SHARED(uint64_t, sums, [NP_THREADS / WARP]);

    for (int bits = WARP / 2; bits > 0; bits /= 2)
        value += __shfl_xor_sync(0xffffffffu, value, bits);
    if (threadIdx.x % WARP == 0)
        sums[threadIdx.x / WARP] = value;
    __syncthreads();
    for (int w = 1; threadIdx.x == 0 && w < NP_THREADS / WARP; w++)
        value += sums[w];
    return value;
}

template <int N>
static __global__ void hash(const uint32_t *x, uint64_t n, uint64_t first, uint64_t *parts)
{
    const uint64_t packs = n / N, stride = np_stride();
    uint64_t sum = 0;

    for (uint64_t i = np_thread(); i < packs; i += AT_ONCE * stride) {
        np_loaded<np_pack<uint32_t, N>> raw[AT_ONCE];

        NP_UNROLL(AT_ONCE)
        for (int u = 0; u < AT_ONCE; u++)
            raw[u] = np_load_last((const np_pack<uint32_t, N> *)x +
                                  (i + u * stride < packs ? i + u * stride : packs - 1));
        NP_UNROLL(AT_ONCE)
        for (int u = 0; u < AT_ONCE; u++) {
            const np_pack<uint32_t, N> pack = np_open<np_pack<uint32_t, N>>(raw[u]);
            const uint64_t at = i + u * stride;

            if (at >= packs)
                break;
            NP_UNROLL(N)
            for (int k = 0; k < N; k++)
                sum += number_of(first + at * N + k, pack.v[k]);
        }
    }
    sum = sum_block(sum);
    if (threadIdx.x == 0)
        parts[blockIdx.x] = sum;
}

static int hash_blocks(uint64_t packs)
{
    const int blocks = np_blocks((packs + AT_ONCE - 1) / AT_ONCE);

    return blocks < NP_CUDA_HASH_PARTS ? blocks : NP_CUDA_HASH_PARTS;
}

extern "C" void np_cuda_hash(
    void *stream, const float *x, uint64_t n, uint64_t first, uint64_t *parts)
{
    const uint32_t *words = (const uint32_t *)x;

    if (n % 4 == 0 && np_aligned(x))
        NP_LAUNCH((hash<4>), hash_blocks(n / 4), NP_THREADS, 0, stream, words, n, first, parts);
    else
        NP_LAUNCH((hash<1>), hash_blocks(n), NP_THREADS, 0, stream, words, n, first, parts);
}
