/* Internals of a plan, shared by plan_cuda.c (prepares it; whole steps), plan_queue.c (what they queue) and plan_memory.c
 * (device memory and copies). */
#ifndef NP_PLAN_MEMORY_H
#define NP_PLAN_MEMORY_H

#include "trainer/cuda/muon_cuda.h"
#include "trainer/cuda/program_cuda.h"
#include "trainer/cuda/snapshot_cuda.h"
#include "trainer/cuda/sums_cuda.h"

/* SUM: the last lane of a batch in lanes, and the sums of all lanes and processes. LAST: the update, too. */
enum np_cuda_kind {
    NP_CUDA_STEP,
    NP_CUDA_STEP_UPDATE,
    NP_CUDA_SUM,
    NP_CUDA_LAST,
    NP_CUDA_EVAL,
    NP_CUDA_NR_KINDS
};
/* The first step of a kind is queued call by call, so that every library loads all that it needs;
 * the second is captured. If the capture fails, all later steps are queued call by call too. */
struct np_cuda_captured {
    bool warm, refused;
    cudaGraphExec_t exec;
};

struct np_plan {
    struct np_device *device;
    struct np_cuda *cuda;
    struct np_cuda_layout train_layout, eval_layout; /* equal offsets */
    const struct np_cuda_layout *layout;
    struct np_cuda_convs *convs;          /* of both programs */
    struct np_cuda_program *train, *eval; /* train NULL: evaluation only */
    struct np_cuda_arrays arrays;
    float *state[2], *sum; /* of the optimizer; of gradients over an accumulation */
    float *kept[2];        /* params and buffers before sam's second pass; NULL: none yet */
    float *average[2];     /* of params and buffers; NULL: none yet */
    void *arena, *workspace, *norm_scratch;
    uint64_t workspace_bytes;
    uint64_t nr_buffers; /* elements */
    struct np_cuda_captured captured[NP_CUDA_NR_KINDS];
    struct np_mix mix; /* of training */
    bool halves_only;  /* the newest step has left the convolutions' gradients in half_grads */
    bool summing;      /* sum holds batches that have not been applied yet */
    bool f16;
    int kind, iterations;       /* enum np_optimizer, and muon's: of the newest update */
    float clip_norm;            /* the same */
    uint8_t *rule_of;           /* of the layout, on the device */
    struct np_scalars *scalars; /* (nr_rules) there */
    struct {
        uint32_t *starts;
        double *squares;
        float *ratios;
        int nr_tensors;
    } lamb;                    /* of struct np_cuda_optimizer; NULL before lamb's first update */
    struct np_cuda_muon *muon; /* NULL: updates are never muon's */
    void *muon_memory;
    bool noted_refusal;                 /* a failed capture was reported */
    bool graphs;                        /* steps may be captured: NNPIPE_CUDA_GRAPH is not 0 */
    struct np_cuda_step now;            /* the values last sent to the device */
    struct np_cuda_scaler scaler_start; /* copied to the device without a wait */

    cudaEvent_t passed[NP_CUDA_SLOTS]; /* after the batch of that slot */
    uint64_t nr_batches, nr_folded;    /* queued so far; summed in `metrics` */
    struct np_metrics metrics;
    struct np_cuda_sums *sums; /* NULL: batches are computed whole */
    /* With sums, of the batches that are folded and not read: unread[first_unread] is the oldest. */
    struct np_metrics *unread;
    float *unread_losses; /* (batch) each; NULL: not wanted */
    int first_unread, nr_unread;
    size_t room_unread, room_losses;
    struct np_cuda_snapshot snapshot;
    uint64_t *hashes;           /* (NP_ARRAY_GRADS, NP_CUDA_HASH_PARTS); NULL: one process */
    struct np_engines *engines; /* of this run */
    char *engines_path;         /* their cache; NULL: none, or the run was resumed */
    const struct np_cuda_program *last; /* its logits are in the arena */
};

