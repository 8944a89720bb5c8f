/* The device table: memory, streams and events, and the plan that computes. `cpu`
 * (oneDNN), `cuda` (the plugin), `sim` (copies at a given rate, steps in a given time). */
#ifndef NP_DEVICE_H
#define NP_DEVICE_H

#include "loader/base/option.h"
#include "loader/base/err.h"
#include "loader/base/mem.h"
#include "loader/batch.h"
#include "trainer/graph/graph.h"
#include "trainer/optim_scalars.h"

struct np_device;
struct np_plan;
struct np_plan_options;

enum np_which { NP_STREAM_COPY, NP_STREAM_COMPUTE, NP_NR_STREAMS };

struct np_device_options {
    int ordinal;              /* cuda:N */
    double h2d_gbps, step_ms; /* sim: 10^9 bytes a second; milliseconds a training step */
    /* sim, for tests: make_rows() makes the rows, which costs the trainer thread time */
    bool makes_rows;
};

/* The caller zeroes an event before its first use and may reuse it; `mark` and `state` belong to
 * the device. */
struct np_event {
    uint64_t mark;
    void *state;
    uint64_t passed_ns; /* when it passed, in np_now_ns() time; set by done() */
};

/* Rows that the device makes, byte for byte as loader/pixels/resize.h makes them on the host. */
struct np_residents {
    const struct np_row *rows; /* (shape.rows), device */
    const uint8_t *arena;      /* device; a row's picture is at arena + row.resident */
    struct np_batch_shape shape;
    uint8_t *images; /* device; rows that are not resident stay as they are, masked rows become 0 */
};

/* Memory, copies and order. Only the trainer thread calls these; close: after that thread has
 * ended. */
struct np_device_ops {
    const char *name;
    int (*open)(
        struct np_device *device, const struct np_device_options *options, struct np_err *err);
    void (*close)(struct np_device *device);
    /* Optional: NULL means the device reads the host's memory itself (no upload). Device memory. */
    void *(*alloc)(struct np_device *device, size_t bytes);
    void (*free)(struct np_device *device, void *memory); /* NULL: nothing */
    /* Queues a copy on the copy stream. src must stay until an event recorded after it is done,
     * and should be pinned (otherwise the call may wait for the copy). */
    int (*upload)(struct np_device *device, void *dst, const void *src, size_t bytes);
    void (*record)(struct np_device *device, enum np_which stream, struct np_event *event);
    void (*follow)(struct np_device *device, enum np_which stream, const struct np_event *event);
    /* Optional, both or neither: NULL means that the device cannot keep pictures (cache:
     * device). Returns the bytes of device memory that are free. */
    uint64_t (*room)(struct np_device *device);
    /* Queues on the copy stream: makes a batch's rows from resident pictures. */
    int (*make_rows)(struct np_device *device, const struct np_residents *residents);
    /* Returns 1 if the event has passed, else 0; with wait it blocks until the event has passed.
     * Negative errno: the device failed. */
    int (*done)(struct np_device *device, struct np_event *event, bool wait);
};

struct np_hyper { /* of one update */
    int kind;     /* enum np_optimizer */
    float lr, momentum, weight_decay, eps, clip_norm /* 0: off */;
    double beta1, beta2;   /* double: in float 1 - beta2 would be off by 1e-5 of its value */
    double momentum_decay; /* nadam */
    float rest_lr;         /* muon: the rate of all but its matrices */
    int iterations;        /* muon */
    bool nesterov, sam_adaptive;
    float sam_rho;   /* sam.h; 0: off. Only for step_update() and step_lanes(). */
    uint64_t update; /* updates done before this one, for the bias correction of adam and others */
};

#define NP_MAX_LATER 3
struct np_metrics {
    double loss_sum;
    uint64_t rows, correct, top5;
    double grad_norm;
};

/* This process's stripe of a batch in lanes (trainer/lanes.h), on the device. */
struct np_lane_batch {
    const void *images,
        *labels;      /* of its first lane; the others' follow, and behind all labels the values */
    size_t row_bytes; /* of images */
    int rows;         /* of a lane */
    uint64_t step;    /* of the run */
    float loss_scale;
    bool adds; /* to the gradients of the batches before it: not the first one of an accumulation */
};

