/* A shard is written as NAME.part, in blocks of 1 MiB. All shards get their names at the end, so
 * that a killed packing leaves no shard that looks complete. */
#include "loader/pack/pack.h"

#include <errno.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <xxhash.h>

#include "loader/base/crc32c.h"
#include "loader/base/mem.h"
#include "loader/source/seekable.h"
#include "loader/source/source_scan.h"
#include "loader/source/tar.h"

#define BUFFER_BYTES (1u << 20)
#define FRAME_BYTES  (16u << 10) /* of content: for a small record a reader unpacks this much */
#define ALIGN        4096u
#define MAX_HEAD     (32u << 10) /* of a member's headers: pax with a long name and an alignment */

struct shards {
    struct np_pack_options options;
    struct np_index *index;
    struct np_io io;
    int fd; /* of the open shard; -1: none */
    int nr_shards, nr_published;
    uint64_t content, written; /* of the open shard */
    uint64_t bytes;            /* of all shards */
    size_t buffered;
    uint8_t *buffer;               /* (BUFFER_BYTES) */
    struct np_seek_writer *frames; /* NULL: a plain .tar */
    uint8_t *frame;                /* content of the open frame */
    size_t frame_bytes, frame_room;
    uint64_t frame_first;
};

static char *path_of(const struct shards *shards, int shard, const char *ending, struct np_err *err)
{
    return np_try_format(err, "%s/%s-%05d.tar%s%s", shards->options.out, shards->options.name,
        shard, shards->options.zstd_level ? ".zst" : "", ending);
}

static void shards_fini(struct shards *shards)
{
    if (shards->fd >= 0)
        close(shards->fd);
    for (int i = shards->nr_published; i < shards->nr_shards; i++) {
        char *path = path_of(shards, i, ".part", NULL);

        if (path)
            unlink(path);
        np_free(path);
    }
    np_io_close(&shards->io);
    np_seek_writer_free(shards->frames);
    np_free(shards->buffer);
    np_free(shards->frame);
}

static int shards_init(struct shards *shards, struct np_err *err)
{
    int code;

    shards->buffer = np_try_alloc(BUFFER_BYTES, err);
    code = shards->buffer ? np_io_open(&shards->io, "pread", 1, err) : -ENOMEM;
    if (!code && shards->options.zstd_level)
        code = np_seek_writer_new(shards->options.zstd_level, &shards->frames, err);
    return code;
}

/* --- bytes --------------------------------------------------------------- */

static int flush(struct shards *shards, struct np_err *err)
{
    const size_t bytes = shards->buffered;

    shards->buffered = 0;
    return bytes ? np_io_append(&shards->io, shards->fd, shards->buffer, bytes, err) : 0;
}

static int put(struct shards *shards, const void *bytes, size_t n, struct np_err *err)
{
    const uint8_t *from = bytes;
    int code = 0;

    shards->written += n;
    while (n && !code) {
        const size_t room = BUFFER_BYTES - shards->buffered, part = n < room ? n : room;

        memcpy(shards->buffer + shards->buffered, from, part);
        shards->buffered += part;
        from += part;
        n -= part;
        if (shards->buffered == BUFFER_BYTES)
            code = flush(shards, err);
    }
    return code;
}

/* Compresses and writes the open frame, and stores the extents of its samples. */
static int end_frame(struct shards *shards, struct np_err *err)
{
    const uint64_t offset = shards->written, n = np_index_samples(shards->index);
    const void *frame;
    size_t bytes;
    int code;

    if (shards->frame_bytes == 0)
        return 0;
    code = np_seek_writer_frame(
        shards->frames, shards->frame, shards->frame_bytes, &frame, &bytes, err);
    if (!code)
        code = put(shards, frame, bytes, err);
    for (uint64_t i = shards->frame_first; !code && i < n; i++)
        if (np_index_record(shards->index, i)->packing == NP_PACKING_ZSTD)
            np_index_set_extent(shards->index, i, offset, (uint32_t)bytes);
    np_index_set_max_inner(shards->index, (uint32_t)shards->frame_bytes);
    shards->frame_first = n;
    shards->frame_bytes = 0;
    return code;
}

static int gather(struct shards *shards, const void *bytes, size_t n, struct np_err *err)
{
    if (np_try_grow(&shards->frame, &shards->frame_room, shards->frame_bytes + n, 1, err))
        return -ENOMEM;
    if (n)
        memcpy(shards->frame + shards->frame_bytes, bytes, n);
    shards->frame_bytes += n;
    return 0;
}

