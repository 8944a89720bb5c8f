/* np_classes_read() (data.classes: FILE) on hostile bytes. What it takes are names, each once; written
 * again with the mark and line ends that it removes, they are read as the same. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/config/setup.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static int read_bytes(const void *data, size_t bytes, struct np_node **ret_classes)
{
    struct np_err err = {0};
    char path[40];
    int fd = memfd_create("classes", 0);

    if (fd < 0 || write(fd, data, bytes) != (ssize_t)bytes)
        abort();
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    int result = np_classes_read(path, ret_classes, &err);
    if (result != err.code || (result == 0) != (*ret_classes != NULL))
        abort();
    close(fd);
    return result;
}

/* A file of the names; free. Ends the program where one cannot be a name. */
static char *write_names(const struct np_node *classes, size_t *ret_bytes)
{
    char *text = NULL;
    FILE *out = open_memstream(&text, ret_bytes);

    if (!out || classes->kind != NP_NODE_LIST || classes->nr_items == 0)
        abort();
    fputs("\xef\xbb\xbf", out);
    for (int i = 0; i < classes->nr_items; i++) {
        const char *name = classes->items[i]->text;

        if (*name == '\0' || strlen(name) > NP_MAX_NAME || strchr(name, '\n'))
            abort();
        fprintf(out, "%s\r\n", name);
    }
    fclose(out);
    return text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct np_node *classes = NULL, *again = NULL;
    size_t text_bytes;

    if (read_bytes(data, bytes, &classes) < 0)
        return 0;
    char *text = write_names(classes, &text_bytes);
    if (read_bytes(text, text_bytes, &again) < 0 || again->nr_items != classes->nr_items)
        abort();
    for (int i = 0; i < again->nr_items; i++)
        if (strcmp(again->items[i]->text, classes->items[i]->text) != 0)
            abort();
    free(text);
    np_node_free(again);
    np_node_free(classes);
    return 0;
}
