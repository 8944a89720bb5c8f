/* Tables of files and labels. The text is read whole and cut in place; rows are sorted by file. */
#include "loader/source/label_table.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "loader/base/io.h"
#include "loader/base/mem.h"
#include "loader/base/text.h"
#include "loader/source/index.h"
#include "loader/source/label_text.h"

#define MAX_FILE    (256u << 20)
#define MAX_COLUMNS 4096

struct row {
    const char *name, *label; /* in text */
    int line;                 /* 1: may be the line of names */
    bool used;
    bool no_number; /* line 1: names, or a mistake, which is clear once the files are known */
};

struct np_label_table {
    char *path, *text;
    struct row *rows; /* by name, without the line of names */
    size_t nr_rows;
    bool named; /* columns are named: the first line is no row */
    bool owns;  /* the rows own their labels */
};

struct reader {
    struct np_label_table *table;
    const struct np_label_layout *layout;
    char separator;      /* ' ': one or more blanks */
    int nr;              /* columns that are read: that of the file, then those of labels */
    int *columns;        /* (nr), from 0 */
    int last;            /* the largest of them */
    int *places;         /* (last + 1): of a column in fields; -1: it is not read */
    char **names;        /* (nr), with layout->columns */
    const char **fields; /* (nr) of the line */
    int line;
    struct np_err *err;
};

static int fail(const struct reader *reader, const char *what)
{
    return np_err_set(reader->err, -EINVAL, "%s:%d: %s", reader->table->path, reader->line, what);
}

/* --- fields ---------------------------------------------------------------------------------- */

/* Removes the quotes of the field that begins at at; returns its end, or NULL: no closing quote. */
static char *unquote(char *at)
{
    char *to = at;

    for (const char *from = at + 1; *from; from++) {
        if (*from == '"' && from[1] != '"') {
            const size_t skipped = (size_t)(from + 1 - at);

            *to = '\0';
            return at + skipped;
        }
        from += *from == '"';
        *to++ = *from;
    }
    return NULL;
}

/* Cuts the field at *at off the line and moves *at to the next one, NULL at the end. NULL: a
 * mistake, which is reported. */
static char *next_field(const struct reader *reader, char **at)
{
    char *field = *at, *end;

    while (reader->separator == ' ' && (*field == ' ' || *field == '\t'))
        field++;
    if (*field == '"') {
        end = unquote(field);
        if (!end || (*end && *end != reader->separator)) {
            fail(reader, end ? "text behind a quoted field" : "a quote is not closed in its line");
            return NULL;
        }
    } else {
        end = field + strcspn(field, (const char[]){reader->separator,
                                         reader->separator == ' ' ? '\t' : '\0', '\0'});
    }
    *at = *end ? end + 1 : NULL;
    *end = '\0';
    return field;
}

static int check_text(const struct reader *reader, const char *field, const char *what)
{
    if (*field && strlen(field) <= NP_MAX_NAME)
        return 0;
    return np_err_set(reader->err, -EINVAL, "%s:%d: the %s is %s", reader->table->path,
        reader->line, what, *field ? "too long" : "empty");
}

/* The label of the line's fields that is no class. */
static int make_label(struct reader *reader, char **ret_label)
{
    const char *const *cells = reader->fields + 1;
    const char *const *names = reader->names ? (const char *const *)reader->names + 1 : NULL;
    const int nr = reader->nr - 1;
    int code;

    if (reader->layout->type == NP_LABEL_VALUE)
        code = np_label_of_numbers(cells, names, nr, ret_label, reader->err);
    else if (nr > 1)
        code = np_label_of_flags(cells, names, nr, ret_label, reader->err);
    else
        code =
            np_label_of_list((char *)cells[0], reader->layout->separator, ret_label, reader->err);
    return code < 0 ? np_err_context(reader->err, "%s:%d", reader->table->path, reader->line) : 0;
}

static bool may_be_names(const struct reader *reader)
{
    return reader->layout->type == NP_LABEL_VALUE && reader->line == 1 && !reader->names &&
           !np_label_is_number(reader->fields[1]);
}

static int add_row(struct reader *reader, char *line)
{
    struct np_label_table *table = reader->table;
    const char **fields = reader->fields;
    struct row row = {.line = reader->line};
    char *label = NULL;
    int code = 0;

    for (int k = 0; k < reader->nr; k++)
        fields[k] = NULL;
    for (int column = 0; line && column <= reader->last; column++) {
        const char *field = next_field(reader, &line);

        if (!field)
            return -EINVAL;
        if (reader->places[column] >= 0)
            fields[reader->places[column]] = field;
    }
    for (int k = 0; k < reader->nr; k++)
        if (!fields[k])
            return np_err_set(reader->err, -EINVAL, "%s:%d: it has no column %d", table->path,
                reader->line, reader->columns[k] + 1);
    if (strncmp(fields[0], "./", 2) == 0)
        fields[0] += 2;
    if (check_text(reader, fields[0], "name of the file") < 0)
        return -EINVAL;
    row.no_number = may_be_names(reader);
    if (row.no_number)
        code = (label = np_try_format(reader->err, "'%.60s'", fields[1])) ? 0 : -ENOMEM;
    else if (table->owns)
        code = make_label(reader, &label);
    else
        code = check_text(reader, fields[1], "label");
    row.name = fields[0];
    row.label = table->owns ? label : fields[1];
    if (code == 0)
        table->rows[table->nr_rows++] = row;
    return code;
}

