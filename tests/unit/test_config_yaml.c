/* YAML as the config reads it: refused texts with their messages; printing and reading back. */
#include <stdlib.h>
#include <string.h>

#include "daemon/config/config.h"
#include "daemon/config/config_override.h"
#include "daemon/run/run_change.h"
#include "loader/base/yaml.h"
#include "tests/test.h"

/* The mistakes of a text, one a line: "line:column: text". */
static char *mistakes(const char *text)
{
    struct np_report report;
    struct np_node *node = NULL;
    char *out = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&out, &bytes);

    np_report_init(&report, "c.yaml");
    int code = np_yaml_parse(text, strlen(text), &node, &report);
    for (int i = 0; i < report.nr_errs; i++)
        fprintf(file, "%s%d:%d: %s", i ? "\n" : "", report.errs[i].line, report.errs[i].column,
            report.errs[i].text);
    if ((code == 0) != (report.nr_errs == 0))
        fprintf(file, " (code %d)", code);
    fclose(file);
    np_node_free(node);
    np_report_fini(&report);
    return out;
}

static struct np_node *parsed(const char *text)
{
    struct np_report report;
    struct np_node *node = NULL;

    np_report_init(&report, NULL);
    if (np_yaml_parse(text, strlen(text), &node, &report) < 0) {
        np_node_free(node);
        node = NULL;
    }
    np_report_fini(&report);
    return node;
}

static char *printed(const struct np_node *node)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);

    np_node_print(file, node);
    fclose(file);
    return text;
}

static bool says(const char *text, const char *want)
{
    char *got = mistakes(text);
    bool same = strcmp(got, want) == 0;

    if (!same)
        fprintf(stderr, "for:  %s\ngot:  %s\nwant: %s\n", text, got, want);
    free(got);
    return same;
}

Test(config_yaml, reads_places_of_keys_and_values)
{
    struct np_node *node = parsed("a: 1\nb:\n  - x\n  - {y: 'z'}\n");
    cr_assert(node && node->nr_items == 2);
    const struct np_node *b = np_node_get(node, "b");
    cr_assert(b->kind == NP_NODE_LIST && b->key_line == 2 && b->key_column == 1);
    cr_assert(b->items[0]->line == 3 && b->items[0]->column == 5 && !b->items[0]->quoted);
    const struct np_node *y = np_node_get(b->items[1], "y");
    cr_assert(y->line == 4 && y->column == 9 && y->quoted && strcmp(y->text, "z") == 0);
    np_node_free(node);
}

Test(config_yaml, refuses_anchors_aliases_tags_and_second_documents)
{
    cr_assert(says("a: &x 1\n", "1:4: &x: anchors are not used here; if it is text, quote it"));
    cr_assert(
        says("a: *x\n", "1:4: a word that begins with * is an alias in YAML; quote it: \"*...\""));
    cr_assert(
        says("*x : 1\n", "1:1: a word that begins with * is an alias in YAML; quote it: \"*...\""));
    cr_assert(says("a: !!int 1\n",
        "1:4: tag:yaml.org,2002:int: tags are not used here; if it is text, quote it"));
    cr_assert(says("a: 1\n---\nb: 2\n", "2:1: a second document; one file is one config"));
    cr_assert(says("? [a]\n: 1\n", "1:3: a key must be a word"));
}

Test(config_yaml, advises_quotes_for_ambiguous_words)
{
    cr_assert(says(
        "a: {path: ${X}/y}\n", "1:11: ${ inside braces or brackets must be quoted: \"${...}\""));
    cr_assert(
        says("a: [${X:-b}]\n", "1:5: ${ inside braces or brackets must be quoted: \"${...}\""));
    cr_assert(says(
        "match: */x\n", "1:8: a word that begins with * is an alias in YAML; quote it: \"*...\""));
    cr_assert(says("split: %10\n", "1:8: a word cannot begin with % in YAML; quote it: \"%...\""));
    cr_assert(says("a: @b\n", "1:4: a word cannot begin with @ in YAML; quote it: \"@...\""));
    cr_assert(says("a:\n\tb: 1\n", "2:1: a tab; YAML is indented with spaces"));
}

Test(config_yaml, takes_dollars_where_yaml_does)
{
    cr_assert(says("a: ${X:-b}/c\nb: {c: \"${X}\", d: $out}\n", ""));
}

Test(config_yaml, names_a_key_given_twice_and_continues)
{
    cr_assert(
        says("a: 1\nb: 2\na: 3\nb: 4\n", "3:1: a: this key stands here twice, first in line 1\n"
                                         "4:1: b: this key stands here twice, first in line 2"));
}

