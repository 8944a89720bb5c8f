/* Chooses a run's folder: the one to resume in, or a new one with its config. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/config/config.h"
#include "loader/base/json.h"
#include "daemon/run/run_parts.h"
#include "loader/base/text.h"
#include "daemon/run/run_folder.h"
#include "loader/base/yaml.h"

/* A path from the working directory or the environment may contain any bytes, YAML only UTF-8. */
static int check_text(struct np_run *run, const char *text, struct np_err *err)
{
    char *copy = np_text_is_utf8(text) ? NULL : np_strdup(text), *rest = copy, *line, shown[600];

    while ((line = strsep(&rest, "\n")))
        if (!np_text_is_utf8(line)) {
            np_text_escape(line + strspn(line, " "), shown, sizeof(shown));
            run->usage = true;
            np_err_set(err, -EINVAL,
                "the config is not UTF-8 text, so it cannot be stored in the run's folder: %s; "
                "rename the folder, or use a symbolic link with another name",
                shown);
            break;
        }
    np_free(copy);
    return err->code;
}

static int write_config(struct np_run *run, const char *text, struct np_err *err)
{
    char *path = np_format("%s/config.yaml", run->dir);
    int code = np_text_has_secret(text) ? np_io_make_private(path, err) : 0;

    if (!code)
        code = np_io_replace(&run->io, path, text, strlen(text), err);

    np_free(path);
    return code;
}

static int make_folder(struct np_run *run, struct np_err *err)
{
    if (run->options->into) {
        run->dir = np_strdup(run->options->into);
        return 0;
    }
    const int code = np_folder_create(run->config->runs, run->config->name, &run->dir, err);
    return code < 0 ? code : np_folder_lock(run->dir, &run->lock_fd, err);
}

/* With data.split: writes val.txt, the names of the val samples, to the folder. */
static int write_split(struct np_run *run, struct np_err *err)
{
    const struct np_split *split = &run->setup.sets.split;
    char *text = NULL, *path = np_format("%s/val.txt", run->dir), name[NP_MAX_NAME + 1];
    size_t bytes = 0;
    FILE *out = run->config->data.split > 0 ? open_memstream(&text, &bytes) : NULL;
    int code = 0;

    for (uint64_t i = 0; out && i < split->nr_eval; i++) {
        np_index_name(run->setup.sets.train, split->order[i], name, sizeof(name));
        np_text_clean(name); /* a newline in it would begin another sample */
        fprintf(out, "%s\n", name);
    }
    if (out && fclose(out) != 0)
        code = np_err_set(err, -errno, "the names of data.split: %s", strerror(errno));
    if (out && code == 0)
        code = np_io_replace(&run->io, path, text, bytes, err);
    free(text);
    np_free(path);
    return code;
}

int np_run_new_folder(struct np_run *run, struct np_err *err)
{
    char *text = np_node_yaml(run->resolved, err);
    int code = text ? check_text(run, text, err) : err->code;

    if (code == 0)
        code = make_folder(run, err);
    if (code == 0)
        code = write_config(run, text, err);
    if (code == 0)
        code = write_split(run, err);
    np_free(text);
    return code;
}

/* --- may it resume? ------------------------------------------------------------------------ */

struct place {
    struct np_node *facts;    /* of its newest checkpoint */
    struct np_node *resolved; /* this start's resolved config, with the folder's current values */
    struct np_changes changes;
    char differs[512]; /* the config key that prevents resuming, with both values; or empty */
};

static void place_fini(struct place *place)
{
    np_node_free(place->facts);
    np_node_free(place->resolved);
    np_changes_close(&place->changes);
}

/* A key that the config does not set keeps the run's value. */
static void keep_own(const struct np_node *written, const struct np_node *began,
    struct np_node *resolved, const char *section, const char *key)
{
    const struct np_node *own = np_node_get(np_node_get(began, section), key);

    for (int i = 0; own && i < resolved->nr_items; i++) {
        struct np_node *map = resolved->items[i];

        if (strcmp(map->key, section) != 0 || np_node_get(written, key))
            continue;
        for (int k = map->nr_items; k-- > 0;)
            if (strcmp(map->items[k]->key, key) == 0)
                np_node_remove(map, k);
        np_node_add(map, key, np_node_copy(own));
    }
}

