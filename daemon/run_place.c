/* A run's folder: which one it goes on in, or a new one with its config. */
#include <errno.h>
#include <stdlib.h>

#include "daemon/config.h"
#include "daemon/run.h"
#include "daemon/run_folder.h"
#include "daemon/run_same.h"

static int write_config(struct np_run *run, struct np_err *err)
{
    char *path = np_format("%s/config.yaml", run->dir), *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    int code = 0;

    if (!out || !path) {
        code = np_err_set(err, -ENOMEM, "out of memory");
        goto out;
    }
    np_node_print(out, run->normal);
    fclose(out);
    code = np_io_replace(&run->io, path, text, bytes, err);
out:
    free(text);
    np_free(path);
    return code;
}

int np_run_new_folder(struct np_run *run, struct np_err *err)
{
    int code = 0;

    if (run->options->into)
        run->dir = np_strdup(run->options->into);
    else
        code = np_folder_create(run->config->runs, run->config->name, &run->dir, err);
    if (code == 0 && !run->dir)
        code = np_err_set(err, -ENOMEM, "out of memory");
    if (code == 0 && !run->options->into)
        code = np_folder_lock(run->dir, &run->lock_fd, err);
    if (code == 0)
        code = write_config(run, err);
    return code;
}

/* Would the folder's config give the same weights? */
static int check_same(struct np_run *run, const char *dir, struct np_err *err)
{
    bool extends = np_schedule_extends(&run->config->schedule);
    struct np_node *then = NULL;
    char why[512] = "";
    int code = np_folder_config(dir, &then, err);

    if (code == 0 && !np_config_same(then, run->normal, extends, why, sizeof(why)))
        code = np_err_set(err, -EINVAL,
            "%s: this config would not give the same weights: %s; start a new run, or take the "
            "run's own %s/config.yaml",
            dir, why, dir);
    np_node_free(then);
    return code;
}

/* The folder it was given: gone on with, or begun. */
static int given_folder(struct np_run *run, const char *dir, struct np_err *err)
{
    if (!np_folder_has_checkpoint(dir))
        return 0;
    int code = check_same(run, dir, err);

    run->usage = code == -EINVAL; /* who gave the folder gives it again: no try helps */
    if (code == 0 && !(run->dir = np_strdup(dir)))
        code = np_err_set(err, -ENOMEM, "out of memory");
    return code;
}

/* --resume RUN, or the newest that fits. */
static int old_folder(struct np_run *run, struct np_err *err)
{
    int code;

    if (!run->options->resume_dir)
        return np_folder_find(run->config->runs, run->normal,
            np_schedule_extends(&run->config->schedule), (double)run->nr_steps, &run->dir, err);
    run->dir = np_strdup(run->options->resume_dir);
    code = run->dir ? check_same(run, run->dir, err) : np_err_set(err, -ENOMEM, "out of memory");
    return code < 0 ? np_err_context(err, "--resume") : 0;
}

/* A run to go on with: locked. None, and none was named: a new one follows. */
int np_run_find_folder(struct np_run *run, struct np_err *err)
{
    int code;

    if (run->options->into)
        return given_folder(run, run->options->into, err);
    if (!run->options->resume)
        return 0;
    if ((code = old_folder(run, err)) < 0)
        return code;
    if (run->dir)
        return np_folder_lock(run->dir, &run->lock_fd, err);
    np_run_say(
        run, "no unfinished run of this config below %s; a new one is started", run->config->runs);
    return 0;
}
