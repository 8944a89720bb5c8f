/* What the commands that take a CONFIG have in common. */
#include <errno.h>
#include <stdio.h>

#include "daemon/cmd.h"
#include "daemon/config.h"
#include "daemon/setup.h"

/* The model's own mistakes, where the chains say how large the network's input is. Without that
 * a shape could be called wrong that is right, so the model waits for the data. */
static void check_model(const struct np_config *config, struct np_report *report)
{
    int height = 0, width = 0, classes = 0;
    char guess[NP_GUESS_TEXT];

    if (np_setup_size(config, &height, &width, report) < 0 || height == 0)
        return;
    np_setup_guess(config, &height, &width, &classes, guess);
    np_setup_check_model(config, height, width, classes, report);
}

int np_cmd_config(const char *path, const struct np_overrides *overrides, const char *device,
    struct np_config **ret_config)
{
    struct np_config *config = NULL;
    struct np_report report;

    np_report_init(&report, path);
    int code = np_config_load(path, overrides->texts, overrides->nr_texts, &config, &report);
    if (code == 0 && device)
        code = np_config_set_device(config, device, &report);
    if (code == 0)
        check_model(config, &report);
    if (report.nr_errs) {
        np_complain_report(&report, overrides);
        code = -EINVAL;
    }
    np_report_fini(&report);
    if (code < 0) {
        np_config_free(config);
        return NP_EXIT_USAGE;
    }
    *ret_config = config;
    return 0;
}
