/* See tar.h. Runs in the thread that lists a set. */
#include "loader/source/tar.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "loader/base/mem.h"

#define SMALL_WINDOW 4096u        /* large members: their bytes are skipped */
#define LARGE_WINDOW (256u << 10) /* small members: many headers a read */
#define SMALL_MEMBER (64u << 10)
#define MAX_EXTENDED (1u << 20) /* bytes of a pax or long-name record */

struct block {
    char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], checksum[8], type;
    char link[100], magic[6], version[2], user[32], group[32], major[8], minor[8], prefix[155];
    char pad[12];
};
_Static_assert(sizeof(struct block) == NP_TAR_BLOCK, "a header is one block");

/* From the extended headers of the next member. */
struct extended {
    char name[NP_TAR_MAX_NAME + 1];
    bool has_name, has_size, sparse;
    uint64_t size;
};

int np_tar_init(
    struct np_tar *tar, const char *path, np_tar_read_fn read, void *context, struct np_err *err)
{
    memset(tar, 0, sizeof(*tar));
    tar->window = np_try_alloc(LARGE_WINDOW, err);
    if (!tar->window)
        return -ENOMEM;
    tar->window_want = LARGE_WINDOW;
    tar->path = path;
    tar->read = read;
    tar->context = context;
    return 0;
}

void np_tar_fini(struct np_tar *tar)
{
    np_free(tar->window);
    tar->window = NULL;
}

static int bad(const struct np_tar *tar, uint64_t offset, struct np_err *err, const char *what)
{
    if (tar->nr_members == 0)
        return np_err_set(err, -EBADMSG, "%s: %s at offset %llu: not a tar archive?", tar->path,
            what, (unsigned long long)offset);
    return np_err_set(err, -EBADMSG,
        "%s: %s at offset %llu; the last whole member is '%s' at offset %llu", tar->path, what,
        (unsigned long long)offset, tar->last_name, (unsigned long long)tar->last_offset);
}

/* Reads up to `bytes` bytes at offset through the window. *ret_data: valid until the next call. */
static int64_t look(
    struct np_tar *tar, uint64_t offset, size_t bytes, const uint8_t **ret_data, struct np_err *err)
{
    const uint64_t end = tar->window_offset + tar->window_bytes;

    if (offset < tar->window_offset || offset + bytes > end) {
        const size_t want = bytes > tar->window_want ? bytes : tar->window_want;
        const int64_t got = tar->read(tar->context, offset, tar->window, want, err);

        if (got < 0) {
            tar->window_bytes = 0;
            return got;
        }
        tar->window_offset = offset;
        tar->window_bytes = (size_t)got;
    }
    *ret_data = tar->window + (offset - tar->window_offset);
    return (int64_t)(tar->window_bytes - (offset - tar->window_offset) < bytes
                         ? tar->window_bytes - (offset - tar->window_offset)
                         : bytes);
}

/* Octal surrounded by spaces or NULs, or GNU's base-256. */
static bool get_number(const char *field, size_t bytes, uint64_t *ret_value)
{
    uint64_t value = 0;
    size_t at = 0;

    if ((uint8_t)field[0] & 0x80) {
        value = (uint8_t)field[0] & 0x7f;
        for (at = 1; at < bytes; at++) {
            if (value >> 55)
                return false;
            value = value << 8 | (uint8_t)field[at];
        }
        *ret_value = value;
        return true;
    }
    while (at < bytes && field[at] == ' ')
        at++;
    for (; at < bytes && field[at] >= '0' && field[at] <= '7'; at++)
        value = value << 3 | (uint64_t)(field[at] - '0');
    for (; at < bytes; at++)
        if (field[at] != ' ' && field[at] != '\0')
            return false;
    *ret_value = value;
    return true;
}

static bool checksum_fits(const uint8_t *block)
{
    const struct block *header = (const void *)block;
    uint64_t want;
    int64_t plain = 0, with_sign = 0;

    for (size_t i = 0; i < NP_TAR_BLOCK; i++) {
        const bool own = i >= offsetof(struct block, checksum) && i < offsetof(struct block, type);

        plain += own ? ' ' : block[i];
        with_sign += own ? ' ' : (int8_t)block[i]; /* some old writers sum signed bytes */
    }
    return get_number(header->checksum, sizeof(header->checksum), &want) &&
           ((int64_t)want == plain || (int64_t)want == with_sign);
}

static bool is_zero(const uint8_t *block)
{
    return block[0] == 0 && memcmp(block, block + 1, NP_TAR_BLOCK - 1) == 0;
}

static void take_name(const struct block *header, char *name)
{
    const bool posix = memcmp(header->magic, "ustar\0", 6) == 0;
    const int prefix = posix ? (int)strnlen(header->prefix, sizeof(header->prefix)) : 0;

    snprintf(name, NP_TAR_MAX_NAME + 1, "%.*s%s%.*s", prefix, header->prefix, prefix ? "/" : "",
        (int)strnlen(header->name, sizeof(header->name)), header->name);
}

