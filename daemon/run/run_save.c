/* A run's checkpoints. Trainer (main) thread, and for each one that training does not wait for a thread that writes
 * it: where the device makes a snapshot of its arrays, steps go on as soon as that is queued. When its copies are on
 * the host, the thread takes them out, syncs the logs and writes the files. Then the trainer, which looks after each
 * step, reports it. One at a time; the last one of a run, and all on other devices are written by the trainer. Of
 * several processes rank 0 writes, when all have compared what they have, and waits for the copies; how it ended the
 * others hear at the next boundary, for which rank 0 asks if it failed. */
#include "daemon/run/run_parts.h"

#include <errno.h>
#include <string.h>
#include <sys/statvfs.h>

#include "loader/base/clock.h"
#include "trainer/checkpoint/checkpoint_dir.h"

struct np_saving {
    struct np_checkpoint checkpoint; /* its arrays are the run's: none else uses them meanwhile */
    uint64_t start_ns, waited_ns;    /* waited: by the trainer so far */
    const struct np_run *run;        /* of the thread: what it reads there does not change */
    bool writing;                    /* the thread runs; before, the copies are under way */
    pthread_t thread;
    char *dir, *facts;
    /* by the thread: */
    struct np_err err; /* why it was not written; code 0: it was */
    struct np_err notes[3];
};

uint64_t np_run_checkpoint_bytes(const struct np_run *run)
{
    const struct np_graph *graph = run->setup.graph;

    const uint64_t averages = np_run_averages(run);

    return sizeof(float) * (graph->nr_params * (1 + averages + (uint64_t)run->nr_states) +
                               graph->nr_buffers * (1 + averages)) +
           65536;
}

/* Adds the checkpoint's size and the free space to err. -EDOM (weights not finite) needs
 * neither. */
static int explain(struct np_run *run, uint64_t step, int code, struct np_err *err)
{
    struct statvfs fs;
    double room = statvfs(run->dir, &fs) == 0 ? (double)fs.f_bavail * (double)fs.f_frsize : 0;

    if (code != -EDOM)
        np_err_context(err,
            "the checkpoint of step %llu could not be written (it takes %.1f MB, %.1f MB "
            "are free below %s)",
            (unsigned long long)step, (double)np_run_checkpoint_bytes(run) * 1e-6, room * 1e-6,
            np_run_name(run, run->dir));
    if (run->saved_step != UINT64_MAX)
        np_run_say(
            run, "the last good checkpoint is step %llu", (unsigned long long)run->saved_step);
    return code;
}

void np_run_fill_checkpoint(struct np_run *run, struct np_checkpoint *ret_checkpoint)
{
    *ret_checkpoint = (struct np_checkpoint){
        .graph = run->setup.graph,
        .position = run->position,
        .params = run->arrays[NP_ARRAY_PARAMS],
        .buffers = run->arrays[NP_ARRAY_BUFFERS],
        .state = {run->arrays[NP_ARRAY_STATE0], run->arrays[NP_ARRAY_STATE1]},
    };
    if (np_run_averages(run)) {
        ret_checkpoint->raw_params = run->arrays[NP_ARRAY_PARAMS];
        ret_checkpoint->raw_buffers = run->arrays[NP_ARRAY_BUFFERS];
        ret_checkpoint->params = run->arrays[NP_ARRAY_AVERAGE];
        ret_checkpoint->buffers = run->arrays[NP_ARRAY_AVERAGE_BUFFERS];
    }
}

/* Takes text. */
static void keep_state(struct np_run *run, char *text)
{
    char **state = &run->device_state[np_state_kind(run->device)];

    np_free(*state);
    *state = text;
}

int np_run_read_state(struct np_run *run, struct np_err *err)
{
    char *text = NULL;

    if (!run->device->plan_ops->state)
        return 0;
    int code = run->device->plan_ops->state(run->plan, &text, err);
    if (code == 0)
        keep_state(run, text);
    return code;
}

