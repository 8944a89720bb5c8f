/* Open MPI as the way of large sums, for networks that it knows better than TCP (InfiniBand): loaded when it
 * is asked for, by NNPIPE_COMM_DATA=mpi under mpirun or srun. Meeting, agreement, and the news of ends stay
 * with comm.c's connections. Private to comm.c. */
#ifndef NP_COMM_MPI_H
#define NP_COMM_MPI_H

#include "trainer/comm.h"

struct np_mpi;

/* Loads the library, and asks no other process. -ENOENT: no libmpi.so.40 of Open MPI. Any thread. */
int np_mpi_find(struct np_err *err);
/* Waits until all processes have called it. -ENOENT as above; -EINVAL: its ranks are not the launcher's. All
 * calls from here on come from the same thread. */
int np_mpi_open(const struct np_launch *launch, struct np_mpi **ret_mpi, struct np_err *err);
/* whole: all processes are there and close it, too; else the library is left as it is. NULL works. */
void np_mpi_close(struct np_mpi *mpi, bool whole);
const char *np_mpi_version(const struct np_mpi *mpi); /* "Open MPI v4.1.4" */
/* Begins to send bytes to this rank, and to receive bytes from it; 0 of either is possible. -EIO: err has the library's words. */
int np_mpi_exchange(struct np_mpi *mpi, int rank, const void *send, size_t nr_send, void *recv,
    size_t nr_recv, struct np_err *err);
/* Returns 1 when both are complete, else 0; does not wait. -EIO as above. */
int np_mpi_done(struct np_mpi *mpi, struct np_err *err);

#endif
