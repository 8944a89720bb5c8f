/* `nnpipe data ls`: lists the samples of sets, one per line. Main thread. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "daemon/data/data.h"
#include "loader/source/files.h"

/* The sums are over all sets. */
struct totals {
    struct np_ui *ui;
    uint64_t samples, bytes;
    int classes;
    const char *word; /* for the classes */
};

static void list_one(struct np_ui *ui, const char *what, const struct np_index *index, uint64_t i)
{
    const struct np_record *record = np_index_record(index, i);
    const char *class_name = record->no_label ? NULL : index->classes[record->label];
    struct np_extent extent;
    char name[NP_MAX_NAME + 1];

    np_index_name(index, i, name, sizeof(name));
    if (!ui->json) {
        char class_text[NP_MAX_NAME + 1];

        snprintf(class_text, sizeof(class_text), "%s", class_name ? class_name : "-");
        np_text_clean(name); /* --json prints it unchanged */
        np_text_clean(class_text);
        printf("%s\t%s\t%" PRIu32 "\n", name, class_text, record->inner_bytes);
        return;
    }
    np_source_locate(index, i, &extent);
    np_json_begin(&ui->object, "sample");
    np_json_text(&ui->object, "set", what);
    np_json_text(&ui->object, "path", name);
    np_json_text(&ui->object, "file", extent.path);
    np_json_int(&ui->object, "offset", (int64_t)record->offset);
    np_json_int(&ui->object, "bytes", record->inner_bytes);
    if (class_name)
        np_json_int(&ui->object, "label", record->label);
    else
        np_json_null(&ui->object, "label");
    np_json_text(&ui->object, "class", class_name);
    if (record->has_crc)
        np_json_int(&ui->object, "crc32c", record->crc32c);
    else
        np_json_null(&ui->object, "crc32c");
    np_ui_event(ui, np_json_end(&ui->object));
}

static int list_set(
    void *context, const struct np_data_set *set, struct np_index *index, struct np_err *err)
{
    struct totals *totals = context;

    for (uint64_t i = 0; i < np_index_samples(index) && !ferror(stdout); i++) {
        list_one(totals->ui, set->what, index, i);
        totals->bytes += np_index_record(index, i)->inner_bytes;
    }
    totals->samples += np_index_samples(index);
    totals->word = np_index_labels_word(index);
    if (index->nr_classes > totals->classes)
        totals->classes = index->nr_classes;
    return 0;
}

static int run(struct np_ui *ui, const struct np_data_sets *sets, void *context)
{
    struct totals totals = {.ui = ui};
    struct np_err err = {0};

    if (np_data_each_set(ui, sets, list_set, &totals) != NP_EXIT_DONE)
        return NP_EXIT_FAILED;
    if (fflush(stdout) != 0 || ferror(stdout)) { /* an incomplete list has no sum */
        if (errno == EPIPE)                      /* the reader has closed the pipe, like `| head` */
            return NP_EXIT_DONE;
        np_err_set(&err, -errno, "the list cannot be written: %s", strerror(errno));
        np_complain(&err);
        return NP_EXIT_FAILED;
    }
    fprintf(stderr, "%" PRIu64 " samples in %d %s, %" PRIu64 " bytes\n", totals.samples,
        totals.classes, totals.word ? totals.word : "classes", totals.bytes);
    np_json_begin(&ui->object, "done");
    np_json_int(&ui->object, "samples", (int64_t)totals.samples);
    np_json_int(&ui->object, "classes", totals.classes);
    np_json_int(&ui->object, "bytes", (int64_t)totals.bytes);
    np_ui_event(ui, np_json_end(&ui->object));
    return NP_EXIT_DONE;
}

int np_data_ls(int argc, char **argv)
{
    return np_data_read_sets(argc, argv, NULL, run, NULL);
}
