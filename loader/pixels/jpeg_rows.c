/* From coefficients to rows of pixels (jpeg_parts.h): transforms the blocks that the crop needs to
 * planes with the last two rows of MCUs; then interpolates and converts the rows of pixels that
 * these complete. */
#include <errno.h>
#include <string.h>

#include "loader/base/mem.h"
#include "loader/pixels/jpeg_parts.h"

/* Interpolation looks one sample past an edge, which is up to one pixel past it. */
static struct np_jpeg_area area_of(const struct np_jpeg_frame *frame, const struct np_rect *need)
{
    const int w = frame->mcu_width, h = frame->mcu_height, halo_x = w > 8, halo_y = h > 8;
    const int right = (need->right - 1 + halo_x) / w + 1;
    const int bottom = (need->bottom - 1 + halo_y) / h + 1;

    return (struct np_jpeg_area){.need = *need,
        .left = (need->left > halo_x ? need->left - halo_x : 0) / w,
        .top = (need->top > halo_y ? need->top - halo_y : 0) / h,
        .right = right < frame->mcus_across ? right : frame->mcus_across,
        .bottom = bottom < frame->mcus_down ? bottom : frame->mcus_down};
}

void np_jpeg_needed_rows(
    const struct np_jpeg *jpeg, const struct np_rect *need, int *ret_top, int *ret_bottom)
{
    const struct np_jpeg_area area = area_of(&jpeg->frame, need);

    *ret_top = area.top;
    *ret_bottom = area.bottom;
}

int np_jpeg_rows_begin(struct np_jpeg_rows *rows, const struct np_jpeg_frame *frame,
    const struct np_rect *need, int channels, struct np_err *err)
{
    const struct np_jpeg_area area = area_of(frame, need);

    rows->frame = frame;
    rows->area = area;
    rows->channels = channels;
    rows->next_y = need->top;
    for (int c = 0; c < frame->nr_components; c++) {
        const struct np_jpeg_component *component = &frame->component[c];
        struct np_jpeg_plane *plane = &rows->plane[c];
        const size_t samples = (size_t)(area.right - area.left) * (size_t)component->h * 8;

        plane->rows = 16 * component->v;
        plane->left = area.left * component->h * 8;
        /* An odd number of cache lines, so that rows do not compete for the same sets. */
        plane->stride = (ptrdiff_t)(((samples + NP_JPEG_PAD + 63) / 64 | 1) * 64);
        if (np_hold(&plane->samples, &plane->bytes,
                (size_t)plane->stride * (size_t)plane->rows + 2 * NP_JPEG_PAD, err) ||
            np_hold(&rows->widened[c], &rows->widened_bytes[c], 2 * samples + 4 * NP_JPEG_PAD, err))
            return -ENOMEM;
    }
    rows->stride = ((ptrdiff_t)(need->right - need->left) * channels + 63) / 64 * 64;
    return np_hold(&rows->pixels, &rows->pixels_bytes,
        (size_t)rows->stride * (size_t)(need->bottom - need->top) + 4 * NP_JPEG_PAD, err);
}

void np_jpeg_rows_fini(struct np_jpeg_rows *rows)
{
    for (int c = 0; c < NP_JPEG_COMPONENTS; c++) {
        np_free(rows->plane[c].samples);
        np_free(rows->widened[c]);
    }
    np_free(rows->pixels);
}

static uint8_t *row_of(const struct np_jpeg_plane *plane, int y)
{
    return plane->samples + NP_JPEG_PAD + (y & (plane->rows - 1)) * plane->stride;
}

/* Row v of component c's blocks in MCUs first..end-1 of the segment. */
static bool transform_row(struct np_jpeg_rows *rows, const struct np_jpeg_segment *segment, int c,
    int v, int first, int end)
{
    const struct np_jpeg_component *component = &rows->frame->component[c];
    const struct np_jpeg_plane *plane = &rows->plane[c];
    const int twice = component->h == 2, step = rows->kernels->blocks;
    const int last = (end << twice) - 1;
    const struct np_jpeg_block *blocks = segment->blocks + component->first + (v << twice);
    uint8_t *out = row_of(plane, (segment->row * component->v + v) * 8) +
                   (((segment->mcu + first) << twice) * 8 - plane->left);
    bool fits = true;

    for (int x = first << twice; x <= last; x += step, out += 8 * step) {
        const int16_t *block[4];

        for (int i = 0; i < step; i++) {
            const int at = x + i < last ? x + i : last;

            block[i] = blocks[(at >> twice) * rows->frame->mcu_blocks + (at & twice)].coef;
        }
        fits &=
            rows->kernels->idct(block, rows->frame->quant[component->quant], out, plane->stride);
    }
    return fits;
}

