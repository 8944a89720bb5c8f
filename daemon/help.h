/* The command table: `nnpipe help`, finding a command, and the messages for an unknown one. Main
 * thread. */
#ifndef NP_HELP_H
#define NP_HELP_H

#include <stdio.h>

#define NP_VERSION "0.1"

/* One command. The name "data pack" is a command of the group "data", whose own row has no
 * run(). */
struct np_command {
    const char *name;
    int (*run)(int argc, char **argv); /* NULL: a group */
    const char *operands;
    const char *summary; /* NULL: internal, in no list */
    const char *flags;   /* the rest of its help; begins with one flag per line */
};

/* Prints the list of commands. Tables end with a NULL name. */
void np_help_commands(FILE *out, const struct np_command *commands);
/* `nnpipe help WORDS...`: prints the help of a command, a reference, or the list. The exit code. */
int np_help(const struct np_command *commands, int nr_words, char **words);
/* Finds the command that words (at least one) begin with, and how many of them are its name; a
 * group if no command of it follows. NULL after a message that suggests the nearest one. */
const struct np_command *np_command_find(
    const struct np_command *commands, int nr_words, char **words, int *ret_nr_words);
/* Prints the commands of a group as an error. Returns NP_EXIT_USAGE. */
int np_command_missing(const struct np_command *commands, const struct np_command *group);

#endif
