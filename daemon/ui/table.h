/* A table of texts that fits a terminal: columns as wide as what is in them, and where that is too much the
 * least needed ones left out, then the one that may be cut. Main thread. */
#ifndef NP_TABLE_H
#define NP_TABLE_H

#include <stdbool.h>
#include <stdio.h>

#include "loader/base/err.h"

#define NP_TABLE_MAX_COLUMNS 16
#define NP_TABLE_CELL        64 /* bytes of a cell, its end included */

struct np_column {
    const char *head; /* NULL: the last one's end */
    bool right;       /* aligned */
    bool cuts;        /* may be cut, down to its head or 8 columns */
    int spare;        /* left out where there is no room: the highest first; 0: never; -1: always */
    bool if_any;      /* left out where all its cells are empty */
    int live_spare;   /* as spare, in a table that is live */
};

struct np_table_row {
    char cells[NP_TABLE_MAX_COLUMNS][NP_TABLE_CELL];
    const char *colour; /* of the column `coloured`: an escape, or NULL */
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
/* A row of empty cells at the end; NULL: no memory, and err says so. Valid until the next one. */
struct np_table_row *np_table_add(struct np_table *table, struct np_err *err);

struct np_table_look {
    int width; /* of a line; 0: any */
    bool colour;
    int first, max; /* rows that are printed; max 0: all of them */
    int chosen;     /* this row stands out; -1: none */
};
void np_table_print(const struct np_table *table, const struct np_table_look *look, FILE *out);

#endif
