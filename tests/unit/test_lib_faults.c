/* libnnpipe when memory runs out, after fork(), and with several threads. */
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "loader/base/torch_rng.h"
#include "loader/lib/lib.h"
#include "tests/test.h"
#include "tests/unit/made_lib.h"
#include "tests/unit/made_memory.h"
#include "tests/unit/made_sets.h"

enum { N = 12, MAX_ALLOCATIONS = 2000 };

static char *folder;

static void make(void)
{
    folder = made_pictures(N);
}

static void clear(void)
{
    remove_set(folder);
}

/* --- memory ---------------------------------------------------------------------------------------- */

/* Opens, takes an epoch and closes. 0, or the first error, whose text must be there. */
static int whole_run(struct nnp_data *data, const char *config, uint64_t *ret_sum)
{
    struct nnp_loader *loader = NULL;
    char error[1024] = "";
    int code = nnp_open(config, folder, data, NULL, &loader, error, sizeof(error));

    *ret_sum = 0;
    if (code < 0) {
        cr_expect(*error);
        nnp_data_free(data);
        return code;
    }
    for (struct nnp_batch *batch; (code = nnp_next(loader, -1, &batch)) > 0;) {
        *ret_sum = *ret_sum * 31 + made_digest(loader, batch);
        nnp_batch_release(batch);
    }
    if (code < 0)
        cr_expect(*made_error(loader));
    nnp_close(loader);
    return code;
}

Test(lib_faults, each_allocation_that_fails_is_an_error_or_changes_no_batch, .init = make,
    .fini = clear, .timeout = 120)
{
    uint64_t sum, expected;
    int n = 0, nr_failed = 0, code;

    cr_assert_eq(whole_run(NULL, MADE_CONFIG(""), &expected), 0); /* writes the index and entries */
    do {
        made_memory_fail(++n);
        code = whole_run(NULL, MADE_CONFIG(""), &sum);
        nr_failed += code == -ENOMEM;
        cr_expect(code == 0 ? sum == expected : code == -ENOMEM, "allocation %d in %s(): %d", n,
            made_memory_caller(), code);
    } while (made_memory_failed() && n < MAX_ALLOCATIONS);
    made_memory_fail(0);
    cr_expect(n < MAX_ALLOCATIONS && nr_failed > 50, "%d of %d", nr_failed, n);
}

static const int64_t labels[] = {0, 1, 2};

static struct nnp_data *files(char *error, size_t error_bytes)
{
    static const char *const paths[] = {"set/a/00.jpg", "set/b/01.jpg", "set/c/02.jpg"};
    static const char *const classes[] = {"x", "y", "z"};

    return nnp_data_files(folder, paths, labels, 3, classes, 3, error, error_bytes);
}

/* Whole files as parts. */
static struct nnp_data *extents(char *error, size_t error_bytes)
{
    static const char *const names[] = {"a/00", "b/01", "c/02"};
    struct nnp_extent parts[3] = {0};
    char texts[3][600];
    const char *paths[3];

    for (uint64_t i = 0; i < 3; i++) {
        struct stat st;

        snprintf(texts[i], sizeof(texts[i]), "%s/set/%s.jpg", folder, names[i]);
        paths[i] = texts[i];
        cr_assert_eq(stat(paths[i], &st), 0);
        parts[i] = (struct nnp_extent){.file = i, .bytes = (uint64_t)st.st_size};
    }
    return nnp_data_extents(paths, 3, parts, labels, 3, error, error_bytes);
}

static struct nnp_data *pixels(char *error, size_t error_bytes)
{
    static const uint8_t made[3 * 20 * 20 * 3] = {7, 8, 9};

    return nnp_data_pixels(made, 3, 20, 20, 3, labels, error, error_bytes);
}

