/* `nnpipe data verify`: reads and decodes every sample, compares its checksum, and adds missing
 * checksums to the index. Prints each bad sample; exits with 1 if there is one. Main thread. */
#include <inttypes.h>
#include <stdio.h>

#include "daemon/data/data.h"
#include "loader/base/crc32c.h"

struct verify {
    struct np_ui *ui;
    uint64_t samples, bytes, bad, new_crcs;
    uint64_t unlabelled, left_out; /* left_out: by `unlabelled: skip` */
};

static void report_bad(
    struct verify *verify, const struct np_index *index, uint64_t i, const struct np_err *why)
{
    char place[4096];

    np_data_place(index, i, place, sizeof(place));
    np_ui_say(verify->ui, "bad: %s at offset %" PRIu64 ": %s", place,
        np_index_record(index, i)->offset, why->text);
    np_json_begin(&verify->ui->object, "bad_sample");
    np_json_text(&verify->ui->object, "path", place);
    np_json_int(&verify->ui->object, "offset", (int64_t)np_index_record(index, i)->offset);
    np_json_text(&verify->ui->object, "reason", why->text);
    np_ui_event(verify->ui, np_json_end(&verify->ui->object));
    verify->bad++;
}

static void verify_one(
    struct verify *verify, struct np_index *index, struct np_data_pixels *pixels, uint64_t i)
{
    const struct np_record record = np_index_get(index, i);
    struct np_data_sample sample;
    struct np_err why = {0};

    verify->samples++;
    verify->unlabelled += record.no_label;
    if (np_data_pixels_get(pixels, i, &sample, &why)) { /* also for a sample that cannot be read */
        report_bad(verify, index, i, &why);
        return;
    }
    verify->bytes += sample.nr_bytes;
    if (!record.has_crc && index->raw.kind != NP_RAW_SYNTH) {
        np_index_set_crc(index, i, np_crc32c(0, sample.bytes, sample.nr_bytes));
        verify->new_crcs++;
    }
}

static void say_unlabelled(const struct verify *verify)
{
    const uint64_t refused = verify->unlabelled - verify->left_out;

    if (refused)
        np_ui_say(verify->ui,
            "%" PRIu64
            " samples are in no class: training refuses them, `unlabelled: skip` leaves them out",
            refused);
    if (verify->left_out)
        np_ui_say(verify->ui,
            "%" PRIu64 " samples are in no class: training leaves them out (`unlabelled: skip`)",
            verify->left_out);
}

static int verify_set(
    void *context, const struct np_data_set *set, struct np_index *index, struct np_err *err)
{
    struct verify *verify = context;
    const uint64_t crcs_before = verify->new_crcs, unlabelled_before = verify->unlabelled;
    struct np_data_pixels pixels;
    struct np_err unsaved = {0};
    int code = np_data_pixels_open(index, set->max_pixels, &pixels, err);

    if (code)
        return code;
    for (uint64_t i = 0; i < np_index_samples(index); i++)
        verify_one(verify, index, &pixels, i);
    np_data_pixels_close(&pixels);
    if (set->options->unlabelled == NP_UNLABELLED_SKIP)
        verify->left_out += verify->unlabelled - unlabelled_before;
    if (verify->new_crcs > crcs_before && np_source_save(set->options, index, &unsaved))
        fprintf(stderr, "the index with the new checksums was not saved: %s\n", unsaved.text);
    return 0;
}

static int run(struct np_ui *ui, const struct np_data_sets *sets, void *context)
{
    struct verify verify = {.ui = ui};

    if (np_data_each_set(ui, sets, verify_set, &verify) != NP_EXIT_DONE)
        return NP_EXIT_FAILED;
    np_ui_say(ui, "%" PRIu64 " samples, %" PRIu64 " bytes, %" PRIu64 " bad", verify.samples,
        verify.bytes, verify.bad);
    say_unlabelled(&verify);
    np_json_begin(&ui->object, "done");
    np_json_int(&ui->object, "samples", (int64_t)verify.samples);
    np_json_int(&ui->object, "bytes", (int64_t)verify.bytes);
    np_json_int(&ui->object, "bad", (int64_t)verify.bad);
    np_json_int(&ui->object, "unlabelled", (int64_t)verify.unlabelled);
    np_json_int(&ui->object, "new_crcs", (int64_t)verify.new_crcs);
    np_ui_event(ui, np_json_end(&ui->object));
    return verify.bad ? NP_EXIT_FAILED : NP_EXIT_DONE;
}

int np_data_verify(int argc, char **argv)
{
    return np_data_read_sets(argc, argv, NULL, run, NULL);
}
