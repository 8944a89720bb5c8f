/* `nnpipe check CONFIG...`: reports every mistake in configs and their data. Main thread. */
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "daemon/cmd.h"
#include "daemon/config/check_data.h"
#include "daemon/config/config.h"
#include "daemon/config/config_lanes.h"
#include "daemon/config/config_override.h"
#include "daemon/config/setup.h"
#include "daemon/service/checker.h"
#include "loader/base/clock.h"
#include "loader/base/io.h"
#include "loader/base/mem.h"
#include "loader/base/text.h"
#include "loader/base/yaml.h"

/* Defaults of --seconds. */
#define SECONDS       20
#define WHOLE_SECONDS 10 /* `nnpipe submit` waits for it */
#define MAX_SECONDS   86400

#define MAX_TEXT       (1u << 20)
#define FOLDER_SECONDS 3 /* for the runs folder, added to what the data check left of its time */

struct check {
    const struct np_overrides *overrides;
    bool no_data;
    double seconds;
    int64_t processes; /* of a submission; else 0 */
};

/* Checks the model with the data's sizes; guess: the assumptions where they are unknown, or "". */
static void check_model(const struct np_config *config, const struct np_data_check *data,
    char guess[NP_GUESS_TEXT], struct np_report *report)
{
    struct np_row_sizes size = data->size;
    int classes = data->nr_classes;

    if (size.width == 0)
        np_loader_row_sizes(&config->loader, &size);
    np_network_guess(&config->network, &size, &classes, guess);
    np_network_check(&config->network, &size, data->nr_classes, report);
}

static int check_one(const struct check *check, const char *path)
{
    struct np_data_check data = {0};
    struct np_config *config = NULL;
    struct np_report report;
    char guess[NP_GUESS_TEXT] = "";

    np_report_init(&report, path);
    if (np_config_load(
            path, check->overrides->texts, check->overrides->nr_texts, &config, &report) == 0) {
        if (!check->no_data)
            np_check_data(config, check->seconds, np_note, &data, &report);
        check_model(config, &data, guess, &report);
    }
    np_complain_report(&report, check->overrides);
    if (*guess)
        fprintf(stderr, "for the model's shapes %s\n", guess);
    if (report.nr_errs == 0 && *data.note)
        fprintf(stderr, "%s: %s\n", path, data.note);
    const int code = report.nr_errs ? NP_EXIT_USAGE : NP_EXIT_DONE;
    np_report_fini(&report);
    np_config_free(config);
    return code;
}

static int check_all(const struct check *check, int nr, char **paths)
{
    int code = NP_EXIT_DONE;

    for (int i = 0; i < nr; i++)
        if (check_one(check, paths[i]) != NP_EXIT_DONE)
            code = NP_EXIT_USAGE;
        else
            printf("%s%sok\n", nr > 1 ? paths[i] : "", nr > 1 ? ": " : "");
    return code;
}

/* --- check --whole ------------------------------------------------------------------------- */

/* Bytes of f32 weights and optimizer state, and of the manifest. */
static double checkpoint_bytes(const struct np_config *config, const struct np_graph *graph)
{
    const double averages = config->run.ema_node != NULL;
    const double states = np_optim_states(&config->optim) + averages;

    return 4 * ((double)graph->nr_params * (1 + states) +
                   (double)graph->nr_buffers * (1 + averages)) +
           65536;
}

/* The runs folder, as the child process reports it. */
struct folder {
    int code; /* 0, or -errno: not writable */
    bool has_size, is_full;
    double bytes_free;
    char path[PATH_MAX]; /* absolute; "": unknown */
};

static int inspect_folder(const void *context, int out_fd)
{
    const struct np_config *config = context;
    struct folder folder = {0};
    struct np_err err = {0};
    struct statvfs fs;

    if (np_make_dirs(config->runs, &err) < 0)
        folder.code = err.code ? err.code : -errno;
    else if (access(config->runs, W_OK | X_OK) < 0)
        folder.code = -errno;
    else if (statvfs(config->runs, &fs) == 0) {
        folder.has_size = true;
        folder.is_full = fs.f_files > 0 && fs.f_favail == 0;
        folder.bytes_free = (double)fs.f_bavail * (double)fs.f_frsize;
    }
    if (!realpath(config->runs, folder.path))
        *folder.path = '\0';
    return np_child_write(out_fd, &folder, sizeof(folder)) < 0;
}

/* Makes the runs folder if it is missing, in a child, since a call on hung storage never returns.
 * -ETIMEDOUT: the child did not answer. */
