/* See jpeg.h. A picture is decoded in segments of up to 16 MCUs of a row, whose coefficients stay in
 * the L1 cache. Without entries, decoding begins at the first MCU, or at a restart marker before the
 * crop, and goes through all MCUs up to the crop's last; with entries it begins in each row at the
 * entry before the crop's left edge. */
#include "loader/pixels/jpeg.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "loader/base/mem.h"
#include "loader/base/vectors.h"
#include "loader/pixels/jpeg_parts.h"

#define SEGMENT    NP_JPEG_STEP
#define MAX_BLOCKS (SEGMENT * NP_JPEG_MCU_BLOCKS)
#define NR_TABLES  4 /* pairs that are kept from picture to picture; a picture has three at most */
#define RST0       0xd0
#define EOI        0xd9

/* Where entropy decoding is. */
struct scan {
    struct np_jpeg_lane lane;
    int interval; /* of restart */
    int left;     /* MCUs up to the next interval */
    int dc[NP_JPEG_COMPONENTS];
};

struct np_jpeg {
    bool plain; /* for tests */
    struct np_jpeg_frame frame;
    struct np_jpeg_rows rows;
    struct np_jpeg_entries entries;
    size_t entries_bytes;

    struct np_jpeg_tables tables[NR_TABLES];
    uint64_t last_use[NR_TABLES], nr_uses;
    const uint64_t *next[NP_JPEG_MCU_BLOCKS]; /* table of the DC after each block of an MCU */

    struct scan scan;
    struct np_jpeg_stream stream; /* entropy-coded data without stuffed bytes */
    size_t stream_bytes, stuffed_bytes;
    size_t *starts; /* of the restart intervals in it, and its end */
    int nr_intervals;
    size_t starts_bytes;

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
    np_jpeg_rows_fini(&jpeg->rows);
    np_free(jpeg->entries.at);
    np_free(jpeg->stream.bytes);
    np_free(jpeg->stream.stuffed);
    np_free(jpeg->starts);
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
    const int nr = frame->mcu_blocks;

    for (int c = 0; c < frame->nr_components; c++) {
        const struct np_jpeg_component *component = &frame->component[c];
        const struct np_jpeg_tables *tables = tables_of(jpeg, c);

        if (!tables)
            return false;
        for (int i = component->first; i < component->first + component->h * component->v; i++) {
            jpeg->next[(i + nr - 1) % nr] = tables->dc;
            for (int mcu = 0; mcu < SEGMENT; mcu++)
                jpeg->blocks[mcu * nr + i].ac = tables->ac;
        }
    }
    for (int i = 0; i < SEGMENT * nr; i++)
        jpeg->blocks[i].next = jpeg->next[i % nr];
    return true;
}

/* Takes memory for the data of a scan from `at` on. */
static int hold_stream(
    struct np_jpeg *jpeg, const uint8_t *at, int nr_intervals, struct np_err *err)
{
    const size_t nr_bytes = (size_t)(jpeg->frame.end - at);

    if (np_hold(&jpeg->stream.bytes, &jpeg->stream_bytes,
            nr_bytes + NP_JPEG_SLACK * (size_t)MAX_BLOCKS, err) ||
        np_hold(&jpeg->stream.stuffed, &jpeg->stuffed_bytes,
            (nr_bytes / 2 + 1) * sizeof(*jpeg->stream.stuffed), err) ||
        np_hold(&jpeg->starts, &jpeg->starts_bytes,
            ((size_t)nr_intervals + 1) * sizeof(*jpeg->starts), err))
        return -ENOMEM;
    jpeg->stream.nr_bytes = jpeg->stream.nr_stuffed = 0;
    return 0;
}

/* Fills stream and starts from `at` on. Like the search for markers that decides whether a file is
 * good, it goes on to the end marker. -EBADMSG: that, or a restart marker, is not where it must be. */
