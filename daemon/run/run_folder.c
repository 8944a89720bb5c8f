#include "daemon/run/run_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "daemon/config/config.h"
#include "loader/base/json.h"
#include "loader/base/io.h"
#include "loader/base/mem.h"
#include "loader/base/yaml.h"
#include "loader/source/split.h"
#include "trainer/checkpoint/checkpoint_dir.h"
#include "trainer/checkpoint/checkpoint_names.h"
#include "trainer/checkpoint/weights_file.h"

#define MAX_TRIES  100
#define MAX_DEPTH  4 /* of folders below a run's for its size */
#define MAX_CONFIG (4u << 20)

static char *new_name(const char *runs, const char *name)
{
    time_t now = time(NULL);
    uint16_t random = 0;
    struct tm utc;
    char stamp[32];

    gmtime_r(&now, &utc);
    strftime(stamp, sizeof(stamp), "%Y%m%d-%H%M%S", &utc);
    if (getrandom(&random, sizeof(random), GRND_NONBLOCK) != (ssize_t)sizeof(random))
        random = (uint16_t)getpid();
    return np_format("%s/%s-%s-%04x", runs, name, stamp, random);
}

int np_folder_create(const char *runs, const char *name, char **ret_dir, struct np_err *err)
{
    int code = np_make_dirs(runs, err);

    for (int i = 0; code == 0 && i < MAX_TRIES; i++) {
        char *dir = new_name(runs, name);

        if (mkdir(dir, 0755) == 0) {
            *ret_dir = dir;
            return 0;
        }
        if (errno != EEXIST)
            code = np_err_set(
                err, -errno, "%s: the run's folder cannot be made: %s", dir, strerror(errno));
        np_free(dir);
    }
    return code ? code : np_err_set(err, -EEXIST, "%s: no free name for a run", runs);
}

static uint64_t bytes_in(int parent, const char *name, int depth)
{
    const int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *folder = fd < 0 ? NULL : fdopendir(fd);
    uint64_t bytes = 0;
    struct stat stat_;

    if (!folder && fd >= 0)
        close(fd);
    for (const struct dirent *item; folder && (item = readdir(folder));) {
        if (strcmp(item->d_name, ".") == 0 || strcmp(item->d_name, "..") == 0 ||
            fstatat(fd, item->d_name, &stat_, AT_SYMLINK_NOFOLLOW) < 0)
            continue;
        bytes += (uint64_t)stat_.st_blocks * 512;
        if (S_ISDIR(stat_.st_mode) && depth > 0)
            bytes += bytes_in(fd, item->d_name, depth - 1);
    }
    if (folder)
        closedir(folder);
    return bytes;
}

uint64_t np_folder_bytes(const char *dir)
{
    return bytes_in(AT_FDCWD, dir, MAX_DEPTH);
}

bool np_folder_has_checkpoint(const char *dir)
{
    char *path = np_format("%s/checkpoints", dir);
    DIR *folder = opendir(path);
    bool found = false;

    for (const struct dirent *item; folder && !found && (item = readdir(folder));)
        found = strncmp(item->d_name, "step-", 5) == 0 || strstr(item->d_name, ".old") != NULL;
    if (folder)
        closedir(folder);
    np_free(path);
    return found;
}

