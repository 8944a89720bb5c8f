/* `profile --compare OLD.json`: has the run become slower, and which stage made it so? Pure arithmetic. */
#ifndef NP_COMPARE_H
#define NP_COMPARE_H

#include "daemon/analysis/profile.h"

#define NP_EXIT_REGRESSED 3

struct np_comparison {
    double change;       /* rate now / rate then - 1 */
    double least;        /* a smaller one, up or down, may be chance */
    bool regressed;      /* slower by more than that */
    enum np_stage stage; /* whose cost an image explains most of it; regressed alone */
    double share;        /* rate then with that stage's present cost / rate then - 1 */
    char text[400];      /* a sentence or two */
};
/* Of one config on one box: -EINVAL where batch, device or precision differ, and err says so. */
int np_profile_compare(const struct np_profile *then, const struct np_profile *now,
    struct np_comparison *ret_comparison, struct np_err *err);

#endif
