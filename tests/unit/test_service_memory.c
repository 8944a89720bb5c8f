/* What the service allocates by the size of files and requests: each allocation fails once, is reported as -ENOMEM, and
 * nothing is left behind or half done. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/service/book.h"
#include "daemon/service/worker.h"
#include "daemon/service/service_queue.h"
#include "daemon/service/systemd/dropin.h"
#include "loader/base/mem.h"
#include "tests/test.h"
#include "tests/unit/made_memory.h"

static struct np_entry entry_of(void)
{
    return (struct np_entry){.name = "cnn",
        .path = (char *)"/home/ann/cnn.yaml",
        .dir = (char *)"/home/ann/runs",
        .config = (char *)"name: cnn\n",
        .environment = (char *)"A=b\n",
        .overrides = (char *)"seed=2",
        .on_end = (char *)"mail ann",
        .device = "cpu"};
}

/* Fails the first, the second, ... allocation of work() until it has none left to fail; so many there were. */
static int fail_each(int (*work)(void *context), void *context)
{
    for (int n = 1;; n++) {
        made_memory_fail(n);
        const int code = work(context);
        const int failed = made_memory_failed();

        made_memory_fail(0);
        if (!failed) {
            cr_assert_eq(code, 0);
            return n - 1;
        }
        cr_assert_eq(code, -ENOMEM, "allocation %d: %d", n, code);
    }
}

/* --- the queue and the book ------------------------------------------------------------------- */

static void free_book(struct np_service *service)
{
    while (service->nr_runs > 0)
        np_book_drop(service, service->runs[0]);
    np_free(service->runs);
    np_free(service->entries);
}

static int add_to_book(void *context)
{
    struct np_service service = {0};
    const int code = np_book_add(&service, context, NULL);

    cr_assert_eq(service.nr_runs, code == 0);
    free_book(&service);
    return code;
}

static int read_queue(void *context)
{
    struct np_service service = {0};
    const int code = np_queue_read(context, np_book_add, &service, NULL);

    cr_assert(code < 0 || service.nr_runs == 1);
    free_book(&service);
    return code;
}

static int read_text(void *context)
{
    char *config = NULL, *environment = NULL;
    const int code = np_queue_text(context, 1, &config, &environment, NULL);

    cr_assert((config != NULL) == (code == 0) && (environment != NULL) == (code == 0));
    np_free(config);
    np_free(environment);
    return code;
}

Test(service_memory, a_run_is_in_the_book_whole_or_not_at_all)
{
    struct np_entry entry = entry_of();

    cr_assert_eq(fail_each(add_to_book, &entry), 6); /* two arrays, four texts */
}

Test(service_memory, the_queue_is_read_whole_or_not_at_all)
{
    char dir[] = "/tmp/nnpipe-memory-XXXXXX", text[96];
    const struct np_entry entry = entry_of();
    struct np_queue *queue = NULL;
    int64_t id;
    bool known;

    cr_assert_not_null(mkdtemp(dir));
    snprintf(text, sizeof(text), "%s/queue.db", dir);
    cr_assert_eq(np_queue_open(text, NULL, &queue, NULL), 0);
    cr_assert_eq(np_queue_add(queue, &entry, &id, &known, NULL), 0);
    cr_assert_geq(fail_each(read_queue, queue), 10);
    cr_assert_eq(fail_each(read_text, queue), 2);
    np_queue_close(queue);
    snprintf(text, sizeof(text), "rm -rf %s", dir);
    cr_assert_eq(system(text), 0);
}

/* A submission that does not fit into memory must not stay in the file, where its key would name a run
 * that the service does not know. */
