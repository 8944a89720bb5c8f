/* See run_folder.h. */
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

#define MAX_TRIES  100
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
        if (dir && mkdir(dir, 0755) == 0) {
            *ret_dir = dir;
            return 0;
        }
        code = dir && errno == EEXIST ? 0
                                      : np_err_set(err, dir ? -errno : -ENOMEM,
                                            "%s: the run's folder cannot be made: %s",
                                            dir ? dir : runs, strerror(dir ? errno : ENOMEM));
        np_free(dir);
    }
    return code ? code : np_err_set(err, -EEXIST, "%s: no free name for a run", runs);
}

bool np_folder_has_checkpoint(const char *dir)
{
    char *path = np_format("%s/checkpoints", dir);
    DIR *folder = path ? opendir(path) : NULL;
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
    int fd = path ? open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666) : -1;

    if (fd < 0) {
        code = np_err_set(err, -errno, "%s/lock: cannot be opened: %s", dir, strerror(errno));
    } else if (flock(fd, LOCK_EX | LOCK_NB) < 0 && errno != EWOULDBLOCK) {
        code = np_err_set(err, -errno, "%s: cannot be locked: %s", path, strerror(errno));
    } else if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        if (read(fd, text, sizeof(text) - 1) < 0)
            text[0] = '\0';
        text[strcspn(text, "\n")] = '\0';
        code = np_err_set(err, -EBUSY, "%s: this run is running%s%s; stop it first, or wait", dir,
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
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
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

/* `key: value` for a section that has no such key. */
static void add_younger(struct np_node *section, const char *key, const char *value)
{
    if (!np_node_get(section, key))
        np_node_add(section, key, np_node_scalar(value, 0, 0));
}

/* Runs that began before the keys were there resized as Pillow 12 does, and split by their seed,
 * without regard to classes. */
static void add_younger_keys(struct np_node *config)
{
    const struct np_node *seed = np_node_get(config, "seed");

    for (int i = 0; i < config->nr_items; i++) {
        struct np_node *section = config->items[i];

        if (section->kind != NP_NODE_MAP)
            continue;
        if (strcmp(section->key, "loader") == 0) {
            add_younger(section, "pixels", "pillow-12");
            add_younger(section, "max_pixels", "178956970");
        }
        if (strcmp(section->key, "data") == 0 && np_node_get(section, "split")) {
            if (seed && seed->kind == NP_NODE_SCALAR)
                add_younger(section, "split_seed", seed->text);
            add_younger(section, "split_by", np_split_rules[NP_SPLIT_RANDOM]);
        }
    }
}

int np_folder_config(const char *dir, struct np_node **ret_node, struct np_err *err)
{
    char *path = np_format("%s/config.yaml", dir), *text = NULL;
    struct np_node *node = NULL;
    struct np_report report;
    uint64_t bytes = 0;
    int code = path ? np_read_file(path, MAX_CONFIG, &text, &bytes, err)
                    : np_err_set(err, -ENOMEM, "out of memory");

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
        add_younger_keys(node);
    if (code == 0)
        *ret_node = node;
    return code;
}

double np_folder_result(const char *dir)
{
    char *path = np_format("%s/result.json", dir), *text = NULL;
    struct np_node *node = NULL;
    uint64_t bytes = 0;
    double steps = -1;

    if (path && np_read_file(path, MAX_CONFIG, &text, &bytes, NULL) == 0 &&
        np_json_parse(text, bytes, &node, NULL) == 0 &&
        np_node_is(np_node_get(node, "event"), "done"))
        steps = np_node_number(node, "steps", -1);
    np_node_free(node);
    np_free(text);
    np_free(path);
    return steps;
}

/* The part of a folder's name that sorts by time: behind "NAME-". NULL: another run's. */
static const char *stamp_of(const char *entry, const char *name)
{
    size_t n = strlen(name);

    return strncmp(entry, name, n) == 0 && entry[n] == '-' ? entry + n + 1 : NULL;
}

/* For scandir(): the names have the same beginning, so the newest is the last in byte order. */
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
        char *dir = found || !stamp_of(entries[i]->d_name, name)
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
