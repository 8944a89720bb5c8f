/* See jpeg.h. Rows of MCUs that have entries are decoded from these. The others are decoded in
 * order, with all MCUs up to the crop's last, beginning at the first MCU, at a restart marker
 * before the crop, or at the last row that has entries (jpeg_segments.c). */
#include "loader/pixels/jpeg.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "loader/base/mem.h"
#include "loader/base/vectors.h"
#include "loader/pixels/jpeg_parts.h"

/* NULL without AVX2: libjpeg-turbo's SSE2 is faster than plain C. */
static const struct np_jpeg_kernels *best_kernels(void)
{
#if defined(__x86_64__)
    const enum np_vectors vectors = np_vectors_used();

    return vectors >= NP_AVX512 ? &np_jpeg_avx512 : vectors >= NP_AVX2 ? &np_jpeg_avx2 : NULL;
#else
    return NULL;
#endif
}

struct np_jpeg *np_jpeg_new(struct np_err *err)
{
    return np_try_alloc(sizeof(struct np_jpeg), err);
}

void np_jpeg_use_plain(struct np_jpeg *jpeg)
{
    jpeg->plain = true;
}

void np_jpeg_free(struct np_jpeg *jpeg)
{
    if (!jpeg)
        return;
    np_jpeg_rows_fini(&jpeg->rows);
    np_free(jpeg->entries.at);
    np_free(jpeg->stream.bytes);
    np_free(jpeg->stream.stuffed);
    np_free(jpeg->starts);
    np_free(jpeg);
}

/* Finds the tables of component c in the cache, or makes them; NULL: refused. */
static const struct np_jpeg_tables *tables_of(struct np_jpeg *jpeg, int c)
{
    const struct np_jpeg_frame *frame = &jpeg->frame;
    const struct np_jpeg_huff *dc = &frame->dc[frame->component[c].dc];
    const struct np_jpeg_huff *ac = &frame->ac[frame->component[c].ac];
    int found = 0;

    for (int i = 0; i < NP_JPEG_NR_TABLES; i++) {
        if (np_jpeg_is_of(&jpeg->tables[i].dc, dc) && np_jpeg_is_of(&jpeg->tables[i].ac, ac)) {
            jpeg->last_use[i] = ++jpeg->nr_uses;
            return &jpeg->tables[i];
        }
        if (jpeg->last_use[i] < jpeg->last_use[found])
            found = i;
    }
    jpeg->last_use[found] = ++jpeg->nr_uses;
    return np_jpeg_make_tables(dc, ac, &jpeg->tables[found]) ? &jpeg->tables[found] : NULL;
}

static bool choose_tables(struct np_jpeg *jpeg)
{
    const struct np_jpeg_frame *frame = &jpeg->frame;
    struct np_jpeg_block *blocks = jpeg->scan[0].blocks;
    const int nr = frame->mcu_blocks;
    const int nr_mcus = frame->mcus_across < NP_JPEG_STEP ? frame->mcus_across : NP_JPEG_STEP;

    for (int c = 0; c < frame->nr_components; c++) {
        const struct np_jpeg_component *component = &frame->component[c];
        const struct np_jpeg_tables *tables = tables_of(jpeg, c);

        if (!tables)
            return false;
        for (int i = component->first; i < component->first + component->h * component->v; i++) {
            blocks[i].ac = tables->ac.entries;
            blocks[(i + nr - 1) % nr].next = tables->dc.entries;
        }
    }
    jpeg->next = blocks[nr - 1].next;
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < nr_mcus * nr; i++) {
            jpeg->scan[k].blocks[i].ac = blocks[i < nr ? i : i - nr].ac;
            jpeg->scan[k].blocks[i].next = blocks[i < nr ? i : i - nr].next;
        }
    return true;
}

static int hold_entries(struct np_jpeg *jpeg, struct np_err *err)
{
    struct np_jpeg_entries *entries = &jpeg->entries;

    return np_hold(&entries->at, &jpeg->entries_bytes,
        (size_t)entries->per_row * (size_t)jpeg->frame.mcus_down * sizeof(*entries->at), err);
}

int np_jpeg_set_entries(
    struct np_jpeg *jpeg, const struct np_jpeg_entry *at, int nr_rows, struct np_err *err)
{
    const int max = jpeg->frame.restart ? 0 : jpeg->frame.mcus_down;

    if (hold_entries(jpeg, err))
        return -ENOMEM;
    jpeg->entries.nr_rows = nr_rows < max ? nr_rows : max;
    memcpy(jpeg->entries.at, at,
        (size_t)jpeg->entries.nr_rows * (size_t)jpeg->entries.per_row * sizeof(*at));
    return 0;
}

const struct np_jpeg_entries *np_jpeg_entries(const struct np_jpeg *jpeg)
{
    return &jpeg->entries;
}

static int decode_area(struct np_jpeg *jpeg, struct np_err *err)
{
    const struct np_jpeg_area *area = &jpeg->rows.area;
    const int known = jpeg->entries.nr_rows;
    const int entered = area->bottom <= known ? area->bottom : known - 1;
    int code = 0;

    if (entered > area->top)
        code = np_jpeg_enter(jpeg, entered, err);
    return code < 0 || entered == area->bottom ? code : np_jpeg_go_through(jpeg, err);
}

bool np_jpeg_open(
    struct np_jpeg *jpeg, const uint8_t *bytes, size_t nr_bytes, struct np_image_info *ret_info)
{
    jpeg->rows.kernels = jpeg->plain ? &np_jpeg_plain : best_kernels();
    jpeg->entries.nr_rows = 0;
    if (!jpeg->rows.kernels || !np_jpeg_parse(bytes, nr_bytes, &jpeg->frame))
        return false;
    *ret_info = (struct np_image_info){.width = jpeg->frame.width,
        .height = jpeg->frame.height,
        .channels = jpeg->frame.nr_components};
    jpeg->entries.per_row = (jpeg->frame.mcus_across + NP_JPEG_STEP - 1) / NP_JPEG_STEP;
    return true;
}

int np_jpeg_decode(struct np_jpeg *jpeg, const struct np_rect *need, int channels,
    struct np_pixels *ret_pixels, struct np_err *err)
{
    const int shown = jpeg->frame.nr_components == 3 ? 3 : channels;
    int code;

    if (!choose_tables(jpeg))
        return -EBADMSG;
    if (hold_entries(jpeg, err) || np_jpeg_rows_begin(&jpeg->rows, &jpeg->frame, need, shown, err))
        return -ENOMEM;
    code = decode_area(jpeg, err);
    if (code < 0)
        return code;
    assert(jpeg->rows.next_y == need->bottom);
    *ret_pixels = (struct np_pixels){.data = jpeg->rows.pixels,
        .width = need->right - need->left,
        .height = need->bottom - need->top,
        .channels = shown,
        .stride = jpeg->rows.stride,
        .origin_x = need->left,
        .origin_y = need->top};
    return 0;
}
