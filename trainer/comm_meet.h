/* How the processes of a run find each other: private to comm.c. */
#ifndef NP_COMM_MEET_H
#define NP_COMM_MEET_H

#include "trainer/comm.h"
#include "trainer/comm_hops.h"

struct np_link {
    int fd;         /* of exchanges */
    int line;       /* of news: comm_line.h */
    int sums;       /* of sums: comm_sums.h */
    char name[120]; /* "rank 3 (process 4711 on box2)" */
};
/* links: (NP_MAX_LINKS), links[k] to rank ^ (1 << k); where there is no such rank, its connections are -1.
 * The caller closes the connections. */
int np_meet(const struct np_launch *launch, struct np_link *links, struct np_err *err);

#endif
