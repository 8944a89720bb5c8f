/* See made_sets.h. */
#include "tests/unit/made_sets.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/base/io.h"
#include "loader/source/tar.h"
#include "tests/test.h"

char *make_set(void)
{
    const char *base = getenv("TMPDIR");
    char path[512], cache[600];

    snprintf(path, sizeof(path), "%s/np_test_set.XXXXXX", base ? base : "/tmp");
    if (!mkdtemp(path))
        abort();
    snprintf(cache, sizeof(cache), "%s/cache", path);
    setenv("XDG_CACHE_HOME", cache, 1);
    return strdup(path);
}

void remove_set(char *folder)
{
    char command[1100];

    snprintf(command, sizeof(command), "chmod -R u+w '%s' && rm -rf '%s'", folder, folder);
    if (system(command))
        abort();
    free(folder);
}

static void path_of(const char *folder, const char *name, char path[2048])
{
    snprintf(path, 2048, "%s/%s", folder, name);
}

void put_file(const char *folder, const char *name, const void *bytes, size_t n)
{
    char path[2048], above[2048];
    FILE *file;

    path_of(folder, name, path);
    strcpy(above, path);
    *strrchr(above, '/') = '\0';
    if (np_make_dirs(above, NULL))
        abort();
    file = fopen(path, "wb");
    if (!file || fwrite(bytes, 1, n, file) != n || fclose(file))
        abort();
}

uint8_t *get_file(const char *folder, const char *name, size_t *ret_n)
{
    char path[2048];
    FILE *file;
    uint8_t *bytes;
    long n;

    path_of(folder, name, path);
    file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END) || (n = ftell(file)) < 0 || fseek(file, 0, SEEK_SET))
        abort();
    bytes = malloc((size_t)n + 1);
    if (!bytes || fread(bytes, 1, (size_t)n, file) != (size_t)n)
        abort();
    fclose(file);
    *ret_n = (size_t)n;
    return bytes;
}

void tar_block(struct made_tar *tar, const void *bytes, size_t n)
{
    const size_t whole = (n + 511) / 512 * 512;

    if (tar->n + whole > tar->room) {
        tar->room = 2 * (tar->n + whole);
        tar->bytes = realloc(tar->bytes, tar->room);
        if (!tar->bytes)
            abort();
    }
    memset(tar->bytes + tar->n, 0, whole);
    if (n)
        memcpy(tar->bytes + tar->n, bytes, n);
    tar->n += whole;
}

void tar_member(struct made_tar *tar, const char *name, char type, const void *bytes, size_t n)
{
    uint8_t header[NP_TAR_BLOCK];

    if (np_tar_put_header(header, name, n, type))
        abort();
    tar_block(tar, header, sizeof(header));
    tar_block(tar, bytes, n);
}

void tar_text(struct made_tar *tar, const char *name, const char *text)
{
    tar_member(tar, name, '0', text, strlen(text));
}

void tar_end(struct made_tar *tar)
{
    static const uint8_t zeros[2 * NP_TAR_BLOCK];

    tar_block(tar, zeros, sizeof(zeros));
}

void tar_free(struct made_tar *tar)
{
    free(tar->bytes);
    memset(tar, 0, sizeof(*tar));
}

static void note(void *context, const char *text)
{
    struct made_notes *notes = context;
    const size_t used = strlen(notes->text);

    snprintf(notes->text + used, sizeof(notes->text) - used, "%s\n", text);
    notes->nr_notes++;
}

/* The index file in the cache is removed first if nr_listers is set. */
static int open_with(const char *folder, const char *source, const char *path, const char *match,
    int nr_listers, struct made_notes *notes, struct np_index **ret_index, struct np_err *err)
{
    const struct np_source_progress progress = {.note = notes ? note : NULL, .context = notes};
    char whole[2048], name[32], glob[256], none[] = "";
    struct np_source_options options = {.source = name,
        .path = whole,
        .match = glob,
        .labels = none,
        .cache_dir = none,
        .nr_listers = nr_listers};

    path_of(folder, path, whole);
    snprintf(name, sizeof(name), "%s", source);
    snprintf(glob, sizeof(glob), "%s", match ? match : "");
    if (notes)
        memset(notes, 0, sizeof(*notes));
    if (nr_listers)
        np_source_forget(&options);
    return np_source_open(&options, &progress, ret_index, err);
}

int open_set(const char *folder, const char *source, const char *path, const char *match,
    struct made_notes *notes, struct np_index **ret_index, struct np_err *err)
{
    return open_with(folder, source, path, match, 0, notes, ret_index, err);
}

uint8_t *list_set(const char *folder, const char *source, const char *path, int nr_listers,
    struct made_notes *notes, size_t *ret_n, struct np_err *err)
{
    struct np_index *index;
    char pattern[2048];
    glob_t found;
    uint8_t *bytes;

    if (open_with(folder, source, path, NULL, nr_listers, notes, &index, err))
        return NULL;
    np_index_free(index);
    snprintf(pattern, sizeof(pattern), "%s/cache/nnpipe/index/*.npidx", folder);
    cr_assert_eq(glob(pattern, 0, NULL, &found), 0);
    cr_assert_eq(found.gl_pathc, 1);
    bytes = get_file(folder, found.gl_pathv[0] + strlen(folder) + 1, ret_n);
    globfree(&found);
    return bytes;
}

const char *sample_text(const struct np_index *index, uint64_t i)
{
    static char text[NP_MAX_NAME + 300];
    const struct np_record *record = np_index_record(index, i);
    char name[NP_MAX_NAME + 1];

    np_index_name(index, i, name, sizeof(name));
    if (record->no_label)
        snprintf(text, sizeof(text), "%s - -1", name);
    else
        snprintf(
            text, sizeof(text), "%s %.200s %u", name, index->classes[record->label], record->label);
    return text;
}
