/* Checks a config's data as a run does before its first step: do the files exist, do classes and
 * sizes fit. For `nnpipe check` and submissions. Decodes only headers, and writes only indexes,
 * into the cache. */
#ifndef NP_CHECK_DATA_H
#define NP_CHECK_DATA_H

#include "daemon/config/config.h"

struct np_data_check {
    bool complete; /* false: some data were not checked */
    struct np_row_sizes size;
    int nr_classes; /* 0: unknown */
    char note[800]; /* a sentence: what was checked and what was not */
};

/* Blocks for at most `seconds`. A forked process does the check and is killed at the timeout,
 * since a call on hung storage may never return; so the caller must have no threads. Mistakes go
 * to report with their places in the config; a timeout, or an archive that must be unpacked
 * first, is none, but ret_check->note names it. notes (may be NULL) gets the messages of the
 * listing. */
void np_check_data(const struct np_config *config, double seconds,
    void (*notes)(void *context, const char *text), struct np_data_check *ret_check,
    struct np_report *report);

#endif
