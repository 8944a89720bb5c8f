/* Writes and reads an index as a whole, and returns one only after checking every offset, name,
 * file and label. One thread. */
#include "loader/source/index_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "loader/base/crc32c.h"
#include "loader/base/remote.h"
#include "loader/base/mem.h"
#include "loader/source/index_names.h"

#define SECTION_ALIGN  64
#define MAX_FILE_BYTES (1ull << 36)

/* The folder of path, ending with '/', without symbolic links. what: for the error. */
static int folder_of(
    const char *path, const char *what, char folder[PATH_MAX + 2], struct np_err *err)
{
    char *copy = np_try_strdup(path, err), *slash = copy ? strrchr(copy, '/') : NULL;
    const char *name = slash == copy && slash ? "/" : slash ? copy : ".";
    char *real;

    if (!copy)
        return -ENOMEM;
    if (slash && slash != copy)
        *slash = '\0';
    real = realpath(name, folder);
    np_free(copy);
    if (!real)
        return np_err_set(err, -errno, "%s: %s%s", path, what, strerror(errno));
    if (strcmp(folder, "/") != 0)
        strcat(folder, "/");
    return 0;
}

static const char *below(const char *path, const char *folder)
{
    const size_t bytes = strlen(folder);

    return strncmp(path, folder, bytes) == 0 && path[bytes] ? path + bytes : path;
}

struct layout {
    uint64_t bytes[NP_NR_SECTIONS], offset[NP_NR_SECTIONS], total;
};

static uint64_t align_up(uint64_t bytes)
{
    return (bytes + SECTION_ALIGN - 1) / SECTION_ALIGN * SECTION_ALIGN;
}

static uint64_t nr_blocks(uint64_t nr_samples)
{
    return (nr_samples + NP_INDEX_RESTART - 1) / NP_INDEX_RESTART;
}

static void lay_out(
    const struct np_index *index, const char *folder, const char *key, struct layout *layout)
{
    memset(layout, 0, sizeof(*layout));
    layout->bytes[NP_SECTION_RECORDS] = index->nr_samples * sizeof(struct np_record);
    layout->bytes[NP_SECTION_BLOCKS] = nr_blocks(index->nr_samples) * sizeof(uint64_t);
    layout->bytes[NP_SECTION_NAMES] = index->names_bytes;
    layout->bytes[NP_SECTION_FILES] = (uint64_t)index->nr_files * sizeof(struct np_index_stamp);
    for (int i = 0; i < index->nr_files; i++)
        layout->bytes[NP_SECTION_PATHS] += strlen(below(index->paths[i], folder)) + 1;
    for (int i = 0; i < index->nr_classes; i++)
        layout->bytes[NP_SECTION_CLASSES] += strlen(index->classes[i]) + 1;
    layout->bytes[NP_SECTION_ROOT] = index->root ? strlen(below(index->root, folder)) + 1 : 0;
    layout->bytes[NP_SECTION_KEY] = strlen(key) + 1;
    layout->total = align_up(sizeof(struct np_index_header));
    for (int s = 0; s < NP_NR_SECTIONS; s++) {
        layout->offset[s] = layout->total;
        layout->total = align_up(layout->total + layout->bytes[s]);
    }
}

static void put_strings(uint8_t *to, char *const *texts, int n, const char *folder)
{
    for (int i = 0; i < n; i++) {
        const char *text = folder ? below(texts[i], folder) : texts[i];

        to = (uint8_t *)stpcpy((char *)to, text) + 1;
    }
}

static void put_header(const struct np_index *index, const struct layout *layout, uint8_t *whole)
{
    struct np_index_header header = {
        .magic = NP_INDEX_MAGIC,
        .version = NP_INDEX_VERSION,
        .header_bytes = sizeof(header),
        .file_bytes = layout->total,
        .nr_samples = index->nr_samples,
        .nr_files = (uint32_t)index->nr_files,
        .nr_classes = (uint32_t)index->nr_classes,
        .raw_kind = (uint32_t)index->raw.kind,
        .raw_height = (uint32_t)index->raw.height,
        .raw_width = (uint32_t)index->raw.width,
        .raw_channels = (uint32_t)index->raw.channels,
        .raw_seed = index->raw.seed,
        .max_inner = index->max_inner,
    };

    for (int s = 0; s < NP_NR_SECTIONS; s++) {
        header.sections[s].offset = layout->offset[s];
        header.sections[s].bytes = layout->bytes[s];
        header.sections[s].crc = np_crc32c(0, whole + layout->offset[s], layout->bytes[s]);
    }
    header.header_crc = np_crc32c(0, &header, sizeof(header));
    memcpy(whole, &header, sizeof(header));
}

