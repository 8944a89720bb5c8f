/* Attention by oneDNN's matrix product: a head of a row at a time, a block of queries after the
 * other, so that the weights of a block stay in the cache. In f32; a row in bf16 is converted. The
 * backward pass computes the weights again. Any pool thread, each its own lane. */
#include "trainer/cpu/kernels_onednn_api.h"

#include <math.h>

#include "trainer/cpu/kernels_cpu.h"
#include "trainer/cpu/simd.h"

#define QUERIES 64 /* of a block: fixed, for equal rounding */

struct attention {
    bool half, back;
    size_t tokens, heads, width, c; /* width: channels of a head; c: of all */
    float scale;
};

/* Rows in f32: x (tokens, 3c), y (tokens, c), dx (tokens, 3c); weights: p and dp (QUERIES, tokens) */
struct room {
    float *x, *y, *dx, *p, *dp;
};

static size_t room_floats(const struct attention *attention)
{
    size_t rows = attention->half ? 7 * attention->tokens * attention->c : 0;

    return rows + 2 * QUERIES * attention->tokens;
}

static int attention_prepare(const struct np_graph *graph, const struct np_op_node *node,
    int max_rows, void **ret_state, struct np_needs *ret_needs, struct np_err *err)
{
    struct attention *attention = np_alloc(sizeof(*attention));
    const bool back = node->op == NP_OP_ATTENTION_DGRAD;
    const int *y = graph->tensors[back ? node->ins[0] : node->outs[0]].dims;

    attention->half = graph->tensors[node->ins[0]].dtype == NP_BF16;
    attention->back = back;
    attention->tokens = (size_t)y[1] * (size_t)y[2];
    attention->c = (size_t)y[3];
    attention->heads = (size_t)node->attrs.heads;
    attention->width = attention->c / attention->heads;
    attention->scale = 1 / sqrtf((float)attention->width);
    *ret_needs = (struct np_needs){.scratch_bytes = room_floats(attention) * sizeof(float)};
    *ret_state = attention;
    return 0;
}

struct matrix {
    const float *at;
    size_t pitch; /* elements from row to row */
    char op;      /* 'T': stored transposed */
};

/* out (m, n) = factor a (m, k) b (k, n), or is added to. */
static void product(size_t m, size_t n, size_t k, float factor, struct matrix a, struct matrix b,
    bool add, float *out, size_t pitch)
{
    np_sgemm(a.op, b.op, m, n, k, factor, a.at, a.pitch, b.at, b.pitch, add ? 1 : 0, out, pitch);
}

/* Each row of p (rows, n) becomes its softmax. */
NP_LOOP(softmax, (float *p, size_t rows, size_t n), (p, rows, n))
{
    for (size_t r = 0; r < rows; r++, p += n) {
        float max = -INFINITY, sum = 0;
        size_t i = 0;

        for (size_t j = 0; j < n; j++)
            max = p[j] > max ? p[j] : max;
        for (; i + 8 <= n; i += 8)
            np_store(p + i, np_exp(np_load(p + i) - np_set(max)));
        if (i < n) {
            np_v8 last = np_set(-INFINITY);

            memcpy(&last, p + i, (n - i) * sizeof(float));
            last = np_exp(last - np_set(max));
            memcpy(p + i, &last, (n - i) * sizeof(float));
        }
        for (size_t j = 0; j < n; j++)
            sum += p[j];
        for (size_t j = 0; j < n; j++)
            p[j] /= sum;
    }
}

/* dp (rows, n) = p (dp - sum of p dp) */
NP_LOOP(softmax_back, (float *dp, const float *p, size_t rows, size_t n), (dp, p, rows, n))
{
    for (size_t r = 0; r < rows; r++, p += n, dp += n) {
        float sum = 0;

        for (size_t j = 0; j < n; j++)
            sum += p[j] * dp[j];
        for (size_t j = 0; j < n; j++)
            dp[j] = p[j] * (dp[j] - sum);
    }
}

/* The head's query (part 0), key (1) or value (2) from token t on. */
static struct matrix part(
    const struct attention *attention, const float *x, size_t head, int which, size_t t, char op)
{
    const size_t pitch = 3 * attention->c;

    return (struct matrix){
        x + t * pitch + (size_t)which * attention->c + head * attention->width, pitch, op};
}

