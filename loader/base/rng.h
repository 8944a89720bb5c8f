/* Random numbers without state: every number is a function of a key and a counter, so that a
 * sample's draws depend on seed and position only. Any thread. Philox4x32-10: Salmon et al.,
 * "Parallel random numbers: as easy as 1, 2, 3", SC'11. */
#ifndef NP_RNG_H
#define NP_RNG_H

#include <stdint.h>

/* The use of a draw; part of the key, like the seed. */
enum np_stream {
    NP_STREAM_ORDER,
    NP_STREAM_AUGMENT,
    NP_STREAM_INIT,
    NP_STREAM_DROPOUT,
    NP_STREAM_SPLIT,
    NP_STREAM_SYNTH,
    NP_STREAM_TEST,
    NP_STREAM_MIX,
    NP_STREAM_BALANCE
};

void np_philox(const uint32_t key[2], const uint32_t counter[4], uint32_t ret_words[4]);

/* The draws of one operation on one sample. May be copied. */
struct np_draws {
    uint32_t key[2];     /* mixed from (seed, stream) */
    uint32_t counter[4]; /* epoch, position, op, draw */
    uint32_t words[4];
    int nr_left;     /* of words */
    uint64_t sample; /* its number in the set, for what must not depend on the epoch's order */
};

void np_draws_init(struct np_draws *draws, uint64_t seed, enum np_stream stream, uint32_t epoch,
    uint32_t position, uint32_t op);
uint32_t np_draw_u32(struct np_draws *draws);
uint32_t np_draw_below(struct np_draws *draws, uint32_t n); /* unbiased (Lemire), n >= 1 */
double np_draw_uniform(struct np_draws *draws);             /* [0, 1), 32 bits */
double np_draw_normal(struct np_draws *draws);              /* Box-Muller, mean 0, variance 1 */

/* Position i of a keyed permutation of 0..n-1 (1 <= n <= 2^32, i < n): a Feistel network on the
 * next power of two, repeated until the value is below n. Pure; 40 to 90 ns at 2.4 GHz, 200 below n
 * = 128. */
uint64_t np_permute(
    uint64_t n, uint64_t seed, enum np_stream stream, uint32_t epoch, uint32_t attempt, uint64_t i);

#endif