int np_run_take_own(
    const struct np_node *resolved, const char *dir, struct np_config *config, struct np_err *err)
{
    const struct np_node *name = np_node_get(np_node_get(resolved, "loader"), "pixels");
    enum np_pixels_rule rule;

    if (!name || !name->text || np_pixels_find(name->text, &rule) < 0)
        return np_err_set(err, -EINVAL, "%s/config.yaml: loader.pixels: unknown '%.40s'", dir,
            name && name->text ? name->text : "");
    config->loader.pixels = rule;
    const struct np_node *data = np_node_get(resolved, "data");
    config->data.split_seed =
        (int64_t)np_node_number(data, "split_seed", (double)config->data.split_seed);
    if (np_node_get(data, "split_by"))
        config->data.split_by = np_split_rule(np_node_get(data, "split_by"));
    /* auto: np_run_take_lanes() finds what the run has */
    config->run.lanes = (int64_t)np_node_number(np_node_get(resolved, "train"), "lanes", -1);
    return 0;
}

/* Keys that are newer than a run get their defaults. A config that this nnpipe cannot read stays as
 * it is: the comparison reports a difference. */
static void fill_defaults(struct np_node **config)
{
    char *text = np_node_yaml(*config, NULL);
    struct np_config *read = NULL;
    struct np_report report;

    np_report_init(&report, "config.yaml");
    if (text &&
        np_config_load_text(text, strlen(text), "config.yaml", NULL, 0, &read, &report) == 0) {
        np_node_free(*config);
        *config = np_config_node(read);
    }
    np_config_free(read);
    np_report_fini(&report);
    np_free(text);
}

/* Does this start's config give the same weights as the folder's, but for changes made on
 * purpose? */
static int compare_config(
    struct np_run *run, const char *dir, struct place *place, struct np_err *err)
{
    struct np_node *began = NULL, *in_force = NULL;
    int code = np_folder_config(dir, &began, err);

    if (code < 0)
        return code;
    fill_defaults(&began);
    dir = np_run_name(run, dir);
    in_force = np_node_copy(began);
    place->resolved = np_node_copy(run->resolved);
    keep_own(run->config->loader_node, began, place->resolved, "loader", "pixels");
    keep_own(run->config->data_node, began, place->resolved, "data", "split_seed");
    keep_own(run->config->data_node, began, place->resolved, "data", "split_by");
    keep_own(run->config->run_node, began, place->resolved, "train", "lanes");
    np_changes_open(&place->changes, np_node_get(place->facts, "changes"));
    if ((code = np_changes_apply(&place->changes, in_force, err)) < 0)
        np_err_context(err, "%s", dir);
    if (code == 0) {
        np_changes_merge(&place->changes, began, in_force, place->resolved, run->options->overrides,
            run->options->reset_schedule);
        bool extends = np_schedule_extends(&run->config->schedule);
        if (!np_config_same(
                in_force, place->resolved, extends, place->differs, sizeof(place->differs)))
            code = np_err_set(err, -EINVAL, "%s: %s", dir, place->differs);
    }
    np_node_free(began);
    np_node_free(in_force);
    return code;
}

/* -EINVAL: the run cannot resume in dir; err says why. The caller calls place_fini() in any
 * case. */
static int check_place(struct np_run *run, const char *dir, struct place *place, struct np_err *err)
{
    int code = np_run_newest_facts(dir, &place->facts, err);

    if (code == 0)
        code = compare_config(run, dir, place, err);
    return code == 0 ? np_run_check_data(run, dir, place->facts, err) : code;
}

/* Resumes in dir: the folder's current values replace the config's. */
static int use_place(struct np_run *run, const char *dir, struct place *place, struct np_err *err)
{
    int code = np_run_take_own(place->resolved, np_run_name(run, dir), run->config, err);

    if (code == 0)
        code = np_changes_take(place->resolved, run->config, err);
    if (code < 0)
        return code;
    np_node_free(run->resolved);
    run->resolved = place->resolved;
    run->changes = place->changes;
    place->resolved = NULL;
    place->changes = (struct np_changes){0};
    run->dir = np_strdup(dir);
    return 0;
}

/* May -o change this key when a run is resumed? */
static bool is_dial(const char *why)
{
    const size_t bytes = strcspn(why, " ");

    return strncmp(why, "schedule", 8) == 0 || strncmp(why, "train.epochs ", 13) == 0 ||
           strncmp(why, "train.steps ", 12) == 0 ||
           (strncmp(why, "optimizer.", 10) == 0 &&
               ((bytes > 3 && strncmp(why + bytes - 3, ".lr", 3) == 0) ||
                   (bytes > 13 && strncmp(why + bytes - 13, ".weight_decay", 13) == 0)));
}

/* Replaces the error about a differing key: the new text names what the user can do. */
static void add_advice(const char *dir, const char *differs, struct np_err *err)
{
    const char *dial = is_dial(differs) ? "to change it on purpose, use -o or add "
                                          "--reset-schedule; "
                                        : "";
    const int code = err->code;

    *err = (struct np_err){0};
    np_err_set(err, code,
        "%s: this config would not give the same weights: %s; %s--resume %s without CONFIG "
        "continues the run as it is, --weights %s begins a new run with its weights",
        dir, differs, dial, dir, dir);
}

