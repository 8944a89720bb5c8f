/* Rank 0 says at which steps a window ends, so that all ranks see the same steps. */
#include "daemon/profile/profile_ranks.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "daemon/analysis/observe.h"
#include "daemon/analysis/words.h"
#include "daemon/run/run_options.h"
#include "loader/base/clock.h"
#include "loader/base/json.h"
#include "loader/base/mem.h"
#include "loader/base/text.h"

#define WINDOW_S  0.5
#define MIN_STEPS 4 /* of a window, and of the warm-up */

struct mark { /* the end of a window */
    struct np_snapshot snapshot;
    uint64_t waited_ns;
};

struct measuring {
    struct np_ranks_profile *profile;
    const struct np_launch *launch;
    double pace;
    uint64_t first_ns; /* end of the first step; 0: not yet */
    uint64_t first_step, mark_step;
    struct mark marks[NP_RANK_WINDOWS + 1];
    int nr_marks;
    int code; /* of the exchange of what was seen */
    struct np_err err;
};

/* Of rank 0: is the step that is done the end of the warm-up, or of a window? */
static bool is_mark(const struct measuring *m, const struct np_observed *seen)
{
    const uint64_t now = np_now_ns();
    const uint64_t since_ns = m->nr_marks ? m->marks[m->nr_marks - 1].snapshot.ns : m->first_ns;
    const uint64_t since_step = m->nr_marks ? m->mark_step : m->first_step;
    const double seconds = (m->nr_marks ? WINDOW_S : NP_WARMUP_S) * m->pace;

    return seen->steps >= since_step + MIN_STEPS && (double)(now - since_ns) * 1e-9 >= seconds;
}

static void take_window(
    const struct measuring *m, const struct np_observed *seen, int w, struct np_rank_seen *own)
{
    const struct mark *start = &m->marks[w], *end = &m->marks[w + 1];
    struct np_rank_window *window = &own->windows[w];
    struct np_observation observed;

    np_observe_between(seen, &start->snapshot, &end->snapshot, &observed);
    *window = (struct np_rank_window){.seconds = observed.seconds,
        .steps = (double)observed.steps,
        .others_s = (double)(end->waited_ns - start->waited_ns) * 1e-9,
        .late_s = observed.stall_s,
        .checkpoint_s = observed.checkpoint_s,
        .cpu_s = observed.process_cpu_s,
        .reader_s = (observed.reader_s[NP_STATE_WORK] + observed.reader_s[NP_STATE_IO_WAIT]) /
                    fmax(observed.nr_readers, 1),
        .device_s = (double)observed.feed.compute_ns * 1e-9};
    memcpy(window->late_of, observed.blame_s, sizeof(window->late_of));
    for (int s = 0; s < NP_NR_STAGES; s++)
        own->p99_s[s] = observed.stages[s].p99_s;
}

/* Exchanges what the ranks have seen. */
static void finish(struct measuring *m, struct np_run *run, const struct np_observed *seen)
{
    struct np_ranks_profile *profile = m->profile;
    struct np_rank_seen own = {.rank = m->launch->rank, .readers = seen->knobs->readers};

    gethostname(own.host, sizeof(own.host) - 1);
    snprintf(own.device, sizeof(own.device), "%s", seen->knobs->device);
    for (int w = 0; w < NP_RANK_WINDOWS; w++)
        take_window(m, seen, w, &own);
    profile->batch = seen->knobs->batch;
    profile->seen = np_try_array((size_t)m->launch->world, sizeof(*profile->seen), &m->err);
    m->code = profile->seen
                  ? np_comm_gather(np_run_comm(run), &own, profile->seen, sizeof(own), &m->err)
                  : -ENOMEM;
}

static bool on_step(void *context, struct np_run *run, const struct np_observed *seen)
{
    struct measuring *m = context;
    struct np_comm *comm = np_run_comm(run);
    uint32_t mark;

    if (m->first_ns == 0) {
        m->first_ns = np_now_ns();
        m->first_step = seen->steps;
    }
    mark = is_mark(m, seen);
    if ((m->code = np_comm_broadcast(comm, &mark, sizeof(mark), &m->err)) < 0)
        return true;
    if (!mark)
        return false;
    np_observe_now(seen, &m->marks[m->nr_marks].snapshot);
    m->marks[m->nr_marks++].waited_ns = np_comm_waited_ns(comm);
    m->mark_step = seen->steps;
    if (m->nr_marks <= NP_RANK_WINDOWS)
        return false;
    finish(m, run, seen);
    return true;
}

int np_ranks_measure(struct np_rig *rig, const struct np_launch *launch,
    struct np_ranks_profile *ret_profile, struct np_err *err)
{
    struct measuring *m = np_alloc(sizeof(*m));
    const struct np_trial_options options = {.step = on_step, .context = m, .launch = launch};
    struct np_observation unused;

    *m = (struct measuring){.profile = ret_profile, .launch = launch, .pace = rig->pace};
    int code = np_trial_run(rig, &options, &unused, err);
    if (code == 0 && (code = m->code) < 0)
        np_err_set(err, code, "%s", m->err.text);
    if (code == 0) {
        struct np_ranks *ranks = &ret_profile->ranks;

        ranks->nr = launch->world;
        ranks->seen = ret_profile->seen;
        ranks->times = np_alloc_array((size_t)ranks->nr, sizeof(*ranks->times));
        np_ranks_judge(ranks, ret_profile->batch);
    }
    np_free(m);
    return code;
}

