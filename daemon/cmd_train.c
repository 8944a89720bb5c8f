/* `nnpipe train CONFIG`: a run in the foreground. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "daemon/cmd.h"
#include "daemon/config.h"
#include "daemon/run.h"
#include "loader/base/mem.h"

static bool is_folder(const char *word)
{
    struct stat stat_;

    return stat(word, &stat_) == 0 && S_ISDIR(stat_.st_mode);
}

int np_cmd_train(int argc, char **argv)
{
    struct np_overrides overrides = {0};
    struct np_run_options options = {.overrides = &overrides};
    const char *device = NULL;
    const struct np_flag flags[] = {
        {"--resume", &options.resume_dir, &options.resume, is_folder},
        {"--weights", &options.weights, NULL, NULL},
        {"--device", &device, NULL, NULL},
        {"--json", NULL, &options.json, NULL},
        {NULL, NULL, NULL, NULL},
    };
    struct np_config *config = NULL;
    char *own = NULL; /* the run's own config */
    int nr, code = np_flags_parse(argc, argv, flags, &overrides, &nr);

    if (code)
        return code;
    if (options.resume && options.weights) {
        fprintf(stderr, "nnpipe train: --weights begins a run, --resume goes on with one; give one "
                        "of the two\n");
        return NP_EXIT_USAGE;
    }
    if (nr == 0 && options.resume_dir)
        own = np_format("%s/config.yaml", options.resume_dir);
    if (nr == 2 && options.resume && !options.resume_dir && !is_folder(argv[2])) {
        fprintf(stderr,
            "nnpipe train: %s is no folder: --resume takes a run's, or nothing for the "
            "newest of the config\n",
            argv[2]);
        return NP_EXIT_USAGE;
    }
    if (nr != 1 && !own) {
        fprintf(stderr,
            "nnpipe train: expected one CONFIG, not %d; to go on with a run: nnpipe train "
            "--resume RUN\n",
            nr);
        return NP_EXIT_USAGE;
    }
    if (nr == 1 && is_folder(argv[1])) {
        fprintf(stderr,
            "nnpipe train: %s is a folder, CONFIG is a file; to go on with a run: nnpipe train "
            "--resume %s\n",
            argv[1], argv[1]);
        return NP_EXIT_USAGE;
    }
    code = np_cmd_config(own ? own : argv[1], &overrides, device, &config);
    if (code == 0)
        code = np_run_train(config, &options);
    np_config_free(config);
    np_free(own);
    return code;
}
