/* The entries of one JPEG of a row: loads them from the store of its set before the picture is
 * decoded, and puts them into the store when the decoder came further than before. With entries, a
 * part of the file is enough for a crop. One thread. Errors: -ENOMEM alone; if anything is wrong
 * with entries, the picture is decoded without them. */
#ifndef NP_ROW_ENTRIES_H
#define NP_ROW_ENTRIES_H

#include "loader/pixels/jpeg.h"
#include "loader/source/entries.h"

/* A smaller file gets none: it is decoded as fast as its entries are found. */
#define NP_ENTRIES_MIN_BYTES 8192

struct np_row_entries;
struct np_row_entries *np_row_entries_new(struct np_err *err); /* NULL: no memory */
void np_row_entries_free(struct np_row_entries *entries);

struct np_row_picture {
    struct np_entries *store; /* of its set; NULL: none */
    uint64_t sample;
    uint64_t mark;     /* as in struct np_entries_of; 0: not known */
    uint32_t nr_bytes; /* of the file */
    const uint8_t *bytes;
    bool checked; /* all bytes were compared with the checksum in the index */
};
/* Begins a picture and loads its entries; needs only store, sample, mark and nr_bytes. Waits for
 * the disk if the store is not in the page cache. */
int np_row_entries_load(
    struct np_row_entries *entries, const struct np_row_picture *picture, struct np_err *err);

/* True: a part of the file may be enough. Then the needed parts of its header are copied to
 * `bytes`, from which np_decoder_open() opens it. */
bool np_row_entries_header(const struct np_row_entries *entries, uint8_t *bytes, size_t room);
/* Sets the range of bytes of the file, without its header, that `need` takes; *ret_to is exclusive.
 * False: some of these rows have no entries. */
bool np_row_entries_span(const struct np_row_entries *entries, const struct np_jpeg *jpeg,
    const struct np_rect *need, uint32_t *ret_from, uint32_t *ret_to);

/* Gives the decoder, which has opened the picture, its entries. need: the bytes in memory are those
 * of np_row_entries_span(); NULL: all are. *ret_given false: there are no entries, or they belong
 * to other bytes. */
int np_row_entries_give(struct np_row_entries *entries, const struct np_row_picture *picture,
    const struct np_rect *need, struct np_jpeg *jpeg, bool *ret_given, struct np_err *err);
/* After a decoding of the picture with all bytes in memory: puts its entries into the store, if
 * they are more than before. */
int np_row_entries_keep(struct np_row_entries *entries, const struct np_row_picture *picture,
    const struct np_jpeg *jpeg, struct np_err *err);

#endif
