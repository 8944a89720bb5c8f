/* Option tables: every type's values, mistakes with their places and what was expected, the
 * nearest key, and the normal form that reads back the same. */
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/base/mem.h"
#include "loader/base/option.h"
#include "loader/base/rng.h"

#include "tests/test.h"

struct things {
    bool nesterov;
    int64_t threads, cap, sides[2];
    double momentum, share;
    char *path;
    int io;
    struct np_floats mean;
    const struct np_node *more;
};

#define AT(name) offsetof(struct things, name)

static const struct np_option table[] = {
    {"nesterov", NP_OPT_BOOL, AT(nesterov), "false", 0, 0, NULL, "b"},
    {"threads", NP_OPT_INT, AT(threads), "auto", 1, 64, "auto|all", "i"},
    {"cap", NP_OPT_BYTES, AT(cap), "1G", 0, 1e18, NULL, "y"},
    {"momentum", NP_OPT_FLOAT, AT(momentum), "0.9", -1, 1, NULL, "f"},
    {"share", NP_OPT_SHARE, AT(share), "10%", 0, 1, NULL, "s"},
    {"path", NP_OPT_STRING, AT(path), "data", 0, 0, NULL, "t"},
    {"io", NP_OPT_WORD, AT(io), "auto", 0, 0, "auto|uring|pread", "w"},
    {"mean", NP_OPT_FLOATS, AT(mean), "[0.5, 0.25]", 0, 1, NULL, "l"},
    {"sides", NP_OPT_PAIR, AT(sides), "kernel", 1, 9, "kernel", "p"},
    {"more", NP_OPT_NODE, AT(more), NULL, 0, 0, NULL, "n"},
    {NULL, 0, 0, NULL, 0, 0, NULL, NULL},
};

/* {key: text}, the key at 3:1 and the value at 3:9. */
static struct np_node *one(const char *key, const char *text)
{
    struct np_node *map = np_node_new(NP_NODE_MAP, 3, 1), *value = np_node_scalar(text, 3, 9);

    value->key_line = 3;
    value->key_column = 1;
    np_node_add(map, key, value);
    return map;
}

/* The mistakes in {key: text}; "" if there are none. things holds the parsed values. */
static const char *complaint(const char *key, const char *text, struct things *things)
{
    static char line[1024];
    struct np_node *map = one(key, text);
    struct np_report report;
    int status;

    np_report_init(&report, "x.yaml");
    status = np_options_parse(table, map, "optimizer", NULL, things, &report);
    line[0] = '\0';
    if (report.nr_errs)
        np_err_format(&report.errs[0], line, sizeof(line));
    if ((status != 0) != (report.nr_errs != 0) || report.nr_errs > 1)
        snprintf(line, sizeof(line), "status %d, %d mistakes", status, report.nr_errs);
    np_report_fini(&report);
    np_node_free(map);
    return line;
}

Test(option, defaults_fill_what_is_not_given)
{
    struct things things = {0};
    struct np_report report;

    np_report_init(&report, NULL);
    cr_assert_eq(np_options_parse(table, NULL, "x", NULL, &things, &report), 0);
    cr_assert_eq(report.nr_errs, 0);
    cr_assert_not(things.nesterov);
    cr_assert_eq(things.threads, -1);
    cr_assert_eq(things.cap, 1ll << 30);
    cr_assert_eq(things.momentum, 0.9);
    cr_assert_eq(things.share, 0.1);
    cr_assert_str_eq(things.path, "data");
    cr_assert_eq(things.io, 0);
    cr_assert_eq(things.mean.nr_values, 2);
    cr_assert_eq(things.mean.values[1], 0.25);
    cr_assert(things.sides[0] == -1 && things.sides[1] == -1);
    cr_assert_null(things.more);
    np_options_fini(table, &things);
    cr_assert(!things.path && !things.mean.values && !things.mean.nr_values);
    np_options_fini(table, &things);
}

struct value {
    const char *key, *text;
    double want;
};

static double got(const char *key, const struct things *things)
{
    return strcmp(key, "nesterov") == 0   ? things->nesterov
           : strcmp(key, "threads") == 0  ? (double)things->threads
           : strcmp(key, "cap") == 0      ? (double)things->cap
           : strcmp(key, "momentum") == 0 ? things->momentum
           : strcmp(key, "share") == 0    ? things->share
                                          : things->io;
}

