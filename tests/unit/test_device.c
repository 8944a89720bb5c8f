/* The device table, its options, the plugin's loader, and the sim device's clock. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "build_id.h"
#include "loader/base/clock.h"
#include "tests/test.h"
#include "trainer/device.h"

static struct np_device *sim(double h2d_gbps, double step_ms)
{
    struct np_device_options options = {.h2d_gbps = h2d_gbps, .step_ms = step_ms};
    struct np_device *device = NULL;
    np_device_open("sim", &options, &device, NULL);
    return device;
}

Test(device, an_unknown_name_lists_the_known_ones)
{
    struct np_device *device = NULL;
    struct np_err err = {0};
    cr_assert_eq(np_device_open("tpu", NULL, &device, &err), -EINVAL);
    cr_assert_str_eq(err.text, "there is no device 'tpu': expected auto, cpu, gpu, cuda:N or sim");
    cr_assert_null(device);
}

Test(device, auto_is_the_cpu_if_no_gpu_is_usable)
{
    struct np_device *device = NULL;
    struct np_err err = {0};
    cr_assert_eq(np_device_open("auto", NULL, &device, &err), 0);
    cr_assert_str_eq(device->name, "cpu");
    cr_assert_null(device->ops->alloc);
    np_device_close(device);
    cr_assert_lt(np_device_open("cuda:3", NULL, &device, &err), 0);
    cr_assert_eq(strncmp(err.text, "cuda:3: ", 8), 0);
}

Test(device, a_missing_plugin_gives_advice)
{
    struct np_err err = {0};
    void *library;
    const struct np_plugin *plugin;
    cr_assert_eq(np_plugin_load("/nonexistent/x.so", &library, &plugin, &err), -ENOENT);
    err = (struct np_err){0};
    cr_assert_eq(np_plugin_load("libnnpipe-none.so", &library, &plugin, &err), -ENOENT);
}

/* Writes C as a shared object into a temporary folder; 0 when it compiled. */
static int build_plugin(const char *dir, const char *text)
{
    char path[256], command[900];
    snprintf(path, sizeof(path), "%s/p.c", dir);
    FILE *file = fopen(path, "w");
    if (file == NULL)
        return -1;
    fputs(text, file);
    fclose(file);
    snprintf(command, sizeof(command), "gcc -I. -fPIC -shared -o %s/p.so %s/p.c", dir, dir);
    return system(command);
}

/* The result of np_plugin_load() for a plugin with this text; the cause is in err. */
static int load_text(const char *text, struct np_err *err)
{
    char dir[] = "/tmp/nnpipe-plugin.XXXXXX", path[64], command[64];
    void *library;
    const struct np_plugin *plugin;
    int result = -EIO;

    if (mkdtemp(dir) == NULL)
        return -EIO;
    snprintf(path, sizeof(path), "%s/p.so", dir);
    if (build_plugin(dir, text) == 0)
        result = np_plugin_load(path, &library, &plugin, err);
    snprintf(command, sizeof(command), "rm -rf %s", dir);
    if (system(command) != 0)
        result = -EIO;
    return result;
}

#define PLUGIN(version, contract)                                                                  \
    "#include \"trainer/device.h\"\n"                                                              \
    "static const struct np_plugin plugin = {\n"                                                   \
    "    .version = " version ", .contract = \"" contract "\", .build = \"abc123\"};\n"            \
    "const struct np_plugin *np_plugin_cuda(void) { return &plugin; }\n"

Test(device, a_plugin_of_another_version_is_refused_by_name, .timeout = 120)
{
    struct np_err err = {0};
    cr_assert_eq(load_text(PLUGIN("NP_PLUGIN_VERSION", NP_CONTRACT), &err), 0);
    cr_assert_eq(load_text(PLUGIN("NP_PLUGIN_VERSION + 1", NP_CONTRACT), &err), -EPROTO);
    cr_assert_not_null(strstr(err.text, "p.so has plugin version 4, this nnpipe needs 3"));
}

Test(device, a_plugin_from_another_build_is_refused_with_both_commits, .timeout = 120)
{
    struct np_err err = {0};
    cr_assert_eq(load_text(PLUGIN("NP_PLUGIN_VERSION", "0123"), &err), -EPROTO);
    cr_assert_not_null(strstr(err.text, "another build (abc123; this nnpipe: " NP_COMMIT));
}

Test(device, a_library_that_is_not_a_plugin_is_refused, .timeout = 120)
{
    struct np_err err = {0};
    cr_assert_eq(load_text("int nothing;\n", &err), -ENOEXEC);
    cr_assert_not_null(strstr(err.text, "np_plugin_cuda"));
    err = (struct np_err){0};
    cr_assert_eq(load_text("int missing(void); void *x = missing;\n", &err), -ENOEXEC);
}