/* The file's bytes; np_free. NULL: out of memory. */
static uint8_t *encode(const struct np_index *index, const char *folder, const char *key,
    uint64_t *ret_bytes, struct np_err *err)
{
    struct layout layout;
    uint8_t *whole;

    lay_out(index, folder, key, &layout);
    whole = np_try_alloc(layout.total, err);
    if (!whole)
        return NULL;
    for (uint64_t i = 0; i < index->nr_samples; i++) { /* another thread may set a CRC */
        const struct np_record record = np_record_get(&index->records[i]);

        memcpy(whole + layout.offset[NP_SECTION_RECORDS] + i * sizeof(record), &record,
            sizeof(record));
    }
    if (index->nr_samples) {
        memcpy(whole + layout.offset[NP_SECTION_BLOCKS], index->blocks,
            layout.bytes[NP_SECTION_BLOCKS]);
        memcpy(whole + layout.offset[NP_SECTION_NAMES], index->names, index->names_bytes);
    }
    if (index->nr_files)
        memcpy(
            whole + layout.offset[NP_SECTION_FILES], index->stamps, layout.bytes[NP_SECTION_FILES]);
    put_strings(whole + layout.offset[NP_SECTION_PATHS], index->paths, index->nr_files, folder);
    put_strings(whole + layout.offset[NP_SECTION_CLASSES], index->classes, index->nr_classes, NULL);
    if (index->root)
        put_strings(whole + layout.offset[NP_SECTION_ROOT], &index->root, 1, folder);
    strcpy((char *)whole + layout.offset[NP_SECTION_KEY], key);
    put_header(index, &layout, whole);
    *ret_bytes = layout.total;
    return whole;
}

int np_index_save(const struct np_index *index, struct np_io *io, const char *path, const char *key,
    struct np_err *err)
{
    char folder[PATH_MAX + 2];
    uint64_t bytes;
    uint8_t *whole;
    int code = folder_of(path, "its folder: ", folder, err);

    if (code)
        return code;
    whole = encode(index, folder, key, &bytes, err);
    if (!whole)
        return -ENOMEM;
    code = np_io_replace(io, path, whole, bytes, err);
    np_free(whole);
    return code;
}

struct reading {
    const char *path;
    char folder[PATH_MAX + 2];
    uid_t owner; /* its index is trusted, too */
    uint8_t *whole;
    uint64_t bytes;
    const struct np_index_header *header;
};

static int damaged(const struct reading *reading, struct np_err *err, const char *what)
{
    return np_err_set(err, -EBADMSG, "%s: damaged index: %s", reading->path, what);
}

