/* service.yaml is read by option tables; devices.c resolves `auto`. */
#include "daemon/service/service_options.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "daemon/ui/reference.h"
#include "loader/base/io.h"
#include "loader/base/mem.h"
#include "loader/base/option.h"
#include "loader/base/yaml.h"

#define MAX_FILE (256u << 10)

struct file {
    const struct np_node *devices, *retry, *keep, *limits;
    int64_t runs_per_device;
    struct np_service_options options; /* until all is read, hang_s: minutes, keep_s: days */
};

#define FIELD(member) offsetof(struct file, member)
static const struct np_option table[] = {
    {"devices", NP_OPT_NODE, FIELD(devices), NULL, 0, 0, NULL,
        "devices for runs: `auto`, or a list as [cuda:0, cuda:1, cpu]"},
    {"runs_per_device", NP_OPT_INT, FIELD(runs_per_device), "1", 1, 64, NULL,
        "slots of each device: runs at a time, or processes of runs that have several"},
    {"preempt", NP_OPT_BOOL, FIELD(options.preempt), "true", 0, 0, NULL,
        "a run of higher priority may make one of lower priority write its checkpoint and wait"},
    {"retry", NP_OPT_NODE, FIELD(retry), NULL, 0, 0, NULL,
        "{first: 10, cap: 3600}: seconds before a run whose process died is retried; doubled each "
        "time"},
    {"hang_minutes", NP_OPT_FLOAT, FIELD(options.hang_s), "20", 0.1, 10000, NULL,
        "a run without progress for so long is killed and retried"},
    {"stop_seconds", NP_OPT_FLOAT, FIELD(options.stop_s), "80", 1, 3600, NULL,
        "time for a run to write its checkpoint when it is stopped"},
    {"keep", NP_OPT_NODE, FIELD(keep), NULL, 0, 0, NULL,
        "retention of finished runs, {runs: 1000, days: 90, bytes: 0}; runs: of each user; days: "
        "not within an hour after the clock was set; bytes: of their checkpoints, 0: no limit"},
    {"limits", NP_OPT_NODE, FIELD(limits), NULL, 0, 0, NULL,
        "limits for each member of a box; in a user's own service only `config_bytes`, `checks`, "
        "`memory_per_run` and `cpus_per_run` apply"},
    {"spare_bytes", NP_OPT_BYTES, FIELD(options.spare_bytes), "1G", 0, 1e15, NULL,
        "free space that a run's disk must have before the run starts, or continues after the disk "
        "was full"},
    {"on_end", NP_OPT_STRING, FIELD(options.on_end), "", 0, 0, NULL,
        "a command that sh runs as the service's user when a run has finished, at least once per "
        "run, "
        "with the run as JSON on standard input"},
    {"webhook", NP_OPT_STRING, FIELD(options.webhook), "", 0, 0, NULL,
        "an http or https address that gets the same JSON by POST"},
    {"listen", NP_OPT_STRING, FIELD(options.listen), "", 0, 0, NULL,
        "loopback TCP address for the page and Prometheus, as 127.0.0.1:7411; empty: none"},
    NP_OPTIONS_END,
};

#define OPTION(member) offsetof(struct np_service_options, member)
static const struct np_option retry_table[] = {
    {"first", NP_OPT_FLOAT, OPTION(retry_first_s), "10", 0.01, 86400, NULL, NULL},
    {"cap", NP_OPT_FLOAT, OPTION(retry_cap_s), "3600", 0.01, 864000, NULL, NULL},
    NP_OPTIONS_END,
};
static const struct np_option keep_table[] = {
    {"runs", NP_OPT_INT, OPTION(keep_runs), "1000", 0, 1000000, NULL, NULL},
    {"days", NP_OPT_FLOAT, OPTION(keep_s), "90", 0, 36500, NULL, NULL},
    {"bytes", NP_OPT_BYTES, OPTION(keep_bytes), "0", 0, 1e18, NULL, NULL},
    NP_OPTIONS_END,
};

static const struct np_option limits_table[] = {
    {"queued_per_user", NP_OPT_INT, OPTION(limits.queued_per_user), "200", 1, 1000000, NULL,
        "unfinished runs of one user; more are refused (429)"},
    {"running_per_user", NP_OPT_INT, OPTION(limits.running_per_user), "0", 0, 1000000, NULL,
        "running runs of one user, while the others wait in the queue; each process of a run "
        "counts; 0: no limit"},
    {"config_bytes", NP_OPT_BYTES, OPTION(limits.config_bytes), "256K", 1024, 1 << 20, NULL,
        "size of a config, both as submitted and resolved"},
    {"checks", NP_OPT_INT, OPTION(limits.checks), "8", 2, 64, NULL,
        "checks of submissions at a time; one user gets half"},
    {"priority_max", NP_OPT_INT, OPTION(limits.priority_max), "0", -100, 100, NULL,
        "highest priority that members may give their runs; root may give any"},
    {"memory_per_run", NP_OPT_BYTES, OPTION(limits.memory_per_run), "0", 0, 1e18, NULL,
        "memory of a run that is submitted without --memory, for each of its processes, if the "
        "service can limit it; 0: no limit"},
    {"cpus_per_run", NP_OPT_FLOAT, OPTION(limits.cpus_per_run), "0", 0, 10000, NULL,
        "CPUs of a run that is submitted without --cpus, for each of its processes, if the service "
        "can limit them; 0: no limit"},
    NP_OPTIONS_END,
};

