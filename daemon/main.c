/* main(): finds the command in the table and runs it, or prints its help. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/cmd.h"
#include "daemon/config/config.h"
#include "daemon/data/data.h"
#include "loader/base/nearest.h"
#include "loader/base/version.h"
#include "loader/remote/remote_http.h"

#define MAX_COMMANDS 64

#define JSON     "  --json           print one JSON object per line instead of text\n"
#define OVERRIDE "  -o KEY=VALUE     change a key of the config; may be repeated\n"
#define TTA                                                                                        \
    "  --tta WORD       none, flip or flip_shift: train.tta, the mean over views of each image\n"
#define DEVICE "  --device NAME    auto, cpu, gpu, cuda:N or sim\n"
#define OF_PATHS                                                                                   \
    "  --source NAME    what a PATH is, as data.train.source; default: recognised by its name\n"   \
    "  --match GLOB     only samples of a PATH whose names match\n"
#define OF_SETS                                                                                    \
    "  --split SET      only train, test or val of a config; default: all\n" OF_PATHS OVERRIDE JSON
#define OF_LENGTH                                                                                  \
    "  --epochs E       how much of the training set to use\n"                                     \
    "  --steps N        how many batches to use\n" OVERRIDE JSON
#define SOCKET                                                                                     \
    "  --socket PATH    the service's socket; default: $NNPIPE_SOCKET, the user's, the box's\n"
#define OF_SERVICE JSON SOCKET
#define WEIGHTS                                                                                    \
    "  --weights FILE   a safetensors or PyTorch file (FILE#PART: a part of it), a checkpoint\n"   \
    "                   folder, a run folder (its newest checkpoint), RUN:best, RUN:last or\n"     \
    "                   RUN:step-N. The weights of a run need no CONFIG: it is the run's own\n"

/* One command. The name "data pack" is a command of the group "data", whose own row has no
 * run(). */
struct np_command {
    const char *name;
    int (*run)(int argc, char **argv); /* NULL: a group */
    const char *operands;
    const char *summary; /* NULL: internal, in no list */
    const char *flags;   /* the rest of its help; begins with one flag per line */
};

