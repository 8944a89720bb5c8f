/* The tables of profile.html: what was measured and what the run is made of, for who wants the numbers. */
#include <math.h>

#include "daemon/profile/html_page.h"

static void put_cell(FILE *out, bool there, const char *text)
{
    fprintf(out, "<td>%s</td>", there ? text : "");
}

static void put_stages(FILE *out, const struct np_profile *profile)
{
    const struct np_observation *seen = &profile->observation;
    char text[NP_TELLING_BYTES];

    fputs("<div class=\"wide\"><table class=\"facts\">\n<thead><tr><th>stage</th><th>items</th>"
          "<th>bytes</th><th>p50</th><th>p99</th><th>threads' time</th>",
        out);
    fputs(profile->deep ? "<th>without it, img/s</th>" : "", out);
    fputs("</tr></thead>\n<tbody>\n", out);
    for (int s = 0; s < NP_NR_STAGES; s++) {
        const struct np_observed_stage *stage = &seen->stages[s];
        if (stage->items == 0 && stage->work_s <= 0)
            continue;
        fprintf(out, "<tr><th scope=\"row\">%s</th>", np_stage_names[s]);
        if (stage->items < 100)
            snprintf(text, sizeof(text), "%u", (unsigned)stage->items);
        put_cell(out, true, stage->items < 100 ? text : np_words_rate((double)stage->items, text));
        put_cell(out, stage->bytes > 0, np_words_size(stage->bytes, text));
        put_cell(out, stage->p50_s > 0, np_words_time(stage->p50_s, text));
        put_cell(out, stage->p99_s > 0, np_words_time(stage->p99_s, text));
        put_cell(out, stage->work_s > 0, np_words_time(stage->work_s, text));
        if (profile->deep)
            put_cell(
                out, profile->stubbed[s].rate > 0, np_words_rate(profile->stubbed[s].rate, text));
        fputs("</tr>\n", out);
    }
    fputs("</tbody>\n</table></div>\n", out);
}

static void put_fact(FILE *out, const char *name, const char *text)
{
    fprintf(out, "<div><dt>%s</dt><dd>", name);
    np_html_text(out, text);
    fputs("</dd></div>\n", out);
}

static void put_rate_fact(FILE *out, const char *name, double rate)
{
    char text[NP_TELLING_BYTES];

    if (rate > 0)
        put_fact(out, name, np_words_rate(rate, text));
}

static void put_parts(FILE *out, const struct np_profile *profile)
{
    const struct np_ceilings *parts = &profile->ceilings;

    fputs("<h3>Parts alone, img/s</h3>\n<dl>\n", out);
    put_rate_fact(out, "disk, cold", parts->read_cold);
    put_rate_fact(out, "disk, warm", parts->read_warm);
    put_rate_fact(out, "whole loader", parts->loader);
    put_rate_fact(out, "copies", parts->copy);
    put_rate_fact(out, "steps", parts->step);
    fputs("</dl>\n", out);
}

static void put_readers(FILE *out, const struct np_profile *profile)
{
    static const char *const names[] = {
        "working", "nothing to do", "no free slot", "waiting for reads"};
    const struct np_observation *seen = &profile->observation;
    double whole = seen->nr_readers * seen->seconds;
    char text[NP_TELLING_BYTES];

    fprintf(out, "<h3>Time of the %d reader%s</h3>\n<dl>\n", seen->nr_readers,
        seen->nr_readers == 1 ? "" : "s");
    for (int s = 0; whole > 0 && s < NP_NR_STATES; s++)
        put_fact(out, names[s], np_words_share(seen->reader_s[s] / whole, text));
    if (whole > 0)
        put_fact(
            out, "of it ready, without a core", np_words_share(seen->reader_delay_s / whole, text));
    fputs("</dl>\n", out);
}

static void put_knobs(FILE *out, const struct np_profile *profile)
{
    const struct np_knobs *knobs = &profile->knobs;
    char text[96], a[NP_TELLING_BYTES], b[NP_TELLING_BYTES];

    fputs("<h3>The run</h3>\n<dl>\n", out);
    snprintf(text, sizeof(text), "%d readers, depth %d, prefetch %d", knobs->readers, knobs->depth,
        knobs->prefetch);
    put_fact(out, "loader", text);
    snprintf(text, sizeof(text), "%s, cache %s", knobs->io, knobs->cache);
    put_fact(out, "reads", text);
    snprintf(text, sizeof(text), "%s images, %s", np_words_rate((double)knobs->nr_samples, a),
        np_words_size(knobs->set_bytes, b));
    put_fact(out, "data", text);
    snprintf(text, sizeof(text), "%.3g cores, %s free of %s", knobs->cores,
        np_words_size(knobs->free_bytes, a), np_words_size(knobs->memory_bytes, b));
    put_fact(out, "box", text);
    fputs("</dl>\n", out);
}

void np_html_facts(FILE *out, const struct np_profile *profile)
{
    fputs("<section id=\"facts\">\n<h2>Numbers</h2>\n", out);
    put_stages(out, profile);
    fputs("<div class=\"columns\">\n<div>", out);
    put_parts(out, profile);
    fputs("</div>\n<div>", out);
    put_readers(out, profile);
    fputs("</div>\n<div>", out);
    put_knobs(out, profile);
    fputs("</div>\n</div>\n</section>\n", out);
}
