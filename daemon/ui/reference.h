/* The options of a table as a table of Markdown, for the pages of `nnpipe help`. */
#ifndef NP_REFERENCE_H
#define NP_REFERENCE_H

#include <stdio.h>

#include "loader/base/option.h"

/* A row per key: its default, its values, what it is. table NULL or empty: nothing. */
void np_reference_table(FILE *out, const struct np_option *table);

#endif
