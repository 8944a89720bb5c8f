#include "daemon/run/compute.h"

#include <errno.h>
#include <string.h>

#include "loader/base/box.h"
#include "loader/base/mem.h"
#include "trainer/plan.h"

const char *const np_precision_names[] = {"f32", "bf16", "f16", NULL};
const char *const np_state_keys[NP_NR_STATE_KINDS] = {
    [NP_STATE_GPU] = "device_state", [NP_STATE_CPU] = "cpu_state"};

int np_compute_threads(const struct np_config *config)
{
    struct np_box box;

    np_box_read(&box);
    return config->run.threads > 0 ? (int)config->run.threads : box.nr_cpus;
}

enum np_dtype np_compute_precision(const struct np_config *config, const struct np_device *device)
{
    return config->precision < 0 ? device->auto_precision : (enum np_dtype)config->precision;
}

bool np_precision_find(const char *name, enum np_dtype *ret_precision)
{
    for (int i = 0; np_precision_names[i]; i++)
        if (strcmp(np_precision_names[i], name) == 0) {
            *ret_precision = (enum np_dtype)i;
            return true;
        }
    return false;
}

int np_compute_graph(const struct np_config *config, enum np_dtype precision,
    const struct np_overrides *overrides, struct np_setup *setup, struct np_err *err)
{
    struct np_report report;
    int code;

    np_config_report(config, &report);
    code = np_setup_graph(config, precision, setup, &report);
    if (code < 0 && report.no_memory) {
        code = np_err_set(err, -ENOMEM, "the model: out of memory");
    } else if (code < 0) {
        np_complain_report(&report, overrides);
        code = np_err_set(err, -ENOEXEC, "the model cannot be built");
    }
    np_report_fini(&report);
    return code;
}

int np_compute_copy(
    struct np_device *device, void *host, size_t bytes, void **memory, struct np_err *err)
{
    struct np_event copied = {0};
    int code;

    if (!*memory)
        *memory = device->ops->alloc ? device->ops->alloc(device, bytes) : host;
    if (!*memory)
        return np_err_set(err, -ENOMEM, "%s: out of memory for a batch", device->name);
    if (*memory == host)
        return 0;
    code = device->ops->upload(device, *memory, host, bytes);
    if (code >= 0) {
        device->ops->record(device, NP_STREAM_COPY, &copied);
        code = device->ops->done(device, &copied, true);
    }
    if (code >= 0)
        return 0;
    np_err_set(err, code, "%s: a copy to the device failed", device->name);
    return np_device_blame(device, err);
}

void np_compute_free(struct np_device *device, void *host, void *memory)
{
    if (memory && memory != host)
        device->ops->free(device, memory);
    np_free(host);
}

enum np_state_kind np_state_kind(const struct np_device *device)
{
    return device->plan_ops == &np_plan_cpu ? NP_STATE_CPU : NP_STATE_GPU;
}
