/* The norm of the gradients, and the update: one pass each over flat arrays. Formulas as in
 * optim.c. */
#include "trainer/cuda/kernels_half.cuh"

#include <math.h>

#define WARP        32
#define NORM_BLOCKS 512
#define GOOD_STEPS  2000 /* until the loss scale doubles */

static int norm_blocks(uint64_t n)
{
    uint64_t blocks = (n + NP_THREADS * 4 - 1) / (NP_THREADS * 4);

    return blocks < 1 ? 1 : blocks > NORM_BLOCKS ? NORM_BLOCKS : (int)blocks;
}

extern "C" size_t np_cuda_norm_scratch(uint64_t n)
{
    return (size_t)norm_blocks(n) * sizeof(double);
}

/* The sum over the block; all its threads get it. */
static __device__ double sum_block(double value)
{
    NP_SHARED(double, sums, [NP_THREADS / WARP]);

    for (int bits = WARP / 2; bits > 0; bits /= 2)
        value += __shfl_xor_sync(0xffffffffu, value, bits);
    if (threadIdx.x % WARP == 0)
        sums[threadIdx.x / WARP] = value;
    __syncthreads();
    value = sums[0];
    for (int w = 1; w < NP_THREADS / WARP; w++)
        value += sums[w];
    return value;
}

struct sent { /* by value with a launch */
    np_scalars scalars[NP_CUDA_SENT];
};

static __global__ void set_scalars(np_scalars *to, sent values, int n)
{
    if ((int)threadIdx.x < n)
        to[threadIdx.x] = values.scalars[threadIdx.x];
}

extern "C" void np_cuda_set_scalars(
    void *stream, np_scalars *scalars, int first, const np_scalars *values, int n)
{
    sent all = {};

    for (int i = 0; i < n; i++)
        all.scalars[i] = values[i];
    NP_LAUNCH(set_scalars, 1, NP_CUDA_SENT, 0, stream, scalars + first, all, n);
}

/* Of the parameter with element i. */
static __device__ inline const np_scalars *scalars_at(
    const np_cuda_step *step, const np_cuda_rules &rules, uint64_t i)
{
    int rule = rules.of[i / NP_CUDA_CHUNK];

    return rule ? &rules.scalars[rule] : &step->update;
}

static __device__ unsigned
    arrived[1]; /* of the blocks of a launch with finish_norm(); 0 between launches */

/* What the norm decides. Clipping: np_clip_scale() of optim.c. */
static __device__ inline void judge(const np_cuda_step *step, np_cuda_scaler *scaler, double sum,
    bool dynamic, struct np_cuda_numbers *numbers)
{
    double norm = sqrt(sum) / scaler->scale;
    bool finite = norm - norm == 0;
    double clip = step->clip_norm > 0 ? step->clip_norm / (norm + 1e-6) : 1;
    float scale = 1 / scaler->scale;

    scaler->norm = (float)norm;
    scaler->grad_scale = clip < 1 ? scale * (float)clip : scale;
    scaler->skip = dynamic && !finite;
    numbers[step->slot % NP_CUDA_SLOTS].grad_norm = norm;
    if (!dynamic)
        return;
    scaler->good = finite ? scaler->good + 1 : 0;
    if (!finite)
        scaler->scale = scaler->scale * 0.5f;
    else if (scaler->good == GOOD_STEPS) {
        scaler->scale = scaler->scale * 2;
        scaler->good = 0;
    }
}

#define AT_ONCE 4 /* loads of a thread */

/* A thread's sum of squares of its gradients, of packs from..end-1; with params: of |w| g. N adjacent elements have one
 * rule. */
