/* What `nnpipe check` and the service's check of a submission find out about a config's data: are they
 * there, do their classes and sizes fit, as a run would find before its first step. Nothing is decoded but
 * headers, and nothing is written but indexes into the cache. */
#ifndef NP_CHECK_DATA_H
#define NP_CHECK_DATA_H

#include "daemon/config/config.h"

struct np_data_check {
    bool looked;       /* false: the data, or a part of them, were not looked at */
    int height, width; /* of a row; 0: not known */
    int nr_classes;    /* 0: not known */
    char note[800];    /* what was looked at and what was not, in words */
};

/* Looks for at most so many seconds. Mistakes go to report, with their places in the config; what would take
 * longer, or an archive that has to be unpacked first, is none: the note says so. A process of its own looks, and is
 * killed after that time, since a call on storage that hangs may not return even then. notes: of the listing,
 * NULL: none. The caller has no threads. */
void np_check_data(const struct np_config *config, double seconds,
    void (*notes)(void *context, const char *text), struct np_data_check *ret_check,
    struct np_report *report);

#endif
