/* u8 rows (height, width, channels) into the types and layouts of a program, by a table of the value
 * of each pixel: bit for bit what loader/pixels/format.c writes, whose table it is given.
 *
 * A block takes tiles of 1024 pixels: 16-byte loads into shared memory, and from there, in the order
 * of the output, 16-byte stores, neighbours by neighbouring threads. Where rows or planes do not
 * begin at a multiple of 16 bytes, elements move one by one. Loops over packs are not unrolled: a
 * thread takes one to four, and unrolled they spilled registers on sm_80 to sm_90. */
#include "trainer/cuda/launch.h"
#include "trainer/cuda/rows/format_cuda.h"

#define NP_TILE         1024 /* pixels: a multiple of 16, so that tiles of a row stay aligned */
#define NP_FORMAT_BLOCK 256  /* threads */
#define NP_MAX_BLOCKS   2048 /* some for each multiprocessor; each reads the table once */

/* What a block does next: `n` pixels of a row, from pixel `first` on. */
struct np_tile {
    uint64_t row, pixels_per_row;
    int first, n;
};

static __device__ inline struct np_tile np_tile_of(uint64_t number, int tiles, int pixels_per_row)
{
    const int at = (int)(number % (uint64_t)tiles) * NP_TILE, left = pixels_per_row - at;

    return {
        number / (uint64_t)tiles, (uint64_t)pixels_per_row, at, left < NP_TILE ? left : NP_TILE};
}

/* 16 bytes of elements, the first of them in the lowest bits. */
template <typename T, typename F> static __device__ inline uint4 np_sixteen(const F &element)
{
    const int each = 4 / (int)sizeof(T); /* elements of 4 bytes */
    uint32_t words[4];

    NP_UNROLL(4)
    for (int w = 0; w < 4; w++) {
        words[w] = 0;
        NP_UNROLL(4)
        for (int k = 0; k < each; k++)
            words[w] |= element(w * each + k) << (k * 8 * (int)sizeof(T) % 32);
    }
    return {words[0], words[1], words[2], words[3]};
}

/* Writes n elements, of which element(i) gives the bits; whole: `to` is 16-byte aligned. */
template <typename T, typename F>
static __device__ inline void np_write(T *to, int n, bool whole, const F &element)
{
    const int per = 16 / (int)sizeof(T), packs = whole ? n / per : 0;

    NP_UNROLL(1)
    for (int i = (int)threadIdx.x; i < packs; i += NP_FORMAT_BLOCK)
        ((uint4 *)to)[i] = np_sixteen<T>([&](int k) { return element(i * per + k); });
    NP_UNROLL(1)
    for (int i = packs * per + (int)threadIdx.x; i < n; i += NP_FORMAT_BLOCK)
        to[i] = (T)element(i);
}

/* C: channels. bytes: (NP_TILE, C); words: (C, 256); both shared. */
template <typename T, int C>
static __device__ inline void np_write_tile(
    T *out, bool planar, const np_tile &tile, const uint8_t *bytes, const uint32_t *words)
{
    const uint64_t all = tile.pixels_per_row;
    T *row = out + tile.row * all * C;

    if (!planar) {
        np_write(row + (uint64_t)tile.first * C, tile.n * C, all * C * sizeof(T) % 16 == 0,
            [&](int i) { return words[i % C * 256 + bytes[i]]; });
        return;
    }
    NP_UNROLL(4)
    for (int c = 0; c < C; c++)
        np_write(row + c * all + tile.first, tile.n, all * sizeof(T) % 16 == 0,
            [&](int i) { return words[c * 256 + bytes[i * C + c]]; });
}

template <typename T, int C>
static __global__ void __launch_bounds__(NP_FORMAT_BLOCK) format_rows(
    const uint8_t *pixels, T *out, const uint32_t *table, int rows, int pixels_per_row, bool planar)
{
    NP_SHARED(uint4, bytes, [NP_TILE * C / 16]);
    NP_SHARED(uint32_t, words, [C * 256]);
    const int tiles = (pixels_per_row + NP_TILE - 1) / NP_TILE;
    const uint64_t nr_tiles = (uint64_t)tiles * (uint64_t)rows;

    NP_UNROLL(1)
    for (int i = (int)threadIdx.x; i < C * 256; i += NP_FORMAT_BLOCK)
        words[i] = table[i];
    NP_UNROLL(1)
    for (uint64_t number = blockIdx.x; number < nr_tiles; number += gridDim.x) {
        const struct np_tile tile = np_tile_of(number, tiles, pixels_per_row);
        const uint64_t row_bytes = (uint64_t)pixels_per_row * C;
        const uint8_t *from = pixels + tile.row * row_bytes + (uint64_t)tile.first * C;
        const int n = tile.n * C, packs = row_bytes % 16 == 0 ? n / 16 : 0;

        NP_UNROLL(1)
        for (int i = (int)threadIdx.x; i < packs; i += NP_FORMAT_BLOCK)
            bytes[i] = ((const uint4 *)from)[i];
        NP_UNROLL(1)
        for (int i = packs * 16 + (int)threadIdx.x; i < n; i += NP_FORMAT_BLOCK)
            ((uint8_t *)bytes)[i] = from[i];
        __syncthreads();
        np_write_tile<T, C>(out, planar, tile, (const uint8_t *)bytes, words);
        __syncthreads(); /* before the next tile's bytes */
    }
}

template <typename T> static void np_format_as(void *stream, const struct np_cuda_format *format)
{
    const uint64_t tiles = (uint64_t)(format->pixels_per_row + NP_TILE - 1) / NP_TILE;
    const uint64_t all = tiles * (uint64_t)format->rows;
    const unsigned blocks = (unsigned)(all < NP_MAX_BLOCKS ? all : NP_MAX_BLOCKS);
    T *out = (T *)format->out;

    if (format->channels == 1)
        NP_LAUNCH((format_rows<T, 1>), blocks, NP_FORMAT_BLOCK, 0, stream, format->pixels, out,
            format->words, format->rows, format->pixels_per_row, format->planar);
    else
        NP_LAUNCH((format_rows<T, 3>), blocks, NP_FORMAT_BLOCK, 0, stream, format->pixels, out,
            format->words, format->rows, format->pixels_per_row, format->planar);
}

extern "C" void np_cuda_format_rows(void *stream, const struct np_cuda_format *format)
{
    if (format->type_bytes == 1)
        np_format_as<uint8_t>(stream, format);
    else if (format->type_bytes == 2)
        np_format_as<uint16_t>(stream, format);
    else
        np_format_as<uint32_t>(stream, format);
}
