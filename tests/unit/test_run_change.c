/* Rates, schedule and length changed when a run is resumed; what data it may be resumed on. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "loader/base/json.h"
#include "daemon/run/run_parts.h"
#include "loader/base/yaml.h"
#include "tests/test.h"
#include "trainer/graph/graph.h"

static struct np_node *parsed(const char *text)
{
    struct np_report report;
    struct np_node *node = NULL;

    np_report_init(&report, NULL);
    np_yaml_parse(text, strlen(text), &node, &report);
    np_report_fini(&report);
    return node;
}

/* A config's part that can be changed. */
static struct np_node *config(const char *lr, const char *schedule, const char *epochs)
{
    char text[256];

    snprintf(text, sizeof(text),
        "optimizer: {sgd: {lr: %s, weight_decay: 0.1}}\nschedule: %s\ntrain: {epochs: %s}\n", lr,
        schedule, epochs);
    return parsed(text);
}

/* One start: `now` with -o given (NULL: none) against a run that began with 0.1, cosine, 4. The changes
 * so far are in `changes`. True: it may resume; now then holds the values in force. */
static bool starts(
    struct np_changes *changes, struct np_node *now, const char *given, bool reset, char why[256])
{
    struct np_node *began = config("0.1", "{cosine: {final: 0}}", "4"),
                   *in_force = np_node_copy(began);
    struct np_overrides overrides = {.texts = {given}, .nr_texts = given != NULL};

    cr_assert_eq(np_changes_apply(changes, in_force, NULL), 0);
    np_changes_merge(changes, began, in_force, now, &overrides, reset);
    bool same = np_config_same(in_force, now, false, why, 256);
    np_node_free(began);
    np_node_free(in_force);
    return same;
}

static const char *lr_of(const struct np_node *now)
{
    return np_node_get(np_node_get(np_node_get(now, "optimizer"), "sgd"), "lr")->text;
}

/* Out to a checkpoint's facts and back. */
static void round_trip(struct np_changes *changes)
{
    struct np_json json = {0};
    struct np_node *facts = NULL;

    np_json_begin(&json, NULL);
    np_json_node(&json, "changes", changes->list);
    const char *text = np_json_end(&json);
    cr_assert_eq(np_json_parse(text, strlen(text), &facts, NULL), 0);
    np_changes_close(changes);
    np_changes_open(changes, np_node_get(facts, "changes"));
    np_node_free(facts);
    np_json_fini(&json);
}

Test(run_change, a_given_value_is_a_change_and_stays_for_later_starts)
{
    struct np_changes changes = {0};
    struct np_node *now = config("0.02", "{cosine: {final: 0}}", "4");
    char why[256] = "", text[256];

    np_changes_open(&changes, NULL);
    cr_assert(starts(&changes, now, "optimizer.sgd.lr=0.02", false, why), "%s", why);
    cr_assert_eq(changes.nr_new, 1);
    np_changes_settle(&changes, 20);
    cr_assert(np_changes_text(&changes, 0, text, sizeof(text)));
    cr_assert_str_eq(text, "from step 20 on: optimizer.sgd.lr 0.02, was 0.1");
    cr_assert_not(np_changes_text(&changes, 1, text, sizeof(text)));
    np_node_free(now);
    round_trip(&changes);
    now = config("0.1", "{cosine: {final: 0}}", "4"); /* the file as it was */
    cr_assert(starts(&changes, now, NULL, false, why), "%s", why);
    cr_assert_str_eq(lr_of(now), "0.02");
    cr_assert_eq(changes.nr_new, 0);
    np_node_free(now);
    now = config("0.02", "{cosine: {final: 0}}", "4"); /* the same command again */
    cr_assert(starts(&changes, now, "optimizer.sgd.lr=0.02", false, why), "%s", why);
    cr_assert_eq(changes.nr_new, 0);
    np_node_free(now);
    now = config("0.05", "{cosine: {final: 0}}", "4"); /* a third value, by accident */
    cr_assert_not(starts(&changes, now, NULL, false, why));
    cr_assert_str_eq(why, "optimizer.sgd.lr was 0.02 and is 0.05");
    np_node_free(now);
    np_changes_close(&changes);
}

