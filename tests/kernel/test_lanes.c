/* A batch in lanes on the CPU device: 1, 2, 4 and 8 processes, or 1, 3, 6 and 12, and any number of threads,
 * compute the same bits; and what they compute is the reference's. A process is a fork. */
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "loader/base/mem.h"
#include "loader/base/rng.h"
#include "tests/kernel/made_graphs.h"
#include "tests/test.h"
#include "tests/unit/made_memory.h"
#include "trainer/comm.h"
#include "trainer/cpu/tree.h"
#include "trainer/plan.h"

#define BATCH   32
#define LANES   8
#define MOST    40 /* rows, and lanes */
#define SIDE    8
#define CLASSES 5
#define STEPS   2
#define MAX     (1 << 20) /* floats of a result */

static const char *const nets[] = {
    /* 3x3 by Winograd and by oneDNN, batchnorm with relu and with add, dropout, linear */
    "model: [{conv: {out: 16, kernel: 3, pad: 1, bias: false}}, batchnorm, {relu: {name: r}}, "
    "{block: {name: b, "
    "layers: [{conv: {out: 16, kernel: 3, pad: 1, bias: false}}, batchnorm]}}, {add: [r, b]}, "
    "relu, {conv: {out: 24, kernel: 3, stride: 2}}, batchnorm, relu, {dropout: {rate: 0.2}}, "
    "flatten, {linear: {out: 40}}, relu, {linear: {out: classes}}]",
    /* no batchnorm: one group; Winograd with a bias; pools, groups; weighted classes */
    "{model: [{conv: {out: 8, kernel: 3, pad: 1}}, relu, {conv: {out: 8, kernel: 3, pad: 1}}, "
    "relu, "
    "{maxpool: {kernel: 2}}, {conv: {out: 16, kernel: 3, groups: 4}}, relu, flatten, {linear: "
    "{out: "
    "70}}, relu, {linear: {out: classes}}], loss: {cross_entropy: {class_weights: [1, 2, 3, 4, "
    "5]}}}",
    /* a linear layer whose weights are large, of sizes that no slice divides */
    "model: [{conv: {out: 57, kernel: 3}}, relu, flatten, {linear: {out: 70}}, relu, {dropout: "
    "{rate: 0.2}}, {linear: {out: classes}}]",
    /* tokens */
    "model: [{conv: {out: 16, kernel: 2, stride: 2}}, class_token, position, {layernorm: {name: "
    "n}}, {linear: {out: 48}}, {attention: {heads: 2}}, {scale: {init: 0.5}}, {stochastic_depth: "
    "{rate: 0.3}}, gelu, first_token, {linear: {out: classes}}]",
    /* the other normalisations, gates */
    "model: [{conv: {out: 8, kernel: 3}}, {groupnorm: {groups: 2}}, silu, {conv: {name: c, out: 8, "
    "kernel: 1}}, {batchnorm: {name: n}}, {block: {name: gate, from: c, layers: [global_avgpool, "
    "{linear: {out: "
    "8}}, sigmoid]}}, {mul: [n, gate]}, global_avgpool, {linear: {out: classes}}]",
    /* no batchnorm, large convolutions: three groups, each of which completes a bucket */
    "model: [{conv: {out: 64, kernel: 3, stride: 2}}, relu, {conv: {out: 192, kernel: 3}}, relu, "
    "{conv: {out: 192, kernel: 3, pad: 1}}, relu, {conv: {out: 192, kernel: 3, pad: 1}}, relu, "
    "flatten, {linear: {out: classes}}]",
};
enum { NR_NETS = sizeof(nets) / sizeof(*nets) };

struct result { /* of a run; shared by its processes */
    struct np_metrics numbers[MOST], eval[MOST];
    uint64_t nr_params, nr_buffers;
    float grads[MAX], params[MAX], buffers[MAX];
};

struct trial {
    const char *net;
    enum np_dtype precision;
    struct np_plan_options options;
    int world;
    int batch; /* 0: BATCH */
    bool sam;
    struct result *result;
};

struct net {
    struct np_graph *train, *eval;
    float *params, *buffers;
};

static int batch_of(const struct trial *trial)
{
    return trial->batch > 0 ? trial->batch : BATCH;
}

