/* Packing: the written archive agrees with its index. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "loader/base/crc32c.h"
#include "loader/base/mem.h"
#include "loader/pixels/codec.h"
#include "loader/pack/fetch.h"
#include "loader/pack/pack.h"
#include "loader/source/source.h"
#include "tests/test.h"
#include "tests/unit/made_images.h"
#include "tests/unit/made_sets.h"

#define N 300

/* Sample i: 0 to 9000 bytes. */
static uint32_t make_bytes(int i, uint8_t bytes[9001])
{
    const uint32_t n = (uint32_t)(i * 37 % 9001);

    for (uint32_t k = 0; k < n; k++)
        bytes[k] = (uint8_t)(i + k * 31 / 7);
    return n;
}

static int pack(const char *folder, int zstd_level, bool align, struct np_pack_result *result,
    struct np_err *err)
{
    char out[1024], name[400];
    const struct np_pack_options options = {.out = out,
        .name = "train",
        .shard_bytes = 400000,
        .zstd_level = zstd_level,
        .align = align};
    struct np_packer *packer;
    uint8_t bytes[9001];
    int code;

    snprintf(out, sizeof(out), "%s/out", folder);
    code = np_packer_open(&options, &packer, err);
    for (int i = 0; !code && i < N; i++) {
        const uint32_t n = make_bytes(i, bytes);

        memset(name, 'n', sizeof(name));
        snprintf(
            name + (i % 50 == 0 ? 300 : 0), 60, "a/%d.jpg", i % 250); /* some long, some twice */
        code = np_packer_add(packer,
            i % 3 == 0   ? "cat"
            : i % 3 == 1 ? "dog"
                         : "eel",
            i % 50 == 0 ? name + 200 : name, i % 2 ? "png" : NULL, bytes, n, err);
    }
    return code ? code : np_packer_close(packer, result, err);
}

/* The set as its index has it, or (scan) as the archives have it. */
static struct np_index *open_packed(const char *pattern, bool scan)
{
    char tar[] = "tar", none[] = "", path[4096], command[5000];
    const struct np_source_options options = {
        .source = tar, .path = path, .match = none, .labels = none, .cache_dir = none};
    struct np_index *index;

    snprintf(path, sizeof(path), "%s", pattern);
    if (scan) {
        snprintf(command, sizeof(command), "rm \"$(dirname '%s')\"/*.npidx", pattern);
        if (system(command))
            abort();
    }
    if (np_source_open(&options, NULL, &index, NULL))
        abort();
    return index;
}

static void check_samples(const struct np_index *index)
{
    struct np_fetch *fetch;
    uint8_t want[9001];

    cr_assert_eq(np_fetch_open(index, &fetch, NULL), 0);
    for (int i = 0; i < N; i++) {
        const uint8_t *bytes;
        uint32_t n, want_n = make_bytes(i, want);
        int code = np_fetch_get(fetch, (uint64_t)i, &bytes, &n, NULL);

        cr_assert_eq(code, want_n ? 0 : -EBADMSG);
        cr_assert(want_n == 0 || (n == want_n && memcmp(bytes, want, n) == 0));
        cr_assert_eq(np_index_record(index, (uint64_t)i)->label, (uint32_t)(i % 3));
    }
    np_fetch_close(fetch);
}

static void check_kind(int zstd_level, bool align)
{
    char *folder = make_set();
    struct np_pack_result result;
    struct np_index *index, *scanned;
    struct np_err err = {0};

    cr_assert_eq(pack(folder, zstd_level, align, &result, &err), 0, "%s", err.text);
    cr_assert_eq(result.samples, N);
    cr_assert_gt(result.nr_shards, 2);
    index = open_packed(result.pattern, false);
    cr_assert_eq(np_index_samples(index), N);
    check_samples(index);
    scanned = open_packed(result.pattern, true);
    cr_assert_eq(np_index_samples(scanned), N);
    for (uint64_t i = 0; i < N; i++) {
        const struct np_record *a = np_index_record(index, i), *b = np_index_record(scanned, i);
        char text[NP_MAX_NAME + 300];

        cr_assert_eq(a->has_crc, 1);
        cr_assert_eq(b->has_crc, 0); /* else it is not the scan */
        cr_assert_eq(a->offset, b->offset);
        cr_assert_eq(a->bytes, b->bytes);
        cr_assert_eq(a->inner_offset, b->inner_offset);
        cr_assert_eq(a->inner_bytes, b->inner_bytes);
        cr_assert_eq(a->file, b->file);
        cr_assert_eq(a->packing, b->packing);
        if (align)
            cr_assert_eq(a->offset % 4096, 0);
        snprintf(text, sizeof(text), "%s", sample_text(index, i));
        cr_assert_str_eq(text, sample_text(scanned, i));
    }
    cr_assert_geq(index->max_inner, scanned->max_inner);
    np_index_free(index);
    np_index_free(scanned);
    remove_set(folder);
}

Test(pack, plain_shards_and_their_index_agree)
{
    check_kind(0, false);
}

Test(pack, aligned_shards_and_their_index_agree)
{
    check_kind(0, true);
}

Test(pack, zstd_shards_and_their_index_agree)
{
    check_kind(3, false);
}

Test(pack, old_shards_are_not_mixed_with_new_ones)
{
    char *folder = make_set();
    struct np_pack_result result;
    struct np_err err = {0};

    put_file(folder, "out/train-00007.tar", "", 0);
    cr_assert_eq(pack(folder, 0, false, &result, &err), -EEXIST);
    cr_assert_not_null(strstr(err.text, "train-00007.tar exists"));
    remove_set(folder);
}