/* Adds content to the open frame, or to the file. */
static int write_content(struct shards *shards, const void *bytes, size_t n, struct np_err *err)
{
    shards->content += n;
    return shards->frames ? gather(shards, bytes, n, err) : put(shards, bytes, n, err);
}

/* --- shards -------------------------------------------------------------- */

static int begin_shard(struct shards *shards, struct np_err *err)
{
    char *path = path_of(shards, shards->nr_shards, ".part", err);
    int code = path ? np_io_create(&shards->io, path, &shards->fd, err) : -ENOMEM;

    np_free(path);
    if (code)
        return code;
    shards->nr_shards++;
    shards->content = shards->written = 0;
    return 0;
}

static int put_table(struct shards *shards, struct np_err *err)
{
    size_t bytes;
    uint8_t *table = np_seek_writer_finish(shards->frames, &bytes, err);
    int code = table ? put(shards, table, bytes, err) : -ENOMEM;

    np_free(table);
    return code;
}

static int end_shard(struct shards *shards, struct np_err *err)
{
    static const uint8_t zeros[2 * NP_TAR_BLOCK];
    int code;

    if (shards->fd < 0)
        return 0;
    code = shards->frames ? end_frame(shards, err) : 0;
    if (!code)
        code = write_content(shards, zeros, sizeof(zeros), err);
    if (!code && shards->frames)
        code = end_frame(shards, err);
    if (!code && shards->frames)
        code = put_table(shards, err);
    if (!code)
        code = flush(shards, err);
    shards->bytes += shards->written;
    if (code)
        close(shards->fd);
    else
        code = np_io_sync_close(&shards->io, shards->fd, err);
    shards->fd = -1;
    return code;
}

static int publish(struct shards *shards, struct np_err *err)
{
    int code = end_shard(shards, err);

    while (!code && shards->nr_published < shards->nr_shards) {
        char *from = path_of(shards, shards->nr_published, ".part", err);
        char *to = path_of(shards, shards->nr_published, "", err);

        code = from && to ? np_io_rename(&shards->io, from, to, err) : -ENOMEM;
        shards->nr_published += !code;
        np_free(from);
        np_free(to);
    }
    return code ? code : np_io_sync_dir(&shards->io, shards->options.out, err);
}

/* --- members ------------------------------------------------------------- */

/* Writes a pax header with records, padded to whole blocks. Returns the number of bytes. */
static size_t put_pax(uint8_t *to, const char *records, size_t n)
{
    const size_t whole = (n + NP_TAR_BLOCK - 1) / NP_TAR_BLOCK * NP_TAR_BLOCK;

    np_tar_put_header(to, "pax-header", n, 'x');
    memcpy(to + NP_TAR_BLOCK, records, n);
    memset(to + NP_TAR_BLOCK + n, 0, whole - n);
    return NP_TAR_BLOCK + whole;
}

/* Writes a comment record of exactly n bytes (at least 32), which pads. */
static void put_comment(char *text, size_t n)
{
    const int head = sprintf(text, "%zu comment=", n);

    memset(text + head, ' ', n - (size_t)head);
    text[n - 1] = '\n';
}

/* Writes a member's headers into head (MAX_HEAD), and returns the number of bytes. at: offset of
 * the headers in the archive. */
static size_t make_head(const char *name, uint32_t nr_bytes, uint64_t at, bool align, uint8_t *head)
{
    char records[MAX_HEAD / 2], start[101];
    uint8_t header[NP_TAR_BLOCK];
    size_t used = 0, n = 0;

    if (np_tar_put_header(header, name, nr_bytes, '0') != 0) {
        n = np_tar_pax_record(records, "path", name);
        snprintf(start, sizeof(start), "%s", name); /* for readers without pax */
        np_tar_put_header(header, start, nr_bytes, '0');
        used = put_pax(head, records, n);
    }
    if (align && nr_bytes && (at + used + NP_TAR_BLOCK) % ALIGN) {
        size_t gap = ALIGN - (size_t)((at + 2 * NP_TAR_BLOCK) % ALIGN);

        while (gap < n + 32)
            gap += ALIGN;
        put_comment(records + n, gap - n);
        used = put_pax(head, records, gap); /* a member has one pax header: replaces it */
    }
    memcpy(head + used, header, sizeof(header));
    return used + sizeof(header);
}

