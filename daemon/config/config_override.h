/* `-o key.path=value`: changes the tree before it is checked. The value is YAML, in flow style
 * if it is more than a word; items of lists are named by number. One thread. */
#ifndef NP_CONFIG_OVERRIDE_H
#define NP_CONFIG_OVERRIDE_H

#include <stddef.h>

#include "loader/base/node.h"

/* Applies `key.path=value`, override number `index`, to the tree. New nodes get line -1 - index,
 * by which np_config_place() finds the override. -EINVAL: report has the mistake. */
int np_config_override(struct np_node *root, const char *text, int index, struct np_report *report);
/* The place of a mistake: "FILE:LINE:COLUMN", "FILE", or "-o KEY". */
void np_config_place(const struct np_err *err, const char *const *overrides, int nr_overrides,
    char *text, size_t text_bytes);

#endif
