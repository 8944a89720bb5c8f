/* See job.h. */
#include "daemon/service/job.h"

#include <errno.h>

#include "loader/base/io.h"
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
    return np_json_take(&json, err);
}

int np_job_read(const char *path, struct np_job *ret_job, struct np_err *err)
{
    struct np_job job = {0};
    char *text = NULL;
    uint64_t bytes;
    int code = np_read_file(path, MAX_BYTES, &text, &bytes, err);

    if (code == 0)
        code = np_json_parse(text, bytes, &job.node, err);
    np_free(text);
    job.dir = np_node_text(job.node, "dir");
    job.device = np_node_text(job.node, "device");
    job.config = np_node_text(job.node, "config");
    job.environment = np_node_text(job.node, "environment");
    job.overrides = np_node_text(job.node, "overrides");
    job.umask = (int)np_node_number(job.node, "umask", -1);
    job.attempt = (int64_t)np_node_number(job.node, "attempt", -1);
    job.parent = (pid_t)np_node_number(job.node, "parent", 0);
    *ret_job = job;
    if (code == 0 && (job.dir[0] != '/' || !*job.device || !*job.config || job.attempt < 0))
        code = np_err_set(err, -EBADMSG,
            "not a job: expected an object of dir (absolute), device, attempt and config");
    return code;
}

void np_job_fini(struct np_job *job)
{
    np_node_free(job->node);
    *job = (struct np_job){0};
}