static int read_whole(struct reading *reading, struct np_err *err)
{
    const int fd = open(reading->path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    int code = 0;

    if (fd < 0 || fstat(fd, &st) < 0)
        code = np_err_set(err, -errno, "%s: %s", reading->path, strerror(errno));
    /* In a folder that others can write to, another user's index could have false labels. */
    else if (st.st_uid != geteuid() && st.st_uid != 0 && st.st_uid != reading->owner)
        code = np_err_set(err, -ESTALE, "%s: belongs to another user", reading->path);
    if (!code) {
        reading->bytes = (uint64_t)st.st_size;
        if (S_ISREG(st.st_mode) && reading->bytes < MAX_FILE_BYTES) /* not zeroed */
            reading->whole = aligned_alloc(SECTION_ALIGN, align_up(reading->bytes + 1));
        if (!reading->whole ||
            np_read_at(fd, 0, reading->whole, reading->bytes) != (int64_t)reading->bytes)
            code = damaged(reading, err, "it cannot be read to its end");
    }
    if (code)
        np_free(reading->whole);
    if (fd >= 0)
        close(fd);
    return code;
}

static int check_frame(struct reading *reading, struct np_err *err)
{
    struct np_index_header copy;

    if (reading->bytes < sizeof(copy))
        return damaged(reading, err, "it is truncated");
    memcpy(&copy, reading->whole, sizeof(copy));
    copy.header_crc = 0;
    reading->header = (const void *)reading->whole;
    if (memcmp(copy.magic, NP_INDEX_MAGIC, sizeof(copy.magic)) != 0)
        return damaged(reading, err, "it is not an nnpipe index");
    if (copy.version != NP_INDEX_VERSION || copy.header_bytes != sizeof(copy))
        return np_err_set(err, -ESTALE, "%s: an index of another version", reading->path);
    if (np_crc32c(0, &copy, sizeof(copy)) != reading->header->header_crc)
        return damaged(reading, err, "its header has a wrong checksum");
    if (copy.file_bytes != reading->bytes)
        return damaged(reading, err, "it is truncated");
    for (int s = 0; s < NP_NR_SECTIONS; s++) {
        const uint64_t offset = copy.sections[s].offset, bytes = copy.sections[s].bytes;

        if (offset % SECTION_ALIGN || offset > reading->bytes || bytes > reading->bytes - offset)
            return damaged(reading, err, "a section lies outside the file");
        if (np_crc32c(0, reading->whole + offset, bytes) != copy.sections[s].crc)
            return damaged(reading, err, "a section has a wrong checksum");
    }
    return 0;
}

static const uint8_t *section(const struct reading *reading, int s, uint64_t *ret_bytes)
{
    *ret_bytes = reading->header->sections[s].bytes;
    return reading->whole + reading->header->sections[s].offset;
}

static bool fits(const struct reading *reading, int s, uint64_t n, uint64_t bytes)
{
    uint64_t want;

    return !__builtin_mul_overflow(n, bytes, &want) && reading->header->sections[s].bytes == want;
}

/* Copies the n strings of a section; those that do not start with '/' get `prefix`. */
static int take_strings(const struct reading *reading, int s, uint32_t n, const char *prefix,
    char ***ret_texts, int *ret_nr, struct np_err *err)
{
    uint64_t bytes;
    const char *at = (const char *)section(reading, s, &bytes), *end = at + bytes;

    if (n > bytes || (bytes && end[-1] != '\0'))
        return damaged(reading, err, "a list of names is truncated");
    *ret_texts = np_try_array(n, sizeof(char *), err);
    if (!*ret_texts)
        return -ENOMEM;
    for (uint32_t i = 0; i < n; i++) {
        if (at == end)
            return damaged(reading, err, "a list of names is too short");
        (*ret_texts)[i] = prefix && *at != '/' && !np_is_url(at)
                              ? np_try_format(err, "%s%s", prefix, at)
                              : np_try_strdup(at, err);
        *ret_nr = (int)i + 1;
        if (!(*ret_texts)[i])
            return -ENOMEM;
        at += strlen(at) + 1;
    }
    return at == end ? 0 : damaged(reading, err, "a list of names is too long");
}

static int take_tables(const struct reading *reading, struct np_index *index, struct np_err *err)
{
    const struct np_index_header *header = reading->header;
    char **roots = NULL;
    uint64_t bytes;
    const uint8_t *stamps = section(reading, NP_SECTION_FILES, &bytes);
    int nr_roots = 0, code = 0;

    if (header->nr_files > INT_MAX || header->nr_classes > NP_MAX_CLASSES ||
        !fits(reading, NP_SECTION_FILES, header->nr_files, sizeof(struct np_index_stamp)))
        return damaged(reading, err, "its tables do not match its counts");
    index->stamps = np_try_alloc(bytes, err);
    if (!index->stamps)
        return -ENOMEM;
    memcpy(index->stamps, stamps, bytes);
    code = take_strings(reading, NP_SECTION_PATHS, header->nr_files, reading->folder, &index->paths,
        &index->nr_files, err);
    if (!code)
        code = take_strings(reading, NP_SECTION_CLASSES, header->nr_classes, NULL, &index->classes,
            &index->nr_classes, err);
    if (!code && header->sections[NP_SECTION_ROOT].bytes) {
        code = take_strings(reading, NP_SECTION_ROOT, 1, reading->folder, &roots, &nr_roots, err);
        index->root = nr_roots ? roots[0] : NULL;
        np_free(roots);
    }
    return code;
}

static int check_raw(const struct reading *reading, struct np_index *index, struct np_err *err)
{
    const struct np_index_header *header = reading->header;

    if (header->raw_kind > NP_RAW_SYNTH || header->raw_height > 65535 ||
        header->raw_width > 65535 || header->raw_channels > 4 ||
        (header->raw_kind != NP_RAW_NONE &&
            (!header->raw_height || !header->raw_width || !header->raw_channels)))
        return damaged(reading, err, "its raw pixels have an impossible shape");
    index->raw = (struct np_raw){(enum np_raw_kind)header->raw_kind, (int)header->raw_height,
        (int)header->raw_width, (int)header->raw_channels, header->raw_seed};
    return 0;
}

static bool record_is_sound(const struct np_index *index, const struct np_record *record)
{
    if (record->packing > NP_PACKING_ZSTD || record->unused)
        return false;
    if (record->no_label ? record->label != 0 : (int)record->label >= index->nr_classes)
        return false;
    if (index->raw.kind == NP_RAW_SYNTH)
        return true;
    if (record->packing == NP_PACKING_NONE &&
        (record->inner_offset || record->inner_bytes != record->bytes))
        return false;
    if (index->root)
        return record->offset == 0 && record->packing == NP_PACKING_NONE;
    return record->file < (uint32_t)index->nr_files &&
           record->offset <= index->stamps[record->file].bytes &&
           record->bytes <= index->stamps[record->file].bytes - record->offset;
}

static int check_records(const struct reading *reading, struct np_index *index, struct np_err *err)
{
    const uint64_t n = reading->header->nr_samples;
    uint64_t bytes;

    if (n > UINT32_MAX || !fits(reading, NP_SECTION_RECORDS, n, sizeof(struct np_record)))
        return damaged(reading, err, "its records do not match their count");
    index->records = (void *)section(reading, NP_SECTION_RECORDS, &bytes);
    index->nr_samples = n;
    index->max_inner = reading->header->max_inner;
    for (uint64_t i = 0; i < n; i++) {
        const struct np_record *record = &index->records[i];
        const uint64_t inner = (uint64_t)record->inner_offset + record->inner_bytes;

        if (!record_is_sound(index, record) || inner > index->max_inner)
            return damaged(reading, err, "a record lies outside its file");
        index->max_extent = record->bytes > index->max_extent ? record->bytes : index->max_extent;
        index->extents_bytes += record->bytes;
    }
    return 0;
}

static int check_names(const struct reading *reading, struct np_index *index, struct np_err *err)
{
    char name[NP_MAX_NAME + 1];
    const uint8_t *at, *end;
    int length = 0;
    uint64_t bytes;

    index->names = (uint8_t *)section(reading, NP_SECTION_NAMES, &index->names_bytes);
    if (!fits(reading, NP_SECTION_BLOCKS, nr_blocks(index->nr_samples), sizeof(uint64_t)))
        return damaged(reading, err, "its names do not match their count");
    index->blocks = (void *)section(reading, NP_SECTION_BLOCKS, &bytes);
    at = index->names;
    end = at + index->names_bytes;
    for (uint64_t i = 0; i < index->nr_samples; i++) {
        const bool first = i % NP_INDEX_RESTART == 0;

        if (first && index->blocks[i / NP_INDEX_RESTART] != (uint64_t)(at - index->names))
            return damaged(reading, err, "a block of names is not where its table says");
        if (!np_index_decode_name(&at, end, first, name, &length))
            return damaged(reading, err, "a name cannot be decoded");
    }
    return at == end ? 0 : damaged(reading, err, "bytes follow the last name");
}

static int check_fresh(const struct reading *reading, const struct np_index *index, const char *key,
    struct np_err *err)
{
    uint64_t bytes;
    const char *text = (const char *)section(reading, NP_SECTION_KEY, &bytes);

    if (bytes != strlen(key) + 1 || memcmp(text, key, bytes) != 0)
        return np_err_set(err, -ESTALE, "%s: the index of other settings or files", reading->path);
    for (int i = 0; i < index->nr_files; i++) {
        struct stat st;
        const int status = np_file_stat(index->paths[i], &st, NULL);

        if (status < 0)
            return np_err_set(
                err, -ESTALE, "%s: %s: %s", reading->path, index->paths[i], strerror(-status));
        const struct np_index_stamp now = np_index_stamp_of(&st);
        if (memcmp(&now, &index->stamps[i], sizeof(now)) != 0)
            return np_err_set(err, -ESTALE, "%s: %s has changed since it was indexed",
                reading->path, index->paths[i]);
    }
    return 0;
}

/* Makes the index from reading->whole, which it then owns, with all checks that need no other
 * file. */
static int parse(struct reading *reading, struct np_index **ret_index, struct np_err *err)
{
    struct np_index *index = np_try_alloc(sizeof(*index), err);
    int code;

    if (!index) {
        np_free(reading->whole);
        return -ENOMEM;
    }
    index->whole = reading->whole;
    code = check_frame(reading, err);
    if (!code)
        code = take_tables(reading, index, err);
    if (!code)
        code = check_raw(reading, index, err);
    if (!code)
        code = check_records(reading, index, err);
    if (!code)
        code = check_names(reading, index, err);
    if (code)
        np_index_free(index);
    else
        *ret_index = index;
    return code;
}

int np_index_parse(
    void *whole, uint64_t bytes, const char *path, struct np_index **ret_index, struct np_err *err)
{
    struct reading reading = {.path = path, .folder = "/", .whole = whole, .bytes = bytes};

    return parse(&reading, ret_index, err);
}

int np_index_open(
    const char *path, const char *key, uid_t owner, struct np_index **ret_index, struct np_err *err)
{
    struct reading reading = {.path = path, .owner = owner};
    struct np_index *index = NULL;
    int code = folder_of(path, "", reading.folder, err);

    if (!code)
        code = read_whole(&reading, err);
    if (!code)
        code = parse(&reading, &index, err);
    if (!code)
        code = check_fresh(&reading, index, key, err);
    if (code)
        np_index_free(index);
    else
        *ret_index = index;
    return code;
}
