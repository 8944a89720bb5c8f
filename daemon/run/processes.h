/* `nnpipe train --processes N`: starts the processes of a run on this machine, and waits for them. */
#ifndef NP_PROCESSES_H
#define NP_PROCESSES_H

/* Runs argv (NULL at the end) nr times, as ranks 0 to nr - 1 of trainer/comm.h; rank 0 has the
 * terminal's input. Passes SIGINT, SIGTERM and SIGUSR1 on. When one has failed and the others
 * do not end by themselves, they are told, and a minute later killed. Returns the exit code of rank 0, or, if that had to be ended, of the rank that failed.
 * Main thread; no other thread has been started. */
int np_processes_run(char **argv, int nr);

#endif
