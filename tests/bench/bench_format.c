/* The last pass of a row (np_format_row()) beside memcpy() of as many bytes as it writes: us a row
 * of 224 x 224 x 3, median (least to most) of the rounds, of this thread's CPU time. Rows go to the
 * slots of a ring in turn: 512 MiB, or 1 MiB as if the batches were small. The pixels are in the L2
 * cache.
 *   bench_format [ROUNDS]; tests/bench/bench_format.sh builds it */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "loader/base/mem.h"
#include "loader/base/vectors.h"
#include "loader/pixels/format.h"

#define SIDE   224
#define PIXELS (SIDE * SIDE * 3)
#define LARGE  (512u << 20)
#define ROUNDS 51

static const char *const types[] = {"uint8", "float32", "bfloat16", "float16"};
static const enum np_vectors levels[] = {NP_SSE2, NP_AVX2, NP_AVX512};
static uint8_t pixels[PIXELS], source[PIXELS * 4];

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

/* formatter NULL: memcpy. */
static double one_round(
    const struct np_formatter *formatter, uint8_t *ring, size_t ring_bytes, size_t row_bytes)
{
    static size_t at;
    const int rows = 40;
    uint64_t start = now_ns();

    for (int i = 0; i < rows; i++, at += row_bytes) {
        if (at + row_bytes > ring_bytes)
            at = 0;
        if (formatter)
            np_format_row(formatter, pixels, ring + at);
        else
            memcpy(ring + at, source, row_bytes);
    }
    return (double)(now_ns() - start) / rows;
}

static void print(double *ns, int rounds, double memcpy_ns)
{
    qsort(ns, (size_t)rounds, sizeof(*ns), compare);
    printf(" %.1f (%.1f to %.1f)", ns[rounds / 2] * 1e-3, ns[0] * 1e-3, ns[rounds - 1] * 1e-3);
    if (memcpy_ns > 0)
        printf(", %.2fx", ns[rounds / 2] / memcpy_ns);
    printf(" |");
}

static void measure(struct np_batch_shape *shape, const struct np_format_table *table,
    uint8_t *ring, size_t ring_bytes, int rounds)
{
    static double ns[4][1000];
    struct np_formatter *formatters[4] = {NULL};
    const size_t row_bytes = np_batch_row_bytes(shape);
    int n = 1;

    for (size_t l = 0; l < sizeof(levels) / sizeof(*levels); l++)
        if (np_vectors_limit(levels[l]) == levels[l])
            formatters[n++] = np_formatter_new(shape, table, NULL);
    np_vectors_limit(NP_AVX512_BF16);
    for (int r = -1; r < rounds; r++) /* the first one warms up */
        for (int i = 0; i < n; i++)
            ns[i][r < 0 ? 0 : r] = one_round(formatters[i], ring, ring_bytes, row_bytes);
    printf("| %s, %s | %s |", types[shape->format.type], shape->format.planar ? "nchw" : "nhwc",
        ring_bytes == LARGE ? "512 MiB" : "1 MiB");
    for (int i = 0; i < n; i++) {
        print(ns[i], rounds, i ? ns[0][rounds / 2] : 0);
        np_formatter_free(formatters[i]);
    }
    printf("\n");
}

int main(int argc, char **argv)
{
    static const float mean[3] = {0.485f, 0.456f, 0.406f}, std[3] = {0.229f, 0.224f, 0.225f};
    const int rounds = argc > 1 ? atoi(argv[1]) : ROUNDS;
    struct np_format_table table;
    uint8_t *ring = np_page_allocator.alloc(NULL, LARGE);

    if (!ring || rounds < 1 || rounds > 1000)
        return 2;
    memset(ring, 1, LARGE);
    for (int i = 0; i < PIXELS; i++)
        pixels[i] = (uint8_t)(i * 7 + i / 224);
    np_format_normalized(mean, std, 3, &table);
    printf("| rows | ring | memcpy | plain C | AVX2 | AVX-512 |\n|---|---|---|---|---|---|\n");
    for (int large = 1; large >= 0; large--)
        for (int i = 1; i < 8; i++) {
            struct np_batch_shape shape = {
                large ? 50 : 1, SIDE, SIDE, 3, {(enum np_row_type)(i / 2), i % 2}, 0, 0, 0, NULL};

            measure(&shape, &table, ring, large ? LARGE : 1u << 20, rounds);
        }
    np_page_allocator.free(NULL, ring, LARGE);
    return 0;
}
