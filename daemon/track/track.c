/* Turns lines of metrics.jsonl into scalars, by a table, and hands them to each tracker. */
#include "daemon/track/track.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "loader/base/json.h"
#include "loader/base/mem.h"
#include "loader/base/text.h"

static const struct np_tracker *const np_trackers[] = {
    &np_track_tensorboard, &np_track_mlflow, &np_track_wandb, NULL};

#define MAX_TRACKERS 8
#define MAX_TAG      96
#define MAX_SCALARS  64 /* of one line */

/* A number of an event whose path begins with `path` is the scalar `tag` + the rest of the path. */
static const struct rule {
    const char *event, *path, *tag;
} rules[] = {
    {"step", "", "train/"},
    {"eval", "val_", "val/"},
    {"eval", "test_", "test/"},
    {"epoch", "epoch", "epoch/number"},
    {"epoch", "train_loss", "epoch/train_loss"},
    {"epoch", "seconds", "epoch/seconds"},
    {"pipeline", "images_per_second", "pipeline/images_per_second"},
    {"pipeline", "stall_ratio", "pipeline/stall_ratio"},
    {"pipeline", "ring_full", "pipeline/ring_full"},
    {"pipeline", "process_cpu_seconds", "pipeline/process_cpu_seconds"},
    {"pipeline", "stall_causes.", "pipeline/stall_causes."},
    {"pipeline", "reader_seconds.", "pipeline/reader_seconds."},
    {"done", "val_", "final/val_"},
    {"done", "test_", "final/test_"},
    {"done", "best_accuracy", "final/best_accuracy"},
};

struct np_track {
    const struct np_tracker *trackers[MAX_TRACKERS]; /* NULL: failed, and left out */
    void *states[MAX_TRACKERS];
    int nr_trackers;
    void (*warn)(void *context, const char *text);
    void *context;
    struct np_scalar scalars[MAX_SCALARS]; /* of the current line */
    char tags[MAX_SCALARS][MAX_TAG];
    int nr_scalars;
    const char *event;
    uint64_t step; /* of the newest line */
    bool is_due;   /* a flush, when the next step begins */
};

/* --- the config's key ---------------------------------------------------------------------- */

static int find(const struct np_node *node, unsigned *ret_which, struct np_report *report)
{
    for (int i = 0; node->kind == NP_NODE_SCALAR && np_trackers[i]; i++)
        if (np_node_is(node, np_trackers[i]->name)) {
            *ret_which |= 1u << i;
            return 0;
        }
    return np_report_add(report, node->line, node->column,
        "track: '%.40s' is no tracker; there are: " NP_TRACK_WORDS,
        node->kind == NP_NODE_SCALAR ? node->text : "a list or mapping");
}

int np_track_parse(const struct np_node *node, unsigned *ret_which, struct np_report *report)
{
    unsigned which = 0;
    int code = 0;

    if (node && node->kind == NP_NODE_LIST)
        for (int i = 0; code == 0 && i < node->nr_items; i++)
            code = find(node->items[i], &which, report);
    else if (node && !np_node_is_empty(node))
        code = find(node, &which, report);
    if (code == 0)
        *ret_which = which;
    return code;
}

struct np_node *np_track_node(unsigned which)
{
    struct np_node *list = np_node_new(NP_NODE_LIST, 0, 0);

    for (int i = 0; np_trackers[i]; i++)
        if (which & 1u << i)
            np_node_add(list, NULL, np_node_scalar(np_trackers[i]->name, 0, 0));
    return list;
}

/* --- resuming ------------------------------------------------------------------------------ */

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

bool np_tracked_again(const struct np_tracked_run *run, uint64_t step, const char *tag)
{
    const bool of_steps = begins(tag, "train/") || begins(tag, "pipeline/");

    return step > run->step ||
           (step == run->step && (begins(tag, "final/") || (run->eval_due && !of_steps)));
}

bool np_tracked_param(const char *path)
{
    return !strchr(path, '/') && !begins(path, "model") && !begins(path, "blocks") &&
           !begins(path, "track");
}

/* --- a run --------------------------------------------------------------------------------- */

static void leave_out(struct np_track *track, int i, const struct np_err *err)
{
    char *text = np_format(
        "track: %s: %s; the run continues without it", track->trackers[i]->name, err->text);

    track->warn(track->context, text);
    np_free(text);
    if (track->states[i])
        track->trackers[i]->close(track->states[i], NP_TRACK_FAILED);
    track->trackers[i] = NULL;
}

struct np_track *np_track_open(unsigned which, const struct np_tracked_run *run,
    void (*warn)(void *context, const char *text), void *context)
{
    struct np_track *track = which ? np_alloc(sizeof(*track)) : NULL;

    for (int i = 0; track && np_trackers[i]; i++) {
        struct np_err err = {0};
        const int place = track->nr_trackers;

        track->warn = warn;
        track->context = context;
        if (!(which & 1u << i))
            continue;
        track->trackers[place] = np_trackers[i];
        track->nr_trackers++;
        if (np_trackers[i]->open(run, &track->states[place], &err) < 0)
            leave_out(track, place, &err);
    }
    return track;
}

static void take_leaf(void *context, const char *path, const char *text)
{
    struct np_track *track = context;
    const int nr = track->nr_scalars;
    double value;

    if (nr == MAX_SCALARS || strcmp(path, "step") == 0 ||
        !np_text_real(text, -INFINITY, INFINITY, &value))
        return;
    for (size_t i = 0; i < sizeof(rules) / sizeof(*rules); i++)
        if (strcmp(rules[i].event, track->event) == 0 && begins(path, rules[i].path)) {
            snprintf(track->tags[nr], MAX_TAG, "%s%s", rules[i].tag, path + strlen(rules[i].path));
            track->scalars[nr] = (struct np_scalar){track->tags[nr], value};
            track->nr_scalars++;
            return;
        }
}

static void add(struct np_track *track, uint64_t step)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    const double seconds = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
    for (int i = 0; i < track->nr_trackers; i++) {
        const struct np_tracker *tracker = track->trackers[i];
        struct np_err err = {0};

        if (tracker && tracker->add(track->states[i], step, seconds, track->scalars,
                           track->nr_scalars, &err) < 0)
            leave_out(track, i, &err);
    }
}

void np_track_flush(struct np_track *track)
{
    if (track)
        track->is_due = false;
    for (int i = 0; track && i < track->nr_trackers; i++) {
        struct np_err err = {0};

        if (track->trackers[i] && track->trackers[i]->flush(track->states[i], &err) < 0)
            leave_out(track, i, &err);
    }
}

void np_track_line(struct np_track *track, const char *line)
{
    struct np_node *node = NULL;

    if (!track || !line || np_json_parse(line, strlen(line), &node, NULL) < 0)
        return;
    const double step = np_node_number(node, "step", np_node_number(node, "steps", -1));
    track->event = np_node_text(node, "event");
    track->nr_scalars = 0;
    np_node_leaves(node, take_leaf, track);
    if (step >= 0 && track->nr_scalars > 0) {
        if (track->is_due && (uint64_t)step != track->step)
            np_track_flush(track);
        track->step = (uint64_t)step;
        track->is_due |= strcmp(track->event, "step") != 0;
        add(track, track->step);
    }
    np_node_free(node);
}

void np_track_close(struct np_track *track, enum np_track_end end)
{
    for (int i = 0; track && i < track->nr_trackers; i++)
        if (track->trackers[i])
            track->trackers[i]->close(track->states[i], end);
    np_free(track);
}
