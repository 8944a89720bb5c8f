/* A table of files and labels: CSV, TSV, or columns between blanks. For loader/source/source_*.c.
 * One thread. */
#ifndef NP_LABEL_TABLE_H
#define NP_LABEL_TABLE_H

#include <stdbool.h>

#include "loader/base/err.h"

struct np_label_table;

/* Reads the table at path. columns: the names in its first line of the column of files and that of
 * labels, with a comma between them; empty or NULL: the first two columns, with or without a first
 * line of names. .csv has commas, .tsv tabs; any other name what its first line has: tabs, commas,
 * else blanks. A field may be "quoted" as in RFC 4180, within its line. -EINVAL: err names the file
 * and the line of the mistake, such as a file that is in two lines. The caller frees the table. */
int np_label_table_read(
    const char *path, const char *columns, struct np_label_table **ret_table, struct np_err *err);
void np_label_table_free(struct np_label_table *table);
/* Returns the label of a file, by its name or its name without extension; NULL: not in the table.
 * The text lives as long as the table. */
const char *np_label_table_find(struct np_label_table *table, const char *name);
/* Call after all files were looked up. -ENOENT: a line's file was not among them; err names it. */
int np_label_table_check(
    const struct np_label_table *table, const char *folder, struct np_err *err);
/* True if every label is a decimal number. */
bool np_label_table_numbered(const struct np_label_table *table);

#endif