static void count_device(void *context, const struct np_device_info *info)
{
    int *counts = context;

    counts[0]++;
    counts[1] += strcmp(info->name, "sim") == 0 || strcmp(info->name, "cpu") == 0;
    counts[2] += strcmp(info->kind, "cuda") == 0 && (*info->reason || *info->gpu);
}

Test(device, a_list_has_cpu_and_sim_and_why_there_is_no_cuda)
{
    int counts[3] = {0};
    np_device_list(count_device, counts);
    cr_assert_eq(counts[1], 2);
    cr_assert_geq(counts[2], 1);
}

Test(device, a_description_names_libraries_and_why_a_gpu_is_unusable)
{
    struct np_device_info info;

    np_device_describe("cpu", &info);
    cr_assert_str_empty(info.reason);
    cr_assert_eq(info.nr_libraries, 2);
    cr_assert_str_eq(info.libraries[0].name, "oneDNN");
    cr_assert_str_eq(info.libraries[1].name, "vectors");
    np_device_describe("cuda:999", &info);
    cr_assert_str_eq(info.name, "cuda:999");
    cr_assert_str_empty(info.gpu);
    cr_assert_eq(info.nr_libraries, 0);
}

Test(device, options_parse_and_print)
{
    struct np_report report;
    struct np_device_options options;
    char *name = NULL;
    np_report_init(&report, "x.yaml");
    struct np_node *map = np_node_new(NP_NODE_MAP, 1, 9), *args = np_node_new(NP_NODE_MAP, 1, 12);
    np_node_add(args, "step_ms", np_node_scalar("5", 1, 20));
    np_node_add(map, "sim", args);
    cr_assert_eq(np_device_parse(map, &name, &options, &report), 0);
    cr_assert_str_eq(name, "sim");
    cr_assert_float_eq(options.step_ms, 5, 1e-12);
    cr_assert_float_eq(options.h2d_gbps, 25, 1e-12);
    struct np_node *normal = np_device_node(name, &options);
    np_free(name);
    cr_assert_eq(np_device_parse(normal, &name, &options, &report), 0);
    cr_assert_float_eq(options.step_ms, 5, 1e-12);
    np_free(name);
    np_node_free(normal);
    np_node_free(map);
    cr_assert_eq(np_device_parse(NULL, &name, &options, &report), 0);
    cr_assert_str_eq(name, "auto");
    np_free(name);
    cr_assert_eq(report.nr_errs, 0);
    np_report_fini(&report);
}

Test(device, names_are_understood_as_users_write_them)
{
    static const char *const words[][2] = {{"cuda", "cuda"}, {"gpu", "cuda"}, {"GPU", "cuda"},
        {"CUDA", "cuda"}, {"nvidia", "cuda"}, {"cuda:1", "cuda:1"}, {"cuda1", "cuda:1"},
        {"gpu:0", "cuda:0"}, {"GPU0", "cuda:0"}, {"CPU", "cpu"}, {"Auto", "auto"}, {"SIM", "sim"}};
    static const char *const wrong[] = {"tpu", "mps", "rocm", "cuda:", "cuda:x", "cuda;0", "gpus",
        "cuda:-1", "cuda:1000", "cuda:0 ", ""};

    for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++) {
        struct np_node *node = np_node_scalar(words[i][0], 1, 1);
        struct np_device_options options;
        struct np_report report;
        char name[NP_DEVICE_NAME], *parsed = NULL;

        cr_assert(np_device_find(words[i][0], name), "%s", words[i][0]);
        cr_assert_str_eq(name, words[i][1]);
        np_report_init(&report, "x.yaml");
        cr_assert_eq(np_device_parse(node, &parsed, &options, &report), 0);
        np_report_fini(&report);
        cr_assert_str_eq(parsed, words[i][1]);
        np_free(parsed);
        np_node_free(node);
    }
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        char name[NP_DEVICE_NAME];

        cr_assert_not(np_device_find(wrong[i], name), "%s", wrong[i]);
    }
}

Test(device, wrong_options_are_reported)
{
    struct np_report report;
    struct np_device_options options;
    char *name = NULL;
    np_report_init(&report, "x.yaml");
    struct np_node *typo = np_node_scalar("cuda;0", 4, 9), *map = np_node_new(NP_NODE_MAP, 5, 9);
    np_node_add(map, "cpu", np_node_scalar("1", 5, 12));
    cr_assert_eq(np_device_parse(typo, &name, &options, &report), -EINVAL);
    cr_assert_eq(np_device_parse(map, &name, &options, &report), -EINVAL);
    cr_assert_eq(report.nr_errs, 2);
    cr_assert_eq(report.errs[0].line, 4);
    cr_assert_str_eq(report.errs[0].text,
        "device: expected auto, cpu, gpu, cuda:N or {sim: {...}}, not 'cuda;0'");
    np_node_free(typo);
    np_node_free(map);
    np_report_fini(&report);
}

