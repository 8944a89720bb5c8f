/* `nnpipe help config-reference`: docs/CONFIG.md, and `nnpipe help config-keys`: every key for -o
 * with the words that its value may be, for shell completion. Both are printed from the option
 * tables. */
#include <stdio.h>
#include <string.h>

#include "daemon/cmd.h"
#include "daemon/config/config.h"
#include "daemon/ui/reference.h"
#include "trainer/graph/layers.h"

static void print_choices(FILE *out, const struct np_choice *choices)
{
    for (; choices->name; choices++) {
        fprintf(out, "\n### `%s`\n\n%s\n", choices->name, choices->help);
        np_reference_table(out, choices->table);
    }
}

static const char base_text[] =
    "\n## base\n\n`base: cnn.yaml` names another config that this file changes: keys given here "
    "win. A "
    "relative name starts at the folder of the file that has the `base` (standard input: at the "
    "working directory); `${NAME}` and `~` work. A base may have a base, up to 16 files.\n\n"
    "- Mappings are merged key by key; a key without a value changes nothing.\n"
    "- Lists are replaced as a whole, and so are choices with their options: `optimizer`, "
    "`schedule`, `loss`, `device`, `loader.shuffle`, `loader.cache`, and a set of `data` whose "
    "`source` differs. If a file has its own `model`, blocks that only the base's model used are "
    "dropped.\n"
    "- `train.epochs` replaces the base's `steps`, `data.split` its `val` or `fold`, and the other "
    "way round.\n"
    "- Relative paths of sets start at the folder of the file that has them.\n"
    "- `-o` is applied last.\n\n"
    "Error messages name the file with the mistake. `nnpipe show` prints the merged config, "
    "`nnpipe "
    "submit` sends it, and runs and checkpoints store it, so they do not need the base again. "
    "`nnpipe profile --tune` writes such a file.\n\n"
    "```yaml\nbase: cnn.yaml\nloader: {batch: 256}\noptimizer: {sgd: {lr: 0.4, momentum: 0.9}}\n"
    "train: {steps: 5000}\n```\n";

static void print_sources(FILE *out)
{
    fputs(
        "\n## data\n\nThe sets. A relative path starts at the config's folder, else at the working "
        "directory; `${NAME}` and `${NAME:-default}` are taken from the environment (inside braces "
        "they must be quoted), and `~` at the beginning is the home folder.\n",
        out);
    np_reference_table(out, np_data_option_table);
    fputs("\nEach set is a mapping:\n", out);
    np_reference_table(out, np_source_option_table);
    fputs("\nThe class of an image in a `folder` or `tar` is the name of a folder on its path: the "
          "first one below the given folder; in an archive, the first one below the folders that "
          "all images of the set share; if `match` begins with folders (`train/*`), the first one "
          "below these. So `n/cat/batch1/1.jpg` is a cat, both in the folder `n` and in a tar of "
          "it. If all images are in one chain of folders, the class is the first of them. "
          "WebDataset's `.cls` members hold the numbers of the classes. Training needs at least "
          "two classes, unless `classes:` names a single one.\n",
        out);
    fputs("\n| source | reads | keys |\n|---|---|---|\n", out);
    for (int i = 0; np_sources[i]; i++)
        fprintf(out, "| `%s` | %s | `%s` |\n", np_sources[i]->name, np_sources[i]->help,
            np_sources[i]->keys);
}

static void print_augments(FILE *out)
{
    fputs("\n## Augmentation\n\nOperations of `loader.augment` and `loader.test_augment`: `flip`, "
          "or `{random_crop: {size: 32, pad: 4}}`.\n",
        out);
    for (int i = 0; np_augments[i]; i++) {
        fprintf(out, "\n### `%s`\n\n%s\n", np_augments[i]->name, np_augments[i]->help);
        np_reference_table(out, np_augments[i]->options);
    }
}

static void print_layers(FILE *out)
{
    fputs(
        "\n## model and blocks\n\n`model` is a list of layers: `relu`, or `conv: {out: 32, kernel: "
        "3}`. Names of parameters come from the layers' names, as in torch. Every layer takes:\n",
        out);
    np_reference_table(out, np_layer_common);
    fputs("\n### `block`\n\nA list of layers from `blocks:`, with parameters.\n", out);
    np_reference_table(out, np_block_options);
    for (int i = 0; np_layers[i]; i++) {
        fprintf(out, "\n### `%s`\n\n%s\n", np_layers[i]->name, np_layers[i]->help);
        np_reference_table(out, np_layers[i]->options);
    }
}

