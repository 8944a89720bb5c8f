/* `profile --compare OLD.json`: is the run slower, and because of which stage? Pure arithmetic. */
#ifndef NP_COMPARE_H
#define NP_COMPARE_H

#include "daemon/analysis/profile.h"

#define NP_EXIT_REGRESSED 3

struct np_comparison {
    double change;       /* rate now / rate then - 1 */
    double least;        /* a smaller change, up or down, may be chance */
    bool regressed;      /* slower by more than that */
    enum np_stage stage; /* if regressed: the stage whose cost per image explains most of it */
    double share;        /* old rate with that stage's new cost / old rate - 1 */
    char text[400];      /* a sentence or two */
};
/* For one config on one machine. -EINVAL: batch, device or precision differ. */
int np_profile_compare(const struct np_profile *then, const struct np_profile *now,
    struct np_comparison *ret_comparison, struct np_err *err);

#endif
