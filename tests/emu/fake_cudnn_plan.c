/* The emulated cuDNN: engines, plans, and running them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/emu/fake_cudnn.h"
#include "tests/emu/fake_numbers.h"
#include "tests/emu/traffic.h"

#define NONE (-1)
#define ROW  ((cudnnBackendAttributeName_t)0x7001) /* of an engine: ours alone */

/* In the order of preference. The first ones are for those who ignore notes. The last two are what
 * is left in f32 when all notes count; they round differently, so that which one was taken shows,
 * and are one engine with another knob: the engine's number does not distinguish them. */
static const struct engine {
    int64_t index, knob;
    int numerical, behavior; /* its notes */
    struct manner manner;
    int64_t workspace_bytes;
    bool fallback; /* offered in that mode, too */
} engines[] = {
    {10, 0, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC, NONE, {.any_order = true}, 0, false},
    {11, 0, CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS, NONE, {.products = TO_BF16}, 0, false},
    {12, 0, CUDNN_NUMERICAL_NOTE_TENSOR_CORE, NONE, {.products = TO_TF32}, 256, false},
    {13, 0, NONE, CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION, {.products = EXACT}, 0, false},
    {40, 0, NONE, NONE, {.backwards = true}, 4096, false},
    {40, 1, NONE, NONE, {.products = EXACT}, 1000, true},
};
#define NR_ENGINES ((int64_t)(sizeof(engines) / sizeof(*engines)))

/* --- what the environment plants -------------------------------------------------------------- */

/* Does the variable name the row? *ret_value: what it says behind "=", else left alone. */
static bool planted(const char *variable, int64_t row, int64_t *ret_value)
{
    const char *text = getenv(variable);
    char *end;

    for (; text && *text; text = *end ? end + 1 : end) {
        bool is_row = strtoll(text, &end, 10) == row && end > text;
        int64_t value = *end == '=' ? strtoll(end + 1, &end, 10) : 0;

        if (*end && *end != ' ')
            np_emu_die(variable, "'%s' is no list of rows", text);
        if (!is_row)
            continue;
        if (ret_value)
            *ret_value = value;
        return true;
    }
    return false;
}

static void note_build(int64_t row)
{
    const char *path = getenv("NNPIPE_EMU_BUILDS");
    FILE *file = path ? fopen(path, "a") : NULL;

    if (path && !file)
        np_emu_die("NNPIPE_EMU_BUILDS", "%s cannot be written", path);
    if (file) {
        fprintf(file, "%lld\n", (long long)row);
        fclose(file);
    }
}

/* --- the offered engines --------------------------------------------------------------------- */

static bool may_fuse(void)
{
    const char *fuse = getenv("NNPIPE_EMU_FUSE");

    return !fuse || strcmp(fuse, "0") != 0;
}

