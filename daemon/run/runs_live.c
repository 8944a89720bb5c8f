/* See runs_live.h. */
#include "daemon/run/runs_live.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/analysis/model.h"
#include "daemon/analysis/profile_fields.h"
#include "daemon/run/run_folder.h"
#include "daemon/ui/progress_fields.h"
#include "loader/base/json.h"
#include "loader/base/mem.h"

#define TAIL_BYTES (1u << 20) /* of metrics.jsonl: a pipeline line is 3 KiB, a step's 0.2 */

/* A FIFO or a device would keep the caller waiting. */
char *np_run_tail(const char *dir, const char *name, size_t max_bytes, size_t *ret_bytes)
{
    char *path = np_format("%s/%s", dir, name), *text = NULL;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat status;

    if (fd < 0 || fstat(fd, &status) < 0)
        ; /* errno says why */
    else if (!S_ISREG(status.st_mode))
        errno = EINVAL;
    else if ((text = np_try_alloc(max_bytes, NULL))) {
        const off_t room = (off_t)max_bytes;
        const ssize_t n =
            pread(fd, text, max_bytes, status.st_size > room ? status.st_size - room : 0);

        *ret_bytes = n > 0 ? (size_t)n : 0;
    } else
        errno = ENOMEM;
    const int why = errno;
    if (fd >= 0)
        close(fd);
    np_free(path);
    errno = why;
    return text;
}

/* Does the process have the file open? Where its descriptors are not ours to see: yes. */
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

/* Asked of /proc: if the lock were tried, even for a moment, a run that starts just now might be refused. */
int np_run_holder(const char *dir)
{
    size_t bytes = 0;
    char *path = np_format("%s/lock", dir), *text = np_run_tail(dir, "lock", 32, &bytes);
    char number[32] = "";

    if (text)
        snprintf(number, sizeof(number), "%.*s", (int)bytes, text);
    const int pid = atoi(number);
    const bool held = pid > 0 && has_open(pid, path);
    np_free(text);
    np_free(path);
    return held ? pid : 0;
}

/* --- metrics.jsonl ---------------------------------------------------------------------------- */

/* The newest lines of a run's metrics; np_node_free each. */
struct newest {
    struct np_node *step, *pipeline; /* NULL: none */
    bool failed;                     /* the last line is an error */
};

static void free_newest(struct newest *newest)
{
    np_node_free(newest->step);
    np_node_free(newest->pipeline);
}

/* Takes the line over. true: no older line is needed. */
static bool take_line(struct newest *newest, struct np_node *line, bool is_last)
{
    const struct np_node *event = line->kind == NP_NODE_MAP ? np_node_get(line, "event") : NULL;
    struct np_node **place = np_node_is(event, "step")       ? &newest->step
                             : np_node_is(event, "pipeline") ? &newest->pipeline
                                                             : NULL;

    newest->failed |= is_last && np_node_is(event, "error");
    if (place && !*place)
        *place = line;
    else
        np_node_free(line);
    return newest->step && newest->pipeline;
}

/* Steps behind the newest are passed over unread: there are many. */
static void take_lines(struct newest *newest, const char *text, size_t bytes)
{
    static const char step[] = "{\"event\": \"step\"";
    const char *const last = memrchr(text, '\n', bytes);

    for (const char *end = last, *before; end; end = before) {
        before = memrchr(text, '\n', (size_t)(end - text));
        const char *begin = before ? before + 1 : text;
        const size_t n = (size_t)(end - begin);
        struct np_node *line = NULL;

        if (newest->step && n > sizeof(step) && memcmp(begin, step, sizeof(step) - 1) == 0)
            continue;
        if (np_json_parse(begin, n, &line, NULL) == 0 && take_line(newest, line, end == last))
            return;
    }
}

/* -errno: there is no metrics.jsonl that can be read. */
static int read_newest(const char *dir, struct newest *ret_newest, struct np_err *err)
{
    size_t bytes = 0;
    char *text = np_run_tail(dir, "metrics.jsonl", TAIL_BYTES, &bytes);

    *ret_newest = (struct newest){0};
    if (!text)
        return np_err_set(
            err, -errno, "%s/metrics.jsonl: cannot be read: %s", dir, strerror(errno));
    take_lines(ret_newest, text, bytes);
    np_free(text);
    return 0;
}

/* Lines of earlier versions have the shares of stages alone. */
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

static void read_progress(const struct newest *newest, struct np_progress *progress)
{
    const struct np_node *step = newest->step;

    *progress = np_progress_unknown;
    np_progress_read(newest->pipeline, progress);
    if (newest->pipeline)
        take_cause(newest->pipeline, progress);
    if (!step)
        return;
    if (!(np_node_number(step, "step", NAN) < progress->step)) {
        progress->step = np_node_number(step, "step", NAN);
        progress->epoch = np_node_number(step, "epoch", NAN);
    }
    if (isnan(progress->loss))
        progress->loss = np_node_number(step, "loss", NAN);
}

/* --- runs --------------------------------------------------------------------------------------- */

static const char *state_of(const char *dir, int pid, const struct newest *newest)
{
    return pid > 0                     ? "running"
           : newest->failed            ? "failed"
           : np_folder_result(dir) < 0 ? "stopped"
                                       : "done";
}

/* The folder's name: the last part of its path. */
static void write_name(struct np_json *json, const char *dir)
{
    size_t n = strlen(dir);
    char name[256];

    while (n > 1 && dir[n - 1] == '/')
        n--;
    const char *slash = memrchr(dir, '/', n);
    const char *begin = slash && slash + 1 < dir + n ? slash + 1 : dir;
    snprintf(name, sizeof(name), "%.*s", (int)(dir + n - begin), begin);
    np_text_clean(name);
    np_json_text(json, "name", name);
}

