/* The entries of one JPEG that a row is made from: taken from the store of its set before the
 * picture is decoded, and put there when it was decoded further than before. With entries, a part of
 * the file is enough for a crop. A struct belongs to one thread. Errors: -ENOMEM alone; whatever is
 * wrong with entries, the picture is decoded without them. */
#ifndef NP_ROW_ENTRIES_H
#define NP_ROW_ENTRIES_H

#include "loader/pixels/jpeg.h"
#include "loader/source/entries.h"

/* A smaller file gets none: decoding it is not worth more than finding them. */
#define NP_ENTRIES_MIN_BYTES 8192

struct np_row_entries;
struct np_row_entries *np_row_entries_new(struct np_err *err); /* NULL: no memory */
void np_row_entries_free(struct np_row_entries *entries);

struct np_row_picture {
    struct np_entries *store; /* of its set; NULL: none */
    uint64_t sample;          /* in the set's index */
    uint64_t mark;            /* as np_entries_of has it; 0: not known */
    uint32_t nr_bytes;        /* of the file */
    const uint8_t *bytes;
    bool checked; /* all bytes are those whose checksum the index has */
};
/* Begins a picture, of which only store, sample, mark and nr_bytes need be known: reads its entries.
 * Waits for the disk if the store is not in the page cache. */
int np_row_entries_load(
    struct np_row_entries *entries, const struct np_row_picture *picture, struct np_err *err);

/* Can a part of the file be enough? Then the parts of its header that matter are copied to `bytes`,
 * from which np_decoder_open() opens it. */
bool np_row_entries_header(const struct np_row_entries *entries, uint8_t *bytes, size_t room);
/* Finds the bytes of the file, but for its header, that `need` takes; *ret_to is outside. False: it
 * takes rows without entries. */
bool np_row_entries_span(const struct np_row_entries *entries, const struct np_jpeg *jpeg,
    const struct np_rect *need, uint32_t *ret_from, uint32_t *ret_to);

/* Gives the decoder, which has opened the picture, its entries. need: the bytes in memory are those
 * of np_row_entries_span(); NULL: they are all. Sets *ret_given: false if there are no entries, or
 * they are not of these bytes. */
int np_row_entries_give(struct np_row_entries *entries, const struct np_row_picture *picture,
    const struct np_rect *need, struct np_jpeg *jpeg, bool *ret_given, struct np_err *err);
/* After the decoder has decoded the picture, all of whose bytes are in memory: puts its entries into
 * the store, if they are more than were there. */
int np_row_entries_keep(struct np_row_entries *entries, const struct np_row_picture *picture,
    const struct np_jpeg *jpeg, struct np_err *err);

#endif
