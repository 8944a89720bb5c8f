/* torch's generator of random numbers on the CPU, and the draws that torchvision's transforms make
 * from it, bit for bit. The generator is MT19937 (Matsumoto and Nishimura, 1998); how torch makes
 * numbers of a type from its 32-bit words was found by comparing with torch 2.15, see
 * tests/unit/test_torch_rng.c. A state belongs to one thread at a time. */
#ifndef NP_TORCH_RNG_H
#define NP_TORCH_RNG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NP_TORCH_WORDS       624
#define NP_TORCH_STATE_BYTES 5056 /* of torch.get_rng_state() */

struct np_torch_rng {
    uint32_t words[NP_TORCH_WORDS];
    int next; /* the word to use next; NP_TORCH_WORDS: all are used */
};

/* torch.manual_seed(seed). */
void np_torch_seed(struct np_torch_rng *rng, uint64_t seed);
/* Reads torch.get_rng_state(). False: it is not such a state. */
bool np_torch_read(struct np_torch_rng *rng, const void *state, size_t bytes);
/* Changes a state that np_torch_read() has read, so that it continues where rng is. */
void np_torch_write(const struct np_torch_rng *rng, void *state);

/* torch.empty(1).uniform_(from, to).item(). fused: multiplication and addition are rounded once, as
 * in torch's code for AVX2 and AVX-512; its code for any x86-64 rounds twice. */
float np_torch_uniform(struct np_torch_rng *rng, float from, float to, bool fused);
/* torch.randint(0, n, (1,)).item(); 1 <= n < 2^28: torch draws twice as many bits for larger n. */
int64_t np_torch_below(struct np_torch_rng *rng, int64_t n);

#endif
