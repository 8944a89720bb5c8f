/* See sim_plant.h. */
#include "tests/sim/sim_plant.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "loader/base/io.h"
#include "loader/base/mem.h"
#include "trainer/device.h"

#define MAX_BYTES 4096

#define AT(name) offsetof(struct np_sim_plant, name)

static const struct np_option table[] = {
    {"disk_mbps", NP_OPT_FLOAT, AT(disk_mbps), "0", 0, 1e9, NULL, NULL},
    {"disk_latency_us", NP_OPT_INT, AT(disk_latency_us), "0", 0, 1e9, NULL, NULL},
    {"h2d_gbps", NP_OPT_FLOAT, AT(h2d_gbps), "0", 0, 1e6, NULL, NULL},
    {"step_ms", NP_OPT_FLOAT, AT(step_ms), "0", 0, 1e6, NULL, NULL},
    NP_OPTIONS_END,
};

struct np_node *np_sim_pairs(const char *text)
{
    struct np_node *map = np_node_new(NP_NODE_MAP, 1, 1);
    char *copy = np_try_strdup(text, NULL), *rest = copy, *pair;

    while ((pair = strsep(&rest, ",\n"))) {
        char *key = strsep(&pair, "=");

        if (*key)
            np_node_add(map, key, np_node_scalar(pair ? pair : "", 1, 1));
    }
    np_free(copy);
    return map;
}

int np_sim_options(const char *text, const struct np_option *options, const char *what,
    void *object, struct np_err *err)
{
    struct np_node *map = np_sim_pairs(text);
    struct np_report report;
    int status;

    np_report_init(&report, NULL);
    status = np_options_parse(options, map, what, NULL, object, &report);
    if (status)
        np_err_set(err, status, "%s: %s", what, report.errs[0].text);
    np_report_fini(&report);
    np_node_free(map);
    return status;
}

int np_sim_plant_read(struct np_sim_plant *ret_plant, struct np_err *err)
{
    const char *path = getenv("NNPIPE_SIM_PLANT");
    struct np_sim_plant plant = {0};
    char *text = NULL;
    uint64_t bytes;
    int status = 0;

    if (path && *path)
        status = np_read_file(path, MAX_BYTES, &text, &bytes, err);
    if (status == 0 && text)
        status = np_sim_options(text, table, path, &plant, err);
    np_free(text);
    if (status == 0)
        *ret_plant = plant;
    return status;
}

/* In np_device_open()'s place, by the linker. */
int __real_np_device_open(const char *name, const struct np_device_options *options,
    struct np_device **ret_device, struct np_err *err);
int __wrap_np_device_open(const char *name, const struct np_device_options *options,
    struct np_device **ret_device, struct np_err *err);

int __wrap_np_device_open(const char *name, const struct np_device_options *options,
    struct np_device **ret_device, struct np_err *err)
{
    struct np_device_options planted = {0};
    struct np_sim_plant plant;
    int status;

    if (strcmp(name, "sim") != 0)
        return __real_np_device_open(name, options, ret_device, err);
    status = np_sim_plant_read(&plant, err);
    if (status)
        return status;
    if (options)
        planted = *options;
    if (plant.h2d_gbps > 0)
        planted.h2d_gbps = plant.h2d_gbps;
    if (plant.step_ms > 0)
        planted.step_ms = plant.step_ms;
    return __real_np_device_open(name, &planted, ret_device, err);
}