static void describe(struct descriptor *config, const struct descriptor *graph, int64_t row)
{
    const int type = CUDNN_KNOB_TYPE_TILE_SIZE;
    struct descriptor *engine = fake_new(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    struct descriptor *knob = fake_new(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);

    fake_put(engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &graph);
    fake_put(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &engines[row].index);
    fake_put(engine, ROW, CUDNN_TYPE_INT64, 1, &row);
    engine->finalized = true;
    fake_put(knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &type);
    fake_put(knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &engines[row].knob);
    knob->finalized = true;
    fake_put(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &engine);
    fake_put(config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &knob);
    config->finalized = true;
    fake_drop(engine);
    fake_drop(knob);
}

cudnnStatus_t fake_heuristics(
    struct descriptor *heuristics, int64_t room, int64_t *ret_count, void **ret_configs)
{
    const struct descriptor *graph = fake_part(heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
    int64_t mode = fake_int(heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, -1);
    const char *shift = getenv("NNPIPE_EMU_SHIFT");
    struct fake_program program;

    *ret_count = 0;
    if (!graph || (mode != CUDNN_HEUR_MODE_A && mode != CUDNN_HEUR_MODE_FALLBACK))
        return fake_error(CUDNN_STATUS_BAD_PARAM, "heuristics without a graph or a mode");
    fake_lower(graph, &program);
    if ((program.relu || program.bias.uid || program.sums[0].uid) && !may_fuse())
        return fake_error(CUDNN_STATUS_NOT_SUPPORTED, "no engine fuses, as NNPIPE_EMU_FUSE says");
    for (int64_t i = 0; i < NR_ENGINES && *ret_count < room; i++) {
        int64_t row = (i + (shift ? strtoll(shift, NULL, 10) : 0)) % NR_ENGINES;

        if (mode == CUDNN_HEUR_MODE_A || engines[row].fallback)
            describe(fake_descriptor(ret_configs[(*ret_count)++], "heuristics"), graph, row);
    }
    return CUDNN_STATUS_SUCCESS;
}

static int64_t row_of(const struct descriptor *engine)
{
    return fake_int(engine, ROW, 0);
}

static const struct engine *engine_of(const struct descriptor *engine)
{
    return &engines[row_of(engine)];
}

static int64_t workspace_of(const struct descriptor *engine)
{
    int64_t bytes = engine_of(engine)->workspace_bytes;

    planted("NNPIPE_EMU_WORKSPACE", row_of(engine), &bytes);
    return bytes;
}

cudnnStatus_t fake_notes(const struct descriptor *engine, cudnnBackendAttributeName_t name,
    int64_t room, int64_t *ret_count, int *ret_notes)
{
    int note = name == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE ? engine_of(engine)->numerical
                                                        : engine_of(engine)->behavior;

    *ret_count = note != NONE;
    if (note != NONE && room > 0)
        *ret_notes = note;
    return CUDNN_STATUS_SUCCESS;
}

static const struct descriptor *engine_of_plan(const struct descriptor *plan)
{
    const struct descriptor *config = fake_part(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);

    return config ? fake_part(config, CUDNN_ATTR_ENGINECFG_ENGINE) : NULL;
}

cudnnStatus_t fake_plan_finish(struct descriptor *plan)
{
    const struct descriptor *engine = engine_of_plan(plan);
    int64_t bytes;

    if (!engine || !fake_get(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE))
        return fake_error(CUDNN_STATUS_BAD_PARAM, "a plan without an engine or a handle");
    if (planted("NNPIPE_EMU_NO_BUILD", row_of(engine), NULL))
        return fake_error(CUDNN_STATUS_NOT_SUPPORTED, "the engine does not build");
    note_build(row_of(engine));
    bytes = workspace_of(engine);
    fake_put(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &bytes);
    return CUDNN_STATUS_SUCCESS;
}

/* --- running --------------------------------------------------------------------------------- */

struct job {
    struct fake_program program;
    void *ins[2], *bias, *out, *sums[2], *workspace;
    int64_t workspace_bytes;
};

static enum number number_of(cudnnDataType_t type)
{
    return type == CUDNN_DATA_FLOAT ? F32 : type == CUDNN_DATA_HALF ? F16 : BF16;
}

static size_t bytes_of(const struct fake_operand *operand)
{
    return (size_t)operand->elements * (operand->type == CUDNN_DATA_FLOAT ? 4 : 2);
}

/* Whether memory is the device's is asked when it is touched. */
static void reach(const void *memory, size_t bytes)
{
    if (!np_emu_holds(memory, bytes))
        np_emu_die("cuDNN", "%zu bytes at %p are not the device's", bytes, memory);
}

static float *widened(const struct fake_operand *operand, const void *memory)
{
    float *wide = calloc((size_t)operand->elements, sizeof(*wide));

    if (!wide)
        np_emu_die("cuDNN", "no memory for a tensor");
    reach(memory, bytes_of(operand));
    for (int64_t i = 0; i < operand->elements; i++)
        wide[i] = fake_load(memory, number_of(operand->type), i);
    return wide;
}

static void store(const struct job *job, const float *y)
{
    const struct fake_program *p = &job->program;

    reach(job->out, bytes_of(&p->out));
    for (int64_t i = 0; i < p->out.elements; i++) {
        float v = y[i];

        if (p->bias.uid)
            v += fake_load(job->bias, number_of(p->bias.type), i % p->conv.out);
        if (p->relu && !(v >= 0)) /* a NaN is not handed on */
            v = 0;
        fake_store(job->out, number_of(p->out.type), i, v);
    }
}

/* As cuDNN's own kernels do: parts of the batch are added to what the memory holds, in f32, in an
 * newly drawn order each time, whatever the engine's notes are. */
static void add_sums(const struct job *job, const float *y)
{
    const struct fake_program *p = &job->program;
    int64_t channels = p->conv.out, rows = p->out.elements / channels;
    float *sum = job->sums[0], *squares = job->sums[1];
    int64_t first = (int64_t)(np_emu_draw() % (uint64_t)rows);

    reach(sum, bytes_of(&p->sums[0]));
    reach(squares, bytes_of(&p->sums[1]));
    for (int64_t i = 0; i < rows; i++)
        for (int64_t c = 0; c < channels; c++) {
            float v = y[(first + i) % rows * channels + c];

            sum[c] += v;
            squares[c] += v * v;
        }
}

/* Each operand is read or written once; sums are added to. */
static void count(const struct job *job)
{
    static const char *const names[] = {"cudnn forward", "cudnn dgrad", "cudnn wgrad"};
    const struct fake_program *p = &job->program;
    const uint64_t sums = p->sums[0].uid ? 2 * bytes_of(&p->sums[0]) : 0;
    const int width = p->out.type == CUDNN_DATA_FLOAT ? 4 : 2;

    np_emu_traffic_add(names[p->kind],
        bytes_of(&p->ins[0]) + bytes_of(&p->ins[1]) + (p->bias.uid ? bytes_of(&p->bias) : 0) + sums,
        bytes_of(&p->out) + sums);
    reach(job->out, bytes_of(&p->out));
    np_emu_traffic_fill(job->out, p->out.elements, width, p->kind == WGRAD ? 1e-3f : 1);
}

static void run(void *context)
{
    const struct job *job = context;
    const struct fake_program *p = &job->program;

    if (np_emu_traffic()) {
        count(job);
        return;
    }
    float *a = widened(&p->ins[0], job->ins[0]), *b = widened(&p->ins[1], job->ins[1]);
    float *y = calloc((size_t)p->out.elements, sizeof(*y));

    if (!y)
        np_emu_die("cuDNN", "no memory for a tensor");
    if (p->bias.uid)
        reach(job->bias, bytes_of(&p->bias));
    if (job->workspace_bytes) { /* an engine writes all of it */
        reach(job->workspace, (size_t)job->workspace_bytes);
        memset(job->workspace, 0xff, (size_t)job->workspace_bytes);
    }
    if (p->kind == FORWARD)
        fake_forward(&p->conv, a, b, y);
    else if (p->kind == DGRAD)
        fake_dgrad(&p->conv, a, b, y);
    else
        fake_wgrad(&p->conv, a, b, y);
    store(job, y);
    if (p->sums[0].uid)
        add_sums(job, y);
    free(a);
    free(b);
    free(y);
}

/* The operand's pointer in the pack; NULL: there is none, or it lies badly. */
static void *pointer_of(const struct descriptor *pack, const struct fake_operand *operand)
{
    const struct attribute *uids = fake_get(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    const struct attribute *pointers = fake_get(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);

    for (int64_t i = 0; uids && pointers && i < uids->count && i < pointers->count; i++)
        if (((const int64_t *)uids->values)[i] == operand->uid) {
            void *pointer = ((void *const *)pointers->values)[i];

            return (uintptr_t)pointer % (uintptr_t)operand->alignment == 0 ? pointer : NULL;
        }
    return NULL;
}

/* A plan loads its kernels when it first runs, which a capture forbids; and some engines call at
 * each run what it forbids. */
static cudnnStatus_t check_capture(cudaStream_t stream, struct descriptor *plan)
{
    int64_t silent = 0;

    if (!plan->loaded && np_emu_break_capture(stream))
        return fake_error(CUDNN_STATUS_EXECUTION_FAILED, "kernels are not loaded in a capture");
    plan->loaded = true;
    if (planted("NNPIPE_EMU_NO_CAPTURE", row_of(engine_of_plan(plan)), &silent) &&
        np_emu_break_capture(stream) && !silent)
        return fake_error(CUDNN_STATUS_EXECUTION_FAILED, "the engine allocates");
    return CUDNN_STATUS_SUCCESS;
}

static void spend(int64_t row)
{
    int64_t host_us = 0, device_us = 1;

    planted("NNPIPE_EMU_HOST_US", row, &host_us);
    planted("NNPIPE_EMU_DEVICE_US", row, &device_us);
    np_emu_spend((uint64_t)host_us * 1000, (uint64_t)device_us * 1000);
}

cudnnStatus_t fake_execute(
    cudaStream_t stream, struct descriptor *plan, const struct descriptor *pack)
{
    const struct descriptor *engine = engine_of_plan(plan);
    const struct attribute *workspace = fake_get(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
    cudnnStatus_t status = check_capture(stream, plan);
    struct job *job = calloc(1, sizeof(*job));
    struct fake_program *p;

    if (status != CUDNN_STATUS_SUCCESS) {
        free(job);
        return status;
    }
    if (!job)
        return CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
    p = &job->program;
    fake_lower(fake_part(engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH), p);
    p->conv.manner = engine_of(engine)->manner;
    job->workspace_bytes = workspace_of(engine);
    job->workspace = workspace ? *(void **)workspace->values : NULL;
    job->ins[0] = pointer_of(pack, &p->ins[0]);
    job->ins[1] = pointer_of(pack, &p->ins[1]);
    job->out = pointer_of(pack, &p->out);
    job->bias = p->bias.uid ? pointer_of(pack, &p->bias) : NULL;
    for (int i = 0; i < 2; i++)
        job->sums[i] = p->sums[i].uid ? pointer_of(pack, &p->sums[i]) : NULL;
    if (!job->ins[0] || !job->ins[1] || !job->out || (p->bias.uid && !job->bias) ||
        (p->sums[0].uid && (!job->sums[0] || !job->sums[1]))) {
        free(job);
        return fake_error(CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER,
            "a tensor has no pointer, or one not aligned as declared");
    }
    spend(row_of(engine));
    np_emu_queue(stream, run, free, job);
    return CUDNN_STATUS_SUCCESS;
}
