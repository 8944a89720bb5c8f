#include "daemon/analysis/profile_fields.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <string.h>

#include "daemon/analysis/model.h"
#include "loader/base/text.h"

/* The key, place and kind of a member; then, for some kinds, the names or the table that belong
 * to it. */
#define FIELD(type, kind_, key_, member, ...)                                                      \
    {                                                                                              \
        .key = key_, .kind = NP_FIELD_##kind_, .offset = offsetof(struct type, member),            \
        .size = sizeof(((struct type *)0)->member), __VA_ARGS__                                    \
    }
#define STAGES   .names = np_stage_names, .nr = NP_NR_STAGES
#define STATES   .names = np_state_names, .nr = NP_NR_STATES
#define SLOTS    .names = more_slots, .nr = NP_FEED_BRIDGES
#define VERDICTS .names = np_verdict_names, .nr = NP_INCONCLUSIVE + 1

static const char *const more_slots[] = {"1", "2", "4", "8", "16"};
_Static_assert(sizeof(more_slots) / sizeof(*more_slots) == NP_FEED_BRIDGES, "a name each");

static const struct np_field observed_stage[] = {
    FIELD(np_observed_stage, U64, "items", items),
    FIELD(np_observed_stage, U64, "bytes", bytes),
    FIELD(np_observed_stage, REAL, "work_seconds", work_s),
    FIELD(np_observed_stage, REAL, "p50_seconds", p50_s),
    FIELD(np_observed_stage, REAL, "p99_seconds", p99_s),
    {.key = NULL},
};
static const struct np_field feed[] = {
    FIELD(np_feed_times, U64, "batches", nr_batches),
    FIELD(np_feed_times, U64, "copy_nanoseconds", copy_ns),
    FIELD(np_feed_times, U64, "compute_nanoseconds", compute_ns),
    FIELD(np_feed_times, U64, "idle_nanoseconds", idle_ns),
    {.key = NULL},
};
const struct np_field np_fields_observation[] = {
    FIELD(np_observation, REAL, "seconds", seconds),
    FIELD(np_observation, U64, "images", images),
    FIELD(np_observation, U64, "steps", steps),
    FIELD(np_observation, REAL, "images_per_second", images_per_second),
    FIELD(np_observation, U64, "entered", entered),
    FIELD(np_observation, U64, "missed_entries", missed),
    FIELD(np_observation, U64, "made_batches", made),
    FIELD(np_observation, U64, "taken_batches", taken),
    FIELD(np_observation, U64, "decoded_pictures", decoded),
    FIELD(np_observation, U64, "found_pictures", found),
    FIELD(np_observation, INT, "readers", nr_readers),
    FIELD(np_observation, REALS, "reader_seconds", reader_s, STATES),
    FIELD(np_observation, REAL, "reader_cpu_seconds", reader_cpu_s),
    FIELD(np_observation, REAL, "reader_delay_seconds", reader_delay_s),
    FIELD(np_observation, REALS, "trainer_seconds", trainer_s, STATES),
    FIELD(np_observation, REAL, "process_cpu_seconds", process_cpu_s),
    FIELD(np_observation, REAL, "cores", cores),
    FIELD(np_observation, REAL, "other_cores", other_cores),
    FIELD(np_observation, REAL, "ring_full", ring_full),
    FIELD(np_observation, REAL, "reads_full", reads_full),
    FIELD(np_observation, REAL, "stall_seconds", stall_s),
    FIELD(np_observation, REALS, "blame_seconds", blame_s, STAGES),
    FIELD(np_observation, REALS, "bridged_seconds", bridged_s, SLOTS),
    FIELD(np_observation, REAL, "checkpoint_seconds", checkpoint_s),
    FIELD(np_observation, U64, "checkpoints", nr_checkpoints),
    FIELD(np_observation, REAL, "checkpoint_each_seconds", checkpoint_each_s),
    FIELD(np_observation, OBJECTS, "stages", stages, STAGES, .fields = observed_stage),
    FIELD(np_observation, OBJECT, "feed", feed, .fields = feed),
    {.key = NULL},
};
static const struct np_field ceilings[] = {
    FIELD(np_ceilings, REAL, "read_cold", read_cold),
    FIELD(np_ceilings, REAL, "read_warm", read_warm),
    FIELD(np_ceilings, REAL, "read_deep", read_deep),
    FIELD(np_ceilings, REAL, "loader", loader),
    FIELD(np_ceilings, REAL, "copy", copy),
    FIELD(np_ceilings, REAL, "step", step),
    {.key = NULL},
};
const struct np_field np_fields_knobs[] = {
    FIELD(np_knobs, INT, "readers", readers),
    FIELD(np_knobs, INT, "depth", depth),
    FIELD(np_knobs, INT, "prefetch", prefetch),
    FIELD(np_knobs, INT, "batch", batch),
    FIELD(np_knobs, TEXT, "io", io),
    FIELD(np_knobs, TEXT, "cache", cache),
    FIELD(np_knobs, TEXT, "device", device),
    FIELD(np_knobs, TEXT, "precision", precision),
    FIELD(np_knobs, REAL, "checkpoint_steps", checkpoint_steps),
    FIELD(np_knobs, U64, "samples", nr_samples),
    FIELD(np_knobs, U64, "set_bytes", set_bytes),
    FIELD(np_knobs, U64, "picture_bytes", picture_bytes),
    FIELD(np_knobs, U64, "row_bytes", row_bytes),
    FIELD(np_knobs, U64, "device_room", device_room),
    FIELD(np_knobs, U64, "memory_bytes", memory_bytes),
    FIELD(np_knobs, U64, "free_bytes", free_bytes),
    FIELD(np_knobs, REAL, "cores", cores),
    FIELD(np_knobs, BOOL, "device_has_memory", device_has_memory),
    FIELD(np_knobs, BOOL, "packed", packed),
    FIELD(np_knobs, BOOL, "cache_fills", cache_fills),
    FIELD(np_knobs, BOOL, "geometry_only", geometry_only),
    {.key = NULL},
};
static const struct np_field model[] = {
    FIELD(np_model, REAL, "rate", rate),
    FIELD(np_model, REAL, "cores", cores),
    FIELD(np_model, REALS, "thread_seconds", thread_s, STAGES),
    FIELD(np_model, REALS, "blocked_seconds", blocked_s, STAGES),
    FIELD(np_model, REAL, "read_rate", read_rate),
    FIELD(np_model, REAL, "read_most", read_max),
    FIELD(np_model, REAL, "copy_rate", copy_rate),
    FIELD(np_model, REAL, "step_rate", step_rate),
    FIELD(np_model, REAL, "step_cpu_seconds", step_cpu_s),
    FIELD(np_model, REAL, "checkpoint_each_seconds", checkpoint_each_s),
    FIELD(np_model, REAL, "checkpoint_share", checkpoint_share),
    FIELD(np_model, REAL, "coupling", coupling),
    FIELD(np_model, REALS, "bridged", bridged, SLOTS),
    FIELD(np_model, OBJECT, "knobs", knobs, .fields = np_fields_knobs),
    {.key = NULL},
};
static const struct np_field advice[] = {
    FIELD(np_advice, TEXT, "key", key),
    FIELD(np_advice, TEXT, "from", from),
    FIELD(np_advice, TEXT, "to", to),
    FIELD(np_advice, TEXT, "text", text),
    FIELD(np_advice, REAL, "images_per_second", rate),
    FIELD(np_advice, REAL, "cores", cores),
    FIELD(np_advice, U64, "memory_bytes", memory_bytes),
    {.key = NULL},
};
static const struct np_field verdict[] = {
    FIELD(np_profile_verdict, NAME, "kind", kind, VERDICTS),
    FIELD(np_profile_verdict, NAME, "limiter", limiter, STAGES),
    FIELD(np_profile_verdict, REAL, "gain", gain),
    FIELD(np_profile_verdict, NAME, "next", next, STAGES),
    FIELD(np_profile_verdict, REAL, "next_images_per_second", next_rate),
    FIELD(np_profile_verdict, REAL, "headroom", headroom),
    FIELD(np_profile_verdict, TEXT, "reason", reason),
    FIELD(np_profile_verdict, OBJECT, "advice", advice, .fields = advice),
    {.key = NULL},
};
const struct np_field np_fields_profile[] = {
    FIELD(np_profile, TEXT, "config", config),
    FIELD(np_profile, TEXT, "version", version),
    FIELD(np_profile, TEXT, "started_at", started_at),
    FIELD(np_profile, TEXT, "files", files),
    FIELD(np_profile, REAL, "noise", noise),
    FIELD(np_profile, REAL, "overhead", overhead),
    FIELD(np_profile, REAL, "seconds", seconds),
    FIELD(np_profile, BOOL, "deep", deep),
    FIELD(np_profile, BOOL, "verified", verified),
    FIELD(np_profile, BOOL, "verify_cache_fills", verify_fills),
    FIELD(np_profile, REAL, "verified_images_per_second", verified_rate),
    FIELD(np_profile, REALS, "stubbed", stubbed, STAGES),
    {.key = NULL},
};
const struct np_field np_fields_details[] = {
    FIELD(np_profile, OBJECT, "finding", verdict, .fields = verdict, .line = true),
    FIELD(np_profile, OBJECT, "knobs", knobs, .fields = np_fields_knobs, .line = true),
    FIELD(np_profile, OBJECT, "observation", observation, .fields = np_fields_observation,
        .line = true),
    FIELD(np_profile, OBJECT, "ceilings", ceilings, .fields = ceilings, .line = true),
    FIELD(np_profile, OBJECT, "model", model, .fields = model, .line = true),
    {.key = NULL},
};
/* "stubbed" reads struct np_deep_stage[] as numbers. */
_Static_assert(sizeof(struct np_deep_stage) == sizeof(double), "a number a stage");

