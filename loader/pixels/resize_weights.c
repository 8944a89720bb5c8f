#include "loader/pixels/resize_weights.h"

#include <errno.h>

void np_weights_fini(struct np_weights *weights)
{
    np_free(weights->taps.start);
    np_free(weights->taps.count);
    np_free(weights->taps.weight);
    np_free(weights->taps.scratch);
    np_free(weights->packed.data);
}

static bool same_axis(const struct np_axis *a, const struct np_axis *b)
{
    return a->box == b->box && a->scaled == b->scaled && a->filter == b->filter;
}

static void reverse_taps(struct np_taps *taps)
{
    for (int i = 0, j = taps->n - 1; i < j; i++, j--) {
        int32_t *a = taps->weight + (size_t)i * taps->room;
        int32_t *b = taps->weight + (size_t)j * taps->room;
        int start = taps->start[i], count = taps->count[i];

        taps->start[i] = taps->start[j];
        taps->start[j] = start;
        taps->count[i] = taps->count[j];
        taps->count[j] = count;
        for (int k = 0; k < taps->max_count; k++) {
            int32_t weight = a[k];

            a[k] = b[k];
            b[k] = weight;
        }
    }
}

static int hold_taps(struct np_weights *weights, size_t n, size_t max_taps)
{
    struct np_taps *taps = &weights->taps;

    if (np_hold_n(&taps->start, &weights->start_bytes, n, sizeof(*taps->start)) ||
        np_hold_n(&taps->count, &weights->count_bytes, n, sizeof(*taps->count)) ||
        np_hold_n(&taps->weight, &weights->weight_bytes, n * max_taps, sizeof(*taps->weight)) ||
        np_hold_n(&taps->scratch, &weights->scratch_bytes, max_taps, sizeof(*taps->scratch)))
        return -ENOMEM;
    return 0;
}

static int pack(struct np_weights *weights, const struct np_resize_kernels *kernels, bool across)
{
    struct np_packed *packed = &weights->packed;
    const size_t bytes = across ? kernels->across_layout(&weights->taps, packed)
                                : kernels->down_layout(&weights->taps, packed);

    if (np_hold_n(&packed->data, &packed->data_bytes, bytes, 1))
        return -ENOMEM;
    if (across)
        kernels->across_pack(&weights->taps, packed);
    else
        kernels->down_pack(&weights->taps, packed);
    return 0;
}

int np_weights_set(struct np_weights *weights, const struct np_span *span, bool across, bool flip,
    const struct np_resize_kernels *kernels)
{
    struct np_taps *taps = &weights->taps;
    const int n = span->hi - span->lo;

    if (weights->valid && same_axis(&weights->axis, span->axis) && weights->lo == span->lo &&
        weights->hi == span->hi && weights->flip == flip && weights->kernels == kernels)
        return 0;
    weights->valid = false;
    if (hold_taps(weights, (size_t)n, (size_t)np_axis_max_taps(span->axis)))
        return -ENOMEM;
    np_axis_taps(span->axis, span->lo, n, taps);
    weights->min_start = taps->start[0];
    weights->max_start = taps->start[n - 1];
    if (flip)
        reverse_taps(taps);
    if (kernels && pack(weights, kernels, across))
        return -ENOMEM;
    weights->axis = *span->axis;
    weights->lo = span->lo;
    weights->hi = span->hi;
    weights->flip = flip;
    weights->kernels = kernels;
    weights->valid = true;
    return 0;
}
