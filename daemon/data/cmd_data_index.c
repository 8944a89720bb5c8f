/* `nnpipe data index`: lists sets ahead of time, into the cache folder, or with --beside into a
 * file beside the data, for all users of the data; with --entries also finds the entries of their
 * JPEGs. Main thread. */
#include <errno.h>
#include <inttypes.h>

#include "daemon/data/data.h"
#include "daemon/data/fill_entries.h"
#include "loader/base/mem.h"
#include "loader/source/entries.h"

struct indexing {
    struct np_ui *ui;
    bool beside, entries;
    int64_t entries_bytes;
};

static int fill(const struct indexing *indexing, const struct np_data_set *set,
    const struct np_index *index, struct np_err *err)
{
    struct np_json *json = &indexing->ui->object;
    struct np_filled filled;
    const int code = np_fill_entries(index, indexing->entries_bytes, &filled, err);

    if (code)
        return code;
    np_ui_say(indexing->ui,
        "%s: %" PRIu64 " pictures have entries, %" PRIu64 " cannot have any, %" PRIu64
        " are bad%s%s",
        set->what, filled.nr_entered, filled.nr_none, filled.nr_bad, *filled.note ? "; " : "",
        filled.note);
    np_json_begin(json, "entries");
    np_json_text(json, "set", set->what);
    np_json_int(json, "entered", (int64_t)filled.nr_entered);
    np_json_int(json, "none", (int64_t)filled.nr_none);
    np_json_int(json, "bad", (int64_t)filled.nr_bad);
    np_json_int(json, "left", (int64_t)filled.nr_left);
    np_json_text(json, "note", *filled.note ? filled.note : NULL);
    np_ui_event(indexing->ui, np_json_end(json));
    if (filled.nr_left)
        return np_err_set(err, -ENOSPC,
            "%" PRIu64 " pictures have no entries, because there is no space for them; "
            "raise loader.entries",
            filled.nr_left);
    return 0;
}

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
    return indexing->entries ? fill(indexing, set, index, err) : 0;
}

static int run(struct np_ui *ui, const struct np_data_sets *sets, void *context)
{
    struct indexing *indexing = context;

    indexing->ui = ui;
    indexing->entries_bytes = sets->config ? sets->config->loader.entries_bytes : NP_ENTRIES_AUTO;
    if (indexing->entries && indexing->entries_bytes == 0)
        return np_data_usage("--entries, but the config has loader.entries: off");
    return np_data_each_set(ui, sets, index_set, indexing);
}

int np_data_index(int argc, char **argv)
{
    struct indexing indexing = {0};
    const struct np_flag flags[] = {
        {"--beside", NULL, &indexing.beside, NULL}, {"--entries", NULL, &indexing.entries, NULL}};

    return np_data_read_sets(argc, argv, flags, run, &indexing);
}
