/* libnnpipe's dealt order: one generator a worker, epochs that continue, the program's own generator. What torch
 * itself draws is compared where torch is (tests/flow/like.py). */
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "loader/base/torch_rng.h"
#include "tests/test.h"
#include "tests/unit/made_lib.h"
#include "tests/unit/made_sets.h"

enum { N = 24, ROWS = 8 };

static char *folder;

static void make(void)
{
    folder = made_pictures(N);
}

static void clear(void)
{
    remove_set(folder);
}

static float own_exp(void *context, float x)
{
    return expf(x);
}

static float own_log(void *context, float x)
{
    return logf(x);
}

static struct nnp_deal deal_of(int workers, float probes[NNP_DEAL_PROBES])
{
    struct np_torch_rng rng;

    np_torch_seed(&rng, 1);
    for (int i = 0; i < NNP_DEAL_PROBES; i++)
        probes[i] = np_torch_uniform(&rng, 0.08f, 1, true);
    return (struct nnp_deal){.bytes = sizeof(struct nnp_deal),
        .workers = workers,
        .transforms_version = 1,
        .exp = own_exp,
        .log = own_log,
        .probes = probes};
}

static struct nnp_data *files(void)
{
    static const int64_t labels[N];
    const char *paths[N];
    char names[N][16], root[600], error[1024] = "";
    struct nnp_data *data;

    for (int i = 0; i < N; i++) {
        snprintf(names[i], sizeof(names[i]), "%c/%02d.jpg", 'a' + i % 3, i);
        paths[i] = names[i];
    }
    snprintf(root, sizeof(root), "%s/set", folder);
    data = nnp_data_files(root, paths, labels, N, NULL, 0, error, sizeof(error));
    cr_assert_not_null(data, "%s", error);
    return data;
}

static struct nnp_loader *undealt(const char *options)
{
    char all[100];

    snprintf(all, sizeof(all), "order=dealt %s", options ? options : "");
    return made_open(
        MADE_LOADER(", prefetch: 3, bad_samples: {budget: 100%}"), folder, files(), all);
}

static struct nnp_loader *dealt(int workers)
{
    struct nnp_loader *loader = undealt(NULL);
    float probes[NNP_DEAL_PROBES];
    const struct nnp_deal deal = deal_of(workers, probes);

    cr_assert_eq(nnp_deal(loader, &deal), 0, "%s", made_error(loader));
    return loader;
}

/* Samples first, first + 5, ... modulo N. */
static void begin(
    struct nnp_loader *loader, int first, int n, uint64_t seed, bool continues, uint64_t nr_skipped)
{
    int64_t samples[3 * N];

    for (int i = 0; i < n; i++)
        samples[i] = (first + 5 * i) % N;
    cr_assert_eq(nnp_deal_epoch(loader, samples, (uint64_t)n, seed, continues, nr_skipped), 0, "%s",
        made_error(loader));
}

static void end(struct nnp_loader *loader)
{
    struct nnp_batch *batch;

    cr_assert_eq(nnp_next(loader, -1, &batch), 0, "%s", made_error(loader));
}

Test(lib_deal, an_order_of_the_config_is_refused, .init = make, .fini = clear, .timeout = 120)
{
    static const char *const configs[] = {
        MADE_LOADER(", balance: classes"), MADE_LOADER(", repeat: 3")};
    static const char *const wanted[] = {"loader.balance: the program deals the order",
        "loader.repeat: the program deals the order"};

    for (int i = 0; i < 2; i++) {
        struct nnp_data *data = files();
        int code = 0;
        const char *text = made_refusal(configs[i], folder, data, "order=dealt", &code);

        cr_expect(code == -EINVAL && strstr(text, wanted[i]), "%d: %s", code, text);
        nnp_data_free(data);
    }
}

Test(lib_deal, rows_are_the_dealt_samples_and_the_last_batch_is_short, .init = make, .fini = clear,
    .timeout = 120)
{
    for (int workers = 1; workers <= 3; workers += 2) {
        struct nnp_loader *loader = dealt(workers);

        begin(loader, 3, 20, 77, false, 0);
        cr_expect_eq(nnp_length(loader), 3u);
        for (int k = 0; k < 3; k++) {
            struct nnp_batch *batch = made_next(loader);

            cr_expect_eq(nnp_batch_rows(batch), k < 2 ? ROWS : 4);
            cr_expect_eq(nnp_batch_nr_bad(batch), 0);
            for (int r = 0; r < nnp_batch_rows(batch); r++)
                cr_expect_eq(nnp_batch_sample(batch, r), (uint64_t)(3 + 5 * (k * ROWS + r)) % N);
            nnp_batch_release(batch);
        }
        end(loader);
        nnp_close(loader);
    }
}

