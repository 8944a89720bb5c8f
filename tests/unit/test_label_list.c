/* Lists of labels without names: the class of each image, and the line of each mistake. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "loader/source/label_list.h"
#include "tests/test.h"

static char dir[] = "/tmp/nnpipe-labels-XXXXXX"; /* each test has its own */
static char labels[64], synsets[64];

static void setup(void)
{
    memcpy(dir + strlen(dir) - 6, "XXXXXX", 6);
    cr_assert(mkdtemp(dir));
    snprintf(labels, sizeof(labels), "%s/labels", dir);
    snprintf(synsets, sizeof(synsets), "%s/synsets", dir);
}

static void teardown(void)
{
    unlink(labels);
    unlink(synsets);
    rmdir(dir);
}

static void write_file(const char *path, const char *text, size_t bytes)
{
    FILE *file = fopen(path, "w");

    cr_assert(file && fwrite(text, 1, bytes, file) == bytes && fclose(file) == 0);
}

static struct np_label_list *read_texts(const char *numbers, const char *names, struct np_err *err)
{
    struct np_label_list *list = NULL;

    write_file(labels, numbers, strlen(numbers));
    write_file(synsets, names, strlen(names));
    int code = np_label_list_read(labels, synsets, &list, err);
    cr_assert((code == 0) == (list != NULL));
    return list;
}

static const struct {
    const char *numbers, *names;
} same[] = {
    {"3\n1\n3\n", "n01 tench, Tinca tinca\nn02 goldfish\nn03\n"},
    {"3\r\n1\r\n3", "n01\r\nn02\r\nn03"},
    {"\xef\xbb\xbf"
     "3\n1\n3\n",
        "\xef\xbb\xbf"
        "n01\ttench\nn02 \nn03 n01\nn04\n"},
};

Test(label_list, a_number_is_the_line_of_its_class, .init = setup, .fini = teardown)
{
    static const char *const wanted[] = {"n03", "n01", "n03"};

    for (size_t i = 0; i < sizeof(same) / sizeof(*same); i++) {
        struct np_err err = {0};
        struct np_label_list *list = read_texts(same[i].numbers, same[i].names, &err);

        cr_assert(list, "%zu: %s", i, err.text);
        for (int k = 0; k < 3; k++) {
            const char *found = np_label_list_next(list, "image", &err);

            cr_expect(found && strcmp(found, wanted[k]) == 0, "%zu: %s", i, found ? found : "none");
        }
        cr_expect_eq(np_label_list_check(list, "dir", &err), 0, "%zu: %s", i, err.text);
        np_label_list_free(list);
    }
}

static const struct {
    const char *numbers, *names;
    bool in_synsets;
    const char *wanted;
} wrong[] = {
    {"1\n3\n", "a\nb\n", false, ":2: '3' is not the number of a class, 1 to 2, the lines of "},
    {"1\n0\n", "a\nb\n", false, ":2: '0' is not the number of a class, 1 to 2, the lines of "},
    {"1\n\n2\n", "a\nb\n", false, ":2: '' is not the number of a class, 1 to 2, the lines of "},
    {"1\n-1\n", "a\nb\n", false, ":2: '-1' is not the number of a class, 1 to 2, the lines of "},
    {"1.jpg 1\n", "a\nb\n", false, ":1: '1.jpg 1' is not the number of a class, 1 to 2, the "},
    {"1\n", "a\nb c\nb d\n", true, ":3: 'b' is also in line 2"},
    {"1\n", "a\n\nb\n", true, ":2: the name of a class is expected, then a blank or the end"},
    {"1\n", "a\n b\n", true, ":2: the name of a class is expected, then a blank or the end"},
    {"1\n", "", true, ": it is empty; one class per line"},
};

Test(label_list, mistakes_name_the_line, .init = setup, .fini = teardown)
{
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        struct np_err err = {0};
        struct np_label_list *list = read_texts(wrong[i].numbers, wrong[i].names, &err);
        const char *path = wrong[i].in_synsets ? synsets : labels;
        const size_t path_bytes = strlen(path);

        cr_expect(!list && err.code == -EINVAL && strncmp(err.text, path, path_bytes) == 0 &&
                      strncmp(err.text + path_bytes, wrong[i].wanted, strlen(wrong[i].wanted)) == 0,
            "%zu: %s", i, err.text);
        np_label_list_free(list);
    }
}

Test(label_list, a_nul_byte_and_a_missing_file_are_mistakes, .init = setup, .fini = teardown)
{
    struct np_label_list *list = NULL;
    struct np_err err = {0};

    write_file(labels, "1\n1\0\n", 5);
    write_file(synsets, "a\n", 2);
    cr_expect_eq(np_label_list_read(labels, synsets, &list, &err), -EINVAL);
    cr_expect(strstr(err.text, "labels:2: a NUL byte"), "%s", err.text);
    err = (struct np_err){0};
    unlink(synsets);
    cr_expect_eq(np_label_list_read(labels, synsets, &list, &err), -ENOENT);
    cr_expect(strstr(err.text, synsets), "%s", err.text);
}

Test(label_list, more_and_fewer_images_than_numbers_name_the_line, .init = setup, .fini = teardown)
{
    struct np_err err = {0};
    struct np_label_list *list = read_texts("1\n2\n", "a\nb\n", &err);

    cr_expect(np_label_list_next(list, "x.jpg", &err));
    cr_expect_eq(np_label_list_check(list, "dir", &err), -EINVAL);
    cr_expect(strstr(err.text, "labels:2: there is no image 2: dir has only 1"), "%s", err.text);
    err = (struct np_err){0};
    cr_expect(np_label_list_next(list, "y.jpg", &err));
    cr_expect(!np_label_list_next(list, "z.jpg", &err) && err.code == -EINVAL);
    cr_expect(strstr(err.text, "labels:2: this is the last number, but there is another image, 'z"),
        "%s", err.text);
    np_label_list_free(list);
}
