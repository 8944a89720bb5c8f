/* Settings written into a config: every shipped one, and layouts that are hard to edit. What must hold is
 * always the same: the text read back is the old one with the settings, and nothing else was touched. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/config/config.h"
#include "daemon/profile/apply.h"
#include "tests/test.h"

/* What comes of it; "!..." where it is refused. free(). */
static char *applied(const char *text, const char *const *settings, int nr)
{
    char *result = NULL;
    size_t bytes = 0;
    struct np_err err = {0};

    if (np_apply_text(text, strlen(text), settings, nr, &result, &bytes, &err) < 0) {
        result = malloc(sizeof(err.text) + 1);
        snprintf(result, sizeof(err.text) + 1, "!%s", err.text);
    }
    return result;
}

static bool becomes(const char *text, const char *setting, const char *wanted)
{
    char *got = applied(text, &setting, 1);
    const bool same = strcmp(got, wanted) == 0;

    if (!same)
        fprintf(stderr, "%s into:\n%s\ngives:\n%s\nnot:\n%s\n", setting, text, got, wanted);
    free(got);
    return same;
}

static bool is_refused(const char *text, const char *setting, const char *why)
{
    char *got = applied(text, &setting, 1);
    const bool refused = got[0] == '!' && strstr(got, why);

    if (!refused)
        fprintf(stderr, "%s into:\n%s\ngives:\n%s\n", setting, text, got);
    free(got);
    return refused;
}

/* --- values in place -------------------------------------------------------------------------- */

Test(apply, a_value_changes_and_its_comment_stays)
{
    cr_assert(becomes("loader:\n  batch: 64   # as before\n  depth: 2\n", "loader.batch=128",
        "loader:\n  batch: 128   # as before\n  depth: 2\n"));
    cr_assert(becomes("loader: {batch: 64, depth: 2} # both\n", "loader.depth=16",
        "loader: {batch: 64, depth: 16} # both\n"));
    cr_assert(becomes(
        "loader:\n  io: \"pre#ad\"\t# tab\n", "loader.io=uring", "loader:\n  io: uring\t# tab\n"));
    cr_assert(becomes(
        "loader: {io: 'it''s', depth: 1}\n", "loader.io=uring", "loader: {io: uring, depth: 1}\n"));
}

Test(apply, a_value_that_is_there_already_leaves_every_byte)
{
    cr_assert(becomes(
        "loader: {batch:   64 , depth: 2}", "loader.batch=64", "loader: {batch:   64 , depth: 2}"));
}

Test(apply, a_mapping_as_value_gives_way_whole)
{
    cr_assert(becomes("loader:\n  cache: {encoded: 2G} # half\n  depth: 2\n", "loader.cache=none",
        "loader:\n  cache: none # half\n  depth: 2\n"));
    cr_assert(becomes("loader:\n  cache:   # half\n    encoded: 2G\n  depth: 2\n",
        "loader.cache=none", "loader:\n  cache: none   # half\n  depth: 2\n"));
    cr_assert(becomes("loader:\r\n  cache:\r\n    encoded: 2G\r\n", "loader.cache=none",
        "loader:\r\n  cache: none\r\n"));
    cr_assert(becomes("loader: {cache: {encoded:\n  2G}, depth: 2}\n", "loader.cache={decoded: 1G}",
        "loader: {cache: {decoded: 1G}, depth: 2}\n"));
    cr_assert(becomes("\"loader\":\n  'cache':\n    encoded: 1G", "loader.cache=none",
        "\"loader\":\n  'cache': none"));
}

Test(apply, an_empty_value_gets_one)
{
    cr_assert(becomes("loader:\n  depth:   # how many\n  batch: 2\n", "loader.depth=4",
        "loader:\n  depth: 4   # how many\n  batch: 2\n"));
    cr_assert(becomes(
        "loader: {depth: , batch: 2}\n", "loader.depth=4", "loader: {depth: 4, batch: 2}\n"));
    cr_assert(becomes("name: a\nloader:", "loader.depth=4", "name: a\nloader: {depth: 4}"));
    cr_assert(becomes("loader:\nname: a\n", "loader.depth=4", "loader: {depth: 4}\nname: a\n"));
}

/* --- keys that are missing -------------------------------------------------------------------- */