int np_folder_lock(const char *dir, int *ret_fd, struct np_err *err)
{
    char *path = np_format("%s/lock", dir);
    char text[32] = "";
    int code = 0;
    int fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);

    if (fd < 0) {
        code = np_err_set(err, -errno, "%s/lock: cannot be opened: %s", dir, strerror(errno));
    } else if (flock(fd, LOCK_EX | LOCK_NB) < 0 && errno != EWOULDBLOCK) {
        code = np_err_set(err, -errno, "%s: cannot be locked: %s", path, strerror(errno));
    } else if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        if (read(fd, text, sizeof(text) - 1) < 0)
            text[0] = '\0';
        text[strcspn(text, "\n")] = '\0';
        code = np_err_set(err, -EBUSY, "%s: this run is running%s%s; stop it or wait for it", dir,
            text[0] ? ", process " : "", text);
    } else {
        int n = snprintf(text, sizeof(text), "%d\n", (int)getpid());
        if (ftruncate(fd, 0) < 0 || pwrite(fd, text, (size_t)n, 0) != n)
            code = np_err_set(err, -errno, "%s: cannot be written: %s", path, strerror(errno));
    }
    np_free(path);
    if (code < 0 && fd >= 0)
        close(fd);
    else if (code == 0)
        *ret_fd = fd;
    return code;
}

bool np_folder_running(const char *dir, char *text, size_t text_bytes)
{
    char *path = np_format("%s/lock", dir), pid[24] = "";
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    const bool running = fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) < 0 && errno == EWOULDBLOCK;

    if (running && read(fd, pid, sizeof(pid) - 1) < 0)
        pid[0] = '\0';
    pid[strcspn(pid, "\n")] = '\0';
    if (running)
        snprintf(text, text_bytes, "running%s%s", *pid ? ", process " : "", pid);
    if (fd >= 0)
        close(fd);
    np_free(path);
    return running;
}

static void add_missing(struct np_node *section, const char *key, const char *value)
{
    if (!np_node_get(section, key))
        np_node_add(section, key, np_node_scalar(value, 0, 0));
}

/* Runs older than these keys resized as Pillow 12 does, and split by their seed, without regard to
 * classes. */
static void add_missing_keys(struct np_node *config)
{
    const struct np_node *seed = np_node_get(config, "seed");

    for (int i = 0; i < config->nr_items; i++) {
        struct np_node *section = config->items[i];

        if (section->kind != NP_NODE_MAP)
            continue;
        if (strcmp(section->key, "loader") == 0) {
            add_missing(section, "pixels", "pillow-12");
            add_missing(section, "max_pixels", "178956970");
        }
        if (strcmp(section->key, "data") == 0 && np_node_get(section, "split")) {
            if (seed && seed->kind == NP_NODE_SCALAR)
                add_missing(section, "split_seed", seed->text);
            add_missing(section, "split_by", np_split_rules[NP_SPLIT_RANDOM]);
        }
    }
}

int np_folder_config(const char *dir, struct np_node **ret_node, struct np_err *err)
{
    char *path = np_format("%s/config.yaml", dir), *text = NULL;
    struct np_node *node = NULL;
    struct np_report report;
    uint64_t bytes = 0;
    int code = np_read_file(path, MAX_CONFIG, &text, &bytes, err);

    np_report_init(&report, path);
    if (code == 0 && np_yaml_parse(text, bytes, &node, &report) < 0) {
        code = np_err_set(
            err, -EBADMSG, "%s: %s", path, report.nr_errs ? report.errs[0].text : "not a config");
        np_node_free(node);
        node = NULL;
    }
    np_report_fini(&report);
    np_free(text);
    np_free(path);
    if (code == 0 && node->kind == NP_NODE_MAP)
        add_missing_keys(node);
    if (code == 0)
        *ret_node = node;
    return code;
}

double np_folder_result(const char *dir, struct np_node **ret_result)
{
    char *path = np_format("%s/result.json", dir), *text = NULL;
    struct np_node *node = NULL;
    uint64_t bytes = 0;
    double steps = -1;

    if (np_read_file(path, MAX_CONFIG, &text, &bytes, NULL) == 0 &&
        np_json_parse(text, bytes, &node, NULL) == 0 && node->kind == NP_NODE_MAP &&
        np_node_is(np_node_get(node, "event"), "done"))
        steps = np_node_number(node, "steps", -1);
    if (steps >= 0 && ret_result)
        *ret_result = node;
    else
        np_node_free(node);
    np_free(text);
    np_free(path);
    return steps;
}

