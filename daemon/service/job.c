/* See job.h. */
#include "daemon/service/job.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "loader/base/json.h"
#include "loader/base/mem.h"

#define MAX_BYTES (8u << 20) /* a config has at most one MiB, before its text is quoted */

char *np_job_text(const struct np_job *job, struct np_err *err)
{
    struct np_json json = {0};

    np_json_begin(&json, NULL);
    np_json_text(&json, "dir", job->dir);
    np_json_text(&json, "device", job->device);
    np_json_int(&json, "attempt", job->attempt);
    np_json_int(&json, "parent", job->parent);
    np_json_int(&json, "umask", job->umask);
    np_json_text(&json, "environment", job->environment);
    if (job->overrides)
        np_json_text(&json, "overrides", job->overrides);
    np_json_text(&json, "config", job->config);
    const char *text = np_json_end(&json);
    char *copy = np_try_strdup(text, err);
    if (!text)
        np_err_set(err, -ENOMEM, "out of memory");
    np_json_fini(&json);
    return copy;
}

static int read_all(int fd, char *text, size_t *ret_used, struct np_err *err)
{
    size_t used = 0;
    ssize_t nr = 1;

    while (used < MAX_BYTES && nr != 0) {
        nr = read(fd, text + used, MAX_BYTES - used);
        if (nr < 0 && errno != EINTR)
            return np_err_set(err, -errno, "cannot read the job: %s", strerror(errno));
        used += nr > 0 ? (size_t)nr : 0;
    }
    *ret_used = used;
    return 0;
}

static const char *text_of(const struct np_node *map, const char *key)
{
    const struct np_node *node = np_node_get(map, key);

    return node && node->kind == NP_NODE_SCALAR ? node->text : NULL;
}

int np_job_read(int fd, struct np_job *ret_job, struct np_err *err)
{
    char *text = np_try_alloc(MAX_BYTES, err);
    struct np_job job = {0};
    size_t used = 0;
    int code = text ? read_all(fd, text, &used, err) : -ENOMEM;

    if (code == 0)
        code = np_json_parse(text, used, &job.node, err);
    np_free(text);
    *ret_job = job;
    if (code < 0)
        return code;
    if (job.node->kind == NP_NODE_MAP) {
        job.dir = text_of(job.node, "dir");
        job.device = text_of(job.node, "device");
        job.config = text_of(job.node, "config");
        job.environment = text_of(job.node, "environment");
        job.overrides = text_of(job.node, "overrides");
        job.umask = (int)np_node_number(job.node, "umask", -1);
        job.attempt = (int64_t)np_node_number(job.node, "attempt", -1);
        job.parent = (pid_t)np_node_number(job.node, "parent", 0);
    }
    *ret_job = job;
    if (!job.dir || job.dir[0] != '/' || !job.device || !job.config || job.attempt < 0)
        return np_err_set(err, -EBADMSG,
            "not a job: expected an object of dir (absolute), device, attempt and config");
    return 0;
}

void np_job_fini(struct np_job *job)
{
    np_node_free(job->node);
    *job = (struct np_job){0};
}
