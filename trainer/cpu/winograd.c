/* Eight channels at a time; any thread. */
#include "trainer/cpu/winograd.h"

#include <immintrin.h>
#include <stdint.h>

#include "trainer/cpu/simd.h"

#define AVX2   __attribute__((target("avx2,fma"), optimize("O3"))) /* unrolls loops */
#define INLINE static inline __attribute__((always_inline, target("avx2,fma")))

bool np_winograd_usable(void)
{
    /* With AVX-512 oneDNN's own kernels are faster. */
    return np_vectors_used() == NP_AVX2;
}

INLINE __m256 load(const void *data, size_t i, bool half)
{
    if (!half)
        return _mm256_loadu_ps((const float *)data + i);
    return _mm256_castsi256_ps(_mm256_slli_epi32(
        _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)((const uint16_t *)data + i))), 16));
}

/* Round to nearest even; a NaN stays one. */
INLINE void store(void *data, size_t i, bool half, __m256 v)
{
    if (!half) {
        _mm256_storeu_ps((float *)data + i, v);
        return;
    }
    __m256i bits = _mm256_castps_si256(v);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    __m256i up = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    __m256i word = _mm256_srli_epi32(_mm256_blendv_epi8(up, quiet, nan), 16);
    __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(word, word), 0xd8);

    _mm_storeu_si128((__m128i *)((uint16_t *)data + i), _mm256_castsi256_si128(packed));
}

INLINE __m256 times(float a, __m256 b, __m256 plus) /* a * b + plus */
{
    return _mm256_fmadd_ps(_mm256_set1_ps(a), b, plus);
}

/* B' d: 6 -> 6 */
INLINE void input_line(const __m256 d[6], __m256 r[6])
{
    __m256 a = times(-4, d[2], d[4]), b = times(-4, d[1], d[3]);
    __m256 c = _mm256_sub_ps(d[4], d[2]), e = _mm256_sub_ps(d[3], d[1]);

    r[0] = times(4, d[0], times(-5, d[2], d[4]));
    r[1] = _mm256_add_ps(a, b);
    r[2] = _mm256_sub_ps(a, b);
    r[3] = times(2, e, c);
    r[4] = times(-2, e, c);
    r[5] = times(4, d[1], times(-5, d[3], d[5]));
}

/* A' m: 6 -> 4 */
INLINE void output_line(const __m256 m[6], __m256 r[4])
{
    __m256 s12 = _mm256_add_ps(m[1], m[2]), d12 = _mm256_sub_ps(m[1], m[2]);
    __m256 s34 = _mm256_add_ps(m[3], m[4]), d34 = _mm256_sub_ps(m[3], m[4]);

    r[0] = _mm256_add_ps(_mm256_add_ps(m[0], s12), s34);
    r[1] = times(2, d34, d12);
    r[2] = times(4, s34, s12);
    r[3] = _mm256_add_ps(times(8, d34, d12), m[5]);
}

/* A d: 4 -> 6 */
INLINE void gradient_line(const __m256 d[4], __m256 r[6])
{
    __m256 even = _mm256_add_ps(d[0], d[2]), odd = _mm256_add_ps(d[1], d[3]);
    __m256 even2 = times(4, d[2], d[0]), odd2 = times(4, d[3], d[1]);

    r[0] = d[0];
    r[1] = _mm256_add_ps(even, odd);
    r[2] = _mm256_sub_ps(even, odd);
    r[3] = times(2, odd2, even2);
    r[4] = times(-2, odd2, even2);
    r[5] = d[3];
}

/* G g: 3 -> 6 */
INLINE void weight_line(const __m256 g[3], __m256 r[6])
{
    __m256 ends = _mm256_add_ps(g[0], g[2]), sixth = _mm256_set1_ps(-1.0f / 6);
    __m256 far = times(1.0f / 24, g[0], _mm256_mul_ps(_mm256_set1_ps(1.0f / 6), g[2]));

    r[0] = _mm256_mul_ps(_mm256_set1_ps(0.25f), g[0]);
    r[1] = _mm256_mul_ps(sixth, _mm256_add_ps(ends, g[1]));
    r[2] = _mm256_mul_ps(sixth, _mm256_sub_ps(ends, g[1]));
    r[3] = times(1.0f / 12, g[1], far);
    r[4] = times(-1.0f / 12, g[1], far);
    r[5] = g[2];
}

