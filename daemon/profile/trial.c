/* Measures the real run for some seconds, in a temporary folder beside the real ones (so that
 * checkpoints go to the same disk), and parts of it, each in a child process. Main thread, which
 * is the run's trainer thread. */
#include <errno.h>
#include <ftw.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/analysis/model.h"
#include "daemon/profile/trial.h"
#include "daemon/cmd.h"
#include "daemon/config/config.h"
#include "daemon/run/run.h"
#include "loader/base/clock.h"
#include "loader/base/io.h"
#include "loader/base/mem.h"

#define MIN_STEPS   3 /* of a warm-up: every run waits for its first batches */
#define LONG_WARMUP 4 /* times warmup_s, for a cache to fill in its first epoch */

/* The -o of the command line come first, those of the trial after them. */
static int join_overrides(const struct np_rig *rig, const struct np_overrides *more,
    struct np_overrides *ret_all, struct np_err *err)
{
    *ret_all = rig->overrides;
    for (int i = 0; more && i < more->nr_texts; i++) {
        if (ret_all->nr_texts == NP_MAX_OVERRIDES)
            return np_err_set(err, -E2BIG, "more than %d overrides", NP_MAX_OVERRIDES);
        ret_all->texts[ret_all->nr_texts++] = more->texts[i];
    }
    return 0;
}

/* The watch of a trial leaves the signals blocked: looks for one that is pending. */
static int check_signals(struct np_err *err)
{
    sigset_t pending;

    if (sigpending(&pending) == 0 &&
        (sigismember(&pending, SIGINT) == 1 || sigismember(&pending, SIGTERM) == 1 ||
            sigismember(&pending, SIGHUP) == 1))
        return np_err_set(err, -EINTR, "stopped by a signal");
    return 0;
}

/* --- the whole run ------------------------------------------------------------------------- */

struct trial {
    const struct np_trial_options *options;
    double pace;
    struct np_knobs *knobs;
    struct np_observation *observation;
    struct np_snapshot start;
    uint64_t accumulate; /* of the config: steps per update */
    uint64_t first_ns;   /* end of the first step; 0: not yet */
    bool warm;
    uint64_t ribbon_ns, ribbon_images; /* end of the ribbon's last row */
    uint64_t ribbon_blame[NP_NR_STAGES];
};

#define RIBBON_NS 100000000u

/* Waits for a cache that is still filling, up to a limit. */
static bool is_warm(const struct trial *trial, const struct np_observed *seen)
{
    const double seconds = (double)(np_now_ns() - trial->first_ns) * 1e-9;
    const double warmup = trial->options->warmup_s * trial->pace;
    const double fill =
        trial->options->fill_s > 0 ? trial->options->fill_s * trial->pace : LONG_WARMUP * warmup;

    return seen->steps >= MIN_STEPS &&
           seconds >= (np_observe_fills(seen->knobs, seen->steps) ? fill : warmup);
}

/* If no checkpoint was due in the window, writes one to measure its time. */
static void time_checkpoint(struct trial *trial, struct np_run *run)
{
    struct np_observation *seen = trial->observation;

    if (seen->nr_checkpoints > 0)
        seen->checkpoint_each_s = seen->checkpoint_s / (double)seen->nr_checkpoints;
    else if (trial->knobs->checkpoint_steps > 0)
        seen->checkpoint_each_s = fmax(np_run_time_save(run), 0);
}

/* Adds a row per tenth of a second, or per step if that is longer. */
static void add_ribbon(struct trial *trial, const struct np_observed *seen)
{
    const struct np_trial_options *options = trial->options;
    const uint64_t now = np_now_ns(), images = seen->images;
    const double seconds = (double)(now - trial->ribbon_ns) * 1e-9;
    const uint64_t *blame = np_feed_account(seen->feed)->blame_ns;

    if (!options->ribbon || now - trial->ribbon_ns < RIBBON_NS ||
        *options->nr_ribbon == NP_PROFILE_MAX_RIBBON)
        return;
    if (trial->ribbon_ns >= trial->start.ns) {
        struct np_ribbon *row = &options->ribbon[(*options->nr_ribbon)++];

        *row = (struct np_ribbon){.at_s = (double)(trial->ribbon_ns - trial->start.ns) * 1e-9,
            .rate = (double)(images - trial->ribbon_images) / seconds};
        for (int s = 0; s < NP_NR_STAGES; s++)
            row->wait_s[s] = (double)(blame[s] - trial->ribbon_blame[s]) * 1e-9;
    }
    memcpy(trial->ribbon_blame, blame, sizeof(trial->ribbon_blame));
    trial->ribbon_ns = now;
    trial->ribbon_images = images;
}

static bool on_step(void *context, struct np_run *run, const struct np_observed *seen)
{
    struct trial *trial = context;
    struct np_snapshot end;

    if (trial->first_ns == 0)
        trial->first_ns = np_now_ns();
    if (!trial->warm) {
        trial->warm = is_warm(trial, seen);
        if (trial->warm) {
            np_observe_now(seen, &trial->start);
            trial->ribbon_ns = trial->start.ns;
            trial->ribbon_images = trial->start.images;
            memcpy(trial->ribbon_blame, trial->start.blame_ns, sizeof(trial->ribbon_blame));
        }
        return false;
    }
    add_ribbon(trial, seen);
    if ((double)(np_now_ns() - trial->start.ns) * 1e-9 < trial->options->seconds * trial->pace ||
        seen->steps % trial->accumulate != 0) /* checkpoints come between updates */
        return false;
    np_observe_now(seen, &end);
    np_observe_between(seen, &trial->start, &end, trial->observation);
    np_run_knobs(run, trial->knobs);
    trial->knobs->cache_fills = np_observe_fills(trial->knobs, trial->start.steps);
    time_checkpoint(trial, run);
    return true;
}

