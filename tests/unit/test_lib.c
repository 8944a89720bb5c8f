/* libnnpipe (loader/nnpipe.h): options, epochs, formats, positions, batches that are held. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "loader/lib/lib.h"
#include "tests/test.h"
#include "tests/unit/made_lib.h"
#include "tests/unit/made_sets.h"

enum { PICTURES = 20, SIDE = 16 };

static char *folder;

static void make(void)
{
    folder = made_pictures(PICTURES);
}

static void clear(void)
{
    remove_set(folder);
}

static struct nnp_loader *opened(const char *options)
{
    return made_open(MADE_CONFIG(""), folder, NULL, options);
}

/* Takes the batches of an epoch; counts each sample. Returns the rows. */
static int take_epoch(struct nnp_loader *loader, int counts[PICTURES])
{
    struct nnp_batch *batch;
    int rows = 0, code;

    for (uint64_t number = 0; (code = nnp_next(loader, -1, &batch)) > 0; number++) {
        cr_expect_eq(nnp_batch_number(batch), number);
        for (int r = 0; r < nnp_batch_rows(batch); r++)
            counts[nnp_batch_sample(batch, r)]++;
        rows += nnp_batch_rows(batch);
        nnp_batch_release(batch);
    }
    cr_assert_eq(code, 0, "%s", made_error(loader));
    return rows;
}

Test(lib, a_loader_names_its_shape_length_and_classes, .init = make, .fini = clear, .timeout = 120)
{
    struct nnp_loader *loader = opened("dtype=float16 layout=nchw");
    int64_t shape[4];

    nnp_shape(loader, shape);
    cr_expect(shape[0] == 8 && shape[1] == SIDE && shape[2] == SIDE && shape[3] == 3);
    cr_expect_str_eq(nnp_dtype(loader), "float16");
    cr_expect_str_eq(nnp_layout(loader), "nchw");
    cr_expect_eq(nnp_samples(loader), (uint64_t)PICTURES);
    cr_expect_eq(nnp_length(loader), 3u);
    cr_expect_eq(nnp_nr_classes(loader), 3);
    cr_expect_str_eq(nnp_class(loader, 2), "c");
    cr_expect_null(nnp_class(loader, 3));
    cr_expect_null(nnp_class(loader, -1));
    cr_expect_eq(nnp_abi(), NNP_ABI);
    cr_expect(strlen(nnp_version()) > 2);
    cr_expect_str_empty(made_error(loader));
    nnp_close(loader);
    nnp_close(NULL);
}

Test(lib, an_epoch_has_each_sample_once_and_a_short_last_batch, .init = make, .fini = clear,
    .timeout = 120)
{
    struct nnp_loader *loader = opened(NULL);
    struct nnp_batch *batch;
    static const int rows[] = {8, 8, 4};
    int counts[PICTURES] = {0};

    for (int k = 0; k < 3; k++) {
        batch = made_next(loader);
        cr_expect_eq(nnp_batch_rows(batch), rows[k]);
        cr_expect_eq(nnp_batch_nr_bad(batch), 0);
        cr_expect_eq(nnp_batch_epoch(batch), 0u);
        for (int r = 0; r < rows[k]; r++) {
            const uint64_t sample =
                nnp_batch_sample(batch, r); /* a's pictures, then b's, then c's */

            counts[sample]++;
            cr_expect_eq(nnp_batch_labels(batch)[r], sample < 7 ? 0 : sample < 14 ? 1 : 2);
        }
        nnp_batch_release(batch);
    }
    for (int i = 0; i < PICTURES; i++)
        cr_expect_eq(counts[i], 1);
    cr_expect_eq(nnp_next(loader, -1, &batch), 0);
    batch = made_next(loader);
    cr_expect(nnp_batch_epoch(batch) == 1 && nnp_batch_number(batch) == 0);
    nnp_batch_release(batch);
    nnp_close(loader);
}

