#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "daemon/cmd.h"
#include "daemon/config/config.h"
#include "daemon/config/config_override.h"

void np_complain_report(struct np_report *report, const struct np_overrides *overrides)
{
    np_report_sort(report);
    for (int i = 0; i < report->nr_errs; i++) {
        char place[320];

        np_config_place(&report->errs[i], overrides ? overrides->texts : NULL,
            overrides ? overrides->nr_texts : 0, place, sizeof(place));
        fprintf(stderr, "%s: %s\n", *place ? place : "nnpipe", report->errs[i].text);
    }
    if (report->nr_dropped)
        fprintf(stderr, "and %d more\n", report->nr_dropped);
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
    if (report.nr_errs) {
        np_complain_report(&report, overrides);
        code = -EINVAL;
    }
    np_report_fini(&report);
    if (code < 0) {
        np_config_free(config);
        return NP_EXIT_USAGE;
    }
    if (config->replaced)
        fprintf(stderr, "-o train.%s replaces train.%s in %s\n",
            strcmp(config->replaced, "epochs") == 0 ? "steps" : "epochs", config->replaced, path);
    *ret_config = config;
    return 0;
}
