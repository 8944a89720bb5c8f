/* The service's devices. `devices: auto` is asked of `nnpipe devices` in a process of its own, without the daemon's
 * rights and with a time limit, for a GPU's driver may hang. What it said last is kept in the state folder and holds
 * until it has answered again. A GPU that was there and is gone keeps its place, with no slots and a reason: its runs
 * wait for it, and none moves to the CPU. Also: devices that are drained or set aside, and the runs that wait for them.
 * The service's thread. */
#ifndef NP_DEVICES_H
#define NP_DEVICES_H

#include "daemon/service/book.h"

/* After each reading of the settings: with `devices: auto` takes the devices that were kept, and asks again. */
int np_devices_begin(struct np_service *service, struct np_err *err);
/* Takes the answer, once it is there. */
void np_devices_turn(struct np_service *service);

/* drained: no run is started on the device until it is undrained; running ones continue. -ENOENT: no such device. */
int np_devices_drain(
    struct np_service *service, const char *device, bool drained, struct np_err *err);
/* The same of the whole queue. */
int np_devices_hold_all(struct np_service *service, bool held, struct np_err *err);
/* NULL: there is none of that name. */
struct np_slotted *np_devices_find(const struct np_service *service, const char *name);
/* Gives queued runs whose device is missing, or is set aside, that reason. */
void np_devices_say_missing(struct np_service *service);
void np_devices_say_suspects(struct np_service *service);

/* Takes lines of `nnpipe devices --json`, and into devices (nr of NP_MAX_DEVICES) those that are usable, nr_slots each, and GPUs
 * that were there before (slots or not) and are not usable now, without slots. The new number. */
int np_devices_take(const char *text, int nr_slots, struct np_slotted *devices, int nr);

#endif
