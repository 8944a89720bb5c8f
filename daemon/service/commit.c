/* See commit.h. */
#include "daemon/service/commit.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bool np_commit_notifies(const struct np_service_options *options, const struct np_entry *entry)
{
    return options->on_end || options->webhook || entry->on_end;
}

int np_commit(struct np_service *service, struct np_service_run *run, const struct np_entry *to,
    struct np_err *err)
{
    const bool was_over = np_entry_is_over(&run->entry), is_over = np_entry_is_over(to);
    struct np_entry written = *to;

    if (is_over != was_over) /* nothing to notify counts as notified */
        written.notified = is_over && !np_commit_notifies(&service->options, to);
    const int code = np_queue_update(service->queue, &written, err);
    if (code < 0)
        return code;
    run->entry = written;
    service->version++;
    return 0;
}

void np_commit_reason(
    struct np_service *service, struct np_service_run *run, const char *format, ...)
{
    struct np_entry to = run->entry;
    struct np_err unwritten = {0};
    va_list args;

    va_start(args, format);
    vsnprintf(to.reason, sizeof(to.reason), format, args);
    va_end(args);
    if (strcmp(to.reason, run->entry.reason) != 0)
        np_commit(service, run, &to, &unwritten);
}

int np_commit_delay(struct np_service *service, struct np_service_run *run, double seconds,
    const char *text, struct np_err *err)
{
    struct np_entry to = run->entry;

    to.not_before = np_service_now() + seconds;
    snprintf(to.reason, sizeof(to.reason), "%s", text);
    return np_commit(service, run, &to, err);
}
