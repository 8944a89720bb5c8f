/* `nnpipe check --whole`: the service's check of a submission, before it is queued. */
#ifndef NP_CHECK_WHOLE_H
#define NP_CHECK_WHOLE_H

#include "daemon/cmd.h"

/* Checks a config from standard input (called `as` in messages), its data (for at most
 * `seconds`) and the free disk space for checkpoints. If the runs folder does not answer within
 * 3 s more, that is a mistake. Prints one line of JSON: {"ok": true, "name", "runs" (absolute),
 * "device", "config" (resolved), "checkpoint_bytes" (0: unknown), "note" (why the data were not
 * checked, or "")}, or {"ok": false, "problems": [{"file", "line", "column", "place", "text"}]}.
 * Returns the exit code. */
int np_check_whole(
    const char *as, const char *device, double seconds, const struct np_overrides *overrides);

#endif
