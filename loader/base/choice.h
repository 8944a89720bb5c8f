/* One of several named things, each with an option table of its own: `optimizer: sgd`,
 * `optimizer: {sgd: {lr: 0.1}}`. */
#ifndef NP_CHOICE_H
#define NP_CHOICE_H

#include "loader/base/option.h"

struct np_choice {
    const char *name;
    const struct np_option *table;
    const char *help; /* one sentence for docs/CONFIG.md */
};

/* Which of `choices` (ends with a NULL name) node names, with its options in *ret_args (NULL:
 * none given). `what` is the key in messages; fallback is taken for a NULL node. Returns its
 * index, or -EINVAL with the mistake in report. */
int np_choice_find(const struct np_choice *choices, const struct np_node *node, const char *what,
    const char *fallback, const struct np_node **ret_args, struct np_report *report);
/* {name: {every option}}. Caller frees. */
struct np_node *np_choice_node(const struct np_choice *choice, const void *object);

#endif
