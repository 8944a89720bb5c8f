/* The vector instructions of this CPU, or fewer with NNPIPE_CPU (sse2, avx2 or avx512) in the
 * environment, so that tests can run all code on any machine. Any thread. */
#ifndef NP_VECTORS_H
#define NP_VECTORS_H

#include <stdbool.h>

/* NP_AVX2: with FMA and BMI2; NP_AVX512: F, BW. Each includes the previous ones. */
enum np_vectors { NP_SSE2, NP_AVX2, NP_AVX512, NP_AVX512_BF16 };

enum np_vectors np_vectors_used(void);
/* NP_AVX512 or above, with VNNI and VBMI, which some of those CPUs lack. */
bool np_vectors_vnni(void);
const char *np_vectors_name(void); /* of the instructions in use, on which rounding depends too */
/* For tests, before threads start: limits the instructions to `max`. Returns those in use. */
enum np_vectors np_vectors_limit(enum np_vectors max);

#endif
