#include "loader/source/label_text.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "loader/base/mem.h"
#include "loader/base/text.h"

#define JOINT '|'

/* --- texts ------------------------------------------------------------------------------------ */

static int by_text(const void *left, const void *right)
{
    return strcmp(*(const char *const *)left, *(const char *const *)right);
}

int np_label_of_names(const char **names, size_t nr, char **ret_text, struct np_err *err)
{
    size_t bytes = 2;
    char *text, *at;

    qsort(names, nr, sizeof(*names), by_text);
    for (size_t i = 0; i < nr; i++) {
        if (!*names[i])
            return np_err_set(err, -EINVAL, "the list of classes has an empty name");
        if (strchr(names[i], JOINT))
            return np_err_set(
                err, -EINVAL, "the class '%.200s' has a '|', which no class name may", names[i]);
        if (i > 0 && strcmp(names[i], names[i - 1]) == 0)
            return np_err_set(err, -EINVAL, "the class '%.200s' is there twice", names[i]);
        bytes += strlen(names[i]) + 1;
    }
    if (bytes > NP_MAX_NAME)
        return np_err_set(
            err, -EINVAL, "the names of its %zu classes have over %d bytes", nr, NP_MAX_NAME - 2);
    if (!(text = at = np_try_alloc(bytes, err)))
        return -ENOMEM;
    for (size_t i = 0; i < nr; i++) {
        at = stpcpy(at, names[i]);
        *at++ = JOINT;
    }
    at -= nr > 0;
    strcpy(at, nr > 0 ? "" : "|");
    *ret_text = text;
    return 0;
}

int np_label_of_list(char *cell, char separator, char **ret_text, struct np_err *err)
{
    const char **names = np_try_array(strlen(cell) + 1, sizeof(*names), err);
    size_t nr = 0;
    int code = names ? 0 : -ENOMEM;
    char *end;

    for (char *at = cell; code == 0 && at && *cell; at = end ? end + 1 : NULL) {
        while (*at == ' ')
            at++;
        end = strchr(at, separator);
        size_t bytes = end ? (size_t)(end - at) : strlen(at);
        while (bytes > 0 && at[bytes - 1] == ' ')
            bytes--;
        at[bytes] = '\0';
        if (bytes > 0 || separator != ' ')
            names[nr++] = at;
    }
    if (code == 0)
        code = np_label_of_names(names, nr, ret_text, err);
    np_free(names);
    return code;
}

int np_label_of_flags(
    const char *const *cells, const char *const *names, int nr, char **ret_text, struct np_err *err)
{
    const char **set = np_try_array((size_t)nr, sizeof(*set), err);
    size_t nr_set = 0;
    int code = set ? 0 : -ENOMEM;

    for (int i = 0; code == 0 && i < nr; i++) {
        if (strcmp(cells[i], "1") == 0)
            set[nr_set++] = names[i];
        else if (strcmp(cells[i], "0") != 0)
            code = np_err_set(
                err, -EINVAL, "the column '%.200s' has '%.60s', not 0 or 1", names[i], cells[i]);
    }
    if (code == 0)
        code = np_label_of_names(set, nr_set, ret_text, err);
    np_free(set);
    return code;
}

static bool read_number(const char *cell, float *ret_value)
{
    char *end;

    if (strspn(cell, "0123456789+-.eE") != strlen(cell)) /* no blanks, hexadecimals, inf or nan */
        return false;
    *ret_value = strtof(cell, &end);
    return end != cell && *end == '\0' && isfinite(*ret_value);
}

bool np_label_is_number(const char *cell)
{
    float value;

    return read_number(cell, &value);
}

int np_label_of_numbers(
    const char *const *cells, const char *const *names, int nr, char **ret_text, struct np_err *err)
{
    const size_t room = (size_t)nr * 24 + 1;
    char *text = np_try_alloc(room, err), *at = text;
    int code = text ? 0 : -ENOMEM;
    float value;

    for (int i = 0; code == 0 && i < nr; i++) {
        if (read_number(cells[i], &value)) /* 9 digits are the same f32 again */
            at += snprintf(at, 24, "%s%.9g", i ? " " : "", (double)value);
        else
            code = np_err_set(err, -EINVAL, "%.200s is '%.60s', not a number that fits float",
                names ? names[i] : "the label", cells[i]);
    }
    if (code == 0 && at - text > NP_MAX_NAME)
        code = np_err_set(err, -EINVAL, "its %d numbers have over %d bytes", nr, NP_MAX_NAME);
    if (code < 0)
        np_free(text);
    else
        *ret_text = text;
    return code;
}

/* --- classes ----------------------------------------------------------------------------------- */

/* Copies the next name of a text and moves *at behind it; false: no more, or the text is none of
 * np_label_of_names(). */
static bool next_name(const char **at, char name[NP_MAX_NAME + 1])
{
    const size_t bytes = strcspn(*at, "|");

    if (bytes == 0 || bytes > NP_MAX_NAME)
        return false;
    memcpy(name, *at, bytes);
    name[bytes] = '\0';
    *at += bytes + ((*at)[bytes] != '\0');
    return true;
}

static int by_number(const void *left, const void *right)
{
    const long long a = atoll(*(const char *const *)left), b = atoll(*(const char *const *)right);

    return a < b ? -1 : a > b;
}

struct names {
    char **items; /* owned */
    size_t room;
    uint64_t nr;
};

static int by_text_of(const void *key, const void *item)
{
    return strcmp(key, *(const char *const *)item);
}

