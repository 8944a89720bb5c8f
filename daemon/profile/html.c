/* profile.html: one file that a browser shows without a network: the verdict in large words, the chart of
 * ceilings, waits over time, what-if, before and after, tables. SVG and CSS are in it; there is no script.
 * The sections are in html_*.c. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "daemon/profile/html_page.h"
#include "loader/base/mem.h"

void np_html_text(FILE *out, const char *text)
{
    for (; *text; text++)
        switch (*text) {
        case '&': fputs("&amp;", out); break;
        case '<': fputs("&lt;", out); break;
        case '>': fputs("&gt;", out); break;
        case '"': fputs("&quot;", out); break;
        default: fputc(*text, out);
        }
}

double np_html_percent(double part, double whole)
{
    double percent = whole > 0 ? part / whole * 100 : 0;

    return isnan(percent) || percent < 0 ? 0 : percent > 100 ? 100 : percent;
}

const char *np_html_class(const struct np_profile *profile, enum np_stage stage)
{
    static const char *const classes[] = {"s-read", "s-decompress", "s-decode", "s-augment",
        "s-batch", "s-copy", "s-step", "s-checkpoint"};

    if (profile->verdict.kind == NP_LIMITED && profile->verdict.limiter == stage)
        return "s-limit";
    return classes[stage];
}

/* --- head and verdict ------------------------------------------------------------------------- */

/* The title, as it stands in a tab. */
static void put_title(FILE *out, const struct np_profile *profile)
{
    const struct np_profile_verdict *verdict = &profile->verdict;
    char name[NP_TELLING_BYTES];

    if (verdict->kind == NP_LIMITED)
        fprintf(out, "%s limits ", np_words_loud(verdict->limiter, name));
    else
        fprintf(out, "%s: ", np_verdict_names[verdict->kind]);
    np_html_text(out, profile->config);
    fputs(" - nnpipe profile", out);
}

static void put_head(FILE *out, const struct np_profile *profile)
{
    char rate[NP_TELLING_BYTES];

    fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
          "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
          "<meta name=\"color-scheme\" content=\"light dark\">\n<title>",
        out);
    put_title(out, profile);
    fprintf(out, "</title>\n<style>\n%s</style>\n</head>\n<body>\n<main>\n", np_html_style);
    fputs("<header><b>nnpipe profile</b><span>", out);
    np_html_text(out, profile->config);
    fputs("</span><span>", out);
    np_html_text(out, profile->knobs.device);
    if (profile->knobs.precision[0])
        fputs(" ", out);
    np_html_text(out, profile->knobs.precision);
    fprintf(out, ", batch %d</span><span>%s img/s</span><span>", profile->knobs.batch,
        np_words_rate(profile->model.rate, rate));
    np_html_text(out, profile->started_at);
    fputs("</span></header>\n", out);
}

static void put_limit(FILE *out, const struct np_profile *profile)
{
    const struct np_profile_verdict *verdict = &profile->verdict;
    char name[NP_TELLING_BYTES], now[NP_TELLING_BYTES], then[NP_TELLING_BYTES];
    char gain[NP_TELLING_BYTES], spread[NP_TELLING_BYTES];

    fprintf(out,
        "<section class=\"verdict\" id=\"verdict\">\n<h1><em>%s</em> is the limit</h1>\n"
        "<p class=\"lead\"><b>%s</b> img/s now, <b>%s</b> (%s%s) once it is fixed.</p>\n",
        np_words_loud(verdict->limiter, name), np_words_rate(profile->model.rate, now),
        np_words_rate(verdict->next_rate, then), np_words_gain(verdict->gain, gain),
        np_words_spread(verdict->gain, profile->noise, spread));
}

static void put_no_limit(FILE *out, const struct np_profile *profile)
{
    char now[NP_TELLING_BYTES];

    fprintf(out,
        "<section class=\"verdict\" id=\"verdict\">\n<h1>%s</h1>\n"
        "<p class=\"lead\"><b>%s</b> img/s now; ",
        profile->verdict.kind == NP_BALANCED ? "Balanced" : "Inconclusive",
        np_words_rate(profile->model.rate, now));
    np_html_text(out, profile->verdict.reason);
    fputs(".</p>\n", out);
}