Test(lib_deal, batch_k_has_the_draws_of_worker_k_modulo_their_number, .init = make, .fini = clear,
    .timeout = 120)
{
    struct nnp_loader *three = dealt(3), *one = dealt(1);

    begin(three, 0, N, 50, false, 0);
    for (int k = 0; k < 3; k++) {
        const uint64_t sum = made_next_digest(three);

        begin(one, k * ROWS * 5 % N, ROWS, 50 + (uint64_t)k, false, 0);
        cr_expect_eq(made_next_digest(one), sum, "batch %d", k);
        end(one);
    }
    nnp_close(three);
    nnp_close(one);
}

Test(lib_deal, an_epoch_is_the_same_for_the_same_seed_alone, .init = make, .fini = clear,
    .timeout = 120)
{
    struct nnp_loader *loader = dealt(2), *other = dealt(2);
    uint64_t sum;

    begin(loader, 0, N, 5, false, 0);
    begin(other, 0, N, 5, false, 0);
    sum = made_run(loader, 3);
    cr_expect_eq(made_run(other, 3), sum);
    end(loader);
    begin(loader, 0, N, 6, false, 0);
    cr_expect_neq(made_run(loader, 3), sum);
    begin(loader, 0, N, 9, false, 0); /* broken off after one batch, and before one is taken */
    made_run(loader, 1);
    begin(loader, 1, N, 8, false, 0);
    begin(loader, 0, N, 5, false, 0);
    cr_expect_eq(made_run(loader, 3), sum);
    end(loader);
    nnp_close(loader);
    nnp_close(other);
}

/* Of one long epoch [S, S] the second half is what an epoch S gives that continues after S. */
Test(lib_deal, generators_continue_after_a_whole_epoch, .init = make, .fini = clear, .timeout = 120)
{
    struct nnp_loader *parts = dealt(1), *whole = dealt(1);
    uint64_t sum;

    begin(whole, 0, 2 * N, 5, false, 0); /* N is a multiple of the batch, and 5 N of N */
    begin(parts, 0, N, 5, false, 0);
    cr_expect_eq(made_run(parts, 3), made_run(whole, 3));
    end(parts);
    sum = made_run(whole, 3);
    begin(parts, 0, N, 1234, true, 0);
    cr_expect_eq(made_run(parts, 3), sum);
    end(parts);
    begin(parts, 0, N, 5, false, 0); /* and anew */
    made_run(parts, 3);
    end(parts);
    begin(parts, 0, N, 1234, true, 3);
    cr_expect_eq(made_run(parts, 3), sum);
    nnp_close(parts);
    nnp_close(whole);
}

Test(lib_deal, a_broken_epoch_skips_what_workers_had_drawn, .init = make, .fini = clear,
    .timeout = 120)
{
    struct nnp_loader *broken = dealt(1), *whole = dealt(1);
    uint64_t sums[3];

    begin(whole, 0, 3 * N, 5, false, 0);
    made_run(whole, 2);
    for (int i = 0; i < 3; i++)
        sums[i] = made_next_digest(whole); /* batches 2, 3, 4: samples from 16, 0, 8 */
    for (uint64_t skipped = 0; skipped <= 2; skipped++) {
        begin(broken, 0, 3 * N, 5, false, 0);
        made_run(broken, 1);
        begin(broken, 2 * ROWS * 5 % N, ROWS, 0, true,
            skipped); /* skips at least the batch that was taken */
        if (skipped == 2)
            cr_expect_eq(made_next_digest(broken), sums[0]);
        else
            cr_expect_neq(made_next_digest(broken), sums[0]);
    }
    begin(broken, 0, 3 * N, 5, false, 0);
    begin(
        broken, 4 * ROWS * 5 % N, ROWS, 0, true, 4); /* none was taken; more than the ring holds */
    cr_expect_eq(made_next_digest(broken), sums[2]);
    nnp_close(broken);
    nnp_close(whole);
}

/* Functions of the program that fail at every other call. */
struct moody {
    int nr_logs, nr_exps;
};

static float moody_exp(void *context, float x)
{
    return ((struct moody *)context)->nr_exps++ % 2 ? expf(x) : NAN;
}

static float moody_log(void *context, float x)
{
    return ((struct moody *)context)->nr_logs++ % 2 ? logf(x) : NAN;
}