template <typename G, int N>
static __device__ inline double sum_squares(const np_cuda_step *step, const np_cuda_rules &rules,
    const float *params, const G *grads, uint64_t from, uint64_t end)
{
    const uint64_t stride = np_stride();
    double sum = 0;

    for (uint64_t i = from + np_thread(); i < end; i += AT_ONCE * stride) {
        np_loaded<np_pack<G, N>> raw[AT_ONCE];

        NP_UNROLL(AT_ONCE)
        for (int u = 0; u < AT_ONCE; u++)
            raw[u] = np_load(
                (const np_pack<G, N> *)grads + (i + u * stride < end ? i + u * stride : end - 1));
        NP_UNROLL(AT_ONCE)
        for (int u = 0; u < AT_ONCE; u++) {
            const np_pack<G, N> g = np_open<np_pack<G, N>>(raw[u]);
            const uint64_t at = i + u * stride;

            if (at >= end)
                break;
            if (rules.freezes && scalars_at(step, rules, at * N)->frozen)
                continue;
            NP_UNROLL(N)
            for (int k = 0; k < N; k++) {
                float value = params ? params[at * N + k] * np_get(g.v[k]) : np_get(g.v[k]);

                sum += (double)value * value;
            }
        }
    }
    return sum;
}

/* The last block adds up what all have left in partial, in their order, and judges it. */
static __device__ inline void finish_norm(const np_cuda_step *step, np_cuda_scaler *scaler,
    double sum, bool dynamic, struct np_cuda_numbers *numbers, double *partial)
{
    sum = sum_block(sum);
    if (threadIdx.x == 0)
        partial[blockIdx.x] = sum;
    if (!np_last_of(&arrived[0], gridDim.x))
        return;
    sum = 0;
    for (unsigned i = threadIdx.x; i < gridDim.x; i += NP_THREADS)
        sum += __ldcg(&partial[i]);
    sum = sum_block(sum);
    if (threadIdx.x == 0)
        judge(step, scaler, sum, dynamic, numbers);
}

template <typename T, int N>
static __global__ void __launch_bounds__(NP_THREADS)
    gradient_norm(const np_cuda_step *step, np_cuda_scaler *scaler, np_cuda_optimizer to,
        const float *params, bool dynamic, struct np_cuda_numbers *numbers)
{
    const uint64_t halves = to.nr_halves / N;
    double sum = sum_squares<float, N>(step, to.rules, params, to.grads, halves, to.n / N);

    sum += sum_squares<T, N>(step, to.rules, params, (const T *)to.half_grads, 0, halves);
    finish_norm(step, scaler, sum, dynamic, numbers, to.partial);
}

/* params: NULL, or as of sum_squares(). */
template <typename T>
static void run_norm(void *stream, const np_cuda_step *step, np_cuda_scaler *scaler,
    const np_cuda_optimizer *to, const float *params, bool dynamic, struct np_cuda_numbers *numbers)
{
    const bool wide = to->n % NP_CUDA_CHUNK == 0 && np_aligned(to->grads) && np_aligned(params) &&
                      np_aligned(to->half_grads);

    if (wide)
        NP_LAUNCH((gradient_norm<T, 4>), norm_blocks(to->n), NP_THREADS, 0, stream, step, scaler,
            *to, params, dynamic, numbers);
    else
        NP_LAUNCH((gradient_norm<T, 1>), norm_blocks(to->n), NP_THREADS, 0, stream, step, scaler,
            *to, params, dynamic, numbers);
}

extern "C" void np_cuda_norm(void *stream, const np_cuda_step *step, np_cuda_scaler *scaler,
    const np_cuda_optimizer *to, bool dynamic, struct np_cuda_numbers *numbers)
{
    NP_FOR_DTYPE(to->dtype, T, run_norm<T>(stream, step, scaler, to, NULL, dynamic, numbers));
}

/* The new parameter. */
static __device__ inline float sgd(const np_scalars *s, float param, float *m, float grad)
{
    float buffer;

    grad += s->l2 * param;
    buffer = s->momentum * *m + grad;
    *m = buffer;
    return param - s->lr * (s->nesterov ? grad + s->momentum * buffer : buffer);
}

