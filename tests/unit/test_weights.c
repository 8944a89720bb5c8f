/* Weights by name from other files, and the hash two runs are compared by. */
#include <errno.h>
#include <math.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "loader/base/mem.h"
#include "tests/test.h"
#include "trainer/checkpoint/weights.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/checkpoint/weights_file.h"

static struct np_tensor tensors[] = {
    {.name = "fc.weight", .role = NP_ROLE_PARAM, .dims = {2, 3}, .nr_dims = 2},
    {.name = "fc.bias", .role = NP_ROLE_PARAM, .dims = {2}, .nr_dims = 1, .offset = 6},
    {.name = "x", .role = NP_ROLE_ACTIVATION, .dims = {5}, .nr_dims = 1},
    {.name = "bn.running_mean", .role = NP_ROLE_BUFFER, .dims = {2}, .nr_dims = 1},
};
static const struct np_graph graph = {
    .tensors = tensors, .nr_tensors = 4, .nr_params = 8, .nr_buffers = 2};

struct loaded {
    float params[8], buffers[2];
    int result;
    char text[1024];
};

/* Loads a file with these tensors over params of 1..8 and buffers of 9, 10. */
static struct loaded load(const struct np_st_tensor *stored, int n)
{
    struct loaded loaded = {{1, 2, 3, 4, 5, 6, 7, 8}, {9, 10}, 0, ""};
    struct np_weights_table *table = NULL;
    char path[64];
    struct np_io io;
    struct np_err err = {0};

    snprintf(path, sizeof(path), "/tmp/nnpipe-weights-%d", (int)getpid());
    if (np_io_open(&io, "pread", 1, NULL) < 0 ||
        np_st_write(&io, path, stored, n, NULL, NULL, NULL) < 0)
        abort();
    np_io_close(&io);
    loaded.result = np_weights_load(path, &graph, loaded.params, loaded.buffers, &table, &err);
    unlink(path);
    char *text = loaded.result == 0 ? np_weights_table_misfit(table) : np_strdup(err.text);
    snprintf(loaded.text, sizeof(loaded.text), "%s", text ? text : "");
    np_free(text);
    np_weights_table_free(table);
    return loaded;
}

static const float six[6] = {10, 20, 30, 40, 50, 60}, two[2] = {70, 80};

Test(weights, a_file_with_all_tensors_reports_nothing)
{
    int64_t count = 5;
    struct np_st_tensor stored[] = {
        {"bn.num_batches_tracked", "I64", {0}, 0, &count, 8, 0, false, {0}},
        {"fc.bias", "F32", {2}, 1, two, 8, 0, false, {0}},
        {"fc.weight", "F32", {2, 3}, 2, six, 24, 0, false, {0}},
        {"bn.running_mean", "F32", {2}, 1, two, 8, 0, false, {0}}};
    struct loaded loaded = load(stored, 4);
    cr_assert_eq(loaded.result, 0);
    cr_assert_str_eq(loaded.text, "");
    cr_assert_eq(memcmp(loaded.params, six, 24), 0);
    cr_assert_eq(memcmp(loaded.params + 6, two, 8), 0);
    cr_assert_eq(memcmp(loaded.buffers, two, 8), 0);
}

Test(weights, missing_unexpected_and_misshapen_tensors_are_listed)
{
    struct np_st_tensor stored[] = {{"fc.bias", "F32", {2}, 1, two, 8, 0, false, {0}},
        {"fc.weight", "F32", {3, 2}, 2, six, 24, 0, false, {0}},
        {"head.bias", "F32", {2}, 1, two, 8, 0, false, {0}}};
    struct loaded loaded = load(stored, 3);
    cr_assert_eq(loaded.result, 0);
    cr_assert_str_eq(loaded.text, "fc: weight is 3x2 in the file, 2x3 here; bn: running_mean is "
                                  "missing; not of this network: "
                                  "head.bias");
    cr_assert_eq(loaded.params[0], 1); /* left as it was */
    cr_assert_eq(loaded.params[6], 70);
}

Test(weights, a_long_list_is_cut)
{
    struct np_st_tensor stored[15] = {{"fc.bias", "F32", {2}, 1, two, 8, 0, false, {0}}};
    char names[15][8];
    for (int i = 1; i < 15; i++) {
        snprintf(names[i], sizeof(names[i]), "n%02d", i);
        stored[i] = (struct np_st_tensor){names[i], "F32", {2}, 1, two, 8, 0, false, {0}};
    }
    struct loaded loaded = load(stored, 15);
    cr_assert_not_null(strstr(loaded.text, "not of this network: n01, n02"));
    cr_assert_not_null(strstr(loaded.text, "n10 and 4 more"));
    cr_assert_null(strstr(loaded.text, "n11"));
}

