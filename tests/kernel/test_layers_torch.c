/* Normalisation and attention, and their gradients, by the reference and by the CPU's kernels, beside
 * torch's numbers in tests/golden/layers.txt. tests/golden/layers.py wrote it and makes the same
 * operands. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/kernel/kernel_case.h"
#include "tests/test.h"

#define N         2
#define H         3
#define W         2
#define C         12
#define TOLERANCE 2e-6 /* of the largest: torch's are in double */

static char *read_golden(void)
{
    const size_t room = 1 << 16;
    char *text = calloc(1, room);
    FILE *file = fopen("tests/golden/layers.txt", "r");

    cr_assert(file && fread(text, 1, room - 1, file) > 0);
    fclose(file);
    return text;
}

/* Operand i becomes the numbers of layers.py. */
static void make_up(struct kernel_case *the_case, int i, int seed, double factor)
{
    uint64_t n = np_tensor_elements(&the_case->graph->tensors[kernel_case_node(the_case)->ins[i]]);

    for (uint64_t k = 0; k < n; k++) {
        double value = (double)((k * 7919 + (uint64_t)seed * 104729) % 997) / 498.5 - 1;

        ((float *)the_case->reference[i])[k] = ((float *)the_case->tested[i])[k] =
            (float)(factor * value);
    }
}

static double difference(const char *line, const float *found, uint64_t n)
{
    double off = 0, largest = 0;
    char *next = (char *)line;

    for (uint64_t i = 0; i < n; i++) {
        const char *at = next;
        double wanted = strtod(at, &next);

        if (next == at)
            return INFINITY; /* too few */
        off = fmax(off, fabs(wanted - (double)found[i]));
        largest = fmax(largest, fabs(wanted));
    }
    return *next == '\n' && largest > 0 ? off / largest : INFINITY;
}

/* Output o of both kernels is the line of this name. */
static bool is_torchs(const struct kernel_case *the_case, const char *file, const char *name, int o)
{
    const struct np_op_node *node = &the_case->graph->nodes[0];
    const uint64_t n = np_tensor_elements(&the_case->graph->tensors[node->outs[o]]);
    const char *line = strstr(file, name);
    double reference, here;

    if (!line)
        return false;
    line += strlen(name);
    reference = difference(line, the_case->reference[node->nr_ins + o], n);
    here = difference(line, the_case->tested[node->nr_ins + o], n);
    if (!(reference <= TOLERANCE && here <= TOLERANCE))
        fprintf(stderr, "%s: the reference is off by %g, the CPU's kernel by %g\n", name, reference,
            here);
    return reference <= TOLERANCE && here <= TOLERANCE;
}

static void picture(struct kernel_case *the_case, int c, bool out)
{
    kernel_case_activation(the_case, NP_F32, H, W, c, out);
}

static void channels(struct kernel_case *the_case, bool out)
{
    kernel_case_values(the_case, (const int[4]){C}, 1, 0, out ? NP_ROLE_GRAD : NP_ROLE_PARAM, out);
}

static void start(struct kernel_case *the_case, enum np_op op, int groups)
{
    kernel_case_init(the_case, op, N);
    kernel_case_node(the_case)->attrs.groups = groups;
    kernel_case_node(the_case)->attrs.eps = 1e-3;
    kernel_case_node(the_case)->attrs.heads = 2;
}

static bool norm_is_torchs(const char *file, int groups, const char *const names[4])
{
    struct kernel_case forward, dgrad, wgrad;
    bool right;

    start(&forward, NP_OP_NORM, groups);
    picture(&forward, C, false);
    channels(&forward, false);
    channels(&forward, false);
    picture(&forward, C, true);
    start(&dgrad, NP_OP_NORM_DGRAD, groups);
    picture(&dgrad, C, false);
    picture(&dgrad, C, false);
    channels(&dgrad, false);
    picture(&dgrad, C, true);
    start(&wgrad, NP_OP_NORM_WGRAD, groups);
    picture(&wgrad, C, false);
    picture(&wgrad, C, false);
    channels(&wgrad, true);
    channels(&wgrad, true);
    for (int i = 0; i < 3; i++) {
        make_up(&forward, i, (const int[]){1, 2, 3}[i], 1);
        make_up(&dgrad, i, (const int[]){4, 1, 2}[i], 1);
        if (i < 2)
            make_up(&wgrad, i, (const int[]){1, 4}[i], 1);
    }
    right = kernel_case_run(&forward, 2, 1) && kernel_case_run(&dgrad, 2, 1) &&
            kernel_case_run(&wgrad, 2, 1) && is_torchs(&forward, file, names[0], 0) &&
            is_torchs(&dgrad, file, names[1], 0) && is_torchs(&wgrad, file, names[2], 0) &&
            is_torchs(&wgrad, file, names[3], 1);
    kernel_case_fini(&forward);
    kernel_case_fini(&dgrad);
    kernel_case_fini(&wgrad);
    return right;
}

Test(layers_torch, normalisation_and_its_gradients_are_torchs)
{
    char *file = read_golden();

    cr_expect(norm_is_torchs(file, 0,
        (const char *const[4]){
            "layernorm.y", "layernorm.dx", "layernorm.dgamma", "layernorm.dbeta"}));
    cr_expect(norm_is_torchs(file, 3,
        (const char *const[4]){
            "groupnorm.y", "groupnorm.dx", "groupnorm.dgamma", "groupnorm.dbeta"}));
    free(file);
}

Test(layers_torch, attention_and_its_gradient_are_torchs)
{
    char *file = read_golden();
    struct kernel_case forward, dgrad;

    start(&forward, NP_OP_ATTENTION, 0);
    picture(&forward, 3 * C, false);
    picture(&forward, C, true);
    make_up(&forward, 0, 1, 2);
    cr_expect(kernel_case_run(&forward, 2, 1) && is_torchs(&forward, file, "attention.y", 0));
    start(&dgrad, NP_OP_ATTENTION_DGRAD, 0);
    picture(&dgrad, C, false);
    picture(&dgrad, 3 * C, false);
    picture(&dgrad, 3 * C, true);
    make_up(&dgrad, 0, 4, 1);
    make_up(&dgrad, 1, 1, 2);
    cr_expect(kernel_case_run(&dgrad, 2, 1) && is_torchs(&dgrad, file, "attention.dx", 0));
    kernel_case_fini(&forward);
    kernel_case_fini(&dgrad);
    free(file);
}
