/* Sets of bare pixels: CIFAR-10's binary version and IDX. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "tests/test.h"
#include "tests/unit/made_sets.h"

#define RECORD 3073

/* n records, labels 9, 8, 7 ...; the pixels of record i are i. */
static uint8_t *make_cifar(int n)
{
    uint8_t *bytes = malloc((size_t)n * RECORD);

    for (int i = 0; i < n; i++) {
        memset(bytes + i * RECORD, i, RECORD);
        bytes[i * RECORD] = (uint8_t)(9 - i % 10);
    }
    return bytes;
}

Test(source_raw, cifar_has_labels_planes_and_names)
{
    char *folder = make_set();
    uint8_t *bytes = make_cifar(300);
    struct np_index *index;
    static const char names[] = "plane\ncar\nbird\ncat\ndeer\ndog\nfrog\nhorse\nship\ntruck\n\n";

    put_file(folder, "data_batch_1.bin", bytes, 300 * RECORD);
    put_file(folder, "data_batch_2.bin", bytes, 2 * RECORD);
    put_file(folder, "batches.meta.txt", names, strlen(names));
    cr_assert_eq(open_set(folder, "cifar10", "data_batch_*.bin", NULL, NULL, &index, NULL), 0);
    cr_assert_eq(np_index_samples(index), 302);
    cr_assert_eq(index->nr_classes, 10);
    cr_assert_str_eq(index->classes[0], "bird"); /* classes are in byte order */
    cr_assert_str_eq(sample_text(index, 0), "data_batch_1.bin/00000 truck 9");
    cr_assert_str_eq(sample_text(index, 299), "data_batch_1.bin/00299 plane 7");
    cr_assert_str_eq(sample_text(index, 301), "data_batch_2.bin/00001 ship 8");
    cr_assert_eq(np_index_record(index, 299)->offset, 299 * RECORD + 1);
    cr_assert_eq(np_index_record(index, 299)->bytes, 3072);
    cr_assert_eq(index->raw.kind, NP_RAW_CHW);
    np_index_free(index);
    free(bytes);
    remove_set(folder);
}

Test(source_raw, cifar_without_names_counts)
{
    char *folder = make_set();
    uint8_t *bytes = make_cifar(1);
    struct np_index *index;

    put_file(folder, "test_batch.bin", bytes, RECORD);
    cr_assert_eq(open_set(folder, "cifar10", "test_batch.bin", NULL, NULL, &index, NULL), 0);
    cr_assert_str_eq(sample_text(index, 0), "test_batch.bin/00000 9 9");
    np_index_free(index);
    free(bytes);
    remove_set(folder);
}

Test(source_raw, cifar_names_what_is_wrong)
{
    char *folder = make_set();
    uint8_t *bytes = make_cifar(3);
    struct made_notes notes;
    struct np_index *index;
    struct np_err err = {0};

    put_file(folder, "a.bin", bytes, 3 * RECORD - 5);
    cr_assert_eq(open_set(folder, "cifar10", "a.bin", NULL, &notes, &index, NULL), 0);
    cr_assert_not_null(strstr(notes.text, "truncated"));
    cr_assert_eq(np_index_samples(index), 3);
    cr_assert_eq(np_index_record(index, 2)->bytes, 3067);
    np_index_free(index);
    bytes[RECORD] = 10;
    put_file(folder, "b.bin", bytes, 3 * RECORD);
    cr_assert_eq(open_set(folder, "cifar10", "b.bin", NULL, NULL, &index, &err), -EBADMSG);
    cr_assert_not_null(strstr(err.text, "record 1 at offset 3073 has label 10"));
    free(bytes);
    remove_set(folder);
}

/* IDX of n images of 2 x 3 with labels 0, 1, 2, 0 ...: writes both, returns the images' bytes. */
static size_t put_idx(const char *folder, int n, int nr_labels)
{
    uint8_t images[16 + 600] = {0, 0, 8, 3, 0, 0, 0, (uint8_t)n, 0, 0, 0, 2, 0, 0, 0, 3};
    uint8_t labels[8 + 100] = {0, 0, 8, 1, 0, 0, 0, (uint8_t)nr_labels};

    for (int i = 0; i < nr_labels; i++)
        labels[8 + i] = (uint8_t)(i % 3);
    put_file(folder, "t-images-idx3-ubyte", images, 16 + 6 * (size_t)n);
    put_file(folder, "t-labels-idx1-ubyte", labels, 8 + (size_t)nr_labels);
    return 16 + 6 * (size_t)n;
}