static bool make_net(const struct trial *trial, struct net *net)
{
    struct np_err err = {0};

    net->train = made_good_graph(trial->net,
        (struct made){batch_of(trial) / trial->world, SIDE, SIDE, 3, CLASSES, trial->precision});
    if (!net->train)
        return false;
    net->eval = np_graph_eval(net->train);
    net->params = np_alloc_array(net->train->nr_params + 1, sizeof(float));
    net->buffers = np_alloc_array(net->train->nr_buffers + 1, sizeof(float));
    np_graph_init(net->train, 3, net->params, net->buffers);
    return np_autodiff(net->train, &err) == 0;
}

static void net_fini(struct net *net)
{
    np_graph_free(net->train);
    np_graph_free(net->eval);
    np_free(net->params);
    np_free(net->buffers);
}

/* The rows of one rank: pixels and labels are functions of the row. */
static void make_rows(int first, int nr, uint8_t *images, int32_t *labels)
{
    for (int r = 0; r < nr; r++) {
        struct np_draws draws;

        np_draws_init(&draws, 5, NP_STREAM_TEST, (uint64_t)(first + r), 0, 0);
        for (int i = 0; i < SIDE * SIDE * 3; i++)
            images[r * SIDE * SIDE * 3 + i] = (uint8_t)np_draw_below(&draws, 256);
        labels[r] = (int32_t)np_draw_below(&draws, CLASSES);
    }
}

static int compute(const struct trial *trial, struct np_device *device, struct np_plan *plan,
    struct np_comm *comm, struct np_err *err)
{
    static uint8_t images[MOST * SIDE * SIDE * 3];
    static int32_t labels[MOST];
    const struct np_hyper hyper = {
        .kind = NP_SGD, .lr = 0.05f, .momentum = 0.9f, .sam_rho = trial->sam ? 0.05f : 0};
    const struct np_plan_ops *ops = device->plan_ops;
    struct result *result = trial->result;
    const int rows = batch_of(trial) / trial->world, lanes = trial->options.parts / trial->world;
    const float scale = 1.0f / (float)batch_of(trial);
    const int rank = np_comm_rank(comm);
    struct np_metrics unused;
    int code = 0;

    make_rows(rank * rows, rows, images, labels);
    for (uint64_t step = 0; step < STEPS && code == 0; step++) {
        code = ops->step(plan, images, labels, step, scale, false, err);
        if (trial->options.parts > 1)
            ops->numbers(plan, result->numbers + rank * lanes);
        if (code == 0 && trial->sam)
            code = ops->climb(plan, images, labels, step, scale, &hyper, err);
        if (code == 0 && step == 0 && rank == 0)
            code = ops->read(plan, NP_ARRAY_GRADS, result->grads, err);
        if (code == 0)
            code = ops->update(plan, &hyper, err);
    }
    if (code == 0)
        code = ops->metrics(plan, false, &unused, err);
    for (int r = 0; r < rows; r++)
        if ((rank * rows + r) % 7 == 5 || (rank * rows + r) * LANES / BATCH == 3)
            labels[r] = -1; /* masked: some rows, and a lane */
    if (code == 0)
        code = ops->eval(plan, images, labels, err);
    if (code == 0 && trial->options.parts > 1)
        ops->numbers(plan, result->eval + rank * lanes);
    if (code == 0 && rank == 0)
        code = ops->read(plan, NP_ARRAY_PARAMS, result->params, err);
    return code == 0 && rank == 0 ? ops->read(plan, NP_ARRAY_BUFFERS, result->buffers, err) : code;
}

/* One process's part. */
static bool run_rank(const struct trial *trial, struct np_comm *comm)
{
    struct np_plan_options options = trial->options;
    struct np_device *device = NULL;
    struct np_plan *plan = NULL;
    struct np_err err = {0};
    struct net net = {0};

    options.comm = comm;
    if (!make_net(trial, &net) || np_device_open("cpu", NULL, &device, &err) < 0)
        return false;
    const struct np_plan_ops *ops = device->plan_ops;
    int code = ops->prepare(device, net.train, net.eval, &options, &plan, &err);
    trial->result->nr_params = net.train->nr_params;
    trial->result->nr_buffers = net.train->nr_buffers;
    if (code == 0)
        code = ops->write(plan, NP_ARRAY_PARAMS, net.params, &err);
    if (code == 0)
        code = ops->write(plan, NP_ARRAY_BUFFERS, net.buffers, &err);
    if (code == 0)
        code = compute(trial, device, plan, comm, &err);
    if (code < 0)
        fprintf(stderr, "rank %d: %s\n", np_comm_rank(comm), err.text);
    if (plan)
        ops->free(plan);
    np_device_close(device);
    net_fini(&net);
    return code == 0;
}

