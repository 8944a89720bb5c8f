/* Made-up profiles for the tests of reports: one limited by each stage, one balanced, one
 * inconclusive; with numbers of a run of pictures on a GPU. */
#ifndef NP_MADE_PROFILE_H
#define NP_MADE_PROFILE_H

#include "daemon/analysis/profile.h"

/* which: enum np_stage, the limiter; or one of these. */
enum { MADE_BALANCED = NP_NR_STAGES, MADE_INCONCLUSIVE, NR_MADE_PROFILES };
#define MADE_RIBBON 120

void made_profile(int which, struct np_profile *ret_profile, struct np_ribbon ribbon[MADE_RIBBON]);

#endif
