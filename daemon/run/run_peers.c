/* The other processes of a run: they meet, find that they are of one mind, and tell each other what
 * only one of them has seen. Trainer (main) thread. */
#include "daemon/run/run_folder.h"
#include "daemon/run/run_parts.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "daemon/config/config_lanes.h"
#include "daemon/run/near.h"
#include "loader/base/version.h"

/* --- at the start --------------------------------------------------------------------------- */

/* Which GPU: the one that this process was given, else that of its number on the machine; but a launcher
 * may show each process one GPU alone. */
static int own_gpu(const struct np_launch *launch)
{
    if (launch->gpu >= 0)
        return launch->gpu;
    return launch->local_rank > 0 && np_device_count_gpus() > 1 ? launch->local_rank : 0;
}

int np_run_open_device(struct np_run *run, struct np_err *err)
{
    const struct np_config *config = run->config;
    const struct np_launch *launch = run->options->launch;
    struct np_device_options options = config->device_options;
    const bool several =
        launch && launch->world > 1 &&
        (strcmp(config->device, "auto") == 0 || strcmp(config->device, "cuda") == 0);

    if (several)
        options.ordinal = own_gpu(launch);
    const int code = np_device_open(config->device, &options, &run->device, err);
    if (code < 0 && several && options.ordinal > 0)
        np_err_context(err, "%d processes on this machine need a GPU each", launch->local_world);
    return code;
}

void np_run_leave(struct np_run *run)
{
    if (run->plan && run->device->plan_ops->part)
        run->device->plan_ops->part(run->plan);
}

/* A GPU's lane is what a process has of a batch, unless the config says more. */
static void take_lanes(struct np_run *run, int world)
{
    struct np_config *config = run->config;

    if (!run->device->plan_ops->step_lanes || config->run.lanes > 0 ||
        config->loader.batch % world != 0)
        return;
    config->run.lanes = world;
    np_node_free(run->resolved);
    run->resolved = np_config_node(config);
}

/* Another process stops or has ended: this one must not wait for its storage. */
static void hear(void *context, bool ends)
{
    struct np_run *run = context;

    np_watch_interrupt(run->watch);
}

int np_run_meet(struct np_run *run, struct np_err *err)
{
    const struct np_launch *launch = run->options->launch;

    if (!launch || launch->world == 1)
        return 0;
    run->usage = true;
    take_lanes(run, launch->world);
    if (np_config_check_processes(run->config, launch->world, err) < 0)
        return np_err_context(err, "started by %s", launch->by);
    np_run_at(run, "waiting for the other processes");
    const int code = np_comm_open(launch, &run->comm, err);
    run->usage = code == -EINVAL;
    if (code == 0) {
        np_comm_listen(run->comm, hear, run);
        np_watch_comm(run->watch, run->comm);
    }
    return code;
}

void np_run_part(struct np_run *run)
{
    if (run->watch)
        np_watch_comm(run->watch, NULL);
    np_comm_close(run->comm);
}

struct np_comm *np_run_comm(const struct np_run *run)
{
    return run->comm;
}

/* For several processes: as many lanes as threads, 8 or more, if they divide the batch; 1, 2, 4 ... in
 * each process. */
static int64_t choose_lanes(const struct np_run *run)
{
    const int64_t threads = np_compute_threads(run->config), wanted = threads > 8 ? threads : 8;
    int64_t lanes = np_comm_world(run->comm);

    while (
        lanes < wanted && 2 * lanes <= NP_MAX_LANES && run->config->loader.batch % (2 * lanes) == 0)
        lanes *= 2;
    return lanes;
}

/* Has each process a lane, and all as many? */
static int check_lanes(struct np_run *run, struct np_err *err)
{
    const int64_t lanes = run->config->run.lanes, world = np_comm_world(run->comm);
    char possible[NP_LANES_TEXT];

    if (lanes >= 1 && lanes <= NP_MAX_LANES && lanes % world == 0) {
        run->sums_of = np_lanes_sum_as_one(lanes, world) ? 1 : (int)world;
        run->sums_before = run->sums_of;
        return 0;
    }
    np_lanes_text(lanes, possible);
    return np_err_set(err, -EINVAL,
        "%s: train.lanes of this run is %lld, for %s process%s; begin a new run for %lld",
        np_run_name(run, run->dir), (long long)lanes, possible, lanes > 1 ? "es" : "",
        (long long)world);
}

