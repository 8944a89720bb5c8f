/* `nnpipe doctor`: is this machine set up well? A line a finding: what was seen, and for what is
 * not as it could be, what to do. What was not looked at is said, too. */
#include <stdio.h>
#include <string.h>

#include "daemon/cmd.h"
#include "daemon/bench/doctor_box.h"
#include "loader/base/json.h"

struct doctor {
    bool json;
    struct np_json line;
    int counts[3]; /* by verdict */
};

static const char *const verdicts[] = {"ok", "warn", "not checked"};

static void found(void *context, const struct np_finding *finding)
{
    struct doctor *doctor = context;

    doctor->counts[finding->verdict]++;
    if (!doctor->json) {
        printf("%-12s %-18s %s\n", verdicts[finding->verdict], finding->what, finding->text);
        if (finding->advice)
            printf("%-12s %-18s -> %s\n", "", "", finding->advice);
        fflush(stdout); /* measuring takes seconds */
        return;
    }
    np_json_begin(&doctor->line, "finding");
    np_json_text(&doctor->line, "what", finding->what);
    np_json_text(&doctor->line, "verdict", verdicts[finding->verdict]);
    np_json_text(&doctor->line, "text", finding->text);
    np_json_text(&doctor->line, "advice", finding->advice);
    const char *text = np_json_end(&doctor->line);
    fputs(text ? text : "", stdout);
}

/* Without a GPU: nothing to look at, unless one was asked for. */
static void look_at_device(struct doctor *doctor, const char *name)
{
    struct np_err err = {0};
    bool asked = strcmp(name, "auto") != 0;

    if (strcmp(name, "cpu") == 0 || strcmp(name, "sim") == 0)
        return;
    if (np_device_doctor(name, found, doctor, &err) == 0)
        return;
    const struct np_finding finding = {asked ? NP_FOUND_WARN : NP_FOUND_SKIPPED,
        asked ? name : "GPU", err.text, asked ? "`nnpipe devices` lists what there is" : NULL};
    found(doctor, &finding);
}

static int end(struct doctor *doctor)
{
    const int *counts = doctor->counts;

    if (doctor->json) {
        np_json_begin(&doctor->line, "done");
        np_json_int(&doctor->line, "ok", counts[NP_FOUND_OK]);
        np_json_int(&doctor->line, "warn", counts[NP_FOUND_WARN]);
        np_json_int(&doctor->line, "not_checked", counts[NP_FOUND_SKIPPED]);
        const char *text = np_json_end(&doctor->line);
        fputs(text ? text : "", stdout);
    } else {
        printf("%d ok, %d to look at, %d not checked\n", counts[NP_FOUND_OK], counts[NP_FOUND_WARN],
            counts[NP_FOUND_SKIPPED]);
    }
    np_json_fini(&doctor->line);
    return counts[NP_FOUND_WARN] ? NP_EXIT_FAILED : NP_EXIT_DONE;
}

int np_cmd_doctor(int argc, char **argv)
{
    struct doctor doctor = {0};
    const char *device = "auto";
    char name[NP_DEVICE_NAME];
    const struct np_flag flags[] = {{"--device", &device, NULL, NULL},
        {"--json", NULL, &doctor.json, NULL}, {NULL, NULL, NULL, NULL}};
    int nr, code = np_flags_parse(argc, argv, flags, NULL, &nr);

    if (code == 0 && nr > 1) {
        fprintf(stderr, "nnpipe doctor: one PATH at most\n");
        code = NP_EXIT_USAGE;
    }
    if (code == 0 && !np_device_find(device, name)) {
        fprintf(
            stderr, "nnpipe doctor: --device: expected " NP_DEVICE_NAMES ", not '%s'\n", device);
        code = NP_EXIT_USAGE;
    }
    if (code)
        return code;
    np_doctor_box(found, &doctor);
    np_doctor_disk(nr ? argv[1] : ".", found, &doctor);
    look_at_device(&doctor, name);
    return end(&doctor);
}
