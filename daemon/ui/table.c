#include "daemon/ui/table.h"

#include <string.h>

#include "loader/base/mem.h"
#include "loader/base/text.h"

#define GAP     2
#define MIN_CUT 8

void np_table_fini(struct np_table *table)
{
    np_free(table->rows);
    table->rows = NULL;
    table->nr_rows = 0;
    table->room = 0;
}

struct np_table_row *np_table_add(struct np_table *table, struct np_err *err)
{
    if (np_try_grow(
            &table->rows, &table->room, (size_t)table->nr_rows + 1, sizeof(*table->rows), err) < 0)
        return NULL;
    struct np_table_row *row = &table->rows[table->nr_rows++];
    memset(row, 0, sizeof(*row));
    return row;
}

static int spare_of(const struct np_table *table, int column)
{
    return table->live ? table->columns[column].live_spare : table->columns[column].spare;
}

/* 0: the column is left out. */
static void measure(const struct np_table *table, int width, int *widths)
{
    const struct np_column *columns = table->columns;
    int sum = -GAP, n = 0;

    for (; columns[n].head; n++) {
        bool any = false;

        widths[n] = np_text_columns(columns[n].head);
        for (int r = 0; r < table->nr_rows; r++) {
            const int cell = np_text_columns(table->rows[r].cells[n]);

            widths[n] = cell > widths[n] ? cell : widths[n];
            any |= cell > 0;
        }
        if (spare_of(table, n) < 0 || (columns[n].if_any && !any))
            widths[n] = 0;
        else
            sum += widths[n] + GAP;
    }
    while (width > 0 && sum > width) {
        int worst = -1, cut = -1;

        for (int c = 0; c < n; c++) {
            const int spare = spare_of(table, c);

            if (widths[c] && spare > (worst < 0 ? 0 : spare_of(table, worst)))
                worst = c;
            if (columns[c].cuts && widths[c] > MIN_CUT)
                cut = c;
        }
        if (cut >= 0 && (worst < 0 || sum - (widths[cut] - MIN_CUT) / 2 <= width)) {
            sum--;
            widths[cut]--;
        } else if (worst >= 0) {
            sum -= widths[worst] + GAP;
            widths[worst] = 0;
        } else {
            break;
        }
    }
}

static void put_cell(const char *text, int width, bool right, bool last, FILE *out)
{
    const int pad = width - np_text_columns(text);

    if (right)
        fprintf(out, "%*s", pad > 0 ? pad : 0, "");
    for (int n = 0; *text; text++) {
        n += ((unsigned char)*text & 0xc0) != 0x80;
        if (n > width)
            break;
        fputc(n == width && pad < 0 ? '~' : *text, out);
    }
    if (!right && !last)
        fprintf(out, "%*s", pad > 0 ? pad : 0, "");
}

static void put_line(const struct np_table *table, const int *widths,
    const struct np_table_row *row, const char *colour, FILE *out)
{
    const struct np_column *columns = table->columns;
    int last = 0;

    for (int c = 0; columns[c].head; c++)
        last = widths[c] ? c : last;
    for (int c = 0; c <= last; c++) {
        const char *on = row && c == table->coloured && colour && row->colour ? row->colour : "";

        if (!widths[c])
            continue;
        fputs(on, out);
        put_cell(
            row ? row->cells[c] : columns[c].head, widths[c], columns[c].right, c == last, out);
        fprintf(out, "%s%*s", *on ? colour : "", c == last ? 0 : GAP, "");
    }
}

void np_table_print(const struct np_table *table, const struct np_table_look *look, FILE *out)
{
    int widths[NP_TABLE_MAX_COLUMNS];
    const int end = look->max > 0 && look->first + look->max < table->nr_rows
                        ? look->first + look->max
                        : table->nr_rows;

    measure(table, look->width, widths);
    fputs(look->colour ? "\033[2m" : "", out);
    put_line(table, widths, NULL, NULL, out);
    fputs(look->colour ? "\033[0m\n" : "\n", out);
    for (int r = look->first; r < end; r++) {
        const bool chosen = r == look->chosen;

        fputs(chosen ? "\033[7m" : "", out);
        put_line(table, widths, &table->rows[r],
            !look->colour ? NULL
            : chosen      ? "\033[39m"
                          : "\033[0m",
            out);
        fputs(chosen ? "\033[0m\n" : "\n", out);
    }
}
