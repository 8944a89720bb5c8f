/* The check of a network's own kernels at a run's start: right kernels of all shapes pass, planted wrong
 * ones do not, and the results stay the same when a run resumes. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "loader/base/mem.h"
#include "tests/kernel/kernel_case.h"
#include "tests/test.h"
#include "trainer/cpu/kernels_check.h"
#include "trainer/cpu/kernels_ref.h"

struct shape {
    int h, w, in, out, kernel, stride, pad, dilation, groups;
};

static const struct shape shapes[] = {
    {8, 8, 16, 16, 3, 1, 1, 1, 1}, /* Winograd's, where that is used */
    {9, 7, 16, 32, 3, 1, 0, 1, 1}, {9, 11, 3, 16, 3, 2, 1, 1, 1}, {13, 12, 3, 8, 7, 2, 3, 1, 1},
    {10, 18, 8, 15, 1, 1, 0, 1, 1}, {9, 9, 16, 8, 1, 2, 0, 1, 1}, {12, 11, 8, 8, 3, 1, 2, 2, 1},
    {9, 9, 16, 32, 3, 1, 1, 1, 4}, {9, 9, 8, 8, 3, 2, 1, 1, 8},
    {5, 5, 64, 320, 3, 1, 1, 1, 1}, /* of many products: bf16 ends at 256 */
};
#define NR_SHAPES ((int)(sizeof(shapes) / sizeof(*shapes)))

static void make_conv(
    struct kernel_case *the_case, const struct shape *s, enum np_op op, enum np_dtype dtype)
{
    int reach = s->dilation * (s->kernel - 1) + 1;
    int oh = (s->h + 2 * s->pad - reach) / s->stride + 1;
    int ow = (s->w + 2 * s->pad - reach) / s->stride + 1;
    const int weight[4] = {s->out, s->in / s->groups, s->kernel, s->kernel}, bias[4] = {s->out};
    bool forward = op == NP_OP_CONV, wgrad = op == NP_OP_CONV_WGRAD;

    kernel_case_init(the_case, op, 6);
    kernel_case_node(the_case)->attrs.window =
        (struct np_window)NP_SQUARE(s->kernel, s->stride, s->pad, s->dilation, s->groups);
    kernel_case_node(the_case)->attrs.relu = forward;
    if (forward || wgrad)
        kernel_case_activation(the_case, dtype, s->h, s->w, s->in, false);
    if (!forward)
        kernel_case_activation(the_case, dtype, oh, ow, s->out, false);
    kernel_case_values(the_case, weight, 1, 0, wgrad ? NP_ROLE_GRAD : NP_ROLE_PARAM, wgrad);
    if (forward || wgrad)
        kernel_case_values(the_case, bias, 1, 0, wgrad ? NP_ROLE_GRAD : NP_ROLE_PARAM, wgrad);
    if (forward)
        kernel_case_activation(the_case, dtype, oh, ow, s->out, true);
    else if (!wgrad)
        kernel_case_activation(the_case, dtype, s->h, s->w, s->in, true);
}

static void make_linear(struct kernel_case *the_case, enum np_op op, enum np_dtype dtype)
{
    const int weight[4] = {37, 300}, bias[4] = {37};
    bool forward = op == NP_OP_LINEAR, wgrad = op == NP_OP_LINEAR_WGRAD;

    kernel_case_init(the_case, op, 6);
    if (forward || wgrad)
        kernel_case_activation(the_case, dtype, 1, 1, 300, false);
    if (!forward)
        kernel_case_activation(the_case, dtype, 1, 1, 37, false);
    kernel_case_values(the_case, weight, 1, 0, wgrad ? NP_ROLE_GRAD : NP_ROLE_PARAM, wgrad);
    if (forward || wgrad)
        kernel_case_values(the_case, bias, 1, 0, wgrad ? NP_ROLE_GRAD : NP_ROLE_PARAM, wgrad);
    if (!wgrad)
        kernel_case_activation(the_case, dtype, 1, 1, forward ? 37 : 300, true);
}

