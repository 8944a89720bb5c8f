/* A submitted run of several processes: `nnpipe worker` is their parent. It holds the run's folder and
 * its lock, which they inherit; rank 0 reports and writes exit.json as a single worker does. They are
 * killed when the parent dies. Main thread; no other thread has been started. */
#ifndef NP_GANG_H
#define NP_GANG_H

#include <stddef.h>

#include "daemon/run/run_options.h"
#include "daemon/service/worker.h"

/* How the processes have ended. */
struct np_gang_end {
    int rank;   /* that failed by itself first; -1: none did */
    int signal; /* that killed it; 0: none */
    enum np_device_trouble trouble;
    char reason[480]; /* its error; "": not known */
};

/* The device of a rank. */
void np_gang_device(const struct np_job *job, int rank, char *device, size_t room);
/* Starts the job's processes, `nnpipe worker NAME --rank FD`, in the working directory and with the
 * standard input and output of this one; lock_fd is left open in them. Returns when all have ended:
 * the exit code as np_processes_run(). */
int np_gang_run(const struct np_job *job, int lock_fd, struct np_gang_end *ret_end);
/* In a rank, at its end: tells the parent why. fd: its FD. */
void np_gang_tell(int fd, int rank, enum np_device_trouble trouble, const struct np_err *err);

#endif
