/* The segment files of the store of entries. For entries*.c alone, but for np_entries_set().
 *
 * INDEX.entries/XXXXXXXX.segment, numbered upwards in hexadecimal: of two records of one sample the
 * one in the higher number counts. Little-endian: struct np_segment_header; the records, each at a
 * multiple of 8 bytes, padded with zeros, in the order of their samples; a table, struct
 * np_segment_item for each record and one more for the end of the last. A file is written as
 * `new.segment`, and renamed when it is complete. */
#ifndef NP_ENTRIES_FILE_H
#define NP_ENTRIES_FILE_H

#include "loader/source/entries_code.h"
#include "loader/source/index.h"

#define NP_SEGMENT_MAGIC   "NPENTRY\n"
#define NP_SEGMENT_VERSION 1

struct np_segment_header {
    char magic[8];
    uint32_t version, nr; /* records */
    uint64_t set;         /* np_entries_set() */
    uint64_t file_bytes, table_offset;
    uint32_t table_crc;
    uint32_t header_crc; /* of this header with 0 here */
};

struct np_segment_item {
    uint32_t sample;
    uint32_t at; /* offset in the file / 8 */
};

/* Followed by the coded entries and 0 to 7 zeros. */
struct np_entries_record {
    uint32_t crc; /* of all that follows, without the zeros */
    uint32_t sample, coded_bytes;
    uint32_t bytes; /* struct np_entries_of */
    uint64_t mark;
};

/* The place of a sample's record: in a segment, or in a batch that waits to be written. */
struct np_entries_slot {
    uint32_t at;    /* offset / 8 */
    uint16_t units; /* bytes / 8, padding included */
    uint8_t where;  /* 0: none */
};

struct np_segment {
    int fd;
    uint32_t number;
    uint64_t file_bytes;
    char *path;
    /* under the lock of struct np_entries */
    uint64_t nr_live; /* slots that point here */
    int nr_users;     /* np_entries_get() that read it */
    bool gone;        /* dropped: its last user closes it */
};

/* A checksum of the samples' names in order, and for archives of the files' sizes and times. In all
 * indexes with this checksum a number means the same sample. */
uint64_t np_entries_set(const struct np_index *index);

static inline size_t np_record_units(size_t coded_bytes)
{
    return (sizeof(struct np_entries_record) + coded_bytes + 7) / 8;
}
/* Sets `crc`. */
void np_record_seal(struct np_entries_record *record);
/* True if it is undamaged, fits in `units`, and belongs to the sample. */
bool np_record_check(const struct np_entries_record *record, size_t units, uint64_t sample);

/* Opens a segment. *ret_items: its table, nr + 1 items, in order, of samples below nr_samples;
 * np_free. -EBADMSG: it is damaged; -ESTALE: of another version, set or user; -ENOMEM. */
int np_segment_open(const char *folder, uint32_t number, uint64_t set, uint64_t nr_samples,
    struct np_segment **ret_segment, struct np_segment_item **ret_items, uint32_t *ret_nr,
    struct np_err *err);
void np_segment_close(struct np_segment *segment);
/* The number in a segment's name; 0: not such a name. */
uint32_t np_segment_number(const char *name);

/* Writes a segment, records in ascending order of samples. */
struct np_segment_writer {
    int fd;
    const char *folder; /* borrowed */
    char *path;
    uint8_t *buffer;
    size_t used;   /* of buffer */
    uint64_t size; /* of the file so far */
    struct np_segment_item *items;
    size_t items_room;
    uint32_t nr;
};
int np_segment_begin(struct np_segment_writer *writer, const char *folder, struct np_err *err);
int np_segment_add(
    struct np_segment_writer *writer, const struct np_entries_record *record, struct np_err *err);
/* Renames the file into place; durable: syncs it first. The table stays in writer->items. */
int np_segment_finish(struct np_segment_writer *writer, uint64_t set, uint32_t number, bool durable,
    struct np_err *err);
/* Frees the writer; removes an unfinished file. */
void np_segment_fini(struct np_segment_writer *writer);

#endif