static void be_rank(const struct trial *trial, const char *address, int rank)
{
    struct np_launch launch = {rank, trial->world, rank, trial->world, "test", "", -1};
    struct np_comm *comm = NULL;
    struct np_err err = {0};

    alarm(60);
    snprintf(launch.address, sizeof(launch.address), "%s", address);
    if (np_comm_open(&launch, &comm, &err) < 0) {
        fprintf(stderr, "rank %d: %s\n", rank, err.text);
        _exit(1);
    }
    const bool right = run_rank(trial, comm);
    np_comm_close(comm); /* says that this end is no death */
    _exit(right ? 0 : 2);
}

/* A result in memory that forks share. */
static struct result *new_result(void)
{
    struct result *result =
        mmap(NULL, sizeof(*result), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    cr_assert(result != MAP_FAILED);
    return result;
}

static bool run_trial(struct trial *trial)
{
    static int nr;
    char address[80];
    pid_t pids[MOST];
    int wrong = 0, status;

    snprintf(address, sizeof(address), "unix:nnpipe-lanes-%d-%d", (int)getpid(), nr++);
    trial->result = new_result();
    if (trial->world == 1)
        return run_rank(trial, NULL);
    for (int rank = 0; rank < trial->world; rank++)
        if ((pids[rank] = fork()) == 0)
            be_rank(trial, address, rank);
    for (int rank = 0; rank < trial->world; rank++)
        wrong += waitpid(pids[rank], &status, 0) != pids[rank] || status != 0;
    return wrong == 0;
}

static void end_trial(struct trial *trial)
{
    munmap(trial->result, sizeof(*trial->result));
}

static bool same(const struct trial *a, const struct trial *b)
{
    const struct result *x = a->result, *y = b->result;
    const size_t params = x->nr_params * sizeof(float), buffers = x->nr_buffers * sizeof(float);

    return x->nr_params == y->nr_params && memcmp(x->grads, y->grads, params) == 0 &&
           memcmp(x->params, y->params, params) == 0 &&
           memcmp(x->buffers, y->buffers, buffers) == 0 &&
           memcmp(x->numbers, y->numbers, sizeof(x->numbers)) == 0 &&
           memcmp(x->eval, y->eval, sizeof(x->eval)) == 0;
}

/* Runs `first` in one process with one thread, then the others of this list: all must be the same. */
struct other {
    int world, threads;
};
static bool all_same(const struct trial *first, const struct other *others, int nr)
{
    struct trial one = *first;
    bool right;

    one.world = one.options.threads = 1;
    right = run_trial(&one);
    for (int i = 0; i < nr && right; i++) {
        struct trial other = *first;

        other.world = others[i].world;
        other.options.threads = others[i].threads;
        right = run_trial(&other) && same(&one, &other);
        if (!right)
            fprintf(stderr, "%.40s: %d processes, %d threads, over %d\n", first->net, other.world,
                other.options.threads, first->options.batchnorm_over);
        end_trial(&other);
    }
    end_trial(&one);
    return right;
}

static const struct other others[] = {{1, 2}, {1, 3}, {2, 1}, {4, 2}, {8, 1}};
enum { NR_OTHERS = sizeof(others) / sizeof(*others) };

Test(lanes, processes_and_threads_change_no_bit, .timeout = 240)
{
    for (int n = 0; n < NR_NETS; n++)
        for (int precision = NP_F32; precision <= NP_BF16; precision++)
            cr_expect(all_same(&(struct trial){.net = nets[n],
                                   .precision = (enum np_dtype)precision,
                                   .options = {.parts = LANES, .skip_masked = true}},
                          others, NR_OTHERS),
                "net %d, precision %d", n, precision);
}

/* Each process has 1, 2, 4 ... lanes: a subtree of the one process's. */
Test(lanes, processes_that_are_no_power_of_two_change_no_bit, .timeout = 240)
{
    static const struct {
        int lanes, batch, net, end; /* networks */
        struct other others[3];
    } cases[] = {{12, 36, 0, NR_NETS, {{1, 2}, {3, 2}, {6, 1}}},
        {10, 30, 1, 2, {{1, 3}, {5, 1}, {10, 1}}}, {7, 35, 2, 3, {{1, 2}, {1, 5}, {7, 1}}},
        {6, 30, 3, 4, {{1, 1}, {3, 1}, {6, 1}}}};

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        int nr = 0;

        while (nr < 3 && cases[i].others[nr].world > 0)
            nr++;
        for (int n = cases[i].net; n < cases[i].end; n++)
            cr_expect(all_same(&(struct trial){.net = nets[n],
                                   .batch = cases[i].batch,
                                   .precision = n % 2 ? NP_BF16 : NP_F32,
                                   .options = {.parts = cases[i].lanes}},
                          cases[i].others, nr),
                "net %d, %d lanes", n, cases[i].lanes);
    }
}

