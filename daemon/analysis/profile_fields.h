/* A struct of numbers and its JSON object, by one table for writing and reading. Main thread. */
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
    NP_FIELD_STAGES,  /* double[NP_NR_STAGES] as an object, by their names */
    NP_FIELD_STATES,  /* double[NP_NR_STATES], the same */
    NP_FIELD_BRIDGES, /* double[NP_FEED_BRIDGES], by the number of slots */
};
struct np_field {
    const char *key; /* NULL: the table's end */
    enum np_field_kind kind;
    size_t offset, size;
};

extern const struct np_field np_fields_observation[], np_fields_observed_stage[], np_fields_feed[],
    np_fields_ceilings[], np_fields_knobs[], np_fields_model[], np_fields_verdict[],
    np_fields_advice[], np_fields_profile[];

/* The fields of `from` into the object under way. */
void np_fields_write(struct np_json *json, const struct np_field *fields, const void *from);
/* The fields of an observation, its stages and the feed's times among them. */
void np_fields_write_observation(struct np_json *json, const struct np_observation *observation);
/* The other way; a key that is not there leaves what `to` holds, keys not known are passed over.
 * -EBADMSG: a value of another kind, or beyond its type; `where` names the object. */
int np_fields_read(const struct np_node *map, const char *where, const struct np_field *fields,
    void *to, struct np_err *err);
int np_fields_read_observation(
    const struct np_node *map, struct np_observation *observation, struct np_err *err);
/* The profile that a `pipeline` line of metrics.jsonl gives (np_profile_look). Sets text to the names of stages without a
 * ceiling, since no part was measured alone: "read, batch". false: it is not a whole line. */
bool np_fields_read_profile(
    const struct np_node *pipeline, struct np_profile *ret_profile, char *text, size_t bytes);
/* A scalar as a number: null is INFINITY. false: something else. */
bool np_field_number(const struct np_node *node, double *ret_value);

#endif