/* Training and evaluation of one network. Trainer thread. Images and labels are device pointers
 * of one batch. */
struct np_plan_ops {
    bool synchronous; /* step() and the others return when the batch is computed, not queued */
    /* A batch in parts (np_plan_options.parts) is computed in one call: step() and the others take all
     * rows of this process, and step() gives the sums of all processes. False: the caller calls
     * step() for each part, then sums(). */
    bool at_once;
    /* Only with at_once, between step() and update(): SAM's second pass (sam.h). */
    int (*climb)(struct np_plan *plan, const void *images, const void *labels, uint64_t step,
        float loss_scale, const struct np_hyper *hyper, struct np_err *err);
    /* Only with at_once: the numbers of the newest batch's parts, those of this process. */
    void (*numbers)(const struct np_plan *plan, struct np_metrics *ret_numbers);
    /* train: after np_autodiff(), not fused; eval: its np_graph_eval(); both borrowed while the
     * plan lives. */
    int (*prepare)(struct np_device *device, const struct np_graph *train,
        const struct np_graph *eval, const struct np_plan_options *options,
        struct np_plan **ret_plan, struct np_err *err);
    void (*free)(struct np_plan *plan);
    /* Queues forward and backward of one batch on the compute stream; accumulate: adds to the
     * gradients. */
    int (*step)(struct np_plan *plan, const void *images, const void *labels, uint64_t step,
        float loss_scale, bool accumulate, struct np_err *err);
    /* Updates the weights from the gradients; optim.c has the formulas. */
    int (*update)(struct np_plan *plan, const struct np_hyper *hyper, struct np_err *err);
    /* Optional: NULL means step(), then update(). Queues both as one, for a batch without
     * accumulation. With hyper->sam_rho the batch is computed twice (sam.h); its numbers and the
     * buffers are those of the first pass, gradients and logits those of the second one. */
    int (*step_update)(struct np_plan *plan, const void *images, const void *labels, uint64_t step,
        float loss_scale, const struct np_hyper *hyper, struct np_err *err);
    /* Optional, all four or none: NULL means that the device does not queue batches in lanes
     * (np_plan_options.parts, with the rows of a lane in the graphs). Queues this process's lanes of a
     * batch, forward and backward, the sum of gradients over all lanes and processes
     * (np_plan_options.comm), and the update; hyper NULL: the batch is not the last one of an
     * accumulation. hyper->sam_rho as in step_update(). */
    int (*step_lanes)(struct np_plan *plan, const struct np_lane_batch *batch,
        const struct np_hyper *hyper, struct np_err *err);
    /* Queues this process's lanes of an evaluated batch. logits: f32 (rows of all of them, classes), the
     * outputs, for which it waits; NULL: not wanted. */
    int (*eval_lanes)(
        struct np_plan *plan, const struct np_lane_batch *batch, float *logits, struct np_err *err);
    /* The numbers of the oldest n lanes that were not read yet; waits for them. The last lane of a step
     * has the norm of its update. losses: f32 (rows of these lanes), as losses() has them; NULL: not
     * wanted. */
    int (*lane_numbers)(struct np_plan *plan, int n, struct np_metrics *ret_numbers, float *losses,
        struct np_err *err);
    /* No batch in lanes follows: leaves the other processes, which do the same, or have ended. */
    void (*part)(struct np_plan *plan);
    /* Optional, both or neither: NULL means that the device computes no weights. Blends weights and
     * buffers into their averages (np_average_blend()); back: both become their averages. */
    int (*average)(struct np_plan *plan, float weight, bool back, struct np_err *err);
    /* Exchanges weights and buffers with their averages. */
    int (*swap)(struct np_plan *plan, struct np_err *err);
    int (*eval)(struct np_plan *plan, const void *images, const void *labels, struct np_err *err);
    /* Sums over the batches queued since the last call, without the `later` newest ones (at most
     * NP_MAX_LATER), so that the trainer can read a step's numbers while later steps run. Waits only
     * for the batches that it sums. */
    int (*metrics)(
        struct np_plan *plan, int later, struct np_metrics *ret_metrics, struct np_err *err);
    /* Optional: NULL means none. Copies the losses of the rows of the newest batch that metrics()
     * has summed: f32 (batch), 0 for a masked row. Only with np_plan_options.losses. */
    void (*losses)(const struct np_plan *plan, float *out);
    /* Copies an array (NP_ARRAY_*) out or in: f32, flat, in the files' layout. */
    int (*read)(struct np_plan *plan, int array, float *out, struct np_err *err);
    int (*write)(struct np_plan *plan, int array, const float *in, struct np_err *err);
    /* Optional: NULL means none. State, apart from the arrays, that a resumed run needs for equal
     * bits: chosen engines, f16's loss scale. Text; caller frees with np_free(). */
    int (*state)(struct np_plan *plan, char **ret_text, struct np_err *err);
    /* Optional, all three or none: NULL means read(), for which the device waits. Queues copies of the arrays of
     * np_plan_options.snapshot, as they are behind all that is queued, to the host's memory; later steps may be queued
     * at once. -EAGAIN: there was no memory for it when the plan was prepared. */
    int (*snap)(struct np_plan *plan, struct np_err *err);
    /* After snap(): 1 when the copies are made, 0 before; with wait it blocks until then. *ret_state: of state(), then. */
    int (*snapped)(struct np_plan *plan, bool wait, char **ret_state, struct np_err *err);
    /* After snapped() has returned 1, until the next snap(): copies one of the arrays out, as read(). Any thread. */
    void (*snapshot)(const struct np_plan *plan, int array, float *out);
    /* Only with np_plan_options.comm. Optional: NULL means read(), for a hash on the host. A hash of these arrays
     * (1 << NP_ARRAY_* each), equal in processes that have the same bits; waits for all that is queued. */
    int (*hash)(struct np_plan *plan, unsigned arrays, uint64_t *ret_hash, struct np_err *err);
    /* Copies the logits of the newest step or eval: f32 (batch, classes). */
    int (*logits)(struct np_plan *plan, float *out, struct np_err *err);
};
enum {
    NP_ARRAY_PARAMS,
    NP_ARRAY_BUFFERS,
    NP_ARRAY_STATE0,
    NP_ARRAY_STATE1,
    NP_ARRAY_AVERAGE,         /* of the params */
    NP_ARRAY_AVERAGE_BUFFERS, /* of the buffers */
    NP_ARRAY_GRADS
};
/* Has an array the buffers' elements (true), or those of the params? */
static inline bool np_array_of_buffers(int array)
{
    return array == NP_ARRAY_BUFFERS || array == NP_ARRAY_AVERAGE_BUFFERS;
}