static int write_run(struct np_json *json, const char *dir, int pid, struct np_err *err)
{
    struct np_progress progress;
    struct newest newest;
    const int code = read_newest(dir, &newest, err);

    if (code < 0)
        return code;
    const struct np_node *knobs = newest.pipeline ? np_node_get(newest.pipeline, "knobs") : NULL;
    const struct np_node *device =
        knobs && knobs->kind == NP_NODE_MAP ? np_node_get(knobs, "device") : NULL;
    read_progress(&newest, &progress);
    np_json_open(json, NULL, '{');
    write_name(json, dir);
    np_json_text(json, "state", state_of(dir, pid, &newest));
    np_json_int(json, "pid", pid);
    np_json_text(json, "dir", dir);
    np_json_text(json, "assigned", device && device->kind == NP_NODE_SCALAR ? device->text : NULL);
    np_json_open(json, "progress", '{');
    np_progress_write(json, &progress, false);
    np_json_close(json, '}');
    np_json_close(json, '}');
    free_newest(&newest);
    return 0;
}

static int by_name(const struct dirent **left, const struct dirent **right)
{
    return strcmp((*left)->d_name, (*right)->d_name);
}

static int is_shown(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

/* A run that ends meanwhile is left out. */
static int write_running(struct np_json *json, const char *runs, struct np_err *err)
{
    struct dirent **entries = NULL;
    const int nr = scandir(runs, &entries, is_shown, by_name);

    if (nr < 0 && errno != ENOENT)
        return np_err_set(err, -errno, "%s: cannot be read: %s", runs, strerror(errno));
    for (int i = 0; i < nr; i++) {
        char *dir = np_format("%s/%s", runs, entries[i]->d_name);
        const int pid = np_run_holder(dir);

        if (pid > 0)
            write_run(json, dir, pid, NULL);
        np_free(dir);
        free(entries[i]);
    }
    free(entries);
    return 0;
}

int np_live_runs(const char *runs, const char *dir, struct np_node **ret_answer, struct np_err *err)
{
    struct np_json json = {0};

    np_json_begin(&json, NULL);
    np_json_open(&json, "runs", '[');
    int code =
        dir ? write_run(&json, dir, np_run_holder(dir), err) : write_running(&json, runs, err);
    np_json_close(&json, ']');
    const char *text = np_json_end(&json);
    if (code == 0)
        code = text ? np_json_parse(text, strlen(text), ret_answer, err)
                    : np_err_set(err, -ENOMEM, "out of memory");
    np_json_fini(&json);
    return code;
}

/* NULL: no name begins with the word. np_free. */
static char *find_prefix(const char *runs, const char *word)
{
    DIR *folder = *word ? opendir(runs) : NULL;
    char *found = NULL;
    time_t newest = 0;

    for (const struct dirent *entry; folder && (entry = readdir(folder));) {
        struct stat status;
        char *metrics = np_format("%s/%s/metrics.jsonl", runs, entry->d_name);

        if (strncmp(entry->d_name, word, strlen(word)) == 0 && stat(metrics, &status) == 0 &&
            (!found || status.st_mtime >= newest)) {
            np_free(found);
            found = np_format("%s/%s", runs, entry->d_name);
            newest = status.st_mtime;
        }
        np_free(metrics);
    }
    if (folder)
        closedir(folder);
    return found;
}

char *np_live_find(const char *runs, const char *word)
{
    char *below = strchr(word, '/') ? NULL : np_format("%s/%s", runs, word);

    if (below && access(below, F_OK) == 0)
        return below;
    if (below && access(word, F_OK) != 0) {
        np_free(below);
        below = find_prefix(runs, word);
        return below ? below : np_strdup(word);
    }
    np_free(below);
    return np_strdup(word);
}

/* --- stages ------------------------------------------------------------------------------------- */

const struct np_node *np_live_pipeline(const struct np_node *points)
{
    for (int i = points && points->kind == NP_NODE_LIST ? points->nr_items - 1 : -1; i >= 0; i--) {
        const struct np_node *line = points->items[i];

        if (line->kind == NP_NODE_MAP && np_node_is(np_node_get(line, "event"), "pipeline"))
            return line;
    }
    return NULL;
}

struct np_node *np_live_read_pipeline(const char *dir)
{
    struct newest newest;

    if (read_newest(dir, &newest, NULL) < 0)
        return NULL;
    np_node_free(newest.step);
    return newest.pipeline;
}

bool np_live_profile(
    const struct np_node *pipeline, struct np_profile *ret_profile, char *text, size_t bytes)
{
    struct np_observation seen = {0};
    struct np_knobs knobs = {0};

    if (np_fields_read_observation(pipeline, &seen, NULL) < 0 ||
        np_fields_read(np_node_get(pipeline, "knobs"), "knobs", np_fields_knobs, &knobs, NULL) <
            0 ||
        !(seen.seconds > 0) || knobs.readers <= 0)
        return false;
    np_profile_look(&seen, &knobs, ret_profile);
    text[0] = '\0';
    for (int s = 0; s < NP_STAGE_CHECKPOINT; s++)
        if (s != NP_STAGE_BATCH && seen.stages[s].items > 0 &&
            isinf(np_model_ceiling(&ret_profile->model, (enum np_stage)s, NP_NR_STAGES)))
            snprintf(text + strlen(text), bytes - strlen(text), "%s%s", *text ? ", " : "",
                np_stage_names[s]);
    return true;
}
