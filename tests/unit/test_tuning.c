/* What --tune says of its trials agrees with the advice above it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/profile/tune.h"
#include "tests/test.h"

/* As it is, and with the files cached: the model promises 180, the trial gave `rate`. */
static void two_trials(struct np_tuning *tuning, double rate, bool fills)
{
    struct np_tuned *tuned = &tuning->tuned;
    struct np_knobs base = {.readers = 2, .depth = 4, .prefetch = 4, .io = "uring"};

    memset(tuning, 0, sizeof(*tuning));
    snprintf(base.cache, sizeof(base.cache), "none");
    tuning->from = tuning->advised = tuned->base = tuned->best = base;
    snprintf(tuning->advised.cache, sizeof(tuning->advised.cache), "encoded");
    tuned->trials[0] = (struct np_tune_trial){base, 29, 29};
    tuned->trials[1] = (struct np_tune_trial){tuning->advised, rate, 180};
    tuned->nr_trials = 2;
    tuned->base_rate = tuned->best_rate = 29;
    tuned->least = 0.02;
    tuning->fills[1] = fills;
}

static char *said(const struct np_tuning *tuning)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);

    np_tuning_print(tuning, out);
    fclose(out);
    return text;
}

Test(tuning, a_cache_that_no_trial_filled_is_still_advised)
{
    struct np_tuning tuning;

    two_trials(&tuning, 28, true);
    char *text = said(&tuning);
    cr_expect(strstr(text, "its cache still fills\n"), "%s", text);
    cr_expect(
        strstr(text, " TUNED: no setting that could be tried is better beyond noise (2.0%)\n"),
        "%s", text);
    cr_expect(strstr(text, " NOT TRIED: loader.cache: encoded gains from the second epoch on"),
        "%s", text);
    cr_expect(strstr(text, "180 img/s are predicted\n"), "%s", text);
    free(text);
}

Test(tuning, failed_advice_is_reported)
{
    struct np_tuning tuning;

    two_trials(&tuning, 29.1, false);
    char *text = said(&tuning);
    cr_expect(strstr(text, "as advised\n"), "%s", text);
    cr_expect(strstr(text, "no setting is better beyond noise (2.0%), the advice above included\n"),
        "%s", text);
    cr_expect_null(strstr(text, "NOT TRIED"), "%s", text);
    free(text);
}