static bool has_name(const char *entry, const char *name)
{
    const size_t n = strlen(name);

    return strncmp(entry, name, n) == 0 && entry[n] == '-';
}

/* For scandir(). NAME- is followed by the time, so the newest is last in byte order. */
static int newest_first(const struct dirent **a, const struct dirent **b)
{
    return -strcmp((*a)->d_name, (*b)->d_name);
}

int np_folder_find(const char *runs, const char *name, bool (*fits)(void *context, const char *dir),
    void *context, char **ret_dir, struct np_err *err)
{
    struct dirent **entries = NULL;
    char *found = NULL;
    int n = scandir(runs, &entries, NULL, newest_first);

    if (n < 0 && errno != ENOENT)
        return np_err_set(err, -errno, "%s: cannot be read: %s", runs, strerror(errno));
    for (int i = 0; i < n; i++) {
        char *dir = found || !has_name(entries[i]->d_name, name)
                        ? NULL
                        : np_format("%s/%s", runs, entries[i]->d_name);

        if (dir && fits(context, dir))
            found = dir;
        else
            np_free(dir);
        free(entries[i]);
    }
    free(entries);
    *ret_dir = found;
    return 0;
}

/* --- checkpoints in it --------------------------------------------------------------------- */

static bool is_file(const char *path)
{
    struct stat stat_;

    return stat(path, &stat_) == 0 && S_ISREG(stat_.st_mode);
}

int np_facts_read(const char *checkpoint, struct np_node **ret_facts, struct np_err *err)
{
    char *path = np_format("%s/manifest.json", checkpoint), *facts = NULL;
    struct np_manifest manifest;
    struct np_node *node = NULL;
    int code = np_manifest_read(path, &manifest, &facts, err);

    if (code == 0 && (code = np_json_parse(facts, strlen(facts), &node, err)) < 0)
        np_err_context(err, "%s", path);
    if (code == 0 && node->kind != NP_NODE_MAP) {
        code = np_err_set(err, -EBADMSG, "%s: the facts are missing", path);
        np_node_free(node);
    }
    if (code == 0)
        *ret_facts = node;
    np_free(facts);
    np_free(path);
    return code;
}

int np_run_newest_facts(const char *dir, struct np_node **ret_facts, struct np_err *err)
{
    char *below = np_format("%s/checkpoints", dir);
    struct np_checkpoint_name *names = NULL;
    struct np_node *facts = NULL;
    struct np_err last = {0};
    int n = 0, code = np_checkpoint_names(below, &names, &n, err);

    /* Skips damaged checkpoints; np_checkpoint_latest() reports them. */
    for (int i = 0; i < n && !facts; i++) {
        if (names[i].kind == NP_CHECKPOINT_INCOMPLETE)
            continue;
        char *path = np_format("%s/%s", below, names[i].text);

        last = (struct np_err){0};
        np_facts_read(path, &facts, &last);
        np_free(path);
    }
    np_free(names);
    np_free(below);
    if (code < 0)
        return code;
    if (!facts)
        return np_err_set(err, -ENOENT, "%s: no checkpoint to resume from%s%s", dir,
            last.code ? ": " : "", last.code ? last.text : "");
    *ret_facts = facts;
    return 0;
}

/* --- weights ------------------------------------------------------------------------------- */

/* The newest complete checkpoint of a run; skips damaged ones with a note. NULL: none, or
 * -ENOMEM in err. */
static char *newest_whole(
    const char *run, const struct np_source_progress *progress, struct np_err *err)
{
    char *below = np_format("%s/checkpoints", run), *newest = NULL;
    struct np_err why = {0};

    np_checkpoint_newest(below, &newest, progress->note, progress->context, &why);
    if (why.code == -ENOMEM)
        *err = why;
    np_free(below);
    return newest;
}

bool np_is_folder(const char *path)
{
    struct stat stat_;

    return stat(path, &stat_) == 0 && S_ISDIR(stat_.st_mode);
}

