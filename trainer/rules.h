/* Which parameters are frozen, and which have a rate and weight decay of their own: `freeze:` and
 * `params:` of the config, and the optimizer's `layer_decay`. They become the rules of the graph's
 * parameters before np_autodiff(). One thread, at start. */
#ifndef NP_RULES_H
#define NP_RULES_H

#include "loader/base/option.h"
#include "trainer/graph/graph.h"

struct np_freeze {
    const struct np_node *names, *until_node, *from_node; /* one of the two at most */
    bool batchnorm; /* a batchnorm with frozen parameters keeps its running statistics */
    double epoch;   /* frozen before it, or from it on; 0: not given */
    int64_t step;   /* the same; both 0: for good */
};
struct np_own_rule {
    const struct np_node *names;
    double lr, decay; /* factors */
};
struct np_rules {
    struct np_freeze *freezes;
    struct np_own_rule *own;
    int nr_freezes, nr_own;
    double layer_decay; /* 1: none */
};

extern const struct np_option np_freeze_table[], np_until_table[], np_own_rule_table[];

/* Fills rules from the values of the two keys (NULL: not given), which must stay. -EINVAL: report
 * has the mistakes. np_rules_fini() in every case. */
int np_rules_parse(const struct np_node *freeze, const struct np_node *params,
    struct np_rules *rules, struct np_report *report);
void np_rules_fini(struct np_rules *rules);
/* The resolved forms: lists. The caller frees them. */
struct np_node *np_freeze_node(const struct np_rules *rules);
struct np_node *np_own_rules_node(const struct np_rules *rules);

struct np_rules_time {
    double steps_per_epoch;
    uint64_t accumulate; /* steps per update */
    uint64_t lanes;      /* of a step, each a step of its own for the plan; 0: 1 */
};
/* Sets the rules of the parameters, and where batchnorms keep their statistics. A pattern is one of
 * fnmatch(3) for a parameter's name ("layer1.*", "*.bias") or for the name of a layer or block
 * above it ("layer1"); of several matches the last one counts. -EINVAL: a pattern matches nothing,
 * or all parameters are frozen; report has it. */
int np_rules_apply(const struct np_rules *rules, const struct np_rules_time *time,
    struct np_graph *graph, struct np_report *report);

/* Counts parameters and their elements. */
struct np_rules_count {
    int params, frozen, later /* frozen until an update */, batchnorms /* that keep statistics */;
    int stopped; /* frozen from an update on */
    uint64_t elements, frozen_elements;
    uint64_t thaw; /* the first update in which all but the frozen ones move */
};
void np_rules_count(const struct np_graph *graph, struct np_rules_count *ret_count);

#endif
