/* Plans of an operation graph: the offers of cuDNN's heuristics, filtered by our rules, named by
 * engine and knobs, built, bound to memory, run. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/cuda/dnn_graph.h"

#define MAX_NOTES 16
#define MAX_KNOBS 64

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

/* True: the engine is within the rules. Products of halves are right in a graph of halves, but
 * unwanted rounding in an f32 graph. */
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

struct knob {
    int type; /* cudnnBackendKnobType_t */
    int64_t value;
};

/* Reads the knobs of a configuration, by type. Returns their number; < 0: cuDNN does not report
 * them. */
static int read_knobs(const struct np_dnn_target *target, cudnnBackendDescriptor_t config,
    struct knob knobs[MAX_KNOBS])
{
    struct np_dnn calls = {.target = target};
    cudnnBackendDescriptor_t choices[MAX_KNOBS] = {0};
    int n;

    for (int i = 0; i < MAX_KNOBS; i++)
        choices[i] = make(&calls, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, "a knob");
    n = get(&calls, config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR,
        MAX_KNOBS, choices, "knobs");
    for (int i = 0; i < n && i < MAX_KNOBS; i++) {
        struct knob knob;
        int at = i;

        get(&calls, choices[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1,
            &knob.type, "a knob");
        get(&calls, choices[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &knob.value,
            "a knob");
        if (calls.err.code)
            break;
        for (; at > 0 && knobs[at - 1].type > knob.type; at--)
            knobs[at] = knobs[at - 1];
        knobs[at] = knob;
    }
    np_dnn_drop(target->cudnn, choices, MAX_KNOBS);
    return calls.err.code == 0 && n <= MAX_KNOBS ? n : -1;
}

/* "40:2=1,7=64". */
static bool name_offer(
    const struct np_dnn_target *target, cudnnBackendDescriptor_t engine, struct np_dnn_offer *offer)
{
    struct knob knobs[MAX_KNOBS];
    int64_t index = 0, count = 0;
    int nr_knobs = read_knobs(target, offer->config, knobs), at;

    if (nr_knobs < 0 || target->cudnn->get(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64,
                            1, &count, &index) != CUDNN_STATUS_SUCCESS)
        return false;
    at = snprintf(offer->id, sizeof(offer->id), "%lld", (long long)index);
    for (int i = 0; i < nr_knobs && at < (int)sizeof(offer->id); i++)
        at += snprintf(offer->id + at, sizeof(offer->id) - (size_t)at, "%c%d=%lld", i ? ',' : ':',
            knobs[i].type, (long long)knobs[i].value);
    return at < (int)sizeof(offer->id);
}

/* True: the offer is within the rules; its name is filled. */
static bool take_offer(
    struct np_dnn *dnn, const struct np_dnn_rules *rules, struct np_dnn_offer *offer)
{
    const struct np_cudnn *cudnn = dnn->target->cudnn;
    cudnnBackendDescriptor_t engine = NULL;
    int64_t count = 0;
    bool good;

    if (cudnn->new_descriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine) != CUDNN_STATUS_SUCCESS)
        return false;
    good = cudnn->get(offer->config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
               &count, &engine) == CUDNN_STATUS_SUCCESS &&
           allowed(dnn, engine, rules, &offer->compiled) && name_offer(dnn->target, engine, offer);
    cudnn->free_descriptor(engine);
    return good;
}

/* True: the list holds the offer; with fallback also if it holds another offer of its engine. */
static bool have_offer(
    const struct np_dnn_offer *offers, int n, const struct np_dnn_offer *offer, bool fallback)
{
    for (int i = 0; i < n; i++)
        if (fallback ? atoll(offers[i].id) == atoll(offer->id)
                     : strcmp(offers[i].id, offer->id) == 0)
            return true;
    return false;
}

/* Gets the offers of this mode's heuristics as descriptors in configs; returns their number. */
static int ask(struct np_dnn *dnn, cudnnBackendHeurMode_t mode,
    cudnnBackendDescriptor_t configs[NP_DNN_OFFERS])
{
    static const char what[] = "to offer plans";
    const struct np_dnn_target *target = dnn->target;
    struct np_dnn calls = {.target = target};
    cudnnBackendDescriptor_t heur = make(&calls, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, what);
    int n;

    set(&calls, heur, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
        &dnn->graph, what);
    set(&calls, heur, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode, what);
    if (target->props)
        set(&calls, heur, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
            &target->props, what);
    finalize(&calls, heur, what);
    for (int i = 0; i < NP_DNN_OFFERS; i++)
        configs[i] = make(&calls, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, what);
    n = get(&calls, heur, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
        NP_DNN_OFFERS, configs, what);
    np_dnn_drop(target->cudnn, &heur, 1);
    return calls.err.code ? 0 : n;
}

int np_dnn_offers(struct np_dnn *dnn, const struct np_dnn_rules *rules,
    struct np_dnn_offer offers[NP_DNN_OFFERS], struct np_err *err)
{
    static const cudnnBackendHeurMode_t modes[] = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK};
    const struct np_cudnn *cudnn = dnn->target->cudnn;
    char why[400] = "";
    int n = 0;