static int check_folder(const struct np_config *config, double seconds, struct folder *ret_folder)
{
    const struct np_child_start start = {.uid = geteuid(),
        .gid = getegid(),
        .work = inspect_folder,
        .context = config,
        .epoll_fd = -1,
        .max_s = seconds,
        .max_bytes = sizeof(*ret_folder)};
    struct np_child child = NP_NO_CHILD;
    struct np_err err = {0};
    int code = np_child_start(&start, &child, &err);

    if (code < 0)
        return code;
    while ((code = np_child_turn(&child)) == 0) {
        struct pollfd poll_fd = {child.fd, POLLIN, 0};

        poll(&poll_fd, 1, 100);
    }
    if (code == 1 && child.used == sizeof(*ret_folder))
        memcpy(ret_folder, child.text, sizeof(*ret_folder));
    else if (code == 1)
        code = -EIO;
    np_child_stop(&child);
    return code < 0 ? code : ret_folder->code;
}

/* Space for one checkpoint more than are kept: the new one is written before the oldest is
 * removed. */
static void check_space(const struct np_config *config, double each, double seconds,
    struct folder *ret_folder, struct np_report *report)
{
    const struct np_node *node = np_node_get(config->root, "runs");
    const int line = node ? node->key_line : 0, column = node ? node->key_column : 0;
    const double needed = each * (double)(config->checkpoint.keep + 1);
    const int code = check_folder(config, seconds, ret_folder);

    if (code == -ETIMEDOUT)
        np_report_add(report, line, column, "runs: %s: its storage does not answer", config->runs);
    else if (code < 0)
        np_report_add(
            report, line, column, "runs: %s: cannot be written: %s", config->runs, strerror(-code));
    else if (ret_folder->is_full)
        np_report_add(
            report, line, column, "runs: the disk of %s has no space for more files", config->runs);
    else if (ret_folder->has_size && ret_folder->bytes_free < needed)
        np_report_add(report, line, column,
            "runs: %s has %.1f MB free, and %d checkpoints of %.1f MB take %.1f", config->runs,
            ret_folder->bytes_free * 1e-6, (int)config->checkpoint.keep + 1, each * 1e-6,
            needed * 1e-6);
}

/* Returns the bytes of a checkpoint; 0: unknown. */
static double check_parts(const struct np_config *config, double seconds,
    struct np_data_check *data, struct folder *ret_folder, struct np_report *report)
{
    struct np_setup setup = {0};
    const uint64_t began_ns = np_now_ns();
    double bytes = 0;

    np_check_data(config, seconds, NULL, data, report);
    const double left_s = seconds + FOLDER_SECONDS - (double)(np_now_ns() - began_ns) * 1e-9;
    if (report->nr_errs == 0 && data->nr_classes == 0) {
        np_network_check(&config->network, &setup.sets.size, 0, report);
        check_space(config, 0, left_s, ret_folder, report);
    } else if (report->nr_errs == 0) {
        setup.sets.size = data->size;
        setup.sets.classes = np_node_new(NP_NODE_LIST, 0, 0);
        for (int i = 0; i < data->nr_classes; i++)
            np_node_add(setup.sets.classes, NULL, np_node_scalar("class", 0, 0));
        if (np_setup_graph(config, NP_F32, &setup, report) == 0) {
            bytes = checkpoint_bytes(config, setup.graph);
            check_space(config, bytes, left_s, ret_folder, report);
        }
    }
    np_setup_fini(&setup);
    return bytes;
}

/* --- printing ------------------------------------------------------------------------------ */

static void print_problems(struct np_report *report, const struct np_overrides *overrides)
{
    struct np_json json = {0};

    np_report_sort(report);
    np_json_begin(&json, NULL);
    np_json_bool(&json, "ok", false);
    np_json_open(&json, "problems", '[');
    for (int i = 0; i < report->nr_errs; i++) {
        const struct np_err *err = &report->errs[i];
        char place[PATH_MAX + 64];

        np_config_place(err, overrides->texts, overrides->nr_texts, place, sizeof(place));
        np_problem_write(&json, report->file, err->line > 0 ? err->line : 0,
            err->line > 0 ? err->column : 0, place, err->text);
    }
    np_json_close(&json, ']');
    np_json_print(&json, stdout);
    np_json_fini(&json);
}

/* runs: the absolute folder, or "". */
static void print_config(const struct np_config *config, const char *runs,
    const struct np_data_check *data, double bytes)
{
    struct np_node *node = np_config_node(config);
    char *text = np_node_yaml(node, NULL);
    struct np_json json = {0};

    np_json_begin(&json, NULL);
    np_json_bool(&json, "ok", true);
    np_json_text(&json, "name", config->name);
    np_json_text(&json, "runs", *runs ? runs : config->runs);
    np_json_text(&json, "device", config->device);
    np_json_text(&json, "config", text);
    np_json_real(&json, "checkpoint_bytes", bytes);
    np_json_text(&json, "note", data->complete ? "" : data->note);
    np_json_print(&json, stdout);
    np_json_fini(&json);
    np_node_free(node);
    np_free(text);
}