Test(option, values_of_every_type)
{
    static const struct value values[] = {{"nesterov", "true", 1}, {"nesterov", "false", 0},
        {"threads", "1", 1}, {"threads", "64", 64}, {"threads", "auto", -1}, {"threads", "all", -2},
        {"cap", "0", 0}, {"cap", "123", 123}, {"cap", "64M", 64 << 20}, {"cap", "64m", 64 << 20},
        {"cap", "1GiB", 1 << 30}, {"cap", "1.5K", 1536}, {"cap", "2KB", 2048},
        {"cap", "1T", 1099511627776.}, {"momentum", "5e-4", 5e-4}, {"momentum", "-1", -1},
        {"momentum", ".5", 0.5}, {"share", "10%", 0.1}, {"share", "0.1", 0.1},
        {"share", "0.1%", 0.001}, {"share", "100%", 1}, {"share", "0", 0}, {"io", "pread", 2}};

    for (size_t i = 0; i < sizeof(values) / sizeof(*values); i++) {
        struct things things = {0};

        cr_assert_str_eq(complaint(values[i].key, values[i].text, &things), "", "%s: %s",
            values[i].key, values[i].text);
        cr_assert_eq(
            got(values[i].key, &things), values[i].want, "%s: %s", values[i].key, values[i].text);
        np_options_fini(table, &things);
    }
}

