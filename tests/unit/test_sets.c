/* Which samples and classes a run takes of a set: unlabelled ones, the order, a file of classes. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/config/setup.h"
#include "tests/test.h"
#include "tests/unit/made_sets.h"

#define REST                                                                                       \
    "loader: {augment: [{center_crop: {size: 8}}], test_augment: [{center_crop: {size: 8}}]}\n"    \
    "model: [global_avgpool, flatten, {linear: {out: classes}}]\n"

struct taken {
    struct np_config *config;
    struct np_setup setup;
    struct np_err err;
    struct made_notes notes;
    int code;
};

static void note(void *context, const char *text)
{
    struct made_notes *notes = context;

    strncat(notes->text, text, sizeof(notes->text) - strlen(notes->text) - 1);
    notes->nr_notes++;
}

/* np_sets_open() of `data: {...}`, whose relative paths start at folder. */
static void take(const char *folder, const char *data, struct taken *taken)
{
    const struct np_source_progress progress = {.note = note, .context = &taken->notes};
    char text[2048], path[2048];
    struct np_report report;

    memset(taken, 0, sizeof(*taken));
    snprintf(text, sizeof(text), "data: {%s}\n%s", data, REST);
    put_file(folder, "a.yaml", text, strlen(text));
    snprintf(path, sizeof(path), "%s/a.yaml", folder);
    np_report_init(&report, path);
    if (np_config_load(path, NULL, 0, &taken->config, &report))
        cr_assert_fail("%s", report.errs[0].text);
    np_report_fini(&report);
    taken->code = np_sets_open(&taken->config->sets, &progress, &taken->setup.sets, &taken->err);
}

static void give_back(struct taken *taken)
{
    np_setup_fini(&taken->setup);
    np_config_free(taken->config);
}

/* "ant bee" */
static const char *names(const struct np_node *classes)
{
    static char text[512];

    *text = '\0';
    for (int i = 0; i < classes->nr_items; i++) {
        strcat(text, i ? " " : "");
        strcat(text, classes->items[i]->text);
    }
    return text;
}

static char *make_folder(void)
{
    char *folder = make_set();

    put_file(folder, "set/ant/1.jpg", "a", 1);
    put_file(folder, "set/bee/1.jpg", "b", 1);
    put_file(folder, "set/bee/2.jpg", "c", 1);
    return folder;
}

Test(setup_classes, samples_in_no_class_are_refused_by_name)
{
    char *folder = make_folder();
    struct taken taken;

    put_file(folder, "set/x1.jpg", "x", 1);
    put_file(folder, "set/x2.jpg", "x", 1);
    take(folder, "train: {source: folder, path: set}", &taken);
    cr_expect_eq(taken.code, -EINVAL);
    cr_expect(strstr(taken.err.text, "2 of its 5 samples are in no class, the first is 'x1.jpg'"),
        "%s", taken.err.text);
    cr_expect(strstr(taken.err.text, "data.train"), "%s", taken.err.text);
    give_back(&taken);
    put_file(folder, "good/ant/1.jpg", "a", 1);
    put_file(folder, "good/bee/1.jpg", "a", 1);
    take(folder, "train: {source: folder, path: good}, test: {source: folder, path: set}", &taken);
    cr_expect_eq(taken.code, -EINVAL);
    cr_expect(strstr(taken.err.text, "data.test"), "%s", taken.err.text);
    give_back(&taken);
    remove_set(folder);
}

Test(setup_classes, samples_in_no_class_are_left_out_on_request)
{
    char *folder = make_folder();
    struct taken taken;

    put_file(folder, "set/x1.jpg", "x", 1);
    for (int i = 0; i < 2; i++) { /* from the listing, and from the index that was kept */
        take(folder, "train: {source: folder, path: set, unlabelled: skip}", &taken);
        cr_assert_eq(taken.code, 0, "%s", taken.err.text);
        cr_expect_eq(np_index_samples(taken.setup.sets.train), 3);
        cr_expect(strstr(taken.notes.text, "1 of its 4 samples are in no class and left out"), "%s",
            taken.notes.text);
        give_back(&taken);
    }
    put_file(folder, "flat/1.jpg", "x", 1);
    take(folder, "train: {source: folder, path: flat, unlabelled: skip}", &taken);
    cr_expect_eq(taken.code, -EINVAL); /* nothing would be left */
    give_back(&taken);
    remove_set(folder);
}

Test(setup_classes, one_class_is_refused_unless_a_file_names_it)
{
    char *folder = make_set();
    struct taken taken;

    put_file(folder, "set/images/cat.1.jpg", "a", 1);
    put_file(folder, "set/images/dog.1.jpg", "a", 1);
    put_file(folder, "names.txt", "images\n", 7);
    take(folder, "train: {source: folder, path: set}", &taken);
    cr_expect_eq(taken.code, -EINVAL);
    cr_expect(
        strstr(taken.err.text, "all its samples are of one class, 'images'"), "%s", taken.err.text);
    give_back(&taken);
    take(folder, "classes: names.txt, train: {source: folder, path: set}", &taken);
    cr_expect_eq(taken.code, 0, "%s", taken.err.text);
    give_back(&taken);
    remove_set(folder);
}

Test(setup_classes, a_test_set_of_one_class_takes_its_number_from_the_training_set)
{
    char *folder = make_folder();
    struct taken taken;

    put_file(folder, "test/bee/9.jpg", "a", 1);
    take(folder, "train: {source: folder, path: set}, test: {source: folder, path: test}", &taken);
    cr_assert_eq(taken.code, 0, "%s", taken.err.text);
    cr_expect_null(taken.setup.sets.train_labels);
    cr_expect(taken.setup.sets.test_labels && taken.setup.sets.test_labels[0] == 1);
    give_back(&taken);
    remove_set(folder);
}

