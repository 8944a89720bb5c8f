/* `nnpipe selftest`: compares a device with the reference and prints a table. Main thread. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "daemon/cmd.h"
#include "daemon/config/config.h"
#include "daemon/run/compute.h"
#include "loader/base/text.h"
#include "daemon/ui/progress.h"
#include "loader/base/clock.h"
#include "trainer/selftest/selftest.h"

struct selftest {
    const char *device_name, *precision_text, *seed_text, *only;
    bool json;
    uint64_t seed;
    struct np_ui ui;
    struct np_device *device, *cpu;
    int nr_done, nr_failed, nr_redrawn;
};

static const enum np_dtype precisions[] = {NP_F32, NP_BF16, NP_F16};

/* The CPU device has no f16. */
static bool has_precision(const struct selftest *test, enum np_dtype precision)
{
    if (test->precision_text && strcmp(test->precision_text, np_precision_names[precision]) != 0)
        return false;
    return precision != NP_F16 || test->device->ops != test->cpu->ops;
}

static void report_json(struct selftest *test, const char *what, const char *shape,
    const char *precision, const struct np_selftest_result *result, double seconds,
    const struct np_err *err)
{
    struct np_json *json = &test->ui.object;

    np_json_begin(json, "selftest");
    np_json_text(json, "what", what);
    np_json_text(json, "shape", shape);
    np_json_text(json, "precision", precision);
    np_json_bool(json, "ok", result->ok);
    if (err->code)
        np_json_text(json, "message", err->text);
    np_json_int(json, "draws", result->draws);
    np_json_real(json, "seconds", seconds);
    np_json_text(json, "worst", np_selftest_numbers[result->worst].name);
    np_json_text(json, "tensor", *result->tensor ? result->tensor : NULL);
    for (int k = 0; k < NP_SELF_NR && !err->code; k++)
        if (result->tolerance[k] >= 0) {
            char key[32];

            np_json_real(json, np_selftest_numbers[k].name, result->error[k]);
            snprintf(key, sizeof(key), "%s_tolerance", np_selftest_numbers[k].name);
            np_json_real(json, key, result->tolerance[k]);
        }
    np_ui_event(&test->ui, np_json_end(json));
}

/* ", off: gradients (of conv1.weight), sgd". */
static void list_off(const struct np_selftest_result *result, char *text, size_t text_bytes)
{
    size_t used = 0;

    *text = '\0';
    for (int k = 0; k < NP_SELF_NR && used < text_bytes; k++) {
        if (result->tolerance[k] < 0 || result->error[k] <= result->tolerance[k])
            continue;
        used += (size_t)snprintf(text + used, text_bytes - used, "%s%s",
            used ? ", " : ", off: ", np_selftest_numbers[k].name);
        if (k == NP_SELF_GRADS && used < text_bytes)
            used += (size_t)snprintf(text + used, text_bytes - used, " (of %s)", result->tensor);
    }
}

static void report(struct selftest *test, const struct np_selftest_case *row,
    enum np_dtype precision, const struct np_selftest_result *result, double seconds,
    const struct np_err *err)
{
    const char *name = np_precision_names[precision];
    char shape[48], redrawn[32] = "", off[256];

    snprintf(
        shape, sizeof(shape), "%dx%dx%dx%d", row->batch, row->height, row->width, row->channels);
    test->nr_done++;
    test->nr_failed += !result->ok;
    test->nr_redrawn += result->draws > 1;
    report_json(test, row->what, shape, name, result, seconds, err);
    if (test->json)
        return;
    if (err->code) {
        np_ui_say(&test->ui, "%-33s %-13s %-4s FAILED: %s", row->what, shape, name, err->text);
        return;
    }
    if (result->draws > 1)
        snprintf(redrawn, sizeof(redrawn), ", draw %d", result->draws);
    list_off(result, off, sizeof(off));
    np_ui_say(&test->ui, "%-33s %-13s %-4s %-11s %8.1e %8.1e  %s%s%s", row->what, shape, name,
        np_selftest_numbers[result->worst].name, result->error[result->worst],
        result->tolerance[result->worst], result->ok ? "ok" : "FAILED", redrawn, off);
}

static void run_case(
    struct selftest *test, const struct np_selftest_case *the_case, enum np_dtype precision)
{
    const uint64_t start = np_now_ns();
    struct np_selftest_result result = {0};
    struct np_err err = {0};

    if (np_selftest_run(test->device, test->cpu, the_case, precision, test->seed, &result, &err) <
        0)
        result.ok = false;
    report(test, the_case, precision, &result, (double)(np_now_ns() - start) * 1e-9, &err);
}

