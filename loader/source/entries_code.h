/* The entries of one JPEG: the states in which a decoder can begin in the middle of the file, at
 * the start of each row of MCUs and every `step` MCUs in it; and their coding in a few hundred
 * bytes. Any thread; a struct belongs to one thread at a time. */
#ifndef NP_ENTRIES_CODE_H
#define NP_ENTRIES_CODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "loader/base/err.h"

struct np_entry {
    uint64_t bit;  /* of the file, stuffed bytes counted: where the MCU's first code begins */
    int16_t dc[3]; /* predictors, by component; a component that is missing: 0 */
};

#define NP_MAX_MCUS          8192 /* across, and down: 65,535 pixels */
#define NP_MAX_KEPT_HEADER   2048
#define NP_MAX_ENTRIES_BYTES (1 << 18) /* of coded entries; entries.h stores no more */

/* The part of a file that has a checksum of its own: 0 is the header, 1 + r what a decoder reads of
 * row r: from the byte of the row's first bit to the one of its last, which the next row may share.
 * The last row goes on to the end of the file. */
struct np_picture_entries {
    int mcus_across, mcus_down, step; /* 1 to NP_MAX_MCUS each */
    uint32_t header_bytes;            /* before the entropy-coded data, where the first entry is */
    uint32_t file_bytes;
    int nr;              /* np_entries_nr() */
    struct np_entry *at; /* (nr), row after row; the first has dc 0 */
    uint32_t *crcs;      /* (1 + mcus_down): CRC-32C of the parts */
    /* What a decoder needs of the header, so that nobody has to read it; at most header_bytes, 0: it
     * is not kept. */
    uint8_t header[NP_MAX_KEPT_HEADER];
    uint32_t kept_bytes;

    /* of np_entries_hold(), np_entries_decode() */
    size_t at_room, crcs_room;
};

/* mcus_down * (mcus_across / step, rounded up). */
int np_entries_nr(const struct np_picture_entries *entries);
/* Makes space for nr entries and the checksums, from the three sizes, and sets nr. A zeroed struct
 * is empty; it can be used for many pictures. -EINVAL: sizes out of range; -ENOMEM. */
int np_entries_hold(struct np_picture_entries *entries, struct np_err *err);
void np_entries_fini(struct np_picture_entries *entries);

/* The bytes of a part, 0 to mcus_down, of entries that np_entries_decode() gave, or that
 * np_entries_sum() accepted. */
void np_entries_part(
    const struct np_picture_entries *entries, int part, uint32_t *ret_offset, uint32_t *ret_bytes);
/* Sets the checksums from the file's bytes (file_bytes of them). -EINVAL: the entries are not in
 * order, or outside the file; what else np_entries_encode() would refuse. */
int np_entries_sum(struct np_picture_entries *entries, const uint8_t *file, struct np_err *err);

/* Codes them into *coded (any pointer from np_hold(), NULL at first; *room: its bytes). Errors as
 * np_entries_sum(); -ENOMEM. */
int np_entries_encode(const struct np_picture_entries *entries, uint8_t **coded, size_t *room,
    size_t *ret_bytes, struct np_err *err);
/* Decodes what np_entries_encode() made for a file of file_bytes; its memory is in proportion to
 * nr_bytes. -EBADMSG: other bytes than np_entries_encode() makes; *entries then holds memory to
 * use again, but no entries. -ENOMEM. */
int np_entries_decode(const uint8_t *bytes, size_t nr_bytes, uint32_t file_bytes,
    struct np_picture_entries *entries, struct np_err *err);

#endif
