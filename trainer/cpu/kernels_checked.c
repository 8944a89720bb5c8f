/* Finds kernels, and lists those that were checked. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "loader/base/mem.h"
#include "trainer/cpu/kernels_check.h"
#include "trainer/cpu/simd.h"

#define MAX_KEY 160

struct entry {
    char key[MAX_KEY];
    bool wrong;
};

struct np_checked {
    struct entry *entries;
    int nr;
    size_t room_for;
    struct np_check_room room;
    bool trusts; /* kernels not listed are correct: checked with the same library and vectors */
    void (*note)(void *context, const char *text);
    void *context;
};

/* Writes the library and vectors that a verdict is valid for. */
static void write_with(char *text, size_t bytes)
{
    char version[32];

    np_onednn_version(version);
    snprintf(text, bytes, "checked with oneDNN %s, instructions %x, %s", version, np_onednn_isa(),
        np_vectors_name());
}

/* Writes a kernel and its shape, without the rows. */
static void write_key(char key[MAX_KEY], const struct np_kernel *kernel,
    const struct np_graph *graph, const struct np_op_node *node)
{
    const struct np_window *w = &node->attrs.window;
    char stride[24], pad[24], dilation[24];
    size_t at = 0;
    int n = snprintf(key, MAX_KEY, "%s:", kernel->name);

    for (int i = 0; n >= 0 && i < node->nr_ins + node->nr_outs; i++) {
        int t = i < node->nr_ins ? node->ins[i] : node->outs[i - node->nr_ins];
        const struct np_tensor *tensor = t < 0 ? NULL : &graph->tensors[t];
        bool batch = tensor && tensor->role == NP_ROLE_ACTIVATION; /* dims[0] is the batch */

        at += (size_t)n;
        n = snprintf(key + at, MAX_KEY - at, i == node->nr_ins ? " -> " : " ");
        for (int d = batch; n >= 0 && tensor && d < tensor->nr_dims; d++) {
            at += (size_t)n;
            n = snprintf(key + at, MAX_KEY - at, "%s%d", d > batch ? "x" : "", tensor->dims[d]);
        }
    }
    at += (size_t)n;
    snprintf(key + at, MAX_KEY - at, ", stride %s, pad %s, dilation %s, groups %d",
        np_axes_text(stride, w->stride_h, w->stride_w), np_axes_text(pad, w->pad_h, w->pad_w),
        np_axes_text(dilation, w->dilation_h, w->dilation_w), w->groups);
}

static struct entry *find(const struct np_checked *checked, const char *key)
{
    for (int i = 0; i < checked->nr; i++)
        if (strcmp(checked->entries[i].key, key) == 0)
            return &checked->entries[i];
    return NULL;
}

static void add(struct np_checked *checked, const char *key, size_t length, bool wrong)
{
    np_grow(
        &checked->entries, &checked->room_for, (size_t)checked->nr + 1, sizeof(*checked->entries));
    struct entry *entry = &checked->entries[checked->nr++];
    snprintf(entry->key, sizeof(entry->key), "%.*s", (int)length, key);
    entry->wrong = wrong;
}

/* Reads the lines of a state: library and vectors, then the wrong kernels. */
static void take_state(struct np_checked *checked, const char *state)
{
    char with[128];

    write_with(with, sizeof(with));
    for (const char *line = state; *line; line += strcspn(line, "\n")) {
        line += *line == '\n';
        size_t length = strcspn(line, "\n");

        if (strncmp(line, "wrong ", 6) == 0)
            add(checked, line + 6, length - 6, true);
        else if (length == strlen(with) && strncmp(line, with, length) == 0)
            checked->trusts = true;
    }
}

struct np_checked *np_checked_new(const struct np_plan_options *options)
{
    struct np_checked *checked = np_alloc(sizeof(*checked));

    checked->note = options->note;
    checked->context = options->note_context;
    if (options->state)
        take_state(checked, options->state);
    return checked;
}

void np_checked_free(struct np_checked *checked)
{
    if (!checked)
        return;
    np_free(checked->entries);
    np_check_room_fini(&checked->room);
    np_free(checked);
}

void np_checked_settle(struct np_checked *checked)
{
    np_check_room_fini(&checked->room);
}

