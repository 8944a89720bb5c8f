/* `nnpipe check --whole`: what a run would find when it begins, found before it is queued. */
#ifndef NP_CHECK_WHOLE_H
#define NP_CHECK_WHOLE_H

#include "daemon/cmd.h"

/* The config from standard input, its messages naming `as`. Looks at the data for at most so many seconds, and
 * whether the disk has room for the checkpoints; a folder that does not answer some seconds later is a mistake. Prints one line of JSON: {"ok": true, "name", "runs" (absolute),
 * "device", "config" (normal form), "checkpoint_bytes" (0: not known), "note" (why the data were not looked at, or
 * "")}, or {"ok": false, "problems": [{"file", "line", "column", "text"}]}. The exit code. */
int np_check_whole(
    const char *as, const char *device, double seconds, const struct np_overrides *overrides);

#endif