/* m and v of the adams and of lamb. */
static __device__ inline void means(
    const np_scalars *s, float *m, float *v, float grad, float *mean, float *square)
{
    *mean = *m + s->one_minus_beta1 * (grad - *m);
    *square = s->beta2 * *v + s->one_minus_beta2 * (grad * grad);
    *m = *mean;
    *v = *square;
}

static __device__ inline float adam(
    const np_scalars *s, float param, float *m, float *v, float grad)
{
    float mean, square;

    grad += s->l2 * param;
    means(s, m, v, grad, &mean, &square);
    return param * s->keep - s->step * (mean / (sqrtf(square) / s->root_bias + s->eps));
}

static __device__ inline float nadam(
    const np_scalars *s, float param, float *m, float *v, float grad)
{
    float mean, square;

    grad += s->l2 * param;
    means(s, m, v, grad, &mean, &square);
    return param - (s->grad_step * grad + s->step * mean) / (sqrtf(square) / s->root_bias + s->eps);
}

static __device__ inline float rmsprop(
    const np_scalars *s, float param, float *v, float *m, float grad)
{
    float square, way;

    grad += s->l2 * param;
    square = s->beta2 * *v + s->one_minus_beta2 * (grad * grad);
    *v = square;
    way = grad / (sqrtf(square) + s->eps);
    if (s->moves)
        *m = way = s->momentum * *m + way;
    return param - s->lr * way;
}

static __device__ inline float lion(const np_scalars *s, float param, float *m, float grad)
{
    float way = s->beta1 * *m + s->one_minus_beta1 * grad;

    *m = s->beta2 * *m + s->one_minus_beta2 * grad;
    return param * s->keep - s->lr * (way > 0 ? 1.0f : way < 0 ? -1.0f : way);
}

/* One element, by its rule. */
static __device__ inline float moved(
    const np_scalars *s, float param, float *m, float *v, float grad)
{
    switch (s->kind) {
    case NP_NADAM: return nadam(s, param, m, v, grad);
    case NP_RMSPROP: return rmsprop(s, param, m, v, grad);
    case NP_LION: return lion(s, param, m, grad);
    case NP_SGD: return sgd(s, param, m, grad);
    default: return adam(s, param, m, v, grad);
    }
}

/* Packs from..end-1. N adjacent elements, which have one rule. The rule is copied: a store might change it, for all
 * that the compiler knows. NORM: returns the sum of squares of this thread's gradients. */
template <typename T, typename G, int N, bool NORM>
static __device__ inline double move(const np_cuda_step *step, const np_cuda_optimizer &to,
    const G *grads, float scale, uint64_t from, uint64_t end)
{
    typedef np_pack<float, N> pack;
    double sum = 0;

    for (uint64_t i = from + np_thread(); i < end; i += np_stride()) {
        const np_scalars s = *scalars_at(step, to.rules, i * N);
        const bool has_v = s.kind == NP_RMSPROP ? s.moves : s.kind != NP_SGD && s.kind != NP_LION;
        np_loaded<np_pack<G, N>> raw;
        pack param, m, v = {};
        np_pack<T, N> half;

        if (s.frozen || s.kind == NP_MUON) /* np_cuda_muon_end() moves it */
            continue;
        raw = np_load_last((const np_pack<G, N> *)grads + i);
        param = ((const pack *)to.params)[i];
        m = ((const pack *)to.m)[i];
        if (has_v)
            v = ((const pack *)to.v)[i];
        const np_pack<G, N> grad = np_open<np_pack<G, N>>(raw);

        NP_UNROLL(N)
        for (int k = 0; k < N; k++) {
            const float g = np_get(grad.v[k]);

            if (NORM)
                sum += (double)g * g;
            param.v[k] = moved(&s, param.v[k], &m.v[k], &v.v[k], g * scale);
            np_put(&half.v[k], param.v[k]);
        }
        ((pack *)to.params)[i] = param;
        ((pack *)to.m)[i] = m;
        if (has_v)
            ((pack *)to.v)[i] = v;
        if (to.half)
            ((np_pack<T, N> *)to.half)[i] = half;
    }
    return sum;
}

