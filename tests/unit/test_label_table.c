/* Tables of files and labels: what each format gives, and the line of each mistake. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "loader/base/mem.h"
#include "loader/source/label_table.h"
#include "loader/source/label_text.h"
#include "tests/test.h"
#include "tests/unit/made_memory.h"

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
    {"t.csv", "\na,1\n", "file,class", ":1: there is no column 'file'"},
    {"t.csv", "file,label\na,1\n", "file,file", ": the column 'file' is asked for twice"},
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

Test(label_table, a_first_line_with_no_number_is_names_only_without_its_image, .init = setup,
    .fini = teardown)
{
    for (int found = 0; found < 2; found++) {
        const char *text = "a,nan\nb,2\n";
        struct np_err err = {0};

        type = NP_LABEL_VALUE;
        struct np_label_table *table = read_text("t.csv", text, strlen(text), NULL, &err);

        cr_assert(table, "%s", err.text);
        check_label(table, "b.jpg", "2");
        cr_expect_eq(found && !np_label_table_find(table, "a.jpg"), 0);
        cr_expect_eq(np_label_table_check(table, "dir", &err), found ? -EINVAL : 0);
        cr_expect_eq(found != 0, strstr(err.text, ":1: the label is 'nan', not a number") != NULL,
            "%s", err.text);
        np_label_table_free(table);
    }
}

/* A line of 3,000 columns of 0 and 1, in the opposite order of their names. */
Test(label_table, has_thousands_of_columns, .init = setup, .fini = teardown)
{
    char *columns = NULL, *text = NULL;
    size_t bytes, text_bytes;
    struct np_err err = {0};
    FILE *names = open_memstream(&columns, &bytes),
         *table_text = open_memstream(&text, &text_bytes);

    fputs("f", names);
    for (int i = 0; i < 3000; i++) {
        fprintf(names, ",c%d", i);
        fprintf(table_text, "c%d,", 2999 - i);
    }
    fputs("f\n", table_text);
    for (int i = 0; i < 3000; i++)
        fprintf(table_text, "%d,", i == 7 || i == 2999);
    fputs("a\n", table_text);
    fclose(names);
    fclose(table_text);
    type = NP_LABEL_MULTI;
    struct np_label_table *table = read_text("t.csv", text, text_bytes, columns, &err);

    cr_assert(table, "%s", err.text);
    check_label(table, "a", "c0|c2992");
    np_label_table_free(table);
    free(columns);
    free(text);
}

/* Each allocation fails once; what was made before is freed. */
Test(label_table, without_memory_gives_enomem, .init = setup, .fini = teardown)
{
    static const struct {
        enum np_label_type type;
        const char *text, *columns;
    } kinds[] = {
        {NP_LABEL_CLASS, "f,c\na,x\nb,y\n", "f,c"},
        {NP_LABEL_MULTI, "a,x|y\nb,z\n", NULL},
        {NP_LABEL_MULTI, "f,x,y\na,1,0\nb,1,1\n", "f,x,y"},
        {NP_LABEL_VALUE, "f,x\na,1\nb,2\n", NULL},
    };

    for (size_t k = 0; k < sizeof(kinds) / sizeof(*kinds); k++) {
        const struct np_label_layout layout = {kinds[k].columns, kinds[k].type, '|'};
        struct np_label_table *table;
        int code = -ENOMEM;

        type = kinds[k].type;
        np_label_table_free(
            read_text("t.csv", kinds[k].text, strlen(kinds[k].text), kinds[k].columns, NULL));
        for (int fail = 1; code == -ENOMEM; fail++) {
            struct np_err err = {0};

            cr_assert(fail < 100);
            table = NULL;
            made_memory_fail(fail);
            code = np_label_table_read(path, &layout, &table, &err);
            made_memory_fail(0);
            cr_expect((code == 0) == (table != NULL) && err.code == code, "%zu: %s", k, err.text);
        }
        cr_expect_eq(code, 0);
        np_label_table_free(table);
    }
}

static void fill_index(struct np_index *index, char **texts, int nr)
{
    *index = (struct np_index){.classes = texts, .nr_classes = nr};
}

Test(label_table, texts_that_no_table_makes_are_refused)
{
    static char long_text[NP_MAX_NAME + 3];
    static char *bad[] = {"a||b", "||", "|a", long_text};

    memset(long_text, 'x', sizeof(long_text) - 1);
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        struct np_node *names = np_node_new(NP_NODE_LIST, 0, 0), *found = NULL;
        struct np_err err = {0};
        struct np_index index;
        int32_t *labels = NULL;

        np_node_add(names, NULL, np_node_scalar("a", 0, 0));
        fill_index(&index, &bad[i], 1);
        cr_expect_eq(np_label_classes(&index, &found, &err), -EINVAL, "%zu", i);
        cr_expect(strstr(err.text, "is no list of classes"), "%s", err.text);
        cr_expect_eq(np_label_values(NP_LABEL_MULTI, names, NULL, &index, &labels, NULL), -EINVAL);
        np_node_free(names);
    }
}

Test(label_table, classes_and_values_without_memory_give_enomem)
{
    char *texts[] = {"b", "a|c", "|"};
    struct np_node *names = NULL;
    struct np_index index;
    int32_t *labels = NULL;
    int code = -ENOMEM;

    fill_index(&index, texts, 3);
    for (int fail = 1; code == -ENOMEM && fail < 100; fail++) {
        made_memory_fail(fail);
        code = np_label_classes(&index, &names, NULL);
        made_memory_fail(0);
        cr_expect((code == 0) == (names != NULL));
    }
    cr_assert(names && names->nr_items == 3 && strcmp(names->items[1]->text, "b") == 0);
    code = -ENOMEM;
    for (int fail = 1; code == -ENOMEM && fail < 100; fail++) {
        made_memory_fail(fail);
        code = np_label_values(NP_LABEL_MULTI, names, NULL, &index, &labels, NULL);
        made_memory_fail(0);
        cr_expect((code == 0) == (labels != NULL));
    }
    cr_assert(code == 0 && index.values[1] == 1 && index.values[3] == 1 && index.values[5] == 1);
    np_free(labels);
    np_free(index.values);
    np_node_free(names);
}