Test(run_change, another_value_in_the_file_is_refused_by_its_name)
{
    struct np_node *rate = config("0.02", "{cosine: {final: 0}}", "4");
    struct np_node *longer = config("0.1", "{cosine: {final: 0}}", "5");
    struct np_changes changes = {0};
    char why[256] = "";

    np_changes_open(&changes, NULL);
    cr_assert_not(starts(&changes, rate, "optimizer.sgd.lr_other=1", false, why));
    cr_assert_str_eq(why, "optimizer.sgd.lr was 0.1 and is 0.02");
    cr_assert_not(starts(&changes, longer, NULL, false, why));
    cr_assert_str_eq(
        why, "train.epochs was 4 and is 5: this schedule depends on the length of the run");
    cr_assert(starts(&changes, longer, "train.epochs=5", false, why), "%s", why);
    np_node_free(rate);
    np_node_free(longer);
    np_changes_close(&changes);
}

Test(run_change, a_parent_or_child_path_gives_the_value_too)
{
    static const char *const given[] = {"schedule=constant", "schedule.constant.warmup=0.1"};
    char why[256] = "";

    for (int i = 0; i < 2; i++) {
        struct np_node *now = config("0.1", "{constant: {warmup: 0.1}}", "4");
        struct np_changes changes = {0};

        np_changes_open(&changes, NULL);
        cr_assert(starts(&changes, now, given[i], false, why), "%s", why);
        np_changes_settle(&changes, 8);
        cr_assert_eq(np_changes_schedule_start(&changes), 0); /* of the whole run */
        np_node_free(now);
        np_changes_close(&changes);
    }
}

Test(run_change, a_reset_restarts_the_schedule_and_takes_the_files_values)
{
    struct np_node *now = config("0.02", "{cosine: {final: 0.5}}", "6");
    struct np_changes changes = {0};
    char why[256] = "", text[256];

    np_changes_open(&changes, NULL);
    cr_assert(starts(&changes, now, NULL, true, why), "%s", why);
    cr_assert_eq(changes.nr_new, 3);
    np_changes_settle(&changes, 20);
    cr_assert_eq(np_changes_schedule_start(&changes), 20);
    round_trip(&changes);
    cr_assert_eq(np_changes_schedule_start(&changes), 20);
    cr_assert(np_changes_text(&changes, 1, text, sizeof(text)));
    cr_assert_str_eq(text,
        "from step 20 on: schedule cosine: {final: 0.5}, was cosine: {final: 0}; "
        "the schedule begins anew at this step");
    np_node_free(now);
    np_changes_close(&changes);
}

Test(run_change, a_change_in_a_damaged_checkpoint_holds_from_the_previous_one)
{
    struct np_node *list = parsed("[{key: train.epochs, from: '4', to: '6', step: 10}, "
                                  "{key: schedule, from: a, to: b, reset: true, step: 40}]");
    struct np_changes changes = {0};
    char text[256];

    np_changes_open(&changes, list);
    cr_assert_eq(np_changes_schedule_start(&changes), 40);
    np_changes_settle(&changes, 30);
    cr_assert_eq(np_changes_schedule_start(&changes), 30); /* never behind where the run is */
    cr_assert(np_changes_text(&changes, 0, text, sizeof(text)));
    cr_assert_str_eq(text, "from step 10 on: train.epochs 6, was 4");
    np_node_free(list);
    np_changes_close(&changes);
}

Test(run_change, a_list_that_cannot_be_read_is_an_error)
{
    struct np_node *list = parsed("[{key: model, to: '1'}, {key: a.b.c, to: '1'}]");
    struct np_node *now = config("0.1", "{cosine: {final: 0}}", "4");
    struct np_changes changes = {0};
    struct np_err err = {0};

    np_changes_open(&changes, list);
    cr_assert_eq(np_changes_apply(&changes, now, &err), -EBADMSG);
    cr_assert_str_eq(err.text, "the checkpoint's change number 1, of 'model', cannot be read");
    np_node_free(list);
    np_node_free(now);
    np_changes_close(&changes);
}

/* --- the training set ------------------------------------------------------------------------- */

/* Two samples; the second has this name and size. */
static struct np_index *set_of(const char *name, uint32_t bytes)
{
    struct np_index *index = np_index_new(NULL);
    struct np_record one = {.bytes = 8, .inner_bytes = 8},
                     two = {.bytes = bytes, .inner_bytes = bytes};

    if (np_index_add_class(index, "ant", NULL, NULL) < 0 ||
        np_index_add(index, &one, "a", NULL, NULL) < 0 ||
        np_index_add(index, &two, name, NULL, NULL) < 0 || np_index_finish(index, NULL) < 0)
        abort();
    return index;
}

