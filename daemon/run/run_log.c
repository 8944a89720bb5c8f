/* See run_log.h. */
#include "daemon/run/run_log.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "loader/base/mem.h"
#include "loader/batch.h"

static int open_one(const struct np_run_log *log, const char *name, const uint64_t *cut,
    FILE **ret_file, struct np_err *err)
{
    char *path = np_format("%s/%s", log->dir, name);
    const int fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0666);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "a+");
    struct stat stat;
    int code = 0;

    if (!file)
        code =
            np_err_set(err, -errno, "%s/%s: cannot be opened: %s", log->dir, name, strerror(errno));
    else if (cut && fstat(fileno(file), &stat) == 0 && (uint64_t)stat.st_size > *cut &&
             ftruncate(fileno(file), (off_t)*cut) < 0)
        code = np_err_set(err, -errno, "%s: cannot be cut back: %s", path, strerror(errno));
    np_free(path);
    if (code < 0 && file)
        fclose(file);
    else if (code == 0)
        *ret_file = file;
    return code;
}

/* Logs the resume on a line of its own, even if a power cut left the last line incomplete. */
static void say_cut(struct np_run_log *log, uint64_t step)
{
    bool torn = fseek(log->log, -1, SEEK_END) == 0 && fgetc(log->log) != '\n';
    char text[100];

    fseek(log->log, 0, SEEK_END); /* from reading to writing */
    if (torn)
        fputc('\n', log->log);
    snprintf(text, sizeof(text), "resumed: metrics and other lists were cut back to step %llu",
        (unsigned long long)step);
    np_log_text(log, text);
}

int np_log_open(struct np_run_log *log, const char *dir, bool history,
    const struct np_position *position, struct np_err *err)
{
    log->dir = np_strdup(dir);
    int code = open_one(log, "log", NULL, &log->log, err);
    if (code == 0)
        code = open_one(
            log, "metrics.jsonl", position ? &position->metrics_bytes : NULL, &log->metrics, err);
    if (code == 0)
        code = open_one(
            log, "bad_samples.jsonl", position ? &position->bad_bytes : NULL, &log->bad, err);
    if (code == 0 && history)
        code = open_one(
            log, "history.bin", position ? &position->history_bytes : NULL, &log->history, err);
    if (code == 0 && position)
        say_cut(log, position->step);
    if (code == 0 && log->early) {
        fputs(log->early, log->log);
        fflush(log->log);
    }
    return code;
}

void np_log_close(struct np_run_log *log)
{
    FILE *files[] = {log->log, log->metrics, log->bad, log->history};

    for (int i = 0; i < 4; i++)
        if (files[i])
            fclose(files[i]);
    np_free(log->dir);
    np_free(log->early);
    memset(log, 0, sizeof(*log));
}

void np_log_text(struct np_run_log *log, const char *text)
{
    time_t now = time(NULL);
    char stamp[32], clean[2048];
    struct tm utc;

    gmtime_r(&now, &utc);
    strftime(stamp, sizeof(stamp), "%Y-%m-%dT%H:%M:%SZ", &utc);
    snprintf(clean, sizeof(clean), "%s", text);
    np_text_clean(clean);
    if (log->log) {
        fprintf(log->log, "%s %s\n", stamp, clean);
        fflush(log->log);
        return;
    }
    char *early = np_format("%s%s %s\n", log->early ? log->early : "", stamp, clean);

    np_free(log->early);
    log->early = early;
}

void np_log_line(FILE *file, const char *line)
{
    if (file && line)
        fputs(line, file);
}

void np_log_flush(struct np_run_log *log)
{
    if (log->metrics)
        fflush(log->metrics); /* an error stays with the file: np_log_sizes() returns it */
}

static void put_le(unsigned char *out, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        out[i] = (unsigned char)(value >> (8 * i));
}

void np_log_history(struct np_run_log *log, const struct np_batch *batch, uint32_t rows)
{
    unsigned char number[8];

    if (!log->history)
        return;
    put_le(number, batch->step, 8);
    fwrite(number, 1, 8, log->history);
    put_le(number, rows, 4);
    fwrite(number, 1, 4, log->history);
    for (uint32_t row = 0; row < rows; row++) {
        put_le(number, batch->about[row].sample, 4);
        fwrite(number, 1, 4, log->history);
    }
}

static int size_one(const struct np_run_log *log, FILE *file, const char *name, bool sync,
    uint64_t *ret_bytes, struct np_err *err)
{
    if (!file)
        return 0;
    if (fflush(file) != 0 || ferror(file) || (sync && fdatasync(fileno(file)) < 0))
        return np_err_set(err, errno ? -errno : -EIO, "%s/%s: cannot be written: %s", log->dir,
            name, strerror(errno ? errno : EIO));
    struct stat stat;
    if (fstat(fileno(file), &stat) < 0)
        return np_err_set(err, -errno, "%s/%s: %s", log->dir, name, strerror(errno));
    *ret_bytes = (uint64_t)stat.st_size;
    return 0;
}

int np_log_sizes(
    struct np_run_log *log, bool sync, struct np_position *position, struct np_err *err)
{
    int code = size_one(log, log->log, "log", sync, &position->log_bytes, err);

    if (code == 0)
        code = size_one(log, log->metrics, "metrics.jsonl", sync, &position->metrics_bytes, err);
    if (code == 0)
        code = size_one(log, log->bad, "bad_samples.jsonl", sync, &position->bad_bytes, err);
    if (code == 0)
        code = size_one(log, log->history, "history.bin", sync, &position->history_bytes, err);
    return code;
}
