/* profile.json: the fields of the `done` event at the first level, the rest of the profile below
 * it. Reading gives back what was written; null is INFINITY. docs/PROFILING.md has the schema. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "daemon/analysis/profile_fields.h"
#include "daemon/analysis/words.h"
#include "loader/base/io.h"
#include "loader/base/mem.h"

#define MAX_FILE_BYTES (64u << 20)

/* --- writing ------------------------------------------------------------------------------- */

/* Writes the one ceiling of the readers' CPU stages for each of them. */
static void write_stages(struct np_json *json, const char *key, const struct np_profile *profile)
{
    struct np_words_row rows[NP_NR_STAGES];
    int n = np_words_rows(profile, rows);
    char note[160];

    np_json_open(json, key, '[');
    for (int i = 0; i < n; i++) {
        np_json_open(json, NULL, '{');
        np_json_text(json, "name", rows[i].name);
        np_json_real(json, "ceiling_images_per_second", rows[i].could_do);
        np_json_real(json, "busy", rows[i].busy);
        np_json_real(json, "queue", rows[i].queue < 0 ? INFINITY : rows[i].queue);
        np_words_note(profile, &rows[i], note, sizeof(note));
        np_json_text(json, "note", note);
        np_json_close(json, '}');
    }
    np_json_close(json, ']');
}

static void write_event(struct np_json *json, const struct np_profile *profile)
{
    const struct np_profile_verdict *verdict = &profile->verdict;
    const struct np_advice *advice = &verdict->advice;
    bool set = advice->key[0] != '\0', known = verdict->kind != NP_INCONCLUSIVE;

    np_json_begin(json, "done");
    np_json_text(json, "verdict", np_verdict_names[verdict->kind]);
    np_json_text(json, "limiter", known ? np_stage_names[verdict->limiter] : NULL);
    np_json_real(json, "images_per_second", profile->model.rate);
    np_json_real(json, "predicted_images_per_second",
        set                           ? advice->rate
        : verdict->kind == NP_LIMITED ? verdict->next_rate
                                      : profile->model.rate);
    np_json_text(json, "setting", set ? advice->key : NULL);
    np_json_text(json, "value", set ? advice->to : NULL);
    np_json_text(
        json, "next_limiter", verdict->kind == NP_LIMITED ? np_stage_names[verdict->next] : NULL);
    np_json_real(json, "next_images_per_second",
        verdict->kind == NP_LIMITED ? verdict->next_rate : INFINITY);
    np_fields_write(json, np_fields_profile, profile);
    write_stages(json, "stages", profile);
}

void np_profile_write_look(struct np_json *json, const struct np_profile *profile)
{
    const struct np_profile_verdict *verdict = &profile->verdict;
    const bool limited = verdict->kind == NP_LIMITED;

    np_json_text(json, "verdict", np_verdict_names[verdict->kind]);
    np_json_text(json, "limiter", limited ? np_stage_names[verdict->limiter] : NULL);
    np_json_real(json, "gain", limited ? verdict->gain : INFINITY);
    np_json_text(json, "reason", verdict->reason);
    write_stages(json, "bars", profile);
}

char *np_profile_done(const struct np_profile *profile, struct np_err *err)
{
    struct np_json json = {0};

    write_event(&json, profile);
    return np_json_take(&json, err);
}

static void write_row(struct np_json *json, const double *values, int n)
{
    np_json_open(json, NULL, '[');
    for (int i = 0; i < n; i++)
        np_json_real(json, NULL, values[i]);
    np_json_close(json, ']');
}

static void write_curve(struct np_json *json, const struct np_profile *profile)
{
    np_json_line(json);
    np_json_open(json, "curve", '[');
    for (int i = 0; i < profile->nr_curve && i < NP_PROFILE_MAX_CURVE; i++)
        write_row(json, (double[]){profile->curve_faster[i], profile->curve_rate[i]}, 2);
    np_json_close(json, ']');
}

/* A row is struct np_ribbon as numbers: at_s, rate, then the waits by stage. */
#define RIBBON_COLUMNS (2 + NP_NR_STAGES)
_Static_assert(sizeof(struct np_ribbon) == RIBBON_COLUMNS * sizeof(double), "only numbers");

static void write_ribbon(struct np_json *json, const struct np_profile *profile)
{
    np_json_line(json);
    np_json_open(json, "ribbon", '[');
    for (int i = 0; i < profile->nr_ribbon; i++) {
        np_json_line(json);
        write_row(json, (const double *)&profile->ribbon[i], RIBBON_COLUMNS);
    }
    np_json_close(json, ']');
}

static void write_details(struct np_json *json, const struct np_profile *profile)
{
    np_fields_write(json, np_fields_details, profile);
    write_curve(json, profile);
    write_ribbon(json, profile);
}

/* The rows and parts of words.c, for profile.html: its script draws, and computes nothing
 * itself. */
static void write_report(struct np_json *json, const struct np_profile *profile)
{
    static const char *const where[] = {"compute", "wait", "checkpoints", "else"};
    struct np_words_part parts[NP_WORDS_PARTS];
    int n = np_words_parts(profile, parts);
    char text[256];

    np_json_line(json);
    np_json_open(json, "report", '{');
    np_words_cost(profile, text, sizeof(text));
    np_json_text(json, "cost", text);
    np_words_trust(profile, text, sizeof(text));
    np_json_text(json, "trust", text);
    np_json_open(json, "parts", '[');
    for (int i = 0; i < n; i++) {
        np_json_open(json, NULL, '{');
        np_json_text(json, "where", where[parts[i].where]);
        np_json_text(json, "stage", np_stage_names[parts[i].stage]);
        np_json_real(json, "share", parts[i].share);
        np_json_close(json, '}');
    }
    np_json_close(json, ']');
    np_json_close(json, '}');
}

