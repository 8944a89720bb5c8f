/* Bad samples of a run: those of all processes are judged at their batch, and written when its step has
 * ended. Trainer (main) thread. */
#include "daemon/run/run_parts.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Takes those of the batches taken from the loader into run->bad. */
static void drain_bad(struct np_run *run)
{
    struct np_bad_sample bad;

    for (;;) {
        if (np_try_grow(&run->bad, &run->room_bad, (size_t)run->nr_bad + 1, sizeof(bad), NULL) < 0)
            return; /* out of memory: the loader keeps the rest for later */
        if (!np_loader_next_bad(run->loader, &bad))
            return;
        run->bad[run->nr_bad++] = bad;
    }
}

/* --- at a batch ----------------------------------------------------------------------------------- */

/* Appends those of another process, which may be of another build. */
static void add_bad(struct np_run *run, struct np_bad_sample *bad, uint32_t nr)
{
    for (uint32_t i = 0; i < nr; i++) {
        bad[i].path[sizeof(bad[i].path) - 1] = '\0';
        bad[i].reason[sizeof(bad[i].reason) - 1] = '\0';
        bad[i].kind = bad[i].kind == NP_BATCH_TRAIN ? NP_BATCH_TRAIN : NP_BATCH_EVAL;
        run->bad[run->nr_bad++] = bad[i];
    }
}

/* run->bad has new ones from `first` on: adds those of the other processes. */
static int gather_bad(struct np_run *run, int first, struct np_err *err)
{
    const int world = np_comm_world(run->comm), rank = np_comm_rank(run->comm);
    uint32_t own = (uint32_t)(run->nr_bad - first), counts[NP_MAX_WORLD], max = 0, sum = 0;
    struct np_bad_sample *all;
    int code = np_comm_gather(run->comm, &own, counts, sizeof(own), err);

    for (int r = 0; code == 0 && r < world; r++) {
        max = counts[r] > max ? counts[r] : max;
        sum += counts[r];
    }
    if (code < 0 || max == 0)
        return code;
    all = np_try_array((size_t)world * max, sizeof(*all), err);
    if (!all ||
        np_try_grow(&run->bad, &run->room_bad, (size_t)run->nr_bad + sum, sizeof(*all), err) < 0) {
        np_free(all);
        return -ENOMEM;
    }
    memcpy(all + (size_t)rank * max, run->bad + first, own * sizeof(*all));
    code = np_comm_gather(run->comm, all + (size_t)rank * max, all, max * sizeof(*all), err);
    for (int r = 0; r < world && code == 0; r++)
        if (r != rank)
            add_bad(run, all + (size_t)r * max, counts[r] < max ? counts[r] : max);
    np_free(all);
    return code;
}

/* Bad samples of an epoch, or of an evaluation, so far. */
static uint64_t count_bad(const struct np_run *run, const struct np_bad_sample *like)
{
    uint64_t n = 0;

    if (like->kind == NP_BATCH_TRAIN && run->position.bad_epoch == like->epoch)
        n = run->position.nr_bad;
    for (int i = 0; i < run->nr_bad; i++) {
        const struct np_bad_sample *bad = &run->bad[i];

        n += bad->kind == like->kind &&
             (bad->kind == NP_BATCH_TRAIN ? bad->epoch == like->epoch : bad->step == like->step);
    }
    return n;
}

int np_run_judge_bad(struct np_run *run, const struct np_batch *batch, struct np_err *err)
{
    const double budget = run->config->loader.bad_budget;
    const int first = run->nr_bad;

    if (!run->comm)
        return 0;
    drain_bad(run);
    const int code = gather_bad(run, first, err);
    for (int i = first; code == 0 && i < run->nr_bad; i++) {
        const struct np_bad_sample *bad = &run->bad[i];
        const bool training = bad->kind == NP_BATCH_TRAIN;
        const uint64_t of = training ? run->nr_train : run->nr_eval;
        const uint64_t allowed = (uint64_t)ceil(budget * (double)of);

        if (count_bad(run, bad) > allowed)
            return np_err_set(err, -EBADMSG,
                "over %llu of the %llu samples of %s %llu are bad, more than "
                "loader.bad_samples.budget allows (%g%%); bad_samples.jsonl in the run's folder "
                "lists them, one is %s: %s",
                (unsigned long long)allowed, (unsigned long long)of,
                training ? "epoch" : "the evaluation after step",
                training ? (unsigned long long)bad->epoch : (unsigned long long)bad->step,
                budget * 100, bad->path, bad->reason);
    }
    return code;
}

/* --- behind a step -------------------------------------------------------------------------------- */

void np_run_write_bad(struct np_run *run, const struct np_bad_sample *bad)
{
    struct np_json *line = &run->line;

    if (bad->kind == NP_BATCH_TRAIN) {
        if (bad->epoch != run->position.bad_epoch)
            run->position.nr_bad = 0;
        run->position.bad_epoch = bad->epoch;
        run->position.nr_bad++;
    }
    np_json_begin(line, "bad_sample");
    np_json_text(line, "path", bad->path);
    np_json_int(line, "offset", (int64_t)bad->offset);
    np_json_text(line, "reason", bad->reason);
    np_json_text(line, "set", bad->kind == NP_BATCH_TRAIN ? "train" : np_run_set_name(run));
    np_json_int(line, "step", (int64_t)bad->step);
    np_json_int(line, "epoch", bad->epoch);
    np_json_int(line, "position", bad->position);
    np_json_int(line, "sample", (int64_t)bad->sample);
    const char *text = np_json_end(line);
    np_log_line(&run->log, NP_LOG_BAD, text);
    np_ui_event(&run->ui, text);
    const char *fate = run->config->loader.bad_fail  ? ""
                       : bad->kind == NP_BATCH_TRAIN ? " replaced"
                                                     : " left out";
    np_run_say(run, "bad sample%s: %s: %s", fate, bad->path, bad->reason);
}

static int compare_bad(const void *left, const void *right)
{
    const struct np_bad_sample *a = left, *b = right;

    if (a->step != b->step)
        return a->step < b->step ? -1 : 1;
    if (a->kind != b->kind)
        return a->kind < b->kind ? -1 : 1;
    if (a->epoch != b->epoch)
        return a->epoch < b->epoch ? -1 : 1;
    if (a->position != b->position)
        return a->position < b->position ? -1 : 1;
    return strcmp(a->path, b->path);
}

void np_run_take_bad(struct np_run *run, uint64_t steps_done, bool eval_done)
{
    int kept = 0;

    if (!run->comm) /* else np_run_judge_bad() has done it */
        drain_bad(run);
    if (run->nr_bad == 0)
        return;
    qsort(run->bad, (size_t)run->nr_bad, sizeof(*run->bad), compare_bad);
    for (int i = 0; i < run->nr_bad; i++) {
        const struct np_bad_sample *bad = &run->bad[i];
        bool due = bad->step < steps_done ||
                   (bad->kind == NP_BATCH_EVAL && bad->step == steps_done && eval_done);
        if (due)
            np_run_write_bad(run, bad);
        else
            run->bad[kept++] = *bad;
    }
    run->nr_bad = kept;
}
