/* Drawn shapes, for the source `synth` and `nnpipe data synth`. One shape per picture, in random
 * colour, size, place and rotation, on a striped and noisy background, so that no single pixel
 * shows the class. */
#ifndef NP_SYNTH_H
#define NP_SYNTH_H

#include <stdint.h>

#define NP_SYNTH_CLASSES 8

/* In byte order: "circle", "cross", ... */
extern const char *const np_synth_names[NP_SYNTH_CLASSES];

/* Draws sample i of seed: u8 (size, size, 3); ret_label may be NULL. Pure; any thread; about 0.1 ms
 * for 32 pixels. size >= 8. */
void np_synth_draw(uint64_t seed, uint64_t i, int size, uint8_t *rgb, int *ret_label);
int np_synth_label(uint64_t seed, uint64_t i);

#endif
