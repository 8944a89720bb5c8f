/* `nnpipe prune RUN...`: deletes the checkpoints of runs but for the best and the newest few. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/cmd.h"
#include "loader/base/json.h"
#include "daemon/run/run_folder.h"
#include "loader/base/mem.h"
#include "loader/base/text.h"
#include "trainer/checkpoint/checkpoint_dir.h"
#include "trainer/checkpoint/checkpoint_names.h"

struct prune {
    int keep;
    bool dry_run, json;
    int nr_runs;
    uint64_t freed, kept; /* bytes */
};

struct usage {             /* of a folder of checkpoints */
    uint64_t newest, best; /* steps of the newest and the best complete one; best 0: none */
    uint64_t bytes, spare; /* of all checkpoints; of those to be deleted */
};

/* dropped: a checkpoint without optimizer state is complete too. */
static bool is_whole(const char *dir, uint64_t step, bool dropped)
{
    char *path = np_format("%s/step-%" PRIu64, dir, step);
    struct np_err damage = {0};
    const int code = np_checkpoint_check(path, &damage);

    np_free(path);
    return code == 0 || (dropped && code == -ENODATA);
}

/* The step of the best checkpoint, from the newest one's manifest; 0: none, or it is damaged. */
static uint64_t best_of(const char *dir, uint64_t newest)
{
    char *path = np_format("%s/step-%" PRIu64 "/manifest.json", dir, newest), *facts = NULL;
    struct np_manifest manifest = {0};
    const int code = np_manifest_read(path, &manifest, &facts, NULL);
    const uint64_t best = code == 0 ? manifest.position.best_step : 0;

    np_free(path);
    np_free(facts);
    return best == newest || (best && is_whole(dir, best, true)) ? best : 0;
}

/* The number of newest checkpoints to keep: at least one if there is no best one. */
static int keeps(int keep, const struct usage *usage)
{
    return usage->best || keep > 1 ? keep : 1;
}

static bool find_newest(
    const char *dir, const struct np_checkpoint_name *names, int nr, uint64_t *ret_newest)
{
    for (int i = 0; i < nr; i++)
        if (is_whole(dir, names[i].step, false)) {
            *ret_newest = names[i].step;
            return true;
        }
    return false;
}

/* Removes all names but step-N from the list; returns their number. */
static int only_final(struct np_checkpoint_name *names, int n)
{
    int nr = 0;

    for (int i = 0; i < n; i++)
        if (names[i].kind == NP_CHECKPOINT_FINAL)
            names[nr++] = names[i];
    return nr;
}

/* Sums the bytes of all checkpoints, and of those that `keep` would delete. A checkpoint newer
 * than the newest complete one is damaged. */
static int measure(const char *dir, int keep, struct usage *ret_usage, struct np_err *err)
{
    struct np_checkpoint_name *names = NULL;
    struct usage usage = {0};
    int nr = 0, nr_kept = 0, code = np_checkpoint_names(dir, &names, &nr, err);

    if (code < 0)
        return code;
    nr = only_final(names, nr);
    const bool found = find_newest(dir, names, nr, &usage.newest);

    if (found)
        usage.best = best_of(dir, usage.newest);
    for (int i = 0; i < nr; i++) {
        char *path = np_format("%s/%s", dir, names[i].text);
        const uint64_t bytes = np_folder_bytes(path), step = names[i].step;

        usage.bytes += bytes;
        if (step > usage.newest || (nr_kept++ >= keeps(keep, &usage) && step != usage.best))
            usage.spare += bytes;
        np_free(path);
    }
    np_free(names);
    *ret_usage = usage;
    if (nr > 0 && !found)
        return np_err_set(
            err, -EBADMSG, "%s: all %d checkpoints are damaged; nothing was removed", dir, nr);
    return 0;
}

/* run NULL: the sum over all runs. */
static void report(const struct prune *p, const char *run, uint64_t freed, uint64_t kept)
{
    struct np_json json = {0};

    if (!p->json && run)
        printf("%s: ", run);
    else if (!p->json)
        printf("%d runs: ", p->nr_runs);
    if (!p->json) {
        printf("%.1f MiB %s, %.1f MiB kept\n", (double)freed / (1 << 20),
            p->dry_run ? "would be freed" : "freed", (double)kept / (1 << 20));
        return;
    }
    np_json_begin(&json, run ? "pruned" : "done");
    if (run)
        np_json_text(&json, "run", run);
    else
        np_json_int(&json, "runs", p->nr_runs);
    np_json_int(&json, "freed_bytes", (int64_t)freed);
    np_json_int(&json, "kept_bytes", (int64_t)kept);
    np_json_print(&json, stdout);
    np_json_fini(&json);
}

static int prune(struct prune *p, const char *run, struct np_err *err)
{
    char *dir = np_format("%s/checkpoints", run);
    int lock_fd = -1, code = 0;
    struct stat stat_;
    struct usage usage;

    if (stat(run, &stat_) < 0)
        code = np_err_set(err, -errno, "%s: %s", run, strerror(errno));
    if (code == 0 && stat(dir, &stat_) < 0)
        code = np_err_set(err, -ENOENT,
            "%s: has no checkpoints, so it is not a run's folder; `nnpipe prune %s/*` prunes the "
            "runs in it",
            run, run);
    if (code == 0 && !p->dry_run)
        code = np_folder_lock(run, &lock_fd, err);
    if (code == 0)
        code = measure(dir, p->keep, &usage, err);
    if (code == 0 && !p->dry_run && usage.bytes)
        code = np_checkpoint_prune(dir, keeps(p->keep, &usage), usage.newest, usage.best, err);
    if (code == 0) {
        p->nr_runs++;
        p->freed += usage.spare;
        p->kept += usage.bytes - usage.spare;
        report(p, run, usage.spare, usage.bytes - usage.spare);
    }
    if (lock_fd >= 0)
        close(lock_fd);
    np_free(dir);
    return code;
}

int np_cmd_prune(int argc, char **argv)
{
    const char *keep = "1";
    struct prune p = {0};
    const struct np_flag flags[] = {
        {"--keep", &keep, NULL, NULL},
        {"--dry-run", NULL, &p.dry_run, NULL},
        {"--json", NULL, &p.json, NULL},
        {NULL, NULL, NULL, NULL},
    };
    int nr, code = np_flags_parse(argc, argv, flags, NULL, &nr);
    int64_t number;

    if (code)
        return code;
    if (nr < 1)
        return np_usage("prune", "expected folders of runs");
    if (!np_text_int(keep, 0, 1000000, &number))
        return np_usage("prune", "--keep takes a number of at least 0");
    p.keep = (int)number;
    for (int i = 1; i <= nr; i++) {
        struct np_err err = {0};

        if (prune(&p, argv[i], &err) < 0) {
            np_complain(&err);
            code = NP_EXIT_FAILED;
        }
    }
    if (p.json || p.nr_runs > 1)
        report(&p, NULL, p.freed, p.kept);
    return code;
}