/* Takes a batch; each failure of the two must be an error that changes nothing. */
static uint64_t take_moody(struct nnp_loader *loader, const struct moody *moody)
{
    struct nnp_batch *batch = NULL;
    uint64_t epoch, number, before;
    int code;

    nnp_position(loader, &epoch, &before);
    for (;;) {
        const int nr_asked = moody->nr_logs + moody->nr_exps;

        code = nnp_next(loader, -1, &batch);
        if (code != -ECANCELED)
            break;
        cr_expect_str_eq(made_error(loader), "the program's exp() or log() failed");
        cr_expect(moody->nr_logs + moody->nr_exps > nr_asked);
        nnp_position(loader, &epoch, &number);
        cr_expect_eq(number, before);
    }
    cr_assert_eq(code, 1, "%d: %s", code, made_error(loader));
    const uint64_t sum = made_digest(loader, batch);
    nnp_batch_release(batch);
    return sum;
}

Test(lib_deal, where_exp_or_log_of_the_program_fails_the_call_can_be_repeated, .init = make,
    .fini = clear, .timeout = 120)
{
    struct nnp_loader *loader = undealt(NULL), *other = dealt(2);
    float probes[NNP_DEAL_PROBES];
    struct nnp_deal deal = deal_of(2, probes);
    struct moody moody = {0};

    deal.exp = moody_exp;
    deal.log = moody_log;
    deal.context = &moody;
    cr_assert_eq(nnp_deal(loader, &deal), 0);
    for (int i = 0; i < 200 && moody.nr_exps < 2; i++) {
        begin(loader, i, 3 * N, (uint64_t)i, false, 0);
        begin(other, i, 3 * N, (uint64_t)i, false, 0);
        for (int k = 0; k < 3 * N / ROWS; k++)
            cr_expect_eq(
                take_moody(loader, &moody), made_next_digest(other), "epoch %d, batch %d", i, k);
    }
    cr_expect(moody.nr_logs >= 2 && moody.nr_exps >= 2, "%d, %d", moody.nr_logs, moody.nr_exps);
    nnp_close(loader);
    nnp_close(other);
}

/* --- the program's own generator ------------------------------------------------------------------- */

static void state_of(uint64_t seed, uint8_t state[NP_TORCH_STATE_BYTES])
{
    struct np_torch_rng rng;
    const int32_t left = 1;

    memset(state, 0, NP_TORCH_STATE_BYTES);
    memcpy(state + 8, &left, sizeof(left));
    np_torch_seed(&rng, seed);
    np_torch_write(&rng, state);
}

/* Takes a batch with the state, which then has the draws behind it. */
static uint64_t take(struct nnp_loader *loader, uint8_t *state)
{
    uint64_t sum;

    cr_assert_eq(nnp_deal_state(loader, state, NP_TORCH_STATE_BYTES), 0, "%s", made_error(loader));
    sum = made_next_digest(loader);
    cr_assert_eq(nnp_deal_after(loader, state, NP_TORCH_STATE_BYTES), 0);
    return sum;
}

/* draws[k]: words that the program takes between batches k - 1 and k. Each batch must be what a fresh loader makes
 * from the same state. */
static void run_between(struct nnp_loader *loader, const int draws[3])
{
    uint8_t state[NP_TORCH_STATE_BYTES], before[NP_TORCH_STATE_BYTES];

    state_of(99, state);
    begin(loader, 0, N, 0, false, 0);
    for (int k = 0; k < 3; k++) {
        struct nnp_loader *fresh = dealt(0);
        struct np_torch_rng rng;
        uint64_t sum;

        cr_assert(np_torch_read(&rng, state, sizeof(state)));
        for (int i = 0; i < draws[k]; i++)
            np_torch_below(&rng, 10);
        np_torch_write(&rng, state);
        memcpy(before, state, sizeof(state));
        begin(fresh, k * ROWS * 5 % N, ROWS, 0, false, 0);
        sum = take(loader, state);
        cr_expect_eq(sum, take(fresh, before), "batch %d", k);
        cr_expect_arr_eq(state, before, sizeof(state));
        nnp_close(fresh);
    }
    end(loader);
}

Test(lib_deal, without_workers_batches_come_from_the_programs_generator, .init = make,
    .fini = clear, .timeout = 120)
{
    static const int quiet[3] = {0, 0, 0}, some[3] = {0, 3, 0}, each[3] = {1, 700, 2};
    struct nnp_loader *loader = dealt(0);

    for (int i = 0; i < 2; i++) {
        run_between(loader, quiet);
        run_between(loader, some); /* what was made ahead is void */
        run_between(loader, each);
    }
    nnp_close(loader);
}

