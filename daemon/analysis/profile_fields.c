/* See profile_fields.h: the tables, and the two walks over them. */
#include "daemon/analysis/profile_fields.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <string.h>

#include "daemon/analysis/model.h"
#include "loader/base/text.h"

#define FIELD(type, kind, key, member)                                                             \
    {                                                                                              \
        key, NP_FIELD_##kind, offsetof(struct type, member), sizeof(((struct type *)0)->member)    \
    }
#define END                                                                                        \
    {                                                                                              \
        NULL, NP_FIELD_REAL, 0, 0                                                                  \
    }

const struct np_field np_fields_observation[] = {
    FIELD(np_observation, REAL, "seconds", seconds),
    FIELD(np_observation, U64, "images", images),
    FIELD(np_observation, U64, "steps", steps),
    FIELD(np_observation, REAL, "images_per_second", images_per_second),
    FIELD(np_observation, INT, "readers", nr_readers),
    FIELD(np_observation, STATES, "reader_seconds", reader_s),
    FIELD(np_observation, REAL, "reader_cpu_seconds", reader_cpu_s),
    FIELD(np_observation, REAL, "reader_delay_seconds", reader_delay_s),
    FIELD(np_observation, STATES, "trainer_seconds", trainer_s),
    FIELD(np_observation, REAL, "process_cpu_seconds", process_cpu_s),
    FIELD(np_observation, REAL, "cores", cores),
    FIELD(np_observation, REAL, "other_cores", other_cores),
    FIELD(np_observation, REAL, "ring_full", ring_full),
    FIELD(np_observation, REAL, "reads_full", reads_full),
    FIELD(np_observation, REAL, "stall_seconds", stall_s),
    FIELD(np_observation, STAGES, "blame_seconds", blame_s),
    FIELD(np_observation, BRIDGES, "bridged_seconds", bridged_s),
    FIELD(np_observation, REAL, "checkpoint_seconds", checkpoint_s),
    FIELD(np_observation, U64, "checkpoints", nr_checkpoints),
    FIELD(np_observation, REAL, "checkpoint_each_seconds", checkpoint_each_s),
    END,
};
const struct np_field np_fields_observed_stage[] = {
    FIELD(np_observed_stage, U64, "items", items),
    FIELD(np_observed_stage, U64, "bytes", bytes),
    FIELD(np_observed_stage, REAL, "work_seconds", work_s),
    FIELD(np_observed_stage, REAL, "p50_seconds", p50_s),
    FIELD(np_observed_stage, REAL, "p99_seconds", p99_s),
    END,
};
const struct np_field np_fields_feed[] = {
    FIELD(np_feed_times, U64, "batches", nr_batches),
    FIELD(np_feed_times, U64, "copy_nanoseconds", copy_ns),
    FIELD(np_feed_times, U64, "compute_nanoseconds", compute_ns),
    FIELD(np_feed_times, U64, "idle_nanoseconds", idle_ns),
    END,
};
const struct np_field np_fields_ceilings[] = {
    FIELD(np_ceilings, REAL, "read_cold", read_cold),
    FIELD(np_ceilings, REAL, "read_warm", read_warm),
    FIELD(np_ceilings, REAL, "read_deep", read_deep),
    FIELD(np_ceilings, REAL, "loader", loader),
    FIELD(np_ceilings, REAL, "copy", copy),
    FIELD(np_ceilings, REAL, "step", step),
    END,
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
    END,
};
const struct np_field np_fields_model[] = {
    FIELD(np_model, REAL, "rate", rate),
    FIELD(np_model, REAL, "cores", cores),
    FIELD(np_model, STAGES, "thread_seconds", thread_s),
    FIELD(np_model, STAGES, "blocked_seconds", blocked_s),
    FIELD(np_model, REAL, "read_rate", read_rate),
    FIELD(np_model, REAL, "read_most", read_max),
    FIELD(np_model, REAL, "copy_rate", copy_rate),
    FIELD(np_model, REAL, "step_rate", step_rate),
    FIELD(np_model, REAL, "step_cpu_seconds", step_cpu_s),
    FIELD(np_model, REAL, "checkpoint_each_seconds", checkpoint_each_s),
    FIELD(np_model, REAL, "checkpoint_share", checkpoint_share),
    FIELD(np_model, REAL, "coupling", coupling),
    FIELD(np_model, BRIDGES, "bridged", bridged),
    END,
};
const struct np_field np_fields_verdict[] = {
    FIELD(np_profile_verdict, STAGE, "limiter", limiter),
    FIELD(np_profile_verdict, REAL, "gain", gain),
    FIELD(np_profile_verdict, STAGE, "next", next),
    FIELD(np_profile_verdict, REAL, "next_images_per_second", next_rate),
    FIELD(np_profile_verdict, REAL, "headroom", headroom),
    FIELD(np_profile_verdict, TEXT, "reason", reason),
    END,
};
const struct np_field np_fields_advice[] = {
    FIELD(np_advice, TEXT, "key", key),
    FIELD(np_advice, TEXT, "from", from),
    FIELD(np_advice, TEXT, "to", to),
    FIELD(np_advice, TEXT, "text", text),
    FIELD(np_advice, REAL, "images_per_second", rate),
    FIELD(np_advice, REAL, "cores", cores),
    FIELD(np_advice, U64, "memory_bytes", memory_bytes),
    END,
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
    FIELD(np_profile, STAGES, "stubbed", stubbed),
    END,
};
/* The last row reads struct np_deep_stage[] as numbers. */
_Static_assert(sizeof(struct np_deep_stage) == sizeof(double), "a number a stage");

