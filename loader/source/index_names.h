/* The coded names of an index. For index*.c alone.
 *
 * Names are coded in blocks of NP_INDEX_RESTART, each as: varint number of bytes shared with the
 * front of the previous name, varint number of bytes shared with its end, varint length of the
 * middle, the middle. The first name of a block shares nothing. */
#ifndef NP_INDEX_NAMES_H
#define NP_INDEX_NAMES_H

#include "loader/source/index.h"

#define NP_INDEX_RESTART 16

/* Decodes the name at *at into text (NP_MAX_NAME + 1 bytes), which holds the previous name of
 * *length bytes (first: there is none). False: the bytes are not a coded name. */
bool np_index_decode_name(
    const uint8_t **at, const uint8_t *end, bool first, char *text, int *length);

#endif
