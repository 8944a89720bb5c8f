/* `nnpipe train CONFIG`: a run in the foreground. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "daemon/cmd.h"
#include "daemon/config/config.h"
#include "daemon/config/config_lanes.h"
#include "daemon/analysis/trace.h"
#include "daemon/run/processes.h"
#include "daemon/run/run.h"
#include "daemon/run/run_folder.h"
#include "loader/base/mem.h"
#include "loader/base/text.h"
#include "trainer/comm.h"

static int train_traced(struct np_config *config, struct np_run_options *options, const char *path,
    const char *limit_text)
{
    struct np_trace_end end;
    struct np_err err = {0};
    int code = np_trace_open(path, limit_text, &options->trace, &err);

    if (code < 0) {
        np_complain(&err);
        return code == -EINVAL ? NP_EXIT_USAGE : NP_EXIT_FAILED;
    }
    code = np_run_train(config, options);
    np_trace_finish(options->trace, &end);
    fprintf(options->json || end.code < 0 ? stderr : stdout, "%s\n", end.text);
    np_trace_free(options->trace);
    return code;
}

#define AUTO "auto"

/* May the word after --resume be its value? */
static bool is_run(const char *word)
{
    return strcmp(word, AUTO) == 0 || np_is_folder(word);
}

/* argv[1] to argv[nr]: the operands. 0, or NP_EXIT_USAGE after a message. */
static int check_usage(const struct np_run_options *options, char **argv, int nr, const char *trace,
    const char *trace_limit)
{
    const bool newest = options->resume && !options->resume_dir;

    if (options->resume && options->weights && !options->resume_auto)
        return np_usage(
            "train", "--weights begins a new run, --resume continues one; use only one of them");
    if (options->reset_schedule && (!options->resume || options->resume_auto))
        return np_usage("train",
            "--reset-schedule needs --resume: it restarts the schedule where the run is resumed");
    if (trace_limit && !trace)
        return np_usage("train", "--trace-limit needs --trace FILE: it limits its size");
    if (nr == 2 && newest && !np_is_folder(argv[2]))
        return np_usage("train",
            "%s is not a folder: --resume takes a run's folder; without one it resumes the "
            "config's newest run",
            argv[2]);
    if (nr != 1 && !(nr == 0 && options->resume_dir))
        return np_usage(
            "train", "expected one CONFIG, not %d; to resume a run: nnpipe train --resume RUN", nr);
    if (nr == 1 && np_is_folder(argv[1]))
        return np_usage("train",
            "%s is a folder, CONFIG is a file; to resume a run: nnpipe train --resume %s", argv[1],
            argv[1]);
    return 0;
}

char **np_processes_words(int argc, char **argv)
{
    static char program[] = "nnpipe";
    char **words = np_alloc((size_t)(argc + 2) * sizeof(*words));
    int nr = 0;

    words[nr++] = program;
    for (int i = 0; i < argc; i++) {
        if (strcmp(argv[i], "--processes") == 0 || strcmp(argv[i], "--gpus") == 0)
            i++;
        else if (strncmp(argv[i], "--processes=", 12) != 0 && strncmp(argv[i], "--gpus=", 7) != 0)
            words[nr++] = argv[i];
    }
    return words;
}

/* Can these be the processes of the config? */
static int check_several(
    const char *command, const struct np_several *several, const struct np_config *config, int nr)
{
    const bool cpu = strcmp(config->device, "cpu") == 0;
    struct np_err err = {0};

    const bool any_gpu = strcmp(config->device, "auto") == 0 || strcmp(config->device, "cuda") == 0;
    const int gpus = any_gpu && !several->gpus ? np_processes_count_gpus() : 0;

    if (gpus > 0 && gpus < nr)
        return np_usage(command,
            "--processes %d: the driver reports %d GPUs, and each needs its own", nr, gpus);
    if (several->gpus && cpu)
        return np_usage(command, "--gpus: the config has `device: cpu`");
    if (np_config_check_processes(config, nr, &err) < 0)
        return np_usage(command, "%s", err.text);
    return 0;
}

/* Returns the number of processes, or a negative errno. */
static int count_several(
    const struct np_several *several, const struct np_config *config, int *gpus, struct np_err *err)
{
    const char *flag = several->gpus ? "--gpus" : "--processes";
    const char *text = several->gpus ? several->gpus : several->processes;
    const bool sim = config && strcmp(config->device, "sim") == 0;
    int64_t nr = 0;

    if (several->gpus)
        nr = np_processes_gpus(several->gpus, !sim, gpus, NP_MAX_WORLD, err);
    else if (!np_text_int(text, 1, NP_MAX_WORLD, &nr))
        nr = 0;
    if (nr < 0)
        return (int)nr;
    return nr > 0 ? (int)nr
                  : np_err_set(err, -EINVAL, "%s %s: expected a number, 1 to %d", flag, text,
                        NP_MAX_WORLD);
}