Test(config_yaml, caps_depth_size_and_keys)
{
    char *deep = calloc(1, 400), *big = malloc((1 << 20) + 2), *wide = malloc(1 << 17);
    memset(deep, '[', 64);
    strcat(deep, "x");
    memset(deep + 65, ']', 64);
    cr_assert(says(deep, "1:65: nested deeper than 64 levels"));
    memset(deep, '[', 63);
    deep[63] = 'x';
    memset(deep + 64, ']', 63);
    deep[127] = '\0';
    cr_assert(says(deep, ""));
    memset(big, 'a', (1 << 20) + 1);
    big[(1 << 20) + 1] = '\0';
    cr_assert(says(big, "0:0: 1048577 bytes; a config has at most 1 MiB"));
    size_t used = 0;
    for (int i = 0; i < 5000; i++)
        used += (size_t)sprintf(wide + used, "k%d: 1\n", i);
    cr_assert(says(wide, "4097:1: more than 4096 keys in one mapping"));
    free(deep);
    free(big);
    free(wide);
}

Test(config_yaml, deep_nesting_of_any_kind_ends_quickly, .timeout = 120)
{
    char *text = malloc(1 << 20);
    for (int i = 0; i < (1 << 20) - 1; i++)
        text[i] = "[{"[i & 1];
    text[(1 << 20) - 1] = '\0';
    char *got = mistakes(text);
    cr_assert(strlen(got) > 0);
    free(got);
    memset(text, '-', (1 << 20) - 1);
    for (int i = 1; i < (1 << 20) - 1; i += 2)
        text[i] = ' ';
    got = mistakes(text);
    cr_assert(strlen(got) > 0);
    free(got);
    free(text);
}

Test(config_yaml, refuses_bytes_that_are_not_text)
{
    cr_assert(says("a: b\nc: \xff\n", "2:4: not text: byte 0xff; a config is UTF-8 text"));
    cr_assert(says("a: \"x\\0y\"\n", "1:4: a NUL byte inside text"));
    cr_assert(says("", "1:1: it is empty"));
    cr_assert(says("# only a comment\n", "1:1: it is empty"));
}

Test(config_yaml, prints_what_parses_back)
{
    static const char *const texts[] = {
        "a: 1\n",
        "a: [1, 2, {b: c}]\n",
        "model: [relu, {conv: {out: 3, kernel: [1, 3]}}, {a: 1, b: 2}, [x, [y, z]]]\n",
        "e: \"\"\nf: \"a: b\"\ng: \"# x\"\nh: \"-\"\ni: \"*/x\"\nj: \"x\\ny\\t\\\"\\\\\"\n",
        "k: {}\nl: []\nm: \"true\"\nn: ' lead'\no: \"trail \"\np: 'a  b'\nq: 10%\nr: -1e-3\n",
        "s: \"${A:-b}\"\nt: $out*4\nu: \"---\"\nv: \"...\"\nw: 1 epoch\nx: a - b\n",
        "[a, b]\n",
        "word\n",
    };
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
        char why[256] = "";
        struct np_node *first = parsed(texts[i]);
        cr_assert_not_null(first);
        char *text = printed(first);
        struct np_node *second = parsed(text);
        if (!second || !np_config_same(first, second, false, why, sizeof(why))) {
            fprintf(stderr, "%s became\n%s%s\n", texts[i], text, why);
            cr_assert(0);
        }
        free(text);
        np_node_free(first);
        np_node_free(second);
    }
}

/* --- -o -------------------------------------------------------------------------------------- */

/* The tree after an override, or the mistake. */
static char *overridden(const char *text, const char *override)
{
    struct np_report report;
    struct np_node *node = parsed(text);
    char *out;

    np_report_init(&report, "c.yaml");
    if (np_config_override(node, override, 2, &report) < 0) {
        char place[64];
        const char *const overrides[] = {"", "", override};
        np_config_place(&report.errs[0], overrides, 3, place, sizeof(place));
        if (asprintf(&out, "%s: %s", place, report.errs[0].text) < 0)
            out = NULL;
    } else {
        out = printed(node);
    }
    np_node_free(node);
    np_report_fini(&report);
    return out;
}

static bool becomes(const char *text, const char *override, const char *want)
{
    char *got = overridden(text, override);
    bool same = strcmp(got, want) == 0;

    if (!same)
        fprintf(stderr, "-o %s\ngot:  %s\nwant: %s\n", override, got, want);
    free(got);
    return same;
}

Test(config_override, sets_replaces_and_makes_keys)
{
    cr_assert(becomes("a: {b: 1}\n", "a.b=2", "a: {b: 2}\n"));
    cr_assert(becomes("a: {b: 1}\n", "a.c={d: [1, 2]}", "a:\n  b: 1\n  c: {d: [1, 2]}\n"));
    cr_assert(becomes("a: 1\n", "b.c.d=x", "a: 1\nb: {c: {d: x}}\n"));
    cr_assert(becomes("a: 1\n", "a=", "a: \"\"\n"));
}

