#include "daemon/service/decide.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "daemon/cmd.h"

#define MAX_DOUBLED 30

double np_back_off(double first_s, double cap_s, int64_t nr)
{
    const double wait = first_s * pow(2, (double)(nr < MAX_DOUBLED ? nr - 1 : MAX_DOUBLED));

    return wait < cap_s ? wait : cap_s;
}

static void describe_death(const struct np_end *end, char *text, size_t bytes)
{
    const struct np_worker_exit *left = end->left;

    if (end->hung)
        snprintf(text, bytes, "it made no progress and was killed");
    else if (*left->reason)
        snprintf(text, bytes, "%.400s", left->reason);
    else if (left->signal)
        snprintf(text, bytes, "its process was killed by SIG%s", sigabbrev_np(left->signal));
    else if (!left->begun)
        snprintf(text, bytes,
            "its process ended before it could lock the run's folder: another process uses the "
            "folder, or it is not writable");
    else
        snprintf(text, bytes, "its process ended without a record");
}

/* Why the worker did not take the run's folder, so that exit.json has no reason; "": it did. */
static void describe_refusal(
    const struct np_worker_exit *left, const struct np_entry *run, char *text, size_t bytes)
{
    if (!left->begun && left->status == NP_WORKER_TAKEN)
        snprintf(text, bytes,
            "%.300s exists already and is not this run's: move it away, or submit with another "
            "--name",
            run->dir);
    else if (!left->begun && left->status == NP_WORKER_UNSAFE)
        snprintf(text, bytes,
            "%.300s is a link, or it or a file in it belongs to another user, so the run does not "
            "use it; the service's log names the file",
            run->dir);
}

/* A checkpoint in this attempt is progress: the count of retries starts again. */
static void after_death(const struct np_end *end, struct np_entry *to)
{
    char why[sizeof(to->reason)];

    describe_death(end, why, sizeof(why));
    to->retries = end->left->saved ? 1 : to->retries + 1;
    if (to->retries > to->max_retries) {
        to->state = NP_ENTRY_FAILED;
        snprintf(to->reason, sizeof(to->reason), "%.480s", why);
        return;
    }
    const double wait = np_back_off(end->retry_first_s, end->retry_cap_s, to->retries);

    to->state = NP_ENTRY_QUEUED;
    to->not_before = end->now + wait;
    snprintf(to->reason, sizeof(to->reason), "%.400s; retry %lld of %lld in %.0f s", why,
        (long long)to->retries, (long long)to->max_retries, wait);
}

/* The machine is at fault: the attempt does not count, and the delay grows. */
static void wait_for_machine(
    const struct np_end *end, struct np_entry *to, int *waits, const char *what)
{
    *waits = end->left->saved ? 1 : *waits + 1;
    const double wait = np_back_off(end->retry_first_s, end->retry_cap_s, *waits);

    to->state = NP_ENTRY_QUEUED;
    to->not_before = end->now + wait;
    if (*end->left->reason)
        snprintf(to->reason, sizeof(to->reason), "%.400s; %s, next in %.0f s", end->left->reason,
            what, wait);
    else
        snprintf(to->reason, sizeof(to->reason),
            "the disk of %.300s is full, or its quota is used up; %s, next in %.0f s", to->dir,
            what, wait);
}

/* The requested state is reached; an error of the worker on the way stays as reason. */
static void obey(const struct np_end *end, struct np_entry *to, enum np_entry_state state)
{
    to->state = state;
    if (end->left->code != NP_EXIT_STOPPED && *end->left->reason)
        snprintf(to->reason, sizeof(to->reason), "%.480s", end->left->reason);
}

void np_decide(const struct np_end *end, struct np_entry *to, int *waits)
{
    const struct np_worker_exit *left = end->left;
    const int code = left->code;
    const int before = *waits;
    char refused[sizeof(to->reason)] = "";

    describe_refusal(left, to, refused, sizeof(refused));
    to->exit_code = code;
    to->assigned[0] = '\0';
    to->not_before = 0;
    *waits = 0;
    if (code == NP_EXIT_DONE) {
        to->state = NP_ENTRY_DONE;
        /* Replaces one such as "it yields to run 7". */
        snprintf(to->reason, sizeof(to->reason), "%.480s", left->reason);
    } else if (to->state == NP_ENTRY_STOPPING) {
        obey(end, to, NP_ENTRY_STOPPED);
    } else if (to->state == NP_ENTRY_PAUSING) {
        obey(end, to, NP_ENTRY_PAUSED);
    } else if (to->state == NP_ENTRY_YIELDING || code == NP_EXIT_STOPPED || end->stop_asked ||
               end->never_began) {
        obey(end, to, NP_ENTRY_QUEUED);
    } else if (left->disk_full || left->status == NP_WORKER_FULL) {
        *waits = before;
        wait_for_machine(end, to, waits, "retried until there is space");
    } else if (end->unstarted || left->no_device) {
        *waits = before;
        wait_for_machine(end, to, waits, "that does not count as an attempt");
    } else if (code == NP_EXIT_USAGE || *refused) {
        to->state = NP_ENTRY_FAILED;
        snprintf(to->reason, sizeof(to->reason), "%.480s", *refused ? refused : left->reason);
    } else {
        after_death(end, to);
    }
    if (code == NP_EXIT_DONE || code == NP_EXIT_STOPPED)
        to->retries = 0;
    if (np_entry_is_finished(to))
        to->ended = end->now;
}