char *np_profile_json(const struct np_profile *profile, struct np_err *err)
{
    struct np_json json = {0};

    write_event(&json, profile);
    write_details(&json, profile);
    write_report(&json, profile);
    if (profile->before) { /* without its own `before`; of the event only its stages */
        np_json_line(&json);
        np_json_open(&json, "before", '{');
        np_fields_write(&json, np_fields_profile, profile->before);
        write_stages(&json, "stages", profile->before);
        write_details(&json, profile->before);
        np_json_close(&json, '}');
    }
    return np_json_take(&json, err);
}

/* --- reading ------------------------------------------------------------------------------- */

void np_profile_fini(struct np_profile *profile)
{
    if (profile->before) {
        struct np_profile *before = (struct np_profile *)profile->before;
        np_profile_fini(before);
        np_free(before);
    }
    np_free(profile->ribbon);
    memset(profile, 0, sizeof(*profile));
}

static bool read_row(const struct np_node *list, double *values, int n)
{
    if (list->kind != NP_NODE_LIST || list->nr_items != n)
        return false;
    for (int i = 0; i < n; i++)
        if (!np_field_number(list->items[i], &values[i]))
            return false;
    return true;
}

static int read_curve(const struct np_node *list, struct np_profile *profile, struct np_err *err)
{
    double row[2];

    if (!list)
        return 0;
    if (list->kind != NP_NODE_LIST || list->nr_items > NP_PROFILE_MAX_CURVE)
        return np_err_set(
            err, -EBADMSG, "\"curve\" is not a list of at most %d pairs", NP_PROFILE_MAX_CURVE);
    for (int i = 0; i < list->nr_items; i++) {
        if (!read_row(list->items[i], row, 2))
            return np_err_set(err, -EBADMSG, "\"curve\": item %d is not a pair of numbers", i);
        profile->curve_faster[i] = row[0];
        profile->curve_rate[i] = row[1];
        profile->nr_curve = i + 1;
    }
    return 0;
}

static int read_ribbon(const struct np_node *list, struct np_profile *profile, struct np_err *err)
{
    if (!list || (list->kind == NP_NODE_LIST && list->nr_items == 0))
        return 0;
    if (list->kind != NP_NODE_LIST)
        return np_err_set(err, -EBADMSG, "\"ribbon\" is not a list");
    profile->ribbon = np_try_array((size_t)list->nr_items, sizeof(*profile->ribbon), err);
    if (!profile->ribbon)
        return -ENOMEM;
    for (; profile->nr_ribbon < list->nr_items; profile->nr_ribbon++)
        if (!read_row(list->items[profile->nr_ribbon],
                (double *)&profile->ribbon[profile->nr_ribbon], RIBBON_COLUMNS))
            return np_err_set(err, -EBADMSG, "\"ribbon\": row %d is not of %d numbers",
                profile->nr_ribbon, RIBBON_COLUMNS);
    return 0;
}

static int read_profile(const struct np_node *map, struct np_profile *profile, struct np_err *err)
{
    struct np_model *model = &profile->model;
    int code = np_fields_read(map, "profile", np_fields_profile, profile, err);
    const struct np_node *finding = code ? NULL : np_node_get(map, "finding");

    if (code == 0 && !(finding && finding->kind == NP_NODE_MAP && np_node_get(finding, "kind")))
        return np_err_set(err, -EBADMSG, "no verdict in \"finding\"");
    if (code == 0)
        code = np_fields_read(map, "profile", np_fields_details, profile, err);
    if (code == 0 && model->checkpoint_share > 0 && model->checkpoint_each_s == 0 &&
        model->rate > 0) /* an older profile */
        model->checkpoint_each_s = model->checkpoint_share * model->knobs.checkpoint_steps *
                                   model->knobs.batch / model->rate;
    if (code == 0)
        code = read_curve(np_node_get(map, "curve"), profile, err);
    if (code == 0)
        code = read_ribbon(np_node_get(map, "ribbon"), profile, err);
    return code;
}

static int read_tree(const struct np_node *root, struct np_profile *profile, struct np_err *err)
{
    const struct np_node *event = root->kind == NP_NODE_MAP ? np_node_get(root, "event") : NULL;

    if (!event || !np_node_is(event, "done") || !np_node_get(root, "finding"))
        return np_err_set(err, -EBADMSG, "not a profile: `nnpipe profile` writes one");
    const struct np_node *before_map = np_node_get(root, "before");
    int code = read_profile(root, profile, err);
    if (code || !before_map)
        return code;
    struct np_profile *before = np_alloc(sizeof(*before));
    profile->before = before;
    code = read_profile(before_map, before, err);
    if (code)
        np_err_context(err, "\"before\"");
    return code;
}

int np_profile_parse(
    const char *text, size_t bytes, struct np_profile *ret_profile, struct np_err *err)
{
    struct np_node *root = NULL;
    struct np_profile profile = {0};
    int code = np_json_parse(text, bytes, &root, err);

    if (code == 0)
        code = read_tree(root, &profile, err);
    np_node_free(root);
    if (code)
        np_profile_fini(&profile);
    else
        *ret_profile = profile;
    return code;
}

int np_profile_read(const char *path, struct np_profile *ret_profile, struct np_err *err)
{
    char *text;
    uint64_t bytes;
    int code = np_read_file(path, MAX_FILE_BYTES, &text, &bytes, err);

    if (code)
        return code;
    code = np_profile_parse(text, bytes, ret_profile, err);
    np_free(text);
    return code ? np_err_context(err, "%s", path) : 0;
}
