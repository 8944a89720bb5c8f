#ifdef NP_EMULATED_CUDA
#include "tests/kernel/kernel_case_cuda.h"

#include <string.h>

#include "loader/base/mem.h"
#include "loader/batch.h"
#include "trainer/cuda/program_cuda.h"

/* Of any node whose largest tensor has `most` elements. */
static uint64_t workspace_bytes(const struct np_cuda_program *program, uint64_t most)
{
    const struct np_op_node *node = &program->graph->nodes[0];
    uint64_t sums = np_cuda_channel_scratch(most, (int)most < 4096 ? (int)most : 4096);
    uint64_t own = np_cuda_token_scratch(program, node);

    return own > sums ? own : sums;
}

void kernel_case_run_cuda(struct kernel_case *the_case, enum np_dtype dtype)
{
    const struct np_op_node *node = kernel_case_node(the_case);
    struct np_cuda_step step = {.step = 3,
        .loss_scale = 0.125f,
        .images = the_case->tested[0],
        .labels = the_case->tested[1],
        .values = np_batch_values(the_case->tested[1], the_case->graph->batch)};
    struct np_cuda_scaler scaler = {.scale = 1};
    struct np_cuda_numbers numbers[NP_CUDA_SLOTS];
    static struct np_cuda cuda;
    struct np_cuda_program program = {.cuda = &cuda,
        .graph = the_case->graph,
        .dtype = (enum np_cuda_dtype)dtype,
        .arrays = {.step = &step,
            .scaler = &scaler,
            .numbers = numbers,
            .class_weights = the_case->graph->class_weights}};
    struct np_cuda_call call = {.node = node};
    uint64_t most = 1;

    np_mix_draw(&node->attrs.mix, step.step, &step.mixed);
    for (int t = 0; t < the_case->graph->nr_tensors; t++)
        if (np_tensor_elements(&the_case->graph->tensors[t]) > most)
            most = np_tensor_elements(&the_case->graph->tensors[t]);
    program.workspace = np_alloc(workspace_bytes(&program, most));
    memcpy(call.p, the_case->tested, sizeof(call.p));
    np_cuda_lowerings[node->op].run(&program, &call);
    np_free(program.workspace);
}
#endif
