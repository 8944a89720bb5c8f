/* Sets made for tests of the pipeline: pictures whose pixels say which sample they are, in
 * one file, raw or as PPM, some of them zstd frames, some of them damaged. */
#ifndef NP_MADE_SET_H
#define NP_MADE_SET_H

#include "loader/source/index.h"

enum made_kind {
    MADE_RAW,
    MADE_PPM,
    MADE_ZSTD,
    MADE_FOLDER,
    MADE_JPEG, /* the same three with JPEGs: other pixels, which are as noisy */
    MADE_JPEG_ZSTD,
    MADE_JPEG_FOLDER
};

struct made_set {
    char dir[64];
    char path[96]; /* of the one file */
    struct np_index *index;
    int n, height, width;
};

enum { MADE_CLASSES = 3 };

/* n pictures of height x width x 3 in a new folder under /tmp; 0, or 1 when that fails. */
int made_set(enum made_kind kind, int n, int height, int width, struct made_set *ret_set);
void made_set_free(struct made_set *set);
/* The index alone of a set whose class c has sizes[c] samples, with the classes interleaved;
 * labelled: not the last. */
struct np_index *made_classes(const int *sizes, int nr_classes, bool labelled);
/* Pixel byte i of sample s. */
uint8_t made_byte(uint64_t s, int i);
/* Writes over the file: bytes at the sample's offset plus `at`. */
void made_damage(const struct made_set *set, uint64_t s, int at, const void *bytes, int nr_bytes);
/* The file, cut behind the first half of sample s (the last one it holds). */
void made_cut(const struct made_set *set, uint64_t s);

#endif