/* p = softmax(q k' / sqrt(d)) of `nr` queries from `first` on. */
static void weigh(const struct attention *attention, const struct room *room, size_t head,
    size_t first, size_t nr)
{
    product(nr, attention->tokens, attention->width, attention->scale,
        part(attention, room->x, head, 0, first, 'N'), part(attention, room->x, head, 1, 0, 'T'),
        false, room->p, attention->tokens);
    softmax(room->p, nr, attention->tokens);
}

static void attend(const struct attention *attention, const struct room *room, size_t head)
{
    const size_t n = attention->tokens, d = attention->width, c = attention->c;

    for (size_t q = 0, nr; q < n; q += nr) {
        nr = n - q < QUERIES ? n - q : QUERIES;
        weigh(attention, room, head, q, nr);
        product(nr, d, n, 1, (struct matrix){room->p, n, 'N'},
            part(attention, room->x, head, 2, 0, 'N'), false, room->y + q * c + head * d, c);
    }
}

/* dv = p' dy; dp = dy v'; ds = p (dp - sum of p dp); dq = ds k / sqrt(d), dk = ds' q / sqrt(d). */
static void attend_back(const struct attention *attention, const struct room *room, size_t head)
{
    const size_t n = attention->tokens, d = attention->width, c = attention->c;
    float *const dx = room->dx + head * d;

    for (size_t q = 0, nr; q < n; q += nr) {
        const struct matrix dy = {room->y + q * c + head * d, c, 'N'};

        nr = n - q < QUERIES ? n - q : QUERIES;
        weigh(attention, room, head, q, nr);
        product(n, d, nr, 1, (struct matrix){room->p, n, 'T'}, dy, q > 0, dx + 2 * c, 3 * c);
        product(nr, n, d, 1, dy, part(attention, room->x, head, 2, 0, 'T'), false, room->dp, n);
        softmax_back(room->dp, room->p, nr, n);
        product(nr, d, n, attention->scale, (struct matrix){room->dp, n, 'N'},
            part(attention, room->x, head, 1, 0, 'N'), false, dx + q * 3 * c, 3 * c);
        product(n, d, nr, attention->scale, (struct matrix){room->dp, n, 'T'},
            part(attention, room->x, head, 0, q, 'N'), q > 0, dx + c, 3 * c);
    }
}

/* Row r of an operand with n elements a row, in place, or in room for bf16 (loaded if wanted). */
static float *row_of(
    const struct attention *attention, void *data, size_t r, size_t n, float *room, bool load)
{
    if (!attention->half)
        return (float *)data + r * n;
    if (load)
        np_f32_from_bf16(room, (const uint16_t *)data + r * n, n);
    return room;
}

static void attention_run(void *state, const struct np_run *run)
{
    const struct attention *attention = state;
    const size_t n = attention->tokens * attention->c;
    void *const *q = run->operands->ptr;
    float *weights = run->scratch, *rows = weights + 2 * QUERIES * attention->tokens;

    for (size_t r = (size_t)run->first_row; r < (size_t)(run->first_row + run->nr_rows); r++) {
        struct room room = {.p = weights, .dp = weights + QUERIES * attention->tokens};

        room.x = row_of(attention, q[attention->back ? 1 : 0], r, 3 * n, rows, true);
        room.y = row_of(attention, q[attention->back ? 0 : 1], r, n, rows + 3 * n, attention->back);
        if (attention->back)
            room.dx = row_of(attention, q[2], r, 3 * n, rows + 4 * n, false);
        for (size_t head = 0; head < attention->heads; head++)
            (attention->back ? attend_back : attend)(attention, &room, head);
        if (attention->half && attention->back)
            np_bf16_from_f32((uint16_t *)q[2] + r * 3 * n, room.dx, 3 * n);
        else if (attention->half)
            np_bf16_from_f32((uint16_t *)q[1] + r * n, room.y, n);
    }
}

const struct np_kernel np_kernels_attention[] = {
    NP_KERNEL_ROWS(
        "onednn attention", NP_OP_ATTENTION, attention_prepare, NULL, attention_run, NULL),
    NP_KERNEL_ROWS("onednn attention dgrad", NP_OP_ATTENTION_DGRAD, attention_prepare, NULL,
        attention_run, NULL),
    {NULL},
};