int np_checked_usable(struct np_checked *checked, const struct np_kernel *kernel,
    const struct np_graph *graph, const struct np_op_node *node, int max_rows, bool *ret_found,
    struct np_err *err)
{
    char key[MAX_KEY];
    double error;

    write_key(key, kernel, graph, node);
    const struct entry *entry = find(checked, key);
    if (entry || checked->trusts)
        return !entry || !entry->wrong;
    int code = np_kernel_error(kernel, graph, node, max_rows, &checked->room, &error, err);
    if (code < 0)
        return code;
    bool wrong = !(error <= NP_KERNEL_ERROR); /* true for NaN */
    add(checked, key, strlen(key), wrong);
    *ret_found = wrong;
    return !wrong;
}

char *np_checked_state(const struct np_checked *checked)
{
    size_t bytes = 128, at;

    for (int i = 0; i < checked->nr; i++)
        bytes += checked->entries[i].wrong ? MAX_KEY + 8 : 0;
    char *text = np_alloc(bytes);
    write_with(text, bytes);
    at = strlen(text);
    for (int i = 0; i < checked->nr; i++)
        if (checked->entries[i].wrong)
            at += (size_t)snprintf(text + at, bytes - at, "\nwrong %s", checked->entries[i].key);
    return text;
}

/* --- finding ------------------------------------------------------------------------------- */

/* In order of preference; the reference supports every node. */
static const struct np_kernel *const lists[] = {np_kernels_cpu, np_kernels_bn, np_kernels_pool,
    np_kernels_winograd, np_kernels_dropout, np_kernels_loss, np_kernels_onednn, np_kernels_linear,
    np_kernels_act, np_kernels_token, np_kernels_attention, np_kernels_gate, np_kernels_resample,
    np_kernels_ref};
enum { NR_LISTS = sizeof(lists) / sizeof(*lists), REFERENCE = NR_LISTS - 1 };

static enum np_dtype dtype_of(const struct np_graph *graph, const struct np_op_node *node)
{
    for (int i = 0; i < node->nr_ins + node->nr_outs; i++) {
        int t = i < node->nr_ins ? node->ins[i] : node->outs[i - node->nr_ins];

        if (t >= 0 && graph->tensors[t].role == NP_ROLE_ACTIVATION)
            return graph->tensors[t].dtype;
    }
    return NP_F32;
}

void np_checked_report(const struct np_checked *checked, const struct np_op_node *node,
    const struct np_kernel *wrong, const struct np_kernel *instead)
{
    char text[400];
    bool slow = strncmp(instead->name, "reference", 9) == 0;

    if (!checked->note)
        return;
    snprintf(text, sizeof(text),
        "layer '%s': the kernel '%s' gives wrong numbers for its shape on this CPU and is not "
        "used; '%s' replaces it%s",
        node->name ? node->name : "?", wrong->name, instead->name, slow ? ", which is slow" : "");
    checked->note(checked->context, text);
}

int np_kernel_find(const struct np_graph *graph, const struct np_op_node *node, int max_rows,
    bool reference, struct np_checked *checked, struct np_prepared *ret_prepared,
    struct np_err *err)
{
    const struct np_kernel *wrong = NULL;
    enum np_dtype dtype = dtype_of(graph, node);

    for (int l = reference ? REFERENCE : 0; l < NR_LISTS; l++)
        for (const struct np_kernel *row = lists[l]; row->name; row++) {
            int code = 1;
            bool found = false;

            if (row->op != node->op || row->dtype != dtype)
                continue;
            if (checked && l < REFERENCE && np_kernel_checkable(node->op))
                code = np_checked_usable(checked, row, graph, node, max_rows, &found, err);
            if (found)
                wrong = row;
            if (code > 0)
                code = row->prepare(
                    graph, node, max_rows, &ret_prepared->state, &ret_prepared->needs, err);
            else if (code == 0)
                continue;
            if (code == -ENOTSUP)
                continue;
            if (code == 0)
                ret_prepared->kernel = row;
            if (code == 0 && wrong)
                np_checked_report(checked, node, wrong, row);
            return code;
        }
    return np_err_set(err, -ENOTSUP, "the CPU has no kernel for %s in %s", np_op_names[node->op],
        dtype == NP_F32    ? "f32"
        : dtype == NP_BF16 ? "bf16"
                           : "f16");
}
