/* The report of a profile: the terminal's screen against its golden text, numbers as people read them,
 * and profile.json there and back. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/profile/trial.h"
#include "loader/base/json.h"
#include "daemon/analysis/profile_fields.h"
#include "daemon/analysis/words.h"
#include "loader/base/mem.h"
#include "tests/test.h"
#include "tests/unit/made_memory.h"
#include "tests/unit/made_profile.h"

static char *screen_of(const struct np_profile *profile, int width, bool colour)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);

    np_profile_screen(profile, width, colour, out);
    fclose(out);
    return text;
}

static char *whole_file(const char *path)
{
    char *text = calloc(1, 1 << 20);
    FILE *file = fopen(path, "r");

    if (file) {
        text[fread(text, 1, (1 << 20) - 1, file)] = '\0';
        fclose(file);
    }
    return text;
}

/* Prints the first difference, for the reader of a failure. */
static void show_difference(const char *got, const char *golden)
{
    size_t line = 0, i = 0;

    for (; got[i] && got[i] == golden[i]; i++)
        if (got[i] == '\n')
            line = i + 1;
    fprintf(stderr, "got:    %.*s\ngolden: %.*s\n", (int)strcspn(got + line, "\n"), got + line,
        (int)strcspn(golden + line, "\n"), golden + line);
}

/* tests/golden/screens.txt; NNPIPE_GOLDEN=write rewrites it; read it before a commit. */
Test(profile_screen, all_verdicts_print_the_golden_text)
{
    struct np_ribbon ribbon[MADE_RIBBON];
    struct np_profile profile;
    char *all = NULL;
    size_t bytes;
    FILE *out = open_memstream(&all, &bytes);

    for (int which = 0; which < NR_MADE_PROFILES; which++) {
        made_profile(which, &profile, ribbon);
        np_profile_screen(&profile, 80, false, out);
        fputc('\n', out);
    }
    fclose(out);
    if (getenv("NNPIPE_GOLDEN")) {
        FILE *file = fopen("tests/golden/screens.txt", "w");
        cr_assert_not_null(file);
        fputs(all, file);
        fclose(file);
    }
    char *golden = whole_file("tests/golden/screens.txt");
    bool same = strcmp(all, golden) == 0;
    if (!same)
        show_difference(all, golden);
    free(golden);
    free(all);
    cr_assert(same);
}

static int columns_of(const char *line, size_t bytes)
{
    int columns = 0;

    for (size_t i = 0; i < bytes; i++)
        columns += ((unsigned char)line[i] & 0xc0) != 0x80;
    return columns;
}

Test(profile_screen, no_line_is_wider_than_the_terminal)
{
    struct np_ribbon ribbon[MADE_RIBBON];
    struct np_profile profile;

    for (int which = 0; which < NR_MADE_PROFILES; which++)
        for (int width = 40; width <= 120; width++) {
            made_profile(which, &profile, ribbon);
            char *text = screen_of(&profile, width, false);
            bool fits = true;
            for (const char *at = text; *at; at += strcspn(at, "\n") + 1)
                fits &= columns_of(at, strcspn(at, "\n")) <= width;
            free(text);
            cr_assert(fits);
        }
}

/* The mark stands in the line that begins with `want`, and nowhere else. */
__attribute__((noinline)) static bool is_marked_once(const char *text, const char *want)
{
    const char *row = strstr(text, want);
    char line[512] = "";
    int marks = 0;

    if (row)
        snprintf(line, sizeof(line), "%.*s", (int)strcspn(row + 1, "\n"), row + 1);
    for (const char *at = text; (at = strstr(at, "◄ LIMIT")); at++)
        marks++;
    return marks == 1 && strstr(line, "◄ LIMIT");
}

