/* Writes shards. One under way is NAME.part, its bytes gathered to 1 MiB; all get their names at
 * the end, so that a packing that was killed leaves none that could be taken for whole. */
#include "loader/pack/pack_shard.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "loader/base/mem.h"
#include "loader/source/seekable.h"
#include "loader/source/tar.h"

#define BUFFER_BYTES (1u << 20)
#define FRAME_BYTES  (16u << 10) /* of content: what a random small record costs to unpack */
#define ALIGN        4096u
#define MAX_HEAD     (32u << 10) /* a member's headers: pax of a long name and an alignment */

struct np_shards {
    struct np_pack_options options;
    struct np_index *index;
    struct np_io io;
    bool io_open;
    int fd; /* of the shard under way, -1: none */
    int nr_shards, nr_published;
    uint64_t content, written, bytes; /* of the shard under way; of all */
    size_t buffered;
    uint8_t *buffer;               /* (BUFFER_BYTES) */
    struct np_seek_writer *frames; /* NULL: plain */
    uint8_t *frame;                /* content gathered for the frame under way */
    size_t frame_bytes, frame_room;
    uint64_t frame_first; /* the first sample in it */
};

static int no_memory(struct np_err *err)
{
    return np_err_set(err, -ENOMEM, "out of memory to pack");
}

int np_shards_open(const struct np_pack_options *options, struct np_index *index,
    struct np_shards **ret_shards, struct np_err *err)
{
    struct np_shards *shards = np_try_alloc(sizeof(*shards), NULL);
    int code;

    if (!shards)
        return no_memory(err);
    shards->options = *options;
    shards->index = index;
    shards->fd = -1;
    shards->buffer = np_try_alloc(BUFFER_BYTES, NULL);
    code = shards->buffer ? np_io_open(&shards->io, "pread", 1, err) : no_memory(err);
    shards->io_open = code == 0;
    if (!code && options->zstd_level)
        code = np_seek_writer_new(options->zstd_level, &shards->frames, err);
    if (code) {
        np_shards_free(shards);
        return code;
    }
    *ret_shards = shards;
    return 0;
}

int np_shards_count(const struct np_shards *shards)
{
    return shards->nr_shards;
}

uint64_t np_shards_bytes(const struct np_shards *shards)
{
    return shards->bytes;
}

static char *path_of(const struct np_shards *shards, int shard, const char *ending)
{
    return np_try_format(NULL, "%s/%s-%05d.tar%s%s", shards->options.out, shards->options.name,
        shard, shards->options.zstd_level ? ".zst" : "", ending);
}

char *np_shards_path(const struct np_shards *shards, int shard)
{
    return path_of(shards, shard, "");
}

void np_shards_free(struct np_shards *shards)
{
    if (!shards)
        return;
    if (shards->fd >= 0)
        close(shards->fd);
    for (int i = shards->nr_published; i < shards->nr_shards; i++) {
        char *path = path_of(shards, i, ".part");

        if (path)
            unlink(path);
        np_free(path);
    }
    if (shards->io_open)
        np_io_close(&shards->io);
    np_seek_writer_free(shards->frames);
    np_free(shards->buffer);
    np_free(shards->frame);
    np_free(shards);
}

/* --- bytes --------------------------------------------------------------- */

static int flush(struct np_shards *shards, struct np_err *err)
{
    const size_t bytes = shards->buffered;

    shards->buffered = 0;
    return bytes ? np_io_append(&shards->io, shards->fd, shards->buffer, bytes, err) : 0;
}

static int put(struct np_shards *shards, const void *bytes, size_t n, struct np_err *err)
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

/* Compresses what is gathered; the samples in it now have their place. */
static int end_frame(struct np_shards *shards, struct np_err *err)
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

static int gather(struct np_shards *shards, const void *bytes, size_t n, struct np_err *err)
{
    if (shards->frame_bytes + n > shards->frame_room) {
        const size_t room = 2 * (shards->frame_bytes + n);
        uint8_t *larger = np_try_alloc(room, NULL);

        if (!larger)
            return no_memory(err);
        if (shards->frame_bytes)
            memcpy(larger, shards->frame, shards->frame_bytes);
        np_free(shards->frame);
        shards->frame = larger;
        shards->frame_room = room;
    }
    if (n)
        memcpy(shards->frame + shards->frame_bytes, bytes, n);
    shards->frame_bytes += n;
    return 0;
}