Test(lib_deal, without_workers_a_state_must_be_given_first, .init = make, .fini = clear,
    .timeout = 120)
{
    struct nnp_loader *loader = dealt(0);
    uint8_t state[NP_TORCH_STATE_BYTES];
    struct nnp_batch *batch = NULL;

    begin(loader, 0, N, 0, false, 0);
    cr_expect_eq(nnp_next(loader, -1, &batch), -EINVAL);
    cr_expect_str_eq(made_error(loader), "nnp_deal_state() must be called first");
    state_of(4, state);
    cr_expect_eq(nnp_deal_after(loader, state, sizeof(state)), -EINVAL);
    cr_expect_str_eq(made_error(loader), "nnp_deal_after() follows nnp_deal_state()");
    cr_expect_eq(nnp_deal_state(loader, state, 10), -EINVAL);
    memset(state + 8, 0xff, 4);
    cr_expect_eq(nnp_deal_state(loader, state, sizeof(state)), -EINVAL);
    cr_expect_eq(nnp_deal_after(loader, state, sizeof(state)), -EINVAL);
    state_of(4, state);
    take(loader, state);
    nnp_close(loader);
}

/* --- threads --------------------------------------------------------------------------------------- */

struct watched {
    struct nnp_loader *loader;
    _Atomic int ended;
};

/* Asks all that does not change the loader. */
static void *watch(void *context)
{
    struct watched *watched = context;
    uint8_t state[NP_TORCH_STATE_BYTES];
    uint64_t epoch, number;
    char text[2048];

    state_of(3, state);
    while (!watched->ended) {
        for (int i = 0; i < 1000; i++) /* without a lock */
            cr_expect(nnp_length(watched->loader) <= 3);
        nnp_position(watched->loader, &epoch, &number);
        cr_expect(number <= 3);
        cr_expect(nnp_counters(watched->loader, text, sizeof(text)) > 0);
        cr_expect_eq(nnp_deal_after(watched->loader, state, sizeof(state)), -EINVAL);
        cr_expect(nnp_error(watched->loader, text, sizeof(text)) > 0);
        nnp_bad_sample(watched->loader, text, sizeof(text));
    }
    return NULL;
}

Test(lib_deal, another_thread_may_ask_at_any_time, .init = make, .fini = clear, .timeout = 120)
{
    struct watched watched = {.loader = dealt(2)};
    pthread_t thread;

    cr_assert_eq(pthread_create(&thread, NULL, watch, &watched), 0);
    for (int epoch = 0; epoch < NP_TIMES(20, 5); epoch++) {
        begin(watched.loader, epoch, epoch % 2 ? N : ROWS, 5, epoch % 3 == 0, 0);
        made_run(watched.loader, 1);
    }
    watched.ended = 1;
    pthread_join(thread, NULL);
    nnp_close(watched.loader);
}

/* --- calls in a wrong order ------------------------------------------------------------------------- */

Test(lib_deal, a_batch_needs_an_epoch_that_has_not_ended, .init = make, .fini = clear,
    .timeout = 120)
{
    struct nnp_loader *loader = dealt(2);
    struct nnp_batch *batch = NULL;

    cr_expect_eq(nnp_next(loader, -1, &batch), -EINVAL);
    cr_expect(strstr(made_error(loader), "call nnp_deal_epoch() first"));
    begin(loader, 0, N, 5, false, 0);
    made_run(loader, 3);
    end(loader);
    cr_expect_eq(nnp_next(loader, -1, &batch), -EINVAL);
    begin(loader, 0, 0, 5, false, 0); /* no samples */
    end(loader);
    cr_expect_eq(nnp_next(loader, -1, &batch), -EINVAL);
    cr_expect_eq(nnp_seek(loader, 0, 0), -EINVAL);
    nnp_close(loader);
}

/* Persistent workers that had drawn the whole epoch: a refused one must not use up what is left of it. */
Test(lib_deal, an_epoch_that_is_refused_leaves_the_present_one_as_it_is, .init = make,
    .fini = clear, .timeout = 120)
{
    struct nnp_loader *loader = dealt(2), *other = dealt(2);
    static const int64_t wrong[1] = {N};

    begin(loader, 0, 2 * N, 5, false, 0);
    begin(other, 0, 2 * N, 5, false, 0);
    cr_expect_eq(made_next_digest(loader), made_next_digest(other));
    cr_expect_eq(nnp_deal_epoch(loader, wrong, 1, 0, 1, 100), -EINVAL);
    for (int k = 1; k < 2 * N / ROWS; k++)
        cr_expect_eq(made_next_digest(loader), made_next_digest(other), "batch %d", k);
    end(loader);
    nnp_close(loader);
    nnp_close(other);
}