/* NORM: it is calculated on the way. */
template <typename T, int N, bool NORM>
static __global__ void __launch_bounds__(NP_THREADS)
    update(const np_cuda_step *step, np_cuda_scaler *scaler, np_cuda_optimizer to)
{
    const float scale = NORM ? 1 / scaler->scale : scaler->grad_scale;
    const uint64_t halves = to.nr_halves / N;
    double sum;

    if (!NORM && scaler->skip)
        return;
    sum = move<T, float, N, NORM>(step, to, to.grads, scale, halves, to.n / N);
    sum += move<T, T, N, NORM>(step, to, (const T *)to.half_grads, scale, 0, halves);
    if (NORM)
        finish_norm(step, scaler, sum, false, to.numbers, to.partial);
}

template <typename T, int N>
static void run_update(
    void *stream, const np_cuda_step *step, np_cuda_scaler *scaler, const np_cuda_optimizer *to)
{
    if (to->numbers)
        NP_LAUNCH(
            (update<T, N, true>), norm_blocks(to->n), NP_THREADS, 0, stream, step, scaler, *to);
    else
        NP_LAUNCH(
            (update<T, N, false>), np_blocks(to->n / N), NP_THREADS, 0, stream, step, scaler, *to);
}

/* --- lamb: means and squares of each chunk, a ratio for each tensor, the step ----------------- */

static __device__ inline float lamb_way(const np_scalars *s, float param, float mean, float square)
{
    return mean * s->step / (sqrtf(square) / s->root_bias + s->eps) + s->l2 * param;
}

/* A block has the threads of a chunk. */
static __global__ void __launch_bounds__(NP_THREADS)
    lamb_squares(const np_cuda_step *step, const np_cuda_scaler *scaler, np_cuda_optimizer to)
{
    uint64_t chunks = to.n / NP_CUDA_CHUNK;

    if (scaler->skip)
        return;
    for (uint64_t chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
        const np_scalars *s = scalars_at(step, to.rules, chunk * NP_CUDA_CHUNK);
        uint64_t i = chunk * NP_CUDA_CHUNK + threadIdx.x;
        float mean, square, way, param = to.params[i];
        double sum;

        if (s->frozen)
            continue; /* the whole block */
        means(s, &to.m[i], &to.v[i], to.grads[i] * scaler->grad_scale, &mean, &square);
        way = lamb_way(s, param, mean, square);
        sum = sum_block((double)param * param);
        if (threadIdx.x == 0)
            to.squares[chunk] = sum;
        __syncthreads(); /* sum_block()'s memory is used again */
        sum = sum_block((double)way * way);
        if (threadIdx.x == 0)
            to.squares[chunks + chunk] = sum;
        __syncthreads();
    }
}

/* A block for each tensor. np_lamb_ratio() of optim_update.c. */
static __global__ void __launch_bounds__(NP_THREADS)
    lamb_ratios(const np_cuda_step *step, const np_cuda_scaler *scaler, np_cuda_optimizer to)
{
    uint64_t chunks = to.n / NP_CUDA_CHUNK;
    uint32_t first = to.starts[blockIdx.x], end = to.starts[blockIdx.x + 1];
    const np_scalars *s = scalars_at(step, to.rules, (uint64_t)first * NP_CUDA_CHUNK);
    double params = 0, ways = 0;
    NP_SHARED(float, ratio, [1]);

    if (scaler->skip || s->frozen)
        return;
    for (uint32_t i = first + threadIdx.x; i < end; i += NP_THREADS) {
        params += to.squares[i];
        ways += to.squares[chunks + i];
    }
    params = sum_block(params);
    __syncthreads();
    ways = sum_block(ways);
    if (threadIdx.x == 0)
        ratio[0] = params == 0 || ways == 0 || !s->decays ? 1.0f : (float)sqrt(params / ways);
    __syncthreads();
    for (uint32_t i = first + threadIdx.x; i < end; i += NP_THREADS)
        to.ratios[i] = ratio[0];
}

