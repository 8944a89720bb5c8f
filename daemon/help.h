/* The command table's words: `nnpipe help`, and what is said to a command that does not exist. */
#ifndef NP_HELP_H
#define NP_HELP_H

#include <stdio.h>

#define NP_VERSION "0.1"

/* One command. A name of two words, "data pack", is a command of the group "data", whose own row has
 * no run(). */
struct np_command {
    const char *name;
    int (*run)(int argc, char **argv); /* NULL: a group */
    const char *operands;
    const char *summary; /* NULL: the service's own, in no list */
    const char *flags;   /* the rest of its help, one flag per line first */
};

/* The table ends with a NULL name. Main thread, all of them. */
void np_help_commands(FILE *out, const struct np_command *commands);
/* `nnpipe help WORDS...`: a command, config-reference, or the list. Returns the exit code. */
int np_help(const struct np_command *commands, int nr_words, char **words);
/* The command that words (at least one) begin with, and how many of them name it. A group alone, or
 * with a flag behind it, is that group. NULL, after a message that suggests the nearest one. */
const struct np_command *np_command_find(
    const struct np_command *commands, int nr_words, char **words, int *ret_nr_words);
/* Says which commands the group has. NP_EXIT_USAGE. */
int np_command_missing(const struct np_command *commands, const struct np_command *group);

#endif
