/* What `devices: auto` stands for: asked of `nnpipe devices` in a process of its own, without the daemon's rights and
 * with a time limit, for a GPU's driver may hang. What it said last is kept in the state folder and holds until it has
 * answered again. A GPU that was there and is gone keeps its place, with no slots and a reason: its runs wait for it,
 * and none moves to the CPU. The service's thread. */
#ifndef NP_DEVICES_H
#define NP_DEVICES_H

#include "daemon/service/child.h"

struct np_service;
/* After each reading of the settings: with `devices: auto` takes the devices that were kept, and asks again. */
void np_devices_begin(struct np_service *service);
/* Takes the answer, once it is there. */
void np_devices_turn(struct np_service *service);

/* Takes lines of `nnpipe devices --json`, and into devices (nr of MOST) those that are usable, nr_slots each, and GPUs
 * that were there before (slots or not) and are not usable now, without slots. The new number. */
#define NP_MAX_DEVICES 64
struct np_slotted;
int np_devices_take(const char *text, int nr_slots, struct np_slotted *devices, int nr);

#endif
