/* `nnpipe ended`: runs on_end and the webhook for a finished run, which it reads from standard
 * input. For the unit nnpipe-ended@.service only. */
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
        fprintf(stderr, "nnpipe ended: only the service uses this command, when a run is over\n");
        return NP_EXIT_USAGE;
    }
    if (np_notify_do(STDIN_FILENO, &err) == 0)
        return NP_EXIT_DONE;
    np_complain(&err);
    return NP_EXIT_FAILED;
}
