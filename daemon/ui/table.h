/* Prints a table of texts that fits a terminal: each column as wide as its cells. If the table
 * is too wide, the least needed columns are left out, then one is cut. Main thread. */
#ifndef NP_TABLE_H
#define NP_TABLE_H

#include <stdbool.h>
#include <stdio.h>

#include "loader/base/err.h"

#define NP_TABLE_MAX_COLUMNS 20
#define NP_TABLE_CELL        64 /* bytes of a cell, its end included */

struct np_column {
    const char *head; /* NULL: end of the columns */
    bool right;       /* right-aligned */
    bool cuts;        /* may be cut, down to its head or 8 columns */
    int spare;      /* left out if the table is too wide, the highest first; 0: never; -1: always */
    bool if_any;    /* left out if all its cells are empty */
    int live_spare; /* replaces `spare` in a live table */
};

struct np_table_row {
    char cells[NP_TABLE_MAX_COLUMNS][NP_TABLE_CELL];
    const char *colour; /* escape sequence for the cell in column `coloured`, or NULL */
};
struct np_table {
    const struct np_column *columns;
    bool live;
    int coloured; /* index of a column; -1: none */
    struct np_table_row *rows;
    int nr_rows;
    size_t room;
};
void np_table_fini(struct np_table *table);
/* Adds a row of empty cells at the end; valid until the next call. NULL: out of memory, with err
 * set. */
struct np_table_row *np_table_add(struct np_table *table, struct np_err *err);

struct np_table_look {
    int width; /* of a line; 0: any */
    bool colour;
    int first, max; /* rows to print; max 0: all */
    int chosen;     /* highlighted row; -1: none */
};
void np_table_print(const struct np_table *table, const struct np_table_look *look, FILE *out);

#endif
