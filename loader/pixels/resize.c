/* See resize.h. The horizontal pass is called across, the vertical one down; each computes only the
 * rows and columns that the window needs. Reader threads, a resizer each. */
#include "loader/pixels/resize.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "loader/base/vectors.h"
#include "loader/pixels/axis.h"
#include "loader/pixels/place.h"
#include "loader/pixels/resize_weights.h"

struct np_resizer {
    const struct np_resize_kernels *kernels; /* NULL: plain C */
    struct np_weights across, down;
    uint8_t *middle;  /* rows after the first pass */
    uint8_t *lines;   /* rows of one block after the pass across, if that is the second pass */
    uint8_t *picture; /* the scaled picture, if it gets a border */
    uint8_t *spare;   /* the last source rows, padded */
    int *map, *nearest_x, *nearest_y;
    size_t middle_bytes, lines_bytes, picture_bytes, spare_bytes, map_bytes, nearest_x_bytes,
        nearest_y_bytes;
};

/* Pixels by scaled position: data points to position (x, y). */
struct picture {
    const uint8_t *data;
    ptrdiff_t stride;
    int x, y, width, channels;
};

struct np_resizer *np_resizer_new(struct np_err *err)
{
    return np_try_alloc(sizeof(struct np_resizer), err);
}

void np_resizer_free(struct np_resizer *resizer)
{
    if (!resizer)
        return;
    np_weights_fini(&resizer->across);
    np_weights_fini(&resizer->down);
    np_free(resizer->middle);
    np_free(resizer->lines);
    np_free(resizer->picture);
    np_free(resizer->spare);
    np_free(resizer->map);
    np_free(resizer->nearest_x);
    np_free(resizer->nearest_y);
    np_free(resizer);
}

/* --- the two passes ------------------------------------------------------------------------ */

static uint8_t clip(int32_t sum)
{
    sum >>= NP_RESIZE_BITS;
    return (uint8_t)(sum < 0 ? 0 : sum > 255 ? 255 : sum);
}

/* One row across: dst (taps->n, channels) from src (pixels, channels). */
static void across_c(const struct np_taps *taps, const uint8_t *src, int channels, uint8_t *dst)
{
    for (int i = 0; i < taps->n; i++) {
        const int32_t *weight = taps->weight + (size_t)i * taps->room;

        for (int c = 0; c < channels; c++) {
            const uint8_t *pixel = src + (size_t)taps->start[i] * channels + c;
            int32_t sum = 1 << (NP_RESIZE_BITS - 1);

            for (int k = 0; k < taps->count[i]; k++, pixel += channels)
                sum += *pixel * weight[k];
            *dst++ = clip(sum);
        }
    }
}

/* One row down: `bytes` of dst from count rows of src, stride bytes apart. */
static void down_c(
    const uint8_t *src, ptrdiff_t stride, const int32_t *weight, int count, int bytes, uint8_t *dst)
{
    for (int x = 0; x < bytes; x++) {
        int32_t sum = 1 << (NP_RESIZE_BITS - 1);

        for (int k = 0; k < count; k++)
            sum += src[x + k * stride] * weight[k];
        dst[x] = clip(sum);
    }
}

/* Stride of a padded row: NP_RESIZE_PAD bytes after it may be read and written. */
static ptrdiff_t padded(int bytes)
{
    return (bytes + 2 * NP_RESIZE_PAD - 1) / NP_RESIZE_PAD * NP_RESIZE_PAD;
}

/* The bytes of a row that the pass across may read. Those past its end have weights of 0. */
static size_t across_reads(const struct np_resizer *resizer)
{
    const struct np_weights *weights = &resizer->across;

    return 3 * (size_t)(weights->max_start + (weights->taps.max_count - 1) / 4 * 4) +
           (size_t)resizer->kernels->across_reads;
}

/* Scales the rows from `first` on, as many as the kernel takes at once, into padded rows of out
 * (rows past the end go into one extra row after the last). */
static void across_block(struct np_resizer *resizer, const struct picture *source, int first,
    int rows, uint8_t *out, ptrdiff_t stride)
{
    const struct np_weights *weights = &resizer->across;
    size_t row_bytes = (size_t)source->width * 3, from = 3 * (size_t)weights->min_start;
    size_t reads = across_reads(resizer);
    const uint8_t *src[NP_RESIZE_ROWS];
    uint8_t *dst[NP_RESIZE_ROWS];

    for (int r = 0; r < resizer->kernels->rows; r++) {
        int row = first + r < rows ? first + r : rows - 1;

        src[r] = source->data + row * source->stride;
        dst[r] = out + (first + r < rows ? r : rows - first) * stride;
        if (reads > (size_t)(rows - 1 - row) * (size_t)source->stride + row_bytes) {
            uint8_t *copy = resizer->spare + (size_t)r * reads;

            memcpy(copy + from, src[r] + from, (row_bytes < reads ? row_bytes : reads) - from);
            src[r] = copy;
        }
    }
    resizer->kernels->across(&weights->taps, &weights->packed, src, dst);
}

