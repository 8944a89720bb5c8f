/* `nnpipe train --processes N`: starts the processes of a run on this machine, and waits for them. */
#ifndef NP_PROCESSES_H
#define NP_PROCESSES_H

/* Runs argv (NULL at the end) nr times, as ranks 0 to nr - 1 of trainer/comm.h; rank 0 has the
 * terminal's input. Passes SIGINT, SIGTERM, SIGHUP and SIGUSR1 on. After one has failed, those that
 * do not end by themselves get SIGTERM, and a minute later SIGKILL. Returns the exit code of rank 0,
 * or, where that was done, of the rank that failed. Main thread; no other thread has been started. */
int np_processes_run(char **argv, int nr);

#endif