Test(setup_classes, a_file_gives_the_classes_and_their_order)
{
    static const char file[] = "\xef\xbb\xbf"
                               "cow\r\nbee\r\nant";
    char *folder = make_folder();
    struct taken taken;

    put_file(folder, "names.txt", file, sizeof(file) - 1);
    take(folder,
        "classes: names.txt, train: {source: folder, path: set}, test: {source: folder, path: set}",
        &taken);
    cr_assert_eq(taken.code, 0, "%s", taken.err.text);
    cr_expect_str_eq(names(taken.setup.sets.classes), "cow bee ant");
    cr_assert_not_null(taken.setup.sets.train_labels);
    cr_expect_eq(taken.setup.sets.train_labels[0], 2); /* ant */
    cr_expect_eq(taken.setup.sets.train_labels[1], 1);
    cr_expect_eq(taken.setup.sets.test_labels[0], 2);
    give_back(&taken);
    put_file(folder, "names.txt", "ant\ncow\n", 8);
    take(folder, "classes: names.txt, train: {source: folder, path: set}", &taken);
    cr_expect_eq(taken.code, -EINVAL);
    cr_expect(strstr(taken.err.text, "data.train: the class 'bee' is not among the 2 classes of"),
        "%s", taken.err.text);
    cr_expect(strstr(taken.err.text, "names.txt"), "%s", taken.err.text);
    give_back(&taken);
    remove_set(folder);
}

/* Runs from before folders that are numbers were put in byte order. */
Test(setup_classes, a_checkpoints_class_order_replaces_that_of_the_set)
{
    char *folder = make_set();
    struct np_node *then = np_node_new(NP_NODE_LIST, 0, 0);
    struct taken taken;
    uint64_t sum;

    put_file(folder, "set/1/a.jpg", "a", 1);
    put_file(folder, "set/10/a.jpg", "a", 1);
    put_file(folder, "set/2/a.jpg", "a", 1);
    put_file(folder, "test/2/a.jpg", "a", 1);
    take(folder, "train: {source: folder, path: set}, test: {source: folder, path: test}", &taken);
    cr_assert_eq(taken.code, 0, "%s", taken.err.text);
    cr_expect_str_eq(names(taken.setup.sets.classes), "1 10 2");
    sum = np_index_sizes_sum(taken.setup.sets.train, taken.setup.sets.train_labels);
    np_node_add(then, NULL, np_node_scalar("1", 0, 0));
    np_node_add(then, NULL, np_node_scalar("2", 0, 0));
    cr_expect_eq(
        np_sets_order_classes(&taken.config->sets, &taken.setup.sets, then, &taken.err), -EINVAL);
    cr_expect_str_eq(names(taken.setup.sets.classes), "1 10 2"); /* nothing was changed */
    np_node_add(then, NULL, np_node_scalar("10", 0, 0));
    cr_assert_eq(
        np_sets_order_classes(&taken.config->sets, &taken.setup.sets, then, &taken.err), 0);
    cr_expect_str_eq(names(taken.setup.sets.classes), "1 2 10");
    cr_assert_not_null(taken.setup.sets.train_labels);
    cr_expect_eq(taken.setup.sets.train_labels[1], 2); /* 10 */
    cr_expect_eq(taken.setup.sets.train_labels[2], 1); /* 2 */
    cr_expect_eq(taken.setup.sets.test_labels[0], 1);
    cr_expect_neq(np_index_sizes_sum(taken.setup.sets.train, taken.setup.sets.train_labels), sum);
    np_node_free(then);
    give_back(&taken);
    remove_set(folder);
}

/* What a file of so many bytes is refused with; "": it is taken. */
static const char *mistake(const char *bytes, size_t n)
{
    static char text[1024];
    char *folder = make_set(), path[1024];
    struct np_node *classes = NULL;
    struct np_err err = {0};

    put_file(folder, "c", bytes, n);
    snprintf(path, sizeof(path), "%s/c", folder);
    np_classes_read(path, &classes, &err);
    np_node_free(classes);
    snprintf(text, sizeof(text), "%s", err.code ? err.text + strlen(path) : "");
    remove_set(folder);
    return text;
}

Test(setup_classes, a_mistake_in_a_file_of_classes_is_reported_with_its_line)
{
    char *large = malloc(NP_MAX_NAME + 10);

    memset(large, 'x', NP_MAX_NAME + 10);
    memcpy(large, "ant\n", 4);
    cr_expect_str_eq(mistake("ant\nbee\n", 8), "");
    cr_expect_str_eq(mistake("", 0), ": it is empty; one class per line");
    cr_expect_str_eq(mistake("ant\n\nbee\n", 9), ":2: an empty line; one class per line");
    cr_expect_str_eq(mistake("ant\n\r\n", 6), ":2: an empty line; one class per line");
    cr_expect_str_eq(mistake("ant\nb\0e\n", 8), ":2: a NUL byte: not a text file");
    cr_expect_str_eq(
        mistake("bee\nant\ncow\nant\nbee\n", 20), ":4: the class 'ant' is also in line 2");
    cr_expect_str_eq(mistake(large, NP_MAX_NAME + 4), "");
    cr_expect_str_eq(mistake(large, NP_MAX_NAME + 5), ":2: a name of over 4095 bytes");
    free(large);
}
