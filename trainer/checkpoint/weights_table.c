/* Collects and prints the table of loaded weights. Long lists are cut, so that the table of any
 * network fits a screen. */
#include "trainer/checkpoint/weights_table.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/base/mem.h"

#define MAX_REASONS 3  /* of a row */
#define MAX_UNUSED  10 /* names */
#define MAX_LINES   24
#define MAX_WIDTH   40 /* of the layers' column */

struct np_weights_table *np_weights_table_new(
    const char *path, const char *part, const char *others, const char *prefix)
{
    struct np_weights_table *table = np_alloc(sizeof(*table));

    table->path = np_strdup(path);
    table->part = np_strdup(part);
    table->others = np_strdup(others);
    table->prefix = prefix && *prefix ? np_strdup(prefix) : NULL;
    return table;
}

void np_weights_table_free(struct np_weights_table *table)
{
    if (!table)
        return;
    for (int i = 0; i < table->nr_rows; i++) {
        np_free(table->rows[i].layer);
        np_free(table->rows[i].why);
    }
    np_free(table->rows);
    np_free(table->path);
    np_free(table->part);
    np_free(table->others);
    np_free(table->prefix);
    np_free(table->unused);
    np_free(table);
}

/* *text becomes "*text; more". */
static void join(char **text, const char *separator, const char *more)
{
    char *longer = np_format("%s%s%s", *text ? *text : "", *text ? separator : "", more);

    np_free(*text);
    *text = longer;
}

/* Tensors of a layer follow one another. */
static struct np_weights_row *row_of(struct np_weights_table *table, const char *name, size_t n)
{
    struct np_weights_row *last = table->nr_rows ? &table->rows[table->nr_rows - 1] : NULL;

    if (last && strncmp(last->layer, name, n) == 0 && last->layer[n] == '\0')
        return last;
    np_grow(&table->rows, &table->rows_room, (size_t)table->nr_rows + 1, sizeof(*table->rows));
    last = &table->rows[table->nr_rows++];
    *last = (struct np_weights_row){.layer = np_format("%.*s", (int)n, name)};
    return last;
}

void np_weights_table_add(struct np_weights_table *table, const struct np_weights_entry *entry)
{
    const char *name = entry->name;
    const size_t n = strcspn(name, ".");
    struct np_weights_row *row = row_of(table, name, n);

    row->nr_tensors++;
    row->nr_frozen += entry->frozen;
    if (!entry->why) {
        row->nr_loaded++;
        row->nr_values += entry->nr_values;
        return;
    }
    row->nr_misshapen += entry->misshapen;
    if (row->nr_tensors - row->nr_loaded > MAX_REASONS)
        return;
    char *reason = np_format("%s %s", name[n] == '.' ? name + n + 1 : name, entry->why);
    join(&row->why, "; ", reason);
    np_free(reason);
}

void np_weights_table_unused(struct np_weights_table *table, const char *name, bool has_prefix)
{
    table->nr_outside += !has_prefix;
    if (table->nr_unused++ < MAX_UNUSED)
        join(&table->unused, ", ", name);
}

/* --- text ---------------------------------------------------------------------------------- */

char *np_weights_table_source(const struct np_weights_table *table)
{
    char *part = NULL, *prefix = NULL, *text;

    if (table->part)
        part = np_format(", its part '%s'%s%s%s", table->part,
            table->others ? " (also there: " : "", table->others ? table->others : "",
            table->others ? "; FILE#PART takes another)" : "");
    if (table->prefix)
        prefix = np_format(", names without '%s'", table->prefix);
    text = np_format("weights from %s%s%s", table->path, part ? part : "", prefix ? prefix : "");
    np_free(part);
    np_free(prefix);
    return text;
}

static char *reasons(const struct np_weights_row *row)
{
    const int more = row->nr_tensors - row->nr_loaded - MAX_REASONS;

    return more > 0 ? np_format("%s; and %d more", row->why, more) : np_strdup(row->why);
}

/* A layer with frozen parameters and one without are not one line. */
static bool joins(const struct np_weights_row *row, const struct np_weights_row *next)
{
    return !row->why && !next->why && (row->nr_frozen > 0) == (next->nr_frozen > 0);
}

