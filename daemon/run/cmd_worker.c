/* `nnpipe worker`: trains a queued run in a folder of its own. Only the service starts it
 * (daemon/service/worker.c). Reads the job from standard input; the operand is only shown in
 * lists of processes. Writes its log to output/ in segments, progress to the pipe `report`, the
 * result to exit.json. For a run of several processes it starts these, as `nnpipe worker --rank`,
 * and rank 0 writes all of that. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/cmd.h"
#include "daemon/config/config.h"
#include "daemon/run/gang.h"
#include "daemon/run/run_parts.h"
#include "daemon/service/run_enter.h"
#include "daemon/run/run.h"
#include "daemon/run/run_folder.h"
#include "daemon/service/worker.h"
#include "daemon/service/as_user.h"
#include "daemon/service/environment.h"
#include "loader/base/clock.h"
#include "loader/base/io.h"
#include "loader/base/mem.h"
#include "loader/base/text.h"
#include "trainer/comm.h"

#define MAX_SEGMENT (16 << 20) /* bytes of a log's segment */
#define NR_SEGMENTS 4          /* segments kept */
#define REPORT_NS   1000000000ull
#define NOT_ENDED   (-1)

struct worker {
    struct np_job job;
    struct np_launch launch; /* world 1: alone */
    int tell_fd;             /* of a rank: to its parent */
    char device[32];         /* of several, that of the process that failed; "": not known */
    int lock_fd, report_fd;  /* -1: none */
    int segment;
    uint64_t report_ns;
    const char *doing;
    struct np_progress progress;
    struct np_json line;
    struct np_err err;
    enum np_device_trouble trouble;
    bool saved;
    char ended[NP_EARLY_TEXT]; /* why it was done before its last step */
};

static int redirect_output(struct worker *w, struct np_err *err)
{
    const int fd = np_output_open(w->segment);

    if (fd < 0 || dup2(fd, STDOUT_FILENO) < 0 || dup2(fd, STDERR_FILENO) < 0) {
        const int code = fd < 0 ? fd : -errno;

        if (fd >= 0)
            close(fd);
        return np_err_set(
            err, code, "%s/output: cannot be written: %s", w->job.dir, strerror(-code));
    }
    close(fd);
    return 0;
}

/* Starts a new segment when this one is full, and deletes the oldest. */
static void rotate(struct worker *w)
{
    struct stat stat_;

    if (fstat(STDERR_FILENO, &stat_) < 0 || stat_.st_size < MAX_SEGMENT)
        return;
    w->segment++;
    if (redirect_output(w, NULL) == 0)
        np_output_remove(w->segment - NR_SEGMENTS);
}

static bool is_full(int code)
{
    return code == -ENOSPC || code == -EDQUOT;
}

/* Writes exit.json of this attempt. Also called while it runs, so that a killed attempt leaves
 * one. */
static int write_record(struct worker *w, int code)
{
    struct np_json *line = &w->line;

    np_json_begin(line, NULL);
    np_json_int(line, "attempt", w->job.attempt);
    np_json_int(line, "code", code);
    np_json_bool(line, "saved", w->saved);
    np_json_bool(line, "disk_full", is_full(w->err.code));
    np_json_bool(line, "no_device", w->trouble == NP_DEVICE_ABSENT);
    np_json_bool(line, "device_failed", w->trouble == NP_DEVICE_FAILED);
    np_json_text(line, "device", w->device);
    np_json_text(line, "reason", w->err.code ? w->err.text : w->ended);
    const char *text = np_json_end(line);
    return text ? np_write_file("exit.json", text, strlen(text), 0, NULL) : -ENOMEM;
}

/* One write() per line keeps it whole; if the pipe is full the line is lost. */
static void report(struct worker *w, const struct np_run *run, const char *doing)
{
    struct np_json *line = &w->line;

    np_run_progress(run, &w->progress);
    snprintf(w->progress.doing, sizeof(w->progress.doing), "%s", doing);
    np_json_begin(line, NULL);
    np_progress_write(line, &w->progress, false);
    np_json_int(line, "progress", (int64_t)run->nr_done);
    const char *text = np_json_end(line);

    if (text && w->report_fd >= 0 && write(w->report_fd, text, strlen(text)) < 0)
        return;
}

