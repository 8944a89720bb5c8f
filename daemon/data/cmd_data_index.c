/* `nnpipe data index`: lists sets ahead of time, into the cache folder, or with --beside into a file
 * beside the data, for all who read them. Main thread. */
#include <inttypes.h>

#include "daemon/data/data.h"
#include "loader/base/mem.h"

struct indexing {
    struct np_ui *ui;
    bool beside;
};

static void tell(
    struct indexing *indexing, const char *what, const struct np_index *index, const char *file)
{
    struct np_json *json = &indexing->ui->object;

    np_ui_say(indexing->ui, "%s: %" PRIu64 " samples in %d classes%s%s", what,
        np_index_samples(index), index->nr_classes, file ? "; index: " : "", file ? file : "");
    np_json_begin(json, "set");
    np_json_text(json, "set", what);
    np_json_int(json, "samples", (int64_t)np_index_samples(index));
    np_json_int(json, "classes", index->nr_classes);
    np_json_text(json, "file", file);
    np_ui_event(indexing->ui, np_json_end(json));
}

static int index_set(struct indexing *indexing, const struct np_data_set *set, struct np_err *err)
{
    struct np_index *index = NULL;
    char *file = NULL;
    int code = np_data_open(set, &index, err);

    if (!code && indexing->beside)
        code = np_source_save_beside(set->options, index, &file, err);
    if (!code)
        tell(indexing, set->what, index, file);
    np_index_free(index);
    np_free(file);
    return code;
}

static int run(struct indexing *indexing, const struct np_data_sets *sets)
{
    struct np_err err = {0};

    for (int s = 0; s < sets->nr_sets; s++)
        if (index_set(indexing, &sets->sets[s], &err)) {
            np_ui_error(indexing->ui, &err);
            return NP_EXIT_FAILED;
        }
    return NP_EXIT_DONE;
}

int np_data_index(int argc, char **argv)
{
    struct np_data_choice choice = {0};
    struct np_ui ui;
    struct indexing indexing = {.ui = &ui};
    bool json = false;
    const struct np_flag flags[] = {{"--beside", NULL, &indexing.beside, NULL},
        {"--split", &choice.split, NULL, NULL}, {"--source", &choice.source, NULL, NULL},
        {"--match", &choice.match, NULL, NULL}, {"--json", NULL, &json, NULL},
        {NULL, NULL, NULL, NULL}};
    struct np_data_sets sets;
    int nr, code = np_flags_parse(argc, argv, flags, &choice.overrides, &nr);

    if (!code)
        code = np_data_sets_open(nr, argv + 1, &choice, &sets);
    if (code)
        return code;
    np_ui_init(&ui, json);
    code = run(&indexing, &sets);
    np_ui_fini(&ui);
    np_data_sets_close(&sets);
    return code;
}