/* --- the file -------------------------------------------------------------------------------- */

static bool ends_with(const char *text, const char *end)
{
    const size_t bytes = strlen(text), end_bytes = strlen(end);

    return bytes >= end_bytes && strcmp(text + bytes - end_bytes, end) == 0;
}

static char separator_of(const char *path, const char *text)
{
    const size_t bytes = strcspn(text, "\n");

    if (ends_with(path, ".csv"))
        return ',';
    return ends_with(path, ".tsv") || memchr(text, '\t', bytes) ? '\t'
           : memchr(text, ',', bytes)                           ? ','
                                                                : ' ';
}

static int place_columns(struct reader *reader)
{
    for (int k = 0; k < reader->nr; k++)
        reader->last = reader->columns[k] > reader->last ? reader->columns[k] : reader->last;
    np_free(reader->places);
    reader->places = np_try_array((size_t)reader->last + 1, sizeof(*reader->places), reader->err);
    if (!reader->places)
        return -ENOMEM;
    for (int column = 0; column <= reader->last; column++)
        reader->places[column] = -1;
    for (int k = 0; k < reader->nr; k++) {
        int *place = &reader->places[reader->columns[k]];

        if (*place >= 0)
            return np_err_set(reader->err, -EINVAL, "%s: the column '%.200s' is asked for twice",
                reader->table->path, reader->names[k]);
        *place = k;
    }
    return 0;
}

/* Finds the columns' names in the first line. */
static int find_columns(struct reader *reader, char *line)
{
    for (int k = 0; k < reader->nr; k++)
        reader->columns[k] = -1;
    for (int column = 0; line && column < MAX_COLUMNS; column++) {
        const char *field = next_field(reader, &line);

        if (!field)
            return -EINVAL;
        for (int k = 0; k < reader->nr; k++)
            if (strcmp(field, reader->names[k]) == 0)
                reader->columns[k] = column;
    }
    for (int k = 0; k < reader->nr; k++)
        if (reader->columns[k] < 0)
            return np_err_set(reader->err, -EINVAL, "%s:1: there is no column '%.200s'",
                reader->table->path, reader->names[k]);
    return place_columns(reader);
}

/* Cuts layout->columns into names: of the file, and of one label or several. */
static int open_columns(struct reader *reader)
{
    const char *columns = reader->layout->columns;
    const bool named = columns && *columns;
    /* A class has one column, whose name may have commas. */
    const bool several = reader->layout->type != NP_LABEL_CLASS;

    reader->nr = 2;
    for (const char *at = named && several ? strchr(columns, ',') : NULL;
         at && (at = strchr(at + 1, ','));)
        reader->nr++;
    reader->columns = np_try_array((size_t)reader->nr, sizeof(*reader->columns), reader->err);
    reader->fields = np_try_array((size_t)reader->nr, sizeof(*reader->fields), reader->err);
    if (!reader->columns || !reader->fields)
        return -ENOMEM;
    reader->columns[1] = 1;
    if (!named)
        return place_columns(reader);
    reader->names = np_try_array((size_t)reader->nr, sizeof(*reader->names), reader->err);
    for (int k = 0; reader->names && k < reader->nr; k++) {
        const size_t bytes = k == reader->nr - 1 ? strlen(columns) : strcspn(columns, ",");

        if (!(reader->names[k] = np_try_format(reader->err, "%.*s", (int)bytes, columns)))
            return -ENOMEM;
        columns += bytes + (columns[bytes] != '\0');
    }
    return reader->names ? 0 : -ENOMEM;
}

static void close_columns(struct reader *reader)
{
    for (int k = 0; reader->names && k < reader->nr; k++)
        np_free(reader->names[k]);
    np_free(reader->names);
    np_free(reader->columns);
    np_free(reader->places);
    np_free(reader->fields);
}

static int read_lines(struct reader *reader, char *at, const char *end)
{
    struct np_label_table *table = reader->table;
    int code = 0;

    for (; code == 0 && at < end; at++) {
        char *line = at, *newline = memchr(at, '\n', (size_t)(end - at));

        at = newline ? newline : at + (end - at);
        reader->line++;
        if (memchr(line, '\0', (size_t)(at - line)))
            return fail(reader, "a NUL byte: not a text file");
        *at = '\0';
        if (at > line && at[-1] == '\r')
            at[-1] = '\0';
        if (table->named && reader->line == 1)
            code = find_columns(reader, line);
        else if (*line)
            code = add_row(reader, line);
    }
    return code;
}

