/* Walking a tar archive's headers: v7, ustar, pax, GNU long names and base-256 sizes. Any bytes
 * are taken: what is no archive gives an error with the place, never more. Also writes headers. */
#ifndef NP_TAR_H
#define NP_TAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "loader/base/err.h"

#define NP_TAR_BLOCK    512
#define NP_TAR_MAX_NAME 4095

/* Reads up to `bytes` at offset of the (decompressed) archive: the number read, less only at the
 * end; or a negative errno with err filled. */
typedef int64_t (*np_tar_read_fn)(
    void *context, uint64_t offset, void *buffer, size_t bytes, struct np_err *err);

struct np_tar_member {
    char name[NP_TAR_MAX_NAME + 1]; /* a leading "./" is dropped */
    char type;                      /* '0' regular; '5' folder, '1' '2' links, ... as in ustar */
    bool sparse;                    /* its bytes lie in pieces: cannot be used */
    bool torn;                      /* the archive ends inside it; `bytes` is what is there of it */
    uint64_t header_offset;         /* of its first header, extended ones included */
    uint64_t data_offset, bytes;
    uint64_t whole_bytes; /* what it should have */
};

/* A walk under way. One thread. */
struct np_tar {
    np_tar_read_fn read;
    void *context;
    const char *path; /* for errors; borrowed */
    uint64_t offset;  /* of the next header */
    uint64_t window_offset;
    size_t window_bytes, window_want;
    uint8_t *window; /* read ahead; owned */
    bool ended;
    bool torn;            /* the archive ends inside a member ... */
    bool torn_member;     /* ... that was handed out */
    uint64_t nr_members;  /* whole ones so far */
    uint64_t last_offset; /* header of the last whole member */
    char last_name[256];  /* its name, for errors */
};

/* path is borrowed. read is called with context, from np_tar_next(). */
int np_tar_init(
    struct np_tar *tar, const char *path, np_tar_read_fn read, void *context, struct np_err *err);
/* The next member: 1, or 0 at the end; a negative errno for what is no tar header (-EBADMSG; the
 * text names the last whole member) or cannot be read. An archive that ends inside a member gives
 * that member with `torn`, or just sets tar->torn when not even its header is whole. */
int np_tar_next(struct np_tar *tar, struct np_tar_member *ret_member, struct np_err *err);
void np_tar_fini(struct np_tar *tar);

/* A header block for a regular file; a name of over 100 bytes is split at a '/' or, where that
 * cannot be, -ENAMETOOLONG (np_tar_put_pax() carries it). Times and owners are zero. */
int np_tar_put_header(uint8_t block[NP_TAR_BLOCK], const char *name, uint64_t bytes, char type);
/* A pax record "LENGTH key=value\n" into text; its length. text NULL: only the length. */
size_t np_tar_pax_record(char *text, const char *key, const char *value);

#endif
