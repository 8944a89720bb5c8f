#include "daemon/client/submission.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "daemon/client/runs.h"
#include "daemon/service/environment.h"
#include "loader/base/option.h"
#include "loader/base/text.h"

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
    [NP_SUBMIT_NAME] = {"--name", "name", add_text, NULL},
    [NP_SUBMIT_DEVICE] = {"--device", "device", add_text, NULL},
    {"--on-end", "on_end", add_text, NULL},
    {"--priority", "priority", add_whole, "a whole number"},
    {"--max-retries", "max_retries", add_whole, "a whole number"},
    {"--time-limit", "time_limit", add_time, NP_SPAN_EXPECTED},
    {"--memory", "memory", add_bytes, "bytes as 512M or 16G"},
    {"--cpus", "cpus", add_cpus, "a number as 4 or 0.5"},
    {"--after", "after", add_after, "run numbers as 3,4"},
    [NP_SUBMIT_PROCESSES] = {"--processes", "processes", add_whole, "a whole number"},
};

/* False: has printed an error. */
static bool add_fields(
    struct np_json *json, const struct np_submission *s, const struct np_job *job)
{
    if (job->name)
        np_json_text(json, "name", job->name);
    for (size_t i = job->name ? NP_SUBMIT_NAME + 1 : NP_SUBMIT_NAME; i < NP_SUBMIT_FIELDS; i++) {
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
static void add_environment(struct np_json *json, const struct np_overrides *all, const char *text)
{
    char name[128], added[4096] = " ";

    np_json_open(json, "environment", '{');
    for (int i = -1; i < all->nr_texts; i++)
        for (const char *at = i < 0 ? text : all->texts[i];
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

/* By its key the service recognises a repeated submission. The key of a run of a sweep is the hash
 * of its request: the same command adds nothing. Any other key is random. */
static bool add_key(struct np_json *json, const struct np_job *job)
{
    uint64_t random[2];
    char key[33];

    if (job->index >= 0 && !json->failed) {
        const XXH128_hash_t hash = XXH3_128bits(json->text, json->used);

        memcpy(random, &hash, sizeof(random));
    } else if (getrandom(random, sizeof(random), 0) != (ssize_t)sizeof(random))
        return false;
    snprintf(key, sizeof(key), "%016jx%016jx", (uintmax_t)random[0], (uintmax_t)random[1]);
    np_json_text(json, "key", key);
    return true;
}

int np_submission_write(const struct np_submission *s, const struct np_job *job,
    struct np_json *json, struct np_err *err)
{
    struct np_overrides all = s->overrides;

    for (int a = 0; a < s->sweep.nr_axes; a++)
        all.texts[all.nr_texts++] = np_sweep_text(&s->sweep, job->index, a);
    np_json_begin(json, NULL);
    np_json_text(json, "config", s->text);
    np_json_text(json, "path", s->sent_path);
    np_json_int(json, "umask", own_umask());
    add_environment(json, &all, s->text);
    np_json_open(json, "overrides", '[');
    for (int i = 0; i < all.nr_texts; i++)
        np_json_text(json, NULL, all.texts[i]);
    np_json_close(json, ']');
    if (!add_fields(json, s, job))
        return -EINVAL;
    if (job->base)
        np_json_text(json, "sweep", job->base);
    if (job->check)
        np_json_bool(json, "check", true);
    else if (!add_key(json, job))
        return np_err_set(err, -EIO, "the kernel returns no random numbers");
    return np_json_end(json) ? 0 : np_err_set(err, -ENOMEM, "out of memory for the request");
}

const char *np_submission_flag(int field)
{
    return fields[field].flag;
}
