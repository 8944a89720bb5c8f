/* See device_health.h. */
#include "daemon/service/device_health.h"

#include <stdio.h>
#include <string.h>

bool np_device_ended(struct np_device_health *health, const char *device,
    const struct np_device_end *end, double now)
{
    const bool quick = end->died && end->lived_s < NP_QUICK_DEATH_S;

    if (end->well || (end->lived_s >= NP_QUICK_DEATH_S && !end->device_failed)) {
        *health = (struct np_device_health){0};
        return false;
    }
    if (strcmp(device, "cpu") == 0 || !(end->device_failed || quick) ||
        (!end->device_failed && health->nr_deaths > 0 && health->last_run == end->run))
        return false;
    health->nr_deaths += health->nr_deaths < NP_SUSPECT_DEATHS;
    health->last_run = end->run;
    snprintf(health->why, sizeof(health->why), "%s", end->why);
    if (health->nr_deaths < NP_SUSPECT_DEATHS)
        return false;
    health->trial_at = now + NP_SUSPECT_TRIAL_S;
    return true;
}

bool np_device_is_suspect(const struct np_device_health *health)
{
    return health->nr_deaths >= NP_SUSPECT_DEATHS;
}

int np_device_slots(const struct np_device_health *health, int nr_slots, double now)
{
    return !np_device_is_suspect(health) ? nr_slots : now < health->trial_at ? 0 : nr_slots > 0;
}
