/* `nnpipe ended`: tells on_end and webhook of a run that is over, which comes by standard input. The unit
 * nnpipe-ended@.service runs it; nobody else has to. */
#include <stdio.h>
#include <unistd.h>

#include "daemon/cmd.h"
#include "daemon/service/notify.h"

int np_cmd_ended(int argc, char **argv)
{
    const struct np_flag flags[] = {{NULL, NULL, NULL, NULL}};
    struct np_err err = {0};
    int nr, code = np_flags_parse(argc, argv, flags, NULL, &nr);

    if (code)
        return code;
    if (nr != 0 || isatty(STDIN_FILENO)) {
        fprintf(stderr, "nnpipe ended: the service starts it, when a run is over\n");
        return NP_EXIT_USAGE;
    }
    if (np_notify_do(STDIN_FILENO, &err) == 0)
        return NP_EXIT_DONE;
    np_complain(&err);
    return NP_EXIT_FAILED;
}