static void at(void *context, const struct np_run *run, const char *doing)
{
    struct worker *w = context;
    const uint64_t now = np_now_ns();

    if (!w->saved && run->saved_step != UINT64_MAX && run->saved_step > run->first_step) {
        w->saved = true;
        write_record(w, NOT_ENDED);
    }
    if (w->doing && strcmp(w->doing, doing) == 0 && now - w->report_ns < REPORT_NS)
        return;
    w->doing = doing;
    w->report_ns = now;
    report(w, run, doing);
    rotate(w);
}

/* Of a rank but 0: its errors go where rank 0's output goes. */
static void at_rank(void *context, const struct np_run *run, const char *doing)
{
    struct worker *w = context;
    const uint64_t now = np_now_ns();

    if (now - w->report_ns < REPORT_NS)
        return;
    w->report_ns = now;
    const int last = np_output_last();
    if (last > w->segment) {
        w->segment = last;
        redirect_output(w, NULL);
    }
}

/* Opens it for reading and writing, so that its readers may come and go. */
static void open_report(struct worker *w)
{
    struct stat stat_;

    if (mkfifo("report", 0600) == 0 || errno == EEXIST)
        w->report_fd = open("report", O_RDWR | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
    if (w->report_fd >= 0 && (fstat(w->report_fd, &stat_) < 0 || !S_ISFIFO(stat_.st_mode))) {
        close(w->report_fd);
        w->report_fd = -1;
    }
}

/* Makes the run's folder the working directory: its path may get another folder later. For a
 * systemd unit the service, of the same user, has created it. */
static int enter_folder(struct worker *w, struct np_err *err)
{
    const bool is_unit = w->job.parent == 0;
    int code = np_folder_make(w->job.dir, w->job.attempt <= 1 && !is_unit, err);

    return code < 0 ? code : np_folder_enter(w->job.dir, err);
}

static int make_places(struct worker *w, struct np_err *err)
{
    int code = np_make_dirs("output", err);

    if (code == 0)
        code = np_folder_lock(".", &w->lock_fd, err); /* until the process is gone */
    if (code < 0)
        return code;
    w->segment = np_output_last();
    if (w->segment == 0)
        w->segment = 1;
    open_report(w);
    return redirect_output(w, err);
}

/* Was the daemon killed between fork() and our lock? It did not record this process, and the
 * next daemon starts the run itself: this process must end. If it is killed later, the next
 * worker finds the lock. */
static bool is_orphan(const struct np_job *job)
{
    return job->parent > 0 && getppid() != job->parent;
}

/* Makes standard input the job's config, to be opened as "-". */
static int put_config(const struct np_job *job, struct np_err *err)
{
    const int fd = np_text_fd(job->config);
    int code = fd < 0 ? fd : 0;

    if (code == 0 && dup2(fd, STDIN_FILENO) < 0)
        code = -errno;
    if (fd >= 0)
        close(fd);
    return code < 0 ? np_err_set(err, code, "the config cannot be passed on: %s", strerror(-code))
                    : 0;
}

static int train(struct worker *w)
{
    const bool leads = w->launch.rank == 0;
    const struct np_run_follower follower = {.at = leads ? at : at_rank,
        .context = w,
        .err = &w->err,
        .ended = w->ended,
        .trouble = &w->trouble};
    const struct np_overrides none = {0};
    const struct np_run_options options = {.follower = &follower,
        .into = ".",
        .into_name = w->job.dir,
        .overrides = &none,
        .launch = &w->launch,
        .submitted = w->job.overrides};
    struct np_config *config = NULL;
    char device[sizeof(w->device)];
    int code = put_config(&w->job, &w->err);

    if (code < 0) {
        np_complain(&w->err);
        return NP_EXIT_FAILED;
    }
    np_gang_device(&w->job, w->launch.rank, device, sizeof(device));
    code = np_cmd_config("-", &none, device, &config);
    if (code == 0)
        code = np_run_train(config, &options);
    else
        np_err_set(&w->err, -EINVAL, "the config is no longer valid: see the log");
    np_config_free(config);
    return code;
}

/* --- several processes ---------------------------------------------------------------------- */

/* Adds to rank 0's record which rank ended the run, and on which device. A rank that was killed makes
 * it the end of a process that died, whatever rank 0 could still write. */
static int correct_record(struct worker *w, const struct np_gang_end *end)
{
    struct np_worker_exit left = {.code = NOT_ENDED};
    char *text = NULL;
    uint64_t bytes;

    if (np_read_file("exit.json", 65536, &text, &bytes, NULL) == 0)
        np_worker_read_exit(text, w->job.attempt, &left);
    np_free(text);
    if (end->rank < 0 || (left.code >= 0 && left.code != NP_EXIT_FAILED))
        return 0;
    w->saved = left.saved;
    w->trouble = end->trouble;
    np_gang_device(&w->job, end->rank, w->device, sizeof(w->device));
    if (end->signal)
        np_err_set(&w->err, -ECHILD, "rank %d, on %s, was killed by SIG%s", end->rank, w->device,
            sigabbrev_np(end->signal));
    else if (end->rank > 0 && (end->trouble != NP_DEVICE_WELL || !*left.reason))
        np_err_set(&w->err, -ECHILD, "rank %d, on %s: %s", end->rank, w->device,
            *end->reason ? end->reason : "it has failed: see the log");
    else if (*left.reason)
        np_err_set(&w->err, left.disk_full ? -ENOSPC : -ECHILD, "%s", left.reason);
    return write_record(w, end->signal ? NOT_ENDED : left.code);
}

static int lead(struct worker *w)
{
    struct np_gang_end end;
    const int code = np_gang_run(&w->job, w->lock_fd, &end);

    return is_full(correct_record(w, &end)) ? NP_WORKER_FULL : code;
}

/* In the folder, and with the output, of its parent. */
static int be_rank(struct worker *w)
{
    const bool leads = w->launch.rank == 0;
    int code;

    w->segment = np_output_last();
    if (leads)
        open_report(w);
    code = train(w);
    np_gang_tell(w->tell_fd, w->launch.rank, w->trouble, &w->err);
    return leads && is_full(write_record(w, code)) ? NP_WORKER_FULL : code;
}

/* --- the command ---------------------------------------------------------------------------- */

static int work(struct worker *w)
{
    int code = enter_folder(w, &w->err);

    if (code < 0) { /* no record: its folder is not ours to write to */
        np_complain(&w->err);
        return code == -EEXIST  ? NP_WORKER_TAKEN
               : code == -EPERM ? NP_WORKER_UNSAFE
               : is_full(code)  ? NP_WORKER_FULL
                                : NP_EXIT_FAILED;
    }
    code = NP_EXIT_FAILED;
    if (make_places(w, &w->err) < 0) {
        np_err_context(&w->err, "%s", w->job.dir);
        np_complain(&w->err);
        if (is_full(w->err.code))
            return NP_WORKER_FULL;
        if (w->err.code == -EBUSY) /* exit.json belongs to the process that has the lock */
            return code;
    } else if (is_orphan(&w->job)) {
        return NP_EXIT_STOPPED;
    } else {
        write_record(w, NOT_ENDED);
        if (w->job.processes > 1)
            return lead(w);
        code = train(w);
    }
    return is_full(write_record(w, code)) ? NP_WORKER_FULL : code;
}

/* text: of --rank, or NULL: a parent, or a worker that trains alone. */
static bool take_rank(struct worker *w, const char *text)
{
    int64_t fd = -1;

    w->launch = (struct np_launch){.world = 1, .local_world = 1};
    if (!text)
        return true;
    if (!np_text_int(text, 3, 1024, &fd) || np_launch_find(&w->launch, &w->err) < 0)
        return false;
    w->tell_fd = (int)fd;
    fcntl(w->tell_fd, F_SETFD, FD_CLOEXEC);
    return true;
}

int np_cmd_worker(int argc, char **argv)
{
    struct worker w = {.lock_fd = -1, .report_fd = -1, .progress = np_progress_unknown};
    const char *rank = NULL;
    const struct np_flag flags[] = {{"--rank", &rank, NULL, NULL}, {NULL, NULL, NULL, NULL}};
    int nr, code = np_flags_parse(argc, argv, flags, NULL, &nr);

    if (code)
        return code;
    if (nr > 1 || isatty(STDIN_FILENO) || !take_rank(&w, rank))
        return np_usage("worker", "only the service starts it; use `nnpipe train`");
    /* The ranks share the input: each opens it anew, to read it from its start. */
    if (np_job_read(rank ? "/proc/self/fd/0" : "/dev/stdin", &w.job, &w.err) < 0) {
        np_complain(&w.err);
        code = NP_EXIT_USAGE;
    } else {
        if (w.job.umask >= 0)
            umask((mode_t)w.job.umask & 0777);
        np_environment_set(w.job.environment);
        code = rank ? be_rank(&w) : work(&w);
    }
    np_node_free(w.job.node);
    np_json_fini(&w.line);
    return code;
}
