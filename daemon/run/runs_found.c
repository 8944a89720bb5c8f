#include "daemon/run/runs_found.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "loader/base/json.h"
#include "daemon/run/run_folder.h"
#include "loader/base/io.h"
#include "loader/base/mem.h"
#include "trainer/checkpoint/manifest.h"

#define LIVE_BYTES (1u << 20)   /* of metrics.jsonl: a pipeline line is 3 KiB, a step's 0.2 */
#define TAIL_BYTES (256u << 10) /* the same without `live` */
#define MAX_LINES  4096

const char *const np_run_states[] = {"running", "done", "failed", "stopped"};

/* The mtime of a regular file, else 0: opening a FIFO or a device could block. */
static time_t regular(const char *dir, const char *name)
{
    char *path = np_format("%s/%s", dir, name);
    struct stat stat_;
    const bool is = stat(path, &stat_) == 0 && S_ISREG(stat_.st_mode);

    np_free(path);
    return is ? stat_.st_mtime : 0;
}

/* --- its process --------------------------------------------------------------------------- */

/* Reads at most the last max_bytes of a regular file. NULL: no such file, or out of memory.
 * np_free. */
static char *read_tail(const char *dir, const char *name, size_t max_bytes, size_t *ret_bytes)
{
    char *path = np_format("%s/%s", dir, name), *text = NULL;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat stat_;

    if (fd >= 0 && fstat(fd, &stat_) == 0 && S_ISREG(stat_.st_mode) &&
        (text = np_try_alloc(max_bytes, NULL)) != NULL) {
        const off_t more = stat_.st_size - (off_t)max_bytes;
        const ssize_t n = pread(fd, text, max_bytes, more > 0 ? more : 0);

        *ret_bytes = n > 0 ? (size_t)n : 0;
    }
    if (fd >= 0)
        close(fd);
    np_free(path);
    return text;
}

/* Does the process have the file open? If /proc/PID/fd is not readable: assume yes. */
static bool has_open(int pid, const char *path)
{
    char folder[64], link[PATH_MAX], want[PATH_MAX];
    bool found = false;

    snprintf(folder, sizeof(folder), "/proc/%d/fd", pid);
    DIR *fds = opendir(folder);
    if (!fds)
        return errno == EACCES;
    const bool known = realpath(path, want) != NULL;
    for (struct dirent *entry; known && !found && (entry = readdir(fds));) {
        const ssize_t n = readlinkat(dirfd(fds), entry->d_name, link, sizeof(link) - 1);

        link[n > 0 ? n : 0] = '\0';
        found = strcmp(link, want) == 0;
    }
    closedir(fds);
    return found;
}

/* The process that holds dir/lock, from /proc: locking it, even briefly, could make a starting
 * run fail. */
static int holder_of(const char *dir)
{
    size_t bytes = 0;
    char *path = np_format("%s/lock", dir), *text = read_tail(dir, "lock", 32, &bytes);
    char number[32] = "";

    if (text)
        snprintf(number, sizeof(number), "%.*s", (int)bytes, text);
    const int pid = atoi(number);
    const bool held = pid > 0 && has_open(pid, path);
    np_free(text);
    np_free(path);
    return held ? pid : 0;
}

/* --- metrics.jsonl ------------------------------------------------------------------------- */

static void take_set(struct np_found_run *run, const char *set)
{
    if (!*run->set)
        snprintf(run->set, sizeof(run->set), "%.7s", set);
}

static void take_eval(struct np_found_run *run, const struct np_node *line)
{
    const bool val = np_node_get(line, "val_accuracy") != NULL;
    const double accuracy = np_node_number(line, val ? "val_accuracy" : "test_accuracy", NAN);

    if (isnan(run->accuracy)) {
        run->accuracy = accuracy;
        run->loss = np_node_number(line, val ? "val_loss" : "test_loss", NAN);
    }
    take_set(run, val ? "val" : "test");
    /* A line of a run with another train.best says it; the newest such line counts. Of equal
     * accuracies the first counts. */
    const struct np_node *best = np_node_get(line, "best");

    if (best ? np_node_is(best, "true") && isnan(run->best_step)
             : !isnan(accuracy) && !(accuracy < run->best_accuracy)) {
        run->best_accuracy = accuracy;
        run->best_step = np_node_number(line, "step", NAN);
    }
}

