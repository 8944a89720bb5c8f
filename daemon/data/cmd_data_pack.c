/* `nnpipe data pack`: writes sets into shards with an index. Main thread. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "daemon/data/data.h"
#include "loader/base/mem.h"
#include "loader/base/rng.h"
#include "loader/pack/fetch.h"
#include "loader/pack/pack.h"

#define SHARD_BYTES   (256 << 20)
#define ALIGNED_BYTES (64 << 10) /* mean size of a record above which direct I/O may be faster */
#define PILOT         32         /* samples that estimate the mean of rewritten records */

struct pack {
    struct np_pack_options options;
    struct np_repack repack;
    struct np_ui *ui;
    uint64_t nr_bad, nr_samples, nr_unlabelled;
    const char *shuffle; /* the seed as text; NULL: keep the order */
    int64_t seed;
};

struct packing {
    struct np_index *index;
    struct np_fetch *fetch;
    struct np_repacker *repacker;
};

static void packing_close(struct packing *packing)
{
    np_fetch_close(packing->fetch);
    np_repacker_free(packing->repacker);
    np_index_free(packing->index);
}

/* Leaves out what training leaves out, so that the shards hold the set of the config. */
static int skip_unlabelled(struct pack *pack, const struct np_source_options *options,
    struct np_index *index, struct np_err *err)
{
    uint64_t first, n = np_index_unlabelled(index, &first);

    if (options->unlabelled != NP_UNLABELLED_SKIP || n == np_index_samples(index))
        return 0;
    pack->nr_unlabelled += n;
    return np_index_skip_unlabelled(index, err);
}

static int packing_open(
    struct pack *pack, const struct np_data_set *set, struct packing *packing, struct np_err *err)
{
    int code;

    memset(packing, 0, sizeof(*packing));
    code = np_data_open(set, &packing->index, err);
    if (!code)
        code = skip_unlabelled(pack, set->options, packing->index, err);
    if (code == 0 && packing->index->label_type != NP_LABEL_CLASS)
        code = np_err_set(err, -EINVAL,
            "label_type: shards hold classes, not labels of the type %s; pack the images without "
            "the keys of labels (`nnpipe data pack FOLDER`), and give these to the shards: "
            "`source: tar` takes the same table",
            np_label_types[packing->index->label_type]);
    if (!code)
        code = np_fetch_open(packing->index, &packing->fetch, err);
    if (!code)
        code = np_repacker_new(&pack->repack, &packing->index->raw, &packing->repacker, err);
    if (code)
        packing_close(packing);
    return code;
}

struct member {
    const uint8_t *bytes;
    uint32_t nr_bytes;
    const char *extension;
};

static int make_member(
    const struct packing *packing, uint64_t i, struct member *member, struct np_err *err)
{
    const uint8_t *bytes;
    uint32_t nr_bytes;
    int code = np_fetch_get(packing->fetch, i, &bytes, &nr_bytes, err);

    return code ? code
                : np_repack(packing->repacker, bytes, nr_bytes, &member->bytes, &member->nr_bytes,
                      &member->extension, err);
}

/* The mean size of a record in bytes, from PILOT samples spread over the set. */
static uint64_t mean_bytes(const struct packing *packing)
{
    const uint64_t n = np_index_samples(packing->index), some = n < PILOT ? n : PILOT;
    uint64_t sum = 0, good = 0;

    for (uint64_t k = 0; k < some; k++) {
        struct member member;

        if (make_member(packing, k * n / some, &member, NULL) == 0) {
            sum += member.nr_bytes;
            good++;
        }
    }
    return good ? sum / good : 0;
}

static void report_bad(
    struct pack *pack, const struct packing *packing, uint64_t i, const struct np_err *err)
{
    char place[4096];

