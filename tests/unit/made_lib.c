/* See made_lib.h. */
#include "tests/unit/made_lib.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "tests/test.h"
#include "tests/unit/made_images.h"
#include "tests/unit/made_sets.h"

char *made_pictures(int n)
{
    char *folder = make_set();

    for (int i = 0; i < n; i++) {
        const struct made_jpeg made = {.width = 24 + i % 5,
            .height = 20 + i % 7,
            .components = 3,
            .h = 2,
            .v = 1,
            .quality = 60 + i % 30};
        char name[64];
        size_t bytes;
        uint8_t *jpeg = made_jpeg(&made, &bytes);

        snprintf(name, sizeof(name), "set/%c/%02d.jpg", 'a' + i % 3, i);
        put_file(folder, name, jpeg, bytes);
        free(jpeg);
    }
    return folder;
}

/* Splits "a=b c=d" at its blanks. */
static void split(const char *options, char *copy, size_t bytes, const char *list[16])
{
    int n = 0;
    char *rest = copy;

    snprintf(copy, bytes, "%s", options ? options : "");
    for (char *word; n < 15 && (word = strtok_r(rest, " ", &rest));)
        list[n++] = word;
    list[n] = NULL;
}

struct nnp_loader *made_open(
    const char *config, const char *folder, struct nnp_data *data, const char *options)
{
    struct nnp_loader *loader = NULL;
    const char *list[16];
    char copy[512], error[2048];

    split(options, copy, sizeof(copy), list);
    cr_assert_eq(
        nnp_open(config, folder, data, list, &loader, error, sizeof(error)), 0, "%s", error);
    cr_assert_str_empty(error);
    return loader;
}

const char *made_refusal(const char *config, const char *folder, struct nnp_data *data,
    const char *options, int *ret_code)
{
    static char error[4096];
    struct nnp_loader *loader = NULL;
    const char *list[16];
    char copy[512];
    int code;

    split(options, copy, sizeof(copy), list);
    code = nnp_open(config, folder, data, list, &loader, error, sizeof(error));
    cr_assert(code < 0, "%s, %s: it was opened", config, options ? options : "");
    cr_assert_null(loader);
    if (ret_code)
        *ret_code = code;
    return error;
}

const char *made_error(struct nnp_loader *loader)
{
    static char text[1024];

    cr_assert(nnp_error(loader, text, sizeof(text)) < sizeof(text));
    return text;
}

struct nnp_batch *made_next(struct nnp_loader *loader)
{
    struct nnp_batch *batch = NULL;
    const int code = nnp_next(loader, -1, &batch);

    cr_assert_eq(code, 1, "%d: %s", code, made_error(loader));
    return batch;
}

uint64_t made_digest(const struct nnp_loader *loader, const struct nnp_batch *batch)
{
    static const char *const types[] = {"uint8", "bfloat16", "float16", "float32"};
    static const size_t type_bytes[] = {1, 2, 2, 4};
    const size_t rows = (size_t)nnp_batch_rows(batch);
    size_t bytes = 0;
    int64_t shape[4];
    uint64_t sum;

    nnp_shape(loader, shape);
    for (int i = 0; i < 4; i++)
        if (strcmp(nnp_dtype(loader), types[i]) == 0)
            bytes = type_bytes[i] * (size_t)(shape[1] * shape[2] * shape[3]);
    cr_assert(bytes > 0);
    sum = XXH3_64bits_withSeed(nnp_batch_images(batch), rows * bytes, rows);
    sum = XXH3_64bits_withSeed(nnp_batch_labels(batch), rows * sizeof(int64_t), sum);
    for (size_t r = 0; r < rows; r++) {
        const uint64_t sample = nnp_batch_sample(batch, (int)r);

        sum = XXH3_64bits_withSeed(&sample, sizeof(sample), sum);
    }
    return sum;
}

uint64_t made_next_digest(struct nnp_loader *loader)
{
    struct nnp_batch *batch = made_next(loader);
    const uint64_t sum = made_digest(loader, batch);

    nnp_batch_release(batch);
    return sum;
}

uint64_t made_run(struct nnp_loader *loader, int n)
{
    uint64_t sum = 0;

    while (n-- > 0) {
        const uint64_t one = made_next_digest(loader);

        sum = XXH3_64bits_withSeed(&one, sizeof(one), sum);
    }
    return sum;
}
