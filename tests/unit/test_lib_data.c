/* libnnpipe's data: files and pixels that the program names, and bad pictures. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/test.h"
#include "tests/unit/made_lib.h"
#include "tests/unit/made_sets.h"

enum { N = 12 };

static char *folder;

static void make(void)
{
    folder = made_pictures(N);
}

static void clear(void)
{
    remove_set(folder);
}

static const char *const paths[N] = {"a/00.jpg", "b/01.jpg", "c/02.jpg", "a/03.jpg", "b/04.jpg",
    "c/05.jpg", "a/06.jpg", "b/07.jpg", "c/08.jpg", "a/09.jpg", "b/10.jpg", "c/11.jpg"};

static struct nnp_data *named(const char *const names[N], const int64_t labels[N])
{
    static const char *const classes[] = {"zero", "one", "two"};
    char root[600], error[1024] = "";
    struct nnp_data *data;

    snprintf(root, sizeof(root), "%s/set", folder);
    data = nnp_data_files(root, names, labels, N, classes, 3, error, sizeof(error));
    cr_assert_not_null(data, "%s", error);
    return data;
}

/* Sample i has label labels[i]. */
static void expect_labels(struct nnp_loader *loader, const int64_t *labels)
{
    struct nnp_batch *batch;

    for (int k = 0; k < 2; k++) {
        batch = made_next(loader);
        for (int r = 0; r < nnp_batch_rows(batch); r++)
            cr_expect_eq(nnp_batch_labels(batch)[r], labels[nnp_batch_sample(batch, r)]);
        nnp_batch_release(batch);
    }
}

Test(lib_data, files_have_the_labels_that_the_program_gives, .init = make, .fini = clear,
    .timeout = 120)
{
    static const int64_t labels[N] = {7, 2147483647, 0, -1, 7, 7, 0, -5, 100, 100, 7, 0};
    static const int64_t expected[N] = {7, 2147483647, 0, -1, 7, 7, 0, -1, 100, 100, 7, 0};
    struct nnp_loader *loader = made_open(MADE_LOADER(""), folder, named(paths, labels), NULL);

    expect_labels(loader, expected);
    cr_expect_eq(nnp_nr_classes(loader), 3);
    cr_expect_str_eq(nnp_class(loader, 1), "one");
    nnp_close(loader);
}

Test(lib_data, they_give_the_batches_of_the_same_set_in_a_config, .init = make, .fini = clear,
    .timeout = 120)
{
    static const char *const listed[N] = {"a/00.jpg", "a/03.jpg", "a/06.jpg", "a/09.jpg",
        "b/01.jpg", "b/04.jpg", "b/07.jpg", "b/10.jpg", "c/02.jpg", "c/05.jpg", "c/08.jpg",
        "c/11.jpg"};
    static const int64_t labels[N] = {0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2};
    struct nnp_loader *own = made_open(MADE_LOADER(""), folder, named(listed, labels), NULL),
                      *set = made_open(MADE_CONFIG(""), folder, NULL, NULL);

    cr_expect_eq(made_run(own, 2), made_run(set, 2));
    nnp_close(own);
    nnp_close(set);
}

Test(lib_data, data_stay_whole_after_an_open_that_failed, .init = make, .fini = clear,
    .timeout = 120)
{
    static const int64_t labels[N] = {5, 6, 5, 6, 5, 6, 5, 6, 5, 6, 5, 6};
    struct nnp_data *data = named(paths, labels);
    struct nnp_loader *loader;
    int code;

    made_refusal("loader: {batch: 0}\n", folder, data, NULL, &code);
    made_refusal(MADE_LOADER(""), folder, data, "held=0", &code);
    made_refusal(
        "loader: {batch: 64}\n", folder, data, "drop_last=yes", &code); /* after it was adopted */
    cr_expect_eq(code, -EINVAL);
    loader = made_open(MADE_LOADER(""), folder, data, NULL);
    expect_labels(loader, labels);
    cr_expect_str_eq(nnp_class(loader, 2), "two");
    nnp_close(loader);
    nnp_data_free(named(paths, labels)); /* data that no loader takes */
    nnp_data_free(NULL);
}

/* Copies the pictures into two files, odd samples into the second, each behind three bytes. */
static void make_archives(const char *const archives[2], struct nnp_extent extents[N])
{
    FILE *out[2] = {fopen(archives[0], "w"), fopen(archives[1], "w")};
    static char bytes[1 << 20];
    char path[700];

    for (int i = 0; i < N; i++) {
        snprintf(path, sizeof(path), "%s/set/%s", folder, paths[i]);
        FILE *in = fopen(path, "r");
        fputs("gap", out[i % 2]);
        extents[i] = (struct nnp_extent){
            (uint64_t)(i % 2), (uint64_t)ftell(out[i % 2]), fread(bytes, 1, sizeof(bytes), in)};
        fwrite(bytes, 1, extents[i].bytes, out[i % 2]);
        fclose(in);
    }
    fclose(out[0]);
    fclose(out[1]);
}

