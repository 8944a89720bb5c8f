/* Products and stochastic depth on the CPU against the reference, on shapes that are no multiple of a
 * vector, cut into lanes and chunks; and whole rows are dropped, others in other steps. */
#include <string.h>

#include "tests/kernel/interp.h"
#include "tests/kernel/kernel_case.h"
#include "tests/kernel/made_graphs.h"
#include "tests/test.h"

static const int shapes[][3] = {{1, 1, 1}, {3, 5, 7}, {2, 2, 16}, {4, 3, 33}, {1, 1, 40}};
#define NR_SHAPES 5

static bool check(struct kernel_case *the_case, double tolerance)
{
    bool right = kernel_case_run(the_case, 3, 2) && kernel_case_error(the_case, 0) <= tolerance;

    if (!right)
        kernel_case_say(the_case, kernel_case_error(the_case, 0));
    kernel_case_fini(the_case);
    return right;
}

/* gate: the second factor is 1x1. */
static bool mul_is_right(const int shape[3], bool gate, enum np_dtype dtype)
{
    struct kernel_case the_case;

    kernel_case_init(&the_case, NP_OP_MUL, 7);
    kernel_case_activation(&the_case, dtype, shape[0], shape[1], shape[2], false);
    kernel_case_activation(
        &the_case, dtype, gate ? 1 : shape[0], gate ? 1 : shape[1], shape[2], false);
    kernel_case_activation(&the_case, dtype, shape[0], shape[1], shape[2], true);
    return check(&the_case, 0);
}

static bool mul_sum_is_right(const int shape[3], enum np_dtype dtype)
{
    struct kernel_case the_case;

    kernel_case_init(&the_case, NP_OP_MUL_SUM, 7);
    for (int i = 0; i < 2; i++)
        kernel_case_activation(&the_case, dtype, shape[0], shape[1], shape[2], false);
    kernel_case_activation(&the_case, dtype, 1, 1, shape[2], true);
    return check(&the_case, dtype == NP_F32 ? 1e-6 : 4e-3); /* the reference sums in double */
}

static bool drop_rows_is_right(const int shape[3], double rate, bool back, enum np_dtype dtype)
{
    struct kernel_case the_case;

    kernel_case_init(&the_case, back ? NP_OP_DROP_ROWS_DGRAD : NP_OP_DROP_ROWS, 13);
    kernel_case_node(&the_case)->attrs.rate = rate;
    kernel_case_node(&the_case)->attrs.seed = 0x123456789abcdefull;
    for (int i = 0; i < 2; i++)
        kernel_case_activation(&the_case, dtype, shape[0], shape[1], shape[2], i);
    return check(&the_case, 0);
}

Test(gate, products_and_dropped_rows_are_the_reference)
{
    for (int s = 0; s < NR_SHAPES; s++)
        for (int half = 0; half < 2; half++) {
            enum np_dtype dtype = half ? NP_BF16 : NP_F32;

            cr_expect(mul_is_right(shapes[s], false, dtype));
            cr_expect(mul_is_right(shapes[s], true, dtype));
            cr_expect(mul_sum_is_right(shapes[s], dtype));
            cr_expect(drop_rows_is_right(shapes[s], 0.4, false, dtype));
            cr_expect(drop_rows_is_right(shapes[s], 0.9, true, dtype));
        }
}

/* Rows of the batch that the step drops, a bit each; -1: a row is dropped in part. */
static int dropped(struct interp *interp, int tensor, uint64_t step)
{
    const int row = 5 * 5 * 3;
    uint8_t images[32 * 75];
    int32_t labels[32] = {0};
    int rows = 0;

    memset(images, 250, sizeof(images)); /* no pixel is 0 after normalisation */
    interp_run(interp, images, labels, step);
    for (int r = 0; r < 32; r++) {
        int zeros = 0;

        for (int i = 0; i < row; i++)
            zeros += interp_get(interp, tensor, (uint64_t)(r * row + i)) == 0;
        if (zeros != 0 && zeros != row)
            return -1;
        rows |= (zeros != 0) << (r % 31);
    }
    return rows;
}

Test(gate, stochastic_depth_drops_whole_rows_and_others_each_step)
{
    const struct made made = {32, 5, 5, 3, 4, NP_F32};
    struct np_graph *graph = made_good_graph(
        "model: [stochastic_depth: {rate: 0.5}, flatten, linear: {out: classes}]", made);
    struct np_graph *eval = graph ? np_graph_eval(graph) : NULL;
    struct interp interp;
    int drops = 0, first, second;

    cr_assert(graph && interp_init(&interp, graph, false) == 0);
    int out = graph->nodes[1].outs[0];
    first = dropped(&interp, out, 1);
    second = dropped(&interp, out, 2);
    cr_expect(first > 0 && second > 0 && first != second);
    cr_expect(first == dropped(&interp, out, 1));
    for (int n = 0; n < eval->nr_nodes; n++)
        drops += eval->nodes[n].op == NP_OP_DROP_ROWS;
    cr_expect(drops == 0);
    interp_fini(&interp);
    np_graph_free(graph);
    np_graph_free(eval);
}