static bool take_pax(struct extended *extended, const char *key, const char *value, size_t bytes)
{
    if (strcmp(key, "path") == 0) {
        if (bytes == 0 || bytes > NP_TAR_MAX_NAME || memchr(value, '\0', bytes))
            return false;
        memcpy(extended->name, value, bytes);
        extended->name[bytes] = '\0';
        extended->has_name = true;
    } else if (strcmp(key, "size") == 0) {
        extended->size = 0;
        for (size_t i = 0; i < bytes; i++) {
            if (value[i] < '0' || value[i] > '9' || extended->size > UINT64_MAX / 16)
                return false;
            extended->size = extended->size * 10 + (uint64_t)(value[i] - '0');
        }
        extended->has_size = bytes > 0;
    } else if (strncmp(key, "GNU.sparse.", 11) == 0)
        extended->sparse = true;
    return true;
}

/* "LENGTH key=value\n", one after another. */
static bool parse_pax(struct extended *extended, const char *text, size_t bytes)
{
    const char *end = text + bytes;

    while (text < end && *text) {
        size_t length = 0;
        const char *at = text, *equals;
        char key[64];

        while (at < end && *at >= '0' && *at <= '9' && length < MAX_EXTENDED)
            length = length * 10 + (size_t)(*at++ - '0');
        if (at == end || *at != ' ' || length > (size_t)(end - text) ||
            length < (size_t)(at - text) + 3 || text[length - 1] != '\n')
            return false;
        at++;
        equals = memchr(at, '=', (size_t)(text + length - at));
        if (!equals)
            return false;
        snprintf(key, sizeof(key), "%.*s", (int)(equals - at), at);
        if (!take_pax(extended, key, equals + 1, (size_t)(text + length - 1 - equals - 1)))
            return false;
        text += length;
    }
    return true;
}

/* Reads the data of an extended header. 0: the archive ends inside it; else 1. */
static int take_extended(struct np_tar *tar, char type, uint64_t offset, uint64_t bytes,
    struct extended *extended, struct np_err *err)
{
    struct np_err why = {0};
    char *text = NULL;
    int64_t got;
    int code = 1;

    if (bytes > MAX_EXTENDED)
        return bad(tar, offset, err, "an extended header of over 1 MiB");
    text = np_try_alloc(bytes + 1, err);
    if (!text)
        return -ENOMEM;
    got = tar->read(tar->context, offset, text, bytes, &why);
    if (got < 0) {
        code = (int)got;
        if (err && !err->code)
            *err = why;
    } else if ((uint64_t)got < bytes)
        code = 0;
    else if (type == 'x' && !parse_pax(extended, text, bytes))
        code = bad(tar, offset, err, "a damaged pax record");
    else if (type == 'L') {
        if (strlen(text) > NP_TAR_MAX_NAME || !*text)
            code = bad(tar, offset, err, "a name that is too long");
        else {
            strcpy(extended->name, text);
            extended->has_name = true;
        }
    }
    np_free(text);
    return code;
}

static int end_truncated(struct np_tar *tar)
{
    tar->ended = tar->truncated = true;
    return 0;
}

static uint64_t padded(uint64_t bytes)
{
    return (bytes + NP_TAR_BLOCK - 1) / NP_TAR_BLOCK * NP_TAR_BLOCK;
}

/* "./cat/1.jpg" and "/cat/1.jpg" become cat/1.jpg, as when tar unpacks them. */
static void clean_name(char *name)
{
    char *from = name;

    while (*from == '/' || (from[0] == '.' && from[1] == '/'))
        from += *from == '/' ? 1 : 2;
    memmove(name, from, strlen(from) + 1);
}

/* Checks whether the archive holds all of the member's data, by its last byte. */
static int check_data(struct np_tar *tar, struct np_tar_member *member, struct np_err *err)
{
    const uint8_t *data;
    uint64_t low = 0, high = member->whole_bytes;
    int64_t got;

    if (high == 0)
        return 0;
    got = look(tar, member->data_offset + high - 1, 1, &data, err);
    if (got)
        return got < 0 ? (int)got : 0;
    while (low < high) { /* bisects for the end */
        const uint64_t middle = low + (high - low) / 2;

        got = look(tar, member->data_offset + middle, 1, &data, err);
        if (got < 0)
            return (int)got;
        if (got)
            low = middle + 1;
        else
            high = middle;
    }
    member->bytes = low;
    member->truncated = tar->truncated = tar->truncated_member = tar->ended = true;
    return 0;
}

