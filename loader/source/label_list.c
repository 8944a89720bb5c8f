/* Labels without names of files. Both texts are read whole and cut in place into lines. */
#include "loader/source/label_list.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "loader/base/io.h"
#include "loader/base/mem.h"
#include "loader/base/text.h"
#include "loader/source/index.h"

#define MAX_FILE (256u << 20)

struct lines {
    char *path, *text;
    char **line; /* (nr_lines), in text */
    int nr_lines;
};

struct np_label_list {
    struct lines labels, synsets;
    int *numbers; /* (labels.nr_lines): of the synsets, from 0 */
    int next;
};

static void lines_fini(struct lines *lines)
{
    np_free(lines->path);
    np_free(lines->text);
    np_free(lines->line);
}

/* max: of lines. */
static int read_lines(const char *path, uint64_t max, struct lines *ret_lines, struct np_err *err)
{
    uint64_t bytes = 0, n = 1;
    int code = (ret_lines->path = np_try_strdup(path, err))
                   ? np_read_file(path, MAX_FILE, &ret_lines->text, &bytes, err)
                   : -ENOMEM;

    if (code < 0)
        return code;
    char *at = ret_lines->text, *const end = at + bytes;

    at += bytes >= 3 && memcmp(at, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    for (const char *c = at; c < end; c++)
        n += *c == '\n';
    if (n > max + 1)
        return np_err_set(err, -E2BIG, "%s: it has over %llu lines", path, (unsigned long long)max);
    if (!(ret_lines->line = np_try_array(n, sizeof(*ret_lines->line), err)))
        return -ENOMEM;
    while (at < end) {
        char *newline = memchr(at, '\n', (size_t)(end - at));

        newline = newline ? newline : end;
        ret_lines->line[ret_lines->nr_lines++] = at;
        if (memchr(at, '\0', (size_t)(newline - at)))
            return np_err_set(
                err, -EINVAL, "%s:%d: a NUL byte: not a text file", path, ret_lines->nr_lines);
        *newline = '\0';
        if (newline > at && newline[-1] == '\r')
            newline[-1] = '\0';
        at = newline + 1;
    }
    return 0;
}

/* --- synsets --------------------------------------------------------------------------------- */

static int by_name(const void *left, const void *right)
{
    char *const *a = *(char *const *const *)left, *const *b = *(char *const *const *)right;
    const int order = strcmp(*a, *b);

    return order ? order : (a > b) - (a < b);
}

static int check_unique(const struct lines *synsets, struct np_err *err)
{
    char ***sorted = np_try_array((size_t)synsets->nr_lines + 1, sizeof(*sorted), err);
    int code = sorted ? 0 : -ENOMEM;

    for (int i = 0; sorted && i < synsets->nr_lines; i++)
        sorted[i] = &synsets->line[i];
    if (sorted)
        qsort(sorted, (size_t)synsets->nr_lines, sizeof(*sorted), by_name);
    for (int i = 1; code == 0 && i < synsets->nr_lines; i++)
        if (strcmp(*sorted[i], *sorted[i - 1]) == 0)
            code = np_err_set(err, -EINVAL, "%s:%d: '%.200s' is also in line %d", synsets->path,
                (int)(sorted[i] - synsets->line) + 1, *sorted[i],
                (int)(sorted[i - 1] - synsets->line) + 1);
    np_free(sorted);
    return code;
}

/* Cuts each line behind its first word. */
static int read_synsets(const char *path, struct lines *synsets, struct np_err *err)
{
    int code = read_lines(path, NP_MAX_CLASSES, synsets, err);

    for (int i = 0; code == 0 && i < synsets->nr_lines; i++) {
        const size_t bytes = strcspn(synsets->line[i], " \t");

        if (bytes == 0 || bytes > NP_MAX_NAME)
            return np_err_set(err, -EINVAL,
                "%s:%d: the name of a class is expected, then a blank or the end of the line", path,
                i + 1);
        synsets->line[i][bytes] = '\0';
    }
    if (code == 0 && synsets->nr_lines == 0)
        code = np_err_set(err, -EINVAL, "%s: it is empty; one class per line", path);
    return code == 0 ? check_unique(synsets, err) : code;
}

/* --- numbers --------------------------------------------------------------------------------- */

static int read_numbers(struct np_label_list *list, struct np_err *err)
{
    const struct lines *labels = &list->labels;
    const int nr_synsets = list->synsets.nr_lines;

    list->numbers = np_try_array((size_t)labels->nr_lines + 1, sizeof(*list->numbers), err);
    if (!list->numbers)
        return -ENOMEM;
    for (int i = 0; i < labels->nr_lines; i++) {
        int64_t number;

        if (!np_text_int(labels->line[i], 1, nr_synsets, &number))
            return np_err_set(err, -EINVAL,
                "%s:%d: '%.40s' is not the number of a class, 1 to %d, the lines of %s; with "
                "`synsets` each line is a number, without the name of a file",
                labels->path, i + 1, labels->line[i], nr_synsets, list->synsets.path);
        list->numbers[i] = (int)number - 1;
    }
    return 0;
}

int np_label_list_read(
    const char *labels, const char *synsets, struct np_label_list **ret_list, struct np_err *err)
{
    struct np_label_list *list = np_try_alloc(sizeof(*list), err);
    int code = list ? read_synsets(synsets, &list->synsets, err) : -ENOMEM;

    if (code == 0)
        code = read_lines(labels, UINT32_MAX / 2, &list->labels, err);
    if (code == 0)
        code = read_numbers(list, err);
    if (code < 0)
        np_label_list_free(list);
    else
        *ret_list = list;
    return code;
}

void np_label_list_free(struct np_label_list *list)
{
    if (!list)
        return;
    lines_fini(&list->labels);
    lines_fini(&list->synsets);
    np_free(list->numbers);
    np_free(list);
}

const char *np_label_list_next(struct np_label_list *list, const char *image, struct np_err *err)
{
    if (list->next < list->labels.nr_lines)
        return list->synsets.line[list->numbers[list->next++]];
    np_err_set(err, -EINVAL, "%s:%d: this is the last number, but there is another image, '%.300s'",
        list->labels.path, list->labels.nr_lines, image);
    return NULL;
}

int np_label_list_check(const struct np_label_list *list, const char *folder, struct np_err *err)
{
    if (list->next == list->labels.nr_lines)
        return 0;
    return np_err_set(err, -EINVAL, "%s:%d: there is no image %d: %s has only %d",
        list->labels.path, list->next + 1, list->next + 1, folder, list->next);
}
