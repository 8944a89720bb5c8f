/* MLflow's file store, in mlruns/ beside the run folders: `MLFLOW_ALLOW_FILE_STORE=true mlflow ui
 * --backend-store-uri runs/mlruns` shows all runs, and `mlflow migrate-filestore` takes them into a
 * database (mlflow/store/tracking/file_store.py):
 *
 *   mlruns/EXPERIMENT/meta.yaml            the experiment: all runs of one name
 *   mlruns/EXPERIMENT/RUN/meta.yaml        state, times
 *   mlruns/EXPERIMENT/RUN/params/KEY       one value, as text
 *   mlruns/EXPERIMENT/RUN/tags/KEY         likewise
 *   mlruns/EXPERIMENT/RUN/metrics/TAG      a line for each value: milliseconds, value, step
 *
 * Both ids are hashes, of the name and of the run folder's name, so a resumed run finds its own. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

#include "daemon/track/tracker.h"
#include "loader/base/io.h"
#include "loader/base/mem.h"
#include "loader/base/text.h"

#define MAX_FILE  (1ull << 32)
#define MAX_PARAM 500 /* bytes of a value */

/* MLflow's numbers. */
enum { STATUS_RUNNING = 1, STATUS_FINISHED = 3, STATUS_FAILED = 4, STATUS_KILLED = 5 };
enum { SOURCE_LOCAL = 4 };

struct metric {
    char *tag;
    FILE *file;
};
struct flow {
    char *root, *dir; /* mlruns, and the run's folder in it */
    char *name;       /* of the run's folder */
    char experiment[24], id[40];
    uint64_t start_ms;
    struct metric *metrics;
    size_t room;
    int nr_metrics;
};

static uint64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static int write_text(const char *folder, const char *name, const char *text, struct np_err *err)
{
    char *path = np_format("%s/%s", folder, name);
    const int code = np_write_file(path, text, strlen(text), 0, err);

    np_free(path);
    return code;
}

/* A path as a file: URI: other bytes than letters, digits and "/._-" as %20. np_free. */
static char *uri_of(const char *path)
{
    char *full = realpath(path, NULL), *uri = np_format("file://");

    for (const char *at = full ? full : path; *at; at++) {
        const bool plain =
            (*at >= '-' && *at <= '9') || *at == '_' || ((*at | 32) >= 'a' && (*at | 32) <= 'z');
        char *longer = np_format(plain ? "%s%c" : "%s%%%02X", uri, (unsigned char)*at);

        np_free(uri);
        uri = longer;
    }
    free(full);
    return uri;
}

/* --- the experiment and the run ------------------------------------------------------------ */

static int write_experiment(const struct flow *flow, const char *name, struct np_err *err)
{
    char *folder = np_format("%s/%s", flow->root, flow->experiment),
         *path = np_format("%s/meta.yaml", folder);
    int code = np_make_dirs(folder, err);

    if (code == 0 && access(path, F_OK) < 0) {
        char *uri = uri_of(folder);
        char *text = np_format("artifact_location: %s\ncreation_time: %llu\n"
                               "experiment_id: '%s'\nlast_update_time: %llu\n"
                               "lifecycle_stage: active\nname: '%s'\n",
            uri, (unsigned long long)flow->start_ms, flow->experiment,
            (unsigned long long)flow->start_ms, name);

        code = write_text(folder, "meta.yaml", text, err);
        np_free(uri);
        np_free(text);
    }
    np_free(path);
    np_free(folder);
    return code;
}

static int write_meta(const struct flow *flow, int status, struct np_err *err)
{
    char *uri = uri_of(flow->dir), end[32] = "null";

    if (status != STATUS_RUNNING)
        snprintf(end, sizeof(end), "%llu", (unsigned long long)now_ms());
    char *text = np_format(
        "artifact_uri: %s/artifacts\nend_time: %s\nentry_point_name: ''\nexperiment_id: '%s'\n"
        "lifecycle_stage: active\nrun_id: %s\nrun_name: '%s'\nrun_uuid: %s\nsource_name: nnpipe\n"
        "source_type: %d\nsource_version: ''\nstart_time: %llu\nstatus: %d\ntags: []\n"
        "user_id: '%u'\n",
        uri, end, flow->experiment, flow->id, flow->name, flow->id, SOURCE_LOCAL,
        (unsigned long long)flow->start_ms, status, (unsigned)getuid());
    const int code = write_text(flow->dir, "meta.yaml", text, err);

    np_free(uri);
    np_free(text);
    return code;
}

