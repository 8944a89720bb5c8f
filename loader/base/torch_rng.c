/* See torch_rng.h. */
#include "loader/base/torch_rng.h"

#include <math.h>
#include <string.h>

#define MIDDLE 397 /* MT19937's m */

/* torch.get_rng_state(): ATen's CPUGeneratorImplStateLegacy, and 8 bytes of float32 normals. */
struct torch_state {
    uint64_t seed;
    int32_t left, seeded;
    uint64_t next;
    uint64_t words[NP_TORCH_WORDS];
    double normals[3];
    int32_t has_normal, padding;
    float normal;
    uint32_t has_float_normal;
};
_Static_assert(sizeof(struct torch_state) == NP_TORCH_STATE_BYTES, "as torch has it");

void np_torch_seed(struct np_torch_rng *rng, uint64_t seed)
{
    rng->words[0] = (uint32_t)seed;
    for (uint32_t i = 1; i < NP_TORCH_WORDS; i++)
        rng->words[i] = 1812433253u * (rng->words[i - 1] ^ rng->words[i - 1] >> 30) + i;
    rng->next = NP_TORCH_WORDS;
}

bool np_torch_read(struct np_torch_rng *rng, const void *state, size_t bytes)
{
    struct torch_state torch;

    if (bytes != sizeof(torch))
        return false;
    memcpy(&torch, state, sizeof(torch));
    if (torch.left < 1 || torch.left > NP_TORCH_WORDS || torch.next > NP_TORCH_WORDS ||
        (torch.left > 1 && torch.next != (uint64_t)(NP_TORCH_WORDS + 1 - torch.left)))
        return false;
    for (int i = 0; i < NP_TORCH_WORDS; i++) {
        if (torch.words[i] > UINT32_MAX)
            return false;
        rng->words[i] = (uint32_t)torch.words[i];
    }
    rng->next = NP_TORCH_WORDS + 1 - torch.left;
    return true;
}

void np_torch_write(const struct np_torch_rng *rng, void *state)
{
    struct np_torch_rng before;
    struct torch_state torch;

    memcpy(&torch, state, sizeof(torch));
    if (np_torch_read(&before, state, sizeof(torch)) && before.next == rng->next &&
        memcmp(before.words, rng->words, sizeof(before.words)) == 0)
        return; /* a new state has another `next`, which means the same */
    torch.left = NP_TORCH_WORDS + 1 - rng->next;
    torch.next = (uint64_t)rng->next;
    for (int i = 0; i < NP_TORCH_WORDS; i++)
        torch.words[i] = rng->words[i];
    memcpy(state, &torch, sizeof(torch));
}

static uint32_t twist(uint32_t high, uint32_t low)
{
    const uint32_t mixed = (high & 0x80000000u) | (low & 0x7fffffffu);

    return mixed >> 1 ^ ((low & 1) ? 0x9908b0dfu : 0);
}

static void next_words(uint32_t *w)
{
    for (int i = 0; i < NP_TORCH_WORDS; i++)
        w[i] = w[(i + MIDDLE) % NP_TORCH_WORDS] ^ twist(w[i], w[(i + 1) % NP_TORCH_WORDS]);
}

static uint32_t next_word(struct np_torch_rng *rng)
{
    uint32_t y;

    if (rng->next == NP_TORCH_WORDS) {
        next_words(rng->words);
        rng->next = 0;
    }
    y = rng->words[rng->next++];
    y ^= y >> 11;
    y ^= y << 7 & 0x9d2c5680u;
    y ^= y << 15 & 0xefc60000u;
    return y ^ y >> 18;
}

float np_torch_uniform(struct np_torch_rng *rng, float from, float to, bool fused)
{
    const float x = (float)(next_word(rng) & 0xffffff) * 0x1p-24f, range = to - from;

    return fused ? fmaf(x, range, from) : x * range + from;
}

int64_t np_torch_below(struct np_torch_rng *rng, int64_t n)
{
    return next_word(rng) % (uint32_t)n;
}