/* Fails each allocation of open_data() in turn, those of malloc() if libc. */
static void data_failing(struct nnp_data *(*open_data)(char *error, size_t error_bytes), bool libc)
{
    uint64_t sum, expected;
    int n = 0, nr_failed = 0;
    bool failed;

    cr_assert_eq(whole_run(open_data(NULL, 0), MADE_LOADER(""), &expected), 0);
    do {
        char error[1024] = "";
        struct nnp_data *data;

        n++;
        if (libc)
            made_memory_fail_libc(n);
        else
            made_memory_fail(n);
        data = open_data(error, sizeof(error));
        failed = libc ? made_memory_failed_libc() : made_memory_failed();
        made_memory_fail_libc(0);
        made_memory_fail(0);
        nr_failed += !data;
        if (data) {
            cr_expect_eq(whole_run(data, MADE_LOADER(""), &sum), 0);
            cr_expect_eq(sum, expected);
        } else {
            cr_expect(strstr(error, "out of memory"), "allocation %d: %s", n, error);
        }
    } while (failed && n < MAX_ALLOCATIONS);
    cr_expect(n < MAX_ALLOCATIONS && (nr_failed > 10 || libc), "%d of %d", nr_failed, n);
#ifndef NP_SAN
    cr_expect(nr_failed > 10, "%d of %d", nr_failed, n);
#endif
}

Test(lib_faults, data_without_memory_are_an_error, .init = make, .fini = clear, .timeout = 120)
{
    data_failing(files, false);
    data_failing(files, true);
    data_failing(extents, false);
    data_failing(extents, true);
    data_failing(pixels, false);
    data_failing(pixels, true);
}

/* The readers start again in the call that follows a new position. */
Test(lib_faults, a_start_without_memory_is_an_error_after_which_a_position_can_be_set, .init = make,
    .fini = clear, .timeout = 120)
{
    struct nnp_loader *loader = made_open(MADE_CONFIG(""), folder, NULL, NULL);
    const uint64_t expected = made_next_digest(loader);
    int n = 0, nr_failed = 0, code;

    do {
        struct nnp_batch *batch = NULL;

        cr_assert_eq(nnp_seek(loader, 0, 1), 0);
        cr_assert_eq(nnp_seek(loader, 0, 0), 0);
        made_memory_fail(++n);
        code = nnp_next(loader, -1, &batch);
        if (code == 1) {
            cr_expect_eq(made_digest(loader, batch), expected);
            nnp_batch_release(batch);
            continue;
        }
        nr_failed++;
        cr_expect_eq(code, -ENOMEM, "allocation %d in %s(): %d", n, made_memory_caller(), code);
        cr_expect(strstr(made_error(loader), "memory"), "%s", made_error(loader));
    } while (made_memory_failed() && n < MAX_ALLOCATIONS);
    made_memory_fail(0);
    cr_expect(n < MAX_ALLOCATIONS && nr_failed > 30, "%d of %d", nr_failed, n);
    nnp_close(loader);
}

#ifndef NP_SAN
/* malloc() of this thread alone: the parser of the config, whose own functions end a process without memory. */
Test(
    lib_faults, an_open_without_memory_ends_no_process, .init = make, .fini = clear, .timeout = 120)
{
    int n = 0, nr_failed = 0, code, failed;

    do {
        struct nnp_loader *loader = NULL;
        char error[1024] = "";

        made_memory_fail_libc(++n);
        code = nnp_open(MADE_CONFIG(""), folder, NULL, NULL, &loader, error, sizeof(error));
        failed = made_memory_failed_libc();
        made_memory_fail_libc(0);
        nr_failed += code < 0;
        cr_expect(code == 0 || *error, "allocation %d: %d, without a text", n, code);
        if (!code)
            made_next_digest(loader);
        nnp_close(loader);
    } while (failed && n < MAX_ALLOCATIONS);
    cr_expect(n < MAX_ALLOCATIONS && nr_failed > 100, "%d of %d", nr_failed, n);
}
#endif

/* --- dealt order ----------------------------------------------------------------------------------- */

static float own_exp(void *context, float x)
{
    return expf(x);
}

static float own_log(void *context, float x)
{
    return logf(x);
}