/* Sorts the names and drops those that are there twice. */
static void unite(struct names *names)
{
    uint64_t nr = 0;

    qsort(names->items, names->nr, sizeof(*names->items), by_text);
    for (uint64_t i = 0; i < names->nr; i++)
        if (nr > 0 && strcmp(names->items[nr - 1], names->items[i]) == 0)
            np_free(names->items[i]);
        else
            names->items[nr++] = names->items[i];
    names->nr = nr;
}

/* An index that another program wrote, or that is damaged, may have any text. */
static int check_end(const char *text, const char *at, struct np_err *err)
{
    return *at == '\0' || strcmp(text, "|") == 0
               ? 0
               : np_err_set(err, -EINVAL, "the label '%.100s' is no list of classes", text);
}

static int collect(const struct np_index *index, struct names *names, struct np_err *err)
{
    char name[NP_MAX_NAME + 1];
    uint64_t sorted = 0;

    for (int i = 0; i < index->nr_classes; i++) {
        const char *at = index->classes[i];

        while (next_name(&at, name)) {
            if (sorted > 0 &&
                bsearch(name, names->items, sorted, sizeof(*names->items), by_text_of))
                continue;
            if (np_try_grow(
                    &names->items, &names->room, names->nr + 1, sizeof(*names->items), err) ||
                !(names->items[names->nr] = np_try_strdup(name, err)))
                return -ENOMEM;
            if (++names->nr > 2 * sorted + 1024) {
                unite(names);
                sorted = names->nr;
            }
        }
        if (check_end(index->classes[i], at, err) < 0)
            return -EINVAL;
    }
    if (names->nr > 0)
        unite(names);
    return names->nr > 0 ? 0 : np_err_set(err, -EINVAL, "none of its labels names a class");
}

int np_label_classes(const struct np_index *index, struct np_node **ret_names, struct np_err *err)
{
    struct names names = {0};
    int code = collect(index, &names, err);
    bool numbers = code == 0;
    int64_t number;

    if (code == 0 && names.nr > NP_MAX_CLASSES)
        code = np_err_set(err, -E2BIG, "its labels name over %d classes", NP_MAX_CLASSES);
    for (uint64_t i = 0; numbers && i < names.nr; i++)
        numbers = np_text_int(names.items[i], 0, INT32_MAX, &number);
    if (numbers)
        qsort(names.items, names.nr, sizeof(*names.items), by_number);
    if (code == 0) {
        *ret_names = np_node_new(NP_NODE_LIST, 0, 0);
        for (uint64_t i = 0; i < names.nr; i++) {
            struct np_node *item = np_node_scalar(names.items[i], 0, 0);

            item->quoted = true;
            np_node_add(*ret_names, NULL, item);
        }
    }
    for (uint64_t i = 0; i < names.nr; i++)
        np_free(names.items[i]);
    np_free(names.items);
    return code;
}

/* --- values ------------------------------------------------------------------------------------ */

struct place {
    const char *name;
    int at;
};

static int by_name(const void *left, const void *right)
{
    return strcmp(((const struct place *)left)->name, ((const struct place *)right)->name);
}

static int fill_classes(
    const char *text, const struct place *sorted, int nr, float *row, struct np_err *err)
{
    char name[NP_MAX_NAME + 1];
    const char *at = text;

    while (next_name(&at, name)) {
        const struct place key = {name, 0},
                           *found = bsearch(&key, sorted, (size_t)nr, sizeof(*sorted), by_name);

        if (!found)
            return np_err_set(
                err, -EINVAL, "the class '%.200s' is not among the %d classes", name, nr);
        row[found->at] = 1;
    }
    return check_end(text, at, err);
}

static int fill_numbers(const char *text, const int *places, int nr, float *row, struct np_err *err)
{
    int i = 0;
    char *end;

    for (const char *at = text; *at && i < nr; i++, at = *end ? end + 1 : end) {
        row[places[i]] = strtof(at, &end);
        if (end == at || (*end && *end != ' ') || !isfinite(row[places[i]]))
            return np_err_set(err, -EINVAL, "the label '%.100s' is not numbers", text);
        if (i + 1 == nr && *end)
            i = nr; /* more of them */
    }
    return i == nr ? 0
                   : np_err_set(err, -EINVAL, "the label '%.100s' is not %d number%s", text, nr,
                         nr == 1 ? "" : "s");
}

int np_label_values(enum np_label_type type, const struct np_node *names, const int *places,
    struct np_index *index, int32_t **ret_labels, struct np_err *err)
{
    const int nr = names->nr_items;
    const size_t texts = (size_t)index->nr_classes + 1;
    float *values = np_try_array(texts * (size_t)nr, sizeof(*values), err);
    int32_t *labels = np_try_array(texts, sizeof(*labels), err);
    struct place *sorted = np_try_array((size_t)nr, sizeof(*sorted), err);
    int code = values && labels && sorted ? 0 : -ENOMEM;

    for (int i = 0; code == 0 && i < nr; i++)
        sorted[i] = (struct place){names->items[i]->text, i};
    if (code == 0)
        qsort(sorted, (size_t)nr, sizeof(*sorted), by_name);
    for (int i = 0; code == 0 && i < index->nr_classes; i++) {
        float *row = values + (size_t)i * (size_t)nr;

        code = type == NP_LABEL_MULTI ? fill_classes(index->classes[i], sorted, nr, row, err)
                                      : fill_numbers(index->classes[i], places, nr, row, err);
        labels[i] = (int32_t)(XXH3_64bits(row, (size_t)nr * sizeof(*row)) & INT32_MAX);
    }
    np_free(sorted);
    if (code < 0) {
        np_free(values);
        np_free(labels);
        return code;
    }
    np_free(index->values);
    index->values = values;
    index->nr_values = nr;
    *ret_labels = labels;
    return 0;
}
