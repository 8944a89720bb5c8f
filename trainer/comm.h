/* The processes of one run: which one this is, and what they say to each other. A batch is a
 * function of seed and step, so they need no agreement on data: they add up gradients, and agree on
 * when to stop. Trainer thread; a call blocks until the process at the other end has made the same call.
 *
 * Each process is connected with rank ^ 1, rank ^ 2, rank ^ 4 ...: all that they exchange goes along
 * these lines in as many rounds (a hypercube; recursive doubling, Thakur, Rabenseifner and Gropp,
 * "Optimization of collective communication operations in MPICH", 2005). So a sum is a fixed binary
 * tree, whose bits do not depend on timing. Where the number is no power of two, ranks that lack a
 * neighbour get the result from another one (comm_hops.h). */
#ifndef NP_COMM_H
#define NP_COMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "loader/base/err.h"

#define NP_MAX_WORLD 1024 /* processes */

struct np_comm;

/* What started this process, and as which one of how many. */
struct np_launch {
    int rank, world;             /* world 1: alone */
    int local_rank, local_world; /* of those on this machine */
    char by[16];                 /* "mpirun", "srun", "torchrun", "nnpipe"; "": nothing did */
    /* Where rank 0 waits: "unix:NAME" (of a Linux abstract socket, one machine) or "tcp:HOST:PORT". */
    char address[300];
    int gpu; /* N of cuda:N that this process was given (NNPIPE_GPU); -1: none was */
};
/* Reads the environment that mpirun (Open MPI), srun, torchrun and `nnpipe train --processes` give
 * to a process: in the order NNPIPE_WORLD, torchrun, Open MPI, Slurm. NNPIPE_COMM, an address as
 * above, replaces the address. -EINVAL: variables that contradict each other, or no address. */
int np_launch_find(struct np_launch *ret_launch, struct np_err *err);

int np_comm_timeout_s(void); /* NNPIPE_COMM_TIMEOUT, or 60 */
/* Meets the other processes: waits for all of them at most NNPIPE_COMM_TIMEOUT seconds (60).
 * -EINVAL: more than NP_MAX_WORLD, or another process has other numbers. -ETIMEDOUT names the
 * ranks that have not come. NNPIPE_COMM_DATA, the same in all: tcp, or mpi (comm_mpi.h; -EINVAL names a rank
 * that has none). */
int np_comm_open(const struct np_launch *launch, struct np_comm **ret_comm, struct np_err *err);
void np_comm_close(struct np_comm *comm);      /* NULL works */
int np_comm_rank(const struct np_comm *comm);  /* NULL: 0 */
int np_comm_world(const struct np_comm *comm); /* NULL: 1 */
/* The way of sums: "tcp" (or a socket of this machine), "Open MPI v4.1.4"; NULL: "". */
const char *np_comm_way(const struct np_comm *comm);

/* All of these: every process makes the same calls in the same order. -ECONNRESET: a process has
 * ended, and err names it. After another process's np_comm_abort() they return its code, and err has
 * its text. comm NULL: one process, nothing to do. */

/* x: (n), the sum over all processes; the same bits in each. */
int np_comm_sum(struct np_comm *comm, float *x, uint64_t n, struct np_err *err);
/* The same in the background: x is not touched until np_comm_sum_end(), which waits for all that were
 * begun. Other calls may come in between. */
void np_comm_sum_begin(struct np_comm *comm, float *x, uint64_t n);
int np_comm_sum_end(struct np_comm *comm, struct np_err *err);
/* x: (n), n up to NP_MAX_JOIN, joined with those of all processes in the same tree; pair(): left, the
 * lower ranks', becomes left and right. The same bits in each. */
#define NP_MAX_JOIN (128 * 1024)
int np_comm_join(struct np_comm *comm, double *x, size_t n,
    void (*pair)(double *left, const double *right, size_t n), struct np_err *err);
/* all: (world) blocks of `bytes`, by rank; own: this process's. */
int np_comm_gather(
    struct np_comm *comm, const void *own, void *all, size_t bytes, struct np_err *err);
/* Rank 0's bytes replace those of the others. */
int np_comm_broadcast(struct np_comm *comm, void *bytes, size_t n, struct np_err *err);
/* *bits: those of all processes. */
int np_comm_any(struct np_comm *comm, uint32_t *bits, struct np_err *err);

/* Another process was told to stop (ends false), or takes no more part in exchanges, because it gave up
 * or is gone (ends true). From a thread of the comm's own, or from np_comm_listen() itself, at most once
 * each; must not block, nor call the comm. */
typedef void (*np_comm_news_fn)(void *context, bool ends);
/* Listens from now on: so a process that waits for storage, or for its GPU, hears of the others. Once. */
void np_comm_listen(struct np_comm *comm, np_comm_news_fn news, void *context);
/* Tells the others that this process was told to stop; they may go on to their next boundary. Any
 * thread, and after each other. */
void np_comm_ask_stop(struct np_comm *comm);
/* Why another process stops or has ended: -EINTR, or the code of its end; err has its words. 0: nothing
 * was heard. Any thread. */
int np_comm_heard(const struct np_comm *comm, struct np_err *err);

/* Time of the trainer thread in the calls above, so far: for the data to move, and for the others to
 * come. */
uint64_t np_comm_waited_ns(const struct np_comm *comm);

/* Ends the exchange for all processes: their calls return code (negative errno) and text. Does not
 * block. */
void np_comm_abort(struct np_comm *comm, int code, const char *text);
bool np_comm_aborted(const struct np_comm *comm); /* by another process, or because one has ended */
bool np_comm_over(const struct np_comm *comm);    /* by this one, too: no call works any more */
/* Waits until rank 0 has closed its connections, which it does last, or has ended the exchange: then
 * np_comm_over() is true, and np_comm_close() waits for nobody. Rank 0, and all after the end of a process:
 * returns at once. */
void np_comm_wait_end(struct np_comm *comm);

#endif
