/* YAML text -> node tree and back. Any thread. */
#ifndef NP_YAML_H
#define NP_YAML_H

#include <stddef.h>
#include <stdio.h>

#include "loader/base/err.h"
#include "loader/base/node.h"

#define NP_YAML_MAX_BYTES (1u << 20)

/* Parses one document without anchors, aliases and tags. -EINVAL: report has the mistakes;
 * *ret_node may be set all the same (a key given twice). -ENOMEM is in report too. The caller frees
 * *ret_node in any case. */
int np_yaml_parse(
    const char *text, size_t bytes, struct np_node **ret_node, struct np_report *report);
/* Block style, short lists and mappings on one line; parsed again, the text gives the same tree. */
void np_node_print(FILE *out, const struct np_node *node);
/* The same, as a text; np_free. NULL: out of memory. */
char *np_node_yaml(const struct np_node *node, struct np_err *err);

#endif