/* The number of rows from i on that one line can hold. */
static int run_of(const struct np_weights_table *table, int i)
{
    int n = 1;

    while (i + n < table->nr_rows && joins(&table->rows[i], &table->rows[i + n]))
        n++;
    return n;
}

static char *layers_of(const struct np_weights_table *table, int i, int n)
{
    const char *first = table->rows[i].layer, *last = table->rows[i + n - 1].layer;

    return n == 1   ? np_strdup(first)
           : n == 2 ? np_format("%s, %s", first, last)
                    : np_format("%s to %s", first, last);
}

static void print_line(const struct np_weights_table *table, int i, int n, int width, FILE *out)
{
    const struct np_weights_row *row = &table->rows[i];
    char *layers = layers_of(table, i, n), *why = row->why ? reasons(row) : NULL;
    uint64_t nr_values = 0;
    int nr_tensors = 0, nr_frozen = 0;

    for (int k = i; k < i + n; k++) {
        nr_tensors += table->rows[k].nr_tensors;
        nr_frozen += table->rows[k].nr_frozen;
        nr_values += table->rows[k].nr_values;
    }
    fprintf(out, "\n  %-*s  ", width, layers);
    if (!why)
        fprintf(out, "loaded  %d tensor%s, %" PRIu64 " values", nr_tensors,
            nr_tensors == 1 ? "" : "s", nr_values);
    else if (row->nr_loaded > 0)
        fprintf(out, "in part %d of %d tensors loaded; %s", row->nr_loaded, nr_tensors, why);
    else
        fprintf(out, "fresh   %s", why);
    if (nr_frozen > 0)
        fprintf(out, ", %d frozen", nr_frozen);
    np_free(layers);
    np_free(why);
}

static int width_of(const struct np_weights_table *table)
{
    int width = 0;

    for (int i = 0, n; i < table->nr_rows; i += n) {
        n = run_of(table, i);
        char *layers = layers_of(table, i, n);
        const int length = (int)strlen(layers);
        width = length > width ? length : width;
        np_free(layers);
    }
    return width < MAX_WIDTH ? width : MAX_WIDTH;
}

static void print_unused(const struct np_weights_table *table, FILE *out)
{
    fprintf(out, "%s", table->unused);
    if (table->nr_unused > MAX_UNUSED)
        fprintf(out, " and %d more", table->nr_unused - MAX_UNUSED);
}

static void print_rows(const struct np_weights_table *table, FILE *out)
{
    const int width = width_of(table);

    for (int i = 0, n, lines = 0; i < table->nr_rows; i += n) {
        n = lines < MAX_LINES ? run_of(table, i) : table->nr_rows - i;
        if (lines++ < MAX_LINES)
            print_line(table, i, n, width, out);
        else
            fprintf(out, "\n  and %d more layers", n);
    }
}

char *np_weights_table_text(const struct np_weights_table *table)
{
    char *source = np_weights_table_source(table), *misfit = np_weights_table_misfit(table),
         *text = NULL;
    size_t length;
    FILE *out = open_memstream(&text, &length);
    int nr_frozen = 0;

    for (int i = 0; i < table->nr_rows; i++)
        nr_frozen += table->rows[i].nr_frozen;
    if (out && !misfit && nr_frozen == 0)
        fprintf(out, "%s: all tensors loaded", source);
    else if (out) {
        fprintf(out, "%s:", source);
        print_rows(table, out);
    }
    if (out && table->nr_unused > 0) {
        fprintf(out, "\n  not of this network: ");
        print_unused(table, out);
    }
    if (out)
        fclose(out);
    if (!text)
        text = np_strdup(source);
    np_free(source);
    np_free(misfit);
    return text;
}

char *np_weights_table_misfit(const struct np_weights_table *table)
{
    char *text = NULL;
    size_t length;
    FILE *out = open_memstream(&text, &length);
    const char *separator = "";

    for (int i = 0; out && i < table->nr_rows; i++)
        if (table->rows[i].why) {
            char *why = reasons(&table->rows[i]);
            fprintf(out, "%s%s: %s", separator, table->rows[i].layer, why);
            np_free(why);
            separator = "; ";
        }
    if (out && table->nr_unused > table->nr_outside) {
        fprintf(out, "%snot of this network: ", separator);
        print_unused(table, out);
    }
    if (out)
        fclose(out);
    if (text && text[0] == '\0') {
        np_free(text);
        text = NULL;
    }
    return text;
}
