/* The settings of the service: service.yaml. */
#ifndef NP_SERVICE_OPTIONS_H
#define NP_SERVICE_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "daemon/service/dispatch.h"
#include "loader/base/err.h"

/* For members of a box; config_bytes, checks, memory_per_run and cpus_per_run also for root and in
 * a user's own service. */
struct np_limits {
    int64_t queued_per_user;  /* unfinished runs of one user */
    int64_t running_per_user; /* running runs of one user; 0: no limit */
    int64_t config_bytes;     /* of a config, as sent and resolved */
    int64_t checks;           /* concurrent checks of submissions; one caller gets half */
    int64_t priority_max;     /* that a member may give */
    int64_t memory_per_run;   /* bytes, for a run submitted without --memory; 0: no limit */
    double cpus_per_run;      /* for a run submitted without --cpus; 0: no limit */
};

struct np_service_options {
    struct np_slotted *devices; /* with `devices: auto`, of `nnpipe devices` */
    int nr_devices;
    int auto_slots; /* slots of each device with `devices: auto`; 0: a list */
    bool preempt;
    double retry_first_s, retry_cap_s; /* doubled with each retry */
    double hang_s;                     /* a worker is killed after so long without progress */
    double stop_s;                     /* time for a worker to write its checkpoint and end */
    struct np_limits limits;
    int64_t keep_runs; /* finished runs of each owner; older ones leave the queue */
    double keep_s;
    int64_t keep_bytes;  /* of checkpoints of finished runs (retention.h); 0: no limit */
    int64_t spare_bytes; /* needed free space on the disk of a run's folder */
    char *on_end;        /* a command, or NULL */
    char *webhook;       /* a URL, or NULL */
    char *listen;        /* "127.0.0.1:7411"; NULL: no TCP */
};

/* path: a missing file, or NULL, means the defaults. -EINVAL: a mistake, with line and column in
 * err; -ENOMEM. */
int np_service_options_read(
    const char *path, struct np_service_options *ret_options, struct np_err *err);
void np_service_options_fini(struct np_service_options *options);
/* Writes docs/SERVICE_CONFIG.md from the option tables. */
void np_service_reference(FILE *out);

#endif