bool np_jpeg_rows_transform(struct np_jpeg_rows *rows, const struct np_jpeg_segment *segment)
{
    const struct np_jpeg_area *area = &rows->area;
    const int first = segment->mcu < area->left ? area->left - segment->mcu : 0;
    const int rest = area->right - segment->mcu, end = segment->nr < rest ? segment->nr : rest;
    bool fits = true;

    for (int c = 0; c < rows->frame->nr_components; c++) {
        const struct np_jpeg_component *component = &rows->frame->component[c];

        for (int v = 0; v < component->v; v++) {
            const int height = 8 * component->down;
            const int y = (segment->row * component->v + v) * height;

            if (y + height >= area->need.top && y <= area->need.bottom)
                fits &= transform_row(rows, segment, c, v, first, end);
        }
    }
    return fits;
}

/* Row y of component c at the picture's resolution, from column need.left on (libjpeg's "fancy"
 * upsampling: a triangle filter, jdsample.c). */
static const uint8_t *samples_of(struct np_jpeg_rows *rows, int c, int y)
{
    const struct np_jpeg_component *component = &rows->frame->component[c];
    const struct np_jpeg_plane *plane = &rows->plane[c];
    const struct np_rect *need = &rows->area.need;
    const int across = component->across == 2, down = component->down == 2; /* halved? */
    const int left = need->left >> across, n = ((need->right - 1) >> across) - left + 1;
    const uint8_t *near = row_of(plane, y >> down) + (left - plane->left), *far = NULL;

    if (down) {
        int other = y % 2 ? y / 2 + 1 : y / 2 - 1;

        other = other < 0 ? 0 : other > component->height - 1 ? component->height - 1 : other;
        far = row_of(plane, other) + (left - plane->left);
    }
    if (!across && !down)
        return near;
    if (across)
        rows->kernels->widen(near, far, n, rows->widened[c]);
    else
        rows->kernels->blend(near, far, n, y % 2 ? 2 : 1, rows->widened[c]);
    return rows->widened[c] + (across ? need->left % 2 : 0);
}

static void write_row(struct np_jpeg_rows *rows, int y)
{
    const struct np_rect *need = &rows->area.need;
    const int n = need->right - need->left;
    uint8_t *out = rows->pixels + (y - need->top) * rows->stride;
    const uint8_t *samples[NP_JPEG_COMPONENTS];

    for (int c = 0; c < rows->frame->nr_components; c++)
        samples[c] = samples_of(rows, c, y);
    if (rows->frame->nr_components == 3)
        rows->kernels->rgb(samples[0], samples[1], samples[2], n, out);
    else if (rows->channels == 3)
        rows->kernels->grey(samples[0], n, out);
    else
        memcpy(out, samples[0], (size_t)n);
}

/* Repeats the first and last samples of a row of MCUs outside the picture, for widen. */
static void extend(struct np_jpeg_rows *rows, int row)
{
    for (int c = 0; c < rows->frame->nr_components; c++) {
        const struct np_jpeg_component *component = &rows->frame->component[c];
        const struct np_jpeg_plane *plane = &rows->plane[c];
        const int last = component->width - 1 - plane->left;

        for (int y = 0; component->across == 2 && y < 8 * component->v; y++) {
            uint8_t *samples = row_of(plane, 8 * component->v * row + y);

            samples[-1] = samples[0];
            if (rows->area.right == rows->frame->mcus_across)
                samples[last + 1] = samples[last];
        }
    }
}

void np_jpeg_rows_write(struct np_jpeg_rows *rows, int row)
{
    const struct np_jpeg_frame *frame = rows->frame;
    const bool waits = frame->mcu_height > 8 && row + 1 < frame->mcus_down; /* for the next row */
    int end = (row + 1) * frame->mcu_height - waits;

    if (end > rows->area.need.bottom)
        end = rows->area.need.bottom;
    extend(rows, row);
    for (; rows->next_y < end; rows->next_y++)
        write_row(rows, rows->next_y);
}
