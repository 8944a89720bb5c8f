/* argv -> command table. Nobody else calls exit(). */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/cmd.h"
#include "daemon/config.h"
#include "daemon/help.h"

/* Flags of all commands that ask the service. */
#define OF_SERVICE                                                                                 \
    "  --socket PATH    the service's; default: $NNPIPE_SOCKET, the user's, the box's\n"
#define ASKING "  --json           one JSON object a line instead of text\n" OF_SERVICE

static const struct np_command commands[] = {
    {"train", np_cmd_train, "CONFIG", "train a network",
        "  --resume [RUN]   go on with the run in folder RUN (CONFIG may then be left out), or\n"
        "                   with the newest unfinished one of CONFIG. Its data may have moved.\n"
        "                   -o changes rate, weight decay, schedule and length: see nnpipe(1)\n"
        "  --reset-schedule with --resume: the schedule begins anew at this step, and CONFIG's\n"
        "                   rate, decay, schedule and length hold from now on\n"
        "  --weights FILE   begin with weights from a safetensors file, a checkpoint or a run\n"
        "                   (RUN:best)\n"
        "  --device NAME    auto, cpu, cuda:0 or sim\n"
        "  -o KEY=VALUE     change a key of the config: -o train.epochs=2 (may be repeated)\n"
        "  --trace FILE     what each thread and the device did when, for ui.perfetto.dev\n"
        "  --trace-limit N  the trace ends at N MiB (default: 256)\n"
        "  --json           one JSON object a line instead of text\n"
        "\n"
        "Ctrl-C (or SIGTERM) finishes the step, writes a checkpoint and ends with 75; one that\n"
        "comes later ends it at once. While data are still listed and the network is built there\n"
        "is nothing to save: the signal then ends the run and says so. A closed standard output\n"
        "does not stop a run: its log goes on.\n"},
    {"eval", np_cmd_eval, "CONFIG --weights FILE", "loss and accuracy on the test set, or another",
        "  --weights FILE   a safetensors file, a checkpoint's folder, a run's folder (its newest\n"
        "                   checkpoint), or RUN:best, RUN:last, RUN:step-N\n"
        "  --set NAME       test, val (or the part that data.split keeps apart) or train;\n"
        "                   default: test, or val where there is no test set\n"
        "  --device NAME    auto, cpu, cuda:0 or sim\n"
        "  -o KEY=VALUE     change a key of the config\n"
        "  --json           one JSON object a line instead of text\n"},
    {"predict", np_cmd_predict, "CONFIG --weights FILE IMAGE...", "labels of single images",
        "  --weights FILE   a safetensors file, a checkpoint's folder, a run's folder (its newest\n"
        "                   checkpoint), or RUN:best, RUN:last, RUN:step-N\n"
        "  --device NAME    auto, cpu, cuda:0 or sim\n"
        "  -o KEY=VALUE     change a key of the config\n"
        "  --json           one JSON object a line instead of text\n"},
    {"check", np_cmd_check, "CONFIG", "every mistake of a config, and nothing else",
        "  -o KEY=VALUE     change a key of the config\n"
        "\n"
        "Exit 0: \"ok\"; 2: there are mistakes, each with its place. Nothing is written.\n"},
    {"show", np_cmd_show, "CONFIG", "the full config, and the layers with shapes and FLOPs",
        "  -o KEY=VALUE     change a key of the config\n"
        "  --json           one JSON object a line instead of text\n"},
    {"data", np_cmd_data, "synth|pack|ls|verify|stats|view",
        "make, pack, list, check and look at sets", NULL},
    {"bench", np_cmd_bench, "loader|io|feed|step CONFIG", "measure one part alone", NULL},
    {"profile", np_cmd_profile, "CONFIG", "which stage limits a run, and which key to change",
        "  --device NAME    auto, cpu, cuda:0, sim\n"
        "  --deep           measured, not computed: each stage replaced by replay in turn\n"
        "  --verify         the advised key applied, and measured again\n"
        "  --tune           readers, depth, prefetch, cache and io by up to 15 trials, into a "
        "copy of\n"
        "                   the config\n"
        "  --max-memory N   of --tune: what the loader may take; default: half of what is free\n"
        "  --max-cores N    of --tune: readers at most\n"
        "  --compare FILE   an older profile.json of the same config: exit 3 where the run has "
        "become\n"
        "                   slower, and by which stage; with a profile.json for CONFIG, two that "
        "are there\n"
        "  --seconds S      a trial's length; default 2. Shorter ones are quick, and noisier\n"
        "  --html FILE      the report as one page; default: profile.html in the profile's folder\n"
        "  --trace FILE     spans of two more seconds, for ui.perfetto.dev\n"
        "  --trace-limit N  the file's limit in MiB; default 256\n"
        "  --out DIR        the profile's folder; default: a new one below `runs`\n"
        "  -o KEY=VALUE     change a key of the config\n"
        "  --json           one JSON object instead of the screen\n"},
    {"top", np_cmd_top, "[ID | RUN]", "the runs that go on, and what limits one",
        "  --once           print once, and end; so too where standard output is no terminal\n"
        "  --json           one JSON object a run, once\n"
        "  --runs DIR       of no service: the runs whose folders lie there; default: "
        "runs\n" OF_SERVICE "\n"
        "A line a run, every second; of a service where one answers, else of the folders below\n"
        "`runs`. With ID, or RUN (a folder, or its name below `runs`), the stages of that run, "
        "too.\n"
        "Keys: j and k or the arrows choose a run, Enter shows its stages, Escape all runs; p\n"
        "pauses, r resumes, s stops it, and each asks first; q ends.\n"},
    {"daemon", np_cmd_daemon, "", "the service: keeps a queue of runs and does them",
        "  --config FILE    its settings; default: ~/.config/nnpipe/service.yaml\n"
        "  --state DIR      the queue and the token; default: ~/.local/state/nnpipe\n"
        "  --socket PATH    where it answers; default: $NNPIPE_SOCKET, "
        "$XDG_RUNTIME_DIR/nnpipe/socket\n"
        "  --units          each run is a unit of the user's systemd; as nnpipe.service has it\n"
        "  --listen ADDRESS loopback TCP for the page and Prometheus, as 127.0.0.1:7411\n"
        "  --box            for all users of this machine: /etc, /var/lib and /run/nnpipe; as "
        "root\n"
        "\n"
        "In the foreground. SIGTERM: every run writes its checkpoint, and goes on when the service "
        "does.\n"
        "SIGHUP: the settings are read again; `nnpipe help\n"
        "service-reference` lists them, docs/SERVICE.md has the rest.\n"},
    {"submit", np_cmd_submit, "CONFIG [-o KEY=VALUE]...", "a run into the service's queue",
        "  --name NAME      default: the config's\n"
        "  --priority N     -100 to 100, higher first; default 0\n"
        "  --after ID,...   once these are done\n"
        "  --device NAME    default: the config's\n"
        "  --max-retries N  tries after its process has died; default 3\n"
        "  --wait           until it is over; ends with its exit code: 0 done, 1 failed, 75 "
        "stopped\n" ASKING},
    {"ls", np_cmd_ls, "", "the runs of the service",
        "  --all            those that are over, too\n"
        "  --mine           those of this user\n" ASKING},
    {"status", np_cmd_status, "[ID]", "the service, or one of its runs", ASKING},
    {"logs", np_cmd_logs, "ID [-f]", "what a run of the service has said",
        "  -f, --follow     and goes on saying, until it is over\n"
        "  --tail N         from the last N bytes on\n" OF_SERVICE},
    {"stop", np_cmd_stop, "ID...", "end runs of the service, with a checkpoint", ASKING},
    {"pause", np_cmd_pause, "ID...",
        "let runs of the service write a checkpoint and free their device", ASKING},
    {"resume", np_cmd_resume, "ID...", "queue paused runs again", ASKING},
    {"rm", np_cmd_rm, "ID...", "forget runs that are over; their folders stay", ASKING},
    {"prune", np_cmd_prune, "RUN...", "remove old checkpoints of runs that are over",
        "  --keep N         the newest N stay, and the best one; default 1\n"
        "  --dry-run        only say what would go\n"
        "  --json           one JSON object a line instead of text\n"
        "\n"
        "RUN is a run's folder. One that is going on is left alone.\n"},
    {"worker", np_cmd_worker, "", "one run of the service's, which starts it",
        "The job comes by standard input. `nnpipe train` is what you are looking for.\n"},
    {"ended", np_cmd_ended, "", "tells that a run of the service's is over",
        "The run comes by standard input. The service starts this where systemd runs.\n"},
    {"selftest", np_cmd_selftest, "", "a device's layers against the reference",
        "  --device NAME      auto, cpu or cuda:0\n"
        "  --precision P      f32, bf16 or f16 alone\n"
        "  --only TEXT        the networks whose name holds the text\n"
        "  --seed N           repeat a test; default: random, printed in the last line\n"
        "  --json             one JSON object a line instead of text\n"
        "\n"
        "Small networks on random weights and pixels, each layer in odd shapes: logits, loss,\n"
        "counts, gradients, running statistics, evaluation and both optimizers, against plain C\n"
        "in f32; then a short training; on a GPU ResNet-50's shapes too. A line shows the\n"
        "number that comes nearest to its tolerance. Exit 0: all within; 1: not.\n"},
    {"devices", np_cmd_devices, "", "the devices of this machine, and why not",
        "  --json           one JSON object a line instead of text\n"},
    {"doctor", np_cmd_doctor, "[PATH]", "is this machine set up well, and what to do where not",
        "  --device NAME    cuda:0: this GPU too; auto: the first, if there is one; cpu: none\n"
        "  --json           one JSON object a line instead of text\n"
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
    if (strcmp(word, "--version") == 0 || strcmp(word, "-V") == 0)
        return puts("nnpipe " NP_VERSION) < 0;
    if (strcmp(word, "help") == 0 || strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0)
        return np_help(commands, argc > 2 ? argv[2] : NULL);
    const struct np_command *command = np_command_find(commands, word);
    if (!command)
        return NP_EXIT_USAGE;
    if (argc > 2 && (strcmp(argv[2], "--help") == 0 || strcmp(argv[2], "-h") == 0))
        return np_help(commands, word);
    int code = command->run(argc - 1, argv + 1);
    /* What could not be written (a full disk) is a failure; a reader that went away is not. */
    if (fflush(stdout) != 0 && errno != EPIPE && code == 0)
        code = NP_EXIT_FAILED;
    return code;
}
