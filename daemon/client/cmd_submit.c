/* `nnpipe submit CONFIG`: puts a run, or with --sweep several, into the service's queue. Main
 * thread. */
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/client/client.h"
#include "daemon/client/runs.h"
#include "daemon/client/submission.h"
#include "daemon/cmd.h"
#include "loader/base/config_file.h"
#include "loader/base/io.h"
#include "loader/base/json.h"
#include "loader/base/mem.h"
#include "loader/base/text.h"
#include "loader/base/yaml.h"

#define MAX_CONFIG (1u << 20)
#define NR_TRIES   50 /* 0.2 s apart: time for a service to restart */

/* A line for each problem: "FILE:LINE:COLUMN: TEXT". */
static void print_problems(const struct np_submission *s, const struct np_response *response)
{
    struct np_node *node = NULL;

    if (np_json_parse(response->body, response->bytes, &node, NULL) < 0)
        return;
    const struct np_node *error = np_node_get(node, "error");
    const struct np_node *list = np_node_get(error, "problems");
    for (int i = 0; list && list->kind == NP_NODE_LIST && i < list->nr_items; i++) {
        const struct np_node *problem = list->items[i];
        const int line = (int)np_node_number(problem, "line", 0);
        const int column = (int)np_node_number(problem, "column", 0);
        char place[PATH_MAX + 64];

        if (!s->merged ||
            !np_config_file_place(&s->file, s->path, s->merged, line, column, place, sizeof(place)))
            snprintf(place, sizeof(place), "%s", np_node_text(problem, "place"));
        fprintf(stderr, "%s: %s\n", place, np_node_text(problem, "text"));
    }
    if (!list)
        fprintf(stderr, "nnpipe submit: %s\n", np_node_text(error, "text"));
    np_node_free(node);
}

/* *ret_known: the run was submitted before. -EINVAL: has printed the problems of the config. */
static int post(const struct np_submission *s, struct np_client *client, const struct np_json *body,
    struct np_node **ret_run, bool *ret_known, struct np_err *err)
{
    struct np_response response = {0};
    int code = 0;

    for (int i = 0; i < NR_TRIES; i++) {
        *err = (struct np_err){0};
        code = np_client_request(client, "POST", "/v1/runs", body->text, &response, err);
        if (!np_client_is_away(code, &response) || (i == 0 && code == -ECONNREFUSED))
            break; /* -ECONNREFUSED at the first attempt: there is no service */
        nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL);
    }
    if (code == -EREMOTEIO && response.status == 422) {
        print_problems(s, &response);
        *err = (struct np_err){0};
        return -EINVAL;
    }
    *ret_known = response.status == 200;
    return code < 0 ? code : np_json_parse(response.body, response.bytes, ret_run, err);
}

/* Names need no escapes: letters, digits, - _ . */
static void print_submitted(const struct np_node *run, bool json, bool known)
{
    const char *sweep = np_node_text(run, "sweep");

    if (json && *sweep)
        printf("{\"event\": \"submitted\", \"id\": %s, \"name\": \"%s\", \"sweep\": \"%s\", "
               "\"known\": %s}\n",
            np_node_text(run, "id"), np_node_text(run, "name"), sweep, known ? "true" : "false");
    else if (json)
        printf("{\"event\": \"submitted\", \"id\": %s, \"name\": \"%s\"}\n",
            np_node_text(run, "id"), np_node_text(run, "name"));
    else
        np_run_print_state(run, false, stdout);
    fflush(stdout);
}

/* Submits one run; *ret_id: its number. */
static int submit_job(const struct np_submission *s, const struct np_job *job,
    struct np_client *client, int64_t *ret_id, bool *ret_known, struct np_err *err)
{
    struct np_json body = {0};
    struct np_node *run = NULL;
    int code = np_submission_write(s, job, &body, err);

    if (code == 0)
        code = post(s, client, &body, &run, ret_known, err);
    if (code == 0) {
        print_submitted(run, s->json, *ret_known);
        np_run_id(np_node_text(run, "id"), ret_id);
    }
    np_node_free(run);
    np_json_fini(&body);
    return code;
}

/* Waits for the runs; returns the worst exit code. */
static int wait_for(const struct np_submission *s, struct np_client *client, const int64_t *ids,
    int nr, struct np_err *err)
{
    int worst = NP_EXIT_DONE;

    for (int i = 0; i < nr; i++) {
        struct np_node *run = NULL;
        const int code = np_client_wait_end(client, ids[i], INFINITY, &run, err);

        if (code < 0)
            return code;
        np_run_print_state(run, s->json, stdout);
        worst = np_run_worse_exit(worst, np_run_exit_code(run));
        np_node_free(run);
    }
    return worst;
}

