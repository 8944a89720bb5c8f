/* See jpeg.h. A picture is decoded in segments of up to 16 MCUs of a row: entropy decoding, then the
 * inverse DCT of the blocks that the crop needs, to planes that hold the last two rows of MCUs; then
 * the rows of pixels that these complete are interpolated and converted. */
#include "loader/pixels/jpeg.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "loader/base/mem.h"
#include "loader/base/vectors.h"
#include "loader/pixels/jpeg_parts.h"

#define SEGMENT    16 /* MCUs decoded at a time: their coefficients stay in the L1 cache */
#define MAX_BLOCKS (SEGMENT * NP_JPEG_MCU_BLOCKS)
#define NR_TABLES  4 /* pairs that are kept from picture to picture; a picture has three at most */
#define RST0       0xd0
#define EOI        0xd9

/* Samples of one component: the last two rows of MCUs, of the columns that the crop needs. */
struct plane {
    uint8_t *samples;
    size_t bytes;
    ptrdiff_t stride;
    int rows; /* of the ring: a power of two */
    int left; /* column of the first sample */
};

/* The part of the picture to decode. */
struct area {
    struct np_rect need;          /* pixels */
    int left, top, right, bottom; /* MCUs; right and bottom are outside */
    bool blends;                  /* rows of pixels depend on the next row of MCUs */
};

/* Where entropy decoding is. */
struct scan {
    struct np_jpeg_lane lane;
    int interval; /* of restart */
    int left;     /* MCUs up to the next interval */
    int dc[NP_JPEG_COMPONENTS];
};

struct np_jpeg {
    bool plain; /* for tests */
    const struct np_jpeg_kernels *kernels;
    struct np_jpeg_frame frame;
    struct area area;
    struct scan scan;
    struct plane plane[NP_JPEG_COMPONENTS];
    int next_y; /* the next row of pixels */

    struct np_jpeg_tables tables[NR_TABLES];
    uint64_t last_use[NR_TABLES], nr_uses;
    uint8_t block_component[NP_JPEG_MCU_BLOCKS];
    const uint64_t *next[NP_JPEG_MCU_BLOCKS]; /* table of the DC after each block of an MCU */

    uint8_t *stream; /* entropy-coded data without stuffed bytes */
    size_t *starts;  /* of the restart intervals in it, and its end */
    int nr_intervals;
    int16_t *lines[NP_JPEG_COMPONENTS];   /* blended samples of one row */
    uint8_t *widened[NP_JPEG_COMPONENTS]; /* and at the picture's width */
    uint8_t *pixels;
    size_t stream_bytes, starts_bytes, lines_bytes[NP_JPEG_COMPONENTS],
        widened_bytes[NP_JPEG_COMPONENTS], pixels_bytes;
    ptrdiff_t stride; /* of pixels */

    struct np_jpeg_block blocks[MAX_BLOCKS + 1];
};

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
    for (int c = 0; c < NP_JPEG_COMPONENTS; c++) {
        np_free(jpeg->plane[c].samples);
        np_free(jpeg->lines[c]);
        np_free(jpeg->widened[c]);
    }
    np_free(jpeg->stream);
    np_free(jpeg->starts);
    np_free(jpeg->pixels);
    np_free(jpeg);
}

/* --- before decoding ----------------------------------------------------------------------- */