    for (int m = 0; m < 2; m++) {
        cudnnBackendDescriptor_t configs[NP_DNN_OFFERS] = {0};
        int nr_configs = ask(dnn, modes[m], configs);

        for (int i = 0; i < nr_configs && n < NP_DNN_OFFERS; i++) {
            offers[n] = (struct np_dnn_offer){.config = configs[i]};
            if (!take_offer(dnn, rules, &offers[n]) || have_offer(offers, n, &offers[n], m > 0))
                continue;
            configs[i] = NULL;
            n++;
        }
        np_dnn_drop(cudnn, configs, NP_DNN_OFFERS);
    }
    if (n > 0)
        return n;
    if (cudnn->last_error)
        cudnn->last_error(why, sizeof(why));
    return np_err_set(
        err, -ENOTSUP, "cuDNN has no plan for it: %s", *why ? why : "no engine offered");
}

void np_dnn_offers_free(const struct np_cudnn *cudnn, struct np_dnn_offer *offers, int n)
{
    for (int i = 0; i < n; i++)
        cudnn->free_descriptor(offers[i].config);
}

int np_dnn_build(const struct np_dnn_target *target, const struct np_dnn_offer *offer,
    struct np_dnn_plan *ret_plan, struct np_err *err)
{
    static const char what[] = "to build a plan";
    struct np_dnn calls = {.target = target};
    struct np_dnn_plan built = {
        .plan = make(&calls, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, what)};
    int64_t workspace = 0;

    set(&calls, built.plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR,
        1, &offer->config, what);
    if (target->handle)
        set(&calls, built.plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1,
            &target->handle, what);
    else
        set(&calls, built.plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR,
            1, &target->props, what);
    finalize(&calls, built.plan, what);
    get(&calls, built.plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1,
        &workspace, what);
    if (calls.err.code) {
        np_dnn_plan_free(target->cudnn, &built);
        return np_err_set(err, calls.err.code, "%s", calls.err.text);
    }
    built.workspace_bytes = (uint64_t)workspace;
    memcpy(built.id, offer->id, sizeof(built.id));
    *ret_plan = built;
    return 0;
}

void np_dnn_plan_free(const struct np_cudnn *cudnn, struct np_dnn_plan *plan)
{
    np_dnn_drop(cudnn, &plan->plan, 1);
    *plan = (struct np_dnn_plan){0};
}

int np_dnn_bind(const struct np_dnn *dnn, void *const *pointers, void *workspace,
    cudnnBackendDescriptor_t *pack, struct np_err *err)
{
    static const char what[] = "the pointers of a plan";
    struct np_dnn calls = {.target = dnn->target};
    cudnnBackendDescriptor_t bound = make(&calls, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, what);

    set(&calls, bound, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, dnn->nr_bound,
        dnn->bound, what);
    set(&calls, bound, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, dnn->nr_bound,
        pointers, what);
    set(&calls, bound, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace, what);
    finalize(&calls, bound, what);
    np_dnn_drop(dnn->target->cudnn, calls.err.code ? &bound : pack, 1);
    if (calls.err.code)
        return np_err_set(err, calls.err.code, "%s", calls.err.text);
    *pack = bound;
    return 0;
}

int np_dnn_run(const struct np_dnn_target *target, const struct np_dnn_plan *plan,
    cudnnBackendDescriptor_t pack, struct np_err *err)
{
    cudnnStatus_t status = target->cudnn->execute(target->handle, plan->plan, pack);

    return status == CUDNN_STATUS_SUCCESS
               ? 0
               : np_dnn_refuse(target->cudnn, status, "to run a plan", err);
}
