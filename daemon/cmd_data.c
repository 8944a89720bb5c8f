/* `nnpipe data`: making, packing, listing, checking and looking at sets. Main thread. */
#include <stdio.h>
#include <string.h>

#include "daemon/data.h"

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
} commands[] = {
    {"synth", np_data_synth},
    {"pack", np_data_pack},
    {"ls", np_data_ls},
    {"verify", np_data_verify},
    {"stats", np_data_stats},
    {"view", np_data_view},
};
#define NR_COMMANDS ((int)(sizeof(commands) / sizeof(commands[0])))

static const char help[] =
    "usage: nnpipe data COMMAND ...\n"
    "\n"
    "  synth --out DIR         draw a sample set: shards of JPEGs of shapes, in eight classes\n"
    "      --samples N --test N --size PX --seed S\n"
    "  pack CONFIG|PATH... --out DIR    write anything readable into shards, with an index\n"
    "      --split train|test|val       of a config; train without it. Shards are SPLIT-NNNNN.tar\n"
    "      --resize PX                  shorter side at most PX; smaller pictures stay\n"
    "      --quality Q                  as JPEG of quality Q (1 to 100)\n"
    "      --raw                        as PPM and PGM: pixels, no compression\n"
    "      --zstd LEVEL                 .tar.zst: frames of 16 KiB with a seek table\n"
    "      --shard-size BYTES           256M without it\n"
    "  ls CONFIG|PATH...       list the samples\n"
    "  verify CONFIG|PATH...   read, check and decode every sample; CRCs go into the index\n"
    "  stats CONFIG|PATH...    sizes, classes, and mean and std for `normalize:`\n"
    "  view CONFIG [--step N] [--out DIR]    the rows of a training step as the trainer gets them\n"
    "\n"
    "A PATH is a folder with a folder of images for each class, a .tar, .tar.gz or .tar.zst\n"
    "(WebDataset too), a glob of such, CIFAR-10's *_batch*.bin or an IDX file of images.\n"
    "--source NAME and --match GLOB say more of it; --json prints an object a line.\n";

static int unknown(const char *word)
{
    const char *names[NR_COMMANDS + 1] = {NULL}, *nearest;

    for (int i = 0; i < NR_COMMANDS; i++)
        names[i] = commands[i].name;
    nearest = np_nearest(word, names);
    fprintf(stderr, "nnpipe data: there is no command '%s'%s%s%s\n", word,
        nearest ? "; did you mean '" : "; `nnpipe data --help` lists them", nearest ? nearest : "",
        nearest ? "'?" : "");
    return NP_EXIT_USAGE;
}

int np_cmd_data(int argc, char **argv)
{
    if (argc < 2)
        return np_data_usage("a command is missing: synth, pack, ls, verify, stats or view");
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        fputs(help, stdout);
        return NP_EXIT_DONE;
    }
    for (int i = 0; i < NR_COMMANDS; i++)
        if (strcmp(argv[1], commands[i].name) == 0)
            return commands[i].run(argc - 1, argv + 1);
    return unknown(argv[1]);
}