Test(lanes, groups_of_rows_change_no_bit, .timeout = 240)
{
    static const int over[] = {1, 2, 4, 8, 16, 32};

    for (size_t i = 0; i < sizeof(over) / sizeof(*over); i++) {
        const int most = BATCH / over[i]; /* processes: a group is within one */
        struct other some[NR_OTHERS];
        int nr = 0;

        for (int k = 0; k < NR_OTHERS; k++)
            if (others[k].world <= most)
                some[nr++] = others[k];
        cr_expect(all_same(&(struct trial){.net = nets[0],
                               .options = {.parts = LANES, .batchnorm_over = over[i]},
                               .sam = i % 2},
                      some, nr),
            "over %d", over[i]);
    }
}

/* The largest difference of two arrays, as a share of the first one's norm. */
static double apart(const float *a, const float *b, uint64_t n)
{
    double norm = 0, off = 0;

    for (uint64_t i = 0; i < n; i++) {
        norm += (double)a[i] * a[i];
        off += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
    }
    return sqrt(off) / (sqrt(norm) + 1e-30);
}

static bool close_to(const struct trial *a, const struct trial *b)
{
    const double grads = apart(a->result->grads, b->result->grads, a->result->nr_params);
    const double buffers = apart(a->result->buffers, b->result->buffers, a->result->nr_buffers);

    if (grads < 1e-4 && buffers < 1e-4)
        return true;
    fprintf(stderr, "%.40s: gradients off by %g, buffers by %g\n", a->net, grads, buffers);
    return false;
}

static bool are_close(struct trial a, struct trial b)
{
    a.world = a.world ? a.world : 1;
    b.world = b.world ? b.world : 1;
    const bool right = run_trial(&a) && run_trial(&b) && close_to(&a, &b);
    end_trial(&a);
    end_trial(&b);
    return right;
}

Test(lanes, a_step_is_the_whole_batchs_and_the_references, .timeout = 120)
{
    for (int n = 0; n < NR_NETS; n++) {
        const struct trial lanes = {.net = nets[n], .options = {.parts = LANES, .threads = 2}};
        const struct trial whole = {.net = nets[n], .options = {.lanes = 1, .threads = 1}};
        const struct trial reference = {
            .net = nets[n], .options = {.lanes = 1, .threads = 1, .reference = true}};

        cr_expect(are_close(whole, lanes), "net %d: whole", n);
        cr_expect(are_close(reference, lanes), "net %d: reference", n);
    }
}

/* Three lanes in each process: no subtree. Near one process, and the same again with other threads. */
Test(lanes, lanes_that_are_no_subtree_are_near_and_the_same_again, .timeout = 120)
{
    for (int n = 0; n < NR_NETS; n++) {
        const struct trial one = {
            .net = nets[n], .batch = 36, .world = 1, .options = {.parts = 6, .threads = 1}};
        struct trial a = one, b = one, c = one;

        b.world = c.world = 2;
        c.options.threads = 3;
        cr_assert(run_trial(&a) && run_trial(&b) && run_trial(&c));
        cr_expect(close_to(&a, &b) && same(&b, &c) && !same(&a, &b), "net %d", n);
        end_trial(&a);
        end_trial(&b);
        end_trial(&c);
    }
}

