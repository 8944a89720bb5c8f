/* One node, run by the reference and by the row that the CPU would take, on the same made-up
 * operands, cut into lanes and chunks as the executor does; then compared. */
#ifndef NP_KERNEL_CASE_H
#define NP_KERNEL_CASE_H

#include "trainer/cpu/kernels.h"

struct kernel_case {
    struct np_graph *graph;                                             /* one node */
    void *reference[2 * NP_MAX_OPERANDS], *tested[2 * NP_MAX_OPERANDS]; /* operands, ins first */
    const char *kernel;                                                 /* that was tested */
    double typical; /* errors are relative to at least this size, because sums may cancel; or 0 */
};

/* A node of this operation with a batch of `batch`. */
void kernel_case_init(struct kernel_case *the_case, enum np_op op, int batch);
struct np_op_node *kernel_case_node(struct kernel_case *the_case);
/* The next operand: an activation (batch, h, w, c), filled with normal numbers, or with zeros where
 * it is an output. h 0: (batch, c). */
void kernel_case_activation(
    struct kernel_case *the_case, enum np_dtype dtype, int h, int w, int c, bool out);
/* The next operand, f32, of these dims (0: none further); ins get normal numbers times scale plus
 * offset. */
void kernel_case_values(struct kernel_case *the_case, const int dims[4], float scale, float offset,
    enum np_role role, bool out);
/* Rounds weights to bf16: kernels in that type may do so themselves, or keep them f32. */
void kernel_case_round(struct kernel_case *the_case);
void kernel_case_absent(struct kernel_case *the_case);
/* Runs both; the tested one in `lanes` lanes, chunks of `chunk` rows, finish() in 3 parts. False: no
 * row but the reference's takes the node. */
bool kernel_case_run(struct kernel_case *the_case, int lanes, int chunk);
/* Runs the reference alone. */
void kernel_case_reference(struct kernel_case *the_case);
/* The largest difference of any output (first_out and beyond), as a share of its largest value, or of
 * `typical` where that is larger. */
double kernel_case_error(const struct kernel_case *the_case, int first_out);
/* To stderr: what was run, the shapes of its operands, and how far it is off. */
void kernel_case_say(const struct kernel_case *the_case, double error);
/* The same for outputs in bf16, which are sums in f32 rounded once: two right kernels round to the same
 * number, or to neighbours where the sum lies close to the middle. */
struct kernel_ulps {
    double
        most; /* the largest difference in units of the last place (of the larger of the element and
                    a 64th of the output's largest: below, sums cancel); NaN: infinite */
    double share; /* of the elements that differ at all */
};
struct kernel_ulps kernel_case_ulps(const struct kernel_case *the_case);
void kernel_case_fini(struct kernel_case *the_case);

#endif
