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
    int third_h, third_v;   /* of the third, if they are not the second's; 0: they are */
    bool progressive, arithmetic, rgb, ycck;
    bool own_codes; /* Huffman tables made for it, not the usual ones */
    bool noise;     /* pixels of noise: many large coefficients */
    bool smooth;    /* pixels without edges: few coefficients */
    bool wide;      /* quantisers of 16 bits, at a low quality */
    int restart;    /* MCUs; 0: none */
    int quality;
};

/* u8 (height, width, channels), malloc'd: a pattern with edges, gradients and noise. */
uint8_t *made_pixels(int width, int height, int channels, unsigned seed);
/* malloc'd bytes of a JPEG of such pixels. */
uint8_t *made_jpeg(const struct made_jpeg *made, size_t *ret_nr_bytes);

#endif