/* --- writing ------------------------------------------------------------------------------- */

static void write_named(struct np_json *json, const struct np_field *field, const char *at)
{
    np_json_open(json, field->key, '{');
    for (int i = 0; i < field->nr; i++)
        if (field->kind == NP_FIELD_REALS) {
            np_json_real(json, field->names[i], ((const double *)at)[i]);
        } else {
            np_json_open(json, field->names[i], '{');
            np_fields_write(json, field->fields, at + (size_t)i * field->size / (size_t)field->nr);
            np_json_close(json, '}');
        }
    np_json_close(json, '}');
}

void np_fields_write(struct np_json *json, const struct np_field *fields, const void *from)
{
    for (const struct np_field *field = fields; field->key; field++) {
        const void *at = (const char *)from + field->offset;
        const char *key = field->key;
        uint64_t whole;

        switch (field->kind) {
        case NP_FIELD_REAL: np_json_real(json, key, *(const double *)at); break;
        case NP_FIELD_INT: np_json_int(json, key, *(const int *)at); break;
        case NP_FIELD_BOOL: np_json_bool(json, key, *(const bool *)at); break;
        case NP_FIELD_TEXT: np_json_text(json, key, at); break;
        case NP_FIELD_NAME: np_json_text(json, key, field->names[*(const unsigned *)at]); break;
        case NP_FIELD_U64:
            whole = *(const uint64_t *)at;
            np_json_int(json, key, whole > INT64_MAX ? INT64_MAX : (int64_t)whole);
            break;
        case NP_FIELD_OBJECT:
            if (field->line)
                np_json_line(json);
            np_json_open(json, key, '{');
            np_fields_write(json, field->fields, at);
            np_json_close(json, '}');
            break;
        case NP_FIELD_REALS:
        case NP_FIELD_OBJECTS: write_named(json, field, at); break;
        }
    }
}

