/* Walks a tar archive's headers: v7, ustar, pax, GNU long names and base-256 sizes. Hostile bytes
 * give an error with the offset, nothing worse. Also writes headers. */
#ifndef NP_TAR_H
#define NP_TAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "loader/base/err.h"

#define NP_TAR_BLOCK    512
#define NP_TAR_MAX_NAME 4095

/* Reads up to `bytes` at offset of the (decompressed) archive. Returns the number of bytes read,
 * fewer only at the end; or a negative errno with err set. */
typedef int64_t (*np_tar_read_fn)(
    void *context, uint64_t offset, void *buffer, size_t bytes, struct np_err *err);

struct np_tar_member {
    char name[NP_TAR_MAX_NAME + 1]; /* a leading "./" is dropped */
    char type;              /* as in ustar: '0' regular, '5' folder, '1' and '2' links, ... */
    bool sparse;            /* the archive stores only pieces of it: unusable */
    bool truncated;         /* the archive ends inside it; `bytes` are left */
    uint64_t header_offset; /* of its first header, extended ones included */
    uint64_t data_offset, bytes;
    uint64_t whole_bytes; /* by its header */
};

/* The state of a walk. One thread. */
struct np_tar {
    np_tar_read_fn read;
    void *context;
    const char *path; /* for errors; borrowed */
    uint64_t offset;  /* of the next header */
    uint64_t window_offset;
    size_t window_bytes, window_want;
    uint8_t *window; /* read ahead; owned */
    bool ended;
    bool truncated;        /* the archive ends inside a member ... */
    bool truncated_member; /* ... that np_tar_next() returned */
    uint64_t nr_members;   /* whole ones so far */
    uint64_t last_offset;  /* header of the last whole member */
    char last_name[256];   /* its name, for errors */
};

/* path is borrowed. np_tar_next() calls read with context. */
int np_tar_init(
    struct np_tar *tar, const char *path, np_tar_read_fn read, void *context, struct np_err *err);
/* Finds the next member. Returns 1, or 0 at the end. -EBADMSG: not a tar header, and the text names
 * the last whole member; else the read's error. A member that the archive's end truncates is
 * returned with `truncated`; if not even its header is whole, only tar->truncated is set. */
int np_tar_next(struct np_tar *tar, struct np_tar_member *ret_member, struct np_err *err);
void np_tar_fini(struct np_tar *tar);

/* Writes a header block. A name of over 100 bytes is split at a '/'; -ENAMETOOLONG if that is not
 * possible (a pax record can hold it). Times and owners are zero. */
int np_tar_put_header(uint8_t block[NP_TAR_BLOCK], const char *name, uint64_t bytes, char type);
/* Writes the pax record "LENGTH key=value\n" into text (may be NULL); returns its length. */
size_t np_tar_pax_record(char *text, const char *key, const char *value);

#endif
