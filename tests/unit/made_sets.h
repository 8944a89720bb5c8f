/* Folders and archives made for tests. */
#ifndef NP_MADE_SETS_H
#define NP_MADE_SETS_H

#include <stddef.h>
#include <stdint.h>

#include "loader/source/source.h"

/* A fresh folder under $TMPDIR; remove_set() takes it and its text away. The cache is in it too:
 * XDG_CACHE_HOME is set to FOLDER/cache. */
char *make_set(void);
void remove_set(char *folder);
/* Writes folder/name (folders of name are made). */
void put_file(const char *folder, const char *name, const void *bytes, size_t n);
/* Bytes of folder/name, malloc'd. */
uint8_t *get_file(const char *folder, const char *name, size_t *ret_n);

/* A tar archive growing in memory. */
struct made_tar {
    uint8_t *bytes;
    size_t n, room;
};
/* Raw bytes, padded to whole blocks. */
void tar_block(struct made_tar *tar, const void *bytes, size_t n);
void tar_member(struct made_tar *tar, const char *name, char type, const void *bytes, size_t n);
void tar_text(struct made_tar *tar, const char *name, const char *text);
void tar_end(struct made_tar *tar); /* the closing blocks */
void tar_free(struct made_tar *tar);

/* What a scan said. */
struct made_notes {
    char text[4096];
    int nr_notes;
};
/* np_source_open() of folder/path; all else of options empty but source and match. notes may be
 * NULL. */
int open_set(const char *folder, const char *source, const char *path, const char *match,
    struct made_notes *notes, struct np_index **ret_index, struct np_err *err);
/* The same with at most nr_listers threads and without the cache's index; returns the bytes of the index file that it
 * saves, malloc'd. NULL: it failed with err. */
uint8_t *list_set(const char *folder, const char *source, const char *path, int nr_listers,
    struct made_notes *notes, size_t *ret_n, struct np_err *err);
/* Name, class and label of a sample: "dir/a.jpg dir 0". Static text. */
const char *sample_text(const struct np_index *index, uint64_t i);

#endif