Test(option, mistakes_give_place_expected_and_actual_value)
{
    static const struct {
        const char *key, *text, *want;
    } cases[] = {
        {"nesterov", "yes", "3:9: nesterov: expected true or false, not 'yes'"},
        {"threads", "2.5", "3:9: threads: expected a whole number or auto or all, not '2.5'"},
        {"threads", "", "3:9: threads: expected a whole number or auto or all, not ''"},
        {"threads", " 2", "3:9: threads: expected a whole number or auto or all, not ' 2'"},
        {"threads", "99999999999999999999",
            "3:9: threads: expected a whole number or auto or all, not '99999999999999999999'"},
        {"threads", "65", "3:9: threads: 65 is out of range: 1 to 64"},
        {"threads", "-1", "3:9: threads: -1 is out of range: 1 to 64"},
        {"cap", "5X", "3:9: cap: expected a number of bytes (64M, 2G), not '5X'"},
        {"cap", "0x10", "3:9: cap: expected a number of bytes (64M, 2G), not '0x10'"},
        {"cap", "-5", "3:9: cap: expected a number of bytes (64M, 2G), not '-5'"},
        {"cap", "1e30", "3:9: cap: expected a number of bytes (64M, 2G), not '1e30'"},
        {"cap", "5MM", "3:9: cap: expected a number of bytes (64M, 2G), not '5MM'"},
        {"momentum", "nan", "3:9: momentum: expected a number, not 'nan'"},
        {"momentum", "inf", "3:9: momentum: expected a number, not 'inf'"},
        {"momentum", "0x1p3", "3:9: momentum: expected a number, not '0x1p3'"},
        {"momentum", "0.9 ", "3:9: momentum: expected a number, not '0.9 '"},
        {"momentum", "1.5", "3:9: momentum: 1.5 is out of range: -1 to 1"},
        {"share", "10 %", "3:9: share: expected a share (10% or 0.1), not '10 %'"},
        {"share", "%", "3:9: share: expected a share (10% or 0.1), not '%'"},
        {"share", "101%", "3:9: share: 101% is out of range: 0 to 1"},
        {"io", "pred",
            "3:9: io: expected one of auto, uring, pread, not 'pred'; did you mean 'pread'?"},
        {"io", "mmap", "3:9: io: expected one of auto, uring, pread, not 'mmap'"},
        {"mean", "0.5", "3:9: mean: expected a list of numbers, not '0.5'"},
        {"momentun", "1", "3:1: momentun: unknown key in optimizer; did you mean 'momentum'?"},
        {"weights", "1",
            "3:1: weights: unknown key in optimizer; it takes: nesterov, threads, cap, "
            "momentum, share, path, io, mean, sides, more"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct things things = {0};
        const char *line = complaint(cases[i].key, cases[i].text, &things);

        if (strncmp(line, "x.yaml:", 7) || strcmp(line + 7, cases[i].want))
            fprintf(stderr, "got  %s\nwant x.yaml:%s\n", line, cases[i].want);
        cr_assert(strncmp(line, "x.yaml:", 7) == 0 && strcmp(line + 7, cases[i].want) == 0);
        np_options_fini(table, &things);
    }
}

Test(option, all_mistakes_are_found_at_once)
{
    struct np_node *map = one("threads", "many"), *list = np_node_new(NP_NODE_LIST, 5, 7);
    struct things things = {0};
    struct np_report report;

    np_report_init(&report, "x.yaml");
    np_node_add(list, NULL, np_node_scalar("0.1", 5, 8));
    np_node_add(list, NULL, np_node_scalar("1.1", 5, 13));
    np_node_add(map, "mean", list);
    np_node_add(map, "sahre", np_node_scalar("1", 6, 1));
    np_node_add(map, "path", np_node_new(NP_NODE_MAP, 7, 9));
    np_node_add(map, "momentum", np_node_new(NP_NODE_LIST, 8, 9));
    cr_assert_eq(np_options_parse(table, map, "x", NULL, &things, &report), -EINVAL);
    np_report_sort(&report);
    cr_assert_eq(report.nr_errs, 5);
    cr_assert_not_null(strstr(report.errs[0].text, "sahre")); /* its key has no place here */
    cr_assert_not_null(strstr(report.errs[1].text, "threads"));
    cr_assert_str_eq(report.errs[2].text, "mean: 1.1 is out of range: 0 to 1");
    cr_assert_eq(report.errs[2].column, 13);
    cr_assert_str_eq(report.errs[3].text, "path: expected text, not a mapping");
    cr_assert_str_eq(report.errs[4].text, "momentum: expected a number, not a list");
    np_report_fini(&report);
    np_options_fini(table, &things);
    np_node_free(map);
}

Test(option, keys_of_other_tables_are_skipped_and_suggested)
{
    static const char *const others[] = {"policy", NULL};
    struct np_node *map = one("policy", "x");
    struct things things = {0};
    struct np_report report;

    np_report_init(&report, NULL);
    cr_assert_eq(np_options_parse(table, map, "x", others, &things, &report), 0);
    np_node_add(map, "polizy", np_node_scalar("x", 1, 1));
    cr_assert_eq(np_options_parse(table, map, "x", others, &things, &report), -EINVAL);
    cr_assert_str_eq(report.errs[0].text, "polizy: unknown key in x; did you mean 'policy'?");
    np_report_fini(&report);
    np_options_fini(table, &things);
    np_node_free(map);
}

Test(option, a_required_key_that_is_missing_is_named_with_its_mapping)
{
    static const struct np_option need[] = {
        {"out", NP_OPT_INT, 0, NULL, 1, 9, NULL, NULL}, {NULL, 0, 0, NULL, 0, 0, NULL, NULL}};
    struct np_node *map = np_node_new(NP_NODE_MAP, 4, 3), *list = np_node_new(NP_NODE_LIST, 5, 3);
    struct np_report report;
    int64_t out = 0;

    np_report_init(&report, NULL);
    cr_assert_eq(np_options_parse(need, map, "conv", NULL, &out, &report), -EINVAL);
    cr_assert_str_eq(report.errs[0].text, "conv: the key 'out' is missing");
    cr_assert_eq(report.errs[0].line, 4);
    cr_assert_eq(np_options_parse(need, list, "conv", NULL, &out, &report), -EINVAL);
    cr_assert_str_eq(report.errs[1].text, "conv: expected a mapping (key: value), not a list");
    np_report_fini(&report);
    np_node_free(map);
    np_node_free(list);
}

Test(option, a_key_without_a_value_is_an_empty_mapping)
{
    struct np_node *nothing = np_node_scalar("", 1, 1);
    struct things things = {0};
    struct np_report report;

    np_report_init(&report, NULL);
    cr_assert_eq(np_options_parse(table, nothing, "x", NULL, &things, &report), 0);
    np_options_fini(table, &things);
    np_node_free(nothing);
}

Test(option, the_normal_form_reads_back_the_same)
{
    struct np_draws draws;

    np_draws_init(&draws, 1, NP_STREAM_TEST, 0, 0, 0);
    for (int i = 0; i < 2000; i++) {
        struct things things = {.nesterov = i % 2,
            .threads = i % 3 == 0 ? -1 - i % 2 : 1 + i % 64,
            .cap = (int64_t)np_draw_u32(&draws) << i % 20,
            .momentum = np_draw_uniform(&draws) * pow(10, -(i % 30)),
            .share = np_draw_uniform(&draws),
            .path = np_strdup(i % 7 ? "a b" : ""),
            .io = i % 3,
            .sides = {1 + i % 9, 1 + i % 4}};
        struct things again = {0};
        struct np_report report;
        struct np_node *node;

        things.mean.values = np_alloc(2 * sizeof(double));
        things.mean.nr_values = 2;
        things.mean.values[0] = 0.1 + 0.2;
        things.mean.values[1] = np_draw_uniform(&draws) / 3;
        node = np_options_node(table, &things);
        np_report_init(&report, NULL);
        cr_assert_eq(np_options_parse(table, node, "x", NULL, &again, &report), 0);
        cr_assert(things.nesterov == again.nesterov && things.threads == again.threads &&
                  things.cap == again.cap && things.momentum == again.momentum &&
                  things.share == again.share && things.io == again.io &&
                  strcmp(things.path, again.path) == 0);
        cr_assert(things.sides[0] == again.sides[0] && things.sides[1] == again.sides[1]);
        cr_assert_eq(again.mean.nr_values, 2);
        cr_assert_arr_eq(things.mean.values, again.mean.values, 2 * sizeof(double));
        np_node_free(node);
        np_options_fini(table, &things);
        np_options_fini(table, &again);
    }
}

Test(option, the_normal_form_is_short_and_in_table_order)
{
    struct things things = {0};
    struct np_report report;
    struct np_node *node;
    static const char *const want[] = {"false", "auto", "1073741824", "0.9", "0.1", "data", "auto"};

    np_report_init(&report, NULL);
    cr_assert_eq(np_options_parse(table, NULL, "x", NULL, &things, &report), 0);
    node = np_options_node(table, &things);
    cr_assert_eq(node->nr_items, 9); /* `more` is absent */
    for (int i = 0; i < 7; i++) {
        cr_assert_str_eq(node->items[i]->key, table[i].key);
        cr_assert_str_eq(node->items[i]->text, want[i]);
    }
    cr_assert_str_eq(node->items[7]->items[0]->text, "0.5");
    cr_assert_str_eq(node->items[8]->text, "kernel");
    np_node_free(node);
    np_options_fini(table, &things);
}

Test(option, nearest_words_are_near)
{
    static const char *const words[] = {"momentum", "lr", "weight_decay", "nesterov", NULL};
    static const char *const none[] = {NULL};
    char endless[500];

    cr_assert_str_eq(np_nearest("momentun", words), "momentum");
    cr_assert_str_eq(np_nearest("mometnum", words), "momentum");
    cr_assert_str_eq(np_nearest("weightdecay", words), "weight_decay");
    cr_assert_str_eq(np_nearest("rl", (const char *const[]){"rx", "lr", NULL}), "rx");
    cr_assert_str_eq(np_nearest("rla", (const char *const[]){"xyz", "lra", NULL}), "lra");
    cr_assert_str_eq(np_nearest("l", words), "lr");
    cr_assert_null(np_nearest("dropout", words));
    cr_assert_null(np_nearest("frozen", (const char *const[]){"from", NULL}));
    cr_assert_null(np_nearest("epochs", (const char *const[]){"blocks", NULL}));
    cr_assert_null(np_nearest("", none));
    memset(endless, 'm', sizeof(endless));
    endless[sizeof(endless) - 1] = '\0';
    cr_assert_null(np_nearest(endless, words));
}

static const char *suggested(const char *word, const char *const *words)
{
    static char text[100];

    np_suggest(word, words, "it takes", text, sizeof(text));
    return text;
}

Test(option, words_of_other_trainers_are_understood)
{
    static const char *const loader[] = {"batch", "readers", NULL};
    static const char *const schedule[] = {"warmup", "warmup_from", NULL};
    static const char *const layers[] = {"relu", "batchnorm", "conv", NULL};

    cr_assert_str_eq(suggested("batch_size", loader), "; did you mean 'batch'?");
    cr_assert_str_eq(suggested("batch-size", layers), "; did you mean 'loader.batch'?");
    cr_assert_str_eq(suggested("warmup_epochs", schedule), "; did you mean 'warmup'?");
    cr_assert_str_eq(suggested("BatchNorm2d", layers), "; did you mean 'batchnorm'?");
    cr_assert_str_eq(suggested("pretrained", loader), "; did you mean '--weights'?");
    cr_assert_str_eq(suggested("covn", layers), "; did you mean 'conv'?");
    /* another thing, however near its name is */
    cr_assert_str_eq(suggested("gelu", layers), "; it takes: relu, batchnorm, conv");
    cr_assert_str_eq(suggested("layernorm", layers), "; it takes: relu, batchnorm, conv");
    /* of another place, where it has no whole path */
    cr_assert_str_eq(suggested("hflip", loader), "; it takes: batch, readers");
    cr_assert_str_eq(suggested("x", (const char *const[]){NULL}), "; it takes: nothing");
}

/* --- choices ------------------------------------------------------------------------------ */

static const struct np_choice choices[] = {
    {"sgd", table, "first"}, {"adamw", table, "second"}, {NULL, NULL, NULL}};

Test(choice, a_choice_is_a_name_or_a_name_with_options_or_absent)
{
    struct np_node *alone = np_node_scalar("adamw", 1, 1), *with = one("sgd", "x");
    const struct np_node *args = alone;
    struct np_report report;

    np_report_init(&report, NULL);
    cr_assert_eq(np_choice_find(choices, NULL, "optimizer", "adamw", &args, &report), 1);
    cr_assert_null(args);
    cr_assert_eq(np_choice_find(choices, alone, "optimizer", "sgd", &args, &report), 1);
    cr_assert_null(args);
    cr_assert_eq(np_choice_find(choices, with, "optimizer", "adamw", &args, &report), 0);
    cr_assert(np_node_is(args, "x"));
    cr_assert_eq(report.nr_errs, 0);
    np_node_free(alone);
    np_node_free(with);
}

Test(choice, a_wrong_name_gets_the_nearest_and_the_list)
{
    struct np_node *wrong = np_node_scalar("sdg", 2, 12), *list = np_node_new(NP_NODE_LIST, 3, 4);
    const struct np_node *args = NULL;
    struct np_report report;

    np_report_init(&report, NULL);
    cr_assert_eq(np_choice_find(choices, wrong, "optimizer", "sgd", &args, &report), -EINVAL);
    cr_assert_eq(np_choice_find(choices, list, "optimizer", "sgd", &args, &report), -EINVAL);
    cr_assert_eq(report.nr_errs, 2);
    cr_assert_eq(report.errs[0].column, 12);
    cr_assert_not_null(
        strstr(report.errs[0].text, "expected one of sgd, adamw, not 'sdg'; did you mean 'sgd'?"));
    cr_assert_not_null(strstr(report.errs[1].text, "sgd, adamw"));
    np_report_fini(&report);
    np_node_free(wrong);
    np_node_free(list);
}

Test(choice, the_normal_form_holds_every_option_and_reads_back)
{
    struct things things = {0}, again = {0};
    const struct np_node *args = NULL;
    struct np_report report;
    struct np_node *node;

    np_report_init(&report, NULL);
    cr_assert_eq(np_options_parse(table, NULL, "x", NULL, &things, &report), 0);
    node = np_choice_node(&choices[1], &things);
    cr_assert_eq(np_choice_find(choices, node, "optimizer", "sgd", &args, &report), 1);
    cr_assert_eq(args->nr_items, 9);
    cr_assert_eq(np_options_parse(table, args, "adamw", NULL, &again, &report), 0);
    cr_assert_eq(things.cap, again.cap);
    np_node_free(node);
    np_options_fini(table, &things);
    np_options_fini(table, &again);
}