/* G' u: 6 -> 3 */
INLINE void weight_gradient_line(const __m256 u[6], __m256 r[3])
{
    __m256 s12 = _mm256_add_ps(u[1], u[2]), d12 = _mm256_sub_ps(u[1], u[2]);
    __m256 s34 = _mm256_add_ps(u[3], u[4]), d34 = _mm256_sub_ps(u[3], u[4]);
    __m256 near = _mm256_mul_ps(_mm256_set1_ps(-1.0f / 6), s12);

    r[0] = times(0.25f, u[0], times(1.0f / 24, s34, near));
    r[1] = times(1.0f / 12, d34, _mm256_mul_ps(_mm256_set1_ps(-1.0f / 6), d12));
    r[2] = _mm256_add_ps(times(1.0f / 6, s34, near), u[5]);
}

/* Finds the starts of a tile's `side` lines; lines outside the picture are zeros. */
INLINE void find_lines(const struct np_wg_image *image, const struct np_wg_tile *tile, int side,
    const float *zeros, const char *lines[6])
{
    size_t bytes = image->half ? sizeof(uint16_t) : sizeof(float),
           line = (size_t)(image->w * image->c);
    const char *first =
        (const char *)image->data + ((size_t)tile->row * (size_t)image->h * line) * bytes +
        ((ptrdiff_t)tile->y * (ptrdiff_t)line + (ptrdiff_t)tile->x * image->c) * (ptrdiff_t)bytes;

    for (int i = 0; i < side; i++)
        lines[i] = tile->y + i >= 0 && tile->y + i < image->h
                       ? first + (ptrdiff_t)((size_t)i * line * bytes)
                       : (const char *)zeros;
}

/* Returns the place of channel c of row (tile or input) i in panels of n rows and `channels`
 * channels. */
INLINE size_t panel_at(int c, int i, int n, int channels)
{
    int panel = c / NP_WG_PANEL * NP_WG_PANEL;
    int width = channels - panel < NP_WG_PANEL ? channels - panel : NP_WG_PANEL;

    return (size_t)panel * (size_t)n + (size_t)(i * width + c - panel);
}

/* One line of a tile of `side` (a constant): 6 of an input, 4 of a gradient. */
INLINE void tile_line(const __m256 *d, __m256 r[6], int side)
{
    if (side == 6)
        input_line(d, r);
    else
        gradient_line(d, r);
}

INLINE void tile_in(const struct np_wg_image *image, const struct np_wg_tile *tile, int side,
    const char *const lines[6], int c, bool half, float *out, size_t point_stride)
{
    __m256 columns[6][6], d[6], r[6];

    for (int x = 0; x < side; x++) {
        if ((side == 6 && tile->x + x < 0) || tile->x + x >= image->w) {
            for (int y = 0; y < 6; y++)
                columns[y][x] = _mm256_setzero_ps();
            continue;
        }
        for (int y = 0; y < side; y++)
            d[y] = load(lines[y], (size_t)(x * image->c + c), half);
        tile_line(d, r, side);
        for (int y = 0; y < 6; y++)
            columns[y][x] = r[y];
    }
    for (int y = 0; y < 6; y++) {
        tile_line(columns[y], r, side);
        for (int x = 0; x < 6; x++)
            _mm256_storeu_ps(out + (size_t)(y * 6 + x) * point_stride, r[x]);
    }
}

/* Inputs lie in rows of channels, gradients in panels. */
INLINE void tiles_in(const struct np_wg_image *image, const struct np_wg_tile *tiles, int side,
    bool half, const struct np_wg_matrices *out, const float *zeros)
{
    for (int t = 0; t < out->nr_tiles; t++) {
        const char *lines[6];

        find_lines(image, &tiles[t], side, zeros, lines);
        for (int c = 0; c < image->c; c += 8)
            tile_in(image, &tiles[t], side, lines, c, half,
                out->data + (side == 6 ? (size_t)t * out->row_stride + (size_t)c
                                       : panel_at(c, t, out->nr_tiles, image->c)),
                out->point_stride);
    }
}