static bool is_device(const char *name)
{
    return strcmp(name, "cpu") == 0 || strcmp(name, "sim") == 0 ||
           (strncmp(name, "cuda:", 5) == 0 && name[5] &&
               strspn(name + 5, "0123456789") == strlen(name + 5) &&
               strlen(name) < sizeof(((struct np_slotted *)NULL)->name));
}

static void take_devices(const struct np_node *node, int nr_slots,
    struct np_service_options *options, struct np_report *report)
{
    if (!node || np_node_is(node, "auto")) {
        options->auto_slots = nr_slots;
        return;
    }
    if (node->kind != NP_NODE_LIST || node->nr_items == 0)
        np_report_add(
            report, node->line, node->column, "devices: expected auto, or a list as [cuda:0, cpu]");
    for (int i = 0; i < node->nr_items; i++) {
        const struct np_node *item = node->items[i];

        if (item->kind != NP_NODE_SCALAR || !is_device(item->text) ||
            options->nr_devices == NP_MAX_DEVICES) {
            np_report_add(report, item->line, item->column,
                "devices: expected cuda:N, cpu or sim, at most %d of them", NP_MAX_DEVICES);
            continue;
        }
        options->devices[options->nr_devices] = (struct np_slotted){.nr_slots = nr_slots};
        strcpy(options->devices[options->nr_devices++].name, item->text);
    }
}

static int take_all(
    const struct np_node *root, struct np_service_options *options, struct np_report *report)
{
    struct file file = {.options = *options};
    int code = np_options_parse(table, root, "service", NULL, &file, report);

    *options = file.options;
    code |= np_options_parse(retry_table, file.retry, "retry", NULL, options, report);
    code |= np_options_parse(keep_table, file.keep, "keep", NULL, options, report);
    code |= np_options_parse(limits_table, file.limits, "limits", NULL, options, report);
    if (code == 0)
        take_devices(file.devices, (int)file.runs_per_device, options, report);
    options->hang_s *= 60;
    options->keep_s *= 86400;
    char **texts[] = {&options->on_end, &options->webhook, &options->listen};
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
        if (*texts[i] && !**texts[i]) {
            np_free(*texts[i]);
            *texts[i] = NULL;
        }
    return report->nr_errs > 0 ? -EINVAL : code;
}

static int parse_file(
    const char *path, struct np_node **ret_root, struct np_report *report, struct np_err *err)
{
    char *text = NULL;
    uint64_t bytes;
    int code = np_read_file(path, MAX_FILE, &text, &bytes, err);

    if (code == 0)
        code = np_yaml_parse(text, bytes, ret_root, report);
    np_free(text);
    return code;
}

int np_service_options_read(
    const char *path, struct np_service_options *ret_options, struct np_err *err)
{
    struct np_service_options options = {
        .devices = np_alloc_array(NP_MAX_DEVICES, sizeof(*options.devices))};
    struct np_node *root = NULL;
    struct np_report report;
    int code = 0;

    np_report_init(&report, path ? path : "service.yaml");
    if (path && access(path, F_OK) == 0)
        code = parse_file(path, &root, &report, err);
    if (code == 0)
        code = take_all(root, &options, &report);
    if (code < 0 && report.nr_errs)
        np_err_set(err, -EINVAL, "%s:%d:%d: %s", path, report.errs[0].line, report.errs[0].column,
            report.errs[0].text);
    np_report_fini(&report);
    np_node_free(root);
    if (code < 0)
        np_service_options_fini(&options);
    else
        *ret_options = options;
    return code < 0 ? code : 0;
}

void np_service_options_fini(struct np_service_options *options)
{
    np_free(options->devices);
    np_free(options->on_end);
    np_free(options->webhook);
    np_free(options->listen);
    *options = (struct np_service_options){0};
}

void np_service_reference(FILE *out)
{
    fputs("# service.yaml\n\n"
          "Generated by `nnpipe help service-reference` from the tables that the service reads its "
          "settings with. The file is `~/.config/nnpipe/service.yaml` for one user, "
          "`/etc/nnpipe/service.yaml` for a box; without it the defaults below apply. SIGHUP "
          "(`systemctl reload`) reads it again; if anything in it is wrong, no setting changes. A "
          "change of `listen` needs a restart.\n",
        out);
    np_reference_table(out, table);
    fputs("\n`retry`:\n", out);
    np_reference_table(out, retry_table);
    fputs("\n`keep`:\n", out);
    np_reference_table(out, keep_table);
    fputs("\n`limits`:\n", out);
    np_reference_table(out, limits_table);
}
