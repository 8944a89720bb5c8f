/* `base:`: merged and replaced keys, the file that a path starts at, the file that a mistake is in. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/config/config.h"
#include "loader/base/config_file.h"
#include "loader/base/mem.h"
#include "loader/base/yaml.h"
#include "tests/test.h"
#include "tests/unit/made_memory.h"
#include "tests/unit/made_sets.h"

static char *folder;

static void make(void)
{
    folder = make_set();
    cr_assert_eq(chdir(folder), 0);
}

static void clear(void)
{
    cr_assert_eq(chdir("/"), 0);
    remove_set(folder);
}

static void put(const char *name, const char *text)
{
    put_file(folder, name, text, strlen(text));
}

/* The file's tree as text, or its mistakes, "file:line:column: text" a line. free() it. */
static char *read_as_text(const char *path)
{
    struct np_config_file file;
    struct np_report report;
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);

    np_report_init(&report, path);
    int code = np_config_file_read(path, &file, &report);
    np_report_sort(&report);
    for (int i = 0; i < report.nr_errs; i++)
        fprintf(out, "%s:%d:%d: %s\n", report.errs[i].file, report.errs[i].line,
            report.errs[i].column, report.errs[i].text);
    if (report.nr_errs == 0)
        np_node_print(out, file.root);
    cr_expect((code < 0) == (report.nr_errs > 0));
    np_config_file_fini(&file);
    np_report_fini(&report);
    fclose(out);
    return text;
}

static void expect_text(const char *path, const char *want)
{
    char *got = read_as_text(path);

    cr_assert_str_eq(got, want);
    free(got);
}

static void expect_merged(const char *base, const char *own, const char *want)
{
    char text[4096];

    put("base.yaml", base);
    snprintf(text, sizeof(text), "base: base.yaml\n%s", own);
    put("own.yaml", text);
    expect_text("own.yaml", want);
}

Test(config_file, mappings_merge_and_the_nearer_file_wins, .init = make, .fini = clear)
{
    expect_merged(
        "seed: 1\nloader: {batch: 10, depth: 2, bad_samples: {policy: fail, budget: 1%}}\n",
        "seed: 2\nname: x\nloader: {batch: 20, bad_samples: {budget: 2%}}\n",
        "seed: 2\nloader: {batch: 20, depth: 2, bad_samples: {policy: fail, budget: 2%}}\nname: "
        "x\n");
    expect_merged("loader: {batch: 10}\nrun: x\n", "loader:\nrun: {y: 1}\n",
        "loader: {batch: 10}\nrun: {y: 1}\n");
    expect_merged("model: [{block: {use: a}}]\nblocks: {a: [{block: {use: b}}], b: [relu]}\n",
        "model: [{block: {use: b}}]\nblocks: {c: [relu]}\n",
        "model:\n  - block: {use: b}\nblocks: {b: [relu], c: [relu]}\n");
    expect_merged("model: [{block: {use: a}}]\nblocks: {a: [{block: {use: b}}], b: [relu]}\n",
        "model: [relu]\n", "model: [relu]\n");
    expect_merged("blocks: {a: [relu], b: [flatten]}\n", "blocks: {b: [batchnorm, relu]}\n",
        "blocks: {a: [relu], b: [batchnorm, relu]}\n");
}