Test(profile_screen, the_first_line_is_the_verdict_and_one_row_is_marked)
{
    struct np_ribbon ribbon[MADE_RIBBON];
    struct np_profile profile;
    char want[64];

    for (int which = 0; which < NP_NR_STAGES; which++) {
        made_profile(which, &profile, ribbon);
        char *text = screen_of(&profile, 80, false);
        snprintf(want, sizeof(want), " LIMIT:  %s ", np_words_loud((enum np_stage)which).text);
        cr_expect(strncmp(text, want, strlen(want)) == 0);
        snprintf(want, sizeof(want), "\n >%s", np_words_loud((enum np_stage)which).text);
        bool marked = is_marked_once(text, want);
        free(text);
        cr_expect(marked);
    }
    made_profile(MADE_BALANCED, &profile, ribbon);
    char *text = screen_of(&profile, 80, false);
    cr_expect(strncmp(text, " BALANCED: ", 11) == 0 && !strstr(text, "LIMIT"));
    free(text);
    made_profile(MADE_INCONCLUSIVE, &profile, ribbon);
    text = screen_of(&profile, 80, false);
    cr_expect(strncmp(text, " INCONCLUSIVE: ", 15) == 0 && !strstr(text, "LIMIT"));
    free(text);
}

Test(profile_screen, colour_adds_escapes_and_changes_no_word)
{
    struct np_ribbon ribbon[MADE_RIBBON];
    struct np_profile profile;

    made_profile(NP_STAGE_DECODE, &profile, ribbon);
    char *plain = screen_of(&profile, 80, false), *colour = screen_of(&profile, 80, true);
    char *to = colour;
    cr_expect(strstr(colour, "\033[1;31mDECODE") != NULL && !strchr(plain, 033));
    for (const char *from = colour; *from; from++)
        if (*from == 033)
            from += strcspn(from, "m");
        else
            *to++ = *from;
    *to = '\0';
    bool same = strcmp(plain, colour) == 0;
    free(plain);
    free(colour);
    cr_assert(same);
}

Test(profile_screen, a_trial_of_the_advice_and_the_previous_profile_are_shown)
{
    struct np_ribbon ribbon[MADE_RIBBON], ribbon_before[MADE_RIBBON];
    struct np_profile profile, before;

    made_profile(NP_STAGE_READ, &before, ribbon_before);
    made_profile(NP_STAGE_DECODE, &profile, ribbon);
    before.model.rate = 1600;
    profile.before = &before;
    profile.verified = profile.deep = true;
    profile.verified_rate = 2570;
    profile.stubbed[NP_STAGE_DECODE].rate = 2810;
    char *text = screen_of(&profile, 80, false);
    cr_expect(
        strstr(text, " TRIED:  loader.readers: 6 gave 2,570 img/s (1.49x), predicted 2,590\n"));
    cr_expect(strstr(text, " before: 1,600 img/s, now 1,730 (+8.1%); its limit was READ\n"));
    cr_expect(strstr(text, " measured, img/s without decode 2,810\n"));
    free(text);
}

Test(profile_screen, no_path_is_cut)
{
    struct np_ribbon ribbon[MADE_RIBBON];
    struct np_profile profile;
    char path[300] = "/";

    made_profile(NP_STAGE_DECODE, &profile, ribbon);
    while (strlen(path) < sizeof(path) - 10)
        strcat(path, "folder/");
    snprintf(profile.files, sizeof(profile.files), "%s/p.html  %s/p.json  run.pftrace", path, path);
    char *text = screen_of(&profile, 60, false), want[1000];
    snprintf(want, sizeof(want), "\n files: %s/p.html\n        %s/p.json\n        run.pftrace\n",
        path, path);
    cr_expect(strstr(text, want) != NULL, "%s", text);
    free(text);
}

Test(profile_screen, a_cache_that_did_not_fill_was_not_tried)
{
    struct np_ribbon ribbon[MADE_RIBBON];
    struct np_profile profile;

    made_profile(NP_STAGE_READ, &profile, ribbon);
    profile.verify_fills = true;
    char *text = screen_of(&profile, 100, false);
    cr_expect(strstr(text, " TRIED:  the cache's first epoch took longer than a trial waits"));
    free(text);
}