/* The time of the run's first start, which a resumed run keeps. */
static uint64_t first_start(const char *dir)
{
    char *path = np_format("%s/meta.yaml", dir), *text = NULL;
    uint64_t bytes, start = now_ms();
    int64_t value;

    if (np_read_file(path, 1 << 16, &text, &bytes, NULL) == 0) {
        const char *at = strstr(text, "\nstart_time: ");

        if (at && np_text_int_end(at + strlen("\nstart_time: "), &value) && value > 0)
            start = (uint64_t)value;
    }
    np_free(text);
    np_free(path);
    return start;
}

struct params {
    char *folder;
    struct np_err *err;
    int code;
};

static void put_param(void *context, const char *path, const char *text)
{
    struct params *params = context;
    char value[MAX_PARAM + 1];

    if (params->code < 0 || !np_tracked_param(path))
        return;
    snprintf(value, sizeof(value), "%s", text);
    np_text_hide(value);
    params->code = write_text(params->folder, path, value, params->err);
}

static int write_params(
    const struct flow *flow, const struct np_tracked_run *run, struct np_err *err)
{
    struct params params = {np_format("%s/params", flow->dir), err, 0};

    params.code = np_make_dirs(params.folder, err);
    np_node_leaves(run->config, put_param, &params);
    np_free(params.folder);
    return params.code;
}

static int write_tags(const struct flow *flow, const struct np_tracked_run *run, struct np_err *err)
{
    const char *const tags[][2] = {{"mlflow.runName", flow->name}, {"mlflow.source.name", "nnpipe"},
        {"mlflow.source.type", "LOCAL"}, {"nnpipe.run_dir", run->dir}};
    char *folder = np_format("%s/tags", flow->dir);
    int code = np_make_dirs(folder, err);

    for (size_t i = 0; code == 0 && i < sizeof(tags) / sizeof(*tags); i++)
        code = write_text(folder, tags[i][0], tags[i][1], err);
    np_free(folder);
    return code;
}

/* --- metrics ------------------------------------------------------------------------------- */

/* The number of bytes of the complete lines that stay. */
static uint64_t bytes_kept(const struct np_tracked_run *run, const char *tag, const char *text)
{
    uint64_t kept = 0;

    for (const char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) {
        const char *step = memrchr(line, ' ', (size_t)(end - line));
        int64_t number;

        if (!step || !np_text_int_end(step + 1, &number) || number < 0 ||
            np_tracked_again(run, (uint64_t)number, tag))
            break;
        kept = (uint64_t)(end + 1 - text);
    }
    return kept;
}

static int cut_back(
    const struct np_tracked_run *run, const char *path, const char *tag, struct np_err *err)
{
    uint64_t bytes, kept;
    char *text = NULL;
    int code = np_read_file(path, MAX_FILE, &text, &bytes, err);

    if (code == 0 && (kept = bytes_kept(run, tag, text)) < bytes && truncate(path, (off_t)kept) < 0)
        code = np_err_set(err, -errno, "%s: cannot be cut back: %s", path, strerror(errno));
    np_free(text);
    return code;
}

/* Cuts back the metrics of a group: the files of metrics/GROUP. */
static int cut_group(
    const struct np_tracked_run *run, const char *metrics, const char *group, struct np_err *err)
{
    char *folder = np_format("%s/%s", metrics, group);
    DIR *dir = opendir(folder);
    int code = 0;

    for (const struct dirent *item; dir && code == 0 && (item = readdir(dir));) {
        char *path = np_format("%s/%s", folder, item->d_name),
             *tag = np_format("%s/%s", group, item->d_name);

        if (item->d_name[0] != '.')
            code = cut_back(run, path, tag, err);
        np_free(path);
        np_free(tag);
    }
    if (dir)
        closedir(dir);
    np_free(folder);
    return code;
}

static int cut_all(const struct flow *flow, const struct np_tracked_run *run, struct np_err *err)
{
    char *metrics = np_format("%s/metrics", flow->dir),
         *artifacts = np_format("%s/artifacts", flow->dir); /* MLflow looks for it */
    int code = np_make_dirs(metrics, err);

    if (code == 0)
        code = np_make_dirs(artifacts, err);
    np_free(artifacts);
    DIR *dir = code == 0 ? opendir(metrics) : NULL;

    for (const struct dirent *item; dir && code == 0 && (item = readdir(dir));)
        if (item->d_name[0] != '.')
            code = cut_group(run, metrics, item->d_name, err);
    if (dir)
        closedir(dir);
    np_free(metrics);
    return code;
}

