/* Writes shards, which are tar archives with members CLASS/NAME.EXT, and their index with the
 * CRC-32C of each record. Either .tar, with large records at multiples of 4096 for direct I/O (a
 * pax comment fills the gap), or .tar.zst of independent frames of whole members (16 KiB, or one
 * larger member) with a seek table. Shards get their names when all of them are synced. One thread;
 * blocks on the disk. */
#ifndef NP_PACK_H
#define NP_PACK_H

#include "loader/batch.h"
#include "loader/source/index.h"

struct np_pack_options {
    const char *out;     /* folder; created if it is missing */
    const char *name;    /* shards are NAME-00000.tar[.zst] */
    int64_t shard_bytes; /* bytes of content after which a shard ends */
    int zstd_level;      /* 0: plain .tar */
    bool align;          /* plain: records at multiples of 4096 */
};

struct np_pack_result {
    uint64_t samples, bytes; /* bytes: of the shards */
    int nr_shards;
    char pattern[4096]; /* a value for `path:` in a config */
};

struct np_packer;
/* -EEXIST: the folder has shards of this name. */
int np_packer_open(
    const struct np_pack_options *options, struct np_packer **ret_packer, struct np_err *err);
/* Adds a member to a class (NULL: none). Its name is the last part of `name` (with a number if a
 * member has that name) and the extension (NULL: that of `name`). */
int np_packer_add(struct np_packer *packer, const char *class_name, const char *name,
    const char *extension, const void *bytes, uint32_t nr_bytes, struct np_err *err);
/* Finishes and renames the shards, writes the index, and frees the packer. After an error removes
 * its files. */
int np_packer_close(
    struct np_packer *packer, struct np_pack_result *ret_result, struct np_err *err);
/* Removes the files and frees the packer; NULL: does nothing. */
void np_packer_abort(struct np_packer *packer);

struct np_repack {
    int64_t resize;  /* max shorter side in pixels; 0: unchanged */
    int64_t quality; /* JPEG 1..100; 0: 90 if pixels must become JPEG */
    bool raw;        /* members are PPM and PGM */
    enum np_pixels_rule pixels;
    uint64_t max_pixels; /* as np_decoder_limit() */
};

struct np_repacker;
int np_repacker_new(const struct np_repack *options, const struct np_raw *raw,
    struct np_repacker **ret_repacker, struct np_err *err);
void np_repacker_free(struct np_repacker *repacker);
/* Returns the bytes of a member, valid until the next call. JPEG and PNG stay unchanged unless an
 * option needs other pixels; pixels without a format become PPM or PGM. *ret_extension NULL: the
 * bytes are unchanged. -EBADMSG: the sample cannot be decoded. */
int np_repack(struct np_repacker *repacker, const uint8_t *bytes, uint32_t nr_bytes,
    const uint8_t **ret_bytes, uint32_t *ret_nr_bytes, const char **ret_extension,
    struct np_err *err);

#endif