/* Takes one line; the newest comes first. true: run owns the line now. */
static bool take_line(struct np_found_run *run, struct np_node *line, bool newest)
{
    const struct np_node *event = np_node_get(line, "event"),
                         *message = np_node_get(line, "message");
    struct np_node **place = np_node_is(event, "step")       ? &run->step
                             : np_node_is(event, "pipeline") ? &run->pipeline
                                                             : NULL;

    if (np_node_is(event, "error") && newest && message && message->kind == NP_NODE_SCALAR)
        run->message = np_strdup(message->text);
    if (np_node_is(event, "eval"))
        take_eval(run, line);
    if (!place || *place)
        return false;
    *place = line;
    return true;
}

/* Steps and pipeline lines other than the newest are not parsed: there are many. */
static bool worth_reading(const struct np_found_run *run, const char *text, size_t bytes)
{
    static const char step[] = "{\"event\": \"step\"", pipeline[] = "{\"event\": \"pipeline\"";

    if (bytes > sizeof(step) && memcmp(text, step, sizeof(step) - 1) == 0)
        return !run->step;
    if (bytes > sizeof(pipeline) && memcmp(text, pipeline, sizeof(pipeline) - 1) == 0)
        return !run->pipeline;
    return true;
}

/* Older versions wrote the shares of stages but no cause. */
static void take_cause(const struct np_node *pipeline, struct np_progress *progress)
{
    const struct np_node *causes = np_node_get(pipeline, "stall_causes");
    double max = 0;

    if (*progress->cause || !(progress->stall_ratio >= 0.005) || !causes ||
        causes->kind != NP_NODE_MAP)
        return;
    for (int i = 0; i < causes->nr_items; i++) {
        const char *stage = causes->items[i]->key;
        const double share = np_node_number(causes, stage, 0);

        if (share > max)
            snprintf(progress->cause, sizeof(progress->cause), "%s", stage);
        max = fmax(max, share);
    }
    np_text_clean(progress->cause);
}

static void read_progress(struct np_found_run *run)
{
    struct np_progress *progress = &run->progress;
    const struct np_node *step = run->step;

    np_progress_read(run->pipeline, progress);
    if (run->pipeline)
        take_cause(run->pipeline, progress);
    if (!step)
        return;
    run->train_loss = np_node_number(step, "loss", NAN);
    run->lr = np_node_number(step, "lr", NAN);
    if (!(np_node_number(step, "step", NAN) < progress->step)) {
        progress->step = np_node_number(step, "step", NAN);
        progress->epoch = np_node_number(step, "epoch", NAN);
    }
    if (isnan(progress->loss))
        progress->loss = run->train_loss;
}

/* live: stops after the newest step and pipeline lines. */
static void take_metrics(struct np_found_run *run, bool live)
{
    size_t bytes = 0;
    char *text = read_tail(run->dir, "metrics.jsonl", live ? LIVE_BYTES : TAIL_BYTES, &bytes);
    const char *end = text ? memrchr(text, '\n', bytes) : NULL;

    for (int nr = 0; end && (live ? !run->step || !run->pipeline : nr < MAX_LINES); nr++) {
        const char *before = memrchr(text, '\n', (size_t)(end - text));
        const char *begin = before ? before + 1 : text;
        struct np_node *line = NULL;

        if (!worth_reading(run, begin, (size_t)(end - begin)) ||
            np_json_parse(begin, (size_t)(end - begin), &line, NULL) < 0 ||
            line->kind != NP_NODE_MAP || !take_line(run, line, nr == 0))
            np_node_free(line);
        end = before;
    }
    np_free(text);
    read_progress(run);
}

/* --- result.json, checkpoints, config.yaml ------------------------------------------------- */

static void take_overrides(struct np_found_run *run, const struct np_node *from)
{
    const struct np_node *list = np_node_get(from, "overrides");

    if (!run->overrides && list && list->kind == NP_NODE_LIST)
        run->overrides = np_node_copy(list);
}