Test(lib_data, parts_of_files_give_the_batches_of_the_same_files, .init = make, .fini = clear,
    .timeout = 120)
{
    static const int64_t labels[N] = {0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2};
    char first[700], second[700], error[1024] = "";
    const char *const archives[2] = {first, second};
    struct nnp_extent extents[N];

    snprintf(first, sizeof(first), "%s/first.tar", folder);
    snprintf(second, sizeof(second), "%s/second.tar", folder);
    make_archives(archives, extents);
    struct nnp_data *data = nnp_data_extents(archives, 2, extents, labels, N, error, sizeof(error));
    cr_assert_not_null(data, "%s", error);
    struct nnp_loader *parts = made_open(MADE_LOADER(""), folder, data, NULL),
                      *files = made_open(MADE_LOADER(""), folder, named(paths, labels), NULL);
    cr_expect_eq(made_run(parts, 2), made_run(files, 2));
    nnp_close(parts);
    nnp_close(files);

    extents[3].file = 2;
    cr_expect_null(nnp_data_extents(archives, 2, extents, labels, N, error, sizeof(error)));
    cr_expect(strstr(error, "sample 3: file 2 of 2"), "%s", error);
    extents[3] = (struct nnp_extent){0, 0, (uint64_t)1 << 32};
    cr_expect_null(nnp_data_extents(archives, 2, extents, labels, N, error, sizeof(error)));
    unlink(second);
    cr_expect_null(nnp_data_extents(archives, 2, extents, labels, N, error, sizeof(error)));
    cr_expect(strstr(error, "second.tar"), "%s", error);
}

Test(lib_data, impossible_data_are_refused, .init = make, .fini = clear, .timeout = 120)
{
    static const int64_t big[1] = {1ll << 31}, zero[1] = {0};
    static const uint8_t pixels[12];
    static const char *const empty[1] = {""};
    char error[1024], long_root[5000];

    memset(long_root, 'r', sizeof(long_root));
    long_root[sizeof(long_root) - 1] = '\0';
    cr_expect_null(nnp_data_files(folder, paths, big, 1, NULL, 0, error, sizeof(error)));
    cr_expect(strstr(error, "labels above 2147483647"), "%s", error);
    cr_expect_null(nnp_data_files(long_root, paths, zero, 1, NULL, 0, error, sizeof(error)));
    cr_expect(strstr(error, "a path of over 4095 bytes"), "%s", error);
    cr_expect_null(nnp_data_files(folder, empty, zero, 1, NULL, 0, error, sizeof(error)));
    cr_expect(*error);
    static const char *const itself[1] = {"/proc/self/exe"};
    static const struct nnp_extent far[1] = {{0, UINT64_MAX - 10, 100}}, other[1] = {{1, 0, 100}};
    cr_expect_null(nnp_data_extents(itself, 1, far, zero, 1, error, sizeof(error)));
    cr_expect(strstr(error, "100 bytes at 18446744073709551605"), "%s", error);
    cr_expect_null(nnp_data_extents(itself, 1, other, zero, 1, error, sizeof(error)));
    cr_expect(strstr(error, "sample 0: file 1 of 1"), "%s", error);
    cr_expect_null(nnp_data_pixels(pixels, 1, 2, 2, 2, zero, error, sizeof(error)));
    cr_expect(strstr(error, "pixels of shape (samples, 2, 2, 2)"), "%s", error);
    cr_expect_null(nnp_data_pixels(pixels, 1, 0, 2, 3, zero, error, sizeof(error)));
    cr_expect_null(nnp_data_pixels(pixels, 1, 65536, 65536, 1, zero, error, sizeof(error)));
    cr_expect_null(nnp_data_pixels(pixels, 1, 2, -2, 3, zero, NULL, 0));
}

Test(lib_data, pixels_in_memory_come_as_they_are, .init = make, .fini = clear, .timeout = 120)
{
    enum { SAMPLES = 10, BYTES = 5 * 4 * 3 };
    static uint8_t pixels[SAMPLES][BYTES];
    static const int64_t labels[SAMPLES] = {9, 8, 7, 6, 5, 4, 3, 2, 1, 0};
    char error[1024];
    struct nnp_data *data;
    struct nnp_loader *loader;
    int seen = 0;

    for (int i = 0; i < SAMPLES * BYTES; i++)
        pixels[i / BYTES][i % BYTES] = (uint8_t)(i * 7 % 251);
    data = nnp_data_pixels(pixels[0], SAMPLES, 5, 4, 3, labels, error, sizeof(error));
    cr_assert_not_null(data, "%s", error);
    loader = made_open("loader: {batch: 4, readers: 2}\n", NULL, data, NULL);
    for (int k = 0; k < 3; k++) {
        struct nnp_batch *batch = made_next(loader);
        const uint8_t *images = nnp_batch_images(batch);

        for (int r = 0; r < nnp_batch_rows(batch); r++, seen++) {
            const uint64_t sample = nnp_batch_sample(batch, r);

            cr_expect_arr_eq(images + r * BYTES, pixels[sample], BYTES);
            cr_expect_eq(nnp_batch_labels(batch)[r], labels[sample]);
        }
        nnp_batch_release(batch);
    }
    cr_expect_eq(seen, SAMPLES);
    nnp_close(loader);
}