/* What to do: the key as it stands in the config, what it brings and costs. */
static void put_advice(FILE *out, const struct np_profile *profile)
{
    const struct np_advice *advice = &profile->verdict.advice;
    char cost[96], rate[NP_TELLING_BYTES], gain[NP_TELLING_BYTES];

    if (profile->verdict.kind != NP_LIMITED || (!advice->key[0] && !advice->text[0]))
        return;
    fputs("<div class=\"tile do\"><h2>Do</h2>\n", out);
    if (advice->key[0]) {
        fputs("<p class=\"key\"><code>", out);
        np_html_text(out, advice->key);
        fputs(": <s>", out);
        np_html_text(out, advice->from);
        fputs("</s> → <b>", out);
        np_html_text(out, advice->to);
        fprintf(out, "</b></code></p>\n<p>brings <b>%s</b> img/s (%s)",
            np_words_rate(advice->rate, rate),
            np_words_gain(advice->rate / profile->model.rate, gain));
        np_words_cost(profile, cost, sizeof(cost));
        fprintf(out, "%s%s</p>\n", cost[0] ? "; needs " : "", cost);
    }
    if (advice->text[0]) {
        fputs("<p class=\"why\">", out);
        np_html_text(out, advice->text);
        fputs("</p>\n", out);
    }
    fputs("</div>\n", out);
}

static void put_next(FILE *out, const struct np_profile *profile)
{
    const struct np_profile_verdict *verdict = &profile->verdict;
    char name[NP_TELLING_BYTES], rate[NP_TELLING_BYTES], headroom[NP_TELLING_BYTES];

    if (verdict->kind != NP_LIMITED)
        return;
    fputs("<div class=\"tile\"><h2>Then</h2>\n", out);
    if (!isfinite(verdict->next_rate)) {
        fputs("<p class=\"key\">nothing else limits</p>\n</div>\n", out);
        return;
    }
    fprintf(out, "<p class=\"key\"><b>%s</b> limits</p>\n<p>at <b>%s</b> img/s",
        np_words_loud(verdict->next, name), np_words_rate(verdict->next_rate, rate));
    if (verdict->headroom > 0)
        fprintf(out, ": headroom %s", np_words_share(verdict->headroom, headroom));
    fputs("</p>\n</div>\n", out);
}

static void put_tried(FILE *out, const struct np_profile *profile)
{
    char rate[NP_TELLING_BYTES], gain[NP_TELLING_BYTES], told[NP_TELLING_BYTES];

    if (profile->verify_fills)
        fputs("<div class=\"tile\"><h2>Tried</h2>\n<p>the cache's first epoch took longer than a "
              "trial waits; it pays from the second on</p>\n</div>\n",
            out);
    if (!profile->verified)
        return;
    fprintf(out,
        "<div class=\"tile\"><h2>Tried</h2>\n<p class=\"key\"><b>%s</b> img/s</p>\n"
        "<p>measured with it: %s, predicted %s</p>\n</div>\n",
        np_words_rate(profile->verified_rate, rate),
        np_words_gain(profile->verified_rate / profile->model.rate, gain),
        np_words_rate(profile->verdict.advice.rate, told));
}

static void put_foot(FILE *out, const struct np_profile *profile)
{
    char trust[256], seconds[NP_TELLING_BYTES];

    np_words_trust(profile, trust, sizeof(trust));
    fprintf(out, "<footer><p><b>Trust</b> %s</p>\n<p>", trust);
    np_html_text(out, profile->config);
    fputs(" on ", out);
    np_html_text(out, profile->knobs.device);
    fputs(", nnpipe ", out);
    np_html_text(out, profile->version);
    fprintf(out, "; the profile took %s</p></footer>\n</main>\n</body>\n</html>\n",
        np_words_time(profile->seconds, seconds));
}

void np_profile_html_to(const struct np_profile *profile, FILE *out)
{
    put_head(out, profile);
    if (profile->verdict.kind == NP_LIMITED)
        put_limit(out, profile);
    else
        put_no_limit(out, profile);
    if (profile->verdict.kind == NP_LIMITED) {
        fputs("<div class=\"tiles\">\n", out);
        put_advice(out, profile);
        put_next(out, profile);
        put_tried(out, profile);
        fputs("</div>\n", out);
    }
    fputs("</section>\n", out);
    np_html_chart(out, profile);
    np_html_pair(out, profile);
    np_html_ribbon(out, profile);
    np_html_curve(out, profile);
    np_html_facts(out, profile);
    put_foot(out, profile);
}

/* Beside the old one, and then in its place. */
int np_profile_html(const struct np_profile *profile, const char *path, struct np_err *err)
{
    char *beside = np_format("%s.new", path);
    FILE *out = beside ? fopen(beside, "we") : NULL;
    int code = out ? 0 : beside ? -errno : -ENOMEM;

    if (out) {
        np_profile_html_to(profile, out);
        bool bad = ferror(out) != 0;
        if (fclose(out) != 0 || bad)
            code = errno ? -errno : -EIO;
    }
    if (code == 0 && rename(beside, path) < 0)
        code = -errno;
    if (code < 0) {
        if (out)
            remove(beside);
        np_err_set(err, code, "%s: cannot be written: %s", path, strerror(-code));
    }
    np_free(beside);
    return code;
}
