/* A config file and its bases (`base:`), merged into one tree. It knows only those keys that are
 * choices or paths. One thread. */
#ifndef NP_CONFIG_FILE_H
#define NP_CONFIG_FILE_H

#include "loader/base/err.h"
#include "loader/base/node.h"

#define NP_MAX_BASES 16

struct np_config_file {
    struct np_node *root; /* merged, without the key base; NULL: the file cannot be read */
    bool has_base;
    /* Names for messages, NULL-ended. (i + 1) * NP_LINE_FILE is added to the lines of bases[i]. */
    char *bases[NP_MAX_BASES + 1];
};

/* Reads a file ("-": standard input) and its bases. Keys of the nearer file win. Mappings are
 * merged; lists and choices (optimizer, schedule, loss, device, shuffle, cache, a set with another
 * source) are replaced whole; `epochs` removes the base's `steps`, `split` its `val`, and vice
 * versa. Relative paths of a base, also of its own base, start at its folder. -EINVAL: report has
 * the mistakes, and borrows bases from *ret_file; -errno: the file cannot be read. The caller frees
 * *ret_file in any case, after the last use of report. */
int np_config_file_read(
    const char *path, struct np_config_file *ret_file, struct np_report *report);
/* The same, for the text of the file `path`. */
int np_config_file_parse(const char *text, size_t bytes, const char *path,
    struct np_config_file *ret_file, struct np_report *report);
/* Converts a place in the printed tree to a place in the files, "FILE:LINE:COLUMN". False: no node
 * is there. */
bool np_config_file_place(const struct np_config_file *file, const char *path, const char *printed,
    int line, int column, char *place, size_t place_bytes);
void np_config_file_fini(struct np_config_file *file);
/* The absolute folder of a config, where its relative paths start. np_free. NULL: out of memory. */
char *np_config_folder(const char *path, struct np_err *err);

#endif
