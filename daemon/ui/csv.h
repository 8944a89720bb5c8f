/* Cells of CSV files (RFC 4180). Any thread. */
#ifndef NP_CSV_H
#define NP_CSV_H

#include <stdio.h>

/* Writes a text, in quotes if it holds a comma, a quote or the end of a line. */
void np_csv_text(FILE *out, const char *text);

#endif