Test(lib_deal, wrong_calls_are_refused, .init = make, .fini = clear, .timeout = 120)
{
    struct nnp_loader *loader = undealt(NULL),
                      *own = made_open(MADE_CONFIG(""), folder, NULL, NULL);
    float probes[NNP_DEAL_PROBES];
    struct nnp_deal deal = deal_of(2, probes), wrong;
    static const int64_t samples[2] = {0, N};

    cr_expect_eq(nnp_deal(own, &deal), -EINVAL);
    cr_expect_eq(nnp_deal_epoch(own, samples, 1, 0, 0, 0), -EINVAL);
    cr_expect_eq(nnp_deal_epoch(loader, samples, 1, 0, 0, 0), -EINVAL);
    wrong = deal;
    wrong.bytes = 8;
    cr_expect_eq(nnp_deal(loader, &wrong), -EINVAL);
    wrong = deal;
    wrong.workers = -1;
    cr_expect_eq(nnp_deal(loader, &wrong), -EINVAL);
    wrong = deal;
    wrong.transforms_version = 3;
    cr_expect_eq(nnp_deal(loader, &wrong), -EINVAL);
    probes[100] += 1e-3f;
    cr_expect_eq(nnp_deal(loader, &deal), -ENOTSUP);
    cr_expect(strstr(made_error(loader), "draws random numbers in a way"));
    deal = deal_of(2, probes);
    cr_expect_eq(nnp_deal(loader, &deal), 0);
    cr_expect_eq(nnp_deal(loader, &deal), -EINVAL);
    cr_expect_eq(nnp_deal_epoch(loader, samples, 2, 0, 0, 0), -EINVAL);
    cr_expect_str_eq(made_error(loader), "there is no sample 24: the set has 24");
    cr_expect_eq(nnp_deal_epoch(loader, samples, 1, 0, 0, 0), 0);
    made_next_digest(loader);
    nnp_close(loader);
    nnp_close(own);
}

Test(
    lib_deal, values_of_the_program_are_the_float_rows, .init = make, .fini = clear, .timeout = 120)
{
    struct nnp_loader *loader = undealt("dtype=float32"), *bytes = dealt(1);
    float probes[NNP_DEAL_PROBES], values[3][256];
    struct nnp_deal deal = deal_of(1, probes);
    struct nnp_batch *a, *b;

    for (int i = 0; i < 3 * 256; i++)
        values[i / 256][i % 256] = (float)i * 3.5f - 100;
    deal.values = values[0];
    cr_assert_eq(nnp_deal(loader, &deal), 0);
    memset(values, 0, sizeof(values)); /* copied */
    begin(loader, 0, N, 5, false, 0);
    begin(bytes, 0, N, 5, false, 0);
    a = made_next(loader);
    b = made_next(bytes);
    for (int i = 0; i < ROWS * 16 * 16 * 3; i++)
        cr_assert_eq(((const float *)nnp_batch_images(a))[i],
            (float)(i % 3 * 256 + ((const uint8_t *)nnp_batch_images(b))[i]) * 3.5f - 100);
    nnp_batch_release(a);
    nnp_batch_release(b);
    nnp_close(loader);
    nnp_close(bytes);
}

Test(lib_deal, a_picture_that_is_missing_or_changed_is_masked, .init = make, .fini = clear,
    .timeout = 120)
{
    char path[700];
    struct nnp_loader *loader;
    struct nnp_batch *batch;

    snprintf(path, sizeof(path), "%s/set/c/05.jpg", folder);
    cr_assert_eq(unlink(path), 0);
    loader = dealt(1);
    put_file(folder, "set/b/10.jpg", "P6 3 3 255 aaabbbcccdddeeefffggghhhiii",
        38);                             /* since sizes were read */
    begin(loader, 0, ROWS, 5, false, 0); /* 0, 5, 10, ... */
    batch = made_next(loader);
    cr_expect_eq(nnp_batch_nr_bad(batch), 2);
    for (int r = 0; r < ROWS; r++)
        cr_expect_eq(
            nnp_batch_sample(batch, r), r == 1 || r == 2 ? UINT64_MAX : (uint64_t)(5 * r % N));
    nnp_batch_release(batch);
    nnp_close(loader);
}
