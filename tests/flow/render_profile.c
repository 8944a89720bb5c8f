/* A profile that is made up, in each form:
 *   render_profile WHICH FILE [BEFORE [CONFIG]]   profile.html, compared with BEFORE if that is not ""; named CONFIG
 *   render_profile --json WHICH FILE [TIMES]      profile.json, its step so many times as slow
 *   render_profile --screen WHICH                 the terminal's form, to stdout
 * WHICH and BEFORE: a stage's name, "balanced" or "inconclusive". */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/profile/trial.h"
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
    char *text = np_profile_json(&profile, NULL);
    FILE *file = fopen(path, "we");
    const bool written = text && file && fputs(text, file) >= 0;

    free(text);
    return file && fclose(file) == 0 && written ? 0 : 1;
}

static int write_page(int which, const char *path, int before_which, const char *config)
{
    struct np_ribbon ribbons[2][MADE_RIBBON];
    struct np_profile profile, before;
    struct np_err err = {0};

    made_profile(which, &profile, ribbons[0]);
    if (before_which >= 0) {
        made_profile(before_which, &before, ribbons[1]);
        before.model.rate *= 0.92;
        profile.before = &before;
    }
    if (config)
        snprintf(profile.config, sizeof(profile.config), "%s", config);
    char *json = np_profile_json(&profile, NULL);
    const int code = np_profile_html(json, path, &err);

    if (code < 0)
        fprintf(stderr, "%s\n", err.text);
    free(json);
    return code < 0;
}

int main(int argc, char **argv)
{
    const bool option = argc > 1 && argv[1][0] == '-';
    const int which = argc > 1 + option ? find(argv[1 + option]) : -1;
    const int before = argc > 3 && !option && *argv[3] ? find(argv[3]) : -1;

    if (which >= 0 && option && argc == 3 && strcmp(argv[1], "--screen") == 0) {
        struct np_ribbon ribbon[MADE_RIBBON];
        struct np_profile profile;

        made_profile(which, &profile, ribbon);
        np_profile_screen(&profile, 100, false, stdout);
        return 0;
    }
    if (which >= 0 && option && argc > 3 && strcmp(argv[1], "--json") == 0)
        return write_json(which, argv[3], argc > 4 ? atof(argv[4]) : 1);
    if (which >= 0 && !option && argc > 2)
        return write_page(which, argv[2], before, argc > 4 ? argv[4] : NULL);
    fprintf(stderr, "usage: %s WHICH FILE [BEFORE [CONFIG]]\n", argv[0]);
    return 2;
}