Test(lanes, groups_of_lanes_that_are_no_power_of_two, .timeout = 120)
{
    /* over rows of a batch of 36 in 12 lanes; processes that have the same bits */
    static const struct {
        int over;
        struct other others[3];
    } cases[] = {{3, {{3, 1}, {12, 1}}}, {9, {{1, 3}}}, {12, {{1, 2}, {3, 1}}}};

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct trial fast = {.net = nets[0],
            .batch = 36,
            .options = {.parts = 12, .threads = 1, .batchnorm_over = cases[i].over}};
        struct trial reference = fast;
        int nr = 0;

        reference.options.reference = true;
        while (nr < 3 && cases[i].others[nr].world > 0)
            nr++;
        cr_expect(all_same(&fast, cases[i].others, nr), "over %d", cases[i].over);
        cr_expect(are_close(reference, fast), "over %d", cases[i].over);
    }
}

Test(lanes, groups_are_those_of_the_reference, .timeout = 120)
{
    for (int over = 1; over <= BATCH; over *= 2) {
        const struct np_plan_options options = {
            .parts = LANES, .threads = 1, .batchnorm_over = over};
        struct trial fast = {.net = nets[0], .options = options};
        struct trial reference = fast;

        reference.options.reference = true;
        cr_expect(are_close(reference, fast), "over %d", over);
    }
}

Test(lanes, a_group_of_rows_is_a_batch_of_its_own, .timeout = 120)
{
    /* over the rows of a process, two processes: each as with groups of half the batch */
    const struct trial groups = {
        .net = nets[0], .options = {.parts = LANES, .threads = 1, .batchnorm_over = BATCH / 2}};
    struct trial processes = groups;
    struct trial all = groups;

    processes.options.batchnorm_over = NP_OVER_PROCESS;
    processes.world = 2;
    all.options.batchnorm_over = NP_OVER_ALL;
    struct trial a = groups, b = processes;
    a.world = 1;
    cr_assert(run_trial(&a) && run_trial(&b));
    cr_expect(apart(a.result->grads, b.result->grads, a.result->nr_params) < 1e-4);
    end_trial(&a);
    end_trial(&b);
    a = all;
    b = groups;
    a.world = b.world = 1;
    cr_assert(run_trial(&a) && run_trial(&b));
    cr_expect(apart(a.result->grads, b.result->grads, a.result->nr_params) > 1e-3);
    end_trial(&a);
    end_trial(&b);
}

/* Every allocation of a plan in lanes fails once, and of its first step: the error is said, nothing leaks. */
Test(lanes, too_little_memory_is_an_error, .timeout = 120)
{
    struct trial trial = {
        .net = nets[0], .options = {.parts = LANES, .threads = 2}, .world = 1, .sam = true};
    bool in_step = false;
    int n = 1;

    trial.result = new_result();
    for (bool failed = true; failed; n++) {
        struct np_device *device = NULL;
        struct np_plan *plan = NULL;
        struct np_err err = {0};
        struct net net = {0};

        cr_assert(make_net(&trial, &net) && np_device_open("cpu", NULL, &device, &err) == 0);
        made_memory_fail(n);
        int code =
            device->plan_ops->prepare(device, net.train, net.eval, &trial.options, &plan, &err);
        if (code == 0) {
            in_step = true;
            code = compute(&trial, device, plan, NULL, &err);
        }
        failed = made_memory_failed();
        made_memory_fail(0);
        cr_assert_eq(code, failed ? -ENOMEM : 0, "allocation %d: %d %s", n, code, err.text);
        cr_assert(!failed || *err.text);
        if (plan)
            device->plan_ops->free(plan);
        np_device_close(device);
        net_fini(&net);
    }
    cr_assert(in_step && n > 20, "only %d allocations", n);
    end_trial(&trial);
}

