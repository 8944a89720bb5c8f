/* A device that takes time but computes nothing, to measure and test the rest of the pipeline. Two
 * streams run in real time, each with a time at which all its work will be done: a copy ends at
 * max(now, copy stream's end) + bytes / h2d_gbps, a step at max(now, the events it follows, compute
 * stream's end) + step_ms. Bytes arrive when their time has passed, not before: a slot released too
 * early shows as wrong bytes. Trainer thread only. */
#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "loader/base/box.h"
#include "loader/base/clock.h"
#include "loader/pixels/resize.h"
#include "trainer/comm.h"
#include "trainer/plan.h"

#define SIM_FRONT  4096
#define MAX_COPIES 64 /* at once; a feed queues a few */

struct copy {
    void *dst;
    const void *src; /* NULL: rows are made instead */
    size_t bytes;
    struct np_residents residents;
    uint64_t end_ns;
};

struct sim {
    uint64_t step_ns;
    double bytes_per_ns;
    uint64_t end_ns[NP_NR_STREAMS];    /* of the queued work */
    uint64_t follow_ns[NP_NR_STREAMS]; /* the next work starts no earlier */
    struct copy copies[MAX_COPIES];    /* copies not yet done, oldest first */
    int nr_copies;
    struct np_resizer *resizer;
    bool makes_rows;
    struct np_sim_times times;
};

static int sim_open(
    struct np_device *device, const struct np_device_options *options, struct np_err *err)
{
    struct sim *sim = np_alloc(sizeof(*sim));

    if (!(sim->resizer = np_resizer_new(err))) {
        np_free(sim);
        return -ENOMEM;
    }
    sim->makes_rows = options->makes_rows;
    sim->bytes_per_ns = options->h2d_gbps > 0 ? options->h2d_gbps : 25;
    sim->step_ns = (uint64_t)(options->step_ms * 1e6);
    device->state = sim;
    return 0;
}

static void sim_close(struct np_device *device)
{
    np_resizer_free(((struct sim *)device->state)->resizer);
    np_free(device->state);
    device->state = NULL;
}

/* Pages are allocated when written, because a cache on the device may be larger than the set; the
 * size is stored before the memory. */
static void *sim_alloc(struct np_device *device, size_t bytes)
{
    const size_t all = bytes + SIM_FRONT;
    size_t *memory =
        mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (memory == MAP_FAILED)
        return NULL;
    *memory = all;
    return (uint8_t *)memory + SIM_FRONT;
}

static void sim_free(struct np_device *device, void *memory)
{
    size_t *front = memory ? (void *)((uint8_t *)memory - SIM_FRONT) : NULL;

    if (front)
        munmap(front, *front);
}

/* The loader's own resizer makes the rows: it is the reference. */
static void make_rows(struct sim *sim, const struct np_residents *residents)
{
    const struct np_batch_shape *shape = &residents->shape;
    const size_t bytes = (size_t)shape->height * (size_t)shape->width * (size_t)shape->channels;

    for (int i = 0; i < shape->rows; i++) {
        const struct np_row *row = &residents->rows[i];
        const struct np_pixels pixels = {.data = residents->arena + row->resident,
            .width = row->source_w,
            .height = row->source_h,
            .channels = shape->channels,
            .stride = (ptrdiff_t)row->source_w * shape->channels};
        uint8_t *out = residents->images + (size_t)i * bytes;

        if (row->sample == UINT64_MAX)
            memset(out, 0, bytes);
        else if (row->resident != NP_NOT_RESIDENT &&
                 np_resize(sim->resizer, &pixels, &row->geometry, out, NULL) < 0)
            memset(out, 0, bytes); /* out of memory for a table: the pixels are not used anyway */
    }
}

/* Copies the bytes of all copies whose time has passed. */
static void settle(struct sim *sim, uint64_t now_ns)
{
    int nr_done = 0;

    while (nr_done < sim->nr_copies && sim->copies[nr_done].end_ns <= now_ns) {
        const struct copy *copy = &sim->copies[nr_done++];
        if (copy->src)
            memcpy(copy->dst, copy->src, copy->bytes);
        else
            make_rows(sim, &copy->residents);
    }
    sim->nr_copies -= nr_done;
    memmove(sim->copies, sim->copies + nr_done, (size_t)sim->nr_copies * sizeof(struct copy));
}

static uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Queues after all other work of the copy stream. */
static void queue_copy(struct sim *sim, struct copy *copy, uint64_t took_ns)
{
    settle(sim, np_now_ns());
    if (sim->nr_copies == MAX_COPIES) { /* a full queue waits, as a driver's does */
        np_sleep_until_ns(sim->copies[0].end_ns);
        settle(sim, np_now_ns());
    }
    uint64_t start =
        later(later(np_now_ns(), sim->end_ns[NP_STREAM_COPY]), sim->follow_ns[NP_STREAM_COPY]);
    copy->end_ns = start + took_ns;
    sim->end_ns[NP_STREAM_COPY] = copy->end_ns;
    sim->copies[sim->nr_copies++] = *copy;
}

