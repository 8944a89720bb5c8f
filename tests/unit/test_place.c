/* Copies without a resize: every instruction set against a loop over pixels, with the picture's
 * memory between pages that may not be touched. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "loader/base/rng.h"
#include "loader/base/vectors.h"
#include "loader/pixels/place.h"
#include "tests/test.h"

enum { MAX_N = 150, MAX_ROWS = 40, MAX_BYTES = MAX_N * MAX_ROWS * 3 };

static const enum np_vectors levels[] = {NP_SSE2, NP_AVX2, NP_AVX512_BF16};

/* Memory of some pages whose neighbours cannot be read. */
static uint8_t *between_walls(size_t *ret_bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), bytes = (MAX_BYTES + page) / page * page;
    uint8_t *memory =
        mmap(NULL, bytes + 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    cr_assert(memory != MAP_FAILED);
    cr_assert_eq(mprotect(memory, page, PROT_NONE), 0);
    cr_assert_eq(mprotect(memory + page + bytes, page, PROT_NONE), 0);
    *ret_bytes = bytes;
    return memory + page;
}

static void fill(struct np_draws *draws, uint8_t *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        bytes[i] = (uint8_t)(1 + np_draw_below(draws, 255));
}

static void expect_rows(const struct np_placing *placing, int nr_rows, uint8_t *out)
{
    for (int y = 0; y < nr_rows; y++)
        for (int x = 0; x < placing->n; x++) {
            const int from = placing->flip ? placing->n - 1 - x : x;
            const bool shown = from >= placing->first && from < placing->end;

            for (int c = 0; c < placing->channels; c++)
                *out++ = shown ? placing->src[y * placing->stride +
                                              (from - placing->first) * placing->channels + c]
                               : 0;
        }
}

/* The picture ends with its memory, or begins with it. */
static void draw_placing(struct np_draws *draws, uint8_t *memory, size_t bytes,
    struct np_placing *placing, int *ret_rows)
{
    const int n = 1 + (int)np_draw_below(draws, MAX_N), channels = np_draw_below(draws, 4) ? 3 : 1;
    const int first = (int)np_draw_below(draws, (uint32_t)n + 1);
    const int end = first + (int)np_draw_below(draws, (uint32_t)(n - first) + 1);
    const int nr_rows = (int)np_draw_below(draws, MAX_ROWS);
    const size_t row = (size_t)(end - first) * (size_t)channels;
    const size_t stride = row + np_draw_below(draws, (uint32_t)(n * channels) - (uint32_t)row + 1);
    const size_t used = nr_rows ? stride * (size_t)(nr_rows - 1) + row : 0;

    *placing = (struct np_placing){.src = np_draw_below(draws, 2) ? memory : memory + bytes - used,
        .stride = (ptrdiff_t)stride,
        .channels = channels,
        .n = n,
        .first = first,
        .end = end,
        .flip = np_draw_below(draws, 2)};
    *ret_rows = nr_rows;
}

Test(place, rows_are_the_same_with_every_instruction_set)
{
    uint8_t *want = malloc(MAX_BYTES + 1), *out = malloc(MAX_BYTES + 1);
    struct np_draws draws;
    size_t bytes;
    uint8_t *memory = between_walls(&bytes);

    np_draws_init(&draws, 7, NP_STREAM_TEST, 0, 0, 0);
    fill(&draws, memory, bytes);
    for (int i = 0; i < 3000; i++) {
        struct np_placing placing;
        int nr_rows;

        draw_placing(&draws, memory, bytes, &placing, &nr_rows);
        const size_t n = (size_t)nr_rows * (size_t)placing.n * (size_t)placing.channels;
        expect_rows(&placing, nr_rows, want);
        for (size_t v = 0; v < sizeof(levels) / sizeof(*levels); v++) {
            np_vectors_limit(levels[v]);
            memset(out, 0xa5, n + 1);
            np_place_rows(&placing, nr_rows, out);
            cr_assert(memcmp(out, want, n) == 0 && out[n] == 0xa5,
                "%s, case %d: %d rows of %d columns, %d to %d, %d channels, flip %d",
                np_vectors_name(), i, nr_rows, placing.n, placing.first, placing.end,
                placing.channels, placing.flip);
        }
    }
    np_vectors_limit(NP_AVX512_BF16);
    free(want);
    free(out);
}

Test(place, planes_become_pixels_with_every_instruction_set)
{
    size_t bytes;
    uint8_t *memory = between_walls(&bytes), out[3 * MAX_N + 1];
    struct np_draws draws;

    np_draws_init(&draws, 8, NP_STREAM_TEST, 0, 0, 0);
    fill(&draws, memory, bytes);
    for (size_t n = 0; n <= MAX_N; n++)
        for (size_t v = 0; v < sizeof(levels) / sizeof(*levels); v++) {
            const size_t plane = n + np_draw_below(&draws, 9);
            const uint8_t *planes = memory + bytes - 2 * plane - n;

            np_vectors_limit(levels[v]);
            out[3 * n] = 0xa5;
            np_place_planes(planes, plane, n, out);
            cr_assert_eq(out[3 * n], 0xa5);
            for (size_t i = 0; i < 3 * n; i++)
                cr_assert_eq(out[i], planes[i % 3 * plane + i / 3], "%s, %zu pixels, byte %zu",
                    np_vectors_name(), n, i);
        }
    np_vectors_limit(NP_AVX512_BF16);
}
