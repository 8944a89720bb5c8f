#include "daemon/run/run_log.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "loader/base/mem.h"
#include "loader/batch.h"

static const char *const names[NP_NR_LOGS] = {
    [NP_LOG_TEXT] = "log",
    [NP_LOG_METRICS] = "metrics.jsonl",
    [NP_LOG_BAD] = "bad_samples.jsonl",
    [NP_LOG_HISTORY] = "history.bin",
    [NP_LOG_LOSSES] = NP_LOSSES_FILE,
};

static uint64_t *bytes_of(struct np_position *position, int file)
{
    uint64_t *const bytes[NP_NR_LOGS] = {[NP_LOG_TEXT] = &position->log_bytes,
        [NP_LOG_METRICS] = &position->metrics_bytes,
        [NP_LOG_BAD] = &position->bad_bytes,
        [NP_LOG_HISTORY] = &position->history_bytes,
        [NP_LOG_LOSSES] = &position->losses_bytes};

    return bytes[file];
}

static int open_one(struct np_run_log *log, int file, uint64_t max_bytes, struct np_err *err)
{
    char *path = np_format("%s/%s", log->dir, names[file]);
    const int fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0666);
    struct stat stat;
    int code = 0;

    log->files[file] = fd < 0 ? NULL : fdopen(fd, "a+");
    if (!log->files[file])
        code = np_err_set(err, -errno, "%s: cannot be opened: %s", path, strerror(errno));
    else if (fstat(fd, &stat) == 0 && (uint64_t)stat.st_size > max_bytes &&
             ftruncate(fd, (off_t)max_bytes) < 0)
        code = np_err_set(err, -errno, "%s: cannot be cut back: %s", path, strerror(errno));
    else if (file == NP_LOG_LOSSES)
        log->has_losses = stat.st_size > 0 && max_bytes > 0;
    np_free(path);
    return code;
}

/* Logs the resume on a line of its own, even if a power cut left the last line incomplete. */
static void say_cut(struct np_run_log *log, uint64_t step)
{
    FILE *file = log->files[NP_LOG_TEXT];
    const bool torn = fseek(file, -1, SEEK_END) == 0 && fgetc(file) != '\n';
    char text[100];

    fseek(file, 0, SEEK_END); /* from reading to writing */
    if (torn)
        fputc('\n', file);
    snprintf(text, sizeof(text), "resumed: metrics and other lists were cut back to step %llu",
        (unsigned long long)step);
    np_log_text(log, text);
}

int np_log_open(struct np_run_log *log, const char *dir, unsigned more,
    const struct np_position *position, struct np_err *err)
{
    struct np_position at = position ? *position : (struct np_position){0};
    int code = 0;

    log->dir = np_strdup(dir);
    for (int i = 0; code == 0 && i < NP_NR_LOGS; i++)
        if (i < NP_LOG_HISTORY || more & 1u << i)
            code = open_one(
                log, i, position && i != NP_LOG_TEXT ? *bytes_of(&at, i) : UINT64_MAX, err);
    if (code < 0)
        return code;
    if (position)
        say_cut(log, position->step);
    if (log->early) {
        fputs(log->early, log->files[NP_LOG_TEXT]);
        fflush(log->files[NP_LOG_TEXT]);
    }
    return 0;
}

void np_log_close(struct np_run_log *log)
{
    for (int i = 0; i < NP_NR_LOGS; i++)
        if (log->files[i])
            fclose(log->files[i]);
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
    if (log->files[NP_LOG_TEXT]) {
        fprintf(log->files[NP_LOG_TEXT], "%s %s\n", stamp, clean);
        fflush(log->files[NP_LOG_TEXT]);
        return;
    }
    char *early = np_format("%s%s %s\n", log->early ? log->early : "", stamp, clean);

    np_free(log->early);
    log->early = early;
}

void np_log_line(struct np_run_log *log, enum np_log_file file, const char *line)
{
    if (log->files[file] && line)
        fputs(line, log->files[file]);
}

void np_log_flush(struct np_run_log *log)
{
    if (log->files[NP_LOG_METRICS])
        fflush(log->files
                   [NP_LOG_METRICS]); /* an error stays with the file: np_log_sizes() returns it */
}

static void put_le(FILE *file, uint64_t value, int bytes)
{
    unsigned char number[8] = {0};

    for (int i = 0; i < bytes; i++)
        number[i] = (unsigned char)(value >> (8 * i));
    fwrite(number, 1, (size_t)bytes, file);
}

void np_log_history(struct np_run_log *log, uint64_t step, const uint64_t *samples, uint32_t rows)
{
    FILE *file = log->files[NP_LOG_HISTORY];

    if (!file)
        return;
    put_le(file, step, 8);
    put_le(file, rows, 4);
    for (uint32_t row = 0; row < rows; row++)
        put_le(file, samples[row], 4);
}

void np_log_losses(
    struct np_run_log *log, uint64_t step, const float *losses, uint32_t batch, uint64_t nr_train)
{
    FILE *file = log->files[NP_LOG_LOSSES];

    if (!file)
        return;
    if (!log->has_losses) {
        fputs(NP_LOSSES_MAGIC, file);
        put_le(file, 1, 4);
        put_le(file, batch, 4);
        put_le(file, nr_train, 8);
        log->has_losses = true;
    }
    put_le(file, step, 8);
    for (uint32_t row = 0; row < batch; row++) {
        uint32_t bits;

        memcpy(&bits, &losses[row], sizeof(bits));
        put_le(file, bits, 4);
    }
}

static int cannot_write(const struct np_run_log *log, int file, struct np_err *err)
{
    const int why = errno ? errno : EIO;

    return np_err_set(
        err, -why, "%s/%s: cannot be written: %s", log->dir, names[file], strerror(why));
}

int np_log_sync(const struct np_run_log *log, struct np_err *err)
{
    for (int i = 0; i < NP_NR_LOGS; i++)
        if (log->files[i] && fdatasync(fileno(log->files[i])) < 0)
            return cannot_write(log, i, err);
    return 0;
}

int np_log_sizes(
    struct np_run_log *log, bool sync, struct np_position *position, struct np_err *err)
{
    for (int i = 0; i < NP_NR_LOGS; i++) {
        FILE *file = log->files[i];
        struct stat stat;

        if (!file)
            continue;
        if (fflush(file) != 0 || ferror(file))
            return cannot_write(log, i, err);
        if (fstat(fileno(file), &stat) < 0)
            return np_err_set(err, -errno, "%s/%s: %s", log->dir, names[i], strerror(errno));
        *bytes_of(position, i) = (uint64_t)stat.st_size;
    }
    return sync ? np_log_sync(log, err) : 0;
}