static void check_processes(
    const struct np_config *config, int64_t processes, struct np_report *report)
{
    struct np_err err = {0};

    if (processes > 1 && np_config_check_processes(config, processes, &err) < 0)
        np_report_add(report, 0, 0, "%s", err.text);
}

/* `nnpipe check --whole`: the service's check of a submission, before it is queued. Checks a config
 * from standard input (called `as` in messages), its data (for at most `seconds`) and the free disk
 * space for checkpoints; 3 s more for the runs folder. Prints one line of JSON: {"ok": true,
 * "name", "runs" (absolute), "device", "config" (resolved), "checkpoint_bytes" (0: unknown), "note"
 * (why the data were not checked, or "")}, or {"ok": false, "problems": [{"file", "line", "column",
 * "place", "text"}]}. Returns the exit code. */
static int check_whole(const struct check *check, const char *as, const char *device)
{
    const struct np_overrides *overrides = check->overrides;
    struct np_config *config = NULL;
    struct np_data_check data = {0};
    struct folder folder = {0};
    struct np_report report;
    uint64_t bytes;
    double each = 0;
    char *text = NULL;

    np_report_init(&report, as);
    if (np_read_file("/dev/stdin", MAX_TEXT, &text, &bytes, NULL) < 0)
        np_report_add(&report, 0, 0, "a config has at most %u KiB", MAX_TEXT >> 10);
    else if (np_config_load_text(
                 text, bytes, as, overrides->texts, overrides->nr_texts, &config, &report) == 0 &&
             (!device || np_config_set_device(config, device, &report) == 0)) {
        each = check_parts(config, check->seconds, &data, &folder, &report);
        check_processes(config, check->processes, &report);
    }
    const bool good = report.nr_errs == 0;
    if (good)
        print_config(config, folder.path, &data, each);
    else
        print_problems(&report, overrides);
    np_report_fini(&report);
    np_config_free(config);
    np_free(text);
    return good ? NP_EXIT_DONE : NP_EXIT_USAGE;
}

/* --- the command --------------------------------------------------------------------------- */

static bool parse_seconds(const char *text, double *ret_seconds)
{
    double seconds;

    if (!np_text_real(text, 0, MAX_SECONDS, &seconds) || seconds <= 0) {
        fprintf(stderr, "nnpipe check: --seconds: expected a number up to %d, not '%s'\n",
            MAX_SECONDS, text);
        return false;
    }
    *ret_seconds = seconds;
    return true;
}

int np_cmd_check(int argc, char **argv)
{
    const char *as = NULL, *device = NULL, *seconds = NULL, *processes = NULL;
    bool whole = false, json = false;
    struct np_overrides overrides = {0};
    struct check check = {.overrides = &overrides};
    const struct np_flag flags[] = {
        {"--no-data", NULL, &check.no_data, NULL},
        {"--seconds", &seconds, NULL, NULL},
        {"--whole", NULL, &whole, NULL},
        {"--json", NULL, &json, NULL},
        {"--as", &as, NULL, NULL},
        {"--device", &device, NULL, NULL},
        {"--processes", &processes, NULL, NULL},
        {NULL, NULL, NULL, NULL},
    };
    int nr, code = np_flags_parse(argc, argv, flags, &overrides, &nr);

    if (code == 0 && (nr < 1 || (whole && nr != 1))) {
        fprintf(stderr, "nnpipe check: expected one CONFIG or more, not %d\n", nr);
        code = NP_EXIT_USAGE;
    }
    const bool for_whole = device || processes;
    if (code == 0 && (whole != json || whole != (as != NULL) || (for_whole && !whole))) {
        fprintf(stderr, "nnpipe check: --whole, --json and --as PATH go together\n");
        code = NP_EXIT_USAGE;
    }
    if (code == 0 && processes && !np_text_int(processes, 1, 1024, &check.processes))
        code = np_usage("check", "--processes: expected a whole number, not '%s'", processes);
    if (code == 0 && seconds && !parse_seconds(seconds, &check.seconds))
        code = NP_EXIT_USAGE;
    if (code)
        return code;
    if (!seconds)
        check.seconds = whole ? WHOLE_SECONDS : SECONDS;
    return whole ? check_whole(&check, as, device) : check_all(&check, nr, argv + 1);
}
