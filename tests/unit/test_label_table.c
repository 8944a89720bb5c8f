/* Tables of files and labels: what each format gives, and the line of each mistake. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "loader/source/label_table.h"
#include "tests/test.h"

static char dir[] = "/tmp/nnpipe-labels-XXXXXX"; /* each test has its own */
static char path[64];

static enum np_label_type type; /* of the next table */

static void setup(void)
{
    type = NP_LABEL_CLASS;
    memcpy(dir + strlen(dir) - 6, "XXXXXX", 6);
    cr_assert(mkdtemp(dir));
}

static void teardown(void)
{
    unlink(path);
    rmdir(dir);
}

static struct np_label_table *read_text(
    const char *name, const char *text, size_t bytes, const char *columns, struct np_err *err)
{
    const struct np_label_layout layout = {columns, type, '|'};
    struct np_label_table *table = NULL;

    unlink(path);
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    FILE *file = fopen(path, "w");

    cr_assert(file && fwrite(text, 1, bytes, file) == bytes && fclose(file) == 0);
    int code = np_label_table_read(path, &layout, &table, err);
    cr_assert((code == 0) == (table != NULL));
    return table;
}

static void check_label(struct np_label_table *table, const char *name, const char *label)
{
    const char *found = np_label_table_find(table, name);

    cr_expect(label ? found && strcmp(found, label) == 0 : !found, "%s: %s", name,
        found ? found : "none");
}

static const struct {
    const char *name, *text, *columns;
} same[] = {
    {"t.csv", "a/1.jpg,cat\nb.jpg,\"dog, \"\"big\"\"\"\n", NULL},
    {"t.csv",
        "\xef\xbb\xbf"
        "file,class\r\na/1.jpg,cat\r\n\r\nb.jpg,\"dog, \"\"big\"\"\"",
        ""},
    {"t.csv", "size,class,\"file\"\n9,cat,a/1.jpg\n,\"dog, \"\"big\"\"\",./b.jpg\n", "file,class"},
    {"t.tsv", "a/1.jpg\tcat\nb\tdog, \"big\"\n", NULL},
    {"t.txt", "a/1.jpg\tcat\nb\t\"dog, \"\"big\"\"\"\n", NULL},
    {"t.txt", "a/1\tcat\nb.jpg\tdog, \"big\"\tmore\n", NULL},
    {"t.txt", "a/1.jpg  cat \nb \t\"dog, \"\"big\"\"\"\n", NULL},
};

Test(label_table, formats_give_the_same_labels, .init = setup, .fini = teardown)
{
    for (size_t i = 0; i < sizeof(same) / sizeof(*same); i++) {
        struct np_err err = {0};
        struct np_label_table *table =
            read_text(same[i].name, same[i].text, strlen(same[i].text), same[i].columns, &err);

        cr_assert(table, "%zu: %s", i, err.text);
        check_label(table, "a/1.jpg", "cat");
        check_label(table, "b.jpg", "dog, \"big\"");
        check_label(table, "1.jpg", NULL);
        check_label(table, "a.jpg", NULL);
        check_label(table, "c", NULL);
        cr_expect_eq(np_label_table_check(table, "d", &err), 0, "%zu: %s", i, err.text);
        cr_expect(!np_label_table_numbered(table));
        np_label_table_free(table);
    }
}

Test(label_table, numbers_are_found_below_a_line_of_names, .init = setup, .fini = teardown)
{
    const char *text = "id,label\nx,10\ny,2\n";
    struct np_label_table *table = read_text("t.csv", text, strlen(text), NULL, NULL);

    check_label(table, "x.png", "10");
    cr_expect(np_label_table_numbered(table));
    np_label_table_free(table);
}

static const struct {
    const char *name, *text, *columns, *wanted;
} wrong[] = {
    {"t.csv", "a,1\nb\n", NULL, ":2: it has no column 2"},
    {"t.csv", "a,1\nb,\n", NULL, ":2: the label is empty"},
    {"t.csv", "a,1\n\n,2\n", NULL, ":3: the name of the file is empty"},
    {"t.csv", "a,1\nb,2\n./a,3\n", NULL, ":3: 'a' is also in line 1"},
    {"t.csv", "a,\"1\nb,2\n", NULL, ":1: a quote is not closed in its line"},
    {"t.csv", "a,1\n\"b\"x,2\n", NULL, ":2: text behind a quoted field"},
    {"t.csv", "", NULL, ": it has no line with a file and a label"},
    {"t.csv", "file,label\n", "file,label", ": it has no line with a file and a label"},
    {"t.csv", "file,label\na,1\n", "file,class", ":1: there is no column 'class'"},
};