template <typename T>
static __global__ void lamb_apply(
    const np_cuda_step *step, const np_cuda_scaler *scaler, np_cuda_optimizer to)
{
    if (scaler->skip)
        return;
    for (uint64_t i = np_thread(); i < to.n; i += np_stride()) {
        const np_scalars *s = scalars_at(step, to.rules, i);
        uint64_t chunk = i / NP_CUDA_CHUNK;
        float param = to.params[i];

        if (s->frozen)
            continue;
        param -= s->lr * to.ratios[chunk] * lamb_way(s, param, to.m[i], to.v[i]);
        to.params[i] = param;
        if (to.half)
            np_put(&((T *)to.half)[i], param);
    }
}

extern "C" void np_cuda_update(void *stream, const struct np_cuda_step *step,
    struct np_cuda_scaler *scaler, const struct np_cuda_optimizer *to, bool lamb)
{
    uint64_t chunks = to->n / NP_CUDA_CHUNK;

    static_assert(NP_CUDA_CHUNK == NP_THREADS, "lamb_squares() has a thread for each element");
    if (!lamb) {
        const bool wide = to->n % NP_CUDA_CHUNK == 0 && np_aligned(to->params) &&
                          np_aligned(to->m) && np_aligned(to->v) && np_aligned(to->grads) &&
                          np_aligned(to->half_grads) && np_aligned(to->half);

        NP_FOR_DTYPE(to->dtype, T, {
            if (wide)
                run_update<T, 4>(stream, step, scaler, to);
            else
                run_update<T, 1>(stream, step, scaler, to);
        });
        return;
    }
    NP_LAUNCH(
        lamb_squares, chunks < 4096 ? (int)chunks : 4096, NP_THREADS, 0, stream, step, scaler, *to);
    NP_LAUNCH(lamb_ratios, to->nr_tensors, NP_THREADS, 0, stream, step, scaler, *to);
    NP_FOR_DTYPE(to->dtype, T,
        NP_LAUNCH(lamb_apply<T>, np_blocks(to->n), NP_THREADS, 0, stream, step, scaler, *to));
}

/* --- muon: the mean and its norm, and, when the products are done, the step -------------------- */

static __global__ void __launch_bounds__(NP_THREADS) muon_mean(const np_cuda_step *step,
    const np_cuda_scaler *scaler, np_cuda_optimizer to, np_cuda_muon_step matrix)
{
    const np_scalars *s = scalars_at(step, to.rules, matrix.at);
    const float one_minus = (float)(1 - (double)s->momentum), scale = scaler->grad_scale;
    double sum = 0;

    if (scaler->skip || s->frozen)
        return;
    for (uint64_t i = np_thread(); i < matrix.n; i += np_stride()) {
        float grad = to.grads[matrix.at + i] * scale, *m = &to.m[matrix.at + i];
        float mean = *m + one_minus * (grad - *m);
        float way = s->nesterov ? grad + s->momentum * (mean - grad) : mean;

        *m = mean;
        matrix.x[i] = way;
        sum += (double)way * way;
    }
    sum = sum_block(sum);
    if (threadIdx.x == 0)
        matrix.partial[blockIdx.x] = sum;
}

/* Each block adds up all sums, in the same order. */
static __global__ void __launch_bounds__(NP_THREADS)
    muon_normalise(np_cuda_muon_step matrix, int nr_partial)
{
    double sum = 0;
    float norm;

    for (int i = threadIdx.x; i < nr_partial; i += NP_THREADS)
        sum += matrix.partial[i];
    norm = (float)sqrt(sum_block(sum));
    for (uint64_t i = np_thread(); i < matrix.n; i += np_stride())
        matrix.x[i] /= norm < 1e-7f ? 1e-7f : norm; /* a NaN stays one */
}