Test(
    lib, drop_last_leaves_out_a_batch_that_is_not_full, .init = make, .fini = clear, .timeout = 120)
{
    struct nnp_loader *loader = opened("drop_last=yes");
    int counts[PICTURES] = {0};

    cr_expect_eq(nnp_length(loader), 2u);
    cr_expect_eq(take_epoch(loader, counts), 16);
    cr_expect_eq(take_epoch(loader, counts), 16);
    nnp_close(loader);
}

Test(lib, ranks_share_an_epoch_with_equally_many_rows, .init = make, .fini = clear, .timeout = 120)
{
    int counts[PICTURES] = {0}, rows[3];
    uint64_t fingerprints[3];

    for (int rank = 0; rank < 3; rank++) {
        char options[64];

        snprintf(options, sizeof(options), "world=3 rank=%d", rank);
        struct nnp_loader *loader = opened(options);
        cr_expect_eq(nnp_length(loader), 1u); /* 24 rows a batch of all ranks */
        fingerprints[rank] = nnp_fingerprint(loader);
        rows[rank] = take_epoch(loader, counts);
        nnp_close(loader);
    }
    cr_expect(rows[0] == 7 && rows[1] == 7 && rows[2] == 7);
    for (int i = 0, twice = 0; i < PICTURES; i++) { /* 21 rows of 20 samples */
        twice += counts[i] == 2;
        cr_expect(counts[i] == 1 || (counts[i] == 2 && twice == 1));
    }
    cr_expect(fingerprints[0] == fingerprints[1] && fingerprints[1] == fingerprints[2]);
}

Test(lib, float_rows_are_the_normalized_pixels_in_their_layout, .init = make, .fini = clear,
    .timeout = 120)
{
    static const char config[] =
        MADE_CONFIG(", normalize: {mean: [0.5, 0.4, 0.3], std: [0.2, 0.3, 0.4]}");
    static const float mean[] = {0.5f, 0.4f, 0.3f}, std[] = {0.2f, 0.3f, 0.4f};
    struct nnp_loader *bytes = made_open(config, folder, NULL, NULL);
    struct nnp_loader *floats = made_open(config, folder, NULL, "dtype=float32 layout=nchw");
    struct nnp_batch *a = made_next(bytes), *b = made_next(floats);
    const uint8_t *u8 = nnp_batch_images(a);
    const float *f32 = nnp_batch_images(b);

    for (int r = 0; r < nnp_batch_rows(a); r++)
        for (int i = 0; i < SIDE * SIDE; i++)
            for (int c = 0; c < 3; c++) {
                const float pixel = (float)u8[(r * SIDE * SIDE + i) * 3 + c] / 255.0f;

                cr_assert_eq(f32[(r * 3 + c) * SIDE * SIDE + i], (pixel - mean[c]) / std[c]);
            }
    nnp_batch_release(a);
    nnp_batch_release(b);
    nnp_close(bytes);
    nnp_close(floats);
}