/* Archive bytes: to the frame under way, or to the file. */
static int write_content(struct np_shards *shards, const void *bytes, size_t n, struct np_err *err)
{
    shards->content += n;
    return shards->frames ? gather(shards, bytes, n, err) : put(shards, bytes, n, err);
}

/* --- shards -------------------------------------------------------------- */

static int begin_shard(struct np_shards *shards, struct np_err *err)
{
    char *path = path_of(shards, shards->nr_shards, ".part");
    int code = path ? np_io_create(&shards->io, path, &shards->fd, err) : no_memory(err);

    np_free(path);
    if (code)
        return code;
    shards->nr_shards++;
    shards->content = shards->written = 0;
    if (shards->frames)
        np_seek_writer_reset(shards->frames);
    return 0;
}

static int put_table(struct np_shards *shards, struct np_err *err)
{
    size_t bytes;
    uint8_t *table = np_seek_table_write(np_seek_writer_table(shards->frames), &bytes);
    int code = table ? put(shards, table, bytes, err) : no_memory(err);

    np_free(table);
    return code;
}

static int end_shard(struct np_shards *shards, struct np_err *err)
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

int np_shards_publish(struct np_shards *shards, struct np_err *err)
{
    int code = end_shard(shards, err);

    while (!code && shards->nr_published < shards->nr_shards) {
        char *from = path_of(shards, shards->nr_published, ".part");
        char *to = path_of(shards, shards->nr_published, "");

        code = from && to ? np_io_rename(&shards->io, from, to, err) : no_memory(err);
        shards->nr_published += !code;
        np_free(from);
        np_free(to);
    }
    return code ? code : np_io_sync_dir(&shards->io, shards->options.out, err);
}

/* --- members ------------------------------------------------------------- */

/* A pax header of records, padded to whole blocks: its bytes. */
static size_t put_pax(uint8_t *to, const char *records, size_t n)
{
    const size_t whole = (n + NP_TAR_BLOCK - 1) / NP_TAR_BLOCK * NP_TAR_BLOCK;

    np_tar_put_header(to, "pax-header", n, 'x');
    memcpy(to + NP_TAR_BLOCK, records, n);
    memset(to + NP_TAR_BLOCK + n, 0, whole - n);
    return NP_TAR_BLOCK + whole;
}

/* A comment record of exactly n bytes, at least 32: nothing but room. */
static void put_comment(char *text, size_t n)
{
    const int head = sprintf(text, "%zu comment=", n);

    memset(text + head, ' ', n - (size_t)head);
    text[n - 1] = '\n';
}

/* A member's headers into head (MAX_HEAD); their bytes. at: where they will lie in the archive. */
static size_t make_head(const char *name, uint32_t nr_bytes, uint64_t at, bool align, uint8_t *head)
{
    char records[MAX_HEAD / 2], start[101];
    uint8_t header[NP_TAR_BLOCK];
    size_t used = 0, n = 0;

    if (np_tar_put_header(header, name, nr_bytes, '0') != 0) {
        n = np_tar_pax_record(records, "path", name);
        snprintf(start, sizeof(start), "%s", name); /* for readers that know no pax */
        np_tar_put_header(header, start, nr_bytes, '0');
        used = put_pax(head, records, n);
    }
    if (align && nr_bytes && (at + used + NP_TAR_BLOCK) % ALIGN) {
        size_t gap = ALIGN - (size_t)((at + 2 * NP_TAR_BLOCK) % ALIGN);

        while (gap < n + 32)
            gap += ALIGN;
        put_comment(records + n, gap - n);
        used = put_pax(head, records, gap); /* in place of the first: a member has but one */
    }
    memcpy(head + used, header, sizeof(header));
    return used + sizeof(header);
}

static int write_member(struct np_shards *shards, const char *name, const void *bytes,
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
        record->packing = NP_PACKING_ZSTD; /* its extent is set when the frame ends */
        record->inner_offset = (uint32_t)shards->frame_bytes;
    } else if (nr_bytes)
        record->offset = shards->written;
    if (!code)
        code = write_content(shards, bytes, nr_bytes, err);
    return code ? code : write_content(shards, zeros, rest, err);
}

int np_shards_add(struct np_shards *shards, const char *name, const void *bytes, uint32_t nr_bytes,
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
    if (!code && np_index_add(shards->index, record, name))
        code = no_memory(err);
    return code;
}