extern "C" void np_cuda_muon_begin(void *stream, const struct np_cuda_step *step,
    const struct np_cuda_scaler *scaler, const struct np_cuda_optimizer *to,
    const struct np_cuda_muon_step *matrix)
{
    const int nr = norm_blocks(matrix->n);

    NP_LAUNCH(muon_mean, nr, NP_THREADS, 0, stream, step, scaler, *to, *matrix);
    NP_LAUNCH(muon_normalise, nr, NP_THREADS, 0, stream, *matrix, nr);
}

template <typename T>
static __global__ void muon_apply(const np_cuda_step *step, const np_cuda_scaler *scaler,
    np_cuda_optimizer to, np_cuda_muon_step matrix)
{
    const np_scalars *s = scalars_at(step, to.rules, matrix.at);
    const float lr = (float)(s->lr * matrix.rate);

    if (scaler->skip || s->frozen)
        return;
    for (uint64_t i = np_thread(); i < matrix.n; i += np_stride()) {
        float param = to.params[matrix.at + i] * s->keep - lr * matrix.x[i];

        to.params[matrix.at + i] = param;
        if (to.half)
            np_put(&((T *)to.half)[matrix.at + i], param);
    }
}

extern "C" void np_cuda_muon_end(void *stream, const struct np_cuda_step *step,
    const struct np_cuda_scaler *scaler, const struct np_cuda_optimizer *to,
    const struct np_cuda_muon_step *matrix)
{
    NP_FOR_DTYPE(to->dtype, T,
        NP_LAUNCH(muon_apply<T>, np_blocks(matrix->n), NP_THREADS, 0, stream, step, scaler, *to,
            *matrix));
}

static __global__ void combine(float a, const float *x, float b, float *y, uint64_t n)
{
    for (uint64_t i = np_thread(); i < n; i += np_stride())
        y[i] = a * x[i] + b * y[i];
}

extern "C" void np_cuda_combine(
    void *stream, float a, const float *x, float b, float *y, uint64_t n)
{
    NP_LAUNCH(combine, np_blocks(n), NP_THREADS, 0, stream, a, x, b, y, n);
}

/* --- sam ------------------------------------------------------------------------------------- */

/* The gradients are multiplied by scaler->scale, the norm is not. */
template <typename T>
static __global__ void __launch_bounds__(NP_THREADS)
    climb(const np_cuda_step *step, const np_cuda_scaler *scaler, struct np_cuda_climb to)
{
    float norm = scaler->norm;
    float scale = norm - norm == 0 ? to.rho / (norm + 1e-12f) : norm - norm;

    for (uint64_t i = np_thread(); i < to.n; i += np_stride()) {
        float w = to.params[i], way = scale * (to.grads[i] / scaler->scale);

        to.kept[i] = w;
        if (to.rules.freezes && scalars_at(step, to.rules, i)->frozen)
            continue;
        w += to.adaptive ? w * w * way : way;
        to.params[i] = w;
        if (to.half)
            np_put(&((T *)to.half)[i], w);
    }
}

/* The loss scale changes after the second pass only. */
extern "C" void np_cuda_climb(void *stream, const np_cuda_step *step, np_cuda_scaler *scaler,
    const struct np_cuda_climb *to, struct np_cuda_numbers *numbers, void *scratch)
{
    np_cuda_optimizer of = {};

    of.grads = to->grads;
    of.rules = to->rules;
    of.n = to->n;
    of.partial = (double *)scratch;
    run_norm<float>(stream, step, scaler, &of, to->adaptive ? to->params : NULL, false, numbers);
    NP_FOR_DTYPE(to->dtype, T,
        NP_LAUNCH(climb<T>, np_blocks(to->n), NP_THREADS, 0, stream, step, scaler, *to));
}

/* --- averages --------------------------------------------------------------------------------- */