Test(lib, each_wrong_option_is_refused_by_name, .init = make, .fini = clear, .timeout = 120)
{
    static const char *const cases[][2] = {
        {"dtype=int8",
            "option dtype: expected one of uint8, float32, bfloat16, float16, not 'int8'"},
        {"rank=2 world=2", "option rank: there is no rank 2 of 2 (world)"},
        {"rank=x", "option rank: expected a whole number from 0 to"},
        {"held=0", "option held: expected a whole number from 1 to 4096, not '0'"},
        {"hold=1", "there is no option 'hold=1'"},
        {"held", "there is no option 'held'"},
        {"=1", "there is no option '=1'"},
        {"order=dealt", "order=dealt: the program must name its data"},
        {"set=val", "set=val: the config has neither data.val nor data.split"},
        {"set=test", "set=test: the config has no data.test"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        int code;
        const char *text = made_refusal(MADE_CONFIG(""), folder, NULL, cases[i][0], &code);

        cr_expect_eq(code, -EINVAL);
        cr_expect(
            strncmp(text, cases[i][1], strlen(cases[i][1])) == 0, "%s: %s", cases[i][0], text);
    }
    cr_expect_eq(nnp_open(MADE_CONFIG(""), folder, NULL, (const char *[]){"held=0", NULL},
                     &(struct nnp_loader *){NULL}, NULL, 0),
        -EINVAL);
}

Test(lib, all_mistakes_of_a_config_are_named_with_their_lines, .init = make, .fini = clear,
    .timeout = 120)
{
    int code;
    const char *text = made_refusal("seed: many\n"
                                    "loader:\n"
                                    "  batch: 0\n"
                                    "  raeders: 2\n"
                                    "data: {train: {source: foldr, path: set}}\n",
        folder, NULL, NULL, &code);
    int lines = 1;

    for (const char *at = text; (at = strchr(at, '\n')); at++)
        lines++;
    cr_expect_eq(code, -EINVAL);
    cr_expect(lines == 4, "%s", text);
    cr_expect(strncmp(text, "config:1:7: ", 12) == 0, "%s", text);
    cr_expect(strstr(text, "\nconfig:3:10: ") && strstr(text, "\nconfig:4:3: ") &&
                  strstr(text, "\nconfig:5:"),
        "%s", text);
    text = made_refusal("data: [\n", folder, NULL, NULL, &code);
    cr_expect(code == -EINVAL && strncmp(text, "config:", 7) == 0, "%s", text);
    text = made_refusal("", folder, NULL, NULL, &code);
    cr_expect(code == -EINVAL && *text, "%s", text);
    text = made_refusal("data: {train: {source: folder, path: nowhere}}\n" MADE_LOADER(""), folder,
        NULL, NULL, &code);
    cr_expect(code == -ENOENT && strstr(text, "nowhere"), "%d: %s", code, text);
}

/* Not at the working directory, where the same path would name other pictures. */
Test(lib, relative_paths_begin_at_the_folder, .init = make, .fini = clear, .timeout = 120)
{
    char elsewhere[600], before[4096];
    struct nnp_loader *loader;

    put_file(folder, "elsewhere/set/a/1.jpg", "1", 1);
    snprintf(elsewhere, sizeof(elsewhere), "%s/elsewhere", folder);
    cr_assert(getcwd(before, sizeof(before)) && chdir(elsewhere) == 0);
    loader = opened(NULL);
    cr_expect_eq(nnp_samples(loader), (uint64_t)PICTURES);
    cr_assert_eq(chdir(before), 0);
    nnp_close(loader);
}

Test(
    lib, a_position_that_is_set_gives_the_same_batches, .init = make, .fini = clear, .timeout = 120)
{
    struct nnp_loader *loader = opened(NULL);
    struct nnp_batch *batch;
    uint64_t digests[7], epoch, number;

    for (int i = 0; i < 7; i++) {
        if (i == 3 || i == 6)
            cr_assert_eq(nnp_next(loader, -1, &batch), 0);
        digests[i] = made_next_digest(loader);
    }
    nnp_position(loader, &epoch, &number);
    cr_expect(epoch == 2 && number == 1);
    cr_expect_neq(digests[0], digests[3]);
    for (int i = 6; i >= 0; i--) {
        cr_assert_eq(nnp_seek(loader, (uint64_t)i / 3, (uint64_t)i % 3), 0);
        cr_expect_eq(made_next_digest(loader), digests[i], "batch %d", i);
    }
    cr_assert_eq(nnp_seek(loader, 0, 3), 0); /* the end of an epoch */
    cr_expect_eq(nnp_next(loader, -1, &batch), 0);
    cr_expect_eq(made_next_digest(loader), digests[3]);
    cr_expect_eq(nnp_seek(loader, 1, 1), 0); /* where it is */
    cr_expect_eq(made_next_digest(loader), digests[4]);
    nnp_close(loader);
}

Test(lib, a_position_that_cannot_be_is_refused, .init = make, .fini = clear, .timeout = 120)
{
    struct nnp_loader *loader = opened(NULL);
    const uint64_t digest = made_next_digest(loader);

    cr_expect_eq(nnp_seek(loader, 0, 4), -EINVAL);
    cr_expect(strstr(made_error(loader), "an epoch has 3 batches"));
    cr_expect_eq(nnp_seek(loader, UINT64_MAX / 2, 0), -EINVAL);
    cr_expect_eq(nnp_seek(loader, UINT32_MAX, 0), -EINVAL);
    cr_expect_eq(
        nnp_seek(loader, UINT32_MAX - 2, 2), 0); /* the last epoch but one that has a number */
    made_next_digest(loader);
    cr_expect_eq(nnp_seek(loader, 0, 0), 0);
    cr_expect_eq(made_next_digest(loader), digest);
    nnp_close(loader);
}

/* Of 2^40 batches, all that the readers can count. */
Test(lib, the_farthest_position_gives_batches_and_those_behind_it_are_refused, .timeout = 120)
{
    struct nnp_loader *loader =
        made_open("data: {train: {source: synth, samples: 100000, size: 8}}\n"
                  "loader: {batch: 20, readers: 2, share: auto}\n",
            NULL, NULL, NULL);
    const uint64_t nr_epochs = (1ull << 40) / nnp_length(loader);

    cr_expect_eq(nnp_seek(loader, nr_epochs, 0), -EINVAL);
    cr_expect_eq(nnp_seek(loader, UINT32_MAX - 2, 0), -EINVAL);
    cr_expect_eq(nnp_seek(loader, nr_epochs - 1, 3), 0);
    for (uint64_t k = 3; k < 20; k++) {
        struct nnp_batch *batch = made_next(loader);

        cr_expect_eq(nnp_batch_number(batch), k);
        nnp_batch_release(batch);
    }
    nnp_close(loader);
}

Test(lib, the_fingerprint_is_of_data_order_and_config, .init = make, .fini = clear, .timeout = 120)
{
    static const char *const others[][2] = {{"seed: 2\n" MADE_CONFIG(""), ""},
        {MADE_CONFIG(", shuffle: none"), ""}, {MADE_CONFIG(", balance: classes"), ""},
        {MADE_CONFIG(", repeat: 3"), ""}, {MADE_CONFIG(""), "drop_last=yes"},
        {MADE_CONFIG(""), "world=2"}};
    struct nnp_loader *loader = opened(NULL), *same = opened("dtype=float32");
    const uint64_t fingerprint = nnp_fingerprint(loader);

    cr_expect_eq(nnp_fingerprint(same), fingerprint);
    nnp_close(same);
    nnp_close(loader);
    for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++) {
        loader = made_open(others[i][0], folder, NULL, others[i][1]);
        cr_expect_neq(nnp_fingerprint(loader), fingerprint, "case %zu", i);
        nnp_close(loader);
    }
}

