/* `nnpipe submit CONFIG`: puts a run into the service's queue. Main thread. */
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>

#include "daemon/client/client.h"
#include "daemon/client/runs.h"
#include "daemon/cmd.h"
#include "daemon/service/environment.h"
#include "loader/base/config_file.h"
#include "loader/base/io.h"
#include "loader/base/json.h"
#include "loader/base/mem.h"
#include "loader/base/option.h"
#include "loader/base/text.h"
#include "loader/base/yaml.h"

#define MAX_CONFIG (1u << 20)
#define NR_TRIES   50 /* 0.2 s apart: time for a service to restart */

static bool add_text(struct np_json *json, const char *key, const char *text)
{
    np_json_text(json, key, text);
    return true;
}

static bool add_whole(struct np_json *json, const char *key, const char *text)
{
    int64_t value = 0;
    const bool is = np_text_int(text, INT64_MIN, INT64_MAX, &value);

    np_json_int(json, key, value);
    return is;
}

static bool add_bytes(struct np_json *json, const char *key, const char *text)
{
    int64_t bytes = 0;
    const bool is = np_option_bytes(text, &bytes);

    np_json_int(json, key, bytes);
    return is && bytes > 0;
}

static bool add_cpus(struct np_json *json, const char *key, const char *text)
{
    double cpus = 0;
    const bool is = np_text_real(text, 0, 1e9, &cpus);

    np_json_real(json, key, cpus);
    return is && cpus > 0;
}

static bool add_time(struct np_json *json, const char *key, const char *text)
{
    double seconds = 0;
    const bool is = np_parse_span(text, &seconds);

    np_json_real(json, key, seconds);
    return is;
}

static bool add_after(struct np_json *json, const char *key, const char *text)
{
    int64_t id;
    char word[32];

    np_json_open(json, key, '[');
    for (const char *at = text; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        snprintf(word, sizeof(word), "%.*s", (int)strcspn(at, ","), at);
        if (!np_run_id(word, &id))
            return false;
        np_json_int(json, NULL, id);
    }
    np_json_close(json, ']');
    return true;
}

static const struct field {
    const char *flag, *key; /* of the command, and of the body */
    bool (*add)(struct np_json *json, const char *key, const char *text); /* false: invalid */
    const char *expected;
} fields[] = {
    {"--name", "name", add_text, NULL},
    {"--device", "device", add_text, NULL},
    {"--on-end", "on_end", add_text, NULL},
    {"--priority", "priority", add_whole, "a whole number"},
    {"--max-retries", "max_retries", add_whole, "a whole number"},
    {"--time-limit", "time_limit", add_time, NP_SPAN_EXPECTED},
    {"--memory", "memory", add_bytes, "bytes as 512M or 16G"},
    {"--cpus", "cpus", add_cpus, "a number as 4 or 0.5"},
    {"--after", "after", add_after, "run numbers as 3,4"},
};
#define NR_FIELDS (sizeof(fields) / sizeof(*fields))

struct submission {
    const char *values[NR_FIELDS], *socket; /* NULL: not given */
    bool wait, json;
    struct np_overrides overrides;
    /* for a config with a base: */
    struct np_config_file file;
    const char *path, *merged; /* its name, and the text to send; merged NULL: the file's own */
};

/* False: has printed an error. */
static bool add_fields(struct np_json *json, const struct submission *s)
{
    for (size_t i = 0; i < NR_FIELDS; i++) {
        const struct field *field = &fields[i];

        if (s->values[i] && !field->add(json, field->key, s->values[i])) {
            fprintf(stderr, "nnpipe submit: %s: expected %s, not '%s'\n", field->flag,
                field->expected, s->values[i]);
            return false;
        }
    }
    return true;
}

/* The run needs the environment variables that the config names. */
static void add_environment(struct np_json *json, const struct submission *s, const char *text)
{
    char name[128], added[4096] = " ";

    np_json_open(json, "environment", '{');
    for (int i = -1; i < s->overrides.nr_texts; i++)
        for (const char *at = i < 0 ? text : s->overrides.texts[i];
             np_environment_next(&at, name, sizeof(name));) {
            char word[130];
            const size_t used = strlen(added), bytes = strlen(name) + 2;

            snprintf(word, sizeof(word), " %s ", name);
            if (!getenv(name) || strstr(added, word) || used + bytes > sizeof(added))
                continue;
            snprintf(added + used, sizeof(added) - used, "%s ", name);
            np_json_text(json, name, getenv(name));
        }
    np_json_close(json, '}');
}

/* umask() returns the mask only when it sets another. */
static int64_t own_umask(void)
{
    const mode_t mask = umask(0);

    umask(mask);
    return (int64_t)mask;
}