static int read_stream(struct np_jpeg *jpeg, const uint8_t *at, struct np_err *err)
{
    const struct np_jpeg_frame *frame = &jpeg->frame;
    const int64_t nr_mcus = (int64_t)frame->mcus_across * frame->mcus_down;
    const int nr = frame->restart ? (int)((nr_mcus - 1) / frame->restart) + 1 : 1;

    if (hold_stream(jpeg, at, nr, err))
        return -ENOMEM;
    jpeg->nr_intervals = nr;
    for (int i = 0; i < nr; i++) {
        jpeg->starts[i] = jpeg->stream.nr_bytes;
        at = np_jpeg_unstuff(&jpeg->stream, at, frame->end);
        if (frame->end - at < 2 || at[1] != (i + 1 < nr ? RST0 + i % 8 : EOI))
            return -EBADMSG;
        at += 2;
    }
    jpeg->starts[nr] = jpeg->stream.nr_bytes;
    memset(jpeg->stream.bytes + jpeg->stream.nr_bytes, 0, NP_JPEG_PAD);
    return 0;
}

/* --- segments ------------------------------------------------------------------------------ */

static void begin_interval(struct np_jpeg *jpeg, int interval)
{
    struct scan *scan = &jpeg->scan;

    *scan = (struct scan){
        .interval = interval, .left = jpeg->frame.restart ? jpeg->frame.restart : INT32_MAX};
    np_jpeg_seek(&scan->lane.bits, jpeg->stream.bytes, jpeg->starts[interval] * 8);
}

/* Goes to the next interval after the last MCU of one; false: it has too few bits. Bytes that are
 * left are skipped, as by libjpeg. */
static bool next_interval(struct np_jpeg *jpeg, int nr_mcus)
{
    struct scan *scan = &jpeg->scan;

    if (np_jpeg_position(&scan->lane.bits, jpeg->stream.bytes) >
        jpeg->starts[scan->interval + 1] * 8)
        return false;
    scan->left -= nr_mcus;
    if (scan->left == 0 && scan->interval + 1 < jpeg->nr_intervals)
        begin_interval(jpeg, scan->interval + 1);
    return true;
}

/* DC coefficients are coded as differences (F.2.2.1). */
static void add_dc(struct np_jpeg *jpeg, int nr_mcus)
{
    const int nr_blocks = jpeg->frame.mcu_blocks;

    for (int c = 0; c < jpeg->frame.nr_components; c++) {
        const struct np_jpeg_component *component = &jpeg->frame.component[c];
        struct np_jpeg_block *mcu = jpeg->blocks + component->first;
        int dc = jpeg->scan.dc[c];

        for (int m = 0; m < nr_mcus; m++, mcu += nr_blocks)
            for (int i = 0; i < component->h * component->v; i++)
                dc = mcu[i].coef[0] = (int16_t)(dc + mcu[i].coef[0]);
        jpeg->scan.dc[c] = dc;
    }
}

/* Decodes nr MCUs from column mcu of a row; false: refused. */
static bool decode_segment(struct np_jpeg *jpeg, int row, int mcu, int nr)
{
    const struct np_jpeg_area *area = &jpeg->rows.area;
    const struct np_jpeg_segment segment = {jpeg->blocks, row, mcu, nr};
    const int nr_blocks = nr * jpeg->frame.mcu_blocks;
    const bool needed = row >= area->top && mcu + nr > area->left && mcu < area->right;

    if (needed)
        jpeg->rows.kernels->clear(jpeg->blocks, nr_blocks);
    np_jpeg_arm(&jpeg->scan.lane, jpeg->blocks, nr_blocks);
    np_jpeg_run(&jpeg->scan.lane, 1);
    jpeg->blocks[nr_blocks - 1].next = jpeg->next[jpeg->frame.mcu_blocks - 1];
    if (jpeg->scan.lane.bad)
        return false;
    add_dc(jpeg, nr);
    return next_interval(jpeg, nr) && (!needed || np_jpeg_rows_transform(&jpeg->rows, &segment));
}

/* --- entries ------------------------------------------------------------------------------- */

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

/* Notes where decoding is, at column mcu of a row without entries: in the stream's bits, until
 * place_entries(). */
static void note_entry(struct np_jpeg *jpeg, int row, int mcu)
{
    struct np_jpeg_entries *entries = &jpeg->entries;
    struct np_jpeg_entry *entry = &entries->at[row * entries->per_row + mcu / SEGMENT];

    if (jpeg->frame.restart || row < entries->nr_rows)
        return;
    entry->bit = np_jpeg_position(&jpeg->scan.lane.bits, jpeg->stream.bytes);
    for (int c = 0; c < NP_JPEG_COMPONENTS; c++)
        entry->dc[c] = (int16_t)jpeg->scan.dc[c];
}