int np_run_mark(struct np_run *run, struct np_err *err)
{
    const size_t bytes = sizeof(float) * run->setup.graph->nr_buffers;

    if (run->config->run.accumulate <= 1)
        return 0;
    if (!run->mark_buffers && !(run->mark_buffers = np_try_alloc(bytes + 1, err)))
        return err->code;
    int code = np_log_sizes(&run->log, false, &run->position, err);
    run->mark = run->position;
    return code < 0
               ? code
               : run->device->plan_ops->read(run->plan, NP_ARRAY_BUFFERS, run->mark_buffers, err);
}

/* --- on the disk ----------------------------------------------------------------------------- */

/* A failure here is only a note, since the new checkpoint is on the disk. The link `best` is for users: a resumed run
 * reads best_step. */
static void tidy(struct np_io *io, const char *dir, const struct np_checkpoint_options *options,
    const struct np_position *position, struct np_err notes[3])
{
    np_checkpoint_name_best(io, dir, position->best_step, &notes[0]);
    if (np_checkpoint_prune(
            dir, (int)options->keep, position->step, position->best_step, &notes[1]) < 0)
        np_err_context(&notes[1], "old checkpoints could not be deleted");
    if (options->optimizer == NP_OPTIMIZER_NEWEST &&
        np_checkpoint_drop_optimizers(dir, position->step, &notes[2]) < 0)
        np_err_context(&notes[2], "older optimizer states could not be deleted");
}

void np_run_link_best(struct np_run *run, const char *dir)
{
    struct np_err unnamed = {0};

    if (np_checkpoint_name_best(&run->io, dir, run->position.best_step, &unnamed) < 0)
        np_run_say(run, "%s", unnamed.text);
}

/* A failure to flush only makes later epochs slower. */
static void say_notes(struct np_run *run, const struct np_err notes[3])
{
    const char *note = run->loader ? np_loader_flush(run->loader) : "";

    for (int i = 0; i < 3; i++)
        if (notes[i].code)
            np_run_say(run, "%s", notes[i].text);
    if (*note && !run->said_flush)
        np_run_say(run, "%s", note);
    run->said_flush |= *note != '\0';
}

/* The checkpoint of this step is on the disk. waited_ns: by the trainer, of the time since start_ns. */
static void report(
    struct np_run *run, const struct np_position *position, uint64_t start_ns, uint64_t waited_ns)
{
    struct np_json *line = &run->line;
    const unsigned long long step = (unsigned long long)position->step;

    run->saved_step = position->step;
    run->saved_eval_due = position->eval_due;
    if (!np_run_leads(run))
        return;
    np_stat_item(run->block, NP_STAGE_CHECKPOINT, np_run_checkpoint_bytes(run), waited_ns);
    /* the other processes have no folder */
    char *path = np_format("%s/checkpoints/step-%llu", np_run_name(run, run->dir), step);
    np_json_begin(line, "checkpoint");
    np_json_int(line, "step", (int64_t)step);
    np_json_text(line, "path", path);
    np_json_real(line, "seconds", (double)(np_now_ns() - start_ns) * 1e-9);
    np_json_real(line, "waited_seconds", (double)waited_ns * 1e-9);
    np_ui_event(&run->ui, np_json_end(line));
    np_free(path);
}

/* --- while training waits -------------------------------------------------------------------- */

/* Syncs the logs, reads the arrays to the host, and puts the logs' sizes into the position. */
static int collect(struct np_run *run, struct np_err *err)
{
    struct np_position now = run->position;
    int code = np_log_sizes(&run->log, true, &now, err);

    np_track_flush(run->track);
    if (code == 0)
        code = np_run_read_arrays(run, err);
    if (code == 0 && run->at_mark)
        memcpy(run->arrays[NP_ARRAY_BUFFERS], run->mark_buffers,
            sizeof(float) * run->setup.graph->nr_buffers);
    else if (code == 0)
        run->position = now;
    return code;
}

