/* Plans of an operation graph: what cuDNN's heuristics offer, kept or refused by our rules, bound
 * to memory, run, written down and read back. */
#include <errno.h>
#include <string.h>

#include "loader/base/mem.h"
#include "trainer/cuda/dnn_graph.h"

#define MAX_OFFERS 64
#define MAX_NOTES  16

static bool has_note(const struct np_cudnn *cudnn, cudnnBackendDescriptor_t engine,
    cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int note)
{
    int notes[MAX_NOTES] = {0};
    int64_t nr_notes = 0;

    if (cudnn->get(engine, name, type, MAX_NOTES, &nr_notes, notes) != CUDNN_STATUS_SUCCESS)
        return false;
    for (int64_t i = 0; i < nr_notes && i < MAX_NOTES; i++)
        if (notes[i] == note)
            return true;
    return false;
}

static bool numerical(
    const struct np_cudnn *cudnn, cudnnBackendDescriptor_t engine, cudnnBackendNumericalNote_t note)
{
    return has_note(
        cudnn, engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, (int)note);
}

/* Is this engine within the rules? Products of halves are what a halves' graph asks for; of an f32
 * graph they are rounding nobody asked for. */
static bool allowed(const struct np_dnn *dnn, cudnnBackendDescriptor_t engine,
    const struct np_dnn_rules *rules, bool *ret_compiled)
{
    const struct np_cudnn *cudnn = dnn->target->cudnn;

    *ret_compiled = has_note(cudnn, engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE,
        CUDNN_TYPE_BEHAVIOR_NOTE, CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION);
    if (*ret_compiled && !rules->runtime)
        return false;
    if (rules->deterministic && numerical(cudnn, engine, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC))
        return false;
    if (numerical(cudnn, engine, CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS) ||
        numerical(cudnn, engine, CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION))
        return false;
    return !dnn->has_f32 || rules->tf32 ||
           !numerical(cudnn, engine, CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
}

/* A plan for one offer of the heuristics. 0, or -ENOTSUP: outside the rules, or cuDNN cannot after
 * all; the next offer is tried. */
static int build(struct np_dnn *dnn, cudnnBackendDescriptor_t config,
    const struct np_dnn_rules *rules, struct np_dnn_plan *ret_plan)
{
    const struct np_dnn_target *target = dnn->target;
    const struct np_cudnn *cudnn = target->cudnn;
    cudnnBackendDescriptor_t engine = NULL, plan = NULL;
    struct np_dnn_plan built = {0};
    int64_t count = 0, workspace = 0;
    cudnnStatus_t status;
    int code = -ENOTSUP;

    if (cudnn->new_descriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine) != CUDNN_STATUS_SUCCESS)
        return -ENOMEM;
    if (cudnn->get(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count,
            &engine) != CUDNN_STATUS_SUCCESS ||
        !allowed(dnn, engine, rules, &built.compiled))
        goto out;
    cudnn->get(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &count, &built.engine);
    if (cudnn->new_descriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &plan) !=
        CUDNN_STATUS_SUCCESS)
        goto out;
    status = cudnn->set(
        plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &config);
    if (status == CUDNN_STATUS_SUCCESS && target->handle)
        status = cudnn->set(
            plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &target->handle);
    else if (status == CUDNN_STATUS_SUCCESS)
        status = cudnn->set(plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP,
            CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &target->props);
    if (status != CUDNN_STATUS_SUCCESS || cudnn->finalize(plan) != CUDNN_STATUS_SUCCESS ||
        cudnn->get(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &count,
            &workspace) != CUDNN_STATUS_SUCCESS)
        goto out;
    built.plan = plan;
    built.workspace_bytes = (uint64_t)workspace;
    plan = NULL;
    *ret_plan = built;
    code = 0;
out:
    if (plan)
        cudnn->free_descriptor(plan);
    cudnn->free_descriptor(engine);
    return code;
}

static bool have_engine(const struct np_dnn_plan *plans, int n, int64_t engine)
{
    for (int i = 0; i < n; i++)
        if (plans[i].engine == engine)
            return true;
    return false;
}

/* The offers of one mode; plans of engines not there yet are added. Returns how many there are. */
static int ask(struct np_dnn *dnn, cudnnBackendHeurMode_t mode, const struct np_dnn_rules *rules,
    struct np_dnn_plan *plans, int nr_plans, int most)
{
    const struct np_dnn_target *target = dnn->target;
    const struct np_cudnn *cudnn = target->cudnn;
    cudnnBackendDescriptor_t heur = NULL, offers[MAX_OFFERS] = {0};
    int64_t nr_offers = 0;
    cudnnStatus_t status = cudnn->new_descriptor(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, &heur);

    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnn->set(heur, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH,
            CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &dnn->graph);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnn->set(heur, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    if (status == CUDNN_STATUS_SUCCESS && target->props)
        status = cudnn->set(heur, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR,
            1, &target->props);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnn->finalize(heur);
    for (int i = 0; i < MAX_OFFERS && status == CUDNN_STATUS_SUCCESS; i++)
        status = cudnn->new_descriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &offers[i]);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnn->get(heur, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
            MAX_OFFERS, &nr_offers, offers);
    for (int64_t i = 0; status == CUDNN_STATUS_SUCCESS && i < nr_offers && nr_plans < most; i++) {
        struct np_dnn_plan plan;

        if (build(dnn, offers[i], rules, &plan) < 0)
            continue;
        if (mode != CUDNN_HEUR_MODE_FALLBACK || !have_engine(plans, nr_plans, plan.engine))
            plans[nr_plans++] = plan;
        else
            np_dnn_plan_free(cudnn, &plan);
    }
    for (int i = 0; i < MAX_OFFERS; i++)
        if (offers[i])
            cudnn->free_descriptor(offers[i]);
    if (heur)
        cudnn->free_descriptor(heur);
    return nr_plans;
}