Test(pack, an_aborted_pack_leaves_nothing)
{
    char *folder = make_set(), out[1024], command[1100];
    const struct np_pack_options options = {.out = out, .name = "train", .shard_bytes = 10};
    struct np_packer *packer;

    snprintf(out, sizeof(out), "%s/out", folder);
    cr_assert_eq(np_packer_open(&options, &packer, NULL), 0);
    for (int i = 0; i < 3; i++) {
        char name[8];

        snprintf(name, sizeof(name), "%d", i);
        cr_assert_eq(np_packer_add(packer, "c", name, "jpg", "abc", 3, NULL), 0);
    }
    snprintf(command, sizeof(command), "ls '%s' | grep -c part >/dev/null", out);
    cr_assert_eq(system(command), 0);
    np_packer_abort(packer);
    snprintf(command, sizeof(command), "test -z \"$(ls -A '%s')\"", out);
    cr_assert_eq(system(command), 0);
    remove_set(folder);
}

static int repack(const struct np_repack *options, const struct np_raw *raw, const uint8_t *bytes,
    size_t n, const uint8_t **ret_bytes, uint32_t *ret_n, const char **ret_extension,
    struct np_repacker **ret_repacker)
{
    if (np_repacker_new(options, raw, ret_repacker, NULL))
        abort();
    return np_repack(*ret_repacker, bytes, (uint32_t)n, ret_bytes, ret_n, ret_extension, NULL);
}

Test(pack, jpeg_is_copied_byte_for_byte_unless_requested)
{
    const struct made_jpeg made = {
        .width = 60, .height = 40, .components = 3, .h = 2, .v = 2, .quality = 80};
    const struct np_raw none = {0};
    const struct np_repack as_is = {0}, small = {.resize = 20}, larger = {.resize = 50},
                           worse = {.quality = 20}, pixels = {.raw = true};
    size_t n;
    uint8_t *jpeg = made_jpeg(&made, &n);
    const uint8_t *bytes;
    const char *extension;
    struct np_repacker *repacker;
    uint32_t got;

    cr_assert_eq(repack(&as_is, &none, jpeg, n, &bytes, &got, &extension, &repacker), 0);
    cr_assert(bytes == jpeg && got == n && !extension);
    np_repacker_free(repacker);
    cr_assert_eq(repack(&larger, &none, jpeg, n, &bytes, &got, &extension, &repacker), 0);
    cr_assert(bytes == jpeg); /* never made larger */
    np_repacker_free(repacker);
    cr_assert_eq(repack(&worse, &none, jpeg, n, &bytes, &got, &extension, &repacker), 0);
    cr_assert_lt(got, n);
    cr_assert_str_eq(extension, "jpg");
    np_repacker_free(repacker);
    cr_assert_eq(repack(&small, &none, jpeg, n, &bytes, &got, &extension, &repacker), 0);
    cr_assert_str_eq(extension, "jpg");
    np_repacker_free(repacker);
    cr_assert_eq(repack(&pixels, &none, jpeg, n, &bytes, &got, &extension, &repacker), 0);
    cr_assert_str_eq(extension, "ppm");
    cr_assert_eq(memcmp(bytes, "P6\n60 40\n255\n", 13), 0);
    np_repacker_free(repacker);
    cr_assert_eq(repack(&worse, &none, jpeg, n / 2, &bytes, &got, &extension, &repacker), -EBADMSG);
    np_repacker_free(repacker);
    free(jpeg);
}

Test(pack, the_shorter_side_is_resized_and_the_other_follows)
{
    const struct np_raw raw = {.kind = NP_RAW_HWC, .height = 30, .width = 70, .channels = 3};
    const struct np_repack options = {.resize = 10, .raw = true};
    uint8_t *pixels = made_pixels(70, 30, 3, 1);
    const uint8_t *bytes;
    const char *extension;
    struct np_repacker *repacker;
    uint32_t got;

    cr_assert_eq(
        repack(&options, &raw, pixels, 70 * 30 * 3, &bytes, &got, &extension, &repacker), 0);
    cr_assert_eq(memcmp(bytes, "P6\n23 10\n255\n", 13), 0);
    np_repacker_free(repacker);
    free(pixels);
}

Test(pack, raw_pixels_become_pnm_exactly)
{
    const struct np_raw raw = {.kind = NP_RAW_CHW, .height = 2, .width = 1, .channels = 3},
                        grey = {.kind = NP_RAW_HWC, .height = 1, .width = 2, .channels = 1};
    const struct np_repack options = {0};
    const uint8_t *bytes;
    const char *extension;
    struct np_repacker *repacker;
    uint32_t got;

    cr_assert_eq(
        repack(&options, &raw, (const uint8_t *)"rRgGbB", 6, &bytes, &got, &extension, &repacker),
        0);
    cr_assert_eq(got, 17);
    cr_assert_eq(memcmp(bytes, "P6\n1 2\n255\nrgbRGB", 17), 0);
    cr_assert_str_eq(extension, "ppm");
    np_repacker_free(repacker);
    cr_assert_eq(
        repack(&options, &grey, (const uint8_t *)"ab", 2, &bytes, &got, &extension, &repacker), 0);
    cr_assert_str_eq(extension, "pgm");
    cr_assert_eq(memcmp(bytes, "P5\n2 1\n255\nab", 13), 0);
    np_repacker_free(repacker);
}