/* Turns the bits of rows known..end-1 into those of the file, in which stuffed bytes lie between
 * them. The stream began at the entry of row known-1, or with the scan. */
static void place_entries(struct np_jpeg *jpeg, int known, int end)
{
    struct np_jpeg_entries *entries = &jpeg->entries;
    const size_t begin = known > 0 ? entries->at[(known - 1) * entries->per_row].bit / 8
                                   : (size_t)(jpeg->frame.scan - jpeg->frame.bytes);
    size_t stuffed = 0;

    for (int i = known * entries->per_row; i < end * entries->per_row; i++) {
        struct np_jpeg_entry *entry = &entries->at[i];

        while (stuffed < jpeg->stream.nr_stuffed && jpeg->stream.stuffed[stuffed] < entry->bit / 8)
            stuffed++;
        entry->bit += (begin + stuffed) * 8;
    }
    if (end > known)
        entries->nr_rows = end;
}

static bool is_inside(const struct np_jpeg *jpeg, const struct np_jpeg_entry *entry)
{
    const struct np_jpeg_frame *frame = &jpeg->frame;

    return entry->bit / 8 >= (size_t)(frame->scan - frame->bytes) &&
           entry->bit / 8 < (size_t)(frame->end - frame->bytes);
}

/* Continues at an entry, whose byte is the stream's first. */
static void enter(struct np_jpeg *jpeg, const struct np_jpeg_entry *entry)
{
    begin_interval(jpeg, 0);
    np_jpeg_seek(&jpeg->scan.lane.bits, jpeg->stream.bytes, entry->bit % 8);
    for (int c = 0; c < NP_JPEG_COMPONENTS; c++)
        jpeg->scan.dc[c] = entry->dc[c];
}

/* Fills the stream from an entry to `end`, a bit of the file; false: the entry is wrong. */
static bool read_span(struct np_jpeg *jpeg, const struct np_jpeg_entry *entry, uint64_t end)
{
    const struct np_jpeg_frame *frame = &jpeg->frame;
    const size_t nr_bytes = (size_t)(frame->end - frame->bytes), from = entry->bit / 8;
    const size_t to = end / 8 + NP_JPEG_BEHIND < nr_bytes ? end / 8 + NP_JPEG_BEHIND : nr_bytes;

    if (!is_inside(jpeg, entry) || from >= to)
        return false;
    jpeg->stream.nr_bytes = jpeg->stream.nr_stuffed = 0;
    np_jpeg_unstuff(&jpeg->stream, frame->bytes + from, frame->bytes + to);
    memset(jpeg->stream.bytes + jpeg->stream.nr_bytes, 0, NP_JPEG_PAD);
    jpeg->nr_intervals = 1;
    jpeg->starts[0] = 0;
    jpeg->starts[1] = jpeg->stream.nr_bytes;
    return true;
}

/* Decodes what the area needs of a row that has entries. */
static bool decode_entered_row(struct np_jpeg *jpeg, int row)
{
    const struct np_jpeg_entries *entries = &jpeg->entries;
    const struct np_jpeg_area *area = &jpeg->rows.area;
    const struct np_jpeg_entry *at = &entries->at[row * entries->per_row];
    const int first = area->left / SEGMENT, end = (area->right + SEGMENT - 1) / SEGMENT;
    const bool is_known = end < entries->per_row || row + 1 < entries->nr_rows;

    if (!read_span(jpeg, &at[first], is_known ? at[end].bit : UINT64_MAX / 2))
        return false;
    enter(jpeg, &at[first]);
    for (int mcu = first * SEGMENT; mcu < area->right; mcu += SEGMENT) {
        const int rest = area->right - mcu;

        if (!decode_segment(jpeg, row, mcu, rest < SEGMENT ? rest : SEGMENT))
            return false;
    }
    return true;
}

/* --- decoding ------------------------------------------------------------------------------ */