static const struct np_command commands[] = {
    {"train", np_cmd_train, "CONFIG", "train a network",
        "  --resume [RUN]   continue the run in folder RUN (CONFIG is optional), or the newest\n"
        "                   unfinished run of CONFIG; if there is none, say why and exit with 2.\n"
        "                   -o may change rate, weight decay, schedule and length: see nnpipe(1)\n"
        "  --resume auto    the same, but if there is none a new run begins: for launchers that\n"
        "                   give the same command again\n"
        "  --reset-schedule with --resume: start the schedule again at this step, with the rate,\n"
        "                   decay, schedule and length of CONFIG\n"
        "  --weights FILE   start a new run with the weights of a safetensors or PyTorch file\n"
        "                   (FILE#PART: a part of it), a checkpoint or a run (RUN:best)\n" DEVICE
            OVERRIDE
        "  --processes N    train with N processes on this machine, which share train.lanes;\n"
        "                   with 1, 2, 4 ... lanes each, the weights are those of one process\n"
        "  --gpus LIST      train with a process on each of these GPUs: 0-3, or 0,2, or all\n"
        "  --trace FILE     record what each thread and the device did, for ui.perfetto.dev\n"
        "  --trace-limit N  end the trace at N MiB; default 256\n" JSON "\n"
        "Ctrl-C (or SIGTERM) finishes the step, writes a checkpoint and exits with 75; a second\n"
        "one ends the run at once. Before the first step there is nothing to save: the signal\n"
        "ends the run with a message. A closed standard output does not stop a run.\n"
        "A run that cannot read its data or write a checkpoint exits with 74 if it has a\n"
        "checkpoint, else with 1.\n"},
    {"eval", np_cmd_eval, "[CONFIG] --weights FILE", "loss and accuracy on the test or another set",
        WEIGHTS
        "  --set NAME       test, val (or the part that data.split keeps apart) or train;\n"
        "                   default: test, or val if there is no test set\n"
        "  --classes        also print precision, recall and F1 of each class, the lowest first\n"
        "  --html FILE      write a page: classes, confusions, calibration, the worst images\n"
        "  --predictions FILE  write the answer for each image, as CSV\n" TTA DEVICE OVERRIDE JSON},
    {"predict", np_cmd_predict, "[CONFIG] --weights FILE IMAGE...", "classify images",
        WEIGHTS
        "  --list FILE      also the images that the lines of FILE name; -: standard input\n"
        "  --top N          how many classes to print per image; default 5\n"
        "  --format F       text, jsonl or csv; default: text, or as --out ends\n"
        "  --out FILE       write into FILE, not to standard output\n" TTA DEVICE OVERRIDE JSON "\n"
        "IMAGE is a file, a folder (all images in it and below it, in byte order of their names),\n"
        "a glob in quotes, or @FILE, a list of them. The first operand is CONFIG if it ends in\n"
        ".yaml or .yml. Bad images are named and counted, and the exit code is 1.\n"},
    {"serve", np_cmd_serve, "RUN | [CONFIG] --weights FILE", "classify images sent over HTTP",
        WEIGHTS
        "  --listen ADDRESS where to listen; default 127.0.0.1:8500, port 0: any. There is no\n"
        "                   password: with 0.0.0.0:8500 anybody who reaches this machine may ask\n"
        "  --max-batch N    images computed at once; default 32\n"
        "  --max-delay MS   how long the first image of a batch waits for others; default 2\n"
        "  --max-waiting N  images that may wait; more are refused with 503; default 256\n"
        "  --max-size MIB   of an image; default 32\n"
        "  --top N          how many classes to send per image; default 5\n" DEVICE OVERRIDE "\n"
        "POST /predict takes one image as the body and answers in JSON; GET / is a page to drop\n"
        "images on; /model, /healthz, /metrics (for Prometheus). docs/SERVE.md has the details.\n"
        "SIGTERM or Ctrl-C: images that wait are answered, then it exits with 0.\n"},
    {"check", np_cmd_check, "CONFIG...", "report every mistake in configs and their data",
        OVERRIDE
        "  --no-data        check only the config: its data may be on another machine\n"
        "  --seconds S      how long to look at the data of a config; default 20\n"
        "\n"
        "Lists the data as a run would: do the files exist, do classes and sizes fit. Does not\n"
        "decode images (`nnpipe data verify` does) or unpack archives. Prints \"ok\" and exits\n"
        "with 0, or prints each mistake with its place and exits with 2: `nnpipe train` would\n"
        "not start. Writes nothing but indexes, into the cache folder.\n"},
    {"show", np_cmd_show, "CONFIG | RUN | FILE",
        "print all keys, and the layers with shapes and FLOPs",
        OVERRIDE JSON "\nOf a FILE of weights (safetensors or PyTorch) it lists the tensors.\n"},
    {"data", NULL, "COMMAND ...", "create, pack, list, check and inspect sets",
        "A PATH is a folder with one folder of images per class, a .tar, .tar.gz or .tar.zst\n"
        "(also WebDataset), a glob of these, CIFAR-10's *_batch*.bin or an IDX file of images.\n"},
    {"data synth", np_data_synth, "--out DIR", "draw a sample set of shapes in eight classes",
        "  --out DIR        write the shards into this folder\n"
        "  --samples N      training images; default 10000\n"
        "  --test N         test images; default 2000\n"
        "  --size PX        width and height; default 32\n"
        "  --seed S         draw other images; default 1\n" JSON},
    {"data pack", np_data_pack, "CONFIG|PATH... --out DIR", "write images into indexed shards",
        "  --out DIR        write the shards into this folder, as SPLIT-NNNNN.tar\n"
        "  --split SET      train, test or val of a config, default train; also the name of the\n"
        "                   shards of a PATH\n"
        "  --resize PX      reduce larger images to a shorter side of PX\n"
        "  --quality Q      write JPEGs of quality Q (1 to 100)\n"
        "  --raw            write PPM and PGM: pixels without compression\n"
        "  --shuffle SEED   write the samples in a random order drawn from SEED, for readers that\n"
        "                   stream shards; default: as listed, class by class\n"
        "  --zstd LEVEL     write .tar.zst, in frames of 16 KiB with a seek table\n"
        "  --shard-size N   bytes per shard; default 256M\n" OF_PATHS OVERRIDE JSON},
    {"data ls", np_data_ls, "CONFIG|PATH...", "list the samples", OF_SETS},
    {"data verify", np_data_verify, "CONFIG|PATH...",
        "read, check and decode every sample; add checksums to the index", OF_SETS},
    {"data stats", np_data_stats, "CONFIG|PATH...",
        "sizes, classes, and mean and std for `normalize:`", OF_SETS},
    {"data index", np_data_index, "CONFIG|PATH...", "build the index ahead of time",
        "  --beside         write the index beside the data, as NAME.npidx, for all users, not\n"
        "                   into the cache folder\n"
        "  --entries        find the entries of all JPEGs, at which decoding can begin, now and\n"
        "                   not while training: see loader.entries\n" OF_SETS},
    {"data view", np_data_view, "CONFIG", "the rows of a training step as the trainer gets them",
        "  --step N         which step; default 0\n"
        "  --split SET      train, or val or test: their rows in order, after test_augment\n"
        "  --sheet FILE     write all rows into one PNG file, in the order of the list\n"
        "  --out DIR        write the rows into this folder as PNG files\n" OVERRIDE JSON},
    {"data cache", np_data_cache, "[DIR]", "what the cache folder keeps of data on servers",
        "  DIR              default: objects, in the user's cache folder\n"
        "  --clear          remove the sets that no process uses\n" JSON},
    {"bench", NULL, "WHAT CONFIG", "measure one part alone", ""},
    {"bench loader", np_cmd_bench, "CONFIG", "only reading, decoding and augmenting",
        "  --entries        add the entries of pictures to the store (see loader.entries), as a\n"
        "                   run does; default: use those that are there\n"
        "  --seconds S      how long, after a warm-up; default 5\n" OF_LENGTH},
    {"bench io", np_cmd_bench, "CONFIG", "only reading the files, in random order",
        "  --seconds S      how long; default 5\n"
        "  --epochs E       how many times each file\n"
        "  --cold           drop the files from the page cache first\n" OVERRIDE JSON},
    {"bench feed", np_cmd_bench, "CONFIG", "the loader and the copies to a device",
        "  --seconds S      how long\n"
        "  --device NAME    default: the config's if it is sim, else sim\n" OF_LENGTH},
    {"bench step", np_cmd_bench, "CONFIG", "only the training step, on random pixels",
        "  --seconds S      how long\n"
        "  --steps N        how many batches\n"
        "  --device NAME    default: the config's\n" OVERRIDE JSON},
    {"profile", np_cmd_profile, "CONFIG", "find the stage that limits a run, and the key to change",
        DEVICE
        "  --deep           replace each stage by replay in turn, and measure\n"
        "  --verify         apply the advice and measure again; if it gains, write a config that\n"
        "                   builds on this one (base:)\n"
        "  --tune           try readers, depth, prefetch, cache and io in up to 15 trials; write\n"
        "                   the best into a config that builds on this one (base:)\n"
        "  --max-memory N   with --tune: bytes for the loader; default: half of the free memory\n"
        "  --max-cores N    with --tune: the largest number of readers\n"
        "  --compare FILE   compare with an older profile.json: exit 3 if the run has become\n"
        "                   slower, and name the stage; CONFIG may be a profile.json, too\n"
        "  --seconds S      length of a trial; default 2. Shorter trials are less exact\n"
        "  --processes N    train in N processes on this machine, and name the rank\n"
        "                   that the others wait for, and why; as under mpirun, srun and torchrun\n"
        "  --html FILE      the report as a web page; default: profile.html beside profile.json\n"
        "  --trace FILE     record two more seconds for ui.perfetto.dev\n"
        "  --trace-limit N  end the trace at N MiB; default 256\n"
        "  --out DIR        folder of the profile; default: a new folder below `runs`\n" OVERRIDE
        "  --json           print one JSON object instead of the screen\n"},
    {"lr", np_cmd_lr, "CONFIG", "find a learning rate: train a little at growing rates",
        "  --from LR        first rate; default 1e-7\n"
        "  --to LR          last rate; default 10\n"
        "  --steps N        updates from the one to the other; default 100\n"
        "  --weights FILE   begin with these weights, as `nnpipe train --weights`\n"
        "  --html FILE      write a page: the loss over the rate\n" DEVICE OVERRIDE JSON "\n"
        "The rate grows exponentially; the config's schedule is left out. The test ends when the\n"
        "smoothed loss exceeds 4 times its lowest value. It prints the rate at which the loss "
        "falls\n"
        "fastest, and a tenth of the rate with the lowest loss. Nothing of the run is kept.\n"},
    {"top", np_cmd_top, "[ID | RUN]", "watch the running runs, and what limits each",
        "  --once           print once and exit; the default if the output is no terminal\n"
        "  --sweep NAME     only the runs of a sweep of the service\n"
        "  --runs DIR       show the runs in this folder (default: runs), not the "
        "service's\n" OF_SERVICE "\n"
        "Updates one line per run every second: the service's runs if a service answers, else\n"
        "those below `runs`. ID, or RUN (a folder, or the beginning of its name below `runs`)\n"
        "adds the stages of that run. --json prints once.\n"
        "Keys: j, k and the arrows choose a run, Enter shows its stages, Escape all runs; p\n"
        "pauses, r resumes and s stops it, after a question; q quits.\n"},
    {"runs", np_cmd_runs, "[DIR...]", "list the runs in folders, with their results",
        "  --sort KEY       when (default, newest first), accuracy, loss, size or name\n"
        "  -n N             list only the first N\n" JSON "\n"
        "DIR is a folder of runs (default: runs), or one run. `best` is the best evaluation while\n"
        "training; `last` and `loss` are the last evaluation, on the test set if there was one.\n"
        "`changed` lists the keys, by their last word, in which runs of one network differ; for\n"
        "the only run of a network, those that -o changed.\n"},
    {"compare", np_cmd_compare, "RUN... | --sweep NAME", "runs side by side, and their curves",
        "  --sweep NAME     the runs of a sweep of the service\n"
        "  --html FILE      write table and curves into a web page\n"
        "  --svg FILE       write the curves into a picture\n"
        "  --runs DIR       folder of runs (default: runs)\n" OF_SERVICE "\n"
        "RUN is a number or name of `nnpipe ls --all`, a folder of a run or of runs, or the\n"
        "beginning of its name below `runs`; 2 to 16 runs. The best accuracy comes first. `best`\n"
        "and `last` are accuracies of evaluations, `loss` is the last evaluation's, or the "
        "training\n"
        "loss before the first one; `time` is of training, or since the start of an unfinished\n"
        "run. The other columns are the keys of the configs that differ. The curves of a sweep of\n"
        "more than 16 runs are of the best 16.\n"},
    {"replay", np_cmd_replay, "RUN --step N | --worst K",
        "make rows of a run's training steps again",
        "  --step N         which step: 0 is the first one, 1 in metrics.jsonl\n"
        "  --row R          only this row, from 0; default: all of the step\n"
        "  --worst K        the K rows with the highest losses of the last epoch, in one picture\n"
        "  --out DIR        folder of the files; default: RUN/replay-stepN, "
        "RUN/replay-worst\n" OVERRIDE JSON "\n"
        "Writes each row's pixels as the network got them, rowNNNN.png, and rows.jsonl (with "
        "--row\n"
        "rowNNNN.json): file, label, crop, flip and checksum of each row, and the bad samples "
        "that\n"
        "it replaced. --worst writes worst.png, the highest loss first, and rows.jsonl; the run\n"
        "needs train: {sample_losses: true}. RUN is a folder, or the beginning of its name below\n"
        "`runs`. Its training set must be as it was: other names or labels exit with 2. If the "
        "set\n"
        "was moved, use -o data.train.path=PATH.\n"},
    {"daemon", np_cmd_daemon, "", "the service: queues runs and starts them",
        "  --config FILE    settings; default: ~/.config/nnpipe/service.yaml\n"
        "  --state DIR      folder of queue and token; default: ~/.local/state/nnpipe\n"
        "  --socket PATH    default: $NNPIPE_SOCKET, $XDG_RUNTIME_DIR/nnpipe/socket\n"
        "  --units          start each run as a unit of the user's systemd, as nnpipe.service "
        "does\n"
        "  --listen ADDRESS serve the page and Prometheus on loopback TCP: 127.0.0.1:7411\n"
        "  --box            serve all users of this machine, from /etc, /var/lib and /run/nnpipe;\n"
        "                   as root\n"
        "\n"
        "Runs in the foreground. On SIGTERM every run writes its checkpoint; the runs continue\n"
        "when the service starts again. On SIGHUP the service reads its settings again. `nnpipe\n"
        "help service-reference` lists them; see docs/SERVICE.md.\n"},
    {"submit", np_cmd_submit, "CONFIG [-o KEY=VALUE]...", "queue a run in the service, or a sweep",
        OVERRIDE
        "  --name NAME      default: the config's\n"
        "  --sweep KEY=VALUE,VALUE...  a run for each value, named NAME-KEYVALUE; 1..5 stands for\n"
        "                   1,2,3,4,5. Several --sweep: for each combination, at most 256. All "
        "are\n"
        "                   checked first; the same command again adds only missing runs\n"
        "  --priority N     -100 to 100, higher first; default 0\n"
        "  --after ID,...   start when these runs are done\n"
        "  --device NAME    default: the config's\n"
        "  --gpus N         N processes, each with a GPU of its own; the run waits until it has "
        "all\n"
        "  --processes N    the same on the config's device: of the CPU, N of its slots\n"
        "                   (runs_per_device); needs train.lanes\n"
        "  --max-retries N  how often to restart a run whose process died; default 3\n"
        "  --time-limit T   stop after this running time (90s, 30m, 8h, 2d), with a checkpoint "
        "and\n"
        "                   the state timeout\n"
        "  --memory BYTES   memory limit, as 16G; a run that exceeds it is killed\n"
        "  --cpus N         CPU limit, as 4 or 0.5\n"
        "  --on-end COMMAND  run this with sh in the run's folder when the run has finished, with\n"
        "                   the run as JSON on standard input; its output goes to the run's log\n"
        "  --wait           wait for the run to finish; exit with its code, as `nnpipe "
        "wait`\n" OF_SERVICE},
    {"ls", np_cmd_ls, "", "list the runs of the service",
        "  --all            also finished runs\n"
        "  --state S,...    only runs in these states: queued, running, pausing, yielding,\n"
        "                   stopping, paused, done, failed, stopped, timeout\n"
        "  --mine           only your runs\n"
        "  --owner USER     only runs of USER, a name or a number\n"
        "  --name PATTERN   only runs with such a name: 'cnn-*'\n"
        "  --sweep NAME     only the runs of a sweep\n"
        "  -n N             only the newest N\n" OF_SERVICE},
    {"status", np_cmd_status, "[ID]", "show the service or one of its runs", OF_SERVICE},
    {"logs", np_cmd_logs, "ID [-f]", "print the log of a run",
        "  -f, --follow     continue to print until the run has finished\n"
        "  -n N             print only the last N lines\n"
        "  --tail N         print only the last N bytes\n" SOCKET},
    {"stop", np_cmd_change, "ID...", "stop runs, with a checkpoint", OF_SERVICE},
    {"pause", np_cmd_change, "ID...", "write a checkpoint and free the device", OF_SERVICE},
    {"resume", np_cmd_change, "ID...", "queue paused runs again", OF_SERVICE},
    {"retry", np_cmd_change, "ID...", "queue stopped or failed runs again",
        "  --time-limit T   a new time limit; default: the old one\n" OF_SERVICE "\n"
        "A run that is stopped, failed or timeout continues from its checkpoint, in its folder;\n"
        "its retries and running time are counted from zero. A run that is done cannot be\n"
        "retried: submit it with more epochs.\n"},
    {"priority", np_cmd_priority, "ID... N", "set the priority of runs, -100 to 100", OF_SERVICE},
    {"hold", np_cmd_hold, "ID... | --all", "keep queued runs from starting",
        "  --all            hold the whole queue; running runs continue\n" OF_SERVICE},
    {"release", np_cmd_hold, "ID... | --all", "let held runs start",
        "  --all            release the whole queue\n" OF_SERVICE},
    {"wait", np_cmd_wait, "ID...", "wait for runs to finish",
        "  --timeout T      wait at most this long (90s, 30m, 8h), then exit with 124\n" OF_SERVICE
        "\n"
        "Exits with the code of the run: 0 done, 1 failed, 74 gave up with a checkpoint, 75\n"
        "stopped or timeout; for several runs the worst, in the order 1, 74, 75, 0. Keeps\n"
        "waiting while the service restarts.\n"},
    {"drain", np_cmd_drain, "DEVICE...", "start no new runs on devices",
        OF_SERVICE "\nRunning runs continue. A device stays drained when the service restarts.\n"},
    {"undrain", np_cmd_drain, "DEVICE...", "start runs on drained devices again", OF_SERVICE},
    {"token", np_cmd_token, "", "print your token for the page of the service",
        "  --new            replace the token by a new one\n"
        "  --revoke         make the token invalid\n" OF_SERVICE "\n"
        "With the token the page shows your runs' curves and logs and can stop them; it gives no\n"
        "other rights. It is stored in ~/.local/state/nnpipe/page-token; the service stores only\n"
        "a hash. The administrator, and the owner of a user's service, get the service's token.\n"},
    {"rm", np_cmd_change, "ID...", "forget finished runs, but keep their folders", OF_SERVICE},
    {"prune", np_cmd_prune, "RUN...", "remove old checkpoints of finished runs",
        "  --keep N         keep the newest N, and the best one; default 1\n"
        "  --dry-run        only print what would be removed\n" JSON "\n"
        "RUN is the folder of a run. Running runs are not changed.\n"},
    {"worker", np_cmd_worker, "", NULL,
        "The service starts this process for each run, and sends the job over standard input.\n"
        "`nnpipe train` trains in the foreground.\n"},
    {"ended", np_cmd_ended, "", NULL,
        "systemd starts this when a run of the service has ended, with the run on standard\n"
        "input.\n"},
    {"selftest", np_cmd_selftest, "", "compare a device's layers with the reference",
        "  --device NAME      auto, cpu, gpu or cuda:N\n"
        "  --precision P      only f32, bf16 or f16\n"
        "  --only TEXT        only networks whose names contain TEXT\n"
        "  --seed N           repeat a test; default: random, printed in the last line\n"
        "  --json             print one JSON object per line instead of text\n"
        "\n"
        "Runs small networks on random weights and pixels, each layer in odd shapes: logits,\n"
        "loss, counts, gradients, running statistics, evaluation and both optimizers, against\n"
        "plain C in f32; then a short training; on a GPU also ResNet-50's shapes. Each line shows\n"
        "the number closest to its tolerance. Exits with 0 if all are within tolerance, else 1.\n"},
    {"devices", np_cmd_devices, "", "list devices, and why one is not usable", JSON},
    {"doctor", np_cmd_doctor, "[PATH]", "check this machine's setup, and advise",
        "  --device NAME    cuda:0: also this GPU; auto: the first GPU if there is one; cpu: "
        "none\n" JSON "\n"
        "Checks io_uring, locked memory, the cgroup's CPUs and memory, huge pages, and the disk\n"
        "of PATH (a file to read, or a folder to write 128 MiB into and read back; default: this\n"
        "folder); for a GPU its bus, memory, clocks, ECC, persistence and NUMA node. Exits with 0\n"
        "if all is well, 1 if something needs attention.\n"},
    {NULL, NULL, NULL, NULL, NULL},
};

