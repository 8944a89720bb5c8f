/* np_label_table_read() (labels: FILE of a folder) on hostile bytes, with columns that the first byte chooses, and
 * np_label_list_read() on the same bytes as its numbers and beside a good file of either kind. Each label that they
 * find is a text within the bounds. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "loader/source/index.h"
#include "loader/source/label_list.h"
#include "loader/source/label_table.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void read_list(const char *labels, const char *synsets)
{
    struct np_label_list *list = NULL;
    struct np_err err = {0};
    int code = np_label_list_read(labels, synsets, &list, &err);

    if (code != err.code || (code == 0) != (list != NULL))
        abort();
    for (const char *label = ""; list && label;) {
        label = np_label_list_next(list, "image", &err);
        if (label && (*label == '\0' || strlen(label) > NP_MAX_NAME))
            abort();
    }
    if (list && np_label_list_check(list, "folder", &err) != 0)
        abort();
    np_label_list_free(list);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const char *const names[] = {"a", "b", "a.jpg", "file", "x/y.png", ""};
    struct np_label_table *table = NULL;
    struct np_err err = {0};
    char path[40];
    int fd = bytes ? memfd_create("labels", 0) : -1;

    if (bytes == 0)
        return 0;
    if (fd < 0 || write(fd, data + 1, bytes - 1) != (ssize_t)(bytes - 1))
        abort();
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    const struct np_label_layout layout = {data[0] & 1 ? data[0] & 2 ? "a,b,c" : "a,b" : NULL,
        (enum np_label_type)(data[0] / 4 % 3), data[0] & 64 ? ' ' : '|'};
    int code = np_label_table_read(path, &layout, &table, &err);
    if (code != err.code || (code == 0) != (table != NULL))
        abort();
    for (size_t i = 0; table && i < sizeof(names) / sizeof(*names); i++) {
        const char *label = np_label_table_find(table, names[i]);

        if (label && (*label == '\0' || strlen(label) > NP_MAX_NAME))
            abort();
    }
    if (table) {
        np_label_table_numbered(table);
        np_label_table_check(table, "folder", &err);
    }
    np_label_table_free(table);
    char good[40];
    int good_fd = memfd_create("good", 0);
    if (good_fd < 0 || write(good_fd, "1\n2\n", 4) != 4)
        abort();
    snprintf(good, sizeof(good), "/proc/self/fd/%d", good_fd);
    read_list(path, good);
    read_list(good, path);
    close(good_fd);
    close(fd);
    return 0;
}