static FILE *file_of(struct flow *flow, const char *tag, struct np_err *err)
{
    for (int i = 0; i < flow->nr_metrics; i++)
        if (strcmp(flow->metrics[i].tag, tag) == 0)
            return flow->metrics[i].file;
    char *path = np_format("%s/metrics/%s", flow->dir, tag);
    FILE *file = np_make_parent(path, err) < 0 ? NULL : fopen(path, "ae");

    if (file) {
        np_grow(&flow->metrics, &flow->room, (size_t)flow->nr_metrics + 1, sizeof(struct metric));
        flow->metrics[flow->nr_metrics++] = (struct metric){np_strdup(tag), file};
    } else {
        np_err_set(err, -errno, "%s: cannot be opened: %s", path, strerror(errno));
    }
    np_free(path);
    return file;
}

/* --- the table ----------------------------------------------------------------------------- */

static void close_flow(void *state, enum np_track_end end)
{
    static const int statuses[] = {[NP_TRACK_DONE] = STATUS_FINISHED,
        [NP_TRACK_STOPPED] = STATUS_KILLED,
        [NP_TRACK_FAILED] = STATUS_FAILED};
    struct flow *flow = state;

    for (int i = 0; i < flow->nr_metrics; i++) {
        fclose(flow->metrics[i].file);
        np_free(flow->metrics[i].tag);
    }
    write_meta(flow, statuses[end], NULL);
    np_free(flow->metrics);
    np_free(flow->root);
    np_free(flow->dir);
    np_free(flow->name);
    np_free(flow);
}

static void find_ids(struct flow *flow, const struct np_tracked_run *run)
{
    char *full = realpath(run->dir, NULL);
    const char *dir = full ? full : run->dir, *slash = strrchr(dir, '/');

    flow->name = np_strdup(slash ? slash + 1 : dir);
    flow->root = np_format("%.*s/mlruns", slash ? (int)(slash - dir) : 1, slash ? dir : ".");
    const XXH128_hash_t id = XXH3_128bits(flow->name, strlen(flow->name));
    snprintf(flow->experiment, sizeof(flow->experiment), "%018llu",
        (unsigned long long)(XXH3_64bits(run->name, strlen(run->name)) % 900000000000000000u +
                             100000000000000000u));
    snprintf(flow->id, sizeof(flow->id), "%016llx%016llx", (unsigned long long)id.high64,
        (unsigned long long)id.low64);
    flow->dir = np_format("%s/%s/%s", flow->root, flow->experiment, flow->id);
    free(full);
}

static int open_flow(const struct np_tracked_run *run, void **ret_state, struct np_err *err)
{
    struct flow *flow = np_alloc(sizeof(*flow));

    find_ids(flow, run);
    flow->start_ms = first_start(flow->dir);
    int code = write_experiment(flow, run->name, err);
    if (code == 0)
        code = write_params(flow, run, err);
    if (code == 0)
        code = write_tags(flow, run, err);
    if (code == 0)
        code = cut_all(flow, run, err);
    if (code == 0)
        code = write_meta(flow, STATUS_RUNNING, err);
    if (code < 0)
        close_flow(flow, NP_TRACK_FAILED);
    else
        *ret_state = flow;
    return code;
}

static int add(void *state, uint64_t step, double time, const struct np_scalar *scalars, int n,
    struct np_err *err)
{
    struct flow *flow = state;
    char value[NP_REAL_TEXT];

    for (int i = 0; i < n; i++) {
        FILE *file = file_of(flow, scalars[i].tag, err);

        if (!file)
            return err->code;
        np_text_of_real(scalars[i].value, value);
        if (fprintf(file, "%.0f %s %llu\n", 1e3 * time, value, (unsigned long long)step) < 0)
            return np_err_set(err, -errno, "%s: cannot be written: %s", flow->dir, strerror(errno));
    }
    return 0;
}

static int flush(void *state, struct np_err *err)
{
    const struct flow *flow = state;

    for (int i = 0; i < flow->nr_metrics; i++)
        if (fflush(flow->metrics[i].file) != 0)
            return np_err_set(err, -errno, "%s: cannot be written: %s", flow->dir, strerror(errno));
    return 0;
}

const struct np_tracker np_track_mlflow = {
    .name = "mlflow",
    .open = open_flow,
    .add = add,
    .flush = flush,
    .close = close_flow,
};