static void print_rules(FILE *out)
{
    fputs("\n## freeze\n\nParameters that keep their values. A pattern, a list of patterns, a "
          "mapping, "
          "or a list of mappings:\n",
        out);
    np_reference_table(out, np_freeze_table);
    fputs("\n### until\n", out);
    np_reference_table(out, np_until_table);
    fputs("\nA pattern is one of the shell (`*`, `?`, `[abc]`), for a parameter's name "
          "(`layer1.0.conv1.weight`) or for the name of a layer or block above it: `layer1` and "
          "`layer1.*` take all parameters below layer1. Of several matches the last one counts. A "
          "frozen parameter has no gradient: no momentum, no weight decay, no part in "
          "`train.clip_norm`. For parameters that never thaw no gradient is calculated, nor any "
          "below the lowest parameter that is trained.\n"
          "\n## params\n\nA list of mappings; of several matches the last one counts.\n",
        out);
    np_reference_table(out, np_own_rule_table);
}

static const char head[] =
    "# The config\n\n"
    "`nnpipe help config-reference` prints this page from the tables with which the program reads "
    "configs.\n\n"
    "One YAML file describes a run. Only `data` and `model` are required: every other key has a "
    "default, and `auto` chooses what suits this machine. `nnpipe check CONFIG` reports every "
    "mistake with its line and column, `nnpipe show CONFIG` prints all keys with their values. On "
    "a command line, `-o train.epochs=2` changes a key, `-o model.0.conv.out=16` a key of an item "
    "in a list, `-o optimizer.sgd.lr=0.01` the learning rate. `-o train.steps=500` replaces the "
    "file's `train.epochs`, and the other way round.\n\n"
    "A name alone stands for a mapping without options: `loss: cross_entropy`, `- flip`. A file "
    "has at most 1 MiB and 64 levels, each key once, and no anchors, aliases or tags. Quote text "
    "that begins with `*`, `&`, `!`, `%` or `@`, and `${` inside braces.\n\n"
    "## Top level\n";

void np_config_reference(FILE *out)
{
    fputs(head, out);
    np_reference_table(out, np_config_table);
    fputs(base_text, out);
    print_sources(out);
    fputs("\n## loader\n", out);
    np_reference_table(out, np_loader_option_table);
    fputs("\n### bad_samples\n", out);
    np_reference_table(out, np_bad_option_table);
    fputs("\n### share\n", out);
    np_reference_table(out, np_share_option_table);
    fputs("\n### grow\n", out);
    np_reference_table(out, np_grow_option_table);
    fputs("\n### normalize\n", out);
    np_reference_table(out, np_normalize_option_table);
    print_augments(out);
    print_layers(out);
    fputs("\n## loss\n", out);
    print_choices(out, np_loss_choices);
    fputs("\n## optimizer\n", out);
    print_choices(out, np_optim_choices);
    print_rules(out);
    fputs("\n## schedule\n\nThe learning rate is the optimizer's `lr` times a factor.\n", out);
    print_choices(out, np_schedule_choices);
    fputs("\n## train\n", out);
    np_reference_table(out, np_train_table);
    fputs("\n### ema\n", out);
    np_reference_table(out, np_average_table);
    fputs("\n### sam\n", out);
    np_reference_table(out, np_sam_table);
    fputs("\n### stop\n", out);
    np_reference_table(out, np_early_table);
    fputs("\n## checkpoint\n", out);
    np_reference_table(out, np_checkpoint_table);
}

/* --- keys ---------------------------------------------------------------------------------- */

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

static void print_keys(FILE *out, const char *prefix, const struct np_option *table)
{
    for (; table->key; table++)
        print_key(out, prefix, table);
}

/* "optimizer sgd|adamw", then the keys of each. */
static void print_choice_keys(FILE *out, const char *key, const struct np_choice *choices)
{
    char prefix[128];

    fprintf(out, "%s ", key);
    for (const struct np_choice *c = choices; c->name; c++)
        fprintf(out, "%s%s", c == choices ? "" : "|", c->name);
    fputc('\n', out);
    for (; choices->name; choices++) {
        snprintf(prefix, sizeof(prefix), "%s.%s.", key, choices->name);
        if (choices->table)
            print_keys(out, prefix, choices->table);
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
    print_keys(out, "device.sim.", np_device_choices[0].table);
    print_sets(out);
    for (const struct np_option *option = np_data_option_table; option->key; option++)
        if (option->type != NP_OPT_NODE)
            print_key(out, "data.", option);
    print_keys(out, "loader.", np_loader_option_table);
    print_keys(out, "loader.bad_samples.", np_bad_option_table);
    print_keys(out, "loader.share.", np_share_option_table);
    print_keys(out, "loader.grow.", np_grow_option_table);
    print_keys(out, "loader.normalize.", np_normalize_option_table);
    print_choice_keys(out, "loss", np_loss_choices);
    print_choice_keys(out, "optimizer", np_optim_choices);
    print_choice_keys(out, "schedule", np_schedule_choices);
    print_keys(out, "train.", np_train_table);
    print_keys(out, "train.ema.", np_average_table);
    print_keys(out, "train.sam.", np_sam_table);
    print_keys(out, "train.stop.", np_early_table);
    print_keys(out, "checkpoint.", np_checkpoint_table);
    fputs("track tensorboard|mlflow|wandb\n", out);
}