static bool is_step(const char *word)
{
    struct np_checkpoint_name name;

    return np_checkpoint_name_parse(word, &name) && name.kind == NP_CHECKPOINT_FINAL;
}

/* One checkpoint of a run by its name: last, best, step-N. np_free. */
static char *named_checkpoint(const char *run, const char *name,
    const struct np_source_progress *progress, struct np_err *err)
{
    struct np_manifest manifest = {0};

    if (is_step(name))
        return np_format("%s/checkpoints/%s", run, name);
    char *newest = newest_whole(run, progress, err);
    if (!newest) {
        np_err_set(err, -ENOENT, "%s: no complete checkpoint", run);
        return NULL;
    }
    if (strcmp(name, "last") == 0)
        return newest;
    char *path = np_format("%s/manifest.json", newest), *facts = NULL, *best = NULL;
    np_free(newest);
    if (np_manifest_read(path, &manifest, &facts, err) == 0 && manifest.position.best_step == 0)
        np_err_set(
            err, -ENOENT, "%s: the run was never evaluated, so it has no best checkpoint", run);
    else if (!err->code)
        best = np_format(
            "%s/checkpoints/step-%llu", run, (unsigned long long)manifest.position.best_step);
    np_free(path);
    np_free(facts);
    return best;
}

/* The checkpoint's folder of "RUN:best" and the like. NULL with err empty: a file has that name,
 * or the word has another form. */
static char *by_name(
    const char *word, const struct np_source_progress *progress, struct np_err *err)
{
    const char *colon = strrchr(word, ':');

    if (!colon || access(word, F_OK) == 0 ||
        (strcmp(colon, ":best") != 0 && strcmp(colon, ":last") != 0 && !is_step(colon + 1)))
        return NULL;
    char *run = np_format("%.*s", (int)(colon - word), word), *path = NULL;
    if (np_is_folder(run))
        path = named_checkpoint(run, colon + 1, progress, err);
    np_free(run);
    return path;
}

/* The checkpoint to take weights from: path itself, or the newest complete one of the run at
 * path. */
static int checkpoint_of(const char *path, const struct np_source_progress *progress,
    char **ret_checkpoint, struct np_err *err)
{
    char *weights = np_format("%s/weights.safetensors", path);
    bool is_checkpoint = is_file(weights);

    np_free(weights);
    if (is_checkpoint) {
        *ret_checkpoint = np_strdup(path);
        struct np_err damage = {0};
        const int code = np_checkpoint_check(path, &damage);

        if (code == 0 || code == -ENODATA)
            return 0;
        *err = damage;
        return code;
    }
    *ret_checkpoint = newest_whole(path, progress, err);
    if (*ret_checkpoint || err->code)
        return err->code;
    return np_err_set(err, -ENOENT,
        "%s: no complete weights: expected a safetensors or PyTorch file, a checkpoint's folder or "
        "a run's "
        "folder",
        path);
}

int np_weights_find(const char *path, const struct np_source_progress *progress, char **ret_path,
    char **ret_checkpoint, struct np_err *err)
{
    char *named = by_name(path, progress, err);
    const char *at = named ? named : path;
    int code = err->code;

    *ret_path = *ret_checkpoint = NULL;
    char *file = np_format("%.*s", (int)np_weights_path(at), at); /* without #KEY */
    if (code == 0 && access(file, F_OK) < 0)
        code = np_err_set(err, -errno, "%s: cannot be opened: %s", file, strerror(errno));
    if (code == 0 && !np_is_folder(at)) {
        *ret_path = np_strdup(at);
    } else if (code == 0 && (code = checkpoint_of(at, progress, ret_checkpoint, err)) == 0) {
        *ret_path = np_format("%s/weights.safetensors", *ret_checkpoint);
    }
    np_free(file);
    np_free(named);
    return code;
}
