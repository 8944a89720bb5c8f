/* See owners.h. */
#include "daemon/service/owners.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "loader/base/mem.h"

int np_owners_init(struct np_owners *owners, int room)
{
    *owners = (struct np_owners){.room = room > 0 ? room : 1};
    owners->owners = np_alloc_array((size_t)owners->room, sizeof(*owners->owners));
    return owners->owners ? 0 : -ENOMEM;
}

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
    struct np_owner *at = &owners->owners[low];
    if (low == owners->nr || at->uid != uid) {
        assert(owners->nr < owners->room);
        memmove(at + 1, at, (size_t)(owners->nr - low) * sizeof(*at));
        *at = (struct np_owner){.uid = uid};
        owners->nr++;
    }
    return &at->nr;
}