Test(lib, a_repeated_sample_comes_in_a_row_in_balanced_classes, .init = make, .fini = clear,
    .timeout = 120)
{
    struct nnp_loader *loader =
        made_open(MADE_CONFIG(", balance: classes, repeat: 2"), folder, NULL, NULL);
    int64_t last = -1;
    int position = 0, nr_same = 0, of_class[8] = {0};

    for (uint64_t k = 0; k < nnp_length(loader); k++) {
        struct nnp_batch *batch = made_next(loader);
        const int64_t *labels = nnp_batch_labels(batch);

        for (int r = 0; r < (int)nnp_batch_rows(batch); r++, position++) {
            const int64_t sample = (int64_t)nnp_batch_sample(batch, r);

            cr_expect(position % 2 == 0 || sample == last, "position %d", position);
            nr_same += position % 2 && sample == last;
            of_class[labels[r] & 7] += position % 2;
            last = sample;
        }
        nnp_batch_release(batch);
    }
    cr_expect_gt(nr_same, 5);
    for (int c = 1; c < 8; c++)
        cr_expect(of_class[c] == 0 || abs(of_class[c] - of_class[0]) <= 1, "class %d: %d, %d", c,
            of_class[c], of_class[0]);
    nnp_close(loader);
}

Test(lib, a_batch_beyond_those_held_is_refused_until_one_is_released, .init = make, .fini = clear,
    .timeout = 120)
{
    struct nnp_loader *loader = opened("held=2"), *other = opened(NULL);
    struct nnp_batch *a = made_next(loader), *b = made_next(loader), *c = NULL;
    uint64_t sum;

    cr_expect_eq(nnp_next(loader, -1, &c), -EBUSY);
    cr_expect_null(c);
    cr_expect(strstr(made_error(loader), "the program holds 2 batches and asks for one more"));
    nnp_batch_retain(a);
    nnp_batch_release(a);
    cr_expect_eq(nnp_next(loader, -1, &c), -EBUSY); /* it had two owners */
    sum = made_digest(loader, b);
    nnp_batch_release(a);
    c = made_next(loader);
    made_run(other, 2);
    cr_expect_eq(made_digest(loader, c), made_next_digest(other)); /* no batch was lost */
    cr_expect_eq(made_digest(loader, b), sum);
    nnp_batch_release(b);
    nnp_batch_release(c);
    nnp_close(loader);
    nnp_close(other);
}

