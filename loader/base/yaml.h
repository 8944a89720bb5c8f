/* YAML text -> node tree and back. The only file that includes libyaml's yaml.h is yaml.c. Any
 * thread. */
#ifndef NP_YAML_H
#define NP_YAML_H

#include <stddef.h>
#include <stdio.h>

#include "loader/base/err.h"
#include "loader/base/node.h"

#define NP_YAML_MAX_BYTES (1u << 20) /* of a text */

/* One document without anchors, aliases and tags. -EINVAL: mistakes in report; *ret_node may be
 * there all the same (a key given twice), and is the caller's to free in any case. -ENOMEM is in
 * report too. */
int np_yaml_parse(
    const char *text, size_t bytes, struct np_node **ret_node, struct np_report *report);
/* Block style, short lists and mappings on one line; parses back to the same tree. */
void np_node_print(FILE *out, const struct np_node *node);
/* The same as a text; np_free. NULL: out of memory. */
char *np_node_yaml(const struct np_node *node, struct np_err *err);

#endif
