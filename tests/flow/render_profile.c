/* Writes profile.html of a profile that is made up: render_profile WHICH FILE [BEFORE]. WHICH is a stage's
 * name, "balanced" or "inconclusive"; so is BEFORE, the profile it is compared with. */
#include <stdio.h>
#include <string.h>

#include "tests/unit/made_profile.h"

static int find(const char *name)
{
    static const char *const others[] = {"balanced", "inconclusive"};

    for (int s = 0; s < NP_NR_STAGES; s++)
        if (strcmp(np_stage_names[s], name) == 0)
            return s;
    for (int i = 0; i < 2; i++)
        if (strcmp(others[i], name) == 0)
            return MADE_BALANCED + i;
    return -1;
}

int main(int argc, char **argv)
{
    struct np_ribbon ribbons[2][MADE_RIBBON];
    struct np_profile profile, before;
    struct np_err err = {0};
    int which = argc > 2 ? find(argv[1]) : -1, other = argc > 3 ? find(argv[3]) : 0;

    if (which < 0 || other < 0) {
        fprintf(stderr, "usage: %s WHICH FILE [BEFORE]\n", argv[0]);
        return 2;
    }
    made_profile(which, &profile, ribbons[0]);
    if (argc > 3) {
        made_profile(other, &before, ribbons[1]);
        before.model.rate *= 0.92;
        profile.before = &before;
    }
    if (np_profile_html(&profile, argv[2], &err) < 0) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    return 0;
}
