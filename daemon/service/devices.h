/* The service's devices, also drained and suspect ones, and the reasons of runs that wait for
 * them. For `devices: auto` a child runs `nnpipe devices` with a timeout, because a GPU's driver
 * may hang; the state folder keeps its last answer, which is valid until the next one. A GPU that
 * has disappeared keeps its entry, without slots and with a reason: its runs wait, and none moves
 * to the CPU. Called by the service's thread. */
#ifndef NP_DEVICES_H
#define NP_DEVICES_H

#include "daemon/service/book.h"

/* Call after the settings were read. With `devices: auto` loads the last answer and starts the
 * child. Errors as np_queue_drained(). */
int np_devices_begin(struct np_service *service, struct np_err *err);
/* Call in each turn of the loop: takes the child's answer. */
void np_devices_turn(struct np_service *service);

/* drained: no run is started on the device until it is undrained; running ones continue. -ENOENT:
 * no such device; errors as np_queue_drain(). */
int np_devices_drain(
    struct np_service *service, const char *device, bool drained, struct np_err *err);
/* The same for the whole queue. */
int np_devices_hold_all(struct np_service *service, bool held, struct np_err *err);
/* Writes the names of a set of devices (a bit for the index of each). */
void np_devices_text(const struct np_service *service, uint64_t devices, const char *between,
    char *text, size_t room);
/* Carries out an order NP_ORDER_RESERVE, and releases what no order of a dispatch keeps. */
void np_devices_reserve(
    struct np_service *service, struct np_service_run *run, const struct np_order *order);
void np_devices_release(struct np_service *service, const struct np_order *orders, int nr);
/* Set the reason of queued runs whose device is missing, or suspect. */
void np_devices_mark_missing(struct np_service *service);
void np_devices_mark_suspect(struct np_service *service);

/* Parses the output of `nnpipe devices --json` and replaces devices (nr of NP_MAX_DEVICES): the
 * usable ones get nr_slots each; GPUs that were there before and cannot be used now stay without
 * slots. Returns the new number. */
int np_devices_take(const char *text, int nr_slots, struct np_slotted *devices, int nr);

#endif