AVX2 void np_wg_input(const struct np_wg_image *image, const struct np_wg_tile *tiles,
    const struct np_wg_matrices *out, const float *zeros)
{
    if (image->half)
        tiles_in(image, tiles, 6, true, out, zeros);
    else
        tiles_in(image, tiles, 6, false, out, zeros);
}

AVX2 void np_wg_gradient(const struct np_wg_image *image, const struct np_wg_tile *tiles,
    const struct np_wg_matrices *out, const float *zeros)
{
    if (image->half)
        tiles_in(image, tiles, 4, true, out, zeros);
    else
        tiles_in(image, tiles, 4, false, out, zeros);
}

INLINE void output_tile(const float *in, size_t point_stride, const struct np_wg_image *image,
    const struct np_wg_tile *tile, void *data, int c, bool half, const float *bias, bool relu)
{
    __m256 lines[4][6], m[6], r[4], plus = bias ? _mm256_loadu_ps(bias + c) : _mm256_setzero_ps();
    int h = image->h - tile->y, w = image->w - tile->x;
    size_t at = (((size_t)tile->row * (size_t)image->h + (size_t)tile->y) * (size_t)image->w +
                    (size_t)tile->x) *
                    (size_t)image->c +
                (size_t)c;

    for (int x = 0; x < 6; x++) {
        for (int y = 0; y < 6; y++)
            m[y] = _mm256_loadu_ps(in + (size_t)(y * 6 + x) * point_stride);
        output_line(m, r);
        for (int y = 0; y < 4; y++)
            lines[y][x] = r[y];
    }
    for (int y = 0; y < 4; y++) {
        if (y >= h)
            break;
        output_line(lines[y], r);
        for (int x = 0; x < 4; x++) {
            __m256 v = _mm256_add_ps(r[x], plus);

            if (x >= w)
                break;
            if (relu) /* a NaN stays */
                v = _mm256_andnot_ps(_mm256_cmp_ps(v, _mm256_setzero_ps(), _CMP_LT_OQ), v);
            store(data, at + (size_t)((y * image->w + x) * image->c), half, v);
        }
    }
}

INLINE void output_tiles(const struct np_wg_matrices *in, const struct np_wg_tile *tiles,
    const struct np_wg_image *image, void *data, bool half, const float *bias, bool relu)
{
    for (int t = 0; t < in->nr_tiles; t++)
        for (int c = 0; c < image->c; c += 8)
            output_tile(in->data + (size_t)t * in->row_stride + c, in->point_stride, image,
                &tiles[t], data, c, half, bias, relu);
}

AVX2 void np_wg_output(const struct np_wg_matrices *in, const struct np_wg_tile *tiles,
    const struct np_wg_image *image, void *data, const float *bias, bool relu)
{
    if (image->half)
        output_tiles(in, tiles, image, data, true, bias, relu);
    else
        output_tiles(in, tiles, image, data, false, bias, relu);
}

AVX2 void np_wg_weights(const float *weights, int out, int in, bool back, float *panels)
{
    int rows = back ? out : in, columns = back ? in : out; /* of each matrix */
    size_t point_stride = (size_t)out * (size_t)in;

    for (int column = 0; column < columns; column += 8)
        for (int row = 0; row < rows; row++) {
            float g[9][8];
            __m256 lines[6][3], three[3], r[6];
            float *to = panels + panel_at(column, row, rows, columns);

            for (int i = 0; i < 8; i++) {
                size_t pair = back ? (size_t)row * (size_t)in + (size_t)(column + i)
                                   : (size_t)(column + i) * (size_t)in + (size_t)row;

                for (int k = 0; k < 9; k++)
                    g[k][i] = weights[pair * 9 + (size_t)(back ? 8 - k : k)];
            }
            for (int x = 0; x < 3; x++) {
                for (int y = 0; y < 3; y++)
                    three[y] = _mm256_loadu_ps(g[y * 3 + x]);
                weight_line(three, r);
                for (int y = 0; y < 6; y++)
                    lines[y][x] = r[y];
            }
            for (int y = 0; y < 6; y++) {
                weight_line(lines[y], r);
                for (int x = 0; x < 6; x++)
                    _mm256_storeu_ps(to + (size_t)(y * 6 + x) * point_stride, r[x]);
            }
        }
}

