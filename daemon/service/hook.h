/* A run's own command, `on_end`: what its submitter wants done when the run is over. It runs with the owner's rights in a
 * process of its own (child.h, or a unit of systemd's), never in the service. */
#ifndef NP_HOOK_H
#define NP_HOOK_H

#define NP_HOOK_MAX_BYTES 4096
#define NP_HOOK_S         60u

struct np_hook {
    const char *command;     /* for sh -c */
    const char *dir;         /* the run's folder, absolute */
    const char *environment; /* of the submitter's, "NAME=VALUE\n"... */
    const char *run;         /* RUN as JSON, for its standard input */
    int umask;               /* the submitter's; -1: as it is */
    unsigned max_s;          /* its process group is killed after so many seconds */
};
/* In a process that is the owner's already and leads a group of its own: runs the command in the run's folder, with
 * its output appended to the run's log; in / and without output where that folder cannot be entered. Blocks until it
 * has ended. How it failed is said in the log, too. 0: it ended with 0; 1: it did not. After max_s it does not return:
 * the whole group is killed. */
int np_hook_run(const struct np_hook *hook);

#endif
