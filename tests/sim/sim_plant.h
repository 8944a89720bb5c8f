/* The real speed of a `sim` disk and a `sim` device, independent of the config: tests plant a slow part
 * under a pipeline and see whether the profiler finds it. The device's part needs
 * -Wl,--wrap=np_device_open. $NNPIPE_SIM_PLANT names a file of lines NAME=VALUE; without it nothing is planted. */
#ifndef NP_SIM_PLANT_H
#define NP_SIM_PLANT_H

#include <stdint.h>

#include "loader/base/err.h"
#include "loader/base/node.h"
#include "loader/base/option.h"

struct np_sim_plant {
    double disk_mbps;        /* 10^6 bytes a second that the disk moves, for all threads; 0: any */
    int64_t disk_latency_us; /* until a read's bytes begin to come; the waits of reads overlap */
    double h2d_gbps;         /* replaces the config's; 0: as configured */
    double step_ms;          /* replaces the config's; 0: as configured */
};

/* Any thread. Errors name the file and the line's key. */
int np_sim_plant_read(struct np_sim_plant *ret_plant, struct np_err *err);
/* A mapping of "a=1,b=2" (separators: commas and line breaks). Caller frees. */
struct np_node *np_sim_pairs(const char *text);
/* Reads text's pairs by the table into *object (zeroed). `what` names them in errors. */
int np_sim_options(const char *text, const struct np_option *table, const char *what, void *object,
    struct np_err *err);

#endif
