/* Philox4x32-10 and what is drawn from it. Pure; any thread. */
#include "loader/base/rng.h"

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

/* Key of (seed, stream): a Philox block itself, so that nearby seeds share nothing. */
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

/* Eight rounds of an unbalanced-free Feistel network over 2*half_bits bits; the round function is
 * a 64-bit multiply-xorshift of (half, round key). */
#define ROUNDS 8

static uint32_t round_function(uint32_t half, uint32_t key)
{
    uint64_t x = ((uint64_t)key << 32 | half) * 0x9E3779B97F4A7C15ull;

    x ^= x >> 32;
    x *= 0xD6E8FEB86659FD93ull;
    return (uint32_t)(x >> 32);
}

uint64_t np_permute(
    uint64_t n, uint64_t seed, enum np_stream stream, uint32_t epoch, uint32_t attempt, uint64_t i)
{
    uint32_t key[2], keys[ROUNDS];
    unsigned half_bits = 1;
    uint32_t mask;

    mix_key(seed, stream, key);
    for (uint32_t block = 0; block < ROUNDS / 4; block++) {
        const uint32_t counter[4] = {epoch, attempt, block, 0x7065726du};

        np_philox(key, counter, keys + 4 * block);
    }
    while (half_bits < 16 && n > 1ull << 2 * half_bits)
        half_bits++;
    mask = half_bits == 16 ? 0xffff : (1u << half_bits) - 1;
    do {
        uint32_t left = (uint32_t)(i >> half_bits) & mask, right = (uint32_t)i & mask;

        for (int round = 0; round < ROUNDS; round++) {
            uint32_t next = left ^ (round_function(right, keys[round]) & mask);

            left = right;
            right = next;
        }
        i = (uint64_t)left << half_bits | right;
    } while (i >= n);
    return i;
}
