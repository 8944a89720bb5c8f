#include "daemon/config/setup.h"

#include <errno.h>

void np_setup_fini(struct np_setup *setup)
{
    np_graph_free(setup->graph);
    np_graph_free(setup->eval_graph);
    np_sets_fini(&setup->sets);
    *setup = (struct np_setup){0};
}

int np_setup_graph(const struct np_config *config, enum np_dtype precision, struct np_setup *setup,
    struct np_report *report)
{
    struct np_graph_input input;
    struct np_err err = {0};

    np_network_input(&config->network, setup->sets.height, setup->sets.width,
        setup->sets.classes->nr_items, precision, &input);
    setup->graph = np_network_build(&config->network, &input, report);
    if (!setup->graph)
        return -EINVAL;
    for (int i = 0; config->optim.decay_all && i < setup->graph->nr_tensors; i++)
        setup->graph->tensors[i].decay = true; /* by default only weights of conv and linear */
    setup->eval_graph = np_graph_eval(setup->graph);
    if (!setup->eval_graph || np_autodiff(setup->graph, &err) < 0)
        return np_report_add(report, 0, 0, "%s", err.code ? err.text : "out of memory");
    return 0;
}
