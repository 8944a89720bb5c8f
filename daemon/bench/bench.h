/* `nnpipe bench`: measures one part of a run. Main thread. */
#ifndef NP_BENCH_H
#define NP_BENCH_H

#include "daemon/cmd.h"
#include "daemon/config/setup.h"
#include "daemon/ui/progress.h"
#include "loader/loader.h"

struct np_bench {
    const char *device; /* --device; NULL: not given */
    bool json, cold;
    bool entries; /* adds new entries, as a run does; else only uses those that exist */
    double seconds, epochs, steps; /* 0: not given; if all three are: five seconds */
    struct np_overrides overrides;
    struct np_config *config;
    struct np_setup setup;
    struct np_ui ui;
    struct np_stat *stat;
};

int np_bench_loader(struct np_bench *bench, struct np_err *err);
int np_bench_io(struct np_bench *bench, struct np_err *err);
int np_bench_feed(struct np_bench *bench, struct np_err *err);
int np_bench_step(struct np_bench *bench, struct np_err *err);

/* The config of the training loader, without evaluations, for as many batches as `steps` or
 * `epochs` say, else for more than `seconds` can take (NP_BENCH_ENDLESS). */
#define NP_BENCH_ENDLESS UINT32_MAX
struct np_loader_config np_bench_loader_config(
    const struct np_bench *bench, const struct np_allocator *allocator);

#endif