Test(service_memory, a_submission_is_in_the_file_and_in_memory_or_in_neither)
{
    char dir[] = "/tmp/nnpipe-memory-XXXXXX", text[96];
    const struct np_entry entry = entry_of();
    struct np_slotted cpu = {.name = "cpu", .nr_slots = 1};
    struct np_service service = {.options = {.devices = &cpu, .nr_devices = 1}};
    int64_t id = 0;
    bool known = true;

    cr_assert_not_null(mkdtemp(dir));
    snprintf(text, sizeof(text), "%s/queue.db", dir);
    cr_assert_eq(np_queue_open(text, NULL, &service.queue, NULL), 0);
    service.names = np_names_new(-1, NULL);
    for (int n = 1, failed = 1; failed; n++) {
        struct np_service read = {0};

        made_memory_fail(n);
        const int code = np_service_submit(&service, &entry, &id, &known, NULL);
        failed = made_memory_failed();
        made_memory_fail(0);
        cr_assert_eq(code, failed ? -ENOMEM : 0, "allocation %d: %d", n, code);
        cr_assert_eq(np_queue_read(service.queue, np_book_add, &read, NULL), 0);
        cr_assert_eq(service.nr_runs, !failed);
        cr_assert_eq(read.nr_runs, !failed, "allocation %d", n);
        free_book(&read);
    }
    cr_assert(!known && np_book_run(&service, id));
    free_book(&service);
    np_names_free(service.names);
    while (waitpid(-1, NULL, 0) > 0) /* what looked up the user's name */
        ;
    np_queue_close(service.queue);
    snprintf(text, sizeof(text), "rm -rf %s", dir);
    cr_assert_eq(system(text), 0);
}

/* --- jobs and units --------------------------------------------------------------------------- */

static int write_job(void *context)
{
    struct np_err err = {0};
    char *text = np_job_text(context, 0, &err);

    cr_assert_eq(text != NULL, err.code == 0);
    np_free(text);
    return err.code;
}

static int read_job(void *context)
{
    struct np_job job;
    struct np_err err = {0};
    const int code = np_job_read(context, &job, &err);

    np_node_free(job.node);
    return code;
}

Test(service_memory, a_job_is_written_and_read_whole_or_not_at_all)
{
    const struct np_entry entry = {.dir = "/r", .assigned = "cpu"};
    struct np_worker_start start = {.entry = &entry, .config = "name: a\n", .environment = ""};
    const int fd = memfd_create("job", MFD_CLOEXEC);
    char path[32], *text = np_job_text(&start, 0, NULL);

    cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    np_free(text);
    cr_assert_geq(fail_each(write_job, &start), 1);
    snprintf(path, sizeof(path), "/dev/fd/%d", fd);
    cr_assert_geq(fail_each(read_job, path), 1);
    close(fd);
}

static int write_dropin(void *context)
{
    struct np_err err = {0};
    char *text = NULL;
    const int code = np_dropin_text("/r", NULL, context, &text, &err);

    np_free(text);
    return code;
}

Test(service_memory, a_drop_in_is_whole_or_not_at_all)
{
    made_memory_fail(1);
    cr_assert_eq(write_dropin((void *)"[]\n"), made_memory_failed() ? -ENOMEM : 0);
    made_memory_fail(0);
    cr_assert_eq(write_dropin((void *)"name: a\n"), 0);
}

/* --- children --------------------------------------------------------------------------------- */

static int speak(const void *context, int out_fd)
{
    (void)context;
    return np_child_write(out_fd, "word", 4) < 0;
}

Test(service_memory, output_of_a_child_needs_memory, .timeout = 120)
{
    const struct np_child_start start = {.uid = geteuid(),
        .gid = getegid(),
        .work = speak,
        .epoll_fd = -1,
        .max_s = 10,
        .max_bytes = 100};
    struct np_child child;
    pid_t pid;

    cr_assert_eq(np_child_start(&start, &child, NULL), 0);
    made_memory_fail(1);
    cr_assert_eq(np_child_turn(&child), -ENOMEM);
    made_memory_fail(0);
    pid = np_child_stop(&child);
    if (pid > 0)
        cr_assert_eq(waitpid(pid, NULL, 0), pid);
}
