/* service.yaml: its settings, read from an option table. */
#ifndef NP_SERVICE_OPTIONS_H
#define NP_SERVICE_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "daemon/service/dispatch.h"
#include "loader/base/err.h"

/* Of a box's members; config_bytes, checks, memory_per_run and cpus_per_run hold for root and in a user's own service,
 * too. */
struct np_limits {
    int64_t queued_per_user;  /* runs that are not over, of one user */
    int64_t running_per_user; /* 0: any number */
    int64_t config_bytes;     /* of a config, as it is sent and in its normal form */
    int64_t checks;           /* of submissions at a time; of one caller half of them */
    int64_t priority_max;     /* that a member may give a run; lower ones are free */
    int64_t memory_per_run;   /* bytes, of one that is submitted without; 0: any */
    double cpus_per_run;      /* the same; 0: any */
};

#define NP_MAX_DEVICES 64

struct np_service_options {
    struct np_slotted *devices; /* `devices: auto` is what `nnpipe devices` says */
    int nr_devices;
    int auto_slots; /* `devices: auto`: of each that is found; 0: the list is the settings' own */
    bool preempt;
    double retry_first_s, retry_cap_s; /* doubled from one try to the next */
    double hang_s;                     /* a worker without progress for so long is killed */
    double stop_s;                     /* that a worker has to write its checkpoint and end */
    struct np_limits limits;
    int64_t keep_runs; /* of each owner, that are over; older ones are forgotten, folders stay */
    double keep_s;
    uint64_t keep_bytes;  /* of checkpoints of runs that are over (retention.h); 0: any */
    uint64_t spare_bytes; /* free on the disk of a run's folder, for it to be started */
    char *on_end;  /* a command, or NULL: run when a run is over; its JSON on standard input */
    char *webhook; /* an URL, or NULL: the same by POST */
    char *listen;  /* "127.0.0.1:7411", or NULL: no TCP */
};

/* path: a file that is not there, or NULL, means the defaults. -EINVAL: err names the place; -ENOMEM. */
int np_service_options_read(
    const char *path, struct np_service_options *ret_options, struct np_err *err);
void np_service_options_fini(struct np_service_options *options);
/* docs/SERVICE_CONFIG.md, from the table that service.yaml is read with. */
void np_service_reference(FILE *out);

#endif
