/* Writes structs of numbers as JSON objects and reads them back, with one table for both. Main
 * thread. */
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
    NP_FIELD_TEXT,  /* char[size] */
    NP_FIELD_NAME,  /* an enum, by its names[nr] */
    NP_FIELD_REALS, /* double[nr] as an object, with names as keys */
    NP_FIELD_OBJECT,
    NP_FIELD_OBJECTS, /* an array of nr such structs as an object, with names as keys */
};
struct np_field {
    const char *key; /* NULL: end of the table */
    enum np_field_kind kind;
    size_t offset, size;
    const char *const *names;
    int nr;
    const struct np_field *fields;
    bool line; /* writes it on a line of its own */
};

/* np_fields_profile: of the first level of profile.json; np_fields_details: the objects in it. */
extern const struct np_field np_fields_observation[], np_fields_knobs[], np_fields_profile[],
    np_fields_details[];

void np_fields_write(struct np_json *json, const struct np_field *fields, const void *from);
/* Reads fields. A missing key leaves `to` unchanged, unknown keys are ignored. -EBADMSG: a value of
 * another kind or out of range; `where` names the object in the error. */
int np_fields_read(const struct np_node *map, const char *where, const struct np_field *fields,
    void *to, struct np_err *err);
/* Makes the profile of a `pipeline` line of metrics.jsonl (np_profile_look()). text: the stages
 * without a ceiling, because no part was measured alone: "read, batch". false: the line is not
 * complete. */
bool np_fields_read_profile(
    const struct np_node *pipeline, struct np_profile *ret_profile, char *text, size_t bytes);
/* A scalar as a number; null is INFINITY. false: not a number. */
bool np_field_number(const struct np_node *node, double *ret_value);

#endif