/* As across_block(), into rows without padding. */
static void across_dense(struct np_resizer *resizer, const struct picture *source, int first,
    int rows, uint8_t *out, int bytes)
{
    const ptrdiff_t stride = padded(bytes);

    across_block(resizer, source, first, rows, resizer->lines, stride);
    for (int r = 0; r < resizer->kernels->rows && first + r < rows; r++)
        memcpy(out + (ptrdiff_t)r * bytes, resizer->lines + r * stride, (size_t)bytes);
}

/* source: the box's columns, the needed rows. out: (rows, n), padded or dense. */
static void across(struct np_resizer *resizer, const struct picture *source, int rows, int lo,
    int n, bool resizes, bool flip, uint8_t *out, ptrdiff_t stride)
{
    if (!resizes) {
        struct np_placing placing = {.channels = source->channels, .n = n, .end = n, .flip = flip};

        for (int y = 0; y < rows; y++) {
            placing.src = source->data + y * source->stride + (ptrdiff_t)lo * source->channels;
            np_place_rows(&placing, 1, out + y * stride);
        }
        return;
    }
    if (resizer->across.kernels) {
        const bool dense = stride == (ptrdiff_t)n * 3;

        for (int y = 0; y < rows; y += resizer->kernels->rows)
            if (dense)
                across_dense(resizer, source, y, rows, out + y * stride, n * 3);
            else
                across_block(resizer, source, y, rows, out + y * stride, stride);
        return;
    }
    for (int y = 0; y < rows; y++)
        across_c(&resizer->across.taps, source->data + y * source->stride, source->channels,
            out + y * stride);
}

/* The input of the pass down: source rows from `first` on. */
struct rows {
    const uint8_t *data;
    ptrdiff_t stride;
    int first;
    bool padded;
};

/* `bytes` of each row. out: (n, bytes), stride bytes a row. */
static void down(struct np_resizer *resizer, const struct rows *source, int n, bool resizes,
    int bytes, uint8_t *out, ptrdiff_t stride)
{
    const struct np_weights *weights = &resizer->down;
    const struct np_taps *taps = &weights->taps;

    for (int y = 0; y < n; y++, out += stride) {
        const uint8_t *src;

        if (!resizes) {
            memcpy(out, source->data + y * source->stride, (size_t)bytes);
            continue;
        }
        src = source->data + (taps->start[y] - source->first) * source->stride;
        if (weights->kernels && (source->padded || bytes >= NP_RESIZE_MIN))
            weights->kernels->down(taps, &weights->packed, y, src, source->stride, bytes, out);
        else
            down_c(src, source->stride, taps->weight + (size_t)y * taps->room, taps->count[y],
                bytes, out);
    }
}

/* --- both passes --------------------------------------------------------------------------- */

static struct np_span span_of(const struct np_axis *axis)
{
    struct np_span span = {.axis = axis, .resizes = axis->box != axis->scaled};

    np_axis_span(axis, &span.lo, &span.hi);
    if (span.lo < span.hi)
        np_axis_source(axis, span.lo, span.hi, &span.from, &span.to);
    return span;
}

static int hold_middle(struct np_resizer *resizer, int rows, int bytes)
{
    return np_hold_n(
        &resizer->middle, &resizer->middle_bytes, (size_t)rows + 1, (size_t)padded(bytes));
}

/* source: starts at the box's first column and the first needed row. out: dense. */
static int across_then_down(struct np_resizer *resizer, const struct picture *source,
    const struct np_span *x, const struct np_span *y, bool flip, uint8_t *out)
{
    const int nr_rows = y->to - y->from, n = x->hi - x->lo, bytes = n * source->channels;
    const ptrdiff_t stride = padded(bytes);
    struct rows middle = {.stride = stride, .first = y->from, .padded = true};

    if (hold_middle(resizer, nr_rows, bytes))
        return -ENOMEM;
    middle.data = resizer->middle;
    across(resizer, source, nr_rows, x->lo, n, x->resizes, flip, resizer->middle, stride);
    down(resizer, &middle, y->hi - y->lo, y->resizes, bytes, out, bytes);
    return 0;
}

