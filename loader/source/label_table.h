/* A table of files and labels: CSV, TSV, or columns between blanks. For loader/source/source_*.c.
 * One thread. */
#ifndef NP_LABEL_TABLE_H
#define NP_LABEL_TABLE_H

#include <stdbool.h>

#include "loader/base/err.h"
#include "loader/batch.h"

struct np_label_table;

struct np_label_layout {
    const char
        *columns; /* names in the first line: of the column of files, then those of labels, with
                            commas between them; empty or NULL: the first two columns */
    enum np_label_type type;
    char separator; /* NP_LABEL_MULTI with one column of labels: between its classes */
};

/* Reads the table at path, whose first two columns may have a first line of names. A label that is
 * no class is kept as np_label_of_list() and its kin make it. .csv has commas, .tsv tabs; any other
 * name what its first line has: tabs, commas, else blanks. A field may be "quoted" as in RFC 4180,
 * within its line. -EINVAL: err names the file and the line of the mistake, such as a file that is in
 * two lines, or a cell that is no number. The caller frees the table. */
int np_label_table_read(const char *path, const struct np_label_layout *layout,
    struct np_label_table **ret_table, struct np_err *err);
void np_label_table_free(struct np_label_table *table);
/* True if the table has a label of the file. Any thread. */
bool np_label_table_has(const struct np_label_table *table, const char *name);
/* Returns the label of a file, by its name or its name without extension; NULL: not in the table.
 * The text lives as long as the table. */
const char *np_label_table_find(struct np_label_table *table, const char *name);
/* Call after all files were looked up. -ENOENT: a line's file was not among them; err names it. */
int np_label_table_check(
    const struct np_label_table *table, const char *folder, struct np_err *err);
/* True if every label is a decimal number. */
bool np_label_table_numbered(const struct np_label_table *table);

#endif
