/* The end of a run before its last step: train.stop. */
#include <math.h>

#include "daemon/run/run_parts.h"

static const char *metric_of(const struct np_run *run)
{
    return np_metric_names[run->config->run.stop.metric];
}

uint64_t np_run_last_step(const struct np_run *run)
{
    return run->position.early.stopped ? run->position.step : run->nr_steps;
}

void np_run_early_text(const struct np_run *run, char *text, size_t text_bytes)
{
    const struct np_early *early = &run->position.early;
    const int metric = run->config->run.stop.metric;
    const bool share = metric == NP_METRIC_ACCURACY || metric == NP_METRIC_MAP;
    char best[32] = "none was a number";

    if (isfinite(early->best))
        snprintf(best, sizeof(best), share ? "the best was %.2f%%" : "the best was %.4f",
            share ? 100 * early->best : early->best);
    const uint64_t last = np_run_last_step(run);

    snprintf(text, text_bytes,
        "ended%s at step %llu of %llu: the %s of %s has not improved in %llu evaluations (%s)",
        last < run->nr_steps ? " early" : "", (unsigned long long)last,
        (unsigned long long)run->nr_steps, metric_of(run), np_run_has_val(run) ? "val" : "test",
        (unsigned long long)early->nr_bad, best);
}

bool np_run_early(struct np_run *run, const struct np_eval_report *report)
{
    const struct np_early_options *options = &run->config->run.stop;
    struct np_early *early = &run->position.early;
    struct np_json *line = &run->line;
    char text[NP_EARLY_TEXT];

    if (!run->config->run.stop_node || early->stopped)
        return false;
    np_early_step(options, np_run_metric(run, report, options->metric), report->step,
        np_run_epoch_at(run, report->step), early);
    if (!early->stopped)
        return false;
    np_run_early_text(run, text, sizeof(text));
    np_json_begin(line, "early_stop");
    np_json_int(line, "step", (int64_t)report->step);
    np_json_real(line, "epoch", np_run_epoch_at(run, report->step));
    np_json_text(line, "metric", metric_of(run));
    np_json_real(line, "best", early->best);
    np_json_int(line, "evaluations", (int64_t)early->nr_bad);
    np_json_text(line, "reason", text);
    return true;
}