Test(config_override, finds_items_of_lists_by_number)
{
    cr_assert(becomes(
        "m: [{conv: {out: 1}}, relu]\n", "m.0.conv.out=16", "m:\n  - conv: {out: 16}\n  - relu\n"));
    cr_assert(becomes("m: [a, relu]\n", "m.1=flip", "m: [a, flip]\n"));
    cr_assert(becomes(
        "m: [a, b]\n", "m.2=c", "-o m.2: '2' is not an item of this list; it has items 0 to 1"));
    cr_assert(becomes(
        "m: [a, b]\n", "m.x=c", "-o m.x: 'x' is not an item of this list; it has items 0 to 1"));
}

Test(config_override, expands_a_word_that_stands_for_a_mapping)
{
    cr_assert(becomes("loss: cross_entropy\n", "loss.cross_entropy.label_smoothing=0.1",
        "loss: {cross_entropy: {label_smoothing: 0.1}}\n"));
    cr_assert(becomes("loss: hinge\n", "loss.cross_entropy.x=1",
        "-o loss.cross_entropy.x: there is no 'cross_entropy' in 'hinge'"));
}

Test(config_override, names_its_mistakes)
{
    cr_assert(becomes("a: 1\n", "a", "-o a: expected KEY=VALUE"));
    cr_assert(becomes("a: 1\n", "=1", "-o : expected KEY=VALUE"));
    cr_assert(becomes("a: {b: 1}\n", "a..b=1", "-o a..b: an empty key"));
    cr_assert(becomes("a: 1\n", "a=*/x",
        "-o a: a word that begins with * is an alias in YAML; quote it: \"*...\""));
    cr_assert(becomes(
        "a: 1\n", "a={b: ${X}}", "-o a: ${ inside braces or brackets must be quoted: \"${...}\""));
}

/* --- the same weights? ----------------------------------------------------------------------- */

static bool same(const char *then, const char *now, bool extends, const char *want)
{
    struct np_node *a = parsed(then), *b = parsed(now);
    char why[512] = "same";
    bool equal = np_config_same(a, b, extends, why, sizeof(why));
    bool good = equal ? want == NULL : want && strcmp(why, want) == 0;

    if (!good)
        fprintf(stderr, "%s -> %s: %s\n", then, now, why);
    np_node_free(a);
    np_node_free(b);
    return good;
}

Test(run_same, ignores_keys_that_change_no_weight)
{
    cr_assert(same("loader: {batch: 8, readers: 1, io: uring}\ntrain: {threads: 1}\nruns: a\n",
        "loader: {batch: 8, readers: 4, io: pread}\ntrain: {threads: 2}\nruns: b\n", false, NULL));
    cr_assert(same("data: {train: {path: a, cache_dir: x}, test: {path: b}}\n",
        "data: {train: {path: a, cache_dir: y}}\n", false, NULL));
    cr_assert(same("data: {train: {source: idx, path: a, labels: x}}\n",
        "data: {train: {source: idx, path: b, labels: y}}\n", false, NULL));
}

Test(run_same, names_the_key_that_differs)
{
    cr_assert(same(
        "loader: {batch: 8}\n", "loader: {batch: 16}\n", false, "loader.batch was 8 and is 16"));
    cr_assert(same("model: [{conv: {out: 1}}]\n", "model: [{conv: {out: 2}}]\n", false,
        "model.0.conv.out was 1 and is 2"));
    cr_assert(
        same("model: [a, b]\n", "model: [a]\n", false, "model was a list of 2 and is a list of 1"));
    cr_assert(same("seed: 1\n", "{seed: 1, new: 2}\n", false, "new was absent and is 2"));
    cr_assert(
        same("data: {split: 0.1}\n", "data: {}\n", false, "data.split was 0.1 and is absent"));
}

Test(run_same, allows_a_longer_run_if_the_schedule_extends)
{
    cr_assert(same("train: {epochs: 2}\n", "train: {epochs: 3}\n", true, NULL));
    cr_assert(same("train: {epochs: 2}\n", "train: {epochs: 2}\n", false, NULL));
    cr_assert(same("train: {epochs: 2}\n", "train: {epochs: 3}\n", false,
        "train.epochs was 2 and is 3: this schedule depends on the length of the run"));
    cr_assert(same("train: {epochs: 3}\n", "train: {epochs: 2}\n", true,
        "train.epochs was 3 and is 2: a run can be made longer, not shorter"));
    cr_assert(same("train: {ema: {decay: 0.9, rise: 3}, epochs: 2}\n",
        "train: {ema: {decay: 0.9, rise: 3}, epochs: 3}\n", true,
        "train.epochs was 2 and is 3: train.ema.rise depends on the length of the run"));
}