static int sim_upload(struct np_device *device, void *dst, const void *src, size_t bytes)
{
    struct sim *sim = device->state;
    struct copy copy = {.dst = dst, .src = src, .bytes = bytes};
    uint64_t took = (uint64_t)((double)bytes / sim->bytes_per_ns);

    queue_copy(sim, &copy, took);
    sim->times.copy_ns += took;
    sim->times.copy_bytes += bytes;
    sim->times.nr_copies++;
    return 0;
}

static uint64_t sim_room(struct np_device *device)
{
    struct np_box box;

    np_box_read(&box);
    return box.free_bytes / 2; /* its memory is the host's */
}

static int sim_make_rows(struct np_device *device, const struct np_residents *residents)
{
    struct sim *sim = device->state;
    struct copy copy = {.residents = *residents};

    if (sim->makes_rows) /* otherwise the rows are not used */
        queue_copy(sim, &copy, 0);
    return 0;
}

static void sim_record(struct np_device *device, enum np_which stream, struct np_event *event)
{
    struct sim *sim = device->state;

    event->mark = later(np_now_ns(), later(sim->end_ns[stream], sim->follow_ns[stream]));
}

static void sim_follow(struct np_device *device, enum np_which stream, const struct np_event *event)
{
    struct sim *sim = device->state;

    sim->follow_ns[stream] = later(sim->follow_ns[stream], event->mark);
}

static int sim_done(struct np_device *device, struct np_event *event, bool wait)
{
    struct sim *sim = device->state;

    if (wait)
        np_sleep_until_ns(event->mark);
    uint64_t now = np_now_ns();
    settle(sim, now);
    if (now < event->mark)
        return 0;
    event->passed_ns = event->mark;
    return 1;
}

/* --- the plan ------------------------------------------------------------------------------ */

struct np_plan {
    struct sim *sim;
    float *arrays[NP_ARRAY_GRADS + 1]; /* what write() stored, for read() */
    uint64_t elements[NP_ARRAY_GRADS + 1];
    int batch, classes, views;          /* views: of a batch in an evaluation */
    uint64_t nr_batches, nr_summed;     /* queued so far; of these, summed by metrics() */
    uint64_t ends_ns[NP_MAX_LATER + 1]; /* of the newest batches, by number */
    int own_lanes;                      /* of this process; 0: batches are computed whole */
    uint64_t *lane_ends;                /* (nr_ends) of lanes whose numbers were not read yet */
    int nr_ends;
    size_t room_ends;
};

static void plan_free(struct np_plan *plan)
{
    if (!plan)
        return;
    for (int i = 0; i <= NP_ARRAY_GRADS; i++)
        np_free(plan->arrays[i]);
    np_free(plan->lane_ends);
    np_free(plan);
}

static int plan_prepare(struct np_device *device, const struct np_graph *train,
    const struct np_graph *eval, const struct np_plan_options *options, struct np_plan **ret_plan,
    struct np_err *err)
{
    struct np_plan *plan = np_alloc(sizeof(*plan));

    plan->sim = device->state;
    plan->batch = train->batch;
    plan->classes = train->classes;
    plan->views = eval ? np_graph_nr_views(eval) : 1;
    if (options && options->parts > 1)
        plan->own_lanes = options->parts / np_comm_world(options->comm);
    for (int i = 0; i <= NP_ARRAY_GRADS; i++) {
        plan->elements[i] = np_array_of_buffers(i) ? train->nr_buffers : train->nr_params;
        plan->arrays[i] = np_try_array(plan->elements[i], sizeof(float), err);
        if (!plan->arrays[i]) {
            plan_free(plan);
            return np_err_context(err, "the network's parameters");
        }
    }
    *ret_plan = plan;
    return 0;
}

/* Occupies the compute stream for this long, once it is free and the events it follows have
 * passed. */
static void queue(struct np_plan *plan, uint64_t took_ns)
{
    struct sim *sim = plan->sim;
    const uint64_t end = sim->end_ns[NP_STREAM_COMPUTE];
    const uint64_t start = later(np_now_ns(), later(end, sim->follow_ns[NP_STREAM_COMPUTE]));

    plan->ends_ns[plan->nr_batches++ % (NP_MAX_LATER + 1)] = start + took_ns;
    if (end > 0)
        sim->times.idle_ns += start - end;
    sim->times.busy_ns += took_ns;
    sim->times.nr_steps++;
    sim->end_ns[NP_STREAM_COMPUTE] = start + took_ns;
}

/* Of the newest batch. */
static void note_end(struct np_plan *plan)
{
    np_grow(
        &plan->lane_ends, &plan->room_ends, (size_t)plan->nr_ends + 1, sizeof(*plan->lane_ends));
    plan->lane_ends[plan->nr_ends++] = plan->sim->end_ns[NP_STREAM_COMPUTE];
}