/* Bytes of a plan but for weights, gradients and optimizer: arena, sums, scratch ... */
static size_t plan_bytes(const char *text, struct made made, int lanes)
{
    const struct np_plan_options options = {.lanes = 2, .threads = 2, .parts = lanes};
    struct np_graph *graph = made_good_graph(text, made);
    struct np_device *device = NULL;
    struct np_plan *plan = NULL;
    struct np_err err = {0};

    cr_assert(graph && np_autodiff(graph, &err) == 0);
    cr_assert_eq(np_device_open("cpu", NULL, &device, &err), 0);
    made_memory_fail(0);
    cr_assert_eq(device->plan_ops->prepare(device, graph, NULL, &options, &plan, &err), 0);
    const size_t bytes = made_memory_bytes() - 3 * graph->nr_params * sizeof(float);
    device->plan_ops->free(plan);
    np_device_close(device);
    np_graph_free(graph);
    return bytes;
}

Test(lanes, memory_is_at_most_1_3_times_that_of_whole_batches, .timeout = 60)
{
    static const struct {
        const char *path;
        struct made made;
    } shipped[] = {{"configs/mnist.yaml", {64, 28, 28, 1, 10, NP_BF16}},
        {"configs/cnn.yaml", {64, 32, 32, 3, 10, NP_BF16}},
        {"configs/cifar10.yaml", {128, 32, 32, 3, 10, NP_BF16}},
        {"configs/resnet20.yaml", {128, 32, 32, 3, 10, NP_BF16}}};

    for (size_t i = 0; i < sizeof(shipped) / sizeof(*shipped); i++) {
        char *text = made_read(shipped[i].path);
        const size_t whole = plan_bytes(text, shipped[i].made, 1);
        const size_t lanes = plan_bytes(text, shipped[i].made, LANES);

        cr_expect((double)lanes <= 1.3 * (double)whole, "%s: %zu and %zu bytes", shipped[i].path,
            whole, lanes);
        free(text);
    }
}

/* --- the tree of lanes ----------------------------------------------------------------------- */

#define VECTOR 19

static float leaf(int lane, int i)
{
    return (float)((lane * 7919 + i * 104729) % 10007) * 1e-3f / (float)(1 + lane % 5);
}

static float tree_of(int first, int nr, int i)
{
    int left = 1; /* of the node's left half */

    while (2 * left < nr)
        left *= 2;
    return nr == 1 ? leaf(first, i) : tree_of(first, left, i) + tree_of(first + left, nr - left, i);
}

struct takers { /* threads that take lanes in order */
    struct np_tree *tree;
    pthread_mutex_t lock;
    int next, nr;
    unsigned seed;
};

static void *take_lanes(void *argument)
{
    struct takers *takers = argument;

    for (;;) {
        pthread_mutex_lock(&takers->lock);
        const int lane = takers->next++;
        const unsigned wait = (takers->seed = takers->seed * 1103515245u + 12345u) >> 20 & 127;
        pthread_mutex_unlock(&takers->lock);
        if (lane >= takers->nr)
            return NULL;
        float *vector = np_tree_take(takers->tree);
        usleep(wait);
        for (int i = 0; i < VECTOR; i++)
            vector[i] = leaf(lane, i);
        np_tree_put(takers->tree, lane, vector);
    }
}

Test(lanes, a_sum_has_the_bits_of_the_tree_in_any_order, .timeout = 120)
{
    for (int trial = 0; trial < 60; trial++) {
        const int nr = trial < 20 ? 1 << trial % 7 : trial - 17, nr_threads = 1 + trial % 5;
        struct takers takers = {.nr = nr, .seed = (unsigned)trial};
        pthread_t threads[5];

        pthread_mutex_init(&takers.lock, NULL);
        float *room = np_alloc_array(np_tree_floats(nr, VECTOR, nr_threads), sizeof(*room));
        takers.tree = np_tree_new(nr, VECTOR, nr_threads, room);
        for (int t = 0; t < nr_threads; t++)
            cr_assert_eq(pthread_create(&threads[t], NULL, take_lanes, &takers), 0);
        for (int t = 0; t < nr_threads; t++)
            pthread_join(threads[t], NULL);
        float *root = np_tree_root(takers.tree);
        for (int i = 0; i < VECTOR; i++)
            cr_assert_eq(root[i], tree_of(0, nr, i), "%d lanes, %d threads", nr, nr_threads);
        np_tree_give(takers.tree, root);
        np_tree_free(takers.tree);
        np_free(room);
        pthread_mutex_destroy(&takers.lock);
    }
}