int np_run_take_lanes(struct np_run *run, struct np_err *err)
{
    int64_t *lanes = &run->config->run.lanes, of_first;
    const bool named = *lanes > 0;
    struct np_node *facts = NULL;
    int code = 0;

    if (!named)
        *lanes = 1;
    if (!named && run->dir)
        code = np_run_newest_facts(run->dir, &facts, err);
    else if (!named && run->comm)
        *lanes = choose_lanes(run);
    if (facts)
        *lanes = (int64_t)np_node_number(facts, "batch_lanes", 1);
    np_node_free(facts);
    if (code == 0)
        code = check_lanes(run, err);
    run->usage = code == -EINVAL;
    of_first = *lanes;
    if (code == 0) /* all take part, whatever their configs say: these are compared later */
        code = np_comm_broadcast(run->comm, &of_first, sizeof(of_first), err);
    if (code == 0 && !named) /* machines may have other numbers of CPUs */
        *lanes = of_first;
    return code;
}

int np_run_share_dir(struct np_run *run, char *dir, size_t room, struct np_err *err)
{
    const int code = np_comm_broadcast(run->comm, dir, room, err);

    dir[room - 1] = '\0';
    return code;
}

int np_run_share_lanes(struct np_run *run, struct np_err *err)
{
    return np_comm_broadcast(run->comm, &run->lanes, sizeof(run->lanes), err);
}

/* --- readers -------------------------------------------------------------------------------- */

struct place {
    uint64_t machine;
    int32_t node;
};

static uint64_t machine_number(void)
{
    char boot[64] = "", name[256] = "";
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");

    if (file) {
        if (!fgets(boot, sizeof(boot), file))
            boot[0] = '\0';
        fclose(file);
    }
    gethostname(name, sizeof(name) - 1); /* of a container: its own */
    return XXH3_64bits_withSeed(name, strlen(name), XXH3_64bits(boot, strlen(boot)));
}

/* Counts the processes on this machine, and on this node. */
static int find_near(struct np_run *run, struct np_near *ret_near)
{
    const struct place own = {machine_number(), run->device->node};
    struct place all[NP_MAX_WORLD];
    const int code = np_comm_gather(run->comm, &own, all, sizeof(own), NULL);

    *ret_near = (struct np_near){.node = own.node};
    for (int r = 0; code == 0 && r < np_comm_world(run->comm); r++) {
        ret_near->nr_here += all[r].machine == own.machine;
        ret_near->nr_on_node += all[r].machine == own.machine && all[r].node == own.node;
    }
    return code;
}

bool np_run_enter_node(struct np_run *run, cpu_set_t *ret_before)
{
    struct np_near near;
    cpu_set_t cpus;

    if (!run->comm || find_near(run, &near) < 0 ||
        sched_getaffinity(0, sizeof(*ret_before), ret_before) < 0 ||
        !np_near_cpus("", &near, ret_before, &cpus) ||
        sched_setaffinity(0, sizeof(cpus), &cpus) < 0) /* a sandbox may not allow it */
        return false;
    run->of_process.nr_near = near.nr_on_node;
    return true;
}

void np_run_leave_node(const cpu_set_t *before)
{
    sched_setaffinity(0, sizeof(*before), before);
}

/* What must be equal in all processes. */
struct facts {
    uint64_t config, data, order, weights, step;
    int32_t precision;
    char versions[600];
};

/* Of all keys but those of places, which may differ from machine to machine. */
static uint64_t hash_config(struct np_run *run)
{
    static const char *const places[] = {"base", "data", "device", "runs"};
    struct np_json *json = &run->line;

    np_json_begin(json, NULL);
    for (int i = 0; i < run->resolved->nr_items; i++) {
        bool is_place = false;

        for (size_t p = 0; p < sizeof(places) / sizeof(*places); p++)
            is_place |= strcmp(run->resolved->items[i]->key, places[p]) == 0;
        if (!is_place)
            np_json_node(json, run->resolved->items[i]->key, run->resolved->items[i]);
    }
    const char *text = np_json_end(json);
    return text ? XXH3_64bits(text, strlen(text)) : 0;
}

