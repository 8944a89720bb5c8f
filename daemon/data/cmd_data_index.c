/* `nnpipe data index`: lists sets ahead of time, into the cache folder, or with --beside into a
 * file beside the data, for all who read them. Main thread. */
#include <inttypes.h>

#include "daemon/data/data.h"
#include "loader/base/mem.h"

struct indexing {
    struct np_ui *ui;
    bool beside;
};

static int index_set(
    void *context, const struct np_data_set *set, struct np_index *index, struct np_err *err)
{
    const struct indexing *indexing = context;
    struct np_json *json = &indexing->ui->object;
    char *file = NULL;

    if (indexing->beside && np_source_save_beside(set->options, index, &file, err))
        return err->code;
    np_ui_say(indexing->ui, "%s: %" PRIu64 " samples in %d classes%s%s", set->what,
        np_index_samples(index), index->nr_classes, file ? "; index: " : "", file ? file : "");
    np_json_begin(json, "set");
    np_json_text(json, "set", set->what);
    np_json_int(json, "samples", (int64_t)np_index_samples(index));
    np_json_int(json, "classes", index->nr_classes);
    np_json_text(json, "file", file);
    np_ui_event(indexing->ui, np_json_end(json));
    np_free(file);
    return 0;
}

static int run(struct np_ui *ui, const struct np_data_sets *sets, bool beside)
{
    struct indexing indexing = {ui, beside};

    return np_data_each_set(ui, sets, index_set, &indexing);
}

int np_data_index(int argc, char **argv)
{
    return np_data_read_sets(argc, argv, "--beside", run);
}