static int dealt_run(struct nnp_data *data)
{
    static const char *const options[] = {"order=dealt", "dtype=float32", NULL};
    static const int64_t samples[] = {2, 0, 1, 1, 2, 0, 0, 1, 2};
    struct nnp_loader *loader = NULL;
    float probes[NNP_DEAL_PROBES];
    const struct nnp_deal deal = {sizeof(deal), 2, 2, own_exp, own_log, NULL, probes, NULL};
    struct np_torch_rng rng;
    char error[1024];
    int code = nnp_open(MADE_LOADER(""), folder, data, options, &loader, error, sizeof(error));

    np_torch_seed(&rng, 1);
    for (int i = 0; i < NNP_DEAL_PROBES; i++)
        probes[i] = np_torch_uniform(&rng, 0.08f, 1, false);
    if (code < 0) {
        nnp_data_free(data);
        return code;
    }
    code = nnp_deal(loader, &deal);
    if (!code)
        code = nnp_deal_epoch(loader, samples, 9, 1, 0, 0);
    if (!code)
        code = 1;
    for (struct nnp_batch *batch; code > 0;)
        if ((code = nnp_next(loader, -1, &batch)) > 0)
            nnp_batch_release(batch);
    nnp_close(loader);
    return code;
}

Test(lib_faults, a_dealt_run_reports_each_failed_allocation, .init = make, .fini = clear,
    .timeout = 120)
{
    int n = 0, nr_failed = 0, code;

    do {
        struct nnp_data *data = files(NULL, 0);

        made_memory_fail(++n);
        code = dealt_run(data);
        nr_failed += code == -ENOMEM;
        cr_expect(code == 0 || code == -ENOMEM, "allocation %d in %s(): %d", n,
            made_memory_caller(), code);
    } while (made_memory_failed() && n < MAX_ALLOCATIONS);
    made_memory_fail(0);
    cr_expect(n < MAX_ALLOCATIONS && nr_failed > 30, "%d of %d", nr_failed, n);
}

/* --- fork ------------------------------------------------------------------------------------------- */

/* In the child: the number of the first wrong answer; 0: none. */
static int ask_foreign(struct nnp_loader *loader, struct nnp_batch *batch)
{
    struct nnp_batch *other;
    struct nnp_loader *own;
    uint64_t epoch, number;
    char text[1024];

    if (nnp_next(loader, -1, &other) != -ECHILD || nnp_seek(loader, 0, 0) != -ECHILD)
        return 1;
    if (nnp_counters(loader, text, sizeof(text)) != -ECHILD || nnp_flush(loader) != -ECHILD)
        return 2;
    if (nnp_bad_sample(loader, text, sizeof(text)) != -ECHILD ||
        nnp_deal_state(loader, NULL, 0) != -ECHILD)
        return 3;
    if (nnp_deal(loader, NULL) != -ECHILD || nnp_deal_epoch(loader, NULL, 0, 0, 0, 0) != -ECHILD ||
        nnp_deal_after(loader, NULL, 0) != -ECHILD)
        return 4;
    nnp_position(loader, &epoch, &number);
    if (epoch || number || !nnp_error(loader, text, sizeof(text)) ||
        !strstr(text, "open one in each process"))
        return 5;
    if (nnp_batch_rows(batch) != 8 || nnp_length(loader) != 2)
        return 6;
    nnp_batch_release(batch);
    nnp_close(loader);
#ifdef NP_SAN /* whose own locks a child may find held: it can start no thread, or hangs in malloc() */
    return 0;
#endif
    if (nnp_open(MADE_CONFIG(""), folder, NULL, NULL, &own, text, sizeof(text)) < 0 ||
        nnp_next(own, -1, &other) != 1)
        return 7;
    nnp_batch_release(other);
    nnp_close(own);
    return 0;
}

Test(lib_faults, after_fork_a_loader_is_the_parents, .init = make, .fini = clear, .timeout = 120)
{
    struct nnp_loader *loader = made_open(MADE_CONFIG(""), folder, NULL, NULL),
                      *other = made_open(MADE_CONFIG(""), folder, NULL, NULL);
    struct nnp_batch *batch = made_next(loader);
    int status = -1;

    for (int i = 0; i < NP_TIMES(20, 3); i++) {
        const pid_t child = fork();

        if (child == 0)
            _exit(ask_foreign(loader, batch));
        cr_assert_eq(waitpid(child, &status, 0), child);
        cr_expect_eq(status, 0, "%d", status >> 8);
    }
    cr_expect_eq(made_digest(loader, batch), made_next_digest(other));
    nnp_batch_release(batch);
    cr_expect_eq(made_next_digest(loader), made_next_digest(other));
    nnp_close(loader);
    nnp_close(other);
}

