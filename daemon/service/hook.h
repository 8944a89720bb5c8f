/* Runs the service's on_end command and webhook, and a run's own on_end command, which its
 * submitter gave: in a process of its own (a child or a systemd unit), never in the service. */
#ifndef NP_HOOK_H
#define NP_HOOK_H

#define NP_HOOK_MAX_BYTES 4096
#define NP_HOOK_S         60u

struct np_hook {
    const char *command;     /* for sh -c */
    const char *dir;         /* the run's folder, absolute */
    const char *environment; /* the submitter's, "NAME=VALUE\n"... */
    const char *run;         /* the run as JSON, its standard input */
    int umask;               /* the submitter's; -1: unchanged */
    unsigned max_s;          /* time limit */
};
/* Call in a process of the owner that leads its own process group. Runs the command in the run's
 * folder and appends its output, and a failure, to the run's log; if that folder cannot be
 * entered, in / and without output. Blocks until it has ended. Returns 0 if it exited with 0, else
 * 1; after max_s it does not return: the whole process group is killed. */
int np_hook_run(const struct np_hook *hook);
/* Runs the service's command and posts the run to the webhook, each if not NULL. Call in a process
 * that leads its own process group: the group is killed after some minutes. Blocks; writes a
 * failure to standard error. */
void np_hook_run_service(const char *on_end, const char *webhook, const char *run);

#endif
