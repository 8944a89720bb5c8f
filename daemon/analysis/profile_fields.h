/* Writes structs of numbers as JSON objects and reads them back, with one table for both. Main thread. */
#ifndef NP_PROFILE_FIELDS_H
#define NP_PROFILE_FIELDS_H

#include <stddef.h>

#include "loader/base/json.h"
#include "daemon/analysis/profile.h"

enum np_field_kind {
    NP_FIELD_REAL, /* null: INFINITY */
    NP_FIELD_INT,
    NP_FIELD_U64,
    NP_FIELD_BOOL,
    NP_FIELD_TEXT,    /* char[size] */
    NP_FIELD_STAGE,   /* enum np_stage, by its name */
    NP_FIELD_STAGES,  /* double[NP_NR_STAGES] as an object, keys are the stages' names */
    NP_FIELD_STATES,  /* double[NP_NR_STATES], the same */
    NP_FIELD_BRIDGES, /* double[NP_FEED_BRIDGES], keys are numbers of slots */
};
struct np_field {
    const char *key; /* NULL: end of the table */
    enum np_field_kind kind;
    size_t offset, size;
};

extern const struct np_field np_fields_observation[], np_fields_observed_stage[], np_fields_feed[],
    np_fields_ceilings[], np_fields_knobs[], np_fields_model[], np_fields_verdict[],
    np_fields_advice[], np_fields_profile[];

/* Writes the fields of `from` to the open object. */
void np_fields_write(struct np_json *json, const struct np_field *fields, const void *from);
/* Writes an observation with its stages and the feed's times. */
void np_fields_write_observation(struct np_json *json, const struct np_observation *observation);
/* Reads fields. A missing key leaves `to` unchanged, unknown keys are ignored. -EBADMSG: a value of
 * another kind or out of range; `where` names the object in the error. */
int np_fields_read(const struct np_node *map, const char *where, const struct np_field *fields,
    void *to, struct np_err *err);
int np_fields_read_observation(
    const struct np_node *map, struct np_observation *observation, struct np_err *err);
/* Makes the profile of a `pipeline` line of metrics.jsonl (np_profile_look()). text: the stages without a
 * ceiling, because no part was measured alone: "read, batch". false: the line is not complete. */
bool np_fields_read_profile(
    const struct np_node *pipeline, struct np_profile *ret_profile, char *text, size_t bytes);
/* A scalar as a number; null is INFINITY. false: not a number. */
bool np_field_number(const struct np_node *node, double *ret_value);

#endif