/* A launcher's processes would each start a run of as many. */
static int check_alone(const char *command, const struct np_several *several)
{
    const char *flag = several->gpus ? "--gpus" : "--processes";
    struct np_launch launch;
    struct np_err err = {0};

    if (np_launch_find(&launch, &err) < 0)
        return np_usage(command, "%s", err.text);
    if (launch.world > 1)
        return np_usage(command,
            "%s starts the processes of a run, but %s has already started %d: leave out %s, or the "
            "launcher",
            flag, launch.by, launch.world, flag);
    return 0;
}

int np_processes_start(const char *command, char **words, const struct np_several *several,
    const char *path, const struct np_overrides *overrides, const char *device)
{
    struct np_config *config = NULL;
    int *gpus = np_alloc_array(NP_MAX_WORLD, sizeof(*gpus)), nr = 0;
    struct np_err err = {0};
    int code = check_alone(command, several);

    if (code == 0 && path && strcmp(path, "-") == 0)
        code = np_usage(command, "several processes cannot all read CONFIG from standard input");
    else if (code == 0 && path)
        code = np_cmd_config(path, overrides, device, &config);
    if (code == 0 && (nr = count_several(several, config, gpus, &err)) < 0)
        code = np_usage(command, "%s", err.text);
    if (code == 0 && config && nr > 1)
        code = check_several(command, several, config, nr);
    np_config_free(config);
    struct np_processes processes = {.argv = words, .nr = nr, .gpus = several->gpus ? gpus : NULL};
    if (code == 0)
        code = np_processes_run(&processes);
    np_free(gpus);
    return code;
}

static int train_with(struct np_config *config, const struct np_run_options *options,
    const char *trace, const char *trace_limit)
{
    struct np_run_options with = *options;
    struct np_launch launch;
    struct np_err err = {0};

    if (np_launch_find(&launch, &err) < 0) {
        np_complain(&err);
        return NP_EXIT_USAGE;
    }
    with.launch = &launch;
    return trace && launch.rank == 0 ? train_traced(config, &with, trace, trace_limit)
                                     : np_run_train(config, &with);
}

int np_cmd_train(int argc, char **argv)
{
    struct np_overrides overrides = {0};
    char **words = np_processes_words(argc, argv); /* the parser moves those of argv */
    struct np_run_options options = {.overrides = &overrides};
    const char *device = NULL, *trace = NULL, *trace_limit = NULL;
    struct np_several several = {0};
    const struct np_flag flags[] = {
        {"--resume", &options.resume_dir, &options.resume, is_run},
        {"--reset-schedule", NULL, &options.reset_schedule, NULL},
        {"--weights", &options.weights, NULL, NULL},
        {"--device", &device, NULL, NULL},
        {"--trace", &trace, NULL, NULL},
        {"--trace-limit", &trace_limit, NULL, NULL},
        {"--processes", &several.processes, NULL, NULL},
        {"--gpus", &several.gpus, NULL, NULL},
        {"--json", NULL, &options.json, NULL},
        {NULL, NULL, NULL, NULL},
    };
    struct np_config *config = NULL;
    char *own = NULL; /* the run's own config */
    int nr, code = np_flags_parse(argc, argv, flags, &overrides, &nr);

    if (options.resume_dir && strcmp(options.resume_dir, AUTO) == 0) {
        options.resume_auto = true;
        options.resume_dir = NULL;
    }
    if (code == 0)
        code = check_usage(&options, argv, nr, trace, trace_limit);
    const bool starts = several.processes || several.gpus;
    if (code == 0 && several.processes && several.gpus)
        code = np_usage("train", "--gpus starts a process for each GPU; leave out --processes");
    if (code == 0 && starts)
        code = np_processes_start(
            "train", words, &several, nr > 0 ? argv[1] : NULL, &overrides, device);
    np_free(words);
    if (code || starts)
        return code;
    if (nr == 0)
        own = np_format("%s/config.yaml", options.resume_dir);
    code = np_cmd_config(own ? own : argv[1], &overrides, device, &config);
    if (code == 0)
        code = train_with(config, &options, trace, trace_limit);
    np_config_free(config);
    np_free(own);
    return code;
}
