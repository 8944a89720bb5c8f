/* `nnpipe check CONFIG...`: reports every mistake in configs and their data. Main thread. */
#include <stdio.h>

#include "daemon/config/check_data.h"
#include "daemon/config/check_whole.h"
#include "daemon/config/config.h"
#include "daemon/config/setup.h"
#include "loader/base/text.h"

/* Defaults of --seconds. */
#define SECONDS       20
#define WHOLE_SECONDS 10 /* `nnpipe submit` waits for it */
#define MAX_SECONDS   86400

struct check {
    const struct np_overrides *overrides;
    bool no_data;
    double seconds;
};

/* Checks the model with the data's sizes; guess: the assumptions where they are unknown, or "". */
static void check_model(const struct np_config *config, const struct np_data_check *data,
    char guess[NP_GUESS_TEXT], struct np_report *report)
{
    int height = data->height, width = data->width, classes = data->nr_classes;

    if (height == 0)
        np_loader_row_size(
            &config->loader, &height, &width, report); /* cannot fail: the config is loaded */
    np_network_guess(&config->network, &height, &width, &classes, guess);
    np_network_check(&config->network, height, width, data->nr_classes, report);
}

static int check_one(const struct check *check, const char *path)
{
    struct np_data_check data = {0};
    struct np_config *config = NULL;
    struct np_report report;
    char guess[NP_GUESS_TEXT] = "";

    np_report_init(&report, path);
    if (np_config_load(
            path, check->overrides->texts, check->overrides->nr_texts, &config, &report) == 0) {
        if (!check->no_data)
            np_check_data(config, check->seconds, np_note, &data, &report);
        check_model(config, &data, guess, &report);
    }
    np_complain_report(&report, check->overrides);
    if (*guess)
        fprintf(stderr, "for the model's shapes %s\n", guess);
    if (report.nr_errs == 0 && *data.note)
        fprintf(stderr, "%s: %s\n", path, data.note);
    const int code = report.nr_errs ? NP_EXIT_USAGE : NP_EXIT_DONE;
    np_report_fini(&report);
    np_config_free(config);
    return code;
}

static int check_all(const struct check *check, int nr, char **paths)
{
    int code = NP_EXIT_DONE;

    for (int i = 0; i < nr; i++)
        if (check_one(check, paths[i]) != NP_EXIT_DONE)
            code = NP_EXIT_USAGE;
        else
            printf("%s%sok\n", nr > 1 ? paths[i] : "", nr > 1 ? ": " : "");
    return code;
}

static bool parse_seconds(const char *text, double *ret_seconds)
{
    double seconds;

    if (!np_text_real(text, 0, MAX_SECONDS, &seconds) || seconds <= 0) {
        fprintf(stderr, "nnpipe check: --seconds: expected a number up to %d, not '%s'\n",
            MAX_SECONDS, text);
        return false;
    }
    *ret_seconds = seconds;
    return true;
}

int np_cmd_check(int argc, char **argv)
{
    const char *as = NULL, *device = NULL, *seconds = NULL;
    bool whole = false, json = false;
    struct np_overrides overrides = {0};
    struct check check = {.overrides = &overrides};
    const struct np_flag flags[] = {
        {"--no-data", NULL, &check.no_data, NULL},
        {"--seconds", &seconds, NULL, NULL},
        {"--whole", NULL, &whole, NULL},
        {"--json", NULL, &json, NULL},
        {"--as", &as, NULL, NULL},
        {"--device", &device, NULL, NULL},
        {NULL, NULL, NULL, NULL},
    };
    int nr, code = np_flags_parse(argc, argv, flags, &overrides, &nr);

    if (code == 0 && (nr < 1 || (whole && nr != 1))) {
        fprintf(stderr, "nnpipe check: expected one CONFIG or more, not %d\n", nr);
        code = NP_EXIT_USAGE;
    }
    if (code == 0 && (whole != json || whole != (as != NULL) || (device && !whole))) {
        fprintf(stderr, "nnpipe check: --whole, --json and --as PATH go together\n");
        code = NP_EXIT_USAGE;
    }
    if (code == 0 && seconds && !parse_seconds(seconds, &check.seconds))
        code = NP_EXIT_USAGE;
    if (code)
        return code;
    if (!seconds)
        check.seconds = whole ? WHOLE_SECONDS : SECONDS;
    return whole ? np_check_whole(as, device, check.seconds, &overrides)
                 : check_all(&check, nr, argv + 1);
}
