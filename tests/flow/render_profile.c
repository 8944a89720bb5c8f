/* Writes a profile that is made up: render_profile WHICH FILE [BEFORE] as profile.html, render_profile --json
 * WHICH FILE [TIMES] as profile.json, with a step so many times as slow. WHICH is a stage's name, "balanced"
 * or "inconclusive"; so is BEFORE, the profile it is compared with. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
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

static int write_json(int which, const char *path, double times)
{
    struct np_ribbon ribbon[MADE_RIBBON];
    struct np_profile profile;

    made_profile(which, &profile, ribbon);
    profile.model.step_rate /= times;
    profile.model.rate = fmin(profile.model.rate, profile.model.step_rate);
    char *text = np_profile_json(&profile);
    FILE *file = fopen(path, "we");
    const bool written = text && file && fputs(text, file) >= 0;

    free(text);
    return file && fclose(file) == 0 && written ? 0 : 1;
}

int main(int argc, char **argv)
{
    if (argc > 3 && strcmp(argv[1], "--json") == 0 && find(argv[2]) >= 0)
        return write_json(find(argv[2]), argv[3], argc > 4 ? atof(argv[4]) : 1);
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