/* May a run with these facts resume with that set? If not, `why` is filled. */
static bool may(const char *facts, const char *name, uint32_t bytes, char why[256])
{
    static struct np_config config;
    struct np_run *run = np_alloc(sizeof(*run));
    struct np_node *node = parsed(facts);
    struct np_err err = {0};

    config.sets.data = &config.data;
    run->config = &config;
    run->options = &(const struct np_run_options){0};
    run->setup.sets.train = set_of(name, bytes);
    run->setup.sets.classes = parsed("[ant]");
    int code = np_run_check_data(run, "runs/x", node, &err);
    snprintf(why, 256, "%s", err.text);
    np_setup_fini(&run->setup);
    np_node_free(node);
    np_free(run);
    return code == 0;
}

/* The facts of a run on set_of("b", 8). */
static const char *facts_of(bool old)
{
    static char text[200];
    struct np_index *index = set_of("b", 8);

    snprintf(text, sizeof(text),
        "{train_images: 2, classes: [ant], train_sum: '%016llx'%s%016llx'}",
        (unsigned long long)np_index_sizes_sum(index, NULL),
        old ? ", other: '" : ", train_names: '",
        (unsigned long long)np_index_names_sum(index, NULL));
    np_index_free(index);
    return text;
}

Test(run_place, a_set_is_identified_by_names_and_labels_and_not_by_sizes)
{
    char why[256];

    cr_assert(may(facts_of(false), "b", 8, why), "%s", why);
    cr_assert(may(facts_of(false), "b", 9, why), "%s", why);
    cr_assert_not(may(facts_of(false), "c", 8, why));
    cr_assert_not_null(strstr(why, "runs/x: samples of data.train have other names or labels"));
}

Test(run_place, an_older_checkpoint_is_compared_by_labels_and_sizes)
{
    char why[256];

    cr_assert(may(facts_of(true), "c", 8, why), "%s", why);
    cr_assert_not(may(facts_of(true), "b", 9, why));
    cr_assert_not_null(strstr(why, "samples of data.train have other sizes or labels"));
}

Test(run_place, a_different_count_and_class_are_reported)
{
    char why[256];

    cr_assert_not(may("{train_images: 3}", "b", 8, why));
    cr_assert_not_null(strstr(
        why, "data.train has 2 samples and had 3 when the run began; restore the missing ones"));
    cr_assert_not(may("{train_images: 2, classes: [bee]}", "b", 8, why));
    cr_assert_not_null(strstr(why, "data.train has other classes"));
}

/* A new key of the loader must either be free, or be added here, because rows depend on it: else no run of an
 * older version could be resumed. */
Test(run_change, the_loaders_keys_are_free_unless_rows_depend_on_them)
{
    static const char *const rows[] = {"batch", "shuffle", "balance", "repeat", "channels",
        "pixels", "max_pixels", "augment", "grow", "normalize"};
    struct np_node *then = parsed("loader: {batch: 4}\n");

    for (const struct np_option *option = np_loader_option_table; option->key; option++) {
        bool depends = false;
        char text[96], why[256];
        struct np_node *now;

        for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
            depends |= strcmp(rows[i], option->key) == 0;
        if (strcmp(option->key, "batch") == 0)
            snprintf(text, sizeof(text), "loader: {batch: 5}\n");
        else
            snprintf(text, sizeof(text), "loader: {batch: 4, %s: 7}\n", option->key);
        now = parsed(text);
        cr_expect_eq(
            np_config_same(then, now, false, why, sizeof(why)), !depends, "%s", option->key);
        np_node_free(now);
    }
    np_node_free(then);
}

Test(run_change, a_run_from_before_a_layers_key_resumes_with_its_default)
{
    struct np_node *then = parsed("model: [{maxpool: {kernel: 2}}, {block: {use: a}}]\nblocks: {a: "
                                  "[avgpool: {kernel: 3}]}\n");
    struct np_node *now = np_node_new(NP_NODE_MAP, 0, 0), *blocks = np_node_new(NP_NODE_MAP, 0, 0);
    char why[256] = "";

    np_node_add(now, "model", np_graph_model_node(np_node_get(then, "model")));
    np_node_add(blocks, "a", np_graph_model_node(np_node_get(np_node_get(then, "blocks"), "a")));
    np_node_add(now, "blocks", blocks);
    cr_expect(np_config_same(then, now, false, why, sizeof(why)), "%s", why);
    np_node_free(then);
    then = parsed("model: [{maxpool: {kernel: 3}}, {block: {use: a}}]\nblocks: {a: [avgpool: "
                  "{kernel: 3}]}\n");
    cr_expect(!np_config_same(then, now, false, why, sizeof(why)));
    np_node_free(then);
    np_node_free(now);
}