/* By a random key the service recognises a repeated submission. */
static bool add_key(struct np_json *json)
{
    uint64_t random[2];
    char key[33];

    if (getrandom(random, sizeof(random), 0) != (ssize_t)sizeof(random))
        return false;
    snprintf(key, sizeof(key), "%016jx%016jx", (uintmax_t)random[0], (uintmax_t)random[1]);
    np_json_text(json, "key", key);
    return true;
}

static int write_body(const struct submission *s, const char *text, const char *path,
    struct np_json *json, struct np_err *err)
{
    np_json_begin(json, NULL);
    np_json_text(json, "config", text);
    np_json_text(json, "path", path);
    np_json_int(json, "umask", own_umask());
    add_environment(json, s, text);
    np_json_open(json, "overrides", '[');
    for (int i = 0; i < s->overrides.nr_texts; i++)
        np_json_text(json, NULL, s->overrides.texts[i]);
    np_json_close(json, ']');
    if (!add_fields(json, s))
        return -EINVAL;
    if (!add_key(json))
        return np_err_set(err, -EIO, "the kernel returns no random numbers");
    return np_json_end(json) ? 0 : np_err_set(err, -ENOMEM, "out of memory for the request");
}

/* A line for each problem: "FILE:LINE:COLUMN: TEXT". */
static void print_problems(const struct submission *s, const struct np_response *response)
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

static int post(const struct submission *s, struct np_client *client, const struct np_json *body,
    struct np_node **ret_run, struct np_err *err)
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
        return -EINVAL;
    }
    return code < 0 ? code : np_json_parse(response.body, response.bytes, ret_run, err);
}

static void print_submitted(const struct np_node *run, bool json)
{
    if (json)
        printf("{\"event\": \"submitted\", \"id\": %s, \"name\": \"%s\"}\n",
            np_node_text(run, "id"),
            np_node_text(run, "name")); /* needs no escapes: letters, digits, - _ . */
    else
        np_run_print_state(run, false, stdout);
    fflush(stdout);
}

static int submit(const struct submission *s, const struct np_json *body, struct np_err *err)
{
    struct np_client *client = np_client_open(s->socket);
    struct np_node *run = NULL;
    int64_t id = 0;
    int code = post(s, client, body, &run, err), exit_code = NP_EXIT_DONE;

    if (code == 0) {
        print_submitted(run, s->json);
        np_run_id(np_node_text(run, "id"), &id);
    }
    np_node_free(run);
    run = NULL;
    if (code == 0 && s->wait && (code = np_client_wait_end(client, id, INFINITY, &run, err)) == 0) {
        np_run_print_state(run, s->json, stdout);
        exit_code = np_run_exit_code(run);
    }
    np_node_free(run);
    if (code == -EINVAL) { /* print_problems() was called */
        code = 0;
        exit_code = NP_EXIT_USAGE;
    }
    return np_client_end(client, code < 0 ? code : exit_code, err);
}

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
static int merge_bases(struct submission *s, const char *path, char **text, struct np_err *err)
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

int np_cmd_submit(int argc, char **argv)
{
    struct submission s = {.wait = false};
    struct np_flag flags[NR_FIELDS + 4] = {
        [NR_FIELDS] = {"--wait", NULL, &s.wait, NULL}, NP_SERVICE_FLAGS(s.json, s.socket)};
    struct np_err err = {0};
    struct np_json body = {0};

    for (size_t i = 0; i < NR_FIELDS; i++)
        flags[i] = (struct np_flag){fields[i].flag, &s.values[i], NULL, NULL};
    int nr, code = np_flags_parse(argc, argv, flags, &s.overrides, &nr);
    if (code)
        return code;
    if (nr != 1) {
        fprintf(stderr, "nnpipe submit: expected one CONFIG, not %d\n", nr);
        return NP_EXIT_USAGE;
    }
    char *text = read_config(argv[1], &err), place[PATH_MAX];
    const bool input = strcmp(argv[1], "-") == 0;
    const char *path = text ? realpath(input ? "." : argv[1], place) : NULL;
    char *as = path && input ? np_format("%s/-", path) : NULL;

    if (!path) {
        np_err_set(&err, -errno, "%s: %s", argv[1], strerror(errno)); /* unless it is set */
        np_complain(&err);
        code = NP_EXIT_FAILED;
    } else if (merge_bases(&s, argv[1], &text, &err) < 0 ||
               write_body(&s, text, as ? as : path, &body, &err) < 0) {
        if (err.code)
            np_complain(&err);
        code = NP_EXIT_USAGE;
    } else {
        code = submit(&s, &body, &err);
    }
    np_json_fini(&body);
    np_config_file_fini(&s.file);
    np_free(as);
    np_free(text);
    return code;
}
