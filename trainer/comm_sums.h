/* Sums over the processes, by a thread with connections of its own: so gradients that are complete are
 * on their way while the rest is computed. Private to comm.c. */
#ifndef NP_COMM_SUMS_H
#define NP_COMM_SUMS_H

#include "trainer/comm_meet.h"

struct np_sums;

/* links: those of np_meet(), whose `sums` it takes over; they live as long as the sums. ended: of
 * comm_wire.h. by_mpi: over Open
 * MPI (comm_mpi.h); then the errors of np_mpi_open(), too. -ENOMEM. */
int np_sums_new(const struct np_launch *launch, const struct np_link *links, int ended, bool by_mpi,
    struct np_sums **ret_sums, struct np_err *err);
/* whole: all processes are there, and have no sum under way. NULL works. */
void np_sums_free(struct np_sums *sums, bool whole);
const char *np_sums_way(const struct np_sums *sums); /* as np_comm_way() */
/* Queues a sum; blocks only while many are queued. */
void np_sums_begin(struct np_sums *sums, float *x, uint64_t n);
/* Waits until all of them are complete. -ECONNRESET: a process is gone, or has broken off; -EPROTO: its
 * sums are others; -EIO: of Open MPI. */
int np_sums_end(struct np_sums *sums, struct np_err *err);
/* This process takes no more part: its sums and its neighbours' end with an error. Any thread. */
void np_sums_break(struct np_sums *sums);

#endif