Test(lib, a_batch_stays_as_it_is_over_seek_and_close, .init = make, .fini = clear, .timeout = 120)
{
    struct nnp_loader *loader = opened("held=2"), *other = opened(NULL);
    struct nnp_batch *a = made_next(loader), *b;
    const uint64_t sum = made_digest(loader, a);

    cr_assert_eq(nnp_seek(loader, 3, 0), 0);
    b = made_next(loader);
    made_next_digest(loader);
    made_next_digest(loader);
    cr_expect_eq(made_digest(loader, a), sum);
    nnp_close(loader);
    cr_expect_eq(made_digest(other, a), sum);
    ((uint8_t *)nnp_batch_images(a))[0] ^= 1; /* the program may write to it */
    cr_expect_neq(made_digest(other, a), sum);
    nnp_batch_release(a);
    cr_expect(nnp_batch_epoch(b) == 3 && nnp_batch_rows(b) == 8);
    nnp_batch_release(b);
    nnp_close(other);
}

Test(lib, a_wait_ends_at_its_time_and_loses_no_batch, .init = make, .fini = clear, .timeout = 120)
{
    struct nnp_loader *loader = opened(NULL), *other = opened(NULL);
    struct nnp_batch *batch = NULL;
    int code;

    pthread_mutex_lock(&loader->lock); /* as if another thread waited in nnp_next() */
    cr_expect_eq(nnp_next(loader, 2, &batch), -ETIMEDOUT);
    cr_expect_eq(nnp_next(loader, 0, &batch), -ETIMEDOUT);
    pthread_mutex_unlock(&loader->lock);
    for (int i = 0; i < 3; i++) {
        while ((code = nnp_next(loader, 0, &batch)) == -ETIMEDOUT)
            ;
        cr_assert_eq(code, 1, "%d: %s", code, made_error(loader));
        cr_expect_eq(made_digest(loader, batch), made_next_digest(other));
        nnp_batch_release(batch);
    }
    cr_expect_eq(nnp_next(loader, 0, &batch), 0);
    nnp_close(loader);
    nnp_close(other);
}