Test(apply, a_missing_key_goes_behind_the_last_one)
{
    cr_assert(
        becomes("loader:\n    batch: 64 # one\n\n# of the model\nmodel: [relu]\n", "loader.depth=4",
            "loader:\n    batch: 64 # one\n    depth: 4\n\n# of the model\nmodel: [relu]\n"));
    cr_assert(
        becomes("loader: {batch: 64}\n", "loader.depth=4", "loader: {batch: 64, depth: 4}\n"));
    cr_assert(becomes("loader: {}\n", "loader.depth=4", "loader: {depth: 4}\n"));
    cr_assert(
        becomes("loader:\n  batch: 64", "loader.depth=4", "loader:\n  batch: 64\n  depth: 4"));
    cr_assert(becomes("loader:\n  augment:\n  - flip   # last\nname: a\n", "loader.depth=4",
        "loader:\n  augment:\n  - flip   # last\n  depth: 4\nname: a\n"));
    cr_assert(becomes("loader:\n  augment: [flip,\n    flip]\nname: a\n", "loader.depth=4",
        "loader:\n  augment: [flip,\n    flip]\n  depth: 4\nname: a\n"));
    cr_assert(becomes("a:\n  text: |\n    line\n    more\n\nname: a\n", "a.depth=4",
        "a:\n  text: |\n    line\n    more\n  depth: 4\n\nname: a\n"));
}

Test(apply, a_flow_mapping_of_lines_gets_a_line)
{
    cr_assert(becomes("loader: {\n  batch: 64, # one\n  io: uring  # two\n}\n", "loader.depth=4",
        "loader: {\n  batch: 64, # one\n  io: uring,  # two\n  depth: 4\n}\n"));
    cr_assert(becomes("loader: {\r\n  batch: 64,\t# one\r\n}\r\n", "loader.depth=4",
        "loader: {\r\n  batch: 64,\t# one\r\n  depth: 4\r\n}\r\n"));
    cr_assert(becomes("loader: {batch: 64,\n  io: uring}\n", "loader.depth=4",
        "loader: {batch: 64,\n  io: uring,\n  depth: 4}\n"));
}

Test(apply, a_missing_mapping_is_made)
{
    cr_assert(becomes("# top\nname: a\n# end\n", "loader.depth=4",
        "# top\nname: a\nloader: {depth: 4}\n# end\n"));
    cr_assert(becomes("{name: a}\n", "loader.depth=4", "{name: a, loader: {depth: 4}}\n"));
    cr_assert(becomes("---\nname: a\n...\n", "checkpoint.every=9 steps",
        "---\nname: a\ncheckpoint: {every: 9 steps}\n...\n"));
    cr_assert(becomes("loss: cross_entropy # plain\n", "loss.cross_entropy.label_smoothing=0.1",
        "loss: {cross_entropy: {label_smoothing: 0.1}} # plain\n"));
}

Test(apply, letters_of_many_bytes_do_not_shift_it)
{
    cr_assert(becomes(
        "# \xc3\xa9t\xc3\xa9\nname: {\xe2\x82\xac: \xf0\x9f\x98\x80, depth: 2} # \xc2\xb5\n",
        "name.depth=16",
        "# \xc3\xa9t\xc3\xa9\nname: {\xe2\x82\xac: \xf0\x9f\x98\x80, depth: 16} # \xc2\xb5\n"));
    /* a line separator of Unicode ends a line of YAML 1.1 */
    cr_assert(becomes("name: a # x\xe2\x80\xa8loader: {depth: 2}\n", "loader.depth=16",
        "name: a # x\xe2\x80\xa8loader: {depth: 16}\n"));
}

Test(apply, many_settings_one_after_the_other)
{
    static const char *const settings[] = {"loader.readers=4", "loader.cache={decoded: 1G}",
        "loader.depth=8", "loader.readers=2", "train.epochs=3", "model.1.out=5"};
    char *got = applied("model:\n  - relu\n  - {out: 2} # last\ntrain: {epochs: 1}\n", settings, 6);

    cr_assert_str_eq(got, "model:\n  - relu\n  - {out: 5} # last\ntrain: {epochs: 3}\n"
                          "loader: {readers: 2, cache: {decoded: 1G}, depth: 8}\n");
    free(got);
}

/* --- refusals --------------------------------------------------------------------------------- */