static int write_checkpoint(struct np_run *run, struct np_err *err)
{
    struct np_checkpoint checkpoint;
    struct np_err notes[3] = {{0}};
    int code = collect(run, err);

    if (code == 0)
        code = np_run_read_state(run, err);
    if (code < 0)
        return code;
    np_run_fill_checkpoint(run, &checkpoint);
    checkpoint.facts_json = np_run_facts_json(run);
    if (!checkpoint.facts_json)
        return np_err_set(err, -ENOMEM, "out of memory for the checkpoint's facts");
    char *dir = np_format("%s/checkpoints", run->dir);
    if ((code = np_checkpoint_write(&run->io, dir, &checkpoint, err)) == 0) {
        tidy(&run->io, dir, &run->config->checkpoint, &checkpoint.position, notes);
        say_notes(run, notes);
    }
    np_free(dir);
    return code;
}

int np_run_save(struct np_run *run, uint64_t step, bool eval_due, struct np_err *err)
{
    const uint64_t start = np_now_ns();

    np_run_settle_save(run);
    np_run_at(run, "saving");
    run->position.step = step;
    run->position.eval_due = eval_due;
    const int code = np_run_leads(run) ? write_checkpoint(run, err) : 0;
    if (code < 0)
        return explain(run, step, code, err);
    run->best_unsaved = false;
    if (np_run_leads(run) || np_comm_over(run->comm)) /* else rank 0 says it at the barrier */
        report(run, &run->position, start, np_now_ns() - start);
    return 0;
}

double np_run_time_save(struct np_run *run)
{
    struct np_metrics unused;
    struct np_err err = {0};

    if (run->device->plan_ops->metrics(run->plan, false, &unused, &err) < 0)
        return 0;
    const uint64_t start = np_now_ns();
    int code = np_run_start_save(run, run->position.step, false, &err);
    const uint64_t waited = np_now_ns() - start;

    if (code == 0)
        code = np_run_finish_save(run, &err);
    return code < 0 ? 0 : (double)waited * 1e-9;
}

/* --- while training goes on ------------------------------------------------------------------ */

static void *write_main(void *context)
{
    struct np_saving *saving = context;
    const struct np_run *run = saving->run;
    struct np_io io = {0};
    int code;

    for (int i = 0; i < NP_ARRAY_GRADS; i++)
        if (run->arrays[i])
            run->device->plan_ops->snapshot(run->plan, i, run->arrays[i]);
    code = np_log_sync(&run->log, &saving->err);
    if (code == 0)
        code = np_io_open(&io, "pread", 1, &saving->err);
    if (code == 0)
        code = np_checkpoint_write(&io, saving->dir, &saving->checkpoint, &saving->err);
    if (code == 0)
        tidy(&io, saving->dir, &run->config->checkpoint, &saving->checkpoint.position,
            saving->notes);
    np_io_close(&io);
    return NULL;
}

/* The copies are on the host. Takes state. */
static int start_writing(struct np_run *run, char *state, struct np_err *err)
{
    struct np_saving *saving = run->saving;

    keep_state(run, state);
    const char *facts = np_run_facts_json(run);
    if (!facts)
        return np_err_set(err, -ENOMEM, "out of memory for the checkpoint's facts");
    saving->checkpoint.facts_json = saving->facts = np_strdup(facts);
    if (pthread_create(&saving->thread, NULL, write_main, saving) == 0)
        saving->writing = true;
    else
        write_main(saving); /* without a thread: training waits */
    return 0;
}

/* Ends it; code: of what came before. */
static int end_saving(struct np_run *run, int code, struct np_err *err)
{
    struct np_saving *saving = run->saving;
    const uint64_t step = saving->checkpoint.position.step;

    if (code == 0 && saving->err.code)
        code = np_err_set(err, saving->err.code, "%s", saving->err.text);
    if (code == 0) {
        say_notes(run, saving->notes);
        report(run, &saving->checkpoint.position, saving->start_ns, saving->waited_ns);
    }
    run->saving = NULL;
    np_free(saving->dir);
    np_free(saving->facts);
    np_free(saving);
    return code < 0 ? explain(run, step, code, err) : 0;
}