/* --- a sweep ---------------------------------------------------------------------------------- */

static void print_values(const struct np_submission *s, int job)
{
    fputs("nnpipe submit: nothing was submitted; the run of the sweep with", stderr);
    for (int a = 0; a < s->sweep.nr_axes; a++)
        fprintf(stderr, "%s %s", a ? "," : "", np_sweep_text(&s->sweep, job, a));
    fputs(" is refused\n", stderr);
}

/* Has the service check all runs of the sweep; base: gets the sweep's name. */
static int check_sweep(const struct np_submission *s, struct np_client *client,
    char base[NP_SWEEP_NAME], struct np_err *err)
{
    struct np_json body = {0};
    int code = 0;

    for (int i = 0; i < s->sweep.nr_jobs && code == 0; i++) {
        const struct np_job job = {.index = i, .check = true};
        struct np_node *checked = NULL;
        bool known;

        code = np_submission_write(s, &job, &body, err);
        if (code == 0 && (code = post(s, client, &body, &checked, &known, err)) < 0 &&
            code != -ECONNREFUSED)
            print_values(s, i);
        if (code == 0 && i == 0)
            snprintf(base, NP_SWEEP_NAME, "%s", np_node_text(checked, "name"));
        np_node_free(checked);
    }
    np_json_fini(&body);
    return code;
}

/* ids: an array of the sweep's jobs, to fill. */
static int submit_jobs(const struct np_submission *s, struct np_client *client, const char *base,
    int64_t *ids, struct np_err *err)
{
    char(*names)[NP_SWEEP_NAME] = np_alloc_array(NP_SWEEP_MAX_JOBS, sizeof(*names));
    int code = 0, i = 0, nr_known = 0;

    np_sweep_names(&s->sweep, base, names);
    for (; i < s->sweep.nr_jobs && code == 0; i++) {
        const struct np_job job = {.index = i, .name = names[i], .base = base};
        bool known = false;

        code = submit_job(s, &job, client, &ids[i], &known, err);
        nr_known += known;
    }
    if (code < 0)
        fprintf(stderr,
            "nnpipe submit: %s of the sweep %s was not submitted; %d of its %d runs are; the same "
            "command adds the others\n",
            names[i - 1], base, i - 1, s->sweep.nr_jobs);
    else if (!s->json && nr_known)
        printf("sweep %s: %d runs, %d of them submitted before\n", base, i, nr_known);
    else if (!s->json)
        printf("sweep %s: %d runs; `nnpipe compare --sweep %s` compares them\n", base, i, base);
    np_free(names);
    return code;
}

static int submit_sweep(
    const struct np_submission *s, struct np_client *client, int64_t *ids, struct np_err *err)
{
    char base[NP_SWEEP_NAME] = "";
    const int code = check_sweep(s, client, base, err);

    return code < 0 ? code : submit_jobs(s, client, base, ids, err);
}

static int submit(const struct np_submission *s, struct np_err *err)
{
    struct np_client *client = np_client_open(s->socket);
    int64_t ids[NP_SWEEP_MAX_JOBS] = {0};
    const int nr = s->sweep.nr_axes ? s->sweep.nr_jobs : 1;
    bool known;
    int code = s->sweep.nr_axes
                   ? submit_sweep(s, client, ids, err)
                   : submit_job(s, &(struct np_job){.index = -1}, client, &ids[0], &known, err);

    fflush(stdout);
    if (code == 0 && s->wait)
        code = wait_for(s, client, ids, nr, err);
    if (code == -EINVAL && !err->code) /* the problems are printed */
        code = NP_EXIT_USAGE;
    return np_client_end(client, code, err);
}

/* --- the command ------------------------------------------------------------------------------ */

/* The file with a NUL; np_free. */
static char *read_config(const char *path, struct np_err *err)
{
    struct np_err why = {0};
    char *text = NULL;
    uint64_t bytes;
    const int code =
        np_read_file(strcmp(path, "-") == 0 ? "/dev/stdin" : path, MAX_CONFIG, &text, &bytes, &why);

    if (code == 0 && !memchr(text, 0, bytes))
        return text;
    np_free(text);
    if (code == 0 || code == -EFBIG)
        np_err_set(err, -EINVAL, "%s: a config is text of at most 1 MiB", path);
    else
        np_err_set(err, code, "%s", why.text);
    return NULL;
}

