/* `nnpipe data synth`: writes a sample set of drawn shapes as shards of JPEGs, train and test. Main
 * thread. */
#include <errno.h>
#include <stdio.h>

#include "daemon/data/data.h"
#include "loader/base/mem.h"
#include "loader/pixels/codec.h"
#include "loader/pack/pack.h"
#include "loader/base/synth.h"

#define QUALITY     90
#define ZSTD_LEVEL  3
#define SHARD_BYTES (4 << 20)

struct synth {
    const char *out;
    int64_t samples, test, size, seed;
    uint8_t *pixels;
};

static int add_one(
    const struct synth *synth, struct np_packer *packer, uint64_t i, struct np_err *err)
{
    uint8_t *jpeg = NULL;
    size_t bytes;
    char name[32];
    int label, code;

    np_synth_draw((uint64_t)synth->seed, i, (int)synth->size, synth->pixels, &label);
    snprintf(name, sizeof(name), "%08llu", (unsigned long long)i);
    code = np_codec_jpeg.encode(
        synth->pixels, (int)synth->size, (int)synth->size, 3, QUALITY, &jpeg, &bytes, err);
    if (!code)
        code =
            np_packer_add(packer, np_synth_names[label], name, "jpg", jpeg, (uint32_t)bytes, err);
    np_free(jpeg);
    return code;
}

/* Writes samples first..first+n-1 of the sequence of a seed; train and test have no sample in
 * common. */
static int write_split(const struct synth *synth, const char *name, uint64_t first, uint64_t n,
    struct np_pack_result *result, struct np_err *err)
{
    const struct np_pack_options options = {
        .out = synth->out, .name = name, .shard_bytes = SHARD_BYTES, .zstd_level = ZSTD_LEVEL};
    struct np_packer *packer;
    int code = np_packer_open(&options, &packer, err);

    if (code)
        return code;
    for (uint64_t i = 0; !code && i < n; i++)
        code = add_one(synth, packer, first + i, err);
    if (!code)
        return np_packer_close(packer, result, err);
    np_packer_abort(packer);
    return code;
}

static int run(struct synth *synth, struct np_ui *ui)
{
    struct np_pack_result train = {0}, test = {0};
    struct np_err err = {0};
    int code;

    synth->pixels = np_try_array((size_t)(synth->size * synth->size), 3, &err);
    code = synth->pixels ? 0 : -ENOMEM;
    if (!code)
        code = write_split(synth, "train", 0, (uint64_t)synth->samples, &train, &err);
    if (!code && synth->test)
        code = write_split(
            synth, "test", (uint64_t)synth->samples, (uint64_t)synth->test, &test, &err);
    np_free(synth->pixels);
    if (code) {
        np_ui_error(ui, &err);
        return NP_EXIT_FAILED;
    }
    np_ui_say(ui, "%llu training and %llu test images of %lld x %lld pixels, %d classes, in %s",
        (unsigned long long)train.samples, (unsigned long long)test.samples, (long long)synth->size,
        (long long)synth->size, NP_SYNTH_CLASSES, synth->out);
    np_json_begin(&ui->object, "done");
    np_json_int(&ui->object, "samples", (int64_t)train.samples);
    np_json_int(&ui->object, "test_samples", (int64_t)test.samples);
    np_json_int(&ui->object, "bytes", (int64_t)(train.bytes + test.bytes));
    np_json_text(&ui->object, "train", train.pattern);
    np_json_text(&ui->object, "test", synth->test ? test.pattern : NULL);
    np_ui_event(ui, np_json_end(&ui->object));
    return NP_EXIT_DONE;
}

int np_data_synth(int argc, char **argv)
{
    struct synth synth = {.samples = 10000, .test = 2000, .size = 32, .seed = 1};
    const char *samples = NULL, *test = NULL, *size = NULL, *seed = NULL;
    bool json = false;
    const struct np_flag flags[] = {{"--out", &synth.out, NULL, NULL},
        {"--samples", &samples, NULL, NULL}, {"--test", &test, NULL, NULL},
        {"--size", &size, NULL, NULL}, {"--seed", &seed, NULL, NULL}, {"--json", NULL, &json, NULL},
        {NULL, NULL, NULL, NULL}};
    struct np_ui ui;
    int nr, code = np_flags_parse(argc, argv, flags, NULL, &nr);

    if (code)
        return code;
    if (nr || !synth.out)
        return np_data_usage("synth takes --out DIR and no operand");
    if (!np_data_number("--samples", samples, false, 1, UINT32_MAX, &synth.samples) ||
        !np_data_number("--test", test, false, 0, UINT32_MAX, &synth.test) ||
        !np_data_number("--size", size, false, 8, 1024, &synth.size) ||
        !np_data_number("--seed", seed, false, 0, INT64_MAX, &synth.seed))
        return NP_EXIT_USAGE;
    np_ui_init(&ui, json);
    code = run(&synth, &ui);
    np_ui_fini(&ui);
    return code;
}
