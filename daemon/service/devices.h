/* The service's devices. For `devices: auto` a child runs `nnpipe devices` with a time limit,
 * because a GPU driver may hang; its last answer is kept in the state folder and is valid until
 * the next one. A GPU that has disappeared keeps its entry, with no slots and a reason: its runs
 * wait, and none moves to the CPU. Also handles drained and suspect devices and the runs that
 * wait for them. Called by the service's thread. */
#ifndef NP_DEVICES_H
#define NP_DEVICES_H

#include "daemon/service/book.h"

/* Call after the settings were read: with `devices: auto` loads the last answer and starts the
 * child again. Errors of np_queue_drained(). */
int np_devices_begin(struct np_service *service, struct np_err *err);
/* Call in each turn of the loop: takes the child's answer if it is there. */
void np_devices_turn(struct np_service *service);

/* drained: starts no run on the device until it is undrained; running ones continue. -ENOENT: no
 * such device; errors of np_queue_drain(). */
int np_devices_drain(
    struct np_service *service, const char *device, bool drained, struct np_err *err);
/* The same for the whole queue. */
int np_devices_hold_all(struct np_service *service, bool held, struct np_err *err);
/* The device with this name, or NULL. */
struct np_slotted *np_devices_find(const struct np_service *service, const char *name);
/* Sets the reason of queued runs whose device is missing, or is suspect. */
void np_devices_say_missing(struct np_service *service);
void np_devices_say_suspects(struct np_service *service);

/* Parses the output of `nnpipe devices --json` and replaces devices (nr of NP_MAX_DEVICES) by
 * the usable ones, with nr_slots each, and by the GPUs that were there before and cannot be used
 * now, without slots. Returns the new number. */
int np_devices_take(const char *text, int nr_slots, struct np_slotted *devices, int nr);

#endif