Test(profile_screen, numbers_have_short_forms)
{
    cr_expect(strcmp(np_words_rate(1730.4).text, "1,730") == 0);
    cr_expect(strcmp(np_words_rate(1234567).text, "1,234,567") == 0);
    cr_expect(strcmp(np_words_rate(999.7).text, "1,000") == 0);
    cr_expect(strcmp(np_words_rate(48.21).text, "48.2") == 0);
    cr_expect(strcmp(np_words_rate(0.354).text, "0.35") == 0);
    cr_expect(strcmp(np_words_rate(INFINITY).text, "no limit") == 0);
    cr_expect(strcmp(np_words_rate(1e300).text, "1e+300") == 0);
    cr_expect(strcmp(np_words_time(0.148).text, "148 ms") == 0);
    cr_expect(strcmp(np_words_time(0.000052).text, "52 µs") == 0);
    cr_expect(strcmp(np_words_time(1.12).text, "1.1 s") == 0);
    cr_expect(strcmp(np_words_share(0.0041).text, "0.4%") == 0);
    cr_expect(strcmp(np_words_share(0.634).text, "63%") == 0);
    cr_expect(strcmp(np_words_share(0).text, "0%") == 0);
    cr_expect(strcmp(np_words_size(115u << 20).text, "115 MiB") == 0);
    cr_expect(strcmp(np_words_size(900).text, "900 bytes") == 0);
    cr_expect(strcmp(np_words_size(UINT64_MAX).text, "16 EiB") == 0);
    cr_expect(strcmp(np_words_gain(1.653).text, "1.65x") == 0);
}

Test(profile_screen, shares_of_a_step_add_up_to_one)
{
    struct np_ribbon ribbon[MADE_RIBBON];
    struct np_profile profile;
    struct np_words_part parts[NP_WORDS_PARTS];

    for (int which = 0; which < NR_MADE_PROFILES; which++) {
        double sum = 0;
        made_profile(which, &profile, ribbon);
        int n = np_words_parts(&profile, parts);
        for (int i = 0; i < n; i++) {
            sum += parts[i].share;
            cr_expect(i == 0 || parts[i].share <= parts[i - 1].share);
        }
        cr_assert_float_eq(sum, 1, 0.006);
    }
}

/* --- profile.json ----------------------------------------------------------------------------- */

static int read_text(const char *text, struct np_profile *profile, struct np_err *err)
{
    char path[] = "/tmp/nnpipe-profile-XXXXXX";
    int fd = mkstemp(path);
    ssize_t n = write(fd, text, strlen(text));

    close(fd);
    int code = n < 0 ? -EIO : np_profile_read(path, profile, err);
    unlink(path);
    return code;
}

/* All but the pointers, and what they point to. */
static bool equal(const struct np_profile *a, const struct np_profile *b)
{
    struct np_profile x = *a, y = *b;

    x.ribbon = y.ribbon = NULL;
    x.before = y.before = NULL;
    x.nr_ribbon = y.nr_ribbon = 0;
    char *p = np_profile_json(&x, NULL), *q = np_profile_json(&y, NULL);
    bool same = strcmp(p, q) == 0 && a->nr_ribbon == b->nr_ribbon &&
                a->model.thread_s[NP_STAGE_DECODE] == b->model.thread_s[NP_STAGE_DECODE] &&
                a->observation.stages[1].p99_s == b->observation.stages[1].p99_s &&
                a->observation.feed.idle_ns == b->observation.feed.idle_ns &&
                a->knobs.set_bytes == b->knobs.set_bytes && a->verdict.kind == b->verdict.kind &&
                memcmp(a->curve_faster, b->curve_faster, sizeof(a->curve_faster)) == 0 &&
                memcmp(a->curve_rate, b->curve_rate, sizeof(a->curve_rate)) == 0 &&
                (a->nr_ribbon == 0 ||
                    memcmp(a->ribbon, b->ribbon, (size_t)a->nr_ribbon * sizeof(*a->ribbon)) == 0);
    free(p);
    free(q);
    return same;
}

/* Does a row cover each member of a struct, also of those within it? Padding is shorter than a member. */
static bool covered(const struct np_field *fields, size_t bytes)
{
    char seen[16384] = {0};
    size_t gap = 0;
    bool whole = true;

    for (const struct np_field *field = fields; field->key; field++) {
        memset(seen + field->offset, 1, field->size);
        if (field->fields)
            whole &=
                covered(field->fields, field->nr ? field->size / (size_t)field->nr : field->size);
    }
    for (size_t i = 0; i < bytes && gap < 8; i++)
        gap = seen[i] ? 0 : gap + 1;
    return whole && gap < 8;
}

