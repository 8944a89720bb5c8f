/* Labels in JSON: a member of a WebDataset beside each image. One thread. */
#ifndef NP_LABEL_JSON_H
#define NP_LABEL_JSON_H

#include <stddef.h>

#include "loader/base/node.h"
#include "loader/batch.h"

/* Where a JSON object has the label. */
struct np_label_fields {
    const struct np_node *names; /* borrowed: a list of the fields, at least one */
    enum np_label_type type;
    char separator; /* NP_LABEL_MULTI with one field that is a text: between its classes */
};

/* The label in an object: for NP_LABEL_CLASS a text, whole number or true and false; else a text of
 * label_text.h, for NP_LABEL_MULTI from a list or text of classes, or from several fields that are
 * true, false, 1 or 0; for NP_LABEL_VALUE from numbers. *ret_text: np_free; NULL: a field is null.
 * -EBADMSG: no such JSON; -EINVAL: no such label. */
int np_label_of_json(const char *text, size_t bytes, const struct np_label_fields *fields,
    char **ret_text, struct np_err *err);

#endif