/* Replaces *text of a config with a base by the merged config, because the service may not be able
 * to read the base. -EINVAL: has printed the mistakes. */
static int merge_bases(struct np_submission *s, const char *path, char **text, struct np_err *err)
{
    struct np_report report;

    np_report_init(&report, path);
    int code = np_config_file_parse(*text, strlen(*text), path, &s->file, &report);
    if (!s->file.has_base) {
        np_report_fini(&report);
        return 0; /* the service reports the mistakes */
    }
    if (code < 0)
        np_complain_report(&report, NULL);
    np_report_fini(&report);
    if (code < 0)
        return -EINVAL;
    np_free(*text);
    s->path = path;
    s->merged = *text = np_node_yaml(s->file.root, err);
    if (*text && strlen(*text) > MAX_CONFIG)
        np_err_set(err, -E2BIG, "%s: merged with its bases it is over 1 MiB", path);
    return err->code;
}

static int take_sweep(struct np_submission *s, struct np_err *err)
{
    int code = 0;

    for (int i = 0; s->axes[i] && code == 0; i++)
        code = np_sweep_add(&s->sweep, s->axes[i], err);
    if (code == 0 && s->overrides.nr_texts + s->sweep.nr_axes > NP_MAX_OVERRIDES)
        code = np_err_set(err, -E2BIG, "--sweep and -o: at most %d are possible", NP_MAX_OVERRIDES);
    return code;
}

/* Reads the config at `name` and submits it. */
static int submit_file(struct np_submission *s, const char *name, struct np_err *err)
{
    char *text = read_config(name, err), place[PATH_MAX];
    const bool input = strcmp(name, "-") == 0;
    const char *path = text ? realpath(input ? "." : name, place) : NULL;
    char *as = path && input ? np_format("%s/-", path) : NULL;
    int code = NP_EXIT_USAGE;

    if (!path) {
        np_err_set(err, -errno, "%s: %s", name, strerror(errno)); /* unless it is set */
        np_complain(err);
        code = NP_EXIT_FAILED;
    } else if (take_sweep(s, err) < 0 || merge_bases(s, name, &text, err) < 0) {
        if (err->code)
            np_complain(err);
    } else {
        s->text = text;
        s->sent_path = as ? as : path;
        code = submit(s, err);
    }
    np_free(as);
    np_free(text);
    return code;
}

/* --gpus N is --processes N --device cuda. */
static int take_gpus(struct np_submission *s)
{
    const char *device = s->values[NP_SUBMIT_DEVICE];
    int64_t nr;

    if (!s->gpus)
        return 0;
    if (!np_text_int(s->gpus, 1, INT64_MAX, &nr))
        return np_usage("submit", "--gpus: expected their number, not '%s'", s->gpus);
    if (s->values[NP_SUBMIT_PROCESSES])
        return np_usage("submit", "--gpus and --processes: give one of them");
    if (device && strncmp(device, "cuda", 4) != 0 && strcmp(device, "gpu") != 0)
        return np_usage("submit", "--gpus %s: --device %s is no GPU", s->gpus, device);
    s->values[NP_SUBMIT_PROCESSES] = s->gpus;
    if (!device)
        s->values[NP_SUBMIT_DEVICE] = "cuda";
    return 0;
}

int np_cmd_submit(int argc, char **argv)
{
    struct np_submission s = {.wait = false};
    struct np_flag flags[NP_SUBMIT_FIELDS + 6] = {
        [NP_SUBMIT_FIELDS] = {"--sweep", s.axes, NULL, np_flag_repeats},
        [NP_SUBMIT_FIELDS + 1] = {"--wait", NULL, &s.wait, NULL},
        [NP_SUBMIT_FIELDS + 2] = {"--gpus", &s.gpus, NULL, NULL},
        NP_SERVICE_FLAGS(s.json, s.socket)};
    struct np_err err = {0};

    for (int i = 0; i < NP_SUBMIT_FIELDS; i++)
        flags[i] = (struct np_flag){np_submission_flag(i), &s.values[i], NULL, NULL};
    int nr, code = np_flags_parse(argc, argv, flags, &s.overrides, &nr);
    if (code)
        return code;
    if (nr != 1) {
        fprintf(stderr, "nnpipe submit: expected one CONFIG, not %d\n", nr);
        return NP_EXIT_USAGE;
    }
    if ((code = take_gpus(&s)))
        return code;
    code = submit_file(&s, argv[1], &err);
    np_sweep_fini(&s.sweep);
    np_config_file_fini(&s.file);
    return code;
}
