/* Do two configs in normal form give the same weights? What may change freely from one
 * start of a run to the next (readers, I/O, evaluation, checkpoints ...) is passed over. */
#ifndef NP_RUN_SAME_H
#define NP_RUN_SAME_H

#include <stddef.h>

#include "loader/base/node.h"

/* True, or false with a sentence in why: the first key that differs, with both values. `extends`: the
 * schedule allows now's train.epochs (or steps) to be larger. */
bool np_config_same(const struct np_node *then, const struct np_node *now, bool extends, char *why,
    size_t why_bytes);

#endif
