/* See help.h. */
#include "daemon/help.h"

#include <string.h>

#include "daemon/cmd.h"
#include "daemon/config.h"
#include "daemon/service/service.h"
#include "loader/base/option.h"

#define MAX_COMMANDS 64

void np_help_commands(FILE *out, const struct np_command *commands)
{
    fputs("usage: nnpipe COMMAND ...\n\n", out);
    for (const struct np_command *c = commands; c->name; c++)
        fprintf(out, "  %-8s %-32s %s\n", c->name, c->operands, c->summary);
    fputs("\nnnpipe help COMMAND says more; nnpipe help config-reference is the manual of the "
          "config,\nnnpipe help service-reference that of the service's settings.\n",
        out);
}

const struct np_command *np_command_find(const struct np_command *commands, const char *name)
{
    const char *names[MAX_COMMANDS] = {0};
    int n = 0;

    for (const struct np_command *c = commands; c->name && n + 1 < MAX_COMMANDS; c++) {
        if (strcmp(c->name, name) == 0)
            return c;
        names[n++] = c->name;
    }
    const char *nearest = np_nearest(name, names);
    fprintf(stderr, "nnpipe: there is no command '%s'%s%s%s\n", name,
        nearest ? "; did you mean '" : "; `nnpipe help` lists them", nearest ? nearest : "",
        nearest ? "'?" : "");
    return NULL;
}

int np_help(const struct np_command *commands, const char *word)
{
    if (!word) {
        np_help_commands(stdout, commands);
        return NP_EXIT_DONE;
    }
    if (strcmp(word, "config-reference") == 0) {
        np_config_reference(stdout);
        return NP_EXIT_DONE;
    }
    if (strcmp(word, "service-reference") == 0) {
        np_service_reference(stdout);
        return NP_EXIT_DONE;
    }
    const struct np_command *c = np_command_find(commands, word);
    if (!c)
        return NP_EXIT_USAGE;
    if (!c->flags) {
        char name[64], help[] = "--help", *argv[] = {name, help, NULL};
        snprintf(name, sizeof(name), "%s", c->name);
        return c->run(2, argv);
    }
    printf("usage: nnpipe %s%s%s\n\n%s.\n\n%s", c->name, *c->operands ? " " : "", c->operands,
        c->summary, c->flags);
    return NP_EXIT_DONE;
}