Test(profile_json, no_field_of_a_struct_is_forgotten)
{
    int nr = 0;

    for (const struct np_field *field = np_fields_details; field->key; field++, nr++)
        cr_expect(covered(field->fields, field->size), "%s", field->key);
    cr_expect_eq(nr, 5); /* finding, knobs, observation, ceilings, model */
}

Test(profile_json, a_written_profile_reads_back_the_same)
{
    struct np_ribbon ribbon[MADE_RIBBON], ribbon_before[MADE_RIBBON];
    struct np_profile profile, before, again;

    for (int which = 0; which < NR_MADE_PROFILES; which++) {
        struct np_err err = {0};
        made_profile(which, &profile, ribbon);
        made_profile((which + 1) % NR_MADE_PROFILES, &before, ribbon_before);
        profile.model.thread_s[NP_STAGE_DECODE] = 1.0 / 3;
        profile.verdict.gain = INFINITY;
        profile.stubbed[NP_STAGE_STEP].rate = 1e-300;
        profile.before = which & 1 ? &before : NULL;
        char *text = np_profile_json(&profile, NULL);
        cr_assert_not_null(text);
        cr_assert_eq(read_text(text, &again, &err), 0);
        bool same = equal(&profile, &again) && !again.before == !profile.before &&
                    (!again.before || equal(again.before, &before));
        np_profile_fini(&again);
        free(text);
        cr_assert(same);
    }
}

Test(profile_json, the_event_has_the_fields_that_scripts_rely_on)
{
    static const char *const keys[] = {"event", "verdict", "limiter", "images_per_second",
        "predicted_images_per_second", "setting", "value", "next_limiter", "noise", "overhead",
        "stages"};
    struct np_ribbon ribbon[MADE_RIBBON];
    struct np_profile profile;
    struct np_node *node = NULL;
    struct np_err err = {0};

    made_profile(NP_STAGE_DECODE, &profile, ribbon);
    char *text = np_profile_done(&profile, NULL);
    cr_assert_eq(strchr(text, '\n'), text + strlen(text) - 1); /* one line */
    cr_assert_eq(np_json_parse(text, strlen(text), &node, &err), 0);
    for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++)
        cr_expect(np_node_get(node, keys[i]) != NULL);
    cr_expect(np_node_is(np_node_get(node, "limiter"), "decode"));
    cr_expect(np_node_is(np_node_get(node, "next_limiter"), "step"));
    cr_expect(np_node_is(np_node_get(node, "setting"), "loader.readers"));
    cr_expect(np_node_is(np_node_get(node, "value"), "6"));
    const struct np_node *stages = np_node_get(node, "stages");
    cr_expect_eq(stages->nr_items, NP_NR_STAGES);
    cr_expect(np_node_is(np_node_get(stages->items[2], "name"), "decode"));
    /* the readers' stages have one ceiling */
    cr_expect_eq(np_node_number(stages->items[1], "ceiling_images_per_second", -1),
        np_node_number(stages->items[2], "ceiling_images_per_second", -2));
    np_node_free(node);
    free(text);
}