/* Sets `runs` to a new folder below it. */
static int own_folder(struct np_config *config, char **ret_dir, struct np_err *err)
{
    char *dir;
    int code = np_make_dirs(config->runs, err);

    if (code < 0)
        return code;
    dir = np_format("%s/.profile-XXXXXX", config->runs);
    if (!mkdtemp(dir)) {
        code = np_err_set(
            err, -errno, "%s: cannot create a folder in it: %s", config->runs, strerror(errno));
        np_free(dir);
        return code;
    }
    np_free(config->runs);
    config->runs = np_strdup(dir);
    *ret_dir = dir;
    return 0;
}

static int remove_one(const char *path, const struct stat *stat_, int kind, struct FTW *where)
{
    return remove(path);
}

int np_trial_run(struct np_rig *rig, const struct np_trial_options *options,
    struct np_observation *ret_observation, struct np_err *err)
{
    struct trial trial = {.options = options,
        .pace = rig->pace,
        .knobs = &rig->knobs,
        .observation = ret_observation};
    const struct np_run_probe probe = {.step = options->step ? options->step : on_step,
        .context = options->step ? options->context : &trial,
        .err = err,
        .stubs = options->stubs};
    struct np_overrides overrides;
    const struct np_run_options run = {.probe = &probe,
        .overrides = &overrides,
        .trace = options->trace,
        .launch = options->launch};
    struct np_config *config = NULL;
    char *dir = NULL;
    int code = check_signals(err);

    if (code == 0)
        code = join_overrides(rig, options->overrides, &overrides, err);
    if (code == 0 && np_cmd_config(rig->config_path, &overrides, rig->device, &config) != 0)
        code = np_err_set(err, -EINVAL, "%s: the config is not valid", rig->config_path);
    if (code == 0) {
        config->loader.stubs = options->stubs;
        config->loader.entries_fixed = true;
        trial.accumulate = (uint64_t)config->run.accumulate;
        code = own_folder(config, &dir, err);
    }
    if (code == 0 && np_run_train(config, &run) != NP_EXIT_DONE)
        code = err->code ? err->code : -EIO;
    if (dir)
        nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    np_free(dir);
    np_config_free(config);
    if (code == 0)
        err->code = 0; /* the probe ended the run */
    return code;
}

/* --- parts, each in a child process -------------------------------------------------------- */

#define MAX_WORDS (2 * NP_MAX_OVERRIDES + 16)

/* Runs `nnpipe WORDS...`; text: the last line that it prints. */
static int run_self(const char *const *words, char *text, size_t text_bytes, struct np_err *err)
{
    int pipe_fds[2], status = -1;
    size_t n = 0;

    if (pipe(pipe_fds) < 0)
        return np_err_set(err, -errno, "cannot create a pipe: %s", strerror(errno));
    pid_t child = fork();
    if (child == 0) {
        sigset_t none;

        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(pipe_fds[1], STDOUT_FILENO);
        if (!freopen("/dev/null", "w",
                stderr)) /* a part that cannot be measured is left out without a message */
            _exit(127);
        close(pipe_fds[0]);
        close(pipe_fds[1]);
        execv("/proc/self/exe", (char *const *)words);
        _exit(127);
    }
    close(pipe_fds[1]);
    for (ssize_t got; child > 0 && (got = read(pipe_fds[0], text + n, text_bytes - 1 - n)) != 0;) {
        if (got < 0 && errno != EINTR)
            break;
        n += got > 0 ? (size_t)got : 0;
    }
    text[n] = '\0';
    close(pipe_fds[0]);
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    if (child < 0 || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return np_err_set(err, -ECHILD, "nnpipe %s %s has failed", words[1], words[2]);
    return 0;
}

static int part_rate(const char *text, const char *field, double *ret_rate, struct np_err *err)
{
    const char *at = strstr(text, field);

    if (!at || sscanf(at + strlen(field), "\": %lf", ret_rate) != 1)
        return np_err_set(err, -EPROTO, "a benchmark did not report %s", field);
    return 0;
}

int np_trial_part(
    struct np_rig *rig, enum np_part part, double seconds, double *ret_rate, struct np_err *err)
{
    static const char *const names[] = {"io", "io", "io", "loader", "step"};
    const char *words[MAX_WORDS] = {
        "nnpipe", "bench", names[part], rig->config_path, "--json", "--seconds"};
    char number[32], depth[32], text[8192];
    int n = 6;

    snprintf(number, sizeof(number), "%g", seconds * rig->pace);
    words[n++] = number;
    if (part <= NP_PART_READ_DEEP)
        words[n++] = "--cold";
    if (part == NP_PART_STEP && rig->device) {
        words[n++] = "--device";
        words[n++] = rig->device;
    }
    for (int i = 0; i < rig->overrides.nr_texts; i++) {
        words[n++] = "-o";
        words[n++] = rig->overrides.texts[i];
    }
    if (part == NP_PART_READ_DEEP) {
        const int deeper = NP_DEEPER * rig->knobs.depth;

        snprintf(
            depth, sizeof(depth), "loader.depth=%d", deeper < NP_MAX_DEPTH ? deeper : NP_MAX_DEPTH);
        words[n++] = "-o";
        words[n++] = depth;
    }
    int code = run_self(words, text, sizeof(text), err);
    return code < 0 ? code
                    : part_rate(text,
                          part <= NP_PART_READ_WARM ? "reads_per_second" : "images_per_second",
                          ret_rate, err);
}
