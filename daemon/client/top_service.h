/* `nnpipe top` where a service answers: its runs, or one with its stages. Main thread. */
#ifndef NP_TOP_SERVICE_H
#define NP_TOP_SERVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/client/client.h"

struct np_top_service {
    struct np_client *client; /* borrowed */
    int64_t id;               /* 0: all runs */
    bool live, json, colour;
};
/* Once, or until q. A service that goes away while it is looked at is waited for. */
int np_top_service(const struct np_top_service *options, struct np_err *err);

#endif
