/* --weights: a run begins with weights of another run or program, and reports what was loaded. */
#include <string.h>

#include "daemon/run/run_folder.h"
#include "daemon/run/run_parts.h"
#include "trainer/checkpoint/weights.h"

static void say_lines(struct np_run *run, const char *text)
{
    for (const char *at = text; at;) {
        const size_t n = strcspn(at, "\n");

        np_run_say(run, "%.*s", (int)n, at);
        at = at[n] ? at + n + 1 : NULL;
    }
}

static void put_row(struct np_json *line, const struct np_weights_row *row)
{
    np_json_open(line, NULL, '{');
    np_json_text(line, "layer", row->layer);
    np_json_int(line, "tensors", row->nr_tensors);
    np_json_int(line, "loaded", row->nr_loaded);
    np_json_int(line, "misshapen", row->nr_misshapen);
    np_json_int(line, "frozen", row->nr_frozen);
    np_json_int(line, "values", (int64_t)row->nr_values);
    np_json_text(line, "why", row->why);
    np_json_close(line, '}');
}

static void report(struct np_run *run, const struct np_weights_table *table)
{
    char *text = np_weights_table_text(table);
    struct np_json *line = &run->line;

    say_lines(run, text);
    np_free(text);
    np_json_begin(line, "weights");
    np_json_text(line, "path", table->path);
    np_json_text(line, "part", table->part);
    np_json_text(line, "other_parts", table->others);
    np_json_text(line, "prefix", table->prefix);
    np_json_open(line, "layers", '[');
    for (int i = 0; i < table->nr_rows; i++)
        put_row(line, &table->rows[i]);
    np_json_close(line, ']');
    np_json_int(line, "unused", table->nr_unused);
    np_json_text(line, "unused_names", table->unused);
    np_ui_event(&run->ui, np_json_end(line));
}

int np_run_load_weights(struct np_run *run, struct np_err *err)
{
    const struct np_source_progress progress = {.note = np_run_note, .context = run};
    struct np_weights_table *table = NULL;
    char *path = NULL, *checkpoint = NULL;
    int code = np_weights_find(run->options->weights, &progress, &path, &checkpoint, err);

    if (code == 0)
        code = np_weights_load(path, run->setup.graph, run->arrays[NP_ARRAY_PARAMS],
            run->arrays[NP_ARRAY_BUFFERS], &table, err);
    if (code == 0)
        report(run, table);
    np_weights_table_free(table);
    np_free(path);
    np_free(checkpoint);
    return code;
}