static const char *const more_slots[NP_FEED_BRIDGES] = {"1", "2", "4", "8", "16"};

/* --- writing ---------------------------------------------------------------------------------- */

static void write_numbers(
    struct np_json *json, const char *key, const double *values, const char *const *names, int n)
{
    np_json_open(json, key, '{');
    for (int i = 0; i < n; i++)
        np_json_real(json, names[i], values[i]);
    np_json_close(json, '}');
}

void np_fields_write(struct np_json *json, const struct np_field *fields, const void *from)
{
    for (const struct np_field *field = fields; field->key; field++) {
        const void *at = (const char *)from + field->offset;
        const char *key = field->key;

        switch (field->kind) {
        case NP_FIELD_REAL: np_json_real(json, key, *(const double *)at); break;
        case NP_FIELD_INT: np_json_int(json, key, *(const int *)at); break;
        case NP_FIELD_BOOL: np_json_bool(json, key, *(const bool *)at); break;
        case NP_FIELD_TEXT: np_json_text(json, key, at); break;
        case NP_FIELD_U64: {
            uint64_t value = *(const uint64_t *)at;
            np_json_int(json, key, value > INT64_MAX ? INT64_MAX : (int64_t)value);
            break;
        }
        case NP_FIELD_STAGE:
            np_json_text(json, key, np_stage_names[*(const enum np_stage *)at]);
            break;
        case NP_FIELD_STAGES: write_numbers(json, key, at, np_stage_names, NP_NR_STAGES); break;
        case NP_FIELD_STATES: write_numbers(json, key, at, np_state_names, NP_NR_STATES); break;
        case NP_FIELD_BRIDGES: write_numbers(json, key, at, more_slots, NP_FEED_BRIDGES); break;
        }
    }
}

void np_fields_write_observation(struct np_json *json, const struct np_observation *observation)
{
    np_fields_write(json, np_fields_observation, observation);
    np_json_open(json, "stages", '{');
    for (int s = 0; s < NP_NR_STAGES; s++) {
        np_json_open(json, np_stage_names[s], '{');
        np_fields_write(json, np_fields_observed_stage, &observation->stages[s]);
        np_json_close(json, '}');
    }
    np_json_close(json, '}');
    np_json_open(json, "feed", '{');
    np_fields_write(json, np_fields_feed, &observation->feed);
    np_json_close(json, '}');
}

/* --- reading ---------------------------------------------------------------------------------- */

static int stage_of(const char *name)
{
    for (int s = 0; s < NP_NR_STAGES; s++)
        if (strcmp(np_stage_names[s], name) == 0)
            return s;
    return -1;
}

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

static bool read_numbers(const struct np_node *map, double *values, const char *const *names, int n)
{
    if (map->kind != NP_NODE_MAP)
        return false;
    for (int i = 0; i < n; i++) {
        const struct np_node *node = np_node_get(map, names[i]);
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

static bool read_field(const struct np_node *node, const struct np_field *field, void *at)
{
    int64_t whole;
    int stage;

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
    case NP_FIELD_STAGE:
        stage = node->kind == NP_NODE_SCALAR ? stage_of(node->text) : -1;
        if (stage >= 0)
            *(enum np_stage *)at = (enum np_stage)stage;
        return stage >= 0;
    case NP_FIELD_STAGES: return read_numbers(node, at, np_stage_names, NP_NR_STAGES);
    case NP_FIELD_STATES: return read_numbers(node, at, np_state_names, NP_NR_STATES);
    case NP_FIELD_BRIDGES: return read_numbers(node, at, more_slots, NP_FEED_BRIDGES);
    }
    return false;
}

int np_fields_read(const struct np_node *map, const char *where, const struct np_field *fields,
    void *to, struct np_err *err)
{
    if (!map)
        return 0;
    if (map->kind != NP_NODE_MAP)
        return np_err_set(err, -EBADMSG, "\"%s\" is not an object", where);
    for (const struct np_field *field = fields; field->key; field++) {
        const struct np_node *node = np_node_get(map, field->key);
        if (node && !read_field(node, field, (char *)to + field->offset))
            return np_err_set(
                err, -EBADMSG, "\"%s\" of \"%s\" has a value of another kind", field->key, where);
    }
    return 0;
}

int np_fields_read_observation(
    const struct np_node *map, struct np_observation *observation, struct np_err *err)
{
    int code = np_fields_read(map, "observation", np_fields_observation, observation, err);
    const struct np_node *stages = code || !map ? NULL : np_node_get(map, "stages");

    if (stages && stages->kind != NP_NODE_MAP)
        return np_err_set(err, -EBADMSG, "\"stages\" of \"observation\" is not an object");
    for (int s = 0; code == 0 && stages && s < NP_NR_STAGES; s++)
        code = np_fields_read(np_node_get(stages, np_stage_names[s]), np_stage_names[s],
            np_fields_observed_stage, &observation->stages[s], err);
    if (code == 0 && map)
        code = np_fields_read(
            np_node_get(map, "feed"), "feed", np_fields_feed, &observation->feed, err);
    return code;
}

bool np_fields_read_profile(
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
