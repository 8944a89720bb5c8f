/* See help.h. */
#include "daemon/help.h"

#include <string.h>

#include "daemon/cmd.h"
#include "loader/base/option.h"

#define MAX_COMMANDS 64

/* Commands of other programs. */
static const struct hint {
    const char *word, *answer;
} hints[] = {
    {"tune", "`nnpipe profile CONFIG --tune` tries readers, depth, prefetch, cache and io"},
    {"lr-find", "try several rates with `nnpipe train CONFIG -o optimizer.sgd.lr=0.1`"},
    {"sweep",
        "a loop over `nnpipe submit CONFIG -o KEY=VALUE` queues one run per value, `nnpipe runs "
        "--sort accuracy` compares them"},
    {"export", "weights are safetensors already: RUN/checkpoints/best/weights.safetensors"},
    {"serve", "`nnpipe predict` labels images; `nnpipe daemon` keeps a queue of runs"},
    {"infer", "`nnpipe predict` labels images"},
    {"inference", "`nnpipe predict` labels images"},
    {"test", "`nnpipe eval` measures a network on the test set"},
    {"evaluate", "`nnpipe eval` measures a network on the test set"},
    {"validate", "`nnpipe eval` measures a network, `nnpipe check` checks a config"},
    {"fit", "`nnpipe train` trains a network"},
    {"run", "`nnpipe train` trains here, `nnpipe submit` in the service"},
    {"summary", "`nnpipe show` prints the layers with shapes, parameters and FLOPs"},
    {"list", "`nnpipe runs` lists run folders, `nnpipe ls` runs of the service, `nnpipe data ls` "
             "samples"},
    {"cancel", "`nnpipe stop` stops runs of the service, with a checkpoint"},
    {"kill", "`nnpipe stop` stops runs of the service, with a checkpoint"},
    {"delete", "`nnpipe rm` forgets finished runs, `nnpipe prune` removes old checkpoints"},
    {NULL, NULL},
};

/* --- the table ------------------------------------------------------------------------------- */

/* "pack" for the row "data pack" and the group "data"; NULL: the row is not in the group. */
static const char *below(const struct np_command *row, const char *group)
{
    const size_t bytes = strlen(group);

    return strncmp(row->name, group, bytes) == 0 && row->name[bytes] == ' ' ? row->name + bytes + 1
                                                                            : NULL;
}

/* group NULL: searches commands of one word. */
static const struct np_command *find(
    const struct np_command *commands, const char *group, const char *word)
{
    for (const struct np_command *c = commands; c->name; c++) {
        const char *name = group ? below(c, group) : c->name;

        if (name && strcmp(name, word) == 0)
            return c;
    }
    return NULL;
}

static const char *nearest(const struct np_command *commands, const char *group, const char *word)
{
    const char *names[MAX_COMMANDS] = {0};
    int n = 0;

    for (const struct np_command *c = commands; c->name && n + 1 < MAX_COMMANDS; c++) {
        const char *name = group ? below(c, group) : strchr(c->name, ' ') ? NULL : c->name;

        if (name && c->summary)
            names[n++] = name;
    }
    return np_nearest(word, names);
}

/* Prints "nnpipe: there is no command 'trian'; did you mean 'train'?" */
static void print_unknown(const struct np_command *commands, const char *group, const char *word)
{
    const char *near = nearest(commands, group, word), *space = group ? " " : "";
    const struct hint *hint = hints;

    fprintf(stderr, "nnpipe%s%s: there is no command '%s'", space, group ? group : "", word);
    while (!group && hint->word && strcmp(hint->word, word) != 0)
        hint++;
    if (!group && hint->word) {
        fprintf(stderr, "; %s\n", hint->answer);
        return;
    }
    for (const struct np_command *c = commands; !near && !group && c->name; c++)
        if (strchr(c->name, ' ') && strcmp(strchr(c->name, ' ') + 1, word) == 0)
            near = c->name;
    if (near)
        fprintf(stderr, "; did you mean '%s'?\n", near);
    else
        fprintf(stderr, "; `nnpipe help%s%s` lists them\n", space, group ? group : "");
}

const struct np_command *np_command_find(
    const struct np_command *commands, int nr_words, char **words, int *ret_nr_words)
{
    const struct np_command *command = find(commands, NULL, words[0]);
    const char *second = nr_words > 1 ? words[1] : "-";

    if (!command) {
        print_unknown(commands, NULL, words[0]);
        return NULL;
    }
    *ret_nr_words = 1;
    if (command->run || *second == '-')
        return command;
    *ret_nr_words = 2;
    command = find(commands, command->name, second);
    if (!command)
        print_unknown(commands, words[0], second);
    return command;
}

int np_command_missing(const struct np_command *commands, const struct np_command *group)
{
    const char *comma = "";

    fprintf(stderr, "nnpipe %s: expected one of ", group->name);
    for (const struct np_command *c = commands; c->name; c++)
        if (below(c, group->name)) {
            fprintf(stderr, "%s%s", comma, below(c, group->name));
            comma = ", ";
        }
    fprintf(stderr, "; see `nnpipe help %s`\n", group->name);
    return NP_EXIT_USAGE;
}

/* --- help ------------------------------------------------------------------------------------ */

void np_help_commands(FILE *out, const struct np_command *commands)
{
    fputs("usage: nnpipe COMMAND ...\n\n", out);
    for (const struct np_command *c = commands; c->name; c++)
        if (c->summary && !strchr(c->name, ' '))
            fprintf(out, "  %-8s %-32s %s\n", c->name, c->operands, c->summary);
    fputs("\nnnpipe help COMMAND lists its flags, nnpipe help config-reference the keys of a "
          "config,\n"
          "nnpipe help service-reference the settings of the service.\n",
        out);
}

static void help_group(const struct np_command *commands, const struct np_command *group)
{
    printf("usage: nnpipe %s %s\n\n%s.\n\n", group->name, group->operands, group->summary);
    for (const struct np_command *c = commands; c->name; c++)
        if (below(c, group->name))
            printf("  %-8s %-32s %s\n", below(c, group->name), c->operands, c->summary);
    printf("\nnnpipe help %s COMMAND lists its flags.\n%s%s", group->name,
        *group->flags ? "\n" : "", group->flags);
}

static int help_command(const struct np_command *commands, int nr_words, char **words)
{
    int nr = 0;
    const struct np_command *c = np_command_find(commands, nr_words, words, &nr);

    if (!c)
        return NP_EXIT_USAGE;
    if (!c->run) {
        help_group(commands, c);
        return NP_EXIT_DONE;
    }
    printf("usage: nnpipe %s%s%s\n\n", c->name, *c->operands ? " " : "", c->operands);
    if (c->summary)
        printf("%s.\n\n", c->summary);
    fputs(c->flags, stdout);
    return NP_EXIT_DONE;
}

int np_help(const struct np_command *commands, int nr_words, char **words)
{
    if (nr_words == 0 || *words[0] == '-' || strcmp(words[0], "help") == 0)
        np_help_commands(stdout, commands);
    else if (strcmp(words[0], "config-reference") == 0)
        np_config_reference(stdout);
    else if (strcmp(words[0], "config-keys") == 0)
        np_config_keys(stdout);
    else if (strcmp(words[0], "service-reference") == 0)
        np_service_reference(stdout);
    else
        return help_command(commands, nr_words, words);
    return NP_EXIT_DONE;
}
