/* See range_file.h. */
#include "loader/base/range_file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <xxhash.h>

#include "loader/base/mem.h"

#define MAX_TEXT     (16u << 10) /* of URL and version */
#define MAX_BYTES    (1ull << 43)
#define PAGE         4096
#define HEAD_VERSION 1

static const char head_magic[8] = "nprange", account_magic[8] = "npacct1";

struct head { /* as in the file; then URL and version, each with its NUL, and zeros up to the map */
    char magic[8];
    uint32_t version, block_bytes;
    uint64_t object_bytes;
    uint32_t url_bytes, version_bytes; /* without their NULs */
    uint64_t check;                    /* of the header with a check of 0, and the zeros */
};
_Static_assert(sizeof(struct head) == 40, "no holes");

static uint64_t round_up(uint64_t n, uint64_t multiple)
{
    return (n + multiple - 1) / multiple * multiple;
}

static uint64_t hash(const struct np_range_name *name)
{
    return XXH3_64bits_withSeed(name->version, strlen(name->version), name->bytes);
}

void np_range_file_name(const struct np_range_name *name, char file[NP_RANGE_FILE_NAME])
{
    const XXH128_hash_t url = XXH3_128bits(name->url, strlen(name->url));

    snprintf(file, NP_RANGE_FILE_NAME, "%016llx%016llx-%016llx", (unsigned long long)url.high64,
        (unsigned long long)url.low64, (unsigned long long)hash(name));
}

bool np_range_is_file_name(const char *file)
{
    return strspn(file, "0123456789abcdef") == 32 && file[32] == '-' &&
           strspn(file + 33, "0123456789abcdef") == 16 && file[49] == '\0';
}

int np_range_layout(
    const struct np_range_name *name, struct np_range_layout *ret_layout, struct np_err *err)
{
    const uint64_t text = strlen(name->url) + strlen(name->version) + 2;
    struct np_range_layout layout = {.map_offset = round_up(sizeof(struct head) + text, 8)};

    if (text > MAX_TEXT)
        return np_err_set(
            err, -ENAMETOOLONG, "%.200s...: its name is too long for the cache", name->url);
    if (name->bytes > MAX_BYTES)
        return np_err_set(err, -EFBIG, "%s: an object of %llu bytes is too large for the cache",
            name->url, (unsigned long long)name->bytes);
    layout.nr_blocks = (name->bytes + NP_RANGE_BLOCK - 1) / NP_RANGE_BLOCK;
    layout.data_offset = round_up(layout.map_offset + 8 * layout.nr_blocks, PAGE);
    layout.file_bytes = layout.data_offset + name->bytes;
    layout.seed = XXH3_64bits_withSeed(name->url, strlen(name->url), hash(name));
    *ret_layout = layout;
    return 0;
}

static uint64_t head_check(const void *bytes, size_t nr)
{
    struct head head;
    uint64_t check;

    memcpy(&head, bytes, sizeof(head));
    head.check = 0;
    check = XXH3_64bits(&head, sizeof(head));
    return XXH3_64bits_withSeed((const char *)bytes + sizeof(head), nr - sizeof(head), check);
}

int np_range_head_new(const struct np_range_name *name, void **ret_head, struct np_err *err)
{
    struct head head = {.version = HEAD_VERSION,
        .block_bytes = NP_RANGE_BLOCK,
        .object_bytes = name->bytes,
        .url_bytes = (uint32_t)strlen(name->url),
        .version_bytes = (uint32_t)strlen(name->version)};
    struct np_range_layout layout;
    int code = np_range_layout(name, &layout, err);
    char *bytes = code ? NULL : np_try_alloc(layout.map_offset, err);

    if (!bytes)
        return code ? code : -ENOMEM;
    memcpy(head.magic, head_magic, sizeof(head.magic));
    memcpy(bytes, &head, sizeof(head));
    memcpy(bytes + sizeof(head), name->url, head.url_bytes);
    memcpy(bytes + sizeof(head) + head.url_bytes + 1, name->version, head.version_bytes);
    head.check = head_check(bytes, layout.map_offset);
    memcpy(bytes, &head, sizeof(head));
    *ret_head = bytes;
    return 0;
}

/* The texts end with NULs that lie within nr bytes. */
static bool read_head(const void *bytes, size_t nr, struct head *ret_head)
{
    const char *text = (const char *)bytes + sizeof(*ret_head);
    uint64_t end;

    if (nr < sizeof(*ret_head))
        return false;
    memcpy(ret_head, bytes, sizeof(*ret_head));
    end = (uint64_t)ret_head->url_bytes + ret_head->version_bytes + 2;
    if (memcmp(ret_head->magic, head_magic, sizeof(head_magic)) != 0 ||
        ret_head->version != HEAD_VERSION || end > nr - sizeof(*ret_head) || end > MAX_TEXT)
        return false;
    return strnlen(text, nr - sizeof(*ret_head)) == ret_head->url_bytes &&
           strnlen(text + ret_head->url_bytes + 1, ret_head->version_bytes + 1) ==
               ret_head->version_bytes;
}

int np_range_head_check(const struct np_range_name *name, const struct np_range_layout *layout,
    const void *bytes, size_t nr, uint64_t file_bytes, struct np_err *err)
{
    const char *text = (const char *)bytes + sizeof(struct head);
    struct head head;

    if (nr != layout->map_offset || !read_head(bytes, nr, &head) ||
        head.check != head_check(bytes, nr) || head.block_bytes != NP_RANGE_BLOCK)
        return np_err_set(err, -EBADMSG, "the header is damaged");
    if (strcmp(text, name->url) != 0 || strcmp(text + head.url_bytes + 1, name->version) != 0 ||
        head.object_bytes != name->bytes)
        return np_err_set(err, -EBADMSG, "it is of another object");
    if (file_bytes != layout->file_bytes)
        return np_err_set(err, -EBADMSG, "it has %llu bytes instead of %llu",
            (unsigned long long)file_bytes, (unsigned long long)layout->file_bytes);
    return 0;
}

uint64_t np_range_sum(uint64_t seed, uint64_t block, const void *data, size_t bytes)
{
    const uint64_t sum = XXH3_64bits_withSeed(data, bytes, seed + block * 0x9E3779B97F4A7C15u);

    return sum ? sum : 1;
}

void np_range_account_encode(uint64_t used_bytes, uint8_t account[NP_RANGE_ACCOUNT_BYTES])
{
    uint64_t check;

    memset(account, 0, NP_RANGE_ACCOUNT_BYTES);
    memcpy(account, account_magic, 8);
    memcpy(account + 8, &used_bytes, 8);
    check = XXH3_64bits(account, 24);
    memcpy(account + 24, &check, 8);
}

bool np_range_account_decode(const void *account, size_t bytes, uint64_t *ret_used_bytes)
{
    uint64_t check;

    if (bytes < NP_RANGE_ACCOUNT_BYTES || memcmp(account, account_magic, 8) != 0)
        return false;
    memcpy(&check, (const uint8_t *)account + 24, 8);
    if (check != XXH3_64bits(account, 24))
        return false;
    memcpy(ret_used_bytes, (const uint8_t *)account + 8, 8);
    return true;
}
