/* A config file and the files that it builds on (`base:`), as one tree. Knows where choices and paths stand
 * in a config, and nothing else of what is in it. One thread. */
#ifndef NP_CONFIG_FILE_H
#define NP_CONFIG_FILE_H

#include "loader/base/err.h"
#include "loader/base/node.h"

#define NP_MAX_BASES 16

struct np_config_file {
    struct np_node *root; /* merged, without the key base; NULL: it cannot be read */
    bool has_base;
    /* Names for messages, NULL-ended; the lines of a node of bases[i] are (i + 1) * NP_LINE_FILE more. */
    char *bases[NP_MAX_BASES + 1];
};

/* Reads the file ("-": standard input) and its bases. The nearer file wins: mappings are merged, lists and
 * choices (optimizer, schedule, loss, device, shuffle, cache, a set with another source) replaced whole; `epochs` drops
 * the base's `steps`, `split` its `val`, and the other way round. Relative paths of a base's sets become absolute, from its
 * folder; a base's own name starts there too. -EINVAL: mistakes in report, whose bases are set: they are
 * the file's, so it is freed after the last use of report. -errno: the file itself cannot be read. *ret_file
 * is to be freed in any case. */
int np_config_file_read(
    const char *path, struct np_config_file *ret_file, struct np_report *report);
/* The same of a text that stands in the file `path`. */
int np_config_file_parse(const char *text, size_t bytes, const char *path,
    struct np_config_file *ret_file, struct np_report *report);
/* Maps a line and column of the printed tree to its place in the files, "FILE:LINE:COLUMN". False if no
 * node stands there. */
bool np_config_file_place(const struct np_config_file *file, const char *path, const char *printed,
    int line, int column, char *place, size_t place_bytes);
void np_config_file_fini(struct np_config_file *file);
/* The folder that relative paths of a config start at, absolute. np_free; NULL: no memory. */
char *np_config_folder(const char *path);

#endif
