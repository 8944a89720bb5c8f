/* Lists the tensors in a file of weights. */
#include "daemon/run/show_weights.h"

#include <inttypes.h>
#include <stdio.h>

#include "daemon/cmd.h"
#include "loader/base/json.h"
#include "loader/base/mem.h"
#include "trainer/checkpoint/weights_file.h"
#include "trainer/checkpoint/weights_table.h"

static void print_tensor(const struct np_st_tensor *tensor)
{
    char shape[NP_ST_MAX_DIMS * 21 + 1] = "", name[400];

    for (int i = 0, at = 0; i < tensor->nr_dims; i++)
        at += snprintf(shape + at, sizeof(shape) - (size_t)at, "%s%" PRId64, i > 0 ? "x" : "",
            tensor->dims[i]);
    snprintf(name, sizeof(name), "%s", tensor->name);
    np_text_clean(name);
    printf("%-48s %-8s %s\n", name, tensor->dtype, shape);
}

static void print_json(const struct np_st_tensor *tensor, struct np_json *line)
{
    np_json_begin(line, "tensor");
    np_json_text(line, "name", tensor->name);
    np_json_text(line, "dtype", tensor->dtype);
    np_json_open(line, "shape", '[');
    for (int i = 0; i < tensor->nr_dims; i++)
        np_json_int(line, NULL, tensor->dims[i]);
    np_json_close(line, ']');
    np_json_print(line, stdout);
}

int np_show_weights(const char *path, bool json)
{
    struct np_st_file *file = NULL;
    struct np_json line = {0};
    struct np_err err = {0};

    if (np_weights_open(path, &file, &err) < 0) {
        np_complain(&err);
        return NP_EXIT_FAILED;
    }
    struct np_weights_table *table =
        np_weights_table_new(file->name, file->part, file->others, file->prefix);
    char *source = np_weights_table_source(table);
    if (!json)
        printf("# %s: %d tensors\n", source, file->n);
    for (int i = 0; i < file->n; i++)
        if (json)
            print_json(&file->tensors[i], &line);
        else
            print_tensor(&file->tensors[i]);
    np_free(source);
    np_weights_table_free(table);
    np_json_fini(&line);
    np_st_close(file);
    return NP_EXIT_DONE;
}
