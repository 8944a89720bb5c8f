/* Prints an option table as Markdown, for the pages of `nnpipe help`. */
#ifndef NP_REFERENCE_H
#define NP_REFERENCE_H

#include <stdio.h>

#include "loader/base/option.h"

/* Prints a row per key: default, values, description. table NULL or empty: prints nothing. */
void np_reference_table(FILE *out, const struct np_option *table);

#endif