static void take_done(struct np_found_run *run, const struct np_node *result)
{
    const struct np_node *set = np_node_get(result, "best_set");
    const bool val = np_node_get(result, "val_accuracy") != NULL;
    const char *name = set && set->kind == NP_NODE_SCALAR ? set->text : val ? "val" : "test";

    run->state = NP_RUN_DONE;
    run->progress.step = run->progress.total_steps = np_node_number(result, "steps", NAN);
    run->progress.epoch = np_node_number(result, "epochs", NAN);
    run->best_accuracy = np_node_number(result, "best_accuracy", run->best_accuracy);
    run->best_step = np_node_number(result, "best_step", run->best_step);
    run->lr = np_node_number(result, "last_lr", run->lr);
    run->accuracy =
        np_node_number(result, "test_accuracy", np_node_number(result, "val_accuracy", NAN));
    run->loss = np_node_number(result, "test_loss", np_node_number(result, "val_loss", NAN));
    if (!isnan(run->accuracy))
        take_set(run, name);
    if (np_node_get(result, "reason"))
        run->reason = np_strdup(np_node_text(result, "reason"));
    take_overrides(run, result);
}

/* Ignores the result of a run that has been made longer since: its metrics are newer. */
static void take_result(struct np_found_run *run)
{
    struct np_node *result = NULL;

    if (regular(run->dir, "result.json") &&
        !(np_folder_result(run->dir, &result) < run->progress.step) && result)
        take_done(run, result);
    np_node_free(result);
}

/* The manifest of `best` was written when that checkpoint was the best. */
static void take_best(struct np_found_run *run)
{
    char *path = np_format("%s/checkpoints/best/manifest.json", run->dir), *facts = NULL;
    struct np_manifest manifest = {0};
    struct np_node *node = NULL;

    if (regular(run->dir, "checkpoints/best/manifest.json") &&
        np_manifest_read(path, &manifest, &facts, NULL) == 0) {
        if (manifest.position.best_step > 0 &&
            !(manifest.position.best_accuracy < run->best_accuracy)) {
            run->best_accuracy = manifest.position.best_accuracy;
            run->best_step = (double)manifest.position.best_step;
        }
        if (np_json_parse(facts, strlen(facts), &node, NULL) == 0 && node->kind == NP_NODE_MAP)
            take_overrides(run, node);
    }
    np_node_free(node);
    np_free(facts);
    np_free(path);
}

/* --- one run ------------------------------------------------------------------------------- */

static bool is_run(const char *dir)
{
    return regular(dir, "config.yaml") != 0;
}

/* Adds a run of which nothing is known. Takes ownership of dir. */
static struct np_found_run *add_run(struct np_found_runs *runs, char *dir, int pid)
{
    np_grow(&runs->runs, &runs->room, (size_t)runs->nr_runs + 1, sizeof(*runs->runs));
    struct np_found_run *run = &runs->runs[runs->nr_runs++];

    *run = (struct np_found_run){.dir = dir,
        .name = strrchr(dir, '/') ? strrchr(dir, '/') + 1 : dir,
        .started = regular(dir, "config.yaml"),
        .state = NP_RUN_STOPPED,
        .pid = pid,
        .progress = np_progress_unknown,
        .train_loss = NAN,
        .lr = NAN,
        .loss = NAN,
        .accuracy = NAN,
        .best_accuracy = NAN,
        .best_step = NAN};
    return run;
}

/* Takes ownership of dir. */
static void read_run(struct np_found_runs *runs, char *dir, int pid, bool live)
{
    struct np_found_run *run = add_run(runs, dir, pid);

    take_metrics(run, live);
    take_result(run);
    if (!live) {
        take_best(run);
        np_folder_config(dir, &run->config, NULL);
        run->bytes = np_folder_bytes(dir);
    }
    if (run->message && run->state != NP_RUN_DONE)
        run->state = NP_RUN_FAILED;
    if (pid > 0)
        run->state = NP_RUN_RUNNING;
}

/* dir without slashes at its end. np_free. */
static char *trimmed(const char *dir)
{
    size_t n = strlen(dir);

    while (n > 1 && dir[n - 1] == '/')
        n--;
    return np_format("%.*s", (int)n, dir);
}