/* Finds the tables of component c among those that are kept, or makes them; NULL: refused. */
static const struct np_jpeg_tables *tables_of(struct np_jpeg *jpeg, int c)
{
    const struct np_jpeg_frame *frame = &jpeg->frame;
    const struct np_jpeg_huff *dc = &frame->dc[frame->component[c].dc];
    const struct np_jpeg_huff *ac = &frame->ac[frame->component[c].ac];
    int found = 0;

    for (int i = 0; i < NR_TABLES; i++) {
        if (np_jpeg_has_tables(&jpeg->tables[i], dc, ac)) {
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

    for (int c = 0; c < frame->nr_components; c++) {
        const struct np_jpeg_component *component = &frame->component[c];
        const struct np_jpeg_tables *tables = tables_of(jpeg, c);

        if (!tables)
            return false;
        for (int i = 0; i < component->h * component->v; i++) {
            const int block = component->first + i;

            jpeg->block_component[block] = (uint8_t)c;
            jpeg->next[(block + frame->mcu_blocks - 1) % frame->mcu_blocks] = tables->dc;
            for (int mcu = 0; mcu < SEGMENT; mcu++)
                jpeg->blocks[mcu * frame->mcu_blocks + block].ac = tables->ac;
        }
    }
    return true;
}

/* Fills stream and starts. Like the search for markers that decides whether a file is good, it goes
 * on to the end marker. Returns -EBADMSG if that, or a restart marker, is not where it must be. */
static int read_stream(struct np_jpeg *jpeg, struct np_err *err)
{
    const struct np_jpeg_frame *frame = &jpeg->frame;
    const size_t nr_bytes = (size_t)(frame->end - frame->scan);
    const int64_t nr_mcus = (int64_t)frame->mcus_across * frame->mcus_down;
    const int nr = frame->restart ? (int)((nr_mcus - 1) / frame->restart) + 1 : 1;
    const uint8_t *at = frame->scan;
    uint8_t *out;

    if (np_hold(&jpeg->stream, &jpeg->stream_bytes, nr_bytes + NP_JPEG_SLACK * MAX_BLOCKS, err) ||
        np_hold(&jpeg->starts, &jpeg->starts_bytes, ((size_t)nr + 1) * sizeof(*jpeg->starts), err))
        return -ENOMEM;
    out = jpeg->stream;
    for (int i = 0; i < nr; i++) {
        jpeg->starts[i] = (size_t)(out - jpeg->stream);
        at = np_jpeg_unstuff(at, frame->end, &out);
        if (frame->end - at < 2 || at[1] != (i + 1 < nr ? RST0 + i % 8 : EOI))
            return -EBADMSG;
        at += 2;
    }
    jpeg->starts[nr] = (size_t)(out - jpeg->stream);
    jpeg->nr_intervals = nr;
    memset(out, 0, 64);
    return 0;
}

/* Interpolation looks one sample past an edge, which is up to one pixel past it. */
static void set_area(struct np_jpeg *jpeg, const struct np_rect *need)
{
    const struct np_jpeg_frame *frame = &jpeg->frame;
    const int w = frame->mcu_width, h = frame->mcu_height, halo_x = w > 8, halo_y = h > 8;
    struct area *area = &jpeg->area;

    *area = (struct area){.need = *need, .blends = halo_y};
    area->left = (need->left > halo_x ? need->left - halo_x : 0) / w;
    area->top = (need->top > halo_y ? need->top - halo_y : 0) / h;
    area->right = (need->right - 1 + halo_x) / w + 1;
    area->bottom = (need->bottom - 1 + halo_y) / h + 1;
    if (area->right > frame->mcus_across)
        area->right = frame->mcus_across;
    if (area->bottom > frame->mcus_down)
        area->bottom = frame->mcus_down;
}

static int hold_planes(struct np_jpeg *jpeg, int channels, struct np_err *err)
{
    const struct area *area = &jpeg->area;
    const size_t width = (size_t)(area->need.right - area->need.left);
    const size_t height = (size_t)(area->need.bottom - area->need.top);

    for (int c = 0; c < jpeg->frame.nr_components; c++) {
        const struct np_jpeg_component *component = &jpeg->frame.component[c];
        struct plane *plane = &jpeg->plane[c];
        const size_t samples = (size_t)(area->right - area->left) * (size_t)component->h * 8;

        plane->rows = 16 * component->v;
        plane->left = area->left * component->h * 8;
        /* An odd number of cache lines, so that rows do not compete for the same sets. */
        plane->stride = (ptrdiff_t)(((samples + NP_JPEG_PAD + 63) / 64 | 1) * 64);
        if (np_hold(&plane->samples, &plane->bytes,
                (size_t)plane->stride * (size_t)plane->rows + 2 * NP_JPEG_PAD, err) ||
            np_hold(&jpeg->lines[c], &jpeg->lines_bytes[c],
                (samples + 4 * NP_JPEG_PAD) * sizeof(int16_t), err) ||
            np_hold(&jpeg->widened[c], &jpeg->widened_bytes[c], 2 * samples + 4 * NP_JPEG_PAD, err))
            return -ENOMEM;
    }
    jpeg->stride = (ptrdiff_t)((width * (size_t)channels + 63) / 64 * 64);
    return np_hold(
        &jpeg->pixels, &jpeg->pixels_bytes, (size_t)jpeg->stride * height + 4 * NP_JPEG_PAD, err);
}

/* --- entropy decoding ---------------------------------------------------------------------- */

static void begin_interval(struct np_jpeg *jpeg, int interval)
{
    struct scan *scan = &jpeg->scan;

    *scan = (struct scan){
        .interval = interval, .left = jpeg->frame.restart ? jpeg->frame.restart : INT32_MAX};
    np_jpeg_seek(&scan->lane.bits, jpeg->stream, jpeg->starts[interval] * 8);
}

/* Goes to the next interval after the last MCU of one; false: it has too few bits. Bytes that are
 * left are skipped, as by libjpeg. */
static bool next_interval(struct np_jpeg *jpeg, int nr_mcus)
{
    struct scan *scan = &jpeg->scan;
    const uint64_t bit = np_jpeg_position(&scan->lane.bits, jpeg->stream);

    if (bit > jpeg->starts[scan->interval + 1] * 8)
        return false;
    scan->left -= nr_mcus;
    if (scan->left > 0 || scan->interval + 1 == jpeg->nr_intervals)
        return true;
    begin_interval(jpeg, scan->interval + 1);
    return true;
}

/* DC coefficients are coded as differences (F.2.2.1). */
static void add_dc(struct np_jpeg *jpeg, int nr_mcus)
{
    const int nr_blocks = jpeg->frame.mcu_blocks;
    struct np_jpeg_block *block = jpeg->blocks;

    for (int mcu = 0; mcu < nr_mcus; mcu++)
        for (int i = 0; i < nr_blocks; i++, block++) {
            int *dc = &jpeg->scan.dc[jpeg->block_component[i]];

            *dc = block->coef[0] = (int16_t)(*dc + block->coef[0]);
        }
}

/* --- inverse DCT --------------------------------------------------------------------------- */

static uint8_t *row_of(const struct plane *plane, int y)
{
    return plane->samples + NP_JPEG_PAD + (y & (plane->rows - 1)) * plane->stride;
}

/* Transforms row v of component c's blocks, of MCUs first..end-1 of the segment at MCU `mcu`. */
static bool transform_row(struct np_jpeg *jpeg, int c, int v, int row, int mcu, int first, int end)
{
    const struct np_jpeg_component *component = &jpeg->frame.component[c];
    const struct plane *plane = &jpeg->plane[c];
    const int twice = component->h == 2, step = jpeg->kernels->blocks;
    const int last = (end << twice) - 1;
    const struct np_jpeg_block *blocks = jpeg->blocks + component->first + (v << twice);
    uint8_t *out =
        row_of(plane, (row * component->v + v) * 8) + (((mcu + first) << twice) * 8 - plane->left);
    bool fits = true;

    for (int x = first << twice; x <= last; x += step, out += 8 * step) {
        const int16_t *block[4];

        for (int i = 0; i < step; i++) {
            const int at = x + i < last ? x + i : last;

            block[i] = blocks[(at >> twice) * jpeg->frame.mcu_blocks + (at & twice)].coef;
        }
        fits &= jpeg->kernels->idct(block, jpeg->frame.quant[component->quant], out, plane->stride);
    }
    return fits;
}

/* Transforms what the crop needs of a segment of nr MCUs. */
static bool transform(struct np_jpeg *jpeg, int row, int mcu, int nr)
{
    const struct area *area = &jpeg->area;
    const int first = mcu < area->left ? area->left - mcu : 0;
    const int end = mcu + nr > area->right ? area->right - mcu : nr;
    bool fits = true;

    for (int c = 0; c < jpeg->frame.nr_components; c++) {
        const struct np_jpeg_component *component = &jpeg->frame.component[c];

        for (int v = 0; v < component->v; v++) {
            const int height = 8 * component->down, y = (row * component->v + v) * height;

            if (y + height >= area->need.top && y <= area->need.bottom)
                fits &= transform_row(jpeg, c, v, row, mcu, first, end);
        }
    }
    return fits;
}

/* --- pixels -------------------------------------------------------------------------------- */

/* Row y of component c at the picture's resolution, from column need.left on (libjpeg's "fancy"
 * upsampling: a triangle filter, jdsample.c). */
static const uint8_t *samples_of(struct np_jpeg *jpeg, int c, int y)
{
    const struct np_jpeg_component *component = &jpeg->frame.component[c];
    const struct plane *plane = &jpeg->plane[c];
    const struct np_rect *need = &jpeg->area.need;
    const int across = component->across, down = component->down;
    const int left = need->left / across, right = (need->right - 1) / across; /* inclusive */
    const int from = across == 2 && left > 0 ? left - 1 : left;
    const int to = across == 2 && right < component->width - 1 ? right + 1 : right;
    const uint8_t *near = row_of(plane, y / down) + (from - plane->left), *far = NULL;
    int16_t *line = jpeg->lines[c] + NP_JPEG_PAD;

    if (across == 1 && down == 1)
        return near;
    if (down == 2) {
        int other = y % 2 ? y / 2 + 1 : y / 2 - 1;

        other = other < 0 ? 0 : other > component->height - 1 ? component->height - 1 : other;
        far = row_of(plane, other) + (from - plane->left);
    }
    jpeg->kernels->blend(near, far, to - from + 1, line);
    if (across == 1) {
        jpeg->kernels->narrow(line, to - from + 1, y % 2 ? 2 : 1, jpeg->widened[c]);
        return jpeg->widened[c];
    }
    if (to == right)
        line[to - from + 1] = line[to - from];
    if (from == left)
        line[-1] = line[0];
    jpeg->kernels->widen(line + (left - from), right - left + 1, down == 2, jpeg->widened[c]);
    return jpeg->widened[c] + need->left % 2;
}

static void write_row(struct np_jpeg *jpeg, int y, int channels)
{
    const struct np_rect *need = &jpeg->area.need;
    const int n = need->right - need->left;
    uint8_t *out = jpeg->pixels + (y - need->top) * jpeg->stride;
    const uint8_t *samples[NP_JPEG_COMPONENTS];

    for (int c = 0; c < jpeg->frame.nr_components; c++)
        samples[c] = samples_of(jpeg, c, y);
    if (jpeg->frame.nr_components == 3)
        jpeg->kernels->rgb(samples[0], samples[1], samples[2], n, out);
    else if (channels == 3)
        jpeg->kernels->grey(samples[0], n, out);
    else
        memcpy(out, samples[0], (size_t)n);
}

/* Writes the rows of pixels that are complete with row `row` of MCUs. */
static void write_rows(struct np_jpeg *jpeg, int row, int channels)
{
    const struct area *area = &jpeg->area;
    const bool last = row + 1 == jpeg->frame.mcus_down;
    int end = (row + 1) * jpeg->frame.mcu_height - (area->blends && !last);

    if (end > area->need.bottom)
        end = area->need.bottom;
    for (; jpeg->next_y < end; jpeg->next_y++)
        write_row(jpeg, jpeg->next_y, channels);
}

/* --- decoding ------------------------------------------------------------------------------ */

/* Decodes nr MCUs from column mcu of a row; false: refused. */
static bool decode_segment(struct np_jpeg *jpeg, int row, int mcu, int nr)
{
    const struct area *area = &jpeg->area;
    const int nr_blocks = nr * jpeg->frame.mcu_blocks;
    const bool needed = row >= area->top && mcu + nr > area->left && mcu < area->right;

    for (int i = 0; i < nr_blocks; i++) {
        if (needed)
            memset(jpeg->blocks[i].coef, 0, sizeof(jpeg->blocks[i].coef));
        jpeg->blocks[i].next = jpeg->next[i % jpeg->frame.mcu_blocks];
    }
    np_jpeg_arm(&jpeg->scan.lane, jpeg->blocks, nr_blocks);
    np_jpeg_run(&jpeg->scan.lane, 1);
    if (jpeg->scan.lane.bad)
        return false;
    add_dc(jpeg, nr);
    return next_interval(jpeg, nr) && (!needed || transform(jpeg, row, mcu, nr));
}

static bool decode_row(struct np_jpeg *jpeg, int row, int mcu)
{
    const struct area *area = &jpeg->area;
    const int end = row + 1 == area->bottom ? area->right : jpeg->frame.mcus_across;

    while (mcu < end) {
        int nr = end - mcu < SEGMENT ? end - mcu : SEGMENT;

        nr = nr < jpeg->scan.left ? nr : jpeg->scan.left;
        if (!decode_segment(jpeg, row, mcu, nr))
            return false;
        mcu += nr;
    }
    return true;
}

/* Decodes from the restart interval in which the area's first row begins. */
static bool decode_area(struct np_jpeg *jpeg, int channels)
{
    const struct np_jpeg_frame *frame = &jpeg->frame;
    const int64_t first = (int64_t)jpeg->area.top * frame->mcus_across;
    const int interval = frame->restart ? (int)(first / frame->restart) : 0;
    const int64_t begin = (int64_t)interval * frame->restart;
    int mcu = (int)(begin % frame->mcus_across);

    begin_interval(jpeg, interval);
    jpeg->next_y = jpeg->area.need.top;
    for (int row = (int)(begin / frame->mcus_across); row < jpeg->area.bottom; row++, mcu = 0) {
        if (!decode_row(jpeg, row, mcu))
            return false;
        if (row >= jpeg->area.top)
            write_rows(jpeg, row, channels);
    }
    assert(jpeg->next_y == jpeg->area.need.bottom);
    return true;
}

bool np_jpeg_open(
    struct np_jpeg *jpeg, const uint8_t *bytes, size_t nr_bytes, struct np_image_info *ret_info)
{
    jpeg->kernels = jpeg->plain ? &np_jpeg_plain : best_kernels();
    if (!jpeg->kernels || !np_jpeg_parse(bytes, nr_bytes, &jpeg->frame))
        return false;
    *ret_info = (struct np_image_info){.width = jpeg->frame.width,
        .height = jpeg->frame.height,
        .channels = jpeg->frame.nr_components};
    return true;
}

int np_jpeg_decode(struct np_jpeg *jpeg, const struct np_rect *need, int channels,
    struct np_pixels *ret_pixels, struct np_err *err)
{
    const int shown = jpeg->frame.nr_components == 3 ? 3 : channels;
    int code;

    if (!choose_tables(jpeg))
        return -EBADMSG;
    code = read_stream(jpeg, err);
    if (code < 0)
        return code;
    set_area(jpeg, need);
    if (hold_planes(jpeg, shown, err))
        return -ENOMEM;
    if (!decode_area(jpeg, shown))
        return -EBADMSG;
    *ret_pixels = (struct np_pixels){.data = jpeg->pixels,
        .width = need->right - need->left,
        .height = need->bottom - need->top,
        .channels = shown,
        .stride = jpeg->stride,
        .origin_x = need->left,
        .origin_y = need->top};
    return 0;
}
