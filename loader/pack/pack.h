/* Writing shards: plain tar archives anyone can read, members CLASS/NAME.EXT, and their index with
 * the CRC-32C of each record. Two kinds: .tar, each record's bytes at a multiple of 4096 where
 * records are large (for direct I/O; the gap is a pax comment), and .tar.zst of independent frames
 * of whole members (16 KiB, or one member if larger) with a seek table. Shards are written beside
 * their names and renamed when all are whole and on the disk. One thread; blocks on the disk. */
#ifndef NP_PACK_H
#define NP_PACK_H

#include "loader/batch.h"
#include "loader/source/index.h"

struct np_pack_options {
    const char *out;     /* folder; made if need be */
    const char *name;    /* shards are NAME-00000.tar[.zst] */
    int64_t shard_bytes; /* a shard is closed when it has so many, content counted */
    int zstd_level;      /* 0: plain .tar */
    bool align;          /* plain: records at multiples of 4096 */
};

struct np_pack_result {
    uint64_t samples, bytes; /* bytes: of the shards */
    int nr_shards;
    char pattern[4096]; /* what a config's `path:` takes */
};

struct np_packer;
/* -EEXIST: out holds shards of that name already. */
int np_packer_open(
    const struct np_pack_options *options, struct np_packer **ret_packer, struct np_err *err);
/* Adds a member: its class (NULL: none), the name it would like below it ("a/b.jpg": the last part
 * is taken, and a number put in where that is taken), the extension it gets (NULL: the name's). */
int np_packer_add(struct np_packer *packer, const char *class_name, const char *name,
    const char *extension, const void *bytes, uint32_t nr_bytes, struct np_err *err);
/* Finishes the shards, renames them into place, writes the index. Frees the packer, and after an
 * error removes what it has written. */
int np_packer_close(
    struct np_packer *packer, struct np_pack_result *ret_result, struct np_err *err);
/* Gives up: removes what has been written. */
void np_packer_abort(struct np_packer *packer);

/* Pixels as they are to be packed. */
struct np_repack {
    int64_t resize;  /* shorter side at most, pixels; 0: as it is */
    int64_t quality; /* JPEG 1..100; 0: 90 where pixels must be written as JPEG anyway */
    bool raw;        /* PPM and PGM members, no JPEG */
    enum np_pixels_rule pixels;
    uint64_t max_pixels; /* as np_decoder_limit() */
};

/* Samples of a set made ready for a packer. */
struct np_repacker;
int np_repacker_new(const struct np_repack *options, const struct np_raw *raw,
    struct np_repacker **ret_repacker, struct np_err *err);
void np_repacker_free(struct np_repacker *repacker);
/* The member's bytes, the repacker's until its next call. JPEG and PNG are passed on byte for byte
 * where nothing is asked of them; bare pixels become PPM or PGM. *ret_extension: NULL where the
 * bytes are the old ones. -EBADMSG: it cannot be decoded. */
int np_repack(struct np_repacker *repacker, const uint8_t *bytes, uint32_t nr_bytes,
    const uint8_t **ret_bytes, uint32_t *ret_nr_bytes, const char **ret_extension,
    struct np_err *err);

#endif
