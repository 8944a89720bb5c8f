/* argv -> command table. Nobody else calls exit(). */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/bench/bench.h"
#include "daemon/cmd.h"
#include "daemon/config/config.h"
#include "daemon/data/data.h"
#include "daemon/help.h"

#define JSON     "  --json           one JSON object per line instead of text\n"
#define OVERRIDE "  -o KEY=VALUE     change a key of the config\n"
/* Of commands that read sets. */
#define OF_PATHS                                                                                   \
    "  --source NAME    of a PATH: what it is, as data.train.source; default: by its looks\n"      \
    "  --match GLOB     of a PATH: only the samples whose names match\n"
#define OF_SETS                                                                                    \
    "  --split SET      train, test or val of a config; default: all\n" OF_PATHS OVERRIDE JSON
/* Flags of all commands that ask the service. */
#define OF_SERVICE                                                                                 \
    "  --socket PATH    of the service; default: $NNPIPE_SOCKET, the user's, the box's\n"
#define ASKING JSON OF_SERVICE

static const struct np_command commands[] = {
    {"train", np_cmd_train, "CONFIG", "train a network",
        "  --resume [RUN]   continue the run in folder RUN (CONFIG may be left out), or the "
        "newest\n"
        "                   unfinished run of CONFIG; where there is none, say why and end with "
        "2.\n"
        "                   -o changes rate, weight decay, schedule and length: see nnpipe(1)\n"
        "  --reset-schedule with --resume: the schedule begins again at this step, and CONFIG's\n"
        "                   rate, decay, schedule and length hold from now on\n"
        "  --weights FILE   begin a new run with the weights of a safetensors file, a checkpoint\n"
        "                   or a run (RUN:best)\n"
        "  --device NAME    auto, cpu, gpu, cuda:N or sim\n"
        "  -o KEY=VALUE     change a key of the config: -o train.epochs=2 (may be repeated)\n"
        "  --trace FILE     write what each thread and the device did when, for ui.perfetto.dev\n"
        "  --trace-limit N  the trace ends at N MiB (default: 256)\n"
        "  --json           one JSON object per line instead of text\n"
        "\n"
        "Ctrl-C (or SIGTERM) finishes the step, writes a checkpoint and ends with 75; a second "
        "one\n"
        "ends the run at once. Before the first step there is nothing to save: the signal ends "
        "the\n"
        "run and says so. A closed standard output does not stop a run: its log continues.\n"
        "A run that cannot read its data or write a checkpoint gives up with 74 where it has a\n"
        "checkpoint, else with 1.\n"},
    {"eval", np_cmd_eval, "[CONFIG] --weights FILE",
        "loss and accuracy on the test set, or another",
        "  --weights FILE   a safetensors file, a checkpoint's folder, a run's folder (its newest\n"
        "                   checkpoint), or RUN:best, RUN:last, RUN:step-N; CONFIG may be left "
        "out\n"
        "                   where they are a run's: it is the run's own then\n"
        "  --set NAME       test, val (or the part that data.split keeps apart) or train;\n"
        "                   default: test, or val where there is no test set\n"
        "  --device NAME    auto, cpu, gpu, cuda:N or sim\n"
        "  -o KEY=VALUE     change a key of the config\n"
        "  --json           one JSON object per line instead of text\n"},
    {"predict", np_cmd_predict, "[CONFIG] --weights FILE IMAGE|FOLDER...", "labels of images",
        "  --weights FILE   a safetensors file, a checkpoint's folder, a run's folder (its newest\n"
        "                   checkpoint), or RUN:best, RUN:last, RUN:step-N; CONFIG (*.yaml) may "
        "be\n"
        "                   left out where they are a run's: it is the run's own then\n"
        "  --top N          how many classes to print per image; default 5\n"
        "  --device NAME    auto, cpu, gpu, cuda:N or sim\n"
        "  -o KEY=VALUE     change a key of the config\n"
        "  --json           one JSON object per line instead of text\n"
        "\n"
        "Of a FOLDER: every image in it and in the folders below it, in byte order of the "
        "names.\n"},
    {"check", np_cmd_check, "CONFIG...", "every mistake of configs, and of their data",
        "  -o KEY=VALUE     change a key of the config\n"
        "  --no-data        the config alone: its data may lie on another machine\n"
        "  --seconds S      how long to look at a config's data; default 20\n"
        "\n"
        "The data are listed, as a run would do it: are they there, do their classes and sizes "
        "fit.\n"
        "Pictures are not decoded (`nnpipe data verify` does that), archives not unpacked. Exit "
        "0:\n"
        "\"ok\"; 2: there are mistakes, each with its place: `nnpipe train` would not start.\n"
        "Nothing is written but indexes, into the cache folder.\n"},
    {"show", np_cmd_show, "CONFIG | RUN", "the whole config, and the layers with shapes and FLOPs",
        "  -o KEY=VALUE     change a key of the config\n"
        "  --json           one JSON object per line instead of text\n"},
    {"data", NULL, "COMMAND ...", "make, pack, list, check and look at sets",
        "A PATH is a folder with one folder of images per class, a .tar, .tar.gz or .tar.zst\n"
        "(WebDataset too), a glob of such, CIFAR-10's *_batch*.bin or an IDX file of images.\n"},
    {"data synth", np_data_synth, "--out DIR", "draw a sample set of shapes, in eight classes",
        "  --out DIR        write the shards there\n"
        "  --samples N      training images; default 10000\n"
        "  --test N         test images; default 2000\n"
        "  --size PX        width and height; default 32\n"
        "  --seed S         other images; default 1\n" JSON},
    {"data pack", np_data_pack, "CONFIG|PATH... --out DIR",
        "write images into shards, with an index",
        "  --out DIR        write the shards there: SPLIT-NNNNN.tar\n"
        "  --split SET      train, test or val of a config; default train. Shards have its name,\n"
        "                   also those of a PATH\n"
        "  --resize PX      shorter side at most PX; smaller pictures stay\n"
        "  --quality Q      as JPEG of quality Q (1 to 100)\n"
        "  --raw            as PPM and PGM: pixels, no compression\n"
        "  --shuffle SEED   samples in an order drawn from SEED, for readers that stream shards;\n"
        "                   default: as they are listed, class by class\n"
        "  --zstd LEVEL     .tar.zst: frames of 16 KiB with a seek table\n"
        "  --shard-size N   bytes of a shard; default 256M\n" OF_PATHS OVERRIDE JSON},
    {"data ls", np_data_ls, "CONFIG|PATH...", "list the samples", OF_SETS},
    {"data verify", np_data_verify, "CONFIG|PATH...",
        "read, check and decode every sample; CRCs go into the index", OF_SETS},
    {"data stats", np_data_stats, "CONFIG|PATH...",
        "sizes, classes, and mean and std for `normalize:`", OF_SETS},
    {"data index", np_data_index, "CONFIG|PATH...", "list the samples ahead of time",
        "  --beside         put the index beside the data, as NAME.npidx, for all who read them,\n"
        "                   not into the cache folder\n" OF_SETS},
    {"data view", np_data_view, "CONFIG", "the rows of a training step as the trainer gets them",
        "  --step N         which step; default 0\n"
        "  --split SET      train, or val or test: its rows in their order, through the test "
        "chain\n"
        "  --sheet FILE     write all rows into one PNG file, in the order they are listed in\n"
        "  --out DIR        write the rows there as PNG files\n" OVERRIDE JSON},
    {"bench", NULL, "WHAT CONFIG", "measure one part alone", ""},
    {"bench loader", np_bench_loader, "CONFIG", "reading, decoding and augmenting alone",
        "  --seconds S      how long; default 5, after a warm-up\n"
        "  --epochs E       how much of the training set, from the first reader's start\n"
        "  --steps N        how many batches\n" OVERRIDE JSON},
    {"bench io", np_bench_io, "CONFIG", "reading the files' bytes alone, in random order",
        "  --seconds S      how long; default 5\n"
        "  --cold           drop the files from the page cache first\n" OVERRIDE JSON},
    {"bench feed", np_bench_feed, "CONFIG", "the loader and the copies to a device",
        "  --seconds S      how long\n"
        "  --epochs E       how much of the training set\n"
        "  --steps N        how many batches\n"
        "  --device NAME    default: the config's if it is sim, else sim\n" OVERRIDE JSON},
    {"bench step", np_bench_step, "CONFIG", "the training step alone, on random pixels",
        "  --seconds S      how long\n"
        "  --steps N        how many batches\n"
        "  --device NAME    default: the config's\n" OVERRIDE JSON},
    {"profile", np_cmd_profile, "CONFIG", "which stage limits a run, and which key to change",
        "  --device NAME    auto, cpu, gpu, cuda:N or sim\n"
        "  --deep           measure: each stage replaced by replay in turn\n"
        "  --verify         apply the advice and measure again; where it gains, write a config that\n"
        "                   builds on this one (base:) with it\n"
        "  --tune           try readers, depth, prefetch, cache and io in up to 15 trials; write "
        "the\n"
        "                   best into a config that builds on this one (base:)\n"
        "  --max-memory N   with --tune: bytes the loader may take; default: half of what is free\n"
        "  --max-cores N    with --tune: the largest number of readers\n"
        "  --compare FILE   an older profile.json of the same config: exit 3 where the run has\n"
        "                   become slower, and name the stage; CONFIG may be a profile.json, too\n"
        "  --seconds S      length of a trial; default 2. Short ones are quick and noisier\n"
        "  --html FILE      the report as one page; default: profile.html in the profile's folder\n"
        "  --trace FILE     write two more seconds for ui.perfetto.dev\n"
        "  --trace-limit N  the trace ends at N MiB; default 256\n"
        "  --out DIR        where the profile goes; default: a new folder below `runs`\n"
        "  -o KEY=VALUE     change a key of the config\n"
        "  --json           one JSON object instead of the screen\n"},
    {"top", np_cmd_top, "[ID | RUN]", "the running runs, and what limits each",
        "  --once           print once and end; the default where standard output is not a "
        "terminal\n"
        "  --json           one JSON object per run, once\n"
        "  --runs DIR       without a service: the runs whose folders are in DIR; default: "
        "runs\n" OF_SERVICE "\n"
        "One line per run, every second: of the service where one answers, else of the folders "
        "below\n"
        "`runs`. With ID, or RUN (a folder, or the beginning of its name below `runs`), also the "
        "stages\n"
        "of that run.\n"
        "Keys: j and k or the arrows choose a run, Enter shows its stages, Escape all runs; p\n"
        "pauses, r resumes, s stops it, and each asks first; q ends.\n"},
    {"runs", np_cmd_runs, "[DIR...]", "the runs below folders, with their results",
        "  --sort KEY       when (default, newest first), accuracy, loss, size or name\n"
        "  -n N             the first N only\n"
        "  --json           one JSON object per run instead of a table\n"
        "\n"
        "DIR is a folder of runs (default: runs), or one run. `best` is the best evaluation while\n"
        "training, `last` and `loss` are the last one, of the test set where it was made.\n"
        "`changed` are the keys in which runs of one network differ, by their last word; for a "
        "run\n"
        "without another of its network, what -o gave.\n"},
    {"daemon", np_cmd_daemon, "", "the service: keeps a queue of runs and starts them",
        "  --config FILE    its settings; default: ~/.config/nnpipe/service.yaml\n"
        "  --state DIR      the queue and the token; default: ~/.local/state/nnpipe\n"
        "  --socket PATH    where it answers; default: $NNPIPE_SOCKET, "
        "$XDG_RUNTIME_DIR/nnpipe/socket\n"
        "  --units          each run is a unit of the user's systemd, as nnpipe.service has it\n"
        "  --listen ADDRESS loopback TCP for the page and Prometheus: 127.0.0.1:7411\n"
        "  --box            for all users of this machine: /etc, /var/lib and /run/nnpipe; as "
        "root\n"
        "\n"
        "Runs in the foreground. SIGTERM: every run writes its checkpoint, and continues when the\n"
        "service is started again.\n"
        "SIGHUP: the service reads its settings again; `nnpipe help service-reference` lists "
        "them,\n"
        "docs/SERVICE.md has the rest.\n"},
    {"submit", np_cmd_submit, "CONFIG [-o KEY=VALUE]...", "put a run into the queue of the service",
        OVERRIDE
        "  --name NAME      default: the config's\n"
        "  --priority N     -100 to 100, higher first; default 0\n"
        "  --after ID,...   start when these runs are done\n"
        "  --device NAME    default: the config's\n"
        "  --max-retries N  tries after its process has died; default 3\n"
        "  --time-limit T   stop after this running time (90s, 30m, 8h, 2d), with a checkpoint;\n"
        "                   the state is timeout then\n"
        "  --memory BYTES   at most so much, as 16G; it is ended where it needs more\n"
        "  --cpus N         at most so many CPUs, as 4 or 0.5\n"
        "  --on-end COMMAND  sh runs it when the run is over, in the run's folder, with the run "
        "as\n"
        "                   JSON on standard input; its output goes to the run's log\n"
        "  --wait           wait until the run has ended; exit with its code, as `nnpipe "
        "wait`\n" ASKING},
    {"ls", np_cmd_ls, "", "the runs of the service",
        "  --all            the finished ones, too\n"
        "  --state S,...    only those in these states: queued, running, pausing, yielding,\n"
        "                   stopping, paused, done, failed, stopped, timeout\n"
        "  --mine           only those of this user\n"
        "  --owner USER     only those of USER, a name or a number\n"
        "  --name PATTERN   only those with such a name: 'cnn-*'\n"
        "  -n N             only the newest N\n" ASKING},
    {"status", np_cmd_status, "[ID]", "the service, or one of its runs", ASKING},
    {"logs", np_cmd_logs, "ID [-f]", "the log of a run of the service",
        "  -f, --follow     print what follows, until the run has ended\n"
        "  -n N             only the last N lines\n"
        "  --tail N         only the last N bytes\n" OF_SERVICE},
    {"stop", np_cmd_change, "ID...", "end runs of the service, with a checkpoint", ASKING},
    {"pause", np_cmd_change, "ID...", "write a checkpoint and free the device", ASKING},
    {"resume", np_cmd_change, "ID...", "queue paused runs again", ASKING},
    {"retry", np_cmd_change, "ID...", "queue stopped or failed runs again",
        "  --time-limit T   a new time limit; default: the old one\n" ASKING "\n"
        "For a run that is stopped, failed or timeout. It continues from its checkpoint, in its\n"
        "folder; retries and running time are counted from zero. A run that is done cannot be\n"
        "retried: submit it with more epochs.\n"},
    {"priority", np_cmd_priority, "ID... N", "set the priority of runs, -100 to 100", ASKING},
    {"hold", np_cmd_hold, "ID... | --all", "do not start queued runs for now",
        "  --all            the whole queue: no run is started; running ones continue\n" ASKING},
    {"release", np_cmd_hold, "ID... | --all", "let held runs start",
        "  --all            the whole queue\n" ASKING},
    {"wait", np_cmd_wait, "ID...", "wait until runs have ended",
        "  --timeout T      at most this time (90s, 30m, 8h), then exit with 124\n" ASKING "\n"
        "Exits with the code of the run: 0 done, 1 failed, 74 gave up by itself with a "
        "checkpoint,\n"
        "75 stopped or timeout; with several runs the worst, in the order 1, 74, 75, 0. Waits\n"
        "through restarts of the service.\n"},
    {"drain", np_cmd_drain, "DEVICE...", "start no new runs on devices of the service",
        ASKING "\nRunning runs continue. It lasts through restarts of the service.\n"},
    {"undrain", np_cmd_drain, "DEVICE...", "start runs on drained devices again", ASKING},
    {"token", np_cmd_token, "", "print your token for the page of the service",
        "  --new            a new one, in place of the old\n"
        "  --revoke         the old one is no longer valid\n" ASKING "\n"
        "With it the page shows your runs' curves and logs and lets you stop them; it has no "
        "other\n"
        "rights. It is kept in ~/.local/state/nnpipe/page-token; the service keeps only a hash. "
        "The\n"
        "administrator, and the user of one's own service, are shown the token of the service.\n"},
    {"rm", np_cmd_change, "ID...", "forget finished runs; their folders stay", ASKING},
    {"prune", np_cmd_prune, "RUN...", "remove old checkpoints of finished runs",
        "  --keep N         the newest N stay, and the best one; default 1\n"
        "  --dry-run        only say what would go\n"
        "  --json           one JSON object per line instead of text\n"
        "\n"
        "RUN is the folder of a run. A running one is left alone.\n"},
    {"worker", np_cmd_worker, "", NULL,
        "The service starts this for each of its runs; the job comes by standard input. `nnpipe\n"
        "train` is the command for a run in the foreground.\n"},
    {"ended", np_cmd_ended, "", NULL,
        "systemd starts this when a run of the service has ended; the run comes by standard\n"
        "input.\n"},
    {"selftest", np_cmd_selftest, "", "a device's layers against the reference",
        "  --device NAME      auto, cpu, gpu or cuda:N\n"
        "  --precision P      only f32, bf16 or f16\n"
        "  --only TEXT        the networks whose name contains TEXT\n"
        "  --seed N           repeat a test; default: random, in the last line\n"
        "  --json             one JSON object per line instead of text\n"
        "\n"
        "Small networks on random weights and pixels, each layer in odd shapes: logits, loss,\n"
        "counts, gradients, running statistics, evaluation and both optimizers, against plain C\n"
        "in f32; then a short training; on a GPU ResNet-50's shapes too. A line shows the\n"
        "number that comes nearest to its tolerance. Exit 0: all within; 1: not.\n"},
    {"devices", np_cmd_devices, "", "the devices of this machine, and why one is not usable",
        "  --json           one JSON object per line instead of text\n"},
    {"doctor", np_cmd_doctor, "[PATH]", "is this machine set up well; what to do where it is not",
        "  --device NAME    cuda:0: this GPU too; auto: the first, if there is one; cpu: none\n"
        "  --json           one JSON object per line instead of text\n"
        "\n"
        "io_uring, locked memory, the cgroup's CPUs and memory, huge pages, the disk that PATH (a\n"
        "file to read, or a folder to write 128 MiB into and read back; default: this folder) is\n"
        "on; with a GPU its bus, memory, clocks, ECC, persistence and NUMA node. Exit 0: nothing "
        "to\n"
        "do; 1: something is to be looked at.\n"},
    {NULL, NULL, NULL, NULL, NULL},
};