/* --- reading ------------------------------------------------------------------------------- */

bool np_field_number(const struct np_node *node, double *ret_value)
{
    if (!node || node->kind != NP_NODE_SCALAR || node->quoted)
        return false;
    if (node->text[0] == '\0') { /* null */
        *ret_value = INFINITY;
        return true;
    }
    return np_text_real(node->text, -INFINITY, INFINITY, ret_value);
}

static bool whole_number(const struct np_node *node, int64_t min, int64_t max, int64_t *ret_value)
{
    return node->kind == NP_NODE_SCALAR && !node->quoted &&
           np_text_int(node->text, min, max, ret_value);
}

static bool read_name(const struct np_node *node, const struct np_field *field, unsigned *value)
{
    for (int i = 0; node->kind == NP_NODE_SCALAR && i < field->nr; i++)
        if (strcmp(field->names[i], node->text) == 0) {
            *value = (unsigned)i;
            return true;
        }
    return false;
}

static bool read_reals(const struct np_node *map, const struct np_field *field, double *values)
{
    if (map->kind != NP_NODE_MAP)
        return false;
    for (int i = 0; i < field->nr; i++) {
        const struct np_node *node = np_node_get(map, field->names[i]);

        if (node && !np_field_number(node, &values[i]))
            return false;
    }
    return true;
}