/* N adjacent elements at a time; each thread loads AT_ONCE times of both arrays before it stores: f(a, b) changes both,
 * and the first one's copy in half precision. */
template <typename T, int N, typename F>
static __device__ inline void change_both(float *a, float *b, T *half, uint64_t n, F f)
{
    typedef np_pack<float, N> pack;
    const uint64_t nr_packs = n / N, stride = np_stride();

    for (uint64_t i = np_thread(); i < nr_packs; i += AT_ONCE * stride) {
        np_loaded<pack> first[AT_ONCE], second[AT_ONCE];

        NP_UNROLL(AT_ONCE)
        for (int u = 0; u < AT_ONCE; u++) {
            const uint64_t at = i + u * stride < nr_packs ? i + u * stride : nr_packs - 1;

            first[u] = np_load((const pack *)a + at);
            second[u] = np_load_last((const pack *)b + at);
        }
        NP_UNROLL(AT_ONCE)
        for (int u = 0; u < AT_ONCE; u++) {
            const uint64_t at = i + u * stride;
            pack x = np_open<pack>(first[u]), y = np_open<pack>(second[u]);
            np_pack<T, N> rounded;

            if (at >= nr_packs)
                break;
            NP_UNROLL(N)
            for (int k = 0; k < N; k++) {
                f(&x.v[k], &y.v[k]);
                np_put(&rounded.v[k], x.v[k]);
            }
            if (f.both)
                ((pack *)a)[at] = x;
            ((pack *)b)[at] = y;
            if (f.both && half)
                ((np_pack<T, N> *)half)[at] = rounded;
        }
    }
}

struct blending { /* x, its average */
    float weight;
    bool both; /* x becomes the average */
    __device__ void operator()(float *x, float *average) const
    {
        const float value = *average + weight * (*x - *average);

        *average = value;
        *x = both ? value : *x;
    }
};

struct exchanging {
    static const bool both = true;
    __device__ void operator()(float *a, float *b) const
    {
        const float value = *b;

        *b = *a;
        *a = value;
    }
};

template <typename T, int N>
static __global__ void __launch_bounds__(NP_THREADS)
    blend(float *average, float *x, float weight, bool back, T *half, uint64_t n)
{
    change_both<T, N>(x, average, half, n, blending{weight, back});
}

template <typename T, int N>
static __global__ void __launch_bounds__(NP_THREADS)
    exchange(float *a, float *b, T *half, uint64_t n)
{
    change_both<T, N>(a, b, half, n, exchanging());
}

static bool is_wide(const void *a, const void *b, const void *half, uint64_t n)
{
    return n % 4 == 0 && np_aligned(a) && np_aligned(b) && np_aligned(half);
}

static int average_blocks(uint64_t packs)
{
    return np_blocks((packs + AT_ONCE - 1) / AT_ONCE);
}

extern "C" void np_cuda_average(void *stream, float *average, float *x, float weight, bool back,
    enum np_cuda_dtype dtype, void *half, uint64_t n)
{
    NP_FOR_DTYPE(dtype, T, {
        if (is_wide(average, x, half, n))
            NP_LAUNCH((blend<T, 4>), average_blocks(n / 4), NP_THREADS, 0, stream, average, x,
                weight, back, (T *)half, n);
        else
            NP_LAUNCH((blend<T, 1>), average_blocks(n), NP_THREADS, 0, stream, average, x, weight,
                back, (T *)half, n);
    });
}

extern "C" void np_cuda_swap(
    void *stream, float *a, float *b, enum np_cuda_dtype dtype, void *half, uint64_t n)
{
    NP_FOR_DTYPE(dtype, T, {
        if (is_wide(a, b, half, n))
            NP_LAUNCH(
                (exchange<T, 4>), average_blocks(n / 4), NP_THREADS, 0, stream, a, b, (T *)half, n);
        else
            NP_LAUNCH(
                (exchange<T, 1>), average_blocks(n), NP_THREADS, 0, stream, a, b, (T *)half, n);
    });
}