/* A program that is started with a standard stream closed would give its number to the next file,
 * and then write its text into that one. */
static void fill_standard_streams(void)
{
    for (int fd = 0; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) < 0)
            _exit(NP_EXIT_FAILED);
}

static bool asks_for_help(int argc, char **argv)
{
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return true;
    return false;
}

/* argv: the command's words and what follows them. */
static int run_command(int argc, char **argv)
{
    char name[32];
    int nr_words = 0;
    const struct np_command *command = np_command_find(commands, argc, argv, &nr_words);

    if (command && asks_for_help(argc - nr_words, argv + nr_words))
        return np_help(commands, nr_words, argv);
    if (!command || !command->run)
        return command ? np_command_missing(commands, command) : NP_EXIT_USAGE;
    snprintf(name, sizeof(name), "%s", command->name);
    argv[nr_words - 1] = name; /* for messages: both words */
    return command->run(argc - nr_words + 1, argv + nr_words - 1);
}

int main(int argc, char **argv)
{
    fill_standard_streams();
    signal(SIGPIPE, SIG_IGN); /* a reader that goes away ends no run */
    signal(SIGXFSZ, SIG_IGN); /* a file too large is an error like a full disk */
    if (argc < 2) {
        np_help_commands(stderr, commands);
        return NP_EXIT_USAGE;
    }
    const char *word = argv[1];
    int code;
    if (strcmp(word, "--version") == 0 || strcmp(word, "-V") == 0 || strcmp(word, "version") == 0)
        return puts("nnpipe " NP_VERSION) < 0;
    if (strcmp(word, "help") == 0 || strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0)
        code = np_help(commands, argc - 2, argv + 2);
    else
        code = run_command(argc - 1, argv + 1);
    /* What could not be written (a full disk) is a failure; a reader that went away is not. */
    if (fflush(stdout) != 0 && errno != EPIPE && code == 0)
        code = NP_EXIT_FAILED;
    return code;
}