static uint64_t hash_arrays(const struct np_run *run)
{
    const struct np_graph *graph = run->setup.graph;
    uint64_t hash = 0;

    for (int i = 0; i < NP_ARRAY_GRADS; i++)
        if (run->arrays[i])
            hash = XXH3_64bits_withSeed(run->arrays[i],
                sizeof(float) * (np_array_of_buffers(i) ? graph->nr_buffers : graph->nr_params),
                hash);
    return hash;
}

/* Of what the sampler draws from, and of the evaluated set. */
static uint64_t hash_order(const struct np_run *run)
{
    const uint64_t sizes[] = {run->nr_train, run->nr_eval, run->nr_steps};
    const struct np_split *split = &run->setup.sets.split;
    const int32_t *labels;
    const struct np_index *eval = np_run_eval_set(run, &labels);
    uint64_t hash = XXH3_64bits(sizes, sizeof(sizes));

    if (split->order)
        hash = XXH3_64bits_withSeed(
            split->order, (split->nr_eval + split->nr_train) * sizeof(*split->order), hash);
    return eval ? hash ^ np_index_names_sum(eval, labels) : hash;
}

static void find_facts(struct np_run *run, struct facts *ret_facts)
{
    struct np_device_info device;
    struct facts *facts = ret_facts;

    memset(facts, 0, sizeof(*facts));
    facts->config = hash_config(run);
    np_run_facts_json(run); /* finds train_names */
    facts->data = XXH3_64bits(run->train_names, strlen(run->train_names));
    facts->order = hash_order(run);
    facts->weights = hash_arrays(run);
    facts->step = run->position.step;
    facts->precision = (int32_t)run->precision;
    np_device_describe(run->device->name, &device);
    snprintf(facts->versions, sizeof(facts->versions), "nnpipe %s, sums over %.60s%s%.100s",
        NP_VERSION, np_comm_way(run->comm), *device.gpu ? ", " : "", device.gpu);
    for (int i = 0; i < device.nr_libraries; i++) {
        const size_t used = strlen(facts->versions);

        snprintf(facts->versions + used, sizeof(facts->versions) - used, ", %s %s",
            device.libraries[i].name, device.libraries[i].version);
    }
}

static int compare_facts(
    const struct facts *first, const struct facts *other, int rank, struct np_err *err)
{
    static const char differs[] = "rank 0 and rank %d differ in %s: all processes need the same";

    if (other->config != first->config)
        return np_err_set(err, -EINVAL, differs, rank, "their configs");
    if (other->data != first->data)
        return np_err_set(err, -EINVAL, differs, rank, "the names or labels of data.train");
    if (other->order != first->order)
        return np_err_set(err, -EINVAL, differs, rank,
            "the set that they evaluate, or in data.split, split_seed or fold");
    if (other->step != first->step || other->weights != first->weights)
        return np_err_set(err, -EINVAL, differs, rank, "the weights that they begin with");
    if (other->precision != first->precision)
        return np_err_set(err, -EINVAL, differs, rank, "precision");
    if (strcmp(other->versions, first->versions) != 0)
        return np_err_set(err, -EINVAL,
            "rank 0 computes with %s, rank %d with %s: all processes need the same, or their "
            "rounding differs (NNPIPE_CPU takes a smaller vector width)",
            first->versions, rank, other->versions);
    return 0;
}

int np_run_compare_peers(struct np_run *run, struct np_err *err)
{
    const int world = np_comm_world(run->comm);
    struct facts own, *all;

    if (!run->comm)
        return 0;
    find_facts(run, &own);
    if (!(all = np_try_array((size_t)world, sizeof(*all), err)))
        return -ENOMEM;
    int code = np_comm_gather(run->comm, &own, all, sizeof(own), err);
    for (int r = 1; r < world && code == 0; r++) {
        all[r].versions[sizeof(all[r].versions) - 1] = '\0';
        code = compare_facts(&all[0], &all[r], r, err);
        run->usage |= code == -EINVAL;
    }
    np_free(all);
    return code;
}

/* --- while it trains ------------------------------------------------------------------------ */

