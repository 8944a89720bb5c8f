/* np_label_table_read() (labels: FILE of a folder) on hostile bytes, with columns that the first byte chooses.
 * Each label that it finds is a text within the bounds. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "loader/source/index.h"
#include "loader/source/label_table.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

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
    int code = np_label_table_read(path, data[0] & 1 ? "a,b" : NULL, &table, &err);
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
    close(fd);
    return 0;
}
