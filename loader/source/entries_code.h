/* The entries of one JPEG: states from which a decoder can begin inside the file, at the start of
 * each row of MCUs and at every `step`th MCU of it; and their coding in a few hundred bytes. Any
 * thread; a struct belongs to one thread at a time. */
#ifndef NP_ENTRIES_CODE_H
#define NP_ENTRIES_CODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "loader/base/err.h"

struct np_entry {
    uint64_t bit;  /* of the file, stuffed bytes counted: where the MCU's first code begins */
    int16_t dc[3]; /* predictors, by component; 0 for a missing component */
};

#define NP_MAX_MCUS          8192 /* across, and down: 65,535 pixels */
#define NP_MAX_KEPT_HEADER   2048
#define NP_MAX_ENTRIES_BYTES (1 << 18) /* of coded entries; entries.h stores no more */

/* Each part of a file has a checksum: part 0, the header, and part 1 + r, the bytes that a decoder
 * reads of row r. These are the bytes from the row's first bit to its last; the next row may share
 * the last byte. The last row's part ends with the file. */
struct np_picture_entries {
    int mcus_across, mcus_down, step; /* 1 to NP_MAX_MCUS each */
    uint32_t header_bytes;            /* before the entropy-coded data, where the first entry is */
    uint32_t file_bytes;
    int nr;              /* np_entries_nr() */
    struct np_entry *at; /* (nr), row after row; the first has dc 0 */
    uint32_t *crcs;      /* (1 + mcus_down): CRC-32C of the parts */
    /* The segments of the header that a decoder needs, to spare a read; at most header_bytes, 0:
     * not stored. */
    uint8_t header[NP_MAX_KEPT_HEADER];
    uint32_t kept_bytes;

    /* bytes allocated */
    size_t at_room, crcs_room;
};

/* mcus_down * (mcus_across / step, rounded up). */
int np_entries_nr(const struct np_picture_entries *entries);
/* Allocates nr entries and the checksums for the three sizes, and sets nr. A zeroed struct is
 * empty; one struct can serve many pictures. -EINVAL: sizes out of range; -ENOMEM. */
int np_entries_hold(struct np_picture_entries *entries, struct np_err *err);
void np_entries_fini(struct np_picture_entries *entries);

/* The bytes of a part, 0 to mcus_down. The entries come from np_entries_decode(), or
 * np_entries_sum() has accepted them. */
void np_entries_part(
    const struct np_picture_entries *entries, int part, uint32_t *ret_offset, uint32_t *ret_bytes);
/* Sets the checksums from the file's bytes (file_bytes of them). -EINVAL: the entries are out of
 * order or outside the file, or np_entries_encode() would refuse them for another reason. */
int np_entries_sum(struct np_picture_entries *entries, const uint8_t *file, struct np_err *err);

/* Codes them into *coded (any pointer from np_hold(), NULL at first; *room: its bytes). Errors as
 * np_entries_sum(); -ENOMEM. */
int np_entries_encode(const struct np_picture_entries *entries, uint8_t **coded, size_t *room,
    size_t *ret_bytes, struct np_err *err);
/* Decodes entries that np_entries_encode() coded for a file of file_bytes; allocates in proportion
 * to nr_bytes. -EBADMSG: np_entries_encode() never makes these bytes; *entries then has no entries,
 * but memory for reuse. -ENOMEM. */
int np_entries_decode(const uint8_t *bytes, size_t nr_bytes, uint32_t file_bytes,
    struct np_picture_entries *entries, struct np_err *err);

#endif