    np_data_place(packing->index, i, place, sizeof(place));
    fprintf(stderr, "left out: %s: %s\n", place, err->text);
    np_json_begin(&pack->ui->object, "bad_sample");
    np_json_text(&pack->ui->object, "path", place);
    np_json_int(&pack->ui->object, "offset", (int64_t)np_index_record(packing->index, i)->offset);
    np_json_text(&pack->ui->object, "reason", err->text);
    np_ui_event(pack->ui, np_json_end(&pack->ui->object));
    pack->nr_bad++;
}

static int add_one(struct pack *pack, const struct packing *packing, struct np_packer *packer,
    uint64_t i, struct np_err *err)
{
    const struct np_record *record = np_index_record(packing->index, i);
    const char *class_name = record->no_label ? NULL : packing->index->classes[record->label];
    char name[NP_MAX_NAME + 1];
    struct member member;
    struct np_err why = {0};
    int code = make_member(packing, i, &member, &why);

    if (code == -EBADMSG) {
        report_bad(pack, packing, i, &why);
        return 0;
    }
    if (code) {
        np_data_place(packing->index, i, name, sizeof(name));
        return np_err_set(err, code, "%s: %s", name, why.text);
    }
    np_index_name(packing->index, i, name, sizeof(name));
    return np_packer_add(
        packer, class_name, name, member.extension, member.bytes, member.nr_bytes, err);
}

/* The numbers of the samples in the order of the seed; np_free. NULL: out of memory. */
static uint32_t *shuffled(uint64_t n, int64_t seed, struct np_err *err)
{
    uint32_t *order = np_try_array((size_t)n, sizeof(*order), err);
    struct np_draws draws;

    if (!order)
        return NULL;
    np_draws_init(&draws, (uint64_t)seed, NP_STREAM_ORDER, 0, 0, 0);
    for (uint64_t i = 0; i < n; i++) {
        const uint32_t k = np_draw_below(&draws, (uint32_t)i + 1);

        order[i] = order[k];
        order[k] = (uint32_t)i;
    }
    return order;
}

static int add_set(
    struct pack *pack, const struct packing *packing, struct np_packer *packer, struct np_err *err)
{
    const uint64_t n = np_index_samples(packing->index);
    uint32_t *order = pack->shuffle ? shuffled(n, pack->seed, err) : NULL;
    int code = pack->shuffle && !order ? -ENOMEM : 0;

    for (uint64_t i = 0; !code && i < n; i++)
        code = add_one(pack, packing, packer, order ? order[i] : i, err);
    pack->nr_samples += n;
    np_free(order);
    return code;
}

static int pack_sets(struct pack *pack, const struct np_data_sets *sets,
    struct np_pack_result *result, struct np_err *err)
{
    struct np_packer *packer = NULL;
    int code = 0;

    for (int s = 0; !code && s < sets->nr_sets; s++) {
        struct packing packing;

        code = packing_open(pack, &sets->sets[s], &packing, err);
        if (code)
            break;
        if (!packer) {
            pack->options.align =
                pack->options.zstd_level == 0 && mean_bytes(&packing) >= ALIGNED_BYTES;
            code = np_packer_open(&pack->options, &packer, err);
        }
        if (!code)
            code = add_set(pack, &packing, packer, err);
        packing_close(&packing);
    }
    if (!code)
        return np_packer_close(packer, result, err);
    np_packer_abort(packer);
    return code;
}