static double error_of(const struct kernel_case *the_case, const struct np_kernel *kernel, int rows)
{
    struct np_check_room room = {0};
    struct np_err err = {0};
    double error = NAN;
    int code = np_kernel_error(
        kernel, the_case->graph, &the_case->graph->nodes[0], rows, &room, &error, &err);

    np_check_room_fini(&room);
    return code < 0 ? -1 : error;
}

/* Every row of the table that takes the node; the number of those, or -1. */
static int rows_pass(const struct kernel_case *the_case, const struct np_kernel *table, double most)
{
    const struct np_op_node *node = &the_case->graph->nodes[0];
    const struct np_tensor *first =
        &the_case->graph->tensors[node->op == NP_OP_CONV_DGRAD ? node->outs[0] : node->ins[0]];
    int n = 0;

    for (; table->name; table++) {
        if (table->op != node->op || table->dtype != first->dtype)
            continue;
        for (int rows = 1; rows <= 3; rows += 2) {
            double error = error_of(the_case, table, rows);

            n += error >= 0;
            if (error == -1 || error <= most)
                continue;
            fprintf(stderr, "%s, %d rows: off by %g\n", table->name, rows, error);
            return -1;
        }
    }
    return n;
}

static bool tables_pass(struct kernel_case *the_case)
{
    const enum np_op op = the_case->graph->nodes[0].op;
    const bool linear = op == NP_OP_LINEAR || op == NP_OP_LINEAR_DGRAD || op == NP_OP_LINEAR_WGRAD;
    /* Whole numbers: the reference's sums are exact. */
    bool good = rows_pass(the_case, np_kernels_ref, 0) == 2 &&
                rows_pass(the_case, linear ? np_kernels_linear : np_kernels_onednn, 1e-6) >= 2 &&
                rows_pass(the_case, np_kernels_winograd, NP_KERNEL_ERROR / 4) >= 0;

    kernel_case_fini(the_case);
    return good;
}

Test(check, right_kernels_pass_exactly_and_winograd_within_a_quarter)
{
    static const enum np_op convs[] = {NP_OP_CONV, NP_OP_CONV_DGRAD, NP_OP_CONV_WGRAD};
    static const enum np_op linears[] = {NP_OP_LINEAR, NP_OP_LINEAR_DGRAD, NP_OP_LINEAR_WGRAD};

    for (int op = 0; op < 3; op++)
        for (int half = 0; half < 2; half++) {
            struct kernel_case the_case;

            for (int s = 0; s < NR_SHAPES; s++) {
                make_conv(&the_case, &shapes[s], convs[op], half ? NP_BF16 : NP_F32);
                cr_assert(tables_pass(&the_case), "%s, shape %d", np_op_names[convs[op]], s);
            }
            make_linear(&the_case, linears[op], half ? NP_BF16 : NP_F32);
            cr_assert(tables_pass(&the_case), "%s", np_op_names[linears[op]]);
        }
}

/* --- planted ---------------------------------------------------------------------------------- */

enum plant { NOTHING, OFF_BY_A_UNIT, NOT_WRITTEN, NO_NUMBER, TERM_DROPPED, LAST_ROW };
static enum plant planted;
static int nr_prepared;

static int spoiled_prepare(const struct np_graph *graph, const struct np_op_node *node, int rows,
    void **ret_state, struct np_needs *ret_needs, struct np_err *err)
{
    nr_prepared++;
    return np_ref_prepare(graph, node, rows, ret_state, ret_needs, err);
}

static void put(const struct np_ref *ref, void *data, size_t at, float value, bool add)
{
    np_ref_put(data, ref->dtype, at, add ? np_ref_get(data, ref->dtype, at) + value : value);
}

/* The reference's output with a fault in its last row's last element. */
static void spoil(const struct np_ref *ref, const struct np_run *run)
{
    void *out = run->operands->ptr[ref->node->nr_ins];
    size_t row = np_ref_row(np_ref_shape(ref, ref->node->outs[0]));
    size_t end = row * (size_t)(run->first_row + run->nr_rows);

    switch (planted) {
    case OFF_BY_A_UNIT: put(ref, out, end - 1, 1, true); break;
    case NOT_WRITTEN: put(ref, out, end - 1, NAN, false); break;
    case NO_NUMBER: put(ref, out, end - row, INFINITY, false); break;
    case LAST_ROW: /* only where a single row is left over */
        if (run->first_row > 0 && run->nr_rows == 1)
            put(ref, out, end - 1, 1, true);
        break;
    default: break;
    }
}

