/* The index of a set on a server from the file beside its archives that `nnpipe data pack` wrote. The
 * server has no mtimes, so names and sizes of the archives are compared; each record's own checksum
 * finds what they do not show. */
#include <errno.h>
#include <string.h>

#include "loader/base/mem.h"
#include "loader/base/remote.h"
#include "loader/source/index_file.h"

#define MAX_BYTES (1ull << 30)

static const char *base_of(const char *path)
{
    return strrchr(path, '/') + 1;
}

/* The whole object; np_free. NULL: it cannot be read. */
static void *read_object(const char *url, uint64_t *ret_bytes)
{
    uint64_t bytes, number;
    const char *version;
    void *whole = NULL;
    int file;

    if (np_remote()->open(url, &file, NULL))
        return NULL;
    np_remote()->facts(file, &bytes, &number, &version);
    if (bytes <= MAX_BYTES && (whole = np_try_alloc(bytes + 1, NULL)) != NULL &&
        np_remote()->read(file, 0, whole, bytes, NULL) != (int64_t)bytes) {
        np_free(whole);
        whole = NULL;
    }
    *ret_bytes = bytes;
    return whole;
}

/* True if it lists a tar by its folders or .cls members, all of it, by the rules of this version. */
static bool has_key(const struct np_index *index, const char *begin)
{
    const struct np_index_header *header = index->whole;
    const char *key = (const char *)index->whole + header->sections[NP_SECTION_KEY].offset;
    const uint64_t bytes = header->sections[NP_SECTION_KEY].bytes;
    const char *files;

    if (bytes == 0 || key[bytes - 1] || strncmp(key, begin, strlen(begin)) != 0)
        return false;
    files = strstr(key, "\nlabels=\nmatch=\n");
    if (!files || index->nr_files == 0)
        return false;
    files += strlen("\nlabels=\nmatch=\n");
    return strncmp(files, base_of(index->paths[0]), strlen(base_of(index->paths[0]))) == 0;
}

/* Puts the URLs and their versions in the place of the files, if they are the same. */
static int adopt(struct np_index *index, char *const *urls, int nr_urls)
{
    if (index->nr_files != nr_urls || index->root || index->raw.kind != NP_RAW_NONE)
        return -ESTALE;
    for (int i = 0; i < nr_urls; i++) {
        char *url;
        struct stat st;

        if (strcmp(base_of(index->paths[i]), base_of(urls[i])) != 0 ||
            np_file_stat(urls[i], &st, NULL) || (uint64_t)st.st_size != index->stamps[i].bytes)
            return -ESTALE;
        if (!(url = np_try_strdup(urls[i], NULL)))
            return -ENOMEM;
        np_free(index->paths[i]);
        index->paths[i] = url;
        index->stamps[i] = np_index_stamp_of(&st);
    }
    return 0;
}

int np_index_fetch(
    const char *url, const char *key, char *const *urls, int nr_urls, struct np_index **ret_index)
{
    struct np_index *index = NULL;
    uint64_t bytes;
    void *whole = read_object(url, &bytes);
    int code = whole ? np_index_parse(whole, bytes, url, &index, NULL) : -ENOENT;

    if (!code)
        code = has_key(index, key) ? adopt(index, urls, nr_urls) : -ESTALE;
    if (code)
        np_index_free(index);
    else
        *ret_index = index;
    return code;
}