/* As across_then_down(), if both passes resize. Only the needed columns are scaled down. */
static int down_then_across(struct np_resizer *resizer, const struct picture *source,
    const struct np_span *x, const struct np_span *y, bool flip, uint8_t *out)
{
    const int channels = source->channels, nr_rows = y->hi - y->lo, n = x->hi - x->lo;
    const int bytes = (x->to - x->from) * channels;
    const ptrdiff_t stride = padded(bytes), skipped = (ptrdiff_t)x->from * channels;
    const struct rows rows = {source->data + skipped, source->stride, y->from, false};
    struct picture middle = {.stride = stride, .width = x->to, .channels = channels};

    if (hold_middle(resizer, nr_rows, bytes) || np_hold_n(&resizer->lines, &resizer->lines_bytes,
                                                    NP_RESIZE_ROWS, (size_t)padded(n * channels)))
        return -ENOMEM;
    middle.data = resizer->middle - skipped;
    down(resizer, &rows, nr_rows, true, bytes, resizer->middle, stride);
    across(resizer, &middle, nr_rows, x->lo, n, true, flip, out, (ptrdiff_t)n * channels);
    return 0;
}

/* out: dense. */
static int scale(struct np_resizer *resizer, const struct np_pixels *pixels,
    const struct np_geometry *g, const struct np_span *x, const struct np_span *y, bool flip,
    uint8_t *out)
{
    const int channels = pixels->channels;
    struct picture source = {.stride = pixels->stride, .channels = channels};

    /* The codec may have left out columns, which are not read. The tables count from the box, so
     * the picture starts there. */
    source.data = pixels->data + (g->top + y->from - pixels->origin_y) * pixels->stride +
                  (ptrdiff_t)(g->left - pixels->origin_x) * channels;
    source.width = pixels->origin_x + pixels->width - g->left;
    if ((x->resizes && np_weights_set(&resizer->across, x, true, flip,
                           channels == 3 ? resizer->kernels : NULL)) ||
        (y->resizes && np_weights_set(&resizer->down, y, false, false, resizer->kernels)) ||
        (x->resizes && resizer->across.kernels &&
            np_hold_n(
                &resizer->spare, &resizer->spare_bytes, NP_RESIZE_ROWS, across_reads(resizer))))
        return -ENOMEM;
    return g->down_first && x->resizes && y->resizes
               ? down_then_across(resizer, &source, x, y, flip, out)
               : across_then_down(resizer, &source, x, y, flip, out);
}

/* --- window, border, flip ------------------------------------------------------------------ */

/* Sets the picture's column for each column of the window; -1: zero border. */
static int map_columns(struct np_resizer *resizer, const struct picture *picture,
    const struct np_axis *x, bool nearest)
{
    if (np_hold_n(&resizer->map, &resizer->map_bytes, (size_t)x->window_n, sizeof(*resizer->map)))
        return -ENOMEM;
    for (int i = 0; i < x->window_n; i++) {
        int at = np_axis_place(x, x->window + i);

        resizer->map[i] = at < 0 ? -1 : (nearest ? resizer->nearest_x[at] : at) - picture->x;
    }
    return 0;
}

static void place_pixels(const int *map, int first, int end, int n, bool flip, const uint8_t *src,
    int channels, uint8_t *dst)
{
    for (int i = first; i < end; i++) {
        uint8_t *to = dst + (size_t)(flip ? n - 1 - i : i) * channels;

        if (map[i] < 0)
            memset(to, 0, (size_t)channels);
        else
            memcpy(to, src + (size_t)map[i] * channels, (size_t)channels);
    }
}

/* Window positions *ret_first..*ret_end-1 show pixels, in order; the others are border. */
static void shown_part(const struct np_axis *axis, int *ret_first, int *ret_end)
{
    const int first = axis->shown > axis->window ? axis->shown - axis->window : 0;
    const int end = axis->shown + axis->shown_n - axis->window;

    *ret_first = first;
    *ret_end = end < axis->window_n ? end : axis->window_n;
    if (first >= *ret_end)
        *ret_first = *ret_end = 0;
}