Test(label_table, mistakes_name_the_line, .init = setup, .fini = teardown)
{
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        struct np_err err = {0};
        struct np_label_table *table =
            read_text(wrong[i].name, wrong[i].text, strlen(wrong[i].text), wrong[i].columns, &err);
        const size_t path_bytes = strlen(path);

        cr_expect(!table && strncmp(err.text, path, path_bytes) == 0 &&
                      strcmp(err.text + path_bytes, wrong[i].wanted) == 0,
            "%zu: %s", i, err.text);
        np_label_table_free(table);
    }
}

Test(label_table, a_nul_byte_and_a_missing_image_are_mistakes, .init = setup, .fini = teardown)
{
    struct np_err err = {0};
    struct np_label_table *table = read_text("t.csv", "a,1\nb\0,2\n", 9, NULL, &err);

    cr_expect(!table && strstr(err.text, ":2: a NUL byte"), "%s", err.text);
    err = (struct np_err){0};
    table = read_text("t.csv", "a,1\nb,2\nc,3\n", 12, NULL, NULL);
    check_label(table, "a.jpg", "1");
    cr_expect_eq(np_label_table_check(table, "dir", &err), -ENOENT);
    cr_expect(strstr(err.text, ":2: there is no image 'b' below dir"), "%s", err.text);
    np_label_table_free(table);
}

static const struct {
    enum np_label_type type;
    const char *text, *columns, *name, *label;
} typed[] = {
    {NP_LABEL_MULTI, "f,tags\na.jpg,dog|cat\n", NULL, "a.jpg", "cat|dog"},
    {NP_LABEL_MULTI, "f,tags\na.jpg, dog | cat \nb.jpg,\n", "f,tags", "b.jpg", "|"},
    {NP_LABEL_MULTI, "f,x,y,z\na,1,0,1\n", "f,z,y,x", "a", "x|z"},
    {NP_LABEL_MULTI, "f,x,y\na,0,0\n", "f,x,y", "a", "|"},
    {NP_LABEL_VALUE, "f,price\na,1.50\n", NULL, "a", "1.5"},
    {NP_LABEL_VALUE, "a,-1e3\nb,0.1\n", NULL, "b", "0.100000001"},
    {NP_LABEL_VALUE, "x,y,f\n1,2,a\n", "f,y,x", "a", "2 1"},
};

Test(label_table, of_several_classes_and_of_numbers, .init = setup, .fini = teardown)
{
    for (size_t i = 0; i < sizeof(typed) / sizeof(*typed); i++) {
        struct np_err err = {0};

        type = typed[i].type;
        struct np_label_table *table =
            read_text("t.csv", typed[i].text, strlen(typed[i].text), typed[i].columns, &err);
        cr_assert(table, "%zu: %s", i, err.text);
        check_label(table, typed[i].name, typed[i].label);
        np_label_table_free(table);
    }
}

static const struct {
    enum np_label_type type;
    const char *text, *columns, *wanted; /* behind the path */
} bad_cells[] = {
    {NP_LABEL_MULTI, "a,x|x\n", NULL, ":1: the class 'x' is there twice"},
    {NP_LABEL_MULTI, "a,x\nb,x||y\n", NULL, ":2: the list of classes has an empty name"},
    {NP_LABEL_MULTI, "f,x,y\na,1,0\nb,1,2\n", "f,x,y", ":3: the column 'y' has '2', not 0 or 1"},
    {NP_LABEL_MULTI, "f,x,y\na,1,\n", "f,x,y", ":2: the column 'y' has '', not 0 or 1"},
    {NP_LABEL_VALUE, "a,1\nb,one\n", NULL, ":2: the label is 'one', not a number that fits float"},
    {NP_LABEL_VALUE, "a,1\nb,\n", NULL, ":2: the label is '', not a number that fits float"},
    {NP_LABEL_VALUE, "a,1\nb,nan\n", NULL, ":2: the label is 'nan', not a number that fits float"},
    {NP_LABEL_VALUE, "a,1\nb,1e39\n", NULL,
        ":2: the label is '1e39', not a number that fits float"},
    {NP_LABEL_VALUE, "f,x,y\na,1,0x10\n", "f,x,y", ":2: y is '0x10', not a number that fits float"},
    {NP_LABEL_VALUE, "f,x,y\na,1\n", "f,x,y", ":2: it has no column 3"},
};

Test(label_table, a_cell_that_is_no_label_names_the_line, .init = setup, .fini = teardown)
{
    for (size_t i = 0; i < sizeof(bad_cells) / sizeof(*bad_cells); i++) {
        struct np_err err = {0};

        type = bad_cells[i].type;
        struct np_label_table *table = read_text(
            "t.csv", bad_cells[i].text, strlen(bad_cells[i].text), bad_cells[i].columns, &err);
        const size_t path_bytes = strlen(path);

        cr_expect(!table && strncmp(err.text, path, path_bytes) == 0 &&
                      strcmp(err.text + path_bytes, bad_cells[i].wanted) == 0,
            "%zu: %s", i, err.text);
        np_label_table_free(table);
    }
}