Test(lib, counters_are_one_json_object, .init = make, .fini = clear, .timeout = 120)
{
    struct nnp_loader *loader = opened(NULL);
    struct nnp_batch *batch = made_next(loader);
    char text[2048], word[64];

    made_next_digest(loader);
    cr_expect_eq(nnp_counters(loader, text, 20), -ENOSPC);
    cr_assert_eq(nnp_counters(loader, text, sizeof(text)), (int)strlen(text));
    cr_expect(text[0] == '{' && text[strlen(text) - 1] == '}');
    cr_expect(strstr(text, "\"batches\": 2, \"images\": 16, "), "%s", text);
    cr_expect(strstr(text, "\"bad_samples\": 0, ") && strstr(text, "\"held\": 1, "), "%s", text);
    cr_expect(
        strstr(text, "\"readers\": 2, ") && strstr(text, "\"decode_seconds\": 0."), "%s", text);
    cr_assert(sscanf(strstr(text, "\"bytes_read\": "), "\"bytes_read\": %63[0-9]", word) == 1);
    cr_expect_neq(strcmp(word, "0"), 0);
    nnp_batch_release(batch);
    nnp_close(loader);
}

static int nr_held(struct nnp_loader *loader)
{
    char text[2048];
    int n = -1;

    cr_assert(nnp_counters(loader, text, sizeof(text)) > 0);
    cr_assert_eq(sscanf(strstr(text, "\"held\""), "\"held\": %d", &n), 1);
    return n;
}

Test(lib, batches_from_before_a_seek_count_as_held, .init = make, .fini = clear, .timeout = 120)
{
    struct nnp_loader *loader = opened(NULL);
    struct nnp_batch *old[] = {made_next(loader), made_next(loader)}, *new;

    cr_expect_eq(nr_held(loader), 2);
    cr_assert_eq(nnp_seek(loader, 3, 1), 0);
    cr_expect_eq(nr_held(loader), 2);
    new = made_next(loader);
    cr_expect_eq(nr_held(loader), 3);
    nnp_batch_release(old[0]);
    nnp_batch_release(new);
    cr_expect_eq(nr_held(loader), 1);
    cr_assert_eq(nnp_seek(loader, 0, 0), 0);
    cr_expect_eq(nr_held(loader), 1);
    nnp_close(loader);
    nnp_batch_release(old[1]);
}

Test(lib, val_and_test_sets_come_in_order_with_the_test_chain, .init = make, .fini = clear,
    .timeout = 120)
{
    static const char config[] =
        "data: {train: {source: folder, path: set}, test: {source: folder, path: set}, "
        "split: 30%}\n" MADE_LOADER("");
    struct nnp_loader *test = made_open(config, folder, NULL, "set=test"),
                      *val = made_open(config, folder, NULL, "set=val"),
                      *train = made_open(config, folder, NULL, NULL);
    int counts[PICTURES] = {0};
    struct nnp_batch *batch = made_next(test);
    uint64_t sum;

    for (int r = 0; r < 8; r++)
        cr_expect_eq(nnp_batch_sample(batch, r), (uint64_t)r);
    sum = made_digest(test, batch);
    nnp_batch_release(batch);
    cr_assert_eq(nnp_seek(test, 5, 0), 0); /* without draws every epoch is the same */
    cr_expect_eq(made_next_digest(test), sum);
    cr_expect_eq(nnp_samples(val) + nnp_samples(train), (uint64_t)PICTURES);
    cr_expect_eq(nnp_samples(val), 6u);
    cr_expect_eq(take_epoch(val, counts) + take_epoch(train, counts), PICTURES);
    for (int i = 0; i < PICTURES; i++)
        cr_expect_eq(counts[i], 1);
    nnp_close(test);
    nnp_close(val);
    nnp_close(train);
}

Test(lib, two_loaders_work_side_by_side, .init = make, .fini = clear, .timeout = 120)
{
    struct nnp_loader *a = opened(NULL), *b = opened(NULL);

    for (int i = 0; i < 3; i++)
        cr_expect_eq(made_next_digest(a), made_next_digest(b));
    cr_expect_eq(nnp_flush(a), 0);
    cr_expect_eq(nnp_flush(b), 0);
    nnp_close(a);
    nnp_close(b);
}
