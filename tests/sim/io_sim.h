/* The I/O backend `sim`: real files, and a machine that fails as configured, the same way for the same
 * seed. Programs that are linked with it and -Wl,--wrap=np_io_open open it under the name "sim"; and instead of
 * `uring` if $NNPIPE_IO_SIM or $NNPIPE_SIM_PLANT is set. Its options come from the environment when it is opened
 * (NNPIPE_IO_SIM="seed=1,short=50%,fail_read=10"), or from np_io_sim_set(). tests/sim/sim_plant.h
 * sets the speed of its disk; without it reads take the time of the real files.
 * Writes keep a journal of changes that a disk may not have yet: contents until fsync, names until
 * fsync of their folder. A power cut rolls it back, by an amount drawn from the seed, and every
 * later write fails with EIO. */
#ifndef NP_IO_SIM_H
#define NP_IO_SIM_H

#include "loader/base/io.h"
#include "loader/base/rng.h"

struct np_io_sim_options {
    int64_t seed;
    double short_share; /* of read calls: come short, or are interrupted */
    int64_t latency_us; /* each read takes 0 to this, drawn */
    bool shuffle;       /* reads complete in any order */
    int64_t fail_read;  /* the k-th read (from 1) fails with EIO; 0: none */
    int64_t fail_reads; /* so many from there on */
    int64_t slow_read;  /* the k-th read, opens not counted, takes slow_us; 0: none */
    int64_t slow_us;
    int64_t fail_write; /* the k-th call of the write table fails with EIO; 0: none */
    int64_t skip_sync;  /* the k-th sync of a file or folder does nothing; 0: none */
    int64_t cut;        /* at the k-th call of the write table the power is cut; 0: never */
    int64_t space;      /* bytes that can be written before the disk is full; -1: any */
};

/* io: opened as "sim". The seed starts again, calls already made stay counted. */
void np_io_sim_set(struct np_io *io, const struct np_io_sim_options *options);
/* Cuts the power now: changes that were not synced are undone, in part or all, as the seed decides. */
void np_io_sim_power_cut(struct np_io *io);
bool np_io_sim_is_off(const struct np_io *io);
int64_t np_io_sim_nr_writes(const struct np_io *io); /* calls of the write table so far */
int64_t np_io_sim_nr_syncs(const struct np_io *io);  /* of files and folders so far */

/* Between io_sim.c and io_sim_disk.c. */
struct np_sim_disk {
    struct np_io_sim_options options;
    struct np_draws draws;
    int64_t nr_calls, nr_bytes, nr_syncs;
    bool off;
    struct np_sim_change
        *changes; /* owned; changes that the disk does not have yet, oldest first */
    int nr_changes, room;
};

struct np_sim_disk *np_sim_disk(const struct np_io *io); /* of an io opened as "sim" */
void np_sim_disk_cut(struct np_sim_disk *disk);
void np_sim_disk_fini(struct np_sim_disk *disk);
extern const struct np_io_write_ops np_io_sim_write;

#endif