/* --- look-up ------------------------------------------------------------------------------- */

/* Commands of other programs. */
static const struct hint {
    const char *word, *answer;
} hints[] = {
    {"tune", "`nnpipe profile CONFIG --tune` tries readers, depth, prefetch, cache and io"},
    {"lr-find", "try several rates with `nnpipe train CONFIG -o optimizer.sgd.lr=0.1`"},
    {"sweep",
        "`nnpipe submit CONFIG --sweep KEY=VALUE,VALUE` queues one run per value, `nnpipe compare "
        "--sweep NAME` compares them"},
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

/* "pack" for the row "data pack" and the group "data"; NULL: the row is not in the group. */
static const char *below(const struct np_command *row, const char *group)
{
    const size_t bytes = strlen(group);

    return strncmp(row->name, group, bytes) == 0 && row->name[bytes] == ' ' ? row->name + bytes + 1
                                                                            : NULL;
}

/* group NULL: searches commands of one word. */
static const struct np_command *find(const char *group, const char *word)
{
    for (const struct np_command *c = commands; c->name; c++) {
        const char *name = group ? below(c, group) : c->name;

        if (name && strcmp(name, word) == 0)
            return c;
    }
    return NULL;
}

static const char *nearest(const char *group, const char *word)
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

static void print_unknown(const char *group, const char *word)
{
    const char *near = nearest(group, word), *space = group ? " " : "";
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

/* Finds the command that words (at least one) begin with, and how many of them are its name; a
 * group if no command of it follows. NULL after a message that suggests the nearest one. */
static const struct np_command *find_command(int nr_words, char **words, int *ret_nr_words)
{
    const struct np_command *command = find(NULL, words[0]);
    const char *second = nr_words > 1 ? words[1] : "-";

    if (!command) {
        print_unknown(NULL, words[0]);
        return NULL;
    }
    *ret_nr_words = 1;
    if (command->run || *second == '-')
        return command;
    *ret_nr_words = 2;
    command = find(command->name, second);
    if (!command)
        print_unknown(words[0], second);
    return command;
}

static int print_missing(const struct np_command *group)
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

/* --- help ---------------------------------------------------------------------------------- */

static void print_commands(FILE *out)
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

static void help_group(const struct np_command *group)
{
    printf("usage: nnpipe %s %s\n\n%s.\n\n", group->name, group->operands, group->summary);
    for (const struct np_command *c = commands; c->name; c++)
        if (below(c, group->name))
            printf("  %-8s %-32s %s\n", below(c, group->name), c->operands, c->summary);
    printf("\nnnpipe help %s COMMAND lists its flags.\n%s%s", group->name,
        *group->flags ? "\n" : "", group->flags);
}

static int help_command(int nr_words, char **words)
{
    int nr = 0;
    const struct np_command *c = find_command(nr_words, words, &nr);

    if (!c)
        return NP_EXIT_USAGE;
    if (!c->run) {
        help_group(c);
        return NP_EXIT_DONE;
    }
    printf("usage: nnpipe %s%s%s\n\n", c->name, *c->operands ? " " : "", c->operands);
    if (c->summary)
        printf("%s.\n\n", c->summary);
    fputs(c->flags, stdout);
    return NP_EXIT_DONE;
}

static int help(int nr_words, char **words)
{
    if (nr_words == 0 || *words[0] == '-' || strcmp(words[0], "help") == 0)
        print_commands(stdout);
    else if (strcmp(words[0], "config-reference") == 0)
        np_config_reference(stdout);
    else if (strcmp(words[0], "config-keys") == 0)
        np_config_keys(stdout);
    else if (strcmp(words[0], "service-reference") == 0)
        np_service_reference(stdout);
    else
        return help_command(nr_words, words);
    return NP_EXIT_DONE;
}

/* --- main() -------------------------------------------------------------------------------- */

/* If a standard stream is closed at the start, the next file would get its number, and the
 * program would print into that file. */
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

/* argv: the command's words, then its arguments. */
static int run_command(int argc, char **argv)
{
    char name[32];
    int nr_words = 0;
    const struct np_command *command = find_command(argc, argv, &nr_words);

    if (command && asks_for_help(argc - nr_words, argv + nr_words))
        return help(nr_words, argv);
    if (!command || !command->run)
        return command ? print_missing(command) : NP_EXIT_USAGE;
    snprintf(name, sizeof(name), "%s", command->name);
    argv[nr_words - 1] = name; /* for messages: both words */
    return command->run(argc - nr_words + 1, argv + nr_words - 1);
}

int main(int argc, char **argv)
{
    fill_standard_streams();
    signal(SIGPIPE, SIG_IGN); /* a closed pipe does not end a run */
    signal(SIGXFSZ, SIG_IGN); /* a file over the size limit is then an error */
    np_remote_use(&np_remote_http);
    if (argc < 2) {
        print_commands(stderr);
        return NP_EXIT_USAGE;
    }
    const char *word = argv[1];
    int code;
    if (strcmp(word, "--version") == 0 || strcmp(word, "-V") == 0 || strcmp(word, "version") == 0)
        return puts("nnpipe " NP_VERSION) < 0;
    if (strcmp(word, "help") == 0 || strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0)
        code = help(argc - 2, argv + 2);
    else
        code = run_command(argc - 1, argv + 1);
    /* Failing to print (a full disk) is an error; a closed pipe is not. */
    if (fflush(stdout) != 0 && errno != EPIPE && code == 0)
        code = NP_EXIT_FAILED;
    return code;
}