static int compose(struct np_resizer *resizer, const struct picture *picture,
    const struct np_axis *x, const struct np_axis *y, bool nearest, bool flip, uint8_t *out)
{
    const int n = x->window_n, channels = picture->channels;
    struct np_placing placing = {
        .stride = picture->stride, .channels = channels, .n = n, .flip = flip};
    int top = 0, bottom = 0;
    ptrdiff_t column;
    bool mapped;

    if (!nearest) {
        shown_part(x, &placing.first, &placing.end);
        shown_part(y, &top, &bottom);
    }
    mapped = (nearest || x->border == NP_BORDER_REFLECT) && (placing.first > 0 || placing.end < n);
    if (mapped && map_columns(resizer, picture, x, nearest))
        return -ENOMEM;
    column = (ptrdiff_t)(x->window + placing.first - picture->x) * channels;
    placing.src = picture->data + (y->window + top - picture->y) * picture->stride + column;
    np_place_rows(&placing, bottom - top, out + (size_t)top * n * channels);
    for (int i = 0; i < y->window_n; i++, out += (size_t)n * channels) {
        const bool is_placed = i >= top && i < bottom;
        const uint8_t *src;
        int at;

        if (is_placed && !mapped)
            continue;
        at = np_axis_place(y, y->window + i);
        if (at < 0) {
            memset(out, 0, (size_t)n * channels);
            continue;
        }
        src = picture->data +
              ((nearest ? resizer->nearest_y[at] : at) - picture->y) * picture->stride;
        placing.src = src + column;
        if (!is_placed)
            np_place_rows(&placing, 1, out);
        if (mapped) {
            place_pixels(resizer->map, 0, placing.first, n, flip, src, channels, out);
            place_pixels(resizer->map, placing.end, n, n, flip, src, channels, out);
        }
    }
    return 0;
}

static int scale_and_compose(struct np_resizer *resizer, const struct np_pixels *pixels,
    const struct np_geometry *g, const struct np_axis *x, const struct np_axis *y, uint8_t *out)
{
    const struct np_span columns = span_of(x), rows = span_of(y);
    struct picture picture = {.stride = (ptrdiff_t)(columns.hi - columns.lo) * pixels->channels,
        .x = columns.lo,
        .y = rows.lo,
        .width = columns.hi - columns.lo,
        .channels = pixels->channels};

    if (columns.lo == columns.hi || rows.lo == rows.hi) { /* all border */
        memset(out, 0, (size_t)x->window_n * y->window_n * pixels->channels);
        return 0;
    }
    if (!np_axis_has_border(x) && !np_axis_has_border(y))
        return scale(resizer, pixels, g, &columns, &rows, g->flip, out);
    if (np_hold_n(&resizer->picture, &resizer->picture_bytes, (size_t)picture.stride,
            (size_t)(rows.hi - rows.lo)) ||
        scale(resizer, pixels, g, &columns, &rows, false, resizer->picture))
        return -ENOMEM;
    picture.data = resizer->picture;
    return compose(resizer, &picture, x, y, false, g->flip, out);
}

static const struct np_resize_kernels *kernels_of_cpu(void)
{
#if defined(__x86_64__)
    if (np_vectors_vnni())
        return &np_resize_avx512;
    if (np_vectors_used() >= NP_AVX2)
        return &np_resize_avx2;
#endif
    return NULL;
}

int np_resize(struct np_resizer *resizer, const struct np_pixels *pixels,
    const struct np_geometry *geometry, uint8_t *out, struct np_err *err)
{
    bool resizes, nearest;
    struct picture picture;
    const struct np_axis x = np_axis_across(geometry), y = np_axis_down(geometry);
    int code = 0;

    assert(x.box > 0 && y.box > 0 && x.scaled > 0 && y.scaled > 0);
    resizer->kernels = kernels_of_cpu();
    resizes = x.box != x.scaled || y.box != y.scaled;
    nearest = resizes && np_filter_is_nearest(geometry->filter);
    picture = (struct picture){.data = pixels->data,
        .stride = pixels->stride,
        .x = pixels->origin_x - geometry->left,
        .y = pixels->origin_y - geometry->top,
        .width = pixels->width,
        .channels = pixels->channels};
    if (nearest) {
        if (np_hold_n(
                &resizer->nearest_x, &resizer->nearest_x_bytes, (size_t)x.scaled, sizeof(int)) ||
            np_hold_n(
                &resizer->nearest_y, &resizer->nearest_y_bytes, (size_t)y.scaled, sizeof(int)))
            code = -ENOMEM;
        else {
            np_axis_nearest(&x, resizer->nearest_x);
            np_axis_nearest(&y, resizer->nearest_y);
        }
    }
    if (code == 0)
        code = resizes && !nearest
                   ? scale_and_compose(resizer, pixels, geometry, &x, &y, out)
                   : compose(resizer, &picture, &x, &y, nearest, geometry->flip, out);
    return code ? np_err_set(err, code, "out of memory for resizing an image of %d x %d",
                      pixels->width, pixels->height)
                : 0;
}