/* Takes the next step of the checkpoint under way, if it can be taken; wait: until it can. */
static int advance(struct np_run *run, bool wait, struct np_err *err)
{
    struct np_saving *saving = run->saving;
    const uint64_t start = np_now_ns();
    char *state = NULL;
    int code;

    if (saving->writing) {
        if (wait ? pthread_join(saving->thread, NULL) : pthread_tryjoin_np(saving->thread, NULL))
            return 0;
        saving->waited_ns += np_now_ns() - start;
        return end_saving(run, 0, err);
    }
    const int copied = run->device->plan_ops->snapped(run->plan, wait, &state, err);
    code = copied > 0 ? start_writing(run, state, err) : copied;
    saving->waited_ns += np_now_ns() - start;
    return code < 0 || (copied > 0 && !saving->writing) ? end_saving(run, code, err) : 0;
}

bool np_run_poll_save(struct np_run *run)
{
    if (run->saving)
        advance(run, false, &run->save_err);
    return run->saving && !run->saving->writing;
}

void np_run_settle_save(struct np_run *run)
{
    struct np_err err = {0};

    if (np_run_finish_save(run, &err) < 0)
        np_run_say(run, "%s", err.text);
}

int np_run_finish_save(struct np_run *run, struct np_err *err)
{
    int code = run->save_err.code;

    if (code) {
        *err = run->save_err;
        run->save_err = (struct np_err){0};
        return code;
    }
    if (!run->saving)
        return 0;
    np_stat_wait(run->block, NP_STATE_BLOCKED, "save", "the checkpoint of an earlier step",
        run->saving->checkpoint.position.step);
    while (code == 0 && run->saving)
        code = advance(run, true, err);
    np_stat_done(run->block);
    return code;
}

bool np_run_saves(const struct np_run *run, uint64_t step, bool eval_due)
{
    const struct np_position *position = run->saving ? &run->saving->checkpoint.position : NULL;

    return position && position->step == step && position->eval_due == eval_due;
}

/* Queues the copies. */
static int snap(struct np_run *run, uint64_t start, struct np_err *err)
{
    struct np_position now = run->position;
    int code = np_log_sizes(&run->log, false, &now, err);

    np_track_flush(run->track);
    if (code == 0)
        code = run->device->plan_ops->snap(run->plan, err);
    if (code < 0)
        return code;
    run->position = now;
    run->best_unsaved = false;
    run->saving = np_alloc(sizeof(*run->saving));
    np_run_fill_checkpoint(run, &run->saving->checkpoint);
    run->saving->run = run;
    run->saving->dir = np_format("%s/checkpoints", run->dir);
    run->saving->start_ns = start;
    run->saving->waited_ns = np_now_ns() - start;
    return 0;
}

int np_run_start_save(struct np_run *run, uint64_t step, bool eval_due, struct np_err *err)
{
    const uint64_t start = np_now_ns();
    struct np_err why = {0};
    int code = np_run_finish_save(run, err);

    if (code < 0 || !np_run_leads(run) || !run->device->plan_ops->snap)
        return code < 0 ? code : np_run_save(run, step, eval_due, err);
    np_run_at(run, "saving");
    run->position.step = step;
    run->position.eval_due = eval_due;
    code = snap(run, start, &why);
    if (code == -EAGAIN)
        return np_run_save(run, step, eval_due, err);
    /* This thread may next wait for another process, whose storage does not answer, and not poll. */
    if (code == 0 && run->comm)
        return advance(run, true, err);
    return code < 0 ? explain(run, step, np_err_set(err, code, "%s", why.text), err) : 0;
}