static void run_cases(struct selftest *test)
{
    for (const struct np_selftest_case *the_case = np_selftest_cases; the_case->what; the_case++) {
        if ((test->only && !strstr(the_case->what, test->only)) ||
            (the_case->big && test->device->ops == test->cpu->ops))
            continue;
        for (size_t p = 0; p < sizeof(precisions) / sizeof(*precisions); p++)
            if (has_precision(test, precisions[p]) &&
                (precisions[p] == NP_F32 || the_case->loose_f32 == 0))
                run_case(test, the_case, precisions[p]);
    }
}

static void report_done(struct selftest *test, double seconds)
{
    struct np_json *json = &test->ui.object;

    np_json_begin(json, "done");
    np_json_text(json, "device", test->device->name);
    np_json_int(json, "seed", (int64_t)test->seed);
    np_json_int(json, "tests", test->nr_done);
    np_json_int(json, "failed", test->nr_failed);
    np_json_int(json, "redrawn", test->nr_redrawn);
    np_json_real(json, "seconds", seconds);
    np_ui_event(&test->ui, np_json_end(json));
    np_ui_say(&test->ui, "%s: %d of %d ok in %.1f s, seed %llu", test->device->name,
        test->nr_done - test->nr_failed, test->nr_done, seconds, (unsigned long long)test->seed);
}

static int open_devices(struct selftest *test, struct np_err *err)
{
    int code = np_device_open("cpu", NULL, &test->cpu, err);

    if (code == 0)
        code = np_device_open(
            test->device_name ? test->device_name : "auto", NULL, &test->device, err);
    if (code == 0 && *test->device->passed_over)
        np_ui_warn(&test->ui, test->device->passed_over);
    if (code == 0 && strcmp(test->device->ops->name, "sim") == 0)
        code = np_err_set(err, -EINVAL, "sim computes no values, so there is nothing to test");
    return code;
}

static int parse_seed(struct selftest *test)
{
    int64_t seed;

    if (!test->seed_text) {
        uint32_t word = 0;

        if (getrandom(&word, sizeof(word), 0) != sizeof(word))
            word = (uint32_t)np_now_ns();
        test->seed = word;
        return 0;
    }
    if (!np_text_int(test->seed_text, 0, INT64_MAX, &seed))
        return np_usage("selftest", "--seed takes a whole number, not '%s'", test->seed_text);
    test->seed = (uint64_t)seed;
    return 0;
}

static int parse(int argc, char **argv, struct selftest *test)
{
    const struct np_flag flags[] = {
        {"--device", &test->device_name, NULL, NULL},
        {"--precision", &test->precision_text, NULL, NULL},
        {"--seed", &test->seed_text, NULL, NULL},
        {"--only", &test->only, NULL, NULL},
        {"--json", NULL, &test->json, NULL},
        {NULL, NULL, NULL, NULL},
    };
    int nr, code = np_flags_parse(argc, argv, flags, NULL, &nr);
    enum np_dtype precision;
    char name[NP_DEVICE_NAME];

    if (code)
        return code;
    if (nr != 0)
        return np_usage("selftest", "takes no operands");
    if (test->precision_text && !np_precision_find(test->precision_text, &precision))
        return np_usage(
            "selftest", "--precision takes f32, bf16 or f16, not '%s'", test->precision_text);
    if (test->device_name && !np_device_find(test->device_name, name))
        return np_usage(
            "selftest", "--device: expected " NP_DEVICE_NAMES ", not '%s'", test->device_name);
    return parse_seed(test);
}

int np_cmd_selftest(int argc, char **argv)
{
    struct selftest test = {0};
    struct np_err err = {0};
    uint64_t start = np_now_ns();
    int code = parse(argc, argv, &test);

    if (code)
        return code;
    np_ui_init(&test.ui, test.json);
    if (open_devices(&test, &err) < 0) {
        np_ui_error(&test.ui, &err);
        code = NP_EXIT_FAILED;
        goto out;
    }
    if (!test.json)
        np_ui_say(&test.ui, "%-33s %-13s %-4s %-11s %8s %9s", "network", "batch", "", "worst",
            "error", "tolerance");
    run_cases(&test);
    report_done(&test, (double)(np_now_ns() - start) * 1e-9);
    if (test.nr_done == 0)
        np_ui_warn(&test.ui, "nothing was tested: no network or precision of this name");
    code = test.nr_failed || test.nr_done == 0 ? NP_EXIT_FAILED : NP_EXIT_DONE;
out:
    np_device_close(test.device);
    np_device_close(test.cpu);
    np_ui_fini(&test.ui);
    return code;
}