AVX2 void np_wg_weight_gradient(
    const float *panels, int out, int in, int first, int end, float *weights)
{
    size_t point_stride = (size_t)out * (size_t)in;

    for (int o = 0; o < out; o += 8)
        for (int i = first; i < end; i++) {
            float g[9][8];
            __m256 lines[3][6], six[6], r[3];
            const float *from = panels + panel_at(o, i, in, out);

            for (int x = 0; x < 6; x++) {
                for (int y = 0; y < 6; y++)
                    six[y] = _mm256_loadu_ps(from + (size_t)(y * 6 + x) * point_stride);
                weight_gradient_line(six, r);
                for (int y = 0; y < 3; y++)
                    lines[y][x] = r[y];
            }
            for (int y = 0; y < 3; y++) {
                weight_gradient_line(lines[y], r);
                for (int x = 0; x < 3; x++)
                    _mm256_storeu_ps(g[y * 3 + x], r[x]);
            }
            for (int k = 0; k < 8; k++)
                for (int w = 0; w < 9; w++)
                    weights[((size_t)(o + k) * (size_t)in + (size_t)i) * 9 + (size_t)w] = g[w][k];
        }
}

/* m rows (at most 6) by n vectors (1 or 2), all of k: 12 sums in registers. */
INLINE void block(int m, int n, const struct np_wg_product *p, const float *a, const float *b,
    float *c, size_t c_row)
{
    __m256 sums[6][2];

    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++)
            sums[i][j] =
                p->add ? _mm256_loadu_ps(c + (size_t)i * c_row + 8 * j) : _mm256_setzero_ps();
    for (int k = 0; k < p->k; k++) {
        __m256 b0 = _mm256_loadu_ps(b), b1 = n > 1 ? _mm256_loadu_ps(b + 8) : b0;

        for (int i = 0; i < m; i++) {
            __m256 x = _mm256_broadcast_ss(a + (size_t)i * p->a_row);

            sums[i][0] = _mm256_fmadd_ps(x, b0, sums[i][0]);
            if (n > 1)
                sums[i][1] = _mm256_fmadd_ps(x, b1, sums[i][1]);
        }
        a += p->a_step;
        b += 8 * n;
    }
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++)
            _mm256_storeu_ps(c + (size_t)i * c_row + 8 * j, sums[i][j]);
}

INLINE void panel(const struct np_wg_product *p, int n, const float *b, float *c, size_t c_row)
{
    int i = 0;

    for (; i + 6 <= p->m; i += 6)
        block(6, n, p, p->a + (size_t)i * p->a_row, b, c + (size_t)i * c_row, c_row);
    const float *a = p->a + (size_t)i * p->a_row;
    float *last = c + (size_t)i * c_row;

    switch (p->m - i) {
    case 5: block(5, n, p, a, b, last, c_row); break;
    case 4: block(4, n, p, a, b, last, c_row); break;
    case 3: block(3, n, p, a, b, last, c_row); break;
    case 2: block(2, n, p, a, b, last, c_row); break;
    case 1: block(1, n, p, a, b, last, c_row); break;
    default: break;
    }
}

AVX2 void np_wg_multiply(const struct np_wg_product *p)
{
    for (int n = 0; n < p->n; n += NP_WG_PANEL) {
        const float *b = p->b + (size_t)n * (size_t)p->k;
        float *c = p->c + (p->c_panels ? (size_t)n * (size_t)p->m : (size_t)n);

        if (p->n - n >= NP_WG_PANEL)
            panel(p, 2, b, c, p->c_panels ? NP_WG_PANEL : p->c_row);
        else
            panel(p, 1, b, c, p->c_panels ? 8 : p->c_row);
    }
}

AVX2 void np_wg_add(float *to, const float *from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] += from[i];
}

AVX2 void np_wg_sum(
    const struct np_wg_image *image, int first_row, int nr_rows, bool add, float *sum)
{
    size_t pixels = (size_t)image->h * (size_t)image->w, c = (size_t)image->c;
    size_t first = (size_t)first_row * pixels, end = first + (size_t)nr_rows * pixels;

    for (size_t k = 0; k < c; k += 8) {
        __m256 total = add ? _mm256_loadu_ps(sum + k) : _mm256_setzero_ps();

        for (size_t p = first; p < end; p++)
            total = _mm256_add_ps(total, load(image->data, p * c + k, image->half));
        _mm256_storeu_ps(sum + k, total);
    }
}
