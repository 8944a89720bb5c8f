/* A batch in lanes (train.lanes), in one process or several: which numbers go together. Any thread. */
#ifndef NP_CONFIG_LANES_H
#define NP_CONFIG_LANES_H

#include "daemon/config/config.h"

/* Reports mistakes of train.lanes and train.batchnorm_over. */
void np_config_check_lanes(const struct np_config *config, struct np_report *report);
/* Can so many processes train it? -EINVAL: no, and err says which numbers are possible. */
int np_config_check_processes(
    const struct np_config *config, int64_t processes, struct np_err *err);
/* Do so many processes sum as one process does? Yes if each has 1, 2, 4 ... lanes: a subtree
 * (trainer/lanes.h). */
bool np_lanes_sum_as_one(int64_t lanes, int64_t processes);
/* Writes the numbers of processes that lanes can be divided among: "1, 2, 4 or 8". */
#define NP_LANES_TEXT 80
void np_lanes_text(int64_t lanes, char text[NP_LANES_TEXT]);

#endif