static void spoiled_run(void *state, const struct np_run *run)
{
    struct np_ref *ref = state;
    struct np_run with = *run;
    struct np_operands operands = *run->operands;
    float weights[16 * 16 * 9];

    if (planted == TERM_DROPPED) { /* output 3 without input 5 */
        memcpy(weights, operands.ptr[1], sizeof(weights));
        memset(weights + (3 * 16 + 5) * 9, 0, 9 * sizeof(float));
        operands.ptr[1] = weights;
        with.operands = &operands;
    }
    np_ref_conv(state, &with);
    spoil(ref, run);
}

static void spoiled_finish(void *state, const struct np_finish *finish)
{
    struct np_ref *ref = state;
    float *dweights = finish->operands->ptr[2], *dbias = finish->operands->ptr[3];
    size_t n = np_tensor_elements(&ref->graph->tensors[ref->node->outs[0]]);

    np_ref_wgrad_finish(state, finish);
    if (planted == OFF_BY_A_UNIT)
        dweights[n / 2] += 1;
    else if (planted == NO_NUMBER)
        dweights[0] = NAN;
    else if (planted == LAST_ROW)
        dbias[15] += 1;
}

static const struct np_kernel spoiled[] = {
    {"planted conv", NP_OP_CONV, NP_F32, spoiled_prepare, NULL, spoiled_run, NULL, np_free, NULL},
    {"planted dgrad", NP_OP_CONV_DGRAD, NP_F32, spoiled_prepare, NULL, spoiled_run, NULL, np_free,
        NULL},
    {"planted wgrad", NP_OP_CONV_WGRAD, NP_F32, spoiled_prepare, NULL, np_ref_conv_wgrad,
        spoiled_finish, np_free, NULL}};

static bool is_found(const struct np_kernel *kernel, enum np_dtype dtype, enum plant plant)
{
    struct kernel_case the_case;
    double error;

    planted = plant;
    make_conv(&the_case, &shapes[0], kernel->op, dtype);
    error = error_of(&the_case, kernel, 2);
    kernel_case_fini(&the_case);
    return !(error <= NP_KERNEL_ERROR);
}

Test(check, planted_faults_are_found_in_each_operation)
{
    static const enum plant faults[] = {
        OFF_BY_A_UNIT, NOT_WRITTEN, NO_NUMBER, TERM_DROPPED, LAST_ROW};

    for (int half = 0; half < 2; half++)
        for (int k = 0; k < 3; k++) {
            bool wgrad = spoiled[k].op == NP_OP_CONV_WGRAD;

            cr_assert_not(is_found(&spoiled[k], half ? NP_BF16 : NP_F32, NOTHING));
            for (int f = 0; f < 5; f++) {
                if (wgrad && (faults[f] == NOT_WRITTEN || faults[f] == TERM_DROPPED))
                    continue;
                cr_assert(is_found(&spoiled[k], half ? NP_BF16 : NP_F32, faults[f]),
                    "%s, fault %d, bf16 %d", spoiled[k].name, faults[f], half);
            }
        }
}

/* --- the list ---------------------------------------------------------------------------------- */

static int usable(struct np_checked *checked, const struct kernel_case *the_case,
    const struct np_kernel *kernel, bool *ret_found)
{
    struct np_err err = {0};

    *ret_found = false;
    return np_checked_usable(
        checked, kernel, the_case->graph, &the_case->graph->nodes[0], 2, ret_found, &err);
}

/* What a check leaves, as text, with this planted in the kernel of the first shape. */
static char *state_with(const struct np_kernel *kernel, enum plant plant)
{
    struct np_plan_options options = {0};
    struct np_checked *checked = np_checked_new(&options);
    struct kernel_case the_case;
    bool found;
    char *state;

    planted = plant;
    make_conv(&the_case, &shapes[0], kernel->op, NP_F32);
    cr_assert_eq(usable(checked, &the_case, kernel, &found), plant == NOTHING);
    cr_assert_eq(found, plant != NOTHING);
    nr_prepared = 0;
    cr_assert_eq(usable(checked, &the_case, kernel, &found), plant == NOTHING);
    cr_assert(nr_prepared == 0 && !found); /* known and reported before */
    state = np_checked_state(checked);
    np_checked_free(checked);
    kernel_case_fini(&the_case);
    return state;
}

