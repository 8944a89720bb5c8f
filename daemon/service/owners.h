/* One counter for each owner of runs. One thread. */
#ifndef NP_OWNERS_H
#define NP_OWNERS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct np_owner {
    uid_t uid;
    int64_t nr;
};
struct np_owners {
    struct np_owner *owners; /* sorted by uid */
    int nr;
    size_t room;
}; /* zeroed at first */

void np_owners_fini(struct np_owners *owners);
/* The owner's counter, 0 at first; borrowed until the next call. */
int64_t *np_owners_count(struct np_owners *owners, uid_t uid);

#endif
