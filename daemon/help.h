/* The command table's words: `nnpipe help`, and what is said to a command that does not exist. */
#ifndef NP_HELP_H
#define NP_HELP_H

#include <stdio.h>

#define NP_VERSION "0.1"

struct np_command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *operands, *summary;
    const char *flags; /* the rest of its help; NULL: the command answers `help` itself */
};

/* The table ends with a NULL name. */
void np_help_commands(FILE *out, const struct np_command *commands);
/* `nnpipe help [WORD]`: a command, or config-reference. Returns the exit code. */
int np_help(const struct np_command *commands, const char *word);
/* NULL, after naming the nearest one on stderr. */
const struct np_command *np_command_find(const struct np_command *commands, const char *name);

#endif