Test(apply, what_it_cannot_do_is_refused)
{
    cr_assert(is_refused("a: &x {b: 1}\nloader: {depth: 2}\n", "loader.depth=4", "anchors"));
    cr_assert(is_refused("loader:\n\tdepth: 2\n", "loader.depth=4", "tab"));
    cr_assert(is_refused("loader: {depth: 2, depth: 3}\n", "loader.depth=4", "twice"));
    cr_assert(is_refused("- a\n- b\n", "loader.depth=4", "mapping"));
    cr_assert(is_refused("loader: none\n", "loader.depth=4", "'none'"));
    cr_assert(is_refused("loader: [1]\n", "loader.7.depth=4", "list"));
    cr_assert(is_refused("a: |\n  text\n", "a=4", "lines"));
    cr_assert(is_refused("a: 1\n", "a", "KEY=VALUE"));
    cr_assert(is_refused("a: 1\n", "a=", "KEY=VALUE"));
    cr_assert(is_refused("a: 1\n", "a..b=2", "a..b=2"));
    cr_assert(is_refused("a: 1\n", "b=[1", "b=[1"));
    cr_assert(is_refused("{a: 1}\n", "a=x, b: y", "a=x, b: y")); /* would become two keys */
    cr_assert(is_refused("{a: 1}\n", "a=2 # note", "a=2 # note"));
    cr_assert(is_refused("", "a=2", "nothing in it"));
}

/* Cuts of a text that has everything in it: whatever is left, it is edited right or refused. */
Test(apply, broken_texts_are_edited_right_or_refused)
{
    static const char whole[] =
        "# t\nname: {a: 'x''y', b: \"\\\"\"}\nloader: # c\n  cache:\n    encoded: 2G # d\n"
        "  augment: [{crop: {size: 3}}, flip]\n  depth: 2\ntrain: {epochs: 3,\n  steps: 2}\n";
    static const char *const settings[] = {"loader.depth=4", "loader.cache=none", "train.x=1"};
    int nr_done = 0;

    for (size_t from = 0; from < sizeof(whole); from++)
        for (size_t to = from; to <= sizeof(whole) - 1; to++)
            for (int s = 0; s < 3; s++) {
                char *result = NULL;
                size_t bytes = 0;
                struct np_err err = {0};

                if (np_apply_text(
                        whole + from, to - from, &settings[s], 1, &result, &bytes, &err)) {
                    cr_assert(err.text[0], "refused without a word");
                    continue;
                }
                nr_done++; /* it was read back and compared */
                free(result);
            }
    cr_assert_gt(nr_done, 1000);
}

/* --- files ------------------------------------------------------------------------------------ */

/* Lines of `text` that are not in `other`, in order. */
static int nr_lost_lines(const char *text, const char *other)
{
    int lost = 0;

    while (*text) {
        const size_t n = strcspn(text, "\n");
        const char *at = other;

        while (*at && !(strcspn(at, "\n") == n && memcmp(at, text, n) == 0))
            at += strcspn(at, "\n") + (at[strcspn(at, "\n")] == '\n');
        lost += *at == '\0' && n > 0;
        text += n + (text[n] == '\n');
    }
    return lost;
}

static char *read_text(const char *path)
{
    static char text[65536];
    FILE *in = fopen(path, "r");
    const size_t n = in ? fread(text, 1, sizeof(text) - 1, in) : 0;

    text[n] = '\0';
    if (in)
        fclose(in);
    return strdup(text);
}

/* In a folder of its own: paths in a config are taken from where it lies. */
static bool applies_to(const char *name, const char *folder)
{
    static const char *const settings[] = {"loader.readers=3", "loader.depth=32",
        "loader.prefetch=9", "loader.cache={decoded: 7G}", "loader.io=pread",
        "checkpoint.every=77 steps"};
    struct np_err err = {0};
    char shipped[512], path[512], out[512], *before, *after;
    int lost, comments = 0;

    snprintf(shipped, sizeof(shipped), "configs/%s", name);
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    snprintf(out, sizeof(out), "%s/tuned-%s", folder, name);
    before = read_text(shipped);
    FILE *file = fopen(path, "w");
    fputs(before, file);
    fclose(file);
    if (np_apply_file(path, out, settings, 6, &err) < 0) {
        fprintf(stderr, "%s: %s\n", path, err.text);
        free(before);
        return false;
    }
    after = read_text(out);
    lost = nr_lost_lines(before, after);
    for (const char *at = before; (at = strchr(at, '#')); at++)
        comments++;
    for (const char *at = after; (at = strchr(at, '#')); at++)
        comments--;
    free(before);
    free(after);
    unlink(out);
    unlink(path);
    if (lost > 2 || comments != 0) /* one line of loader: and one of checkpoint: may change */
        fprintf(stderr, "%s: %d lines lost, %d comments\n", path, lost, comments);
    return lost <= 2 && comments == 0;
}

