/* See top.h. */
#include "daemon/client/top.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "loader/base/json.h"
#include "daemon/analysis/profile_fields.h"
#include "loader/base/mem.h"

#define TAIL_BYTES (1u << 20) /* of metrics.jsonl: a pipeline line is 3 KiB, a step's 0.2 */

/* The last bytes of a file. */
static ssize_t read_tail(const char *dir, const char *name, char *text, size_t room)
{
    char *path = np_format("%s/%s", dir, name);
    const int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    const off_t size = fd >= 0 ? lseek(fd, 0, SEEK_END) : 0;
    ssize_t n = fd >= 0 ? pread(fd, text, room, size > (off_t)room ? size - (off_t)room : 0) : -1;

    if (fd >= 0)
        close(fd);
    np_free(path);
    return n;
}

/* Has the process the file open? One whose descriptors are not ours to see is believed. */
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

/* Asked of /proc: a lock tried, even for a moment, might turn a run away that begins just now. */
int np_top_holder(const char *dir)
{
    char text[32], *path = np_format("%s/lock", dir);
    const ssize_t n = read_tail(dir, "lock", text, sizeof(text) - 1);

    text[n > 0 ? n : 0] = '\0';
    const int pid = atoi(text);
    const bool held = path && pid > 0 && has_open(pid, path);
    np_free(path);
    return held ? pid : 0;
}

static void take_pipeline(struct np_top_run *run, const struct np_node *line)
{
    const struct np_node *causes = np_node_get(line, "stall_causes");
    double most = 0;

    run->total_steps = np_node_number(line, "total_steps", -1);
    run->images_per_second = np_node_number(line, "images_per_second", -1);
    run->stall_ratio = np_node_number(line, "stall_ratio", -1);
    run->eta_seconds = np_node_number(line, "eta_seconds", -1);
    for (int s = 0; causes && causes->kind == NP_NODE_MAP && s < NP_NR_STAGES; s++) {
        const double share = np_node_number(causes, np_stage_names[s], 0);

        if (share > most)
            snprintf(run->cause, sizeof(run->cause), "%s", np_stage_names[s]);
        most = fmax(most, share);
    }
    run->seen = np_fields_read_observation(line, &run->observation, NULL) == 0 &&
                np_fields_read(
                    np_node_get(line, "knobs"), "knobs", np_fields_knobs, &run->knobs, NULL) == 0 &&
                run->observation.seconds > 0 && run->knobs.readers > 0;
}

/* true: nothing older is needed. */
static bool take_node(struct np_top_run *run, const struct np_node *line)
{
    if (line->kind != NP_NODE_MAP)
        return false;
    const struct np_node *event = np_node_get(line, "event");
    const bool step = np_node_is(event, "step"), pipeline = np_node_is(event, "pipeline");
    if ((step || pipeline) && run->step < 0) {
        run->step = np_node_number(line, "step", -1);
        run->epoch = np_node_number(line, "epoch", -1);
    }
    if (step && isnan(run->loss))
        run->loss = np_node_number(line, "loss", NAN);
    if (pipeline)
        take_pipeline(run, line);
    return pipeline && !isnan(run->loss);
}

static bool take_line(struct np_top_run *run, const char *text, size_t bytes)
{
    struct np_node *line = NULL;

    if (np_json_parse(text, bytes, &line, NULL) < 0)
        return false;
    const bool enough = take_node(run, line);
    np_node_free(line);
    return enough;
}

/* The newest first. Steps behind the newest pipeline line, but for one, are passed over unread. */
static void take_lines(struct np_top_run *run, const char *text, size_t bytes)
{
    static const char step[] = "{\"event\": \"step\"";
    const char *end = memrchr(text, '\n', bytes);

    while (end) {
        const char *before = memrchr(text, '\n', (size_t)(end - text));
        const char *begin = before ? before + 1 : text;
        const size_t n = (size_t)(end - begin);
        const bool known =
            n > sizeof(step) && memcmp(begin, step, sizeof(step) - 1) == 0 && !isnan(run->loss);

        if (!known && take_line(run, begin, n))
            return;
        end = before;
    }
}

static void begin(struct np_top_run *run)
{
    *run = (struct np_top_run){.step = -1,
        .total_steps = -1,
        .epoch = -1,
        .loss = NAN,
        .eta_seconds = -1,
        .images_per_second = -1,
        .stall_ratio = -1};
}

bool np_top_take(const struct np_node *points, struct np_top_run *ret_run)
{
    struct np_top_run run;

    begin(&run);
    for (int i = points->nr_items - 1; i >= 0; i--)
        if (take_node(&run, points->items[i]))
            break;
    if (run.seen)
        *ret_run = run;
    return run.seen;
}

int np_top_read(const char *dir, struct np_top_run *ret_run, struct np_err *err)
{
    char *text = np_alloc(TAIL_BYTES);
    size_t n = strlen(dir);

    if (!text)
        return np_err_set(err, -ENOMEM, "out of memory");
    const ssize_t got = read_tail(dir, "metrics.jsonl", text, TAIL_BYTES);
    const int code = got < 0 ? np_err_set(err, -errno, "%s/metrics.jsonl: cannot be read: %s", dir,
                                   strerror(errno))
                             : 0;
    begin(ret_run);
    if (got > 0)
        take_lines(ret_run, text, (size_t)got);
    while (n > 1 && dir[n - 1] == '/')
        n--;
    const char *slash = memrchr(dir, '/', n);
    const char *name = slash && slash + 1 < dir + n ? slash + 1 : dir;
    snprintf(ret_run->name, sizeof(ret_run->name), "%.*s", (int)(dir + n - name), name);
    np_text_clean(ret_run->name);
    if (code == 0)
        ret_run->pid = np_top_holder(dir);
    np_free(text);
    return code;
}

void np_top_profile(
    const struct np_top_run *run, struct np_profile *ret_profile, char *text, size_t bytes)
{
    const struct np_observation *seen = &run->observation;

    np_profile_look(seen, &run->knobs, ret_profile);
    text[0] = '\0';
    for (int s = 0; s < NP_STAGE_CHECKPOINT; s++)
        if (s != NP_STAGE_BATCH && seen->stages[s].items > 0 &&
            isinf(np_model_ceiling(&ret_profile->model, (enum np_stage)s, NP_NR_STAGES)))
            snprintf(text + strlen(text), bytes - strlen(text), "%s%s", *text ? ", " : "",
                np_stage_names[s]);
}