Test(weights, a_file_of_another_network_is_an_error)
{
    struct np_st_tensor stored[] = {{"head.bias", "F32", {2}, 1, two, 8, 0, false, {0}}};
    struct loaded loaded = load(stored, 1);
    cr_assert_eq(loaded.result, -EINVAL);
    cr_assert_not_null(strstr(loaded.text, "no tensor fits"));
    cr_assert_eq(loaded.params[0], 1);
    cr_assert_eq(np_weights_load("/nonexistent/x", &graph, loaded.params, loaded.buffers,
                     &(struct np_weights_table *){NULL}, NULL),
        -ENOENT);
}

static struct loaded load_with_prefix(const char *prefix)
{
    char names[3][40];
    snprintf(names[0], sizeof(names[0]), "%sfc.bias", prefix);
    snprintf(names[1], sizeof(names[1]), "%sfc.weight", prefix);
    snprintf(names[2], sizeof(names[2]), "%sbn.running_mean", prefix);
    struct np_st_tensor stored[] = {
        {.name = names[0], .dtype = "F32", .dims = {2}, .nr_dims = 1, .data = two, .bytes = 8},
        {.name = names[1], .dtype = "F32", .dims = {2, 3}, .nr_dims = 2, .data = six, .bytes = 24},
        {.name = names[2], .dtype = "F32", .dims = {2}, .nr_dims = 1, .data = two, .bytes = 8}};
    return load(stored, 3);
}

Test(weights, prefixes_of_wrappers_are_left_out)
{
    static const char *const prefixes[] = {"module.", "_orig_mod.", "model.", "module._orig_mod."};
    for (int i = 0; i < 4; i++) {
        struct loaded loaded = load_with_prefix(prefixes[i]);
        cr_assert_eq(loaded.result, 0, "%s: %s", prefixes[i], loaded.text);
        cr_assert_str_eq(loaded.text, "");
        cr_assert_eq(memcmp(loaded.params, six, 24), 0);
        cr_assert_eq(loaded.buffers[1], 80);
    }
}

Test(weights, another_prefix_is_reported_with_the_way_to_leave_it_out)
{
    struct loaded loaded = load_with_prefix("encoder.");
    cr_assert_eq(loaded.result, -EINVAL);
    cr_assert_not_null(
        strstr(loaded.text, "its names begin with 'encoder.', the network's do not"));
    cr_assert_not_null(strstr(loaded.text, "#encoder. takes them without"));
}

Test(weights, files_of_other_programs_are_recognised_by_content)
{
#define BYTES(text) (const uint8_t *)(text), sizeof(text) - 1
    char text[600];

    cr_assert(np_weights_kind("x.h5", BYTES("\x89HDF\r\n\x1a\n\0"), text, sizeof(text)));
    cr_assert_not_null(strstr(text, "HDF5"));
    cr_assert(np_weights_kind("x", BYTES("\x08\x07\x12\x07pytorch"), text, sizeof(text)));
    cr_assert_not_null(strstr(text, "ONNX"));
    cr_assert(np_weights_kind("x.npz", BYTES("PK\3\4....w.npy"), text, sizeof(text)));
    cr_assert_not_null(strstr(text, "NumPy"));
    cr_assert(np_weights_kind("x.pkl", BYTES("\x80\x04\x95"), text, sizeof(text)));
    cr_assert_not_null(strstr(text, "pickle"));
    cr_assert_not(np_weights_kind("x.pth", BYTES("nothing of the kind"), text, sizeof(text)));
    cr_assert_not(np_weights_kind("x", BYTES(""), text, sizeof(text)));
}

Test(weights, half_and_double_precision_are_converted)
{
    /* 1, -2, 65504, the smallest subnormal, infinity, 0.333251953125 in f16 */
    uint16_t f16[6] = {0x3c00, 0xc000, 0x7bff, 0x0001, 0x7c00, 0x3555};
    uint16_t bf16[2] = {0x3fc0, 0xc2f7}; /* 1.5, -123.5 */
    double f64[2] = {0.1, -1e300};
    struct np_st_tensor stored[] = {{"fc.weight", "F16", {2, 3}, 2, f16, 12, 0, false, {0}},
        {"fc.bias", "BF16", {2}, 1, bf16, 4, 0, false, {0}},
        {"bn.running_mean", "F64", {2}, 1, f64, 16, 0, false, {0}}};
    struct loaded loaded = load(stored, 3);
    cr_assert_eq(loaded.result, 0);
    cr_assert(loaded.params[0] == 1 && loaded.params[1] == -2 && loaded.params[2] == 65504);
    cr_assert_eq(loaded.params[3], 0x1p-24f);
    cr_assert(isinf(loaded.params[4]));
    cr_assert_eq(loaded.params[5], 0.333251953125f);
    cr_assert(loaded.params[6] == 1.5f && loaded.params[7] == -123.5f);
    cr_assert(loaded.buffers[0] == 0.1f && isinf(loaded.buffers[1]));
}