struct np_device {
    const struct np_device_ops *ops;
    const struct np_plan_ops *plan_ops;
    void *state;
    char name[32];              /* "cpu", "cuda:0", "sim" */
    struct np_allocator pinned; /* for the ring's slots */
    int node;                   /* NUMA node that it hangs on; -1: none, or not known */
    enum np_dtype auto_precision;
    char fault[256]; /* why a call without an error text failed; "": none did */
    /* Why `auto` took the CPU although the machine seems to have an NVIDIA GPU, and what to do: one
     * sentence for the user. Otherwise "". */
    char passed_over[1024];
    /* Optional: receives notes for the user that are not errors. Set by the code that opened the
     * device. Text is borrowed for the call. Trainer thread. */
    void (*note)(void *context, const char *text);
    void *note_context;
};

/* GPUs that the driver reports, usable or not. */
int np_device_count_gpus(void);
/* name: "auto" (a usable GPU, else the CPU: see passed_over), or any that np_device_find()
 * takes. options may be NULL; the name's ordinal wins, if it has one. An error names the missing library or
 * device, and what to install. */
int np_device_open(const char *name, const struct np_device_options *options,
    struct np_device **ret_device, struct np_err *err);
void np_device_close(struct np_device *device);

struct np_library { /* a library that the device computes with */
    char name[16], version[96];
    char path[512]; /* where it was found; "": linked into the program */
};
#define NP_MAX_LIBRARIES 8
/* Facts about a device that is not open. */
struct np_device_info {
    char name[32], kind[16]; /* "cuda:0", "cuda" */
    char reason[2048];       /* why it is not usable; "": it is */
    char gpu[256], arch[16]; /* "NVIDIA H100", "sm_90"; "": no GPU that the driver reports */
    uint64_t memory_bytes;   /* of the GPU */
    char seen[64];           /* kind cuda with gpu "": evidence that there is a GPU */
    struct np_library libraries[NP_MAX_LIBRARIES]; /* rounding depends on these */
    int nr_libraries;
};
/* info is borrowed for the call. */
typedef void (*np_info_fn)(void *context, const struct np_device_info *info);
/* Calls found for each device that this machine could have, usable or not. */
void np_device_list(np_info_fn found, void *context);
/* Describes one device by its name; a missing GPU has a reason, or no libraries. */
void np_device_describe(const char *name, struct np_device_info *ret_info);
/* Adds a library; version "": nothing is added. */
void np_device_add_library(
    struct np_device_info *info, const char *name, const char *version, const char *path);