static bool read_text(const struct np_node *node, char *text, size_t size)
{
    if (node->kind != NP_NODE_SCALAR || !node->quoted)
        return false;
    snprintf(text, size, "%s", node->text);
    np_text_clean(text);
    return true;
}

static bool read_value(const struct np_node *node, const struct np_field *field, void *at)
{
    int64_t whole;

    switch (field->kind) {
    case NP_FIELD_REAL: return np_field_number(node, at);
    case NP_FIELD_INT:
        if (!whole_number(node, INT_MIN, INT_MAX, &whole))
            return false;
        *(int *)at = (int)whole;
        return true;
    case NP_FIELD_U64:
        if (!whole_number(node, 0, INT64_MAX, &whole))
            return false;
        *(uint64_t *)at = (uint64_t)whole;
        return true;
    case NP_FIELD_BOOL:
        *(bool *)at = np_node_is(node, "true");
        return node->kind == NP_NODE_SCALAR && !node->quoted &&
               (*(bool *)at || strcmp(node->text, "false") == 0);
    case NP_FIELD_TEXT: return read_text(node, at, field->size);
    case NP_FIELD_NAME: return read_name(node, field, at);
    case NP_FIELD_REALS: return read_reals(node, field, at);
    default: return node->kind == NP_NODE_MAP;
    }
}

int np_fields_read(const struct np_node *map, const char *where, const struct np_field *fields,
    void *to, struct np_err *err)
{
    int code = 0;

    if (!map)
        return 0;
    if (map->kind != NP_NODE_MAP)
        return np_err_set(err, -EBADMSG, "\"%s\" is not an object", where);
    for (const struct np_field *field = fields; field->key && code == 0; field++) {
        const struct np_node *node = np_node_get(map, field->key);
        char *at = (char *)to + field->offset;

        if (field->kind == NP_FIELD_OBJECT)
            code = np_fields_read(node, field->key, field->fields, at, err);
        else if (node && !read_value(node, field, at))
            return np_err_set(
                err, -EBADMSG, "\"%s\" of \"%s\" has a value of another kind", field->key, where);
        for (int i = 0; node && field->kind == NP_FIELD_OBJECTS && i < field->nr && code == 0; i++)
            code = np_fields_read(np_node_get(node, field->names[i]), field->names[i],
                field->fields, at + (size_t)i * field->size / (size_t)field->nr, err);
    }
    return code;
}

bool np_fields_read_profile(
    const struct np_node *pipeline, struct np_profile *ret_profile, char *text, size_t bytes)
{
    struct np_observation seen = {0};
    struct np_knobs knobs = {0};

    if (np_fields_read(pipeline, "", np_fields_observation, &seen, NULL) < 0 ||
        np_fields_read(np_node_get(pipeline, "knobs"), "", np_fields_knobs, &knobs, NULL) < 0 ||
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
