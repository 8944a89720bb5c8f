#include "daemon/ui/progress_fields.h"

#include <math.h>
#include <stddef.h>

#define REAL(member)                                                                               \
    {                                                                                              \
#member, offsetof(struct np_progress, member), 0                                           \
    }
#define TEXT(member)                                                                               \
    {                                                                                              \
#member, offsetof(struct np_progress, member), sizeof(((struct np_progress *)0)->member)   \
    }

static const struct field {
    const char *key;
    size_t offset, text_bytes; /* text_bytes 0: a double */
} fields[] = {
    REAL(step),
    REAL(total_steps),
    REAL(epoch),
    REAL(loss),
    REAL(accuracy),
    REAL(images_per_second),
    REAL(stall_ratio),
    TEXT(cause),
    REAL(eta_seconds),
    TEXT(doing),
    REAL(said),
};
#define NR_FIELDS (sizeof(fields) / sizeof(*fields))

const struct np_progress np_progress_unknown = {.step = NAN,
    .total_steps = NAN,
    .epoch = NAN,
    .loss = NAN,
    .accuracy = NAN,
    .images_per_second = NAN,
    .stall_ratio = NAN,
    .eta_seconds = NAN,
    .said = NAN,
    .total_epochs = NAN};

void np_progress_write(struct np_json *json, const struct np_progress *progress, bool known_only)
{
    for (const struct field *field = fields; field < fields + NR_FIELDS; field++) {
        const void *at = (const char *)progress + field->offset;
        const char *text = field->text_bytes ? at : "";
        const double value = field->text_bytes ? NAN : *(const double *)at;

        if (*text)
            np_json_text(json, field->key, text);
        else if (!known_only || isfinite(value))
            np_json_real(json, field->key, value);
    }
}

void np_progress_read(const struct np_node *map, struct np_progress *progress)
{
    for (const struct field *field = fields; field < fields + NR_FIELDS; field++) {
        const struct np_node *node = np_node_get(map, field->key);
        void *at = (char *)progress + field->offset;

        if (!node || node->kind != NP_NODE_SCALAR)
            continue;
        if (!field->text_bytes) {
            *(double *)at = np_node_number(map, field->key, NAN);
        } else {
            snprintf(at, field->text_bytes, "%s", node->text);
            np_text_clean(at);
        }
    }
}