Test(device, a_sim_copy_takes_its_time_and_its_bytes_arrive_then)
{
    struct np_device *device = sim(0.001, 0); /* 1 MB a second */
    char from[20000], *to = device->ops->alloc(device, sizeof(from));
    struct np_event event = {0};
    memset(from, 7, sizeof(from));
    uint64_t start = np_now_ns();
    device->ops->upload(device, to, from, sizeof(from));
    device->ops->record(device, NP_STREAM_COPY, &event);
    cr_assert_eq(device->ops->done(device, &event, false), 0);
    cr_assert_eq(to[0], 0);
    cr_assert_eq(device->ops->done(device, &event, true), 1);
    double took_ms = (double)(np_now_ns() - start) / 1e6;
    cr_assert(took_ms >= 20 && took_ms < 60000);
    cr_assert(event.passed_ns >= start + 20000000 && event.passed_ns <= np_now_ns());
    cr_assert_eq(memcmp(to, from, sizeof(from)), 0);
    device->ops->free(device, to);
    np_device_close(device);
}

Test(device, sim_copies_queue_behind_each_other_and_a_stream_follows_an_event)
{
    struct np_device *device = sim(0.001, 10);
    struct np_graph graph = {.batch = 2, .classes = 3, .nr_params = 4, .nr_buffers = 1};
    struct np_plan *plan = NULL;
    char from[10000] = {1}, *to = device->ops->alloc(device, sizeof(from));
    struct np_event copied = {0}, computed = {0};
    cr_assert_eq(device->plan_ops->prepare(device, &graph, &graph, NULL, &plan, NULL), 0);
    uint64_t start = np_now_ns();
    device->ops->upload(device, to, from, sizeof(from));
    device->ops->upload(device, to, from, sizeof(from));
    device->ops->record(device, NP_STREAM_COPY, &copied);
    device->ops->follow(device, NP_STREAM_COMPUTE, &copied);
    device->plan_ops->step(plan, to, NULL, 0, 1, false, NULL);
    device->ops->record(device, NP_STREAM_COMPUTE, &computed);
    cr_assert_eq(device->ops->done(device, &computed, true), 1);
    cr_assert_geq(computed.passed_ns - start, 30000000u); /* 10 + 10 + 10 ms */
    cr_assert_geq(computed.passed_ns - copied.passed_ns, 10000000u);
    device->plan_ops->free(plan);
    device->ops->free(device, to);
    np_device_close(device);
}

Test(device, sim_counts_busy_and_idle_time_of_its_steps)
{
    struct np_device *device = sim(25, 5);
    struct np_graph graph = {.batch = 2, .classes = 3};
    struct np_plan *plan = NULL;
    struct np_metrics metrics;
    struct np_sim_times times;
    cr_assert_eq(device->plan_ops->prepare(device, &graph, &graph, NULL, &plan, NULL), 0);
    for (int i = 0; i < 4; i++)
        device->plan_ops->step(plan, NULL, NULL, 0, 1, false, NULL);
    device->plan_ops->metrics(plan, false, &metrics, NULL);
    cr_assert_eq(metrics.rows, 8);
    np_sim_read(device, &times);
    cr_assert_eq(times.busy_ns, 20000000u);
    cr_assert_eq(times.idle_ns, 0);
    np_sleep_until_ns(np_now_ns() + 8000000);
    device->plan_ops->step(plan, NULL, NULL, 0, 1, false, NULL);
    np_sim_read(device, &times);
    cr_assert_eq(times.nr_steps, 5);
    cr_assert_geq(times.idle_ns, 8000000u);
    device->plan_ops->free(plan);
    np_device_close(device);
}

Test(device, sim_stores_written_bytes)
{
    struct np_device *device = sim(25, 0);
    struct np_graph graph = {.batch = 1, .classes = 2, .nr_params = 3, .nr_buffers = 1};
    struct np_plan *plan = NULL;
    float in[3] = {1, 2, 3}, out[3] = {0}, buffer = 9;
    cr_assert_eq(device->plan_ops->prepare(device, &graph, &graph, NULL, &plan, NULL), 0);
    device->plan_ops->write(plan, NP_ARRAY_PARAMS, in, NULL);
    device->plan_ops->write(plan, NP_ARRAY_BUFFERS, &buffer, NULL);
    device->plan_ops->read(plan, NP_ARRAY_PARAMS, out, NULL);
    cr_assert_arr_eq(in, out, sizeof(in));
    device->plan_ops->read(plan, NP_ARRAY_BUFFERS, out, NULL);
    cr_assert_eq(out[0], 9);
    device->plan_ops->free(plan);
    np_device_close(device);
}