/* --- threads ---------------------------------------------------------------------------------------- */

enum { THREADS = 3, EPOCHS = 20 };

struct shared {
    struct nnp_loader *loader;
    _Atomic int nr_rows, nr_ends, seen[N], ended;
};

static void *take_all(void *context)
{
    struct shared *shared = context;
    struct nnp_batch *batch = NULL;

    while (shared->nr_ends < EPOCHS) {
        const int code = nnp_next(shared->loader, 5, &batch);

        shared->nr_ends += code == 0;
        if (code == 1) {
            for (int r = 0; r < nnp_batch_rows(batch) && nnp_batch_epoch(batch) < EPOCHS; r++)
                shared->seen[nnp_batch_sample(batch, r)]++;
            nnp_batch_release(batch);
        } else if (code < 0 && code != -ETIMEDOUT) {
            cr_expect(false, "%d: %s", code, made_error(shared->loader));
            break;
        }
    }
    return NULL;
}

static void *watch(void *context)
{
    struct shared *shared = context;
    char text[2048];

    while (!shared->ended) {
        cr_expect(nnp_counters(shared->loader, text, sizeof(text)) > 0);
        nnp_error(shared->loader, text, sizeof(text));
    }
    return NULL;
}

Test(lib_faults, several_threads_share_the_batches_of_a_loader, .init = make, .fini = clear,
    .timeout = 120)
{
    static struct shared shared;
    pthread_t threads[THREADS], watcher;

    memset(&shared, 0, sizeof(shared));
    shared.loader = made_open(MADE_CONFIG(""), folder, NULL, NULL);
    cr_assert_eq(pthread_create(&watcher, NULL, watch, &shared), 0);
    for (int i = 0; i < THREADS; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, take_all, &shared), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < N; i++)
        cr_expect_eq(shared.seen[i], EPOCHS);
    for (int i = 0; i < NP_TIMES(30, 5); i++) { /* counters while readers stop and start */
        cr_expect_eq(nnp_seek(shared.loader, (uint64_t)i % 4, 1), 0);
        made_next_digest(shared.loader);
    }
    shared.ended = 1;
    pthread_join(watcher, NULL);
    nnp_close(shared.loader);
}

struct waiter {
    struct nnp_loader *loader;
    _Atomic int nr_calls;
    int code;
};

static void *take_until_closed(void *context)
{
    struct waiter *waiter = context;
    struct nnp_batch *batch;

    do {
        waiter->nr_calls++;
        waiter->code = nnp_next(waiter->loader, -1, &batch);
        if (waiter->code > 0)
            nnp_batch_release(batch);
    } while (waiter->code >= 0);
    return NULL;
}

/* No slot is free again, so the batch behind those of the ring never comes; a reader more, which never sleeps, hides
 * that from the ring's search for deadlocks. */
Test(lib_faults, close_ends_a_wait_of_another_thread, .init = make, .fini = clear, .timeout = 120)
{
    struct waiter waiter = {.loader = made_open(MADE_CONFIG(", prefetch: 2"), folder, NULL, NULL)};
    struct np_ring *ring = waiter.loader->running->ring;
    pthread_t thread;

    np_ring_gate(ring);
    np_ring_join(ring);
    cr_assert_eq(pthread_create(&thread, NULL, take_until_closed, &waiter), 0);
    for (bool waits = false; !waits;) /* in the call behind the ring's last batch */
        if (waiter.nr_calls > np_ring_slots(ring)) {
            waits = pthread_mutex_trylock(&waiter.loader->lock) != 0;
            if (!waits)
                pthread_mutex_unlock(&waiter.loader->lock);
        }
    nnp_close(waiter.loader);
    pthread_join(thread, NULL);
    cr_expect_eq(waiter.code, -EINTR);
}
