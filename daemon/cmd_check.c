/* `nnpipe check CONFIG`: every mistake in it, and nothing else happens. Data that is there is
 * asked for classes and size; what is not there is guessed, and that is said. */
#include <errno.h>
#include <stdio.h>

#include "daemon/check_whole.h"
#include "daemon/config.h"
#include "daemon/setup.h"

static void note(void *context, const char *text)
{
    (void)context;
    fprintf(stderr, "%s\n", text);
}

/* The model against the data; what cannot be known is guessed. */
static void check_model(const struct np_config *config, struct np_report *report)
{
    const struct np_source_progress progress = {.note = note};
    struct np_setup setup = {0};
    struct np_err err = {0};
    char guess[NP_GUESS_TEXT];
    int height = 0, width = 0, classes = 0, known;

    np_setup_size(config, &height, &width, report); /* loading has seen it work */
    if (np_setup_data(config, &progress, &setup, &err) == 0) {
        height = setup.height;
        width = setup.width;
    } else {
        fprintf(stderr, "the data are not checked: %s\n", err.text);
    }
    if (setup.classes)
        classes = setup.classes->nr_items;
    known = classes;
    if (np_setup_guess(config, &height, &width, &classes, guess))
        fprintf(stderr, "for the model's shapes %s\n", guess);
    np_setup_check_model(config, height, width, known, report);
    np_setup_fini(&setup);
}

int np_cmd_check(int argc, char **argv)
{
    const char *as = NULL, *device = NULL;
    bool whole = false, json = false;
    const struct np_flag flags[] = {
        {"--whole", NULL, &whole, NULL},
        {"--json", NULL, &json, NULL},
        {"--as", &as, NULL, NULL},
        {"--device", &device, NULL, NULL},
        {NULL, NULL, NULL, NULL},
    };
    struct np_overrides overrides = {0};
    struct np_config *config = NULL;
    struct np_report report;
    int nr, code = np_flags_parse(argc, argv, flags, &overrides, &nr);

    if (code == 0 && nr != 1) {
        fprintf(stderr, "nnpipe check: expected one CONFIG, not %d\n", nr);
        code = NP_EXIT_USAGE;
    }
    if (code == 0 && (whole != json || whole != (as != NULL) || (device && !whole))) {
        fprintf(stderr, "nnpipe check: --whole, --json and --as PATH go together\n");
        code = NP_EXIT_USAGE;
    }
    if (code)
        return code;
    if (whole)
        return np_check_whole(as, device, &overrides);
    np_report_init(&report, argv[1]);
    if (np_config_load(argv[1], overrides.texts, overrides.nr_texts, &config, &report) == 0)
        check_model(config, &report);
    np_complain_report(&report, &overrides);
    code = report.nr_errs ? NP_EXIT_USAGE : NP_EXIT_DONE;
    np_report_fini(&report);
    np_config_free(config);
    if (code == NP_EXIT_DONE)
        puts("ok");
    return code;
}