int np_run_all_samples(struct np_run *run, const struct np_batch *batch, struct np_err *err)
{
    const size_t rows = (size_t)run->config->loader.batch / (size_t)np_comm_world(run->comm);
    uint64_t *own;

    if (!run->samples &&
        !(run->samples = np_try_array((size_t)run->config->loader.batch, sizeof(uint64_t), err)))
        return -ENOMEM;
    own = run->samples + rows * (size_t)np_comm_rank(run->comm);
    for (size_t row = 0; row < rows; row++)
        own[row] = batch->about[row].sample;
    return np_comm_gather(run->comm, own, run->samples, rows * sizeof(*own), err);
}

/* --- at a checkpoint ------------------------------------------------------------------------ */

/* hashes: (world). More than half of them are right, or else rank 0's is. */
static int name_odd(const uint64_t *hashes, int world, uint64_t step, struct np_err *err)
{
    uint64_t right = hashes[0];
    char ranks[200] = "";
    int nr = 0;

    for (int r = 0; r < world; r++) {
        int alike = 0;

        for (int i = 0; i < world; i++)
            alike += hashes[i] == hashes[r];
        if (2 * alike > world)
            right = hashes[r];
    }
    for (int r = 0; r < world && strlen(ranks) < 150; r++) {
        const size_t used = strlen(ranks);

        if (hashes[r] != right)
            snprintf(ranks + used, sizeof(ranks) - used, "%s%d", nr++ ? ", " : "", r);
    }
    if (nr == 0)
        return 0;
    return np_err_set(err, -EBADE,
        "step %llu: rank %s computed other weights than the rest, by damaged memory or another "
        "build "
        "of a library; nothing was saved. Look at that machine, and go on with --resume",
        (unsigned long long)step, ranks);
}

/* Where the device has a hash of its own, the arrays stay there. */
static int own_hash(struct np_run *run, uint64_t *ret_hash, struct np_err *err)
{
    const struct np_plan_ops *ops = run->device->plan_ops;

    if (ops->hash)
        return ops->hash(run->plan, np_run_arrays(run), ret_hash, err);
    const int code = np_run_read_arrays(run, err);
    if (code == 0)
        *ret_hash = hash_arrays(run);
    return code;
}

int np_run_compare_arrays(struct np_run *run, uint64_t step, bool saves, struct np_err *err)
{
    uint64_t own, hashes[NP_MAX_WORLD];
    uint32_t bits = saves; /* a checkpoint by the clock is due at one of them first */
    int code;

    /* Over: an evaluation was cut while a process waited for storage; what is there is saved. */
    if (!run->comm || np_comm_over(run->comm))
        return 0;
    if ((code = np_comm_any(run->comm, &bits, err)) < 0 || !bits)
        return code;
    if ((code = own_hash(run, &own, err)) < 0) { /* the others wait for it */
        np_comm_abort(run->comm, code, err->text);
        return code;
    }
    code = np_comm_gather(run->comm, &own, hashes, sizeof(own), err);
    return code == 0 ? name_odd(hashes, np_comm_world(run->comm), step, err) : code;
}

/* --- at an end ------------------------------------------------------------------------------ */

struct at_barrier {
    int32_t code, saved_eval_due;
    uint64_t saved_step;
};

int np_run_barrier(struct np_run *run, int code, struct np_err *err)
{
    const struct at_barrier own = {code, run->saved_eval_due, run->saved_step};
    struct at_barrier all[NP_MAX_WORLD];

    if (!run->comm || np_comm_over(run->comm))
        return code;
    const int told = np_comm_gather(run->comm, &own, all, sizeof(own), code < 0 ? NULL : err);
    if (told == 0) {
        run->saved_step = all[0].saved_step;
        run->saved_eval_due = all[0].saved_eval_due;
    }
    for (int r = 0; r < np_comm_world(run->comm) && told == 0 && code == 0; r++)
        if (all[r].code < 0)
            code = np_err_set(err, all[r].code, "rank %d has failed", r);
    return code < 0 ? code : told;
}

int np_run_await_first(struct np_run *run, struct np_err *err)
{
    const bool leads = np_run_leads(run);
    bool done = true;
    const int code = np_comm_broadcast(run->comm, &done, sizeof(done), leads ? NULL : err);

    return leads ? 0 : code; /* what is written stands, also if another process has just died */
}