int np_dnn_plans(struct np_dnn *dnn, const struct np_dnn_rules *rules,
    struct np_dnn_plan *ret_plans, int most, struct np_err *err)
{
    static const cudnnBackendHeurMode_t modes[] = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK};
    char why[400] = "";
    int nr_plans = 0;

    for (size_t i = 0; i < sizeof(modes) / sizeof(*modes) && nr_plans < most; i++)
        nr_plans = ask(dnn, modes[i], rules, ret_plans, nr_plans, most);
    if (nr_plans > 0)
        return nr_plans;
    if (dnn->target->cudnn->last_error)
        dnn->target->cudnn->last_error(why, sizeof(why));
    return np_err_set(
        err, -ENOTSUP, "cuDNN has no plan for it: %s", *why ? why : "no engine offered");
}

void np_dnn_plan_free(const struct np_cudnn *cudnn, struct np_dnn_plan *plan)
{
    if (plan->pack)
        cudnn->free_descriptor(plan->pack);
    if (plan->plan)
        cudnn->free_descriptor(plan->plan);
    *plan = (struct np_dnn_plan){0};
}

int np_dnn_plan_save(const struct np_cudnn *cudnn, const struct np_dnn_plan *plan, char **ret_json,
    struct np_err *err)
{
    int64_t bytes = 0;
    char *json;

    if (cudnn->get(plan->plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, 0,
            &bytes, NULL) != CUDNN_STATUS_SUCCESS ||
        bytes <= 0)
        return np_err_set(err, -ENOTSUP, "cuDNN does not write this plan down");
    json = np_alloc((size_t)bytes + 1);
    if (!json)
        return np_err_set(err, -ENOMEM, "no memory for a plan's text");
    if (cudnn->get(plan->plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
            bytes, &bytes, json) != CUDNN_STATUS_SUCCESS) {
        np_free(json);
        return np_err_set(err, -ENOTSUP, "cuDNN does not write this plan down");
    }
    *ret_json = json;
    return 0;
}

int np_dnn_plan_load(const struct np_dnn_target *target, const char *json,
    struct np_dnn_plan *ret_plan, struct np_err *err)
{
    const struct np_cudnn *cudnn = target->cudnn;
    struct np_dnn_plan plan = {0};
    int64_t count = 0, workspace = 0;
    cudnnStatus_t status =
        cudnn->new_descriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &plan.plan);

    if (status == CUDNN_STATUS_SUCCESS && target->handle)
        status = cudnn->set(
            plan.plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &target->handle);
    else if (status == CUDNN_STATUS_SUCCESS)
        status = cudnn->set(plan.plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP,
            CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &target->props);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnn->set(plan.plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION,
            CUDNN_TYPE_CHAR, (int64_t)strlen(json) + 1, json);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnn->finalize(plan.plan);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnn->get(plan.plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64,
            1, &count, &workspace);
    if (status != CUDNN_STATUS_SUCCESS) {
        np_dnn_plan_free(cudnn, &plan);
        return np_dnn_refuse(cudnn, status, "a plan from the cache", err);
    }
    plan.workspace_bytes = (uint64_t)workspace;
    plan.engine = -1;
    *ret_plan = plan;
    return 0;
}

int np_dnn_bind(const struct np_dnn *dnn, struct np_dnn_plan *plan, void *const *pointers,
    void *workspace, struct np_err *err)
{
    const struct np_cudnn *cudnn = dnn->target->cudnn;
    cudnnBackendDescriptor_t pack = NULL;
    cudnnStatus_t status = cudnn->new_descriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack);

    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnn->set(
            pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, dnn->nr_bound, dnn->bound);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnn->set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
            dnn->nr_bound, pointers);
    if (status == CUDNN_STATUS_SUCCESS)
        status =
            cudnn->set(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnn->finalize(pack);
    if (status != CUDNN_STATUS_SUCCESS) {
        if (pack)
            cudnn->free_descriptor(pack);
        return np_dnn_refuse(cudnn, status, "the pointers of a plan", err);
    }
    if (plan->pack)
        cudnn->free_descriptor(plan->pack);
    plan->pack = pack;
    return 0;
}

int np_dnn_run(
    const struct np_dnn_target *target, const struct np_dnn_plan *plan, struct np_err *err)
{
    cudnnStatus_t status = target->cudnn->execute(target->handle, plan->plan, plan->pack);

    return status == CUDNN_STATUS_SUCCESS
               ? 0
               : np_dnn_refuse(target->cudnn, status, "to run a plan", err);
}
