/* `nnpipe help config-keys`: every key for -o, one per line, with the words that its value may
 * be, from the option tables. For shell completion. Main thread. */
#include <stdio.h>
#include <string.h>

#include "daemon/cmd.h"
#include "daemon/config/config.h"
#include "daemon/config/config_tables.h"
#include "loader/base/option.h"
#include "trainer/graph/layers.h"

/* Values that the option tables do not list. */
static const struct {
    const char *key, *words;
} words_of[] = {
    {"loader.io", "auto|uring|pread"},
    {"loader.cache", "auto|none|encoded|decoded|device"},
    {"loader.shuffle", "full|none"},
};

static void print_key(FILE *out, const char *prefix, const struct np_option *option)
{
    char key[128];
    const char *words = option->type == NP_OPT_BOOL ? "true|false" : option->words;

    snprintf(key, sizeof(key), "%s%s", prefix, option->key);
    for (size_t i = 0; i < sizeof(words_of) / sizeof(*words_of); i++)
        if (strcmp(words_of[i].key, key) == 0)
            words = words_of[i].words;
    fprintf(out, "%s%s%s\n", key, words ? " " : "", words ? words : "");
}

static void print_table(FILE *out, const char *prefix, const struct np_option *table)
{
    for (; table->key; table++)
        print_key(out, prefix, table);
}

/* "optimizer sgd|adamw", then the keys of each. */
static void print_choices(FILE *out, const char *key, const struct np_choice *choices)
{
    char prefix[128];

    fprintf(out, "%s ", key);
    for (const struct np_choice *c = choices; c->name; c++)
        fprintf(out, "%s%s", c == choices ? "" : "|", c->name);
    fputc('\n', out);
    for (; choices->name; choices++) {
        snprintf(prefix, sizeof(prefix), "%s.%s.", key, choices->name);
        if (choices->table)
            print_table(out, prefix, choices->table);
    }
}

static void print_sets(FILE *out)
{
    static const char *const sets[] = {"train", "test", "val", NULL};

    for (int i = 0; sets[i]; i++) {
        fprintf(out, "data.%s.source ", sets[i]);
        for (int s = 0; np_sources[s]; s++)
            fprintf(out, "%s%s", s ? "|" : "", np_sources[s]->name);
        fputc('\n', out);
        for (const struct np_option *option = np_source_option_table; option->key; option++) {
            char prefix[32];

            snprintf(prefix, sizeof(prefix), "data.%s.", sets[i]);
            if (strcmp(option->key, "source") != 0)
                print_key(out, prefix, option);
        }
    }
}

void np_config_keys(FILE *out)
{
    for (const struct np_option *option = np_config_table; option->key; option++)
        if (option->type != NP_OPT_NODE)
            print_key(out, "", option);
    fputs("device auto|cpu|gpu|cuda:0|sim\n", out);
    print_table(out, "device.sim.", np_device_choices[0].table);
    print_sets(out);
    for (const struct np_option *option = np_data_option_table; option->key; option++)
        if (option->type != NP_OPT_NODE)
            print_key(out, "data.", option);
    print_table(out, "loader.", np_loader_option_table);
    print_table(out, "loader.bad_samples.", np_bad_option_table);
    print_table(out, "loader.normalize.", np_normalize_option_table);
    print_choices(out, "loss", np_loss_choices);
    print_choices(out, "optimizer", np_optim_choices);
    print_choices(out, "schedule", np_schedule_choices);
    print_table(out, "train.", np_train_table);
    print_table(out, "checkpoint.", np_checkpoint_table);
}
