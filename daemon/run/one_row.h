/* Makes a row from an encoded picture in memory, by the loader's stages for test rows. One thread at
 * a time. */
#ifndef NP_ONE_ROW_H
#define NP_ONE_ROW_H

#include "daemon/run/inference.h"

struct np_one_row;
/* net is borrowed. Pictures above config's loader.max_pixels are refused. */
int np_one_row_new(
    const struct np_inference *net, struct np_one_row **ret_maker, struct np_err *err);
void np_one_row_free(struct np_one_row *maker);
/* Fills row, u8 (height, width, channels) of net->setup.sets. nr_bytes: below 4 GiB.
 * Errors: those of np_row_make(). */
int np_one_row_make(
    struct np_one_row *maker, const void *bytes, size_t nr_bytes, uint8_t *row, struct np_err *err);
size_t np_one_row_bytes(const struct np_inference *net);

#endif