/* Converts a device's name as users write it ("GPU", "cuda0") into the canonical form: auto, cpu,
 * sim, cuda (any GPU; here the first), cuda:1. False: not a device's name. */
#define NP_DEVICE_NAME  16
#define NP_DEVICE_NAMES "auto, cpu, gpu, cuda:N"
bool np_device_find(const char *word, char name[NP_DEVICE_NAME]);
/* Formats a text and passes it to device->note, if set. */
void np_device_note(const struct np_device *device, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Puts device->fault, unless empty, before the text of a filled err. Returns err's code. */
int np_device_blame(const struct np_device *device, struct np_err *err);

/* One result of `nnpipe doctor`. Texts are borrowed for the call. */
enum np_verdict { NP_FOUND_OK, NP_FOUND_WARN, NP_FOUND_SKIPPED };
struct np_finding {
    enum np_verdict verdict;
    const char *what;   /* "h2d bandwidth" */
    const char *text;   /* the measurement, with units; skipped: why */
    const char *advice; /* warn: what to do; else NULL */
};
typedef void (*np_found_fn)(void *context, const struct np_finding *finding);
/* Measures the GPU of this name (auto: the first) for a second or two and calls found for each
 * result. Error: the GPU cannot be opened, and why. */
int np_device_doctor(const char *name, np_found_fn found, void *context, struct np_err *err);

extern const struct np_choice np_device_choices[]; /* devices with options: sim */
/* `device:` of the config: a name, or {sim: {...}}. *ret_name: np_free. NULL node: auto. */
int np_device_parse(const struct np_node *node, char **ret_name,
    struct np_device_options *ret_options, struct np_report *report);
struct np_node *np_device_node(const char *name, const struct np_device_options *options);

/* The devices that are linked into the program. */
extern const struct np_device_ops np_device_cpu, np_device_sim;
extern const struct np_plan_ops np_plan_cpu, np_plan_sim;
void np_cpu_describe(struct np_device_info *info);

/* Totals of a sim device's streams; idle_ns: time between the first and the last step in which
 * compute had no work. Trainer thread. */
struct np_sim_times {
    uint64_t busy_ns, idle_ns, copy_ns;
    uint64_t nr_steps, nr_copies, copy_bytes;
};
void np_sim_read(const struct np_device *device, struct np_sim_times *ret_times);

/* The plugin's one symbol: `const struct np_plugin *np_plugin_cuda(void)`. */
#define NP_PLUGIN_VERSION 3
struct np_plugin {
    int version;          /* NP_PLUGIN_VERSION; a plugin with another version is refused */
    const char *contract; /* NP_CONTRACT of the plugin's headers; likewise */
    const char *build;    /* commit, for messages */
    const struct np_device_ops *ops;
    const struct np_plan_ops *plan_ops;
    /* Calls found for each GPU, or once with the reason why there is none. */
    void (*list)(np_info_fn found, void *context);
    /* Optional: NULL means nothing to measure. Measures a GPU for a second or two; an error
     * means that it cannot be opened. */
    int (*doctor)(int ordinal, np_found_fn found, void *context, struct np_err *err);
};

/* Loads the plugin at this path. -ENOENT: no such file. -ENOEXEC: it does not load, or lacks the
 * symbol. -EPROTO: built for another nnpipe. *ret_library: dlclose() when the device is closed. */
int np_plugin_load(
    const char *path, void **ret_library, const struct np_plugin **ret_plugin, struct np_err *err);

#endif