Test(source_raw, idx_finds_its_labels_beside)
{
    char *folder = make_set();
    struct np_index *index;

    put_idx(folder, 50, 50);
    cr_assert_eq(open_set(folder, "idx", "t-images-idx3-ubyte", NULL, NULL, &index, NULL), 0);
    cr_assert_eq(np_index_samples(index), 50);
    cr_assert_eq(index->raw.height, 2);
    cr_assert_eq(index->raw.width, 3);
    cr_assert_eq(index->raw.channels, 1);
    cr_assert_str_eq(sample_text(index, 4), "00004 1 1");
    cr_assert_eq(np_index_record(index, 4)->offset, 16 + 24);
    np_index_free(index);
    put_idx(folder, 51, 51); /* the labels have changed too: both make it stale */
    cr_assert_eq(open_set(folder, "idx", "t-images-idx3-ubyte", NULL, NULL, &index, NULL), 0);
    cr_assert_eq(np_index_samples(index), 51);
    np_index_free(index);
    remove_set(folder);
}

static void gzip_file(const char *folder, const char *name)
{
    char path[1024];
    size_t n;
    uint8_t *bytes = get_file(folder, name, &n);
    gzFile file;

    snprintf(path, sizeof(path), "%s/%s.gz", folder, name);
    file = gzopen(path, "wb");
    if (gzwrite(file, bytes, (unsigned)n) != (int)n || gzclose(file) != Z_OK)
        abort();
    free(bytes);
}

Test(source_raw, idx_comes_gzipped_too)
{
    char *folder = make_set();
    struct np_index *index;

    put_idx(folder, 20, 20);
    gzip_file(folder, "t-images-idx3-ubyte");
    gzip_file(folder, "t-labels-idx1-ubyte");
    cr_assert_eq(open_set(folder, "idx", "t-images-idx3-ubyte.gz", NULL, NULL, &index, NULL), 0);
    cr_assert_eq(np_index_samples(index), 20);
    cr_assert_str_eq(sample_text(index, 5), "00005 2 2");
    np_index_free(index);
    remove_set(folder);
}

Test(source_raw, idx_names_what_is_wrong)
{
    char *folder = make_set();
    struct np_index *index;
    struct made_notes notes;
    struct np_err err = {0};
    size_t n;
    uint8_t *bytes;

    put_idx(folder, 20, 21);
    cr_assert_eq(
        open_set(folder, "idx", "t-images-idx3-ubyte", NULL, NULL, &index, &err), -EBADMSG);
    cr_assert_not_null(strstr(err.text, "has 20 images"));
    cr_assert_not_null(strstr(err.text, "has 21 labels"));
    err.code = 0;
    cr_assert_eq(open_set(folder, "idx", "t-labels-idx1-ubyte", NULL, NULL, &index, &err), -EINVAL);
    cr_assert_not_null(strstr(err.text, "labels:"));
    n = put_idx(folder, 20, 20);
    bytes = get_file(folder, "t-images-idx3-ubyte", &n);
    put_file(folder, "t-images-idx3-ubyte", bytes, n - 7);
    cr_assert_eq(open_set(folder, "idx", "t-images-idx3-ubyte", NULL, &notes, &index, NULL), 0);
    cr_assert_not_null(strstr(notes.text, "truncated"));
    cr_assert_eq(np_index_record(index, 18)->bytes, 5);
    cr_assert_eq(np_index_record(index, 19)->bytes, 0);
    np_index_free(index);
    bytes[3] = 4;
    put_file(folder, "t-images-idx3-ubyte", bytes, n);
    err.code = 0;
    cr_assert_eq(
        open_set(folder, "idx", "t-images-idx3-ubyte", NULL, NULL, &index, &err), -EBADMSG);
    cr_assert_not_null(strstr(err.text, "00000804"));
    free(bytes);
    remove_set(folder);
}