Test(profile_json, a_malformed_profile_is_refused_with_the_place)
{
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"", "not JSON"},
        {"[]", "not a profile"},
        {"{\"event\": \"done\"}", "not a profile"},
        {"{\"event\": \"done\", \"finding\": {}}", "no verdict"},
        {"{\"event\": \"done\", \"finding\": {\"kind\": \"limited\", \"limiter\": \"disk\"}}",
            "\"limiter\" of \"finding\""},
        {"{\"event\": \"done\", \"finding\": {\"kind\": \"limited\"}, \"model\": {\"rate\": "
         "\"1\"}}",
            "\"rate\" of \"model\""},
        {"{\"event\": \"done\", \"finding\": {\"kind\": \"limited\"}, \"knobs\": {\"readers\": "
         "1e10}}",
            "\"readers\" of \"knobs\""},
        {"{\"event\": \"done\", \"finding\": {\"kind\": \"limited\"}, \"observation\": []}",
            "\"observation\" is not an object"},
        {"{\"event\": \"done\", \"finding\": {\"kind\": \"limited\"}, \"ribbon\": [[1, 2]]}",
            "\"ribbon\": row 0"},
        {"{\"event\": \"done\", \"finding\": {\"kind\": \"limited\"}, \"curve\": [[1, true]]}",
            "\"curve\": item 0"},
        {"{\"event\": \"done\", \"finding\": {\"kind\": \"limited\"}, \"before\": 1}",
            "\"before\""},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct np_profile profile;
        struct np_err err = {0};
        int code = read_text(cases[i].text, &profile, &err);
        if (code != -EBADMSG || !strstr(err.text, cases[i].says))
            fprintf(stderr, "%s: %d: %s\n", cases[i].text, code, err.text);
        cr_assert_eq(code, -EBADMSG);
        cr_assert(strstr(err.text, cases[i].says) != NULL);
    }
    struct np_profile profile;
    struct np_err err = {0};
    cr_assert_eq(np_profile_read("/nonexistent/profile.json", &profile, &err), -ENOENT);
    cr_assert(strstr(err.text, "/nonexistent/profile.json") != NULL);
}

Test(profile_json, names_of_a_file_move_no_cursor)
{
    struct np_profile profile;
    struct np_err err = {0};

    cr_assert_eq(read_text("{\"event\": \"done\", \"finding\": {\"kind\": \"limited\", \"advice\": "
                           "{\"text\": \"a\\u001b[2Jb\"}}}",
                     &profile, &err),
        0);
    cr_assert_str_eq(profile.verdict.advice.text, "a?[2Jb");
    np_profile_fini(&profile);
}

Test(profile_json, want_of_memory_during_a_read_is_reported_and_nothing_leaks)
{
    struct np_ribbon ribbon[MADE_RIBBON], ribbon_before[MADE_RIBBON];
    struct np_profile profile, before, again;

    made_profile(NP_STAGE_DECODE, &profile, ribbon);
    made_profile(NP_STAGE_READ, &before, ribbon_before);
    profile.before = &before;
    char *text = np_profile_json(&profile, NULL);
    made_memory_fail(0);
    cr_assert_eq(np_profile_parse(text, strlen(text), &again, NULL), 0);
    const int calls = made_memory_calls();
    np_profile_fini(&again);
    cr_expect(calls >= 2); /* both ribbons */
    for (int n = 1; n <= calls; n += n < calls - 8 ? 97 : 1) {
        struct np_err err = {0};
        made_memory_fail(n);
        const int code = np_profile_parse(text, strlen(text), &again, &err);
        cr_expect_eq(code, -ENOMEM, "%d of %d: %d %s", n, calls, code, err.text);
    }
    made_memory_fail(0);
    free(text);
}

/* --- profile.html: tests/flow/profile_html.sh looks at its drawing ------------------------------- */

Test(profile_html, the_page_holds_the_json_and_no_name_ends_it)
{
    static const char config[] = "</script><!-- <script>\xe2\x80\xa8&amp;\"";
    static const char begin[] = "<script type=\"application/json\" id=\"profile\">";
    struct np_ribbon ribbon[MADE_RIBBON];
    struct np_profile profile;
    struct np_node *node = NULL;
    char *page = NULL;
    size_t bytes;
    FILE *out = open_memstream(&page, &bytes);

    made_profile(NP_STAGE_DECODE, &profile, ribbon);
    snprintf(profile.config, sizeof(profile.config), "%s", config);
    profile.verdict.gain = NAN;
    char *json = np_profile_json(&profile, NULL);
    np_profile_html_to(out, json);
    fclose(out);
    const char *from = strstr(page, begin) + strlen(begin), *to = strstr(from, "</script>");
    cr_assert_eq(np_json_parse(from, (size_t)(to - from), &node, NULL), 0);
    cr_expect(np_node_is(np_node_get(node, "config"), config));
    cr_expect(!memmem(from, (size_t)(to - from), "<", 1));
    cr_expect(strstr(page, "drawProfile(") && strstr(page, ".bars"));
    np_node_free(node);
    free(json);
    free(page);
}