Test(check, results_are_kept_and_not_checked_again)
{
    char *state = state_with(&spoiled[0], OFF_BY_A_UNIT);
    struct np_plan_options options = {.state = state};
    struct np_checked *checked = np_checked_new(&options);
    struct kernel_case the_case, other;
    bool found;
    char *again;

    planted = NOTHING; /* right, this time */
    nr_prepared = 0;
    make_conv(&the_case, &shapes[0], NP_OP_CONV, NP_F32);
    make_conv(&other, &shapes[1], NP_OP_CONV, NP_F32);
    cr_assert_eq(usable(checked, &the_case, &spoiled[0], &found), 0);
    cr_assert_eq(usable(checked, &other, &spoiled[0], &found), 1);
    cr_assert(nr_prepared == 0 && !found);
    again = np_checked_state(checked);
    cr_assert_str_eq(again, state);
    kernel_case_fini(&the_case);
    kernel_case_fini(&other);
    np_checked_free(checked);
    np_free(again);
    np_free(state);
}

Test(check, with_another_library_right_kernels_are_checked_again)
{
    char *state = state_with(&spoiled[0], OFF_BY_A_UNIT), *at = strstr(state, "oneDNN ");
    struct np_plan_options options = {.state = state};
    struct kernel_case the_case, other;
    struct np_checked *checked;
    bool found;

    cr_assert_not_null(at);
    at[7] = 'x';
    checked = np_checked_new(&options);
    planted = NOTHING;
    nr_prepared = 0;
    make_conv(&the_case, &shapes[0], NP_OP_CONV, NP_F32);
    make_conv(&other, &shapes[1], NP_OP_CONV, NP_F32);
    cr_assert_eq(usable(checked, &the_case, &spoiled[0], &found), 0);
    cr_assert_eq(nr_prepared, 0);
    cr_assert_eq(usable(checked, &other, &spoiled[0], &found), 1);
    cr_assert_eq(nr_prepared, 1);
    kernel_case_fini(&the_case);
    kernel_case_fini(&other);
    np_checked_free(checked);
    np_free(state);
}

static char said[400];

static void hear(void *context, const char *text)
{
    (void)context;
    snprintf(said, sizeof(said), "%s", text);
}

/* The kernel that stands first in the table, called wrong by a planted one of its name. */
Test(check, a_wrong_kernel_is_skipped_for_the_next_one)
{
    struct np_plan_options options = {.note = hear};
    struct np_checked *checked = np_checked_new(&options);
    struct np_prepared first, second;
    struct np_kernel same = spoiled[0];
    struct np_err err = {0};
    struct kernel_case the_case;
    bool found;

    make_conv(&the_case, &shapes[3], NP_OP_CONV, NP_BF16);
    cr_assert_eq(np_kernel_find(
                     the_case.graph, kernel_case_node(&the_case), 2, false, checked, &first, &err),
        0);
    first.kernel->free(first.state);
    cr_assert_str_empty(said);
    np_checked_free(checked);
    checked = np_checked_new(&options);
    same.name = first.kernel->name;
    planted = OFF_BY_A_UNIT;
    cr_assert_eq(usable(checked, &the_case, &same, &found), 0);
    cr_assert_eq(np_kernel_find(
                     the_case.graph, kernel_case_node(&the_case), 2, false, checked, &second, &err),
        0);
    second.kernel->free(second.state);
    cr_assert_str_neq(second.kernel->name, first.kernel->name);
    np_checked_report(checked, kernel_case_node(&the_case), first.kernel, second.kernel);
    cr_assert_not_null(strstr(said, "layer 'node'"));
    cr_assert_not_null(strstr(said, first.kernel->name));
    np_checked_free(checked);
    kernel_case_fini(&the_case);
}