Test(config_file, lists_and_choices_are_replaced_whole, .init = make, .fini = clear)
{
    static const char *const cases[][3] = {
        {"model: [relu, flatten]\n", "model: [relu]\n", "model: [relu]\n"},
        {"optimizer: {sgd: {lr: 1, momentum: 0.9}}\n", "optimizer: {sgd: {lr: 2}}\n",
            "optimizer: {sgd: {lr: 2}}\n"},
        {"optimizer: {sgd: {lr: 1}}\n", "optimizer: adamw\n", "optimizer: adamw\n"},
        {"schedule: {cosine: {warmup: 1}}\n", "schedule: {one_cycle: {}}\n",
            "schedule: {one_cycle: {}}\n"},
        {"loss: {cross_entropy: {label_smoothing: 0.1}}\n", "loss: {cross_entropy: {}}\n",
            "loss: {cross_entropy: {}}\n"},
        {"device: {sim: {step_ms: 1, h2d_gbps: 2}}\n", "device: {sim: {step_ms: 3}}\n",
            "device: {sim: {step_ms: 3}}\n"},
        {"loader: {shuffle: {window: 3}, depth: 1}\n", "loader: {shuffle: {window: 4}}\n",
            "loader: {shuffle: {window: 4}, depth: 1}\n"},
        {"loader: {cache: {encoded: 1G}}\n", "loader: {cache: {decoded: 2G}}\n",
            "loader: {cache: {decoded: 2G}}\n"},
        {"loader: {augment: [flip]}\n", "loader: {augment: []}\n", "loader: {augment: []}\n"},
        {"data: {train: {source: synth, samples: 9, size: 8}}\n",
            "data: {train: {source: synth, samples: 5}}\n",
            "data: {train: {source: synth, samples: 5, size: 8}}\n"},
        {"data: {train: {source: synth, samples: 9}}\n", "data: {train: {source: tar, path: /x}}\n",
            "data: {train: {source: tar, path: /x}}\n"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        expect_merged(cases[i][0], cases[i][1], cases[i][2]);
}

Test(config_file, of_keys_that_exclude_each_other_the_nearer_stays, .init = make, .fini = clear)
{
    expect_merged("train: {epochs: 3, threads: 1}\n", "train: {steps: 5}\n",
        "train: {threads: 1, steps: 5}\n");
    expect_merged("train: {steps: 3}\n", "train: {epochs: 5}\n", "train: {epochs: 5}\n");
    expect_merged("train: {steps: 3}\n", "train: {epochs: 0}\n", "train: {steps: 3, epochs: 0}\n");
    expect_merged(
        "data: {split: 0.1}\n", "data: {val: {source: synth}}\n", "data: {val: {source: synth}}\n");
    expect_merged("data: {val: {source: synth}}\n", "data: {split: 0.1}\n", "data: {split: 0.1}\n");
}

Test(
    config_file, a_base_may_have_a_base_and_paths_belong_to_their_file, .init = make, .fini = clear)
{
    char want[4096], real[1024];

    cr_assert_not_null(realpath(".", real));
    put("a/ground.yaml",
        "seed: 1\ndata: {train: {source: tar, path: x.tar, labels: /l}, classes: names}\n");
    put("middle.yaml", "base: a/ground.yaml\nseed: 2\ndata: {test: {source: tar, path: y.tar}}\n");
    put("b/own.yaml", "base: ../middle.yaml\ndata: {val: {source: tar, path: z.tar}}\n");
    snprintf(want, sizeof(want),
        "seed: 2\ndata:\n  train: {source: tar, path: \"%s/a/x.tar\", labels: \"/l\"}\n"
        "  classes: \"%s/a/names\"\n  test: {source: tar, path: \"%s/y.tar\"}\n"
        "  val: {source: tar, path: z.tar}\n",
        real, real, real);
    expect_text("b/own.yaml", want);
    setenv("NP_TEST_PLACE", "a", 1);
    put("own.yaml", "base: ${NP_TEST_PLACE}/ground.yaml\nseed: 3\ndata: {classes: x}\n");
    char *got = read_as_text("own.yaml");
    cr_assert(strstr(got, "seed: 3\n") && strstr(got, "classes: x}\n"), "%s", got);
    free(got);
}

Test(config_file, what_leads_nowhere_is_refused_at_its_place, .init = make, .fini = clear)
{
    char text[64];

    put("own.yaml", "seed: 1\nbase: none.yaml\n");
    expect_text("own.yaml", "own.yaml:2:7: base: none.yaml: No such file or directory\n");
    put("own.yaml", "base: [a]\n");
    expect_text(
        "own.yaml", "own.yaml:1:7: base: expected the name of a config that this one builds on\n");
    put("own.yaml", "base: ${NP_TEST_NONE}.yaml\n");
    char *got = read_as_text("own.yaml");
    cr_assert(
        strstr(got, "own.yaml:1:7: base: ") && strstr(got, "NP_TEST_NONE is not set"), "%s", got);
    free(got);
    put("own.yaml", "base: own.yaml\n");
    expect_text("own.yaml", "own.yaml:1:7: base: own.yaml: it builds on this file itself\n");
    put("own.yaml", "base: a/two.yaml\n");
    put("a/two.yaml", "seed: 1\nbase: ../own.yaml\n");
    expect_text("own.yaml", "a/two.yaml:2:7: base: ../own.yaml: it builds on this file itself\n");
    put("own.yaml", "base: a/two.yaml\n");
    put("a/two.yaml", "[1, 2]\n");
    expect_text("own.yaml", "a/two.yaml:1:1: expected a mapping, as every config is\n");
    put("a/two.yaml", "seed: 1\nseed: 2\n");
    expect_text("own.yaml", "a/two.yaml:2:1: seed: this key stands here twice, first in line 1\n");
    for (int i = 0; i <= NP_MAX_BASES; i++) {
        char name[32];

        snprintf(name, sizeof(name), "%d.yaml", i);
        snprintf(text, sizeof(text), "base: %d.yaml\n", i + 1);
        put(name, text);
    }
    put("17.yaml", "seed: 1\n");
    expect_text("1.yaml", "seed: 1\n");
    expect_text(
        "0.yaml", "16.yaml:1:7: base: 17.yaml: more than 16 files, each built on the next\n");
}

/* Mistakes in the merged config: from the file itself, from its base and from -o. */
Test(config_file, a_mistake_names_the_file_that_it_is_in, .init = make, .fini = clear)
{
    static const char *const overrides[] = {"train.threads=x"};
    struct np_config *config = NULL;
    struct np_report report;

    put("a/base.yaml", "data: {train: {source: synth}}\nloader: {batch: x, depth: y}\n"
                       "model: [relu, rlu]\n");
    put("own.yaml", "base: a/base.yaml\nseed: z\nloader: {depth: 2, io: no}\n");
    np_report_init(&report, "own.yaml");
    cr_assert_eq(np_config_load("own.yaml", overrides, 1, &config, &report), -EINVAL);
    cr_assert_eq(report.nr_errs, 5);
    static const struct {
        const char *file;
        int line, column;
    } want[] = {{"own.yaml", -1, 1}, {"own.yaml", 2, 7}, {"own.yaml", 3, 24},
        {"a/base.yaml", 2, 17}, {"a/base.yaml", 3, 15}};
    for (int i = 0; i < 5; i++) {
        cr_expect_str_eq(report.errs[i].file, want[i].file);
        cr_expect(report.errs[i].line == want[i].line && report.errs[i].column == want[i].column,
            "%d: %d:%d: %s", i, report.errs[i].line, report.errs[i].column, report.errs[i].text);
    }
    np_report_fini(&report);
}

Test(config_file, overrides_come_last_and_a_text_has_no_base, .init = make, .fini = clear)
{
    static const char *const overrides[] = {"loader.batch=7"};
    static const char alone[] = "base: base.yaml\n";
    struct np_config *config = NULL;
    struct np_report report;

    put("base.yaml", "data: {train: {source: synth}}\nloader: {batch: 5, depth: 3}\n"
                     "model: [global_avgpool, flatten, {linear: {out: classes}}]\n");
    put("own.yaml", "base: base.yaml\nloader: {batch: 6}\n");
    np_report_init(&report, "own.yaml");
    cr_assert_eq(np_config_load("own.yaml", overrides, 1, &config, &report), 0);
    cr_assert(config->loader.batch == 7 && config->loader.depth == 3);
    cr_assert_str_eq(config->name, "own");
    np_config_free(config);
    cr_assert_eq(
        np_config_load_text(alone, strlen(alone), "own.yaml", NULL, 0, &config, &report), -EINVAL);
    cr_assert(report.errs[0].line == 1 && strstr(report.errs[0].text, "base: only a config file"));
    np_report_fini(&report);
}

Test(config_file, a_place_in_the_printed_tree_is_found_in_the_files, .init = make, .fini = clear)
{
    struct np_config_file file;
    struct np_report report;
    char *text = NULL, place[256];
    size_t bytes = 0;

    put("a/base.yaml", "# first\n\ndata: {train: {source: synth, samples: 3}}\nseed: 1\n");
    put("own.yaml", "\n\nbase: a/base.yaml\nname: x\n");
    np_report_init(&report, "own.yaml");
    cr_assert_eq(np_config_file_read("own.yaml", &file, &report), 0);
    FILE *out = open_memstream(&text, &bytes);
    np_node_print(out, file.root);
    fclose(out);
    cr_assert_str_eq(text, "data: {train: {source: synth, samples: 3}}\nseed: 1\nname: x\n");
    cr_assert(np_config_file_place(&file, "own.yaml", text, 1, 8, place, sizeof(place)));
    cr_assert_str_eq(place, "a/base.yaml:3:8");
    cr_assert(np_config_file_place(&file, "own.yaml", text, 3, 1, place, sizeof(place)));
    cr_assert_str_eq(place, "own.yaml:4:1");
    cr_assert(!np_config_file_place(&file, "own.yaml", text, 9, 1, place, sizeof(place)));
    cr_assert(!np_config_file_place(&file, "own.yaml", text, 0, 0, place, sizeof(place)));
    free(text);
    np_config_file_fini(&file);
    np_report_fini(&report);
}

Test(config_file, where_memory_runs_out_it_says_so, .init = make, .fini = clear)
{
    int nr_failed = 0;

    put("a/base.yaml", "data: {train: {source: tar, path: x.tar}, classes: y}\nseed: 1\n");
    put("own.yaml", "base: a/base.yaml\nname: x\n");
    for (int n = 1;; n++) {
        struct np_config_file file;
        struct np_report report;

        np_report_init(&report, "own.yaml");
        made_memory_fail(n);
        int code = np_config_file_read("own.yaml", &file, &report);
        const bool failed = made_memory_failed();
        made_memory_fail(0);
        if (failed) {
            nr_failed++;
            cr_expect(code < 0 && report.nr_errs > 0, "call %d", n);
        } else {
            cr_expect(code == 0 && report.nr_errs == 0);
        }
        np_config_file_fini(&file);
        np_report_fini(&report);
        if (!failed)
            break;
    }
    cr_assert(nr_failed > 10);
}