static int plan_step(struct np_plan *plan, const void *images, const void *labels, uint64_t step,
    float loss_scale, bool accumulate, struct np_err *err)
{
    queue(plan, plan->sim->step_ns);
    return 0;
}

/* The forward third of a step. */
static uint64_t eval_ns(const struct np_plan *plan)
{
    return plan->sim->step_ns / 3 * (uint64_t)plan->views;
}

/* The lanes of this process take the time of a step together. */
static int plan_step_lanes(struct np_plan *plan, const struct np_lane_batch *batch,
    const struct np_hyper *hyper, struct np_err *err)
{
    queue(plan, plan->sim->step_ns);
    for (int i = 0; i < plan->own_lanes; i++)
        note_end(plan);
    return 0;
}

static int plan_eval_lanes(
    struct np_plan *plan, const struct np_lane_batch *batch, float *logits, struct np_err *err)
{
    const size_t rows = (size_t)plan->own_lanes * (size_t)plan->batch;

    for (int i = 0; i < plan->own_lanes; i++) {
        queue(plan, eval_ns(plan));
        note_end(plan);
    }
    if (logits)
        memset(logits, 0, rows * (size_t)plan->classes * sizeof(*logits));
    return 0;
}

static int plan_lane_numbers(
    struct np_plan *plan, int n, struct np_metrics *ret_numbers, float *losses, struct np_err *err)
{
    assert(n <= plan->nr_ends);
    np_sleep_until_ns(plan->lane_ends[n - 1]);
    plan->nr_ends -= n;
    memmove(plan->lane_ends, plan->lane_ends + n, (size_t)plan->nr_ends * sizeof(*plan->lane_ends));
    for (int i = 0; i < n; i++)
        ret_numbers[i] = (struct np_metrics){.rows = (uint64_t)plan->batch};
    if (losses)
        memset(losses, 0, (size_t)n * (size_t)plan->batch * sizeof(*losses));
    return 0;
}

static void plan_part(struct np_plan *plan)
{
}

/* step() includes its time. */
static int plan_update(struct np_plan *plan, const struct np_hyper *hyper, struct np_err *err)
{
    return 0;
}

static int plan_eval(
    struct np_plan *plan, const void *images, const void *labels, struct np_err *err)
{
    queue(plan, eval_ns(plan));
    return 0;
}

static int plan_metrics(
    struct np_plan *plan, int later, struct np_metrics *ret_metrics, struct np_err *err)
{
    const uint64_t left = plan->nr_batches - plan->nr_summed, out = (uint64_t)later;
    const uint64_t nr = left > out ? left - out : 0;

    plan->nr_summed += nr;
    if (nr > 0)
        np_sleep_until_ns(plan->ends_ns[(plan->nr_summed - 1) % (NP_MAX_LATER + 1)]);
    *ret_metrics = (struct np_metrics){.rows = nr * (uint64_t)plan->batch};
    return 0;
}

static int plan_read(struct np_plan *plan, int array, float *out, struct np_err *err)
{
    assert(array >= 0 && array <= NP_ARRAY_GRADS);
    np_sleep_until_ns(plan->sim->end_ns[NP_STREAM_COMPUTE]);
    memcpy(out, plan->arrays[array], plan->elements[array] * sizeof(float));
    return 0;
}

static int plan_write(struct np_plan *plan, int array, const float *in, struct np_err *err)
{
    assert(array >= 0 && array <= NP_ARRAY_GRADS);
    memcpy(plan->arrays[array], in, plan->elements[array] * sizeof(float));
    return 0;
}

static int plan_logits(struct np_plan *plan, float *out, struct np_err *err)
{
    memset(out, 0, (size_t)plan->batch * (size_t)plan->classes * sizeof(float));
    return 0;
}

void np_sim_read(const struct np_device *device, struct np_sim_times *ret_times)
{
    const struct sim *sim = device->state;

    assert(device->ops == &np_device_sim);
    *ret_times = sim->times;
}

const struct np_device_ops np_device_sim = {
    .name = "sim",
    .open = sim_open,
    .close = sim_close,
    .alloc = sim_alloc,
    .free = sim_free,
    .upload = sim_upload,
    .room = sim_room,
    .make_rows = sim_make_rows,
    .record = sim_record,
    .follow = sim_follow,
    .done = sim_done,
};

const struct np_plan_ops np_plan_sim = {
    .prepare = plan_prepare,
    .free = plan_free,
    .step = plan_step,
    .update = plan_update,
    .step_lanes = plan_step_lanes,
    .eval_lanes = plan_eval_lanes,
    .lane_numbers = plan_lane_numbers,
    .part = plan_part,
    .eval = plan_eval,
    .metrics = plan_metrics,
    .read = plan_read,
    .write = plan_write,
    .logits = plan_logits,
};