static int take_member(struct np_tar *tar, const struct block *header, uint64_t size,
    const struct extended *extended, struct np_tar_member *member, struct np_err *err)
{
    int code;

    if (extended->has_name)
        strcpy(member->name, extended->name);
    else
        take_name(header, member->name);
    clean_name(member->name);
    member->type = header->type == '\0' || header->type == '7' ? '0' : header->type;
    if (member->type == '0' && member->name[0] && member->name[strlen(member->name) - 1] == '/')
        member->type = '5'; /* a folder in v7 */
    if (member->type == '0' && !member->name[0])
        return bad(tar, member->header_offset, err, "a member without a name");
    member->sparse = extended->sparse || header->type == 'S';
    member->data_offset = tar->offset;
    /* Links and devices have no data, even if their size is not 0. */
    size = strchr("12346", member->type) ? 0 : extended->has_size ? extended->size : size;
    if (member->type == '5')
        size = 0;
    if (size > INT64_MAX - tar->offset - NP_TAR_BLOCK)
        return bad(tar, member->header_offset, err, "an impossible size");
    member->bytes = member->whole_bytes = size;
    code = check_data(tar, member, err);
    if (code < 0)
        return code;
    tar->offset += padded(size);
    tar->window_want = size < SMALL_MEMBER ? LARGE_WINDOW : SMALL_WINDOW;
    if (!member->truncated) {
        tar->nr_members++;
        tar->last_offset = member->header_offset;
        snprintf(tar->last_name, sizeof(tar->last_name), "%s", member->name);
    }
    return 1;
}

int np_tar_next(struct np_tar *tar, struct np_tar_member *ret_member, struct np_err *err)
{
    struct extended extended = {.has_name = false};

    memset(ret_member, 0, sizeof(*ret_member));
    ret_member->header_offset = tar->offset;
    while (!tar->ended) {
        struct block header;
        const uint8_t *data;
        const int64_t got = look(tar, tar->offset, NP_TAR_BLOCK, &data, err);
        uint64_t size;
        int code;

        if (got < 0)
            return (int)got;
        if (got == 0 && ret_member->header_offset == tar->offset) /* no closing blocks */
            break;
        if (got < NP_TAR_BLOCK)
            return tar->nr_members || ret_member->header_offset != tar->offset
                       ? end_truncated(tar)
                       : bad(tar, tar->offset, err, "less than a header");
        if (is_zero(data))
            break;
        if (!checksum_fits(data))
            return bad(tar, tar->offset, err, "a header with a wrong checksum");
        memcpy(&header, data, sizeof(header));
        if (!get_number(header.size, sizeof(header.size), &size))
            return bad(tar, tar->offset, err, "a header with a damaged size");
        tar->offset += NP_TAR_BLOCK;
        if (!strchr("xgLK", header.type) || !header.type)
            return take_member(tar, &header, size, &extended, ret_member, err);
        code = take_extended(tar, header.type, tar->offset, size, &extended, err);
        if (code <= 0)
            return code < 0 ? code : end_truncated(tar);
        tar->offset += padded(size);
    }
    tar->ended = true;
    return 0;
}

static bool put_octal(char *field, size_t bytes, uint64_t value)
{
    char text[32];

    if (snprintf(text, sizeof(text), "%0*llo", (int)bytes - 1, (unsigned long long)value) >=
        (int)bytes)
        return false;
    memcpy(field, text, bytes);
    return true;
}

static bool put_name(struct block *header, const char *name)
{
    const size_t bytes = strlen(name);
    const char *slash;

    if (bytes <= sizeof(header->name)) {
        memcpy(header->name, name, bytes);
        return true;
    }
    for (slash = strchr(name, '/'); slash; slash = strchr(slash + 1, '/')) {
        const size_t before = (size_t)(slash - name), after = bytes - before - 1;

        if (before && after && before <= sizeof(header->prefix) && after <= sizeof(header->name)) {
            memcpy(header->prefix, name, before);
            memcpy(header->name, slash + 1, after);
            return true;
        }
    }
    return false;
}

int np_tar_put_header(uint8_t block[NP_TAR_BLOCK], const char *name, uint64_t bytes, char type)
{
    struct block header;
    unsigned sum = 0;

    memset(&header, 0, sizeof(header));
    if (!put_name(&header, name))
        return -ENAMETOOLONG;
    if (!put_octal(header.size, sizeof(header.size), bytes))
        return -EFBIG;
    put_octal(header.mode, sizeof(header.mode), type == '5' ? 0755 : 0644);
    put_octal(header.uid, sizeof(header.uid), 0);
    put_octal(header.gid, sizeof(header.gid), 0);
    put_octal(header.mtime, sizeof(header.mtime), 0);
    header.type = type;
    memcpy(header.magic, "ustar", 6);
    memcpy(header.version, "00", 2);
    memset(header.checksum, ' ', sizeof(header.checksum));
    memcpy(block, &header, sizeof(header));
    for (size_t i = 0; i < NP_TAR_BLOCK; i++)
        sum += block[i];
    snprintf(header.checksum, sizeof(header.checksum) - 1, "%06o", sum);
    header.checksum[7] = ' ';
    memcpy(block, &header, sizeof(header));
    return 0;
}

size_t np_tar_pax_record(char *text, const char *key, const char *value)
{
    const size_t rest = strlen(key) + strlen(value) + 3; /* ' ', '=', '\n' */
    size_t length = rest + 1;

    while (length != rest + (size_t)snprintf(NULL, 0, "%zu", length))
        length = rest + (size_t)snprintf(NULL, 0, "%zu", length);
    if (text)
        sprintf(text, "%zu %s=%s\n", length, key, value);
    return length;
}