/* --- bad pictures ---------------------------------------------------------------------------------- */

static int nr_counted(struct nnp_loader *loader)
{
    char text[2048];
    int n = -1;

    cr_assert(nnp_counters(loader, text, sizeof(text)) > 0);
    cr_assert_eq(sscanf(strstr(text, "\"bad_samples\""), "\"bad_samples\": %d", &n), 1);
    return n;
}

Test(lib_data, a_bad_picture_is_replaced_in_training_and_named, .init = make, .fini = clear,
    .timeout = 120)
{
    static const int64_t labels[N];
    struct nnp_loader *loader;
    char text[1024], whole[700];

    put_file(folder, "set/b/04.jpg", "no picture", 10);
    loader =
        made_open(MADE_LOADER(", bad_samples: {budget: 50%}"), folder, named(paths, labels), NULL);
    for (int k = 0; k < 2; k++) {
        struct nnp_batch *batch = made_next(loader);

        cr_expect_eq(nnp_batch_nr_bad(batch), 0);
        for (int r = 0; r < nnp_batch_rows(batch); r++)
            cr_expect(nnp_batch_sample(batch, r) < N && nnp_batch_sample(batch, r) != 4);
        nnp_batch_release(batch);
    }
    snprintf(whole, sizeof(whole), "%s/set/b/04.jpg at offset 0: ", folder);
    cr_expect(nr_counted(loader) >= 1); /* its replacement may be bad, too */
    for (int i = nr_counted(loader); i > 0; i--) {
        cr_assert(nnp_bad_sample(loader, text, sizeof(text)) > 0);
        cr_expect(strncmp(text, whole, strlen(whole)) == 0, "%s", text);
    }
    cr_expect_eq(nnp_bad_sample(loader, text, sizeof(text)), 0);
    nnp_close(loader);
}

Test(lib_data, a_bad_picture_is_masked_in_a_test_set, .init = make, .fini = clear, .timeout = 120)
{
    static const int64_t labels[N] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    char removed[700];
    struct nnp_loader *loader;
    struct nnp_batch *batch;
    const uint8_t *images;

    snprintf(removed, sizeof(removed), "%s/set/b/04.jpg", folder);
    cr_assert_eq(unlink(removed), 0);
    loader = made_open(
        MADE_LOADER(", bad_samples: {budget: 50%}"), folder, named(paths, labels), "set=val");
    batch = made_next(loader);
    images = nnp_batch_images(batch);
    cr_expect_eq(nnp_batch_rows(batch), 8);
    cr_expect_eq(nnp_batch_nr_bad(batch), 1);
    for (int r = 0; r < 8; r++) {
        cr_expect_eq(nnp_batch_sample(batch, r), r == 4 ? UINT64_MAX : (uint64_t)r);
        cr_expect_eq(nnp_batch_labels(batch)[r], r == 4 ? -1 : 1);
    }
    for (int i = 0; i < 16 * 16 * 3; i++)
        cr_assert_eq(images[4 * 16 * 16 * 3 + i], 0);
    cr_expect_eq(nr_counted(loader), 1);
    nnp_batch_release(batch);
    nnp_close(loader);
}

Test(lib_data, a_spent_budget_ends_the_run_until_the_position_is_set, .init = make, .fini = clear,
    .timeout = 120)
{
    static const int64_t labels[N];
    struct nnp_loader *loader;
    struct nnp_batch *batch = NULL;
    int code;

    put_file(folder, "set/a/00.jpg", "no picture", 10);
    loader = made_open(
        MADE_LOADER(", bad_samples: {policy: fail}"), folder, named(paths, labels), "set=val");
    cr_expect_eq(nnp_next(loader, -1, &batch), -EBADMSG);
    cr_expect(strstr(made_error(loader), "00.jpg"), "%s", made_error(loader));
    code = nnp_next(loader, -1, &batch);
    cr_expect_eq(code, -ESHUTDOWN);
    cr_expect(strstr(made_error(loader), "set its position to start again"));
    cr_expect_eq(nnp_seek(loader, 0, 1), 0); /* behind the bad one */
    batch = made_next(loader);
    cr_expect_eq(nnp_batch_rows(batch), 4);
    nnp_batch_release(batch);
    nnp_close(loader);
}