static int by_name(const void *left, const void *right)
{
    const struct row *a = left, *b = right;
    const int order = strcmp(a->name, b->name);

    return order ? order : a->line - b->line;
}

static int sort(struct np_label_table *table, struct np_err *err)
{
    qsort(table->rows, table->nr_rows, sizeof(*table->rows), by_name);
    for (size_t i = 1; i < table->nr_rows; i++)
        if (strcmp(table->rows[i].name, table->rows[i - 1].name) == 0)
            return np_err_set(err, -EINVAL, "%s:%d: '%.200s' is also in line %d", table->path,
                table->rows[i].line, table->rows[i].name, table->rows[i - 1].line);
    return 0;
}

static int read_text(struct reader *reader)
{
    struct np_label_table *table = reader->table;
    struct np_err *err = reader->err;
    uint64_t bytes = 0;
    size_t lines = 1;
    int code = np_read_file(table->path, MAX_FILE, &table->text, &bytes, err);

    if (code < 0)
        return code;
    char *at = table->text + (bytes >= 3 && memcmp(table->text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0);
    const char *end = table->text + bytes;

    for (const char *c = at; c < end; c++)
        lines += *c == '\n';
    table->rows = np_try_array(lines, sizeof(*table->rows), err);
    if (!table->rows)
        return -ENOMEM;
    reader->separator = separator_of(table->path, at);
    code = read_lines(reader, at, end);
    if (code == 0 && table->nr_rows == 0)
        code = np_err_set(err, -EINVAL, "%s: it has no line with a file and a label", table->path);
    return code == 0 ? sort(table, err) : code;
}

int np_label_table_read(const char *path, const struct np_label_layout *layout,
    struct np_label_table **ret_table, struct np_err *err)
{
    struct np_label_table *table = np_try_alloc(sizeof(*table), err);
    struct reader reader = {.table = table, .layout = layout, .err = err};
    int code = table ? 0 : -ENOMEM;

    if (table && !(table->path = np_try_strdup(path, err)))
        code = -ENOMEM;
    if (code == 0)
        code = open_columns(&reader);
    if (code == 0) {
        table->named = reader.names != NULL;
        table->owns = layout->type != NP_LABEL_CLASS;
        code = read_text(&reader);
    }
    close_columns(&reader);
    if (code < 0)
        np_label_table_free(table);
    else
        *ret_table = table;
    return code;
}

void np_label_table_free(struct np_label_table *table)
{
    if (!table)
        return;
    for (size_t i = 0; table->owns && i < table->nr_rows; i++)
        np_free((char *)table->rows[i].label);
    np_free(table->path);
    np_free(table->text);
    np_free(table->rows);
    np_free(table);
}

/* --- looking up ------------------------------------------------------------------------------ */

static struct row *row_at(const struct np_label_table *table, const char *name, size_t bytes)
{
    size_t low = 0, high = table->nr_rows;

    while (low < high) {
        const size_t middle = (low + high) / 2;
        const char *at = table->rows[middle].name;
        int order = strncmp(at, name, bytes);

        order = order ? order : at[bytes] != '\0';
        if (order == 0)
            return &table->rows[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

/* By the whole name, or without its extension. */
static struct row *row_of(const struct np_label_table *table, const char *name)
{
    const char *dot = strrchr(name, '.');
    struct row *row = row_at(table, name, strlen(name));

    if (!row && dot && !strchr(dot, '/'))
        row = row_at(table, name, (size_t)(dot - name));
    return row;
}

bool np_label_table_has(const struct np_label_table *table, const char *name)
{
    return row_of(table, name) != NULL;
}

const char *np_label_table_find(struct np_label_table *table, const char *name)
{
    struct row *row = row_of(table, name);

    if (!row)
        return NULL;
    row->used = true;
    return row->label;
}

/* A first line of names is no row; which it is, only the files show. */
static bool is_names(const struct np_label_table *table, const struct row *row)
{
    return !table->named && !row->used && row->line == 1 && table->nr_rows > 1;
}

int np_label_table_check(const struct np_label_table *table, const char *folder, struct np_err *err)
{
    const struct row *first = NULL;

    for (size_t i = 0; i < table->nr_rows; i++) {
        const struct row *row = &table->rows[i];

        if (row->used && row->no_number)
            return np_err_set(err, -EINVAL, "%s:%d: the label is %s, not a number that fits float",
                table->path, row->line, row->label);
        if (!row->used && !is_names(table, row) && (!first || row->line < first->line))
            first = row;
    }
    if (!first)
        return 0;
    return np_err_set(err, -ENOENT, "%s:%d: there is no image '%.300s' below %s", table->path,
        first->line, first->name, folder);
}

bool np_label_table_numbered(const struct np_label_table *table)
{
    int64_t number;

    for (size_t i = 0; i < table->nr_rows; i++)
        if (!is_names(table, &table->rows[i]) &&
            !np_text_int(table->rows[i].label, 0, INT32_MAX, &number))
            return false;
    return true;
}