void np_runs_add_unstarted(struct np_found_runs *runs, const char *dir, struct np_node *config)
{
    add_run(runs, trimmed(dir), 0)->config = config;
}

int np_runs_find(const char *dir, bool live, struct np_found_runs *runs, struct np_err *err)
{
    if (is_run(dir)) {
        read_run(runs, trimmed(dir), holder_of(dir), live);
        return 0;
    }
    DIR *folder = opendir(dir);
    if (!folder)
        return np_err_set(err, -errno, "%s: cannot be read: %s", dir, strerror(errno));
    char *base = trimmed(dir);
    for (const struct dirent *item; (item = readdir(folder));) {
        char *path = item->d_name[0] == '.' ? NULL : np_format("%s/%s", base, item->d_name);

        const int pid = path && is_run(path) ? holder_of(path) : -1;

        if (pid > (live ? 0 : -1))
            read_run(runs, path, pid, live);
        else
            np_free(path);
    }
    closedir(folder);
    np_free(base);
    return 0;
}

void np_runs_free(struct np_found_runs *runs)
{
    for (int i = 0; i < runs->nr_runs; i++) {
        np_free(runs->runs[i].dir);
        np_free(runs->runs[i].message);
        np_free(runs->runs[i].reason);
        np_node_free(runs->runs[i].step);
        np_node_free(runs->runs[i].pipeline);
        np_node_free(runs->runs[i].config);
        np_node_free(runs->runs[i].overrides);
        np_node_free(runs->runs[i].differs);
    }
    np_free(runs->runs);
    *runs = (struct np_found_runs){0};
}

char *np_runs_folder(const char *runs, const char *word)
{
    char *found = np_format("%s/%s", runs, word);
    time_t newest = 1;

    if (!strchr(word, '/') && access(found, F_OK) == 0)
        return found;
    np_free(found);
    found = trimmed(word);
    DIR *folder = strchr(word, '/') || access(word, F_OK) == 0 ? NULL : opendir(runs);
    for (const struct dirent *item; folder && (item = readdir(folder));) {
        char *path = np_format("%s/%s", runs, item->d_name);
        const bool begins = strncmp(item->d_name, word, strlen(word)) == 0;
        const time_t written = begins ? regular(path, "metrics.jsonl") : 0;

        if (written >= newest) {
            np_free(found);
            found = np_strdup(path);
            newest = written;
        }
        np_free(path);
    }
    if (folder)
        closedir(folder);
    return found;
}

/* --- as the service sends them ------------------------------------------------------------- */

static void write_run(struct np_json *json, const struct np_found_run *run)
{
    const struct np_node *knobs = run->pipeline ? np_node_get(run->pipeline, "knobs") : NULL;
    const char *device = np_node_text(knobs, "device");

    np_json_open(json, NULL, '{');
    np_json_text(json, "name", run->name);
    np_json_text(json, "state", np_run_states[run->state]);
    np_json_int(json, "pid", run->pid);
    np_json_text(json, "dir", run->dir);
    np_json_text(json, "assigned", *device ? device : NULL);
    np_json_open(json, "progress", '{');
    np_progress_write(json, &run->progress, false);
    np_json_close(json, '}');
    np_json_close(json, '}');
}

static int by_name(const void *left, const void *right)
{
    const struct np_found_run *a = left, *b = right;

    return strcmp(a->dir, b->dir);
}

void np_runs_write(struct np_json *json, struct np_found_runs *runs)
{
    if (runs->nr_runs > 0)
        qsort(runs->runs, (size_t)runs->nr_runs, sizeof(*runs->runs), by_name);
    np_json_open(json, "runs", '[');
    for (int i = 0; i < runs->nr_runs; i++)
        write_run(json, &runs->runs[i]);
    np_json_close(json, ']');
}

void np_run_write_result(struct np_json *json, const struct np_found_run *run)
{
    np_json_text(json, "set", *run->set ? run->set : NULL);
    np_json_real(json, "best_accuracy", run->best_accuracy);
    np_json_real(json, "best_step", run->best_step);
    np_json_real(json, "accuracy", run->accuracy);
    np_json_real(json, "loss", run->loss);
}
