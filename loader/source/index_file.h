/* The file of an index. For index*.c alone.
 *
 * Little-endian: struct np_index_header, then the sections in the order of enum np_index_section,
 * each at a multiple of 64 bytes. The header and every section have a CRC-32C. index_names.h has
 * the coding of names; a table has the offset of each of their blocks. */
#ifndef NP_INDEX_FILE_H
#define NP_INDEX_FILE_H

#include "loader/source/index.h"

#define NP_INDEX_MAGIC   "NPINDEX\n"
#define NP_INDEX_VERSION 1

enum np_index_section {
    NP_SECTION_RECORDS, /* struct np_record, nr_samples of them */
    NP_SECTION_BLOCKS,  /* uint64_t: offset in NAMES of each block */
    NP_SECTION_NAMES,
    NP_SECTION_FILES,   /* struct np_index_stamp, nr_files of them */
    NP_SECTION_PATHS,   /* with a NUL each; absolute, or relative to the index's folder */
    NP_SECTION_CLASSES, /* names, each with a NUL */
    NP_SECTION_ROOT,    /* path with a NUL, or nothing */
    NP_SECTION_KEY,     /* text with a NUL */
    NP_NR_SECTIONS
};

struct np_index_header {
    char magic[8];
    uint32_t version, header_bytes;
    uint64_t file_bytes, nr_samples;
    uint32_t nr_files, nr_classes;
    uint32_t raw_kind, raw_height, raw_width, raw_channels;
    uint64_t raw_seed;
    uint32_t max_inner;
    uint32_t header_crc; /* of this header with 0 here */
    struct {
        uint64_t offset, bytes;
        uint32_t crc, unused;
    } sections[NP_NR_SECTIONS];
};

/* Makes an index of a file's bytes (allocated by np_alloc() or malloc(); the index owns them, on
 * failure too), without checking the files that it names. For tests. */
int np_index_parse(
    void *whole, uint64_t bytes, const char *path, struct np_index **ret_index, struct np_err *err);

#endif