static int named_folder(struct np_run *run, const char *dir, struct np_err *err)
{
    struct place place = {0};
    int code = check_place(run, dir, &place, err);

    run->usage = code == -EINVAL || (code == -ENOENT && !run->options->into);
    if (code < 0 && *place.differs)
        add_advice(dir, place.differs, err);
    if (code == 0)
        code = use_place(run, dir, &place, err);
    place_fini(&place);
    return code;
}

/* --- the newest run that fits -------------------------------------------------------------- */

#define MAX_NAMED 3

struct search {
    struct np_run *run;
    char passed[600]; /* the newest runs of this name that do not fit, with reasons */
    int nr_passed;
};

static bool has_name(const char *dir, const char *name)
{
    struct np_node *config = NULL;
    bool has =
        np_folder_config(dir, &config, NULL) == 0 && np_node_is(np_node_get(config, "name"), name);

    np_node_free(config);
    return has;
}

/* why: "DIR: REASON" */
static void pass_over(struct search *search, const char *dir, const char *why)
{
    const size_t bytes = strlen(dir), used = strlen(search->passed);
    const char *base = strrchr(dir, '/') ? strrchr(dir, '/') + 1 : dir;
    char reason[200];

    if (strncmp(why, dir, bytes) == 0 && strncmp(why + bytes, ": ", 2) == 0)
        why += bytes + 2;
    if (np_folder_running(dir, reason, sizeof(reason)))
        why = reason;
    if (search->nr_passed++ < MAX_NAMED)
        snprintf(search->passed + used, sizeof(search->passed) - used, "%s%s: %.*s",
            used ? "; " : "", base, (int)strcspn(why, ";"), why);
}

static bool fits(void *context, const char *dir)
{
    struct search *search = context;
    struct np_run *run = search->run;
    struct place place = {0};
    struct np_err why = {0};

    if (!has_name(dir, run->config->name))
        return false;
    int code = check_place(run, dir, &place, &why);
    if (code == 0) {
        const struct np_node *train = np_node_get(place.resolved, "train");
        uint64_t steps = np_run_steps(
            run, np_node_number(train, "epochs", 0), (int64_t)np_node_number(train, "steps", 0));
        struct np_node *result = NULL;

        if (np_folder_result(dir, &result) >= (double)steps || np_node_get(result, "reason"))
            code = np_err_set(&why, -EINVAL, "%s: finished", dir);
        np_node_free(result);
    }
    place_fini(&place);
    if (code < 0)
        pass_over(search, dir, why.text);
    return code == 0;
}

static int newest_folder(struct np_run *run, struct np_err *err)
{
    struct search search = {.run = run};
    char *dir = NULL;
    int code = np_folder_find(run->config->runs, run->config->name, fits, &search, &dir, err);

    if (code == 0 && !dir && run->options->resume_auto) {
        if (search.nr_passed)
            np_run_say(run, "--resume auto: a new run begins; not continued: %s", search.passed);
        return 0;
    }
    if (code == 0 && !dir) {
        char more[40] = "";

        run->usage = true;
        if (search.nr_passed > MAX_NAMED)
            snprintf(more, sizeof(more), "; and %d more", search.nr_passed - MAX_NAMED);
        code = np_err_set(err, -EINVAL,
            "no unfinished run of '%s' with this config below %s%s%s%s; without --resume a new "
            "run begins",
            run->config->name, run->config->runs, search.nr_passed ? ": " : "", search.passed,
            more);
    }
    if (code == 0)
        code = named_folder(run, dir, err);
    np_free(dir);
    return code;
}

static int find_folder(struct np_run *run, struct np_err *err)
{
    const struct np_run_options *options = run->options;
    int code;

    if (options->into)
        return np_folder_has_checkpoint(options->into) ? named_folder(run, options->into, err) : 0;
    if (!options->resume)
        return 0;
    code =
        options->resume_dir ? named_folder(run, options->resume_dir, err) : newest_folder(run, err);
    if (code < 0)
        return np_err_context(err, "--resume");
    if (!run->dir)
        return 0;
    code = np_folder_lock(run->dir, &run->lock_fd, err);
    run->usage = code == -EBUSY; /* another process is training that run */
    return code;
}

/* Rank 0 finds the folder and locks it, the others only read it. */
int np_run_find_folder(struct np_run *run, struct np_err *err)
{
    char dir[4096] = "";
    int code = np_run_leads(run) ? find_folder(run, err) : 0;

    if (code == 0 && run->dir)
        snprintf(dir, sizeof(dir), "%s", run->dir);
    if (code == 0)
        code = np_run_share_dir(run, dir, sizeof(dir), err);
    return code == 0 && *dir && !np_run_leads(run) ? named_folder(run, dir, err) : code;
}