static int run(struct pack *pack, const struct np_data_sets *sets)
{
    struct np_pack_result result = {0};
    struct np_err err = {0};

    if (pack_sets(pack, sets, &result, &err)) {
        np_ui_error(pack->ui, &err);
        return NP_EXIT_FAILED;
    }
    np_ui_say(pack->ui, "%" PRIu64 " samples, %" PRIu64 " bytes in %d shard%s%s; path: %s",
        result.samples, result.bytes, result.nr_shards, result.nr_shards == 1 ? "" : "s",
        pack->options.align ? ", records at multiples of 4096" : "", result.pattern);
    if (pack->nr_bad)
        np_ui_say(pack->ui, "%" PRIu64 " bad samples were left out", pack->nr_bad);
    if (pack->nr_unlabelled)
        np_ui_say(pack->ui, "%" PRIu64 " samples in no class were left out, as the config says",
            pack->nr_unlabelled);
    np_json_begin(&pack->ui->object, "done");
    np_json_int(&pack->ui->object, "samples", (int64_t)result.samples);
    np_json_int(&pack->ui->object, "bytes", (int64_t)result.bytes);
    np_json_int(&pack->ui->object, "bad", (int64_t)pack->nr_bad);
    np_json_int(&pack->ui->object, "unlabelled", (int64_t)pack->nr_unlabelled);
    np_json_int(&pack->ui->object, "shards", result.nr_shards);
    np_json_bool(&pack->ui->object, "aligned", pack->options.align);
    np_json_text(&pack->ui->object, "path", result.pattern);
    np_ui_event(pack->ui, np_json_end(&pack->ui->object));
    return NP_EXIT_DONE;
}

struct words {
    const char *resize, *quality, *zstd, *shard_size;
};

static bool take_words(struct pack *pack, const struct words *words)
{
    int64_t level = 0;

    if (!np_data_number("--resize", words->resize, false, 1, 65500, &pack->repack.resize) ||
        !np_data_number("--quality", words->quality, false, 1, 100, &pack->repack.quality) ||
        !np_data_number("--shuffle", pack->shuffle, false, 0, INT64_MAX, &pack->seed) ||
        !np_data_number("--zstd", words->zstd, false, 1, 19, &level) ||
        !np_data_number(
            "--shard-size", words->shard_size, true, 1, INT64_MAX, &pack->options.shard_bytes))
        return false;
    pack->options.zstd_level = (int)level;
    if (pack->repack.raw && pack->repack.quality) {
        np_data_usage("--raw and --quality exclude each other");
        return false;
    }
    return true;
}

int np_data_pack(int argc, char **argv)
{
    struct pack pack = {.options = {.shard_bytes = SHARD_BYTES}};
    struct np_data_choice choice = {0};
    struct words words = {0};
    bool json = false;
    const struct np_flag flags[] = {{"--out", &pack.options.out, NULL, NULL},
        {"--split", &choice.split, NULL, NULL}, {"--source", &choice.source, NULL, NULL},
        {"--match", &choice.match, NULL, NULL}, {"--resize", &words.resize, NULL, NULL},
        {"--quality", &words.quality, NULL, NULL}, {"--raw", NULL, &pack.repack.raw, NULL},
        {"--shuffle", &pack.shuffle, NULL, NULL}, {"--zstd", &words.zstd, NULL, NULL},
        {"--shard-size", &words.shard_size, NULL, NULL}, {"--json", NULL, &json, NULL},
        {NULL, NULL, NULL, NULL}};
    struct np_data_sets sets;
    struct np_ui ui;
    int nr, code = np_flags_parse(argc, argv, flags, &choice.overrides, &nr);

    if (code)
        return code;
    if (!pack.options.out)
        return np_data_usage("pack needs --out DIR");
    if (!take_words(&pack, &words))
        return NP_EXIT_USAGE;
    choice.split = choice.split ? choice.split : "train";
    pack.options.name = choice.split;
    code = np_data_sets_open(nr, argv + 1, &choice, &sets);
    if (code)
        return code;
    pack.repack.pixels =
        sets.config ? (enum np_pixels_rule)sets.config->loader.pixels : NP_RULE_PILLOW_13;
    pack.repack.max_pixels = sets.config ? (uint64_t)sets.config->loader.max_pixels : 0;
    np_ui_init(&ui, json);
    pack.ui = &ui;
    code = run(&pack, &sets);
    np_ui_fini(&ui);
    np_data_sets_close(&sets);
    return code;
}
