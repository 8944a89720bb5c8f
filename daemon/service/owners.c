/* See owners.h. */
#include "daemon/service/owners.h"

#include <stdbool.h>
#include <string.h>

#include "loader/base/mem.h"

void np_owners_fini(struct np_owners *owners)
{
    np_free(owners->owners);
    *owners = (struct np_owners){0};
}

int64_t *np_owners_count(struct np_owners *owners, uid_t uid)
{
    int low = 0, high = owners->nr;

    while (low < high) {
        const int middle = (low + high) / 2;

        if (owners->owners[middle].uid < uid)
            low = middle + 1;
        else
            high = middle;
    }
    const bool is_new = low == owners->nr || owners->owners[low].uid != uid;
    if (is_new)
        np_grow(&owners->owners, &owners->room, (size_t)owners->nr + 1, sizeof(*owners->owners));
    struct np_owner *at = &owners->owners[low];
    if (is_new) {
        memmove(at + 1, at, (size_t)(owners->nr - low) * sizeof(*at));
        *at = (struct np_owner){.uid = uid};
        owners->nr++;
    }
    return &at->nr;
}