/* Decodes a row from column mcu on, to its end or, in the area's last row, to the area's. */
static bool decode_row(struct np_jpeg *jpeg, int row, int mcu)
{
    const struct np_jpeg_area *area = &jpeg->rows.area;
    const int end = row + 1 == area->bottom ? area->right : jpeg->frame.mcus_across;

    while (mcu < end) {
        int nr = end - mcu < SEGMENT ? end - mcu : SEGMENT;

        nr = nr < jpeg->scan.left ? nr : jpeg->scan.left;
        note_entry(jpeg, row, mcu);
        if (!decode_segment(jpeg, row, mcu, nr))
            return false;
        mcu += nr;
    }
    return true;
}

/* Decodes through all MCUs from column mcu of a row on. */
static bool decode_through(struct np_jpeg *jpeg, int row, int mcu)
{
    const struct np_jpeg_area *area = &jpeg->rows.area;

    for (; row < area->bottom; row++, mcu = 0) {
        if (!decode_row(jpeg, row, mcu))
            return false;
        if (row >= area->top)
            np_jpeg_rows_write(&jpeg->rows, row);
    }
    return true;
}

/* Decodes from the restart interval in which the area's first row begins. 0 or an error. */
static int decode_from_interval(struct np_jpeg *jpeg, struct np_err *err)
{
    const struct np_jpeg_frame *frame = &jpeg->frame;
    const int64_t first = (int64_t)jpeg->rows.area.top * frame->mcus_across;
    const int interval = frame->restart ? (int)(first / frame->restart) : 0;
    const int64_t begin = (int64_t)interval * frame->restart;
    const int code = read_stream(jpeg, frame->scan, err);

    if (code < 0)
        return code;
    begin_interval(jpeg, interval);
    return decode_through(
               jpeg, (int)(begin / frame->mcus_across), (int)(begin % frame->mcus_across))
               ? 0
               : -EBADMSG;
}

/* Decodes from the first entry of a row. 0 or an error. */
static int decode_from_entry(struct np_jpeg *jpeg, int row, struct np_err *err)
{
    const struct np_jpeg_entry *entry = &jpeg->entries.at[row * jpeg->entries.per_row];
    int code = -EBADMSG;

    if (is_inside(jpeg, entry))
        code = read_stream(jpeg, jpeg->frame.bytes + entry->bit / 8, err);
    if (code < 0)
        return code;
    enter(jpeg, entry);
    return decode_through(jpeg, row, 0) ? 0 : -EBADMSG;
}

/* Decodes the area: its rows that have entries, each from an entry, and the others through all MCUs
 * from the last row that has entries on. Notes the entries that it passes. */
static int decode_area(struct np_jpeg *jpeg, struct np_err *err)
{
    const struct np_jpeg_area *area = &jpeg->rows.area;
    const struct np_jpeg_entries *entries = &jpeg->entries;
    const int known = entries->nr_rows;
    int row = area->top, code;

    if (known > 0 && hold_stream(jpeg, jpeg->frame.scan, 1, err))
        return -ENOMEM;
    for (; row < area->bottom && (row < known - 1 || area->bottom <= known); row++) {
        if (!decode_entered_row(jpeg, row))
            return -EBADMSG;
        np_jpeg_rows_write(&jpeg->rows, row);
    }
    if (row == area->bottom)
        return 0;
    code = known > 0 ? decode_from_entry(jpeg, known - 1, err) : decode_from_interval(jpeg, err);
    if (code == 0 && !jpeg->frame.restart) {
        const bool whole = (area->right + SEGMENT - 1) / SEGMENT == entries->per_row;

        place_entries(jpeg, known, area->bottom - (whole ? 0 : 1));
    }
    return code;
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
    jpeg->entries.per_row = (jpeg->frame.mcus_across + SEGMENT - 1) / SEGMENT;
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

void np_jpeg_needed_rows(
    const struct np_jpeg *jpeg, const struct np_rect *need, int *ret_top, int *ret_bottom)
{
    struct np_jpeg_area area;

    np_jpeg_set_area(&jpeg->frame, need, &area);
    *ret_top = area.top;
    *ret_bottom = area.bottom;
}

size_t np_jpeg_header(const struct np_jpeg *jpeg, uint8_t *header, size_t room)
{
    return np_jpeg_copy_header(&jpeg->frame, header, room);
}