Test(weights, integers_are_not_weights)
{
    int32_t ints[2] = {1, 2};
    struct np_st_tensor stored[] = {{"fc.bias", "I32", {2}, 1, ints, 8, 0, false, {0}},
        {"bn.running_mean", "F32", {2}, 1, two, 8, 0, false, {0}}};
    struct loaded loaded = load(stored, 2);
    cr_assert_eq(loaded.result, 0);
    cr_assert_not_null(strstr(loaded.text, "bias is 2 I32 in the file, 2 here"));
    cr_assert_eq(loaded.params[6], 7);
}

/* Appends one tensor as checkpoint.h describes the hash's bytes. */
static size_t describe(uint8_t *out, const char *name, const uint64_t *dims, uint64_t nr_dims,
    const float *data, size_t n)
{
    size_t at = 0;
    memcpy(out, name, strlen(name) + 1);
    at += strlen(name) + 1;
    memcpy(out + at, &nr_dims, 8);
    at += 8;
    memcpy(out + at, dims, nr_dims * 8);
    at += nr_dims * 8;
    memcpy(out + at, data, n * 4);
    return at + n * 4;
}

Test(weights, the_hash_is_sha256_of_the_documented_bytes)
{
    float params[8] = {1, 2, 3, 4, 5, 6, 7, 8}, buffers[2] = {9, 10};
    uint8_t bytes[512], digest[32];
    char want[65], got[65];
    size_t n = describe(bytes, "bn.running_mean", (uint64_t[]){2}, 1, buffers, 2);
    n += describe(bytes + n, "fc.bias", (uint64_t[]){2}, 1, params + 6, 2);
    n += describe(bytes + n, "fc.weight", (uint64_t[]){2, 3}, 2, params, 6);
    SHA256(bytes, n, digest);
    for (int i = 0; i < 32; i++)
        snprintf(want + 2 * i, 3, "%02x", digest[i]);
    np_weights_sha256(&graph, params, buffers, got);
    cr_assert_str_eq(got, want);
}

Test(weights, the_hash_does_not_depend_on_the_order_of_tensors)
{
    float params[8] = {1, 2, 3, 4, 5, 6, 7, 8}, buffers[2] = {9, 10};
    char one[65], two_[65];
    np_weights_sha256(&graph, params, buffers, one);
    struct np_tensor swapped[] = {tensors[3], tensors[1], tensors[0], tensors[2]};
    struct np_graph other = graph;
    other.tensors = swapped;
    np_weights_sha256(&other, params, buffers, two_);
    cr_assert_str_eq(one, two_);
    params[7] = nextafterf(8, 9);
    np_weights_sha256(&graph, params, buffers, two_);
    cr_assert_neq(strcmp(one, two_), 0);
}

/* PyTorch wrote the file; its own network must be there by name. */
Test(weights, a_file_from_torch_loads_by_name)
{
    const char *data = getenv("NNPIPE_DATA");
    static struct np_tensor theirs[] = {
        {.name = "conv1.weight", .role = NP_ROLE_PARAM, .dims = {8, 1, 3, 3}, .nr_dims = 4},
        {.name = "norm1.running_var", .role = NP_ROLE_BUFFER, .dims = {24}, .nr_dims = 1},
    };
    struct np_graph mine = {.tensors = theirs, .nr_tensors = 2};
    float params[72] = {0}, buffers[24] = {0};
    struct np_weights_table *table = NULL;
    char path[512];

    if (data == NULL || *data == 0)
        cr_skip_test("NNPIPE_DATA is not set");
    snprintf(path, sizeof(path), "%s/conformance/safetensors/mnist.safetensors", data);
    cr_assert_eq(np_weights_load(path, &mine, params, buffers, &table, NULL), 0);
    char *text = np_weights_table_misfit(table);
    cr_assert_not_null(strstr(text, "not of this network: conv1.bias, conv2.bias"));
    cr_assert_null(strstr(text, "missing"));
    np_free(text);
    np_weights_table_free(table);
    cr_assert(params[0] != 0 && fabsf(params[0]) < 10 && buffers[0] > 0);
}
