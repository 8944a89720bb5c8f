/* Small images made for tests: pixels with edges and noise, and JPEGs of every kind. */
#ifndef NP_MADE_IMAGES_H
#define NP_MADE_IMAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct made_jpeg {
    int width, height;
    int components;         /* 1, 3 or 4 */
    int h, v;               /* sampling factors of the first component */
    int chroma_h, chroma_v; /* of the second and third; 0: 1 */
    bool progressive, arithmetic, rgb, ycck;
    bool own_codes; /* Huffman tables made for it, not the usual ones */
    bool noise;     /* pixels of noise: many large coefficients */
    int restart;    /* MCUs; 0: none */
    int quality;
};

/* u8 (height, width, channels), malloc'd: a pattern with edges, gradients and noise. */
uint8_t *made_pixels(int width, int height, int channels, unsigned seed);
/* malloc'd bytes of a JPEG of such pixels. */
uint8_t *made_jpeg(const struct made_jpeg *made, size_t *ret_nr_bytes);

#endif
