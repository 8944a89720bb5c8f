/* Memory whose size comes from a file or a network may run out: every such allocation fails once, and the call says
 * -ENOMEM and leaves nothing behind (the sanitizers look for leaks). */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "loader/base/mem.h"
#include "tests/kernel/made_graphs.h"
#include "tests/test.h"
#include "tests/unit/made_checkpoint.h"
#include "tests/unit/made_memory.h"
#include "trainer/checkpoint/checkpoint_names.h"
#include "trainer/checkpoint/weights.h"
#include "trainer/device.h"
#include "trainer/plan.h"

/* 0, or the error of the call that failed; 1: no allocation was left to fail. */
typedef int (*try_fn)(void *context, struct np_err *err);

/* Runs it with each of its allocations failing in turn; how many there were. */
static int each_fails(try_fn try_one, void *context)
{
    for (int n = 1;; n++) {
        struct np_err err = {0};

        made_memory_fail(n);
        const int code = try_one(context, &err);
        const int failed = made_memory_failed();

        made_memory_fail(0);
        if (!failed) {
            cr_assert_eq(code, 0, "%s", err.text);
            return n - 1;
        }
        cr_assert_eq(code, -ENOMEM, "allocation %d: %d, %s", n, code, err.text);
        cr_assert_not_null(strstr(err.text, "memory"), "allocation %d: %s", n, err.text);
    }
}

struct net {
    struct np_device *device;
    struct np_graph *train, *eval;
};

static const char model[] =
    "model: [conv: {out: 16, kernel: 3, pad: 1, bias: false}, batchnorm, relu, maxpool: "
    "{kernel: 2}, flatten, linear: {out: classes}]";

/* Prepares a plan and makes of it all that takes memory later: a sum, AdamW's second state. */
static int plan_all(void *context, struct np_err *err)
{
    static const struct np_hyper adamw = {
        .kind = NP_ADAMW, .lr = 0.01f, .eps = 1e-8f, .beta1 = 0.9, .beta2 = 0.99};
    static const uint8_t images[4 * 8 * 8 * 3];
    static const int32_t labels[4];
    const struct np_plan_options options = {.lanes = 2,
        .threads = 1,
        .deterministic = true,
        .losses = strcmp(((const struct net *)context)->device->name, "cpu") == 0};
    const struct net *net = context;
    const struct np_plan_ops *ops = net->device->plan_ops;
    struct np_plan *plan = NULL;
    int code = ops->prepare(net->device, net->train, net->eval, &options, &plan, err);

    for (int i = 0; i < 2 && code == 0; i++)
        code = ops->step(plan, images, labels, (uint64_t)i, 0.25f, i > 0, err);
    if (code == 0)
        code = ops->update(plan, &adamw, err);
    if (plan)
        ops->free(plan);
    return code;
}

static int plan_of(const char *device, enum np_dtype precision)
{
    struct net net = {.train = made_good_graph(model, (struct made){4, 8, 8, 3, 10, precision})};

    cr_assert_not_null(net.train);
    net.eval = np_graph_eval(net.train);
    cr_assert_eq(np_autodiff(net.train, NULL), 0);
    cr_assert_eq(np_device_open(device, NULL, &net.device, NULL), 0);
    const int nr = each_fails(plan_all, &net);

    np_device_close(net.device);
    np_graph_free(net.train);
    np_graph_free(net.eval);
    return nr;
}

/* Parameters, buffers, gradients, two states, a sum; sums and scratch of lanes; the arena; the
 * buffers of the kernels' check. */
Test(trainer_memory, a_plan_on_the_cpu, .timeout = 120)
{
    cr_assert_geq(plan_of("cpu", NP_F32), 12);
    cr_assert_geq(plan_of("cpu", NP_BF16), 12);
}

Test(trainer_memory, a_plan_of_the_sim_device)
{
    cr_assert_eq(plan_of("sim", NP_F32), NP_ARRAY_GRADS + 1);
}

static int read_latest(void *context, struct np_err *err)
{
    struct box *box = context;
    char *facts = NULL;
    const int code = np_checkpoint_latest(box->dir, &box->checkpoint, &facts, NULL, NULL, err);

    np_free(facts);
    return code;
}

static int load_weights(void *context, struct np_err *err)
{
    struct box *box = context;
    struct np_weights_table *table = NULL;
    char path[200];

    snprintf(path, sizeof(path), "%s/step-3/weights.safetensors", box->dir);
    const int code =
        np_weights_load(path, box->checkpoint.graph, box->params, box->buffers, &table, err);

    np_weights_table_free(table);
    return code;
}

static int load_torch(const char *name, struct np_err *err)
{
    static struct np_tensor tensors[] = {
        {.name = "fc.weight", .role = NP_ROLE_PARAM, .dims = {2, 3}, .nr_dims = 2}};
    static const struct np_graph graph = {.tensors = tensors, .nr_tensors = 1, .nr_params = 6};
    struct np_weights_table *table = NULL;
    float params[6];
    const int code = np_weights_load(name, &graph, params, NULL, &table, err);

    np_weights_table_free(table);
    return code;
}

static int load_torch_zip(void *context, struct np_err *err)
{
    return load_torch("tests/fuzz/corpus/torch/reference", err);
}

static int load_torch_old(void *context, struct np_err *err)
{
    return load_torch("tests/fuzz/corpus/torch/strided_old", err);
}

/* The list of the zip file, the pickle and its values, storages, tensors; a strided tensor. */
Test(trainer_memory, weights_of_torch)
{
    cr_assert_geq(each_fails(load_torch_zip, NULL), 12);
    cr_assert_geq(each_fails(load_torch_old, NULL), 12);
}

/* A checkpoint that is whole is not called damaged where memory was short. */
Test(trainer_memory, a_checkpoint_and_weights_of_other_programs)
{
    struct box *box = box_new("pread");

    cr_assert_eq(box_write(box, &box->io, 3, NULL), 0);
    cr_assert_geq(
        each_fails(read_latest, box), 6); /* names, and of both files header, tensors, a piece */
    cr_assert_geq(each_fails(load_weights, box), 3);
    cr_assert_eq(box_latest(box), 3);
    cr_assert_eq(box->nr_damaged, 0);
    box_free(box);
}
