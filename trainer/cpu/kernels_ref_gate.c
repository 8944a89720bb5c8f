/* Reference products (squeeze-and-excite, arXiv:1709.01507) and stochastic depth (arXiv:1603.09382),
 * forward and backward. */
#include "loader/base/rng.h"
#include "trainer/cpu/kernels_ref.h"

/* y = a b; b has a's shape, or one number for each row and channel. */
void np_ref_mul(void *state, const struct np_run *run)
{
    struct np_ref *ref = state;
    const struct np_nhwc a = np_ref_shape(ref, ref->node->ins[0]);
    const bool pixels = np_ref_row(np_ref_shape(ref, ref->node->ins[1])) == np_ref_row(a);
    const size_t row = np_ref_row(a), c = (size_t)a.c;
    const size_t first = (size_t)run->first_row * row, n = (size_t)run->nr_rows * row;

    for (size_t i = first; i < first + n; i++)
        np_ref_out(ref, run, 0, i,
            np_ref_in(ref, run, 0, i) * np_ref_in(ref, run, 1, pixels ? i : i / row * c + i % c));
}

/* db = sum over the pixels of dy a */
void np_ref_mul_sum(void *state, const struct np_run *run)
{
    struct np_ref *ref = state;
    const struct np_nhwc a = np_ref_shape(ref, ref->node->ins[0]);
    const size_t row = np_ref_row(a), c = (size_t)a.c;

    for (size_t r = (size_t)run->first_row; r < (size_t)(run->first_row + run->nr_rows); r++)
        for (size_t k = 0; k < c; k++) {
            double sum = 0;

            for (size_t i = r * row + k; i < (r + 1) * row; i += c)
                sum += (double)np_ref_in(ref, run, 0, i) * np_ref_in(ref, run, 1, i);
            np_ref_out(ref, run, 0, r * c + k, (float)sum);
        }
}

/* Forward on x, backward on dy: the same draws, one for each row of the batch. */
void np_ref_drop_rows(void *state, const struct np_run *run)
{
    struct np_ref *ref = state;
    const uint64_t seed = ref->node->attrs.seed, step = run->info->step;
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    const size_t row = np_ref_row(np_ref_shape(ref, ref->node->ins[0]));
    const float scale = (float)(1 / (1 - ref->node->attrs.rate));

    for (int r = run->first_row; r < run->first_row + run->nr_rows; r++) {
        const uint32_t place = (uint32_t)(r + run->info->first_row);
        const uint32_t counter[4] = {place / 4, 0, (uint32_t)step, (uint32_t)(step >> 32)};
        uint32_t words[4];

        np_philox(key, counter, words);
        const bool kept = words[place % 4] * 0x1p-32 >= ref->node->attrs.rate;
        for (size_t i = (size_t)r * row; i < (size_t)(r + 1) * row; i++)
            np_ref_out(ref, run, 0, i, kept ? np_ref_in(ref, run, 0, i) * scale : 0);
    }
}