void np_ranks_fini(struct np_ranks_profile *profile)
{
    np_free(profile->seen);
    np_free(profile->ranks.times);
}

/* --- the report ----------------------------------------------------------------------------- */

static void write_rank(
    struct np_json *json, const struct np_rank_seen *seen, const struct np_rank_times *times)
{
    np_json_line(json);
    np_json_open(json, NULL, '{');
    np_json_int(json, "rank", seen->rank);
    np_json_text(json, "host", seen->host);
    np_json_text(json, "device", seen->device);
    np_json_int(json, "readers", seen->readers);
    np_json_real(json, "compute_seconds", times->compute_s);
    np_json_real(json, "late_seconds", times->late_s);
    np_json_text(json, "late_stage", times->late_s > 0 ? np_stage_names[times->late_most] : NULL);
    np_json_real(json, "checkpoint_seconds", times->checkpoint_s);
    np_json_real(json, "others_seconds", times->others_s);
    np_json_real(json, "cpu_seconds", times->cpu_s);
    np_json_real(json, "reader_seconds", times->reader_s);
    np_json_real(json, "device_seconds", times->device_s);
    np_json_close(json, '}');
}

char *np_ranks_json(const struct np_ranks_profile *profile, struct np_err *err)
{
    const struct np_ranks *ranks = &profile->ranks;
    const bool named = ranks->slowest >= 0;
    struct np_json json = {0};

    np_json_begin(&json, "done");
    np_json_text(&json, "config", profile->config);
    np_json_text(&json, "verdict", named ? "rank" : "even");
    np_json_real(&json, "images_per_second", ranks->images_per_second);
    np_json_real(&json, "step_seconds", ranks->times[0].step_s);
    np_json_real(&json, "slowest_rank", named ? ranks->slowest : NAN);
    np_json_text(&json, "limiter", named ? np_stage_names[ranks->stage] : NULL);
    np_json_real(&json, "excess_seconds", ranks->excess_s);
    np_json_real(&json, "gain", ranks->gain);
    np_json_real(&json, "exchange_seconds", ranks->exchange_s);
    np_json_int(&json, "windows", NP_RANK_WINDOWS);
    np_json_int(&json, "slowest_windows", ranks->nr_windows);
    np_json_text(&json, "reason", ranks->text);
    np_json_open(&json, "ranks", '[');
    for (int r = 0; r < ranks->nr; r++)
        write_rank(&json, &ranks->seen[r], &ranks->times[r]);
    np_json_close(&json, ']');
    return np_json_take(&json, err);
}

static void print_rank(
    const struct np_rank_seen *seen, const struct np_rank_times *times, bool is_slowest, FILE *out)
{
    char late[64] = "-";

    if (times->late_s > 0.0005 * times->step_s)
        snprintf(late, sizeof(late), "%s %s", np_words_time(times->late_s).text,
            np_stage_names[times->late_most]);
    fprintf(out, "%s%4d  %-20.20s %-8.8s %9s  %-18s %9s  %9s\n", is_slowest ? ">" : " ", seen->rank,
        seen->host, seen->device, np_words_time(times->compute_s).text, late,
        times->checkpoint_s > 0 ? np_words_time(times->checkpoint_s).text : "-",
        np_words_time(times->others_s).text);
}

#define COLUMNS 79
#define INDENT  10

static void print_wrapped(const char *label, const char *text, FILE *out)
{
    int column = (int)strlen(label);

    fputs(label, out);
    for (size_t n; *text; text += n, text += strspn(text, " ")) {
        char word[128];

        n = strcspn(text, " ");
        snprintf(word, sizeof(word), "%.*s", (int)n, text);
        if (column + 1 + np_text_columns(word) > COLUMNS)
            column = fprintf(out, "\n%*s", INDENT - 1, "") - 1;
        fprintf(out, " %s", word);
        column += 1 + np_text_columns(word);
    }
    fputs(".\n", out);
}

void np_ranks_print(const struct np_ranks_profile *profile, FILE *out)
{
    const struct np_ranks *ranks = &profile->ranks;

    fprintf(out, " %d processes: %s img/s, a step takes %s\n", ranks->nr,
        np_words_rate(ranks->images_per_second).text, np_words_time(ranks->times[0].step_s).text);
    print_wrapped(ranks->slowest >= 0 ? " SLOWEST:" : " EVEN:   ", ranks->text, out);
    if (ranks->slowest >= 0)
        fprintf(out, " THEN:    about %s img/s (%s) if it were as fast as the others\n",
            np_words_rate(ranks->images_per_second * ranks->gain).text,
            np_words_gain(ranks->gain).text);
    fprintf(out, "\n rank  %-20s %-8s %9s  %-18s %9s  %9s\n", "host", "device", "computes",
        "waits for data", "saves", "others");
    for (int r = 0; r < ranks->nr; r++)
        print_rank(&ranks->seen[r], &ranks->times[r], r == ranks->slowest, out);
    if (*profile->files)
        fprintf(out, "\n files: %s\n", profile->files);
}