static int write_member(struct shards *shards, const char *name, const void *bytes,
    uint32_t nr_bytes, struct np_record *record, struct np_err *err)
{
    static const uint8_t zeros[NP_TAR_BLOCK];
    const size_t rest = nr_bytes % NP_TAR_BLOCK ? NP_TAR_BLOCK - nr_bytes % NP_TAR_BLOCK : 0;
    uint8_t head[MAX_HEAD];
    size_t head_bytes;
    int code = 0;

    if (shards->frames && shards->frame_bytes &&
        shards->frame_bytes + NP_TAR_BLOCK + nr_bytes + rest > FRAME_BYTES)
        code = end_frame(shards, err);
    head_bytes = make_head(name, nr_bytes, shards->content, shards->options.align, head);
    if (!code)
        code = write_content(shards, head, head_bytes, err);
    if (shards->frames && nr_bytes) {
        record->packing = NP_PACKING_ZSTD; /* its extent follows at the end of the frame */
        record->inner_offset = (uint32_t)shards->frame_bytes;
    } else if (nr_bytes)
        record->offset = shards->written;
    if (!code)
        code = write_content(shards, bytes, nr_bytes, err);
    return code ? code : write_content(shards, zeros, rest, err);
}

static int add_member(struct shards *shards, const char *name, const void *bytes, uint32_t nr_bytes,
    struct np_record *record, struct np_err *err)
{
    int code = 0;

    if (shards->fd >= 0 && shards->content >= (uint64_t)shards->options.shard_bytes)
        code = end_shard(shards, err);
    if (!code && shards->fd < 0)
        code = begin_shard(shards, err);
    if (code)
        return code;
    record->file = (uint32_t)shards->nr_shards - 1;
    record->bytes = record->inner_bytes = nr_bytes;
    code = write_member(shards, name, bytes, nr_bytes, record, err);
    return code ? code : np_index_add(shards->index, record, name, shards->options.out, err);
}

/* --- the packer ------------------------------------------------------------------------- */

struct np_packer {
    char *out, *name, *pattern;
    struct shards shards;
    struct np_index *index;
    uint64_t samples, *names; /* names: hash set of the members' names */
    uint64_t names_room;
};

/* A glob would match old and new shards, as one set. */
static int check_empty(const struct np_packer *packer, struct np_err *err)
{
    char *old = np_try_format(err, "%s/%s-[0-9]*.tar*", packer->out, packer->name);
    glob_t found = {0};
    int code = old ? 0 : -ENOMEM;

    if (old && glob(old, GLOB_NOSORT, NULL, &found) == 0)
        for (size_t i = 0; !code && i < found.gl_pathc; i++)
            if (!strstr(found.gl_pathv[i], ".part")) /* of a killed packing */
                code = np_err_set(err, -EEXIST,
                    "%s exists: remove the old shards, or name another folder with --out "
                    "or another set with --split (train, test or val: shards are SET-NNNNN.tar)",
                    found.gl_pathv[i]);
    globfree(&found);
    np_free(old);
    return code;
}

int np_packer_open(
    const struct np_pack_options *options, struct np_packer **ret_packer, struct np_err *err)
{
    struct np_packer *packer = np_try_alloc(sizeof(*packer), err);
    char real[PATH_MAX];
    int code;

    if (!packer)
        return -ENOMEM;
    packer->shards.fd = -1;
    code = np_make_dirs(options->out, err);
    if (!code && !realpath(options->out, real))
        code = np_err_set(err, -errno, "%s: %s", options->out, strerror(errno));
    if (!code) {
        packer->out = np_try_strdup(real, err);
        packer->name = np_try_strdup(options->name, err);
        packer->pattern = np_try_format(
            err, "%s/%s-*.tar%s", real, options->name, options->zstd_level ? ".zst" : "");
        packer->index = np_index_new(err);
        if (!packer->out || !packer->name || !packer->pattern || !packer->index)
            code = -ENOMEM;
    }
    if (!code)
        code = check_empty(packer, err);
    if (!code) {
        packer->shards.options = *options;
        packer->shards.options.out = packer->out;
        packer->shards.options.name = packer->name;
        packer->shards.options.align = options->align && !options->zstd_level;
        packer->shards.index = packer->index;
        code = shards_init(&packer->shards, err);
    }
    if (code)
        np_packer_abort(packer);
    else
        *ret_packer = packer;
    return code;
}

void np_packer_abort(struct np_packer *packer)
{
    if (!packer)
        return;
    shards_fini(&packer->shards);
    np_index_free(packer->index);
    np_free(packer->out);
    np_free(packer->name);
    np_free(packer->pattern);
    np_free(packer->names);
    np_free(packer);
}

/* False: the hash is in the set already. */
static bool add_hash(uint64_t *names, uint64_t room, uint64_t hash)
{
    uint64_t at;

    hash = hash ? hash : 1;
    for (at = hash % room; names[at]; at = (at + 1) % room)
        if (names[at] == hash)
            return false;
    names[at] = hash;
    return true;
}