static inline cudaStream_t np_cuda_stream(const struct np_plan *plan)
{
    return plan->cuda->streams[NP_STREAM_COMPUTE];
}

static inline int np_cuda_plan_check(
    const struct np_plan *plan, cudaError_t status, const char *what, struct np_err *err)
{
    return np_cuda_check(plan->device, status, what, err);
}

/* Takes device memory, zeroed; bytes 0 also gives memory. *ret_memory: a pointer of any type, freed
 * with cudaFree(). */
int np_cuda_take(struct np_plan *plan, uint64_t bytes, void *ret_memory, struct np_err *err);
/* np_cuda_take_arrays() takes all arrays but the optimizer's second state, with the loss scale of a
 * checkpoint's state (NULL: the initial one), and the host's memory for numbers.
 * np_cuda_take_arena() takes the arena and binds both programs. */
int np_cuda_take_arrays(
    struct np_plan *plan, bool training, bool halves, const char *state, struct np_err *err);
int np_cuda_take_arena(struct np_plan *plan, const struct np_graph *graph, struct np_err *err);
/* Takes the host's memory for the losses of NP_CUDA_SLOTS batches, before programs are made. */
int np_cuda_take_losses(struct np_plan *plan, const struct np_graph *graph, struct np_err *err);
/* Call after engines are chosen: zeroes the arrays that timing wrote, and shrinks the workspace
 * to what the chosen engines need. */
int np_cuda_settle_memory(struct np_plan *plan, struct np_err *err);
/* Copies the loss's class weights of the training graph, if it has any, to the device; the graph
 * stays borrowed. */
int np_cuda_take_weights(struct np_plan *plan, const struct np_graph *train, struct np_err *err);
/* Takes the memory of plan->muon, if there is one. */
int np_cuda_take_muon(struct np_plan *plan, struct np_err *err);
/* Takes the memory for hashes of the arrays, which several processes compare. */
int np_cuda_take_hashes(struct np_plan *plan, struct np_err *err);
void np_cuda_release_memory(struct np_plan *plan);
/* Takes the optimizer's second state, unless it exists. */
int np_cuda_second_state(struct np_plan *plan, struct np_err *err);
/* Forgets the graph of this kind: its next step is queued call by call. */
void np_cuda_drop_graph(struct np_plan *plan, enum np_cuda_kind kind);
/* Takes what updates of this kind need, unless it exists, and sets plan->kind and clip_norm. Drops the
 * captured step of another kind: different arrays and calls need another graph. */
int np_cuda_take_optimizer(struct np_plan *plan, const struct np_hyper *hyper, struct np_err *err);

/* Returns the device's array with this number, NP_ARRAY_*; takes it if it does not exist yet. */
int np_cuda_array(struct np_plan *plan, int array, float **ret_array, struct np_err *err);
/* The text of plan_ops->state(); np_free(). */
char *np_cuda_state_text(const struct np_plan *plan, const struct np_cuda_scaler *scaler);
/* Queues the cast of gradients that are halves only. */
void np_cuda_whole_grads(struct np_plan *plan);
/* Takes the averages of params and buffers, unless they exist. */
int np_cuda_take_averages(struct np_plan *plan, struct np_err *err);
/* Takes the copies of params and buffers for sam, unless they exist. */
int np_cuda_take_kept(struct np_plan *plan, struct np_err *err);

/* Of np_cuda_plan_ops. */
int np_cuda_plan_read(struct np_plan *plan, int array, float *out, struct np_err *err);
int np_cuda_plan_write(struct np_plan *plan, int array, const float *in, struct np_err *err);
int np_cuda_plan_state(struct np_plan *plan, char **ret_text, struct np_err *err);
int np_cuda_plan_hash(
    struct np_plan *plan, unsigned arrays, uint64_t *ret_hash, struct np_err *err);
int np_cuda_plan_logits(struct np_plan *plan, float *out, struct np_err *err);

#endif