Test(apply, every_shipped_config_takes_settings)
{
    DIR *dir = opendir("configs");
    char folder[] = "/tmp/nnpipe-apply-XXXXXX";
    int nr = 0;

    cr_assert_not_null(dir);
    mkdtemp(folder);
    setenv("NNPIPE_DATA", "/tmp", 1);
    for (struct dirent *entry; (entry = readdir(dir));) {
        if (!strstr(entry->d_name, ".yaml"))
            continue;
        cr_assert(applies_to(entry->d_name, folder));
        nr++;
    }
    closedir(dir);
    rmdir(folder);
    cr_assert_geq(nr, 7);
}

Test(apply, a_file_is_not_written_where_anything_is_wrong)
{
    static const char *const good[] = {"loader.depth=4"}, *const bad[] = {"loader.depth=none"};
    char folder[] = "/tmp/nnpipe-apply-XXXXXX", from[64], to[64];
    struct np_err err = {0};

    mkdtemp(folder);
    snprintf(from, sizeof(from), "%s/a.yaml", folder);
    snprintf(to, sizeof(to), "%s/a.tuned.yaml", folder);
    FILE *out = fopen(from, "w");
    fputs("data: {train: {source: synth, samples: 100}}\nmodel: [global_avgpool, flatten, "
          "{linear: {out: classes}}]\n",
        out);
    fclose(out);
    cr_assert_eq(
        np_apply_file(from, to, bad, 1, &err), -EINVAL); /* a value the key does not take */
    cr_assert(strstr(err.text, "depth"), "%s", err.text);
    cr_assert(access(to, F_OK) != 0);
    err = (struct np_err){0};
    cr_assert_eq(np_apply_file(from, from, good, 1, &err), -EINVAL);
    cr_assert(strstr(err.text, "itself"), "%s", err.text);
    err = (struct np_err){0};
    cr_assert_eq(np_apply_file("/nowhere/a.yaml", to, good, 1, &err), -ENOENT);
    err = (struct np_err){0};
    cr_assert_lt(np_apply_file(from, "/nowhere/b.yaml", good, 1, &err), 0);
    err = (struct np_err){0};
    cr_assert_eq(np_apply_file(from, to, good, 1, &err), 0, "%s", err.text);
    char *text = read_text(to);
    cr_assert(strstr(text, "\nloader: {depth: 4}\n"));
    free(text);
    unlink(from);
    unlink(to);
    cr_assert_eq(rmdir(folder), 0); /* nothing is left beside them */
}

static bool means(const char *path, const char *train, const char *test, const char *name)
{
    struct np_config *config = NULL;
    struct np_report report;

    np_report_init(&report, path);
    np_config_load(path, NULL, 0, &config, &report);
    const bool good = config && config->loader.depth == 4 &&
                      strcmp(config->data.train.path, train) == 0 &&
                      strcmp(config->data.test.path, test) == 0 && strcmp(config->name, name) == 0;
    np_report_fini(&report);
    np_config_free(config);
    return good;
}

Test(apply, a_copy_elsewhere_reads_the_same_files)
{
    static const char *const settings[] = {"loader.depth=4"};
    char folder[] = "/tmp/nnpipe-apply-XXXXXX", from[64], to[64], inner[64], train[80];
    struct np_err err = {0};

    mkdtemp(folder);
    snprintf(inner, sizeof(inner), "%s/out", folder);
    snprintf(from, sizeof(from), "%s/net.yaml", folder);
    snprintf(to, sizeof(to), "%s/other.yaml", inner);
    snprintf(train, sizeof(train), "%s/my \"pics\"/train", folder);
    mkdir(inner, 0777);
    FILE *out = fopen(from, "w");
    fputs("data:\n  train: {source: folder, path: 'my \"pics\"/train'} # mine\n"
          "  test: {source: folder, path: /pics/test}\n"
          "model: [global_avgpool, flatten, {linear: {out: classes}}]\n",
        out);
    fclose(out);
    cr_assert_eq(np_apply_file(from, to, settings, 1, &err), 0, "%s", err.text);
    cr_assert(means(to, train, "/pics/test", "net"));
    char *text = read_text(to);
    cr_assert(strstr(text, "# mine\n  test: {source: folder, path: /pics/test}\n"));
    free(text);
    unlink(from);
    unlink(to);
    rmdir(inner);
    cr_assert_eq(rmdir(folder), 0);
}