/* 1: the name is new; 0: a member has it; -ENOMEM. */
static int claim(struct np_packer *packer, const char *name, struct np_err *err)
{
    if (packer->samples * 2 >= packer->names_room) {
        const uint64_t room = packer->names_room ? packer->names_room * 2 : 1024;
        uint64_t *larger = np_try_array(room, sizeof(*larger), err);

        if (!larger)
            return -ENOMEM;
        for (uint64_t i = 0; i < packer->names_room; i++)
            if (packer->names[i])
                add_hash(larger, room, packer->names[i]);
        np_free(packer->names);
        packer->names = larger;
        packer->names_room = room;
    }
    return add_hash(packer->names, packer->names_room, XXH64(name, strlen(name), 0));
}

/* Writes CLASS/BASE.EXT, or CLASS/BASE-NUMBER.EXT if a member has that name. */
static int make_name(struct np_packer *packer, const char *class_name, const char *name,
    const char *extension, char *text, struct np_err *err)
{
    const char *slash = strrchr(name, '/'), *base = slash ? slash + 1 : name;
    const char *dot = strrchr(base, '.');
    const int base_bytes = dot && dot != base ? (int)(dot - base) : (int)strlen(base);
    const char *ending = extension ? extension : dot && dot != base ? dot + 1 : "img";
    const size_t class_bytes = class_name ? strlen(class_name) : 0;
    size_t used = 0;
    int claimed;

    if (class_bytes + (size_t)base_bytes + strlen(ending) + 32 > NP_TAR_MAX_NAME)
        return np_err_set(err, -ENAMETOOLONG, "%s: the name is too long for an archive", name);
    if (class_name)
        used = (size_t)sprintf(text, "%s/", class_name);
    sprintf(text + used, "%.*s.%s", base_bytes, base, ending);
    claimed = claim(packer, text, err);
    if (claimed == 0) {
        sprintf(text + used, "%.*s-%08llu.%s", base_bytes, base,
            (unsigned long long)packer->samples, ending);
        claimed = claim(packer, text, err);
    }
    if (claimed == 0)
        return np_err_set(err, -EEXIST, "%s: two members have this name", text);
    return claimed < 0 ? -ENOMEM : 0;
}

int np_packer_add(struct np_packer *packer, const char *class_name, const char *name,
    const char *extension, const void *bytes, uint32_t nr_bytes, struct np_err *err)
{
    struct np_record record = {
        .crc32c = np_crc32c(0, bytes, nr_bytes), .has_crc = 1, .no_label = !class_name};
    const int label =
        class_name ? np_index_add_class(packer->index, class_name, packer->out, err) : 0;
    char member[NP_TAR_MAX_NAME + 1];
    int code = label < 0 ? label : 0;

    record.label = label < 0 ? 0 : (uint32_t)label;
    if (!code)
        code = make_name(packer, class_name, name, extension, member, err);
    if (!code)
        code = add_member(&packer->shards, member, bytes, nr_bytes, &record, err);
    packer->samples++;
    return code;
}

/* Stores size and mtime of the finished shards in the index. */
static int stamp(struct np_packer *packer, struct np_err *err)
{
    for (int i = 0; i < packer->shards.nr_shards; i++) {
        char *path = path_of(&packer->shards, i, "", err);
        struct stat st;
        int code = 0;

        if (!path)
            code = -ENOMEM;
        else if (stat(path, &st) < 0)
            code = np_err_set(err, -errno, "%s: %s", path, strerror(errno));
        else if (np_index_add_file(packer->index, path, &st, err) < 0)
            code = -ENOMEM;
        np_free(path);
        if (code)
            return code;
    }
    return np_index_finish(packer->index, err);
}

int np_packer_close(struct np_packer *packer, struct np_pack_result *ret_result, struct np_err *err)
{
    char tar[] = "tar", none[] = "";
    const struct np_source_options options = {
        .source = tar, .path = packer->pattern, .match = none, .labels = none, .cache_dir = none};
    int code = packer->samples ? publish(&packer->shards, err)
                               : np_err_set(err, -ENODATA, "no samples to pack");

    if (!code)
        code = stamp(packer, err);
    if (!code)
        code = np_source_save_beside(&options, packer->index, NULL, err);
    if (!code) {
        ret_result->samples = packer->samples;
        ret_result->bytes = packer->shards.bytes;
        ret_result->nr_shards = packer->shards.nr_shards;
        snprintf(ret_result->pattern, sizeof(ret_result->pattern), "%s", packer->pattern);
    }
    np_packer_abort(packer);
    return code;
}
