#include "loader/base/rng.h"

#include <assert.h>
#include <math.h>

/* Multipliers and Weyl constants: Salmon et al., SC'11, table 2. */
#define MUL0  0xD2511F53u
#define MUL1  0xCD9E8D57u
#define WEYL0 0x9E3779B9u
#define WEYL1 0xBB67AE85u

void np_philox(const uint32_t key[2], const uint32_t counter[4], uint32_t ret_words[4])
{
    uint32_t k0 = key[0], k1 = key[1];
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];

    for (int round = 0; round < 10; round++, k0 += WEYL0, k1 += WEYL1) {
        uint64_t p0 = (uint64_t)MUL0 * c0, p1 = (uint64_t)MUL1 * c2;

        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
    }
    ret_words[0] = c0;
    ret_words[1] = c1;
    ret_words[2] = c2;
    ret_words[3] = c3;
}

/* The key of (seed, stream) is a Philox block, so that similar seeds share nothing. */
static void mix_key(uint64_t seed, enum np_stream stream, uint32_t ret_key[2])
{
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    const uint32_t counter[4] = {(uint32_t)stream, 0x6e6e7069u, 0, 0};
    uint32_t words[4];

    np_philox(key, counter, words);
    ret_key[0] = words[0];
    ret_key[1] = words[1];
}

void np_draws_init(struct np_draws *draws, uint64_t seed, enum np_stream stream, uint32_t epoch,
    uint32_t position, uint32_t op)
{
    mix_key(seed, stream, draws->key);
    draws->counter[0] = epoch;
    draws->counter[1] = position;
    draws->counter[2] = op;
    draws->counter[3] = 0;
    draws->nr_left = 0;
    draws->sample = 0;
}

uint32_t np_draw_u32(struct np_draws *draws)
{
    if (draws->nr_left == 0) {
        np_philox(draws->key, draws->counter, draws->words);
        draws->counter[3]++;
        draws->nr_left = 4;
    }
    return draws->words[4 - draws->nr_left--];
}

/* Lemire, "Fast random integer generation in an interval", ACM TOMACS 29, 2019. */
uint32_t np_draw_below(struct np_draws *draws, uint32_t n)
{
    uint64_t product = (uint64_t)np_draw_u32(draws) * n;

    if ((uint32_t)product < n) {
        uint32_t reject = -n % n;

        while ((uint32_t)product < reject)
            product = (uint64_t)np_draw_u32(draws) * n;
    }
    return (uint32_t)(product >> 32);
}

double np_draw_uniform(struct np_draws *draws)
{
    return np_draw_u32(draws) * 0x1p-32;
}

double np_draw_normal(struct np_draws *draws)
{
    double u = (np_draw_u32(draws) + 1.0) * 0x1p-32; /* (0, 1]: its logarithm is finite */
    double angle = 2 * 3.14159265358979323846 * np_draw_uniform(draws);

    return sqrt(-2 * log(u)) * cos(angle);
}

/* A Feistel network in two halves, on the fewest bits that hold n values: each round changes one
 * half by a keyed function of the other. Luby and Rackoff, "How to construct pseudorandom
 * permutations from pseudorandom functions", SIAM J. Comput. 17, 1988; repeated for values beyond
 * n: Black and Rogaway, "Ciphers with arbitrary finite domains", 2002. */

/* With few bits a round changes little, and eight rounds favour some orders of few things; 32 do
 * not (measured over all orders of 2 to 6). */
static int nr_rounds(unsigned bits)
{
    return bits < 8 ? 32 : 8;
}

/* One multiplication would leave the difference of two halves visible in the result. */
static inline uint32_t round_function(uint32_t half, uint64_t key)
{
    uint64_t x = (half ^ key) * 0x9E3779B97F4A7C15ull;

    x ^= x >> 32;
    x *= 0xD6E8FEB86659FD93ull;
    return (uint32_t)(x >> 32);
}

uint64_t np_permute(
    uint64_t n, uint64_t seed, enum np_stream stream, uint32_t epoch, uint32_t attempt, uint64_t i)
{
    unsigned bits = n > 1 ? 64 - (unsigned)__builtin_clzll(n - 1) : 0, low_bits = bits / 2;
    uint32_t low_mask = (1u << low_bits) - 1, high_mask = (1u << (bits - low_bits)) - 1;
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    const uint32_t counter[4] = {epoch, attempt, 0, 0x70657200u + (uint32_t)stream};
    uint32_t words[4];
    uint64_t first_key, step;
    const int rounds = nr_rounds(bits);

    assert(n >= 1 && n <= 1ull << 32 && i < n);
    np_philox(key, counter, words);
    first_key = (uint64_t)words[1] << 32 | words[0];
    step = (uint64_t)words[3] << 32 | words[2]; /* from one round's key to the next */
    do {
        uint32_t low = (uint32_t)i & low_mask, high = (uint32_t)(i >> low_bits) & high_mask;
        uint64_t round_key = first_key;

        for (int round = 0; round < rounds; round += 2, round_key += 2 * step) {
            high ^= round_function(low, round_key) & high_mask;
            low ^= round_function(high, round_key + step) & low_mask;
        }
        i = (uint64_t)high << low_bits | low;
    } while (i >= n);
    return i;
}
