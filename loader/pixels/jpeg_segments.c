/* The entropy-coded data in segments of up to 16 MCUs of a row, whose coefficients stay in the L1
 * cache (jpeg_parts.h). In rows that have entries each segment begins at one, and two lanes decode
 * two segments at a time; one lane decodes the other rows in the order of the data. */
#include <errno.h>
#include <string.h>

#include "loader/base/mem.h"
#include "loader/pixels/jpeg_parts.h"

#define SEGMENT  NP_JPEG_STEP
#define MAX_SPAN (NP_JPEG_SLACK * NP_JPEG_MAX_BLOCKS) /* bytes of a segment that has an entry */
#define ROOM     (MAX_SPAN + NP_JPEG_PAD)             /* for them, in the stream */
#define RST0     0xd0
#define EOI      0xd9

/* --- data ---------------------------------------------------------------------------------- */

static int hold_stream(
    struct np_jpeg *jpeg, const uint8_t *at, int nr_intervals, struct np_err *err)
{
    const size_t rest = (size_t)(jpeg->frame.end - at);
    const size_t nr_bytes = rest > 2 * ROOM ? rest : 2 * ROOM;

    return np_hold(&jpeg->stream.bytes, &jpeg->stream_bytes, nr_bytes + MAX_SPAN, err) ||
                   np_hold(&jpeg->stream.stuffed, &jpeg->stuffed_bytes,
                       (nr_bytes / 2 + 1) * sizeof(*jpeg->stream.stuffed), err) ||
                   np_hold(&jpeg->starts, &jpeg->starts_bytes,
                       ((size_t)nr_intervals + 1) * sizeof(*jpeg->starts), err)
               ? -ENOMEM
               : 0;
}

/* Fills stream and starts from `at` up to the end marker, as the search for markers that decides
 * whether a file is bad does. -EBADMSG: the end marker or a restart marker is not in its place. */
static int read_stream(struct np_jpeg *jpeg, const uint8_t *at, struct np_err *err)
{
    const struct np_jpeg_frame *frame = &jpeg->frame;
    const int64_t nr_mcus = (int64_t)frame->mcus_across * frame->mcus_down;
    const int nr = frame->restart ? (int)((nr_mcus - 1) / frame->restart) + 1 : 1;

    if (hold_stream(jpeg, at, nr, err))
        return -ENOMEM;
    jpeg->stream.nr_bytes = jpeg->stream.nr_stuffed = 0;
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

static void begin_interval(struct np_jpeg *jpeg, int interval)
{
    struct np_jpeg_scan *scan = &jpeg->scan[0];

    jpeg->interval = interval;
    jpeg->left = jpeg->frame.restart ? jpeg->frame.restart : INT32_MAX;
    scan->stream = jpeg->stream.bytes;
    scan->end = jpeg->starts[interval + 1] * 8;
    memset(scan->dc, 0, sizeof(scan->dc));
    np_jpeg_seek(&scan->lane.bits, scan->stream, jpeg->starts[interval] * 8);
}

/* --- entries ------------------------------------------------------------------------------- */

static struct np_jpeg_entry *entry_at(struct np_jpeg *jpeg, int row, int mcu)
{
    return &jpeg->entries.at[row * jpeg->entries.per_row + mcu / SEGMENT];
}

/* Notes the decoder's state at column mcu of a row without entries; place_entries() converts its
 * position from the stream to the file. */
static void note_entry(struct np_jpeg *jpeg, int row, int mcu)
{
    const struct np_jpeg_scan *scan = &jpeg->scan[0];
    struct np_jpeg_entry *entry = entry_at(jpeg, row, mcu);

    if (jpeg->frame.restart || row < jpeg->entries.nr_rows)
        return;
    entry->bit = np_jpeg_position(&scan->lane.bits, scan->stream);
    for (int c = 0; c < NP_JPEG_COMPONENTS; c++)
        entry->dc[c] = (int16_t)scan->dc[c];
}

/* Converts the positions of the entries of rows known..end-1 from the stream to the file, which has
 * stuffed bytes, too. The stream began at the entry of row known-1, or with the scan. */
static void place_entries(struct np_jpeg *jpeg, int known, int end)
{
    struct np_jpeg_entries *entries = &jpeg->entries;
    const size_t begin = known > 0 ? entry_at(jpeg, known - 1, 0)->bit / 8
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

/* Continues at an entry, whose byte is the first of scan's stream. */
static void enter(struct np_jpeg_scan *scan, const struct np_jpeg_entry *entry)
{
    np_jpeg_seek(&scan->lane.bits, scan->stream, entry->bit % 8);
    for (int c = 0; c < NP_JPEG_COMPONENTS; c++)
        scan->dc[c] = entry->dc[c];
}

/* Copies the data of a segment that begins at an entry; false: the entry is wrong. */
static bool enter_segment(struct np_jpeg *jpeg, struct np_jpeg_scan *scan, int row, int mcu)
{
    const struct np_jpeg_frame *frame = &jpeg->frame;
    const struct np_jpeg_entry *entry = entry_at(jpeg, row, mcu), *next = entry + 1;
    const bool has_next = next < entry_at(jpeg, jpeg->entries.nr_rows, 0);
    struct np_jpeg_stream stream = {
        .bytes = jpeg->stream.bytes + (scan - jpeg->scan) * ROOM, .stuffed = jpeg->stream.stuffed};
    size_t from = entry->bit / 8, to = from + MAX_SPAN;

    if (!is_inside(jpeg, entry) || (has_next && next->bit < entry->bit))
        return false;
    if (has_next && next->bit / 8 + NP_JPEG_BEHIND < to)
        to = next->bit / 8 + NP_JPEG_BEHIND;
    if (to > (size_t)(frame->end - frame->bytes))
        to = (size_t)(frame->end - frame->bytes);
    np_jpeg_unstuff(&stream, frame->bytes + from, frame->bytes + to);
    memset(stream.bytes + stream.nr_bytes, 0, NP_JPEG_PAD);
    scan->stream = stream.bytes;
    scan->end = stream.nr_bytes * 8;
    enter(scan, entry);
    return true;
}

/* --- segments ------------------------------------------------------------------------------ */

/* The column at which decoding of a row ends: the area's edge, but without entries only in the last
 * row. */
static int end_of(const struct np_jpeg *jpeg, int row)
{
    return jpeg->enters || row + 1 == jpeg->end_row ? jpeg->rows.area.right
                                                    : jpeg->frame.mcus_across;
}

static bool is_needed(const struct np_jpeg *jpeg, const struct np_jpeg_segment *segment)
{
    const struct np_jpeg_area *area = &jpeg->rows.area;

    return segment->row >= area->top && segment->mcu + segment->nr > area->left &&
           segment->mcu < area->right;
}

/* Gives scan the next segment, if there is one; false: refused. */
static bool take(struct np_jpeg *jpeg, struct np_jpeg_scan *scan)
{
    const int row = jpeg->row, mcu = jpeg->mcu;
    int nr;

    scan->segment.nr = 0;
    if (row == jpeg->end_row)
        return true;
    nr = end_of(jpeg, row) - mcu;
    nr = nr < SEGMENT ? nr : SEGMENT;
    if (!jpeg->enters) {
        nr = nr < jpeg->left ? nr : jpeg->left;
        note_entry(jpeg, row, mcu);
    } else if (!enter_segment(jpeg, scan, row, mcu))
        return false;
    scan->segment = (struct np_jpeg_segment){scan->blocks, row, mcu, nr};
    if (is_needed(jpeg, &scan->segment))
        jpeg->rows.kernels->clear(scan->blocks, nr * jpeg->frame.mcu_blocks);
    np_jpeg_arm(&scan->lane, scan->blocks, nr * jpeg->frame.mcu_blocks);
    jpeg->mcu = mcu + nr;
    if (jpeg->mcu == end_of(jpeg, row)) {
        jpeg->mcu = jpeg->enters ? jpeg->rows.area.left / SEGMENT * SEGMENT : 0;
        jpeg->row++;
    }
    return true;
}

/* DC coefficients are coded as differences (F.2.2.1). */
static void add_dc(struct np_jpeg *jpeg, struct np_jpeg_scan *scan)
{
    for (int c = 0; c < jpeg->frame.nr_components; c++) {
        const struct np_jpeg_component *component = &jpeg->frame.component[c];
        struct np_jpeg_block *mcu = scan->blocks + component->first;
        int dc = scan->dc[c];

        for (int m = 0; m < scan->segment.nr; m++, mcu += jpeg->frame.mcu_blocks)
            for (int i = 0; i < component->h * component->v; i++)
                dc = mcu[i].coef[0] = (int16_t)(dc + mcu[i].coef[0]);
        scan->dc[c] = dc;
    }
}

/* Transforms the blocks that scan's lane has decoded, and writes the rows of pixels that these
 * complete. Segments come in order. False: refused, for bad codes or missing bits. Skips bytes that
 * are left, as libjpeg does. */
static bool finish(struct np_jpeg *jpeg, struct np_jpeg_scan *scan)
{
    const struct np_jpeg_segment *segment = &scan->segment;
    const int nr_blocks = segment->nr * jpeg->frame.mcu_blocks;

    scan->blocks[nr_blocks - 1].next = jpeg->next;
    if (scan->lane.bad || np_jpeg_position(&scan->lane.bits, scan->stream) > scan->end)
        return false;
    add_dc(jpeg, scan);
    if (!jpeg->enters) {
        jpeg->left -= segment->nr;
        if (jpeg->left == 0 && jpeg->interval + 1 < jpeg->nr_intervals)
            begin_interval(jpeg, jpeg->interval + 1);
    }
    if (!is_needed(jpeg, segment))
        return true;
    if (!np_jpeg_rows_transform(&jpeg->rows, segment))
        return false;
    if (segment->mcu + segment->nr >= jpeg->rows.area.right)
        np_jpeg_rows_write(&jpeg->rows, segment->row);
    return true;
}

/* --- decoding ------------------------------------------------------------------------------ */

static bool is_done(const struct np_jpeg_lane *lane)
{
    return lane->bad || lane->block == lane->end;
}

int np_jpeg_enter(struct np_jpeg *jpeg, int end_row, struct np_err *err)
{
    struct np_jpeg_scan *a = &jpeg->scan[0], *b = &jpeg->scan[1]; /* a has the earlier segment */

    if (hold_stream(jpeg, jpeg->frame.scan, 1, err))
        return -ENOMEM;
    jpeg->enters = true;
    jpeg->row = jpeg->rows.area.top;
    jpeg->mcu = jpeg->rows.area.left / SEGMENT * SEGMENT;
    jpeg->end_row = end_row;
    if (!take(jpeg, a) || !take(jpeg, b))
        return -EBADMSG;
    while (a->segment.nr > 0) {
        struct np_jpeg_scan *const finished = a;

        while (!is_done(&a->lane))
            np_jpeg_run(&a->lane, b->segment.nr == 0 || is_done(&b->lane) ? NULL : &b->lane);
        if (!finish(jpeg, a) || !take(jpeg, a))
            return -EBADMSG;
        a = b;
        b = finished;
    }
    return 0;
}

/* Begins at the last row that has entries, or at the restart interval in which the area begins. */
static int begin_through(struct np_jpeg *jpeg, struct np_err *err)
{
    const struct np_jpeg_frame *frame = &jpeg->frame;
    const struct np_jpeg_entry *entry = NULL;
    const uint8_t *at = frame->scan;
    int row = jpeg->rows.area.top, interval = 0, code;
    int64_t mcu = 0;

    if (jpeg->entries.nr_rows > 0) {
        row = jpeg->entries.nr_rows - 1;
        entry = entry_at(jpeg, row, 0);
        if (!is_inside(jpeg, entry))
            return -EBADMSG;
        at = frame->bytes + entry->bit / 8;
        mcu = (int64_t)row * frame->mcus_across;
    } else if (frame->restart) {
        interval = (int)((int64_t)row * frame->mcus_across / frame->restart);
        mcu = (int64_t)interval * frame->restart;
    }
    code = read_stream(jpeg, at, err);
    if (code < 0)
        return code;
    begin_interval(jpeg, interval);
    if (entry)
        enter(&jpeg->scan[0], entry);
    jpeg->row = (int)(mcu / frame->mcus_across);
    jpeg->mcu = (int)(mcu % frame->mcus_across);
    return 0;
}

int np_jpeg_go_through(struct np_jpeg *jpeg, struct np_err *err)
{
    const struct np_jpeg_area *area = &jpeg->rows.area;
    const bool is_whole = (area->right + SEGMENT - 1) / SEGMENT == jpeg->entries.per_row;
    struct np_jpeg_scan *scan = &jpeg->scan[0];
    const int code = begin_through(jpeg, err);

    if (code < 0)
        return code;
    jpeg->enters = false;
    jpeg->end_row = area->bottom;
    take(jpeg, scan);
    while (scan->segment.nr > 0) {
        while (!is_done(&scan->lane))
            np_jpeg_run(&scan->lane, NULL);
        if (!finish(jpeg, scan) || !take(jpeg, scan))
            return -EBADMSG;
    }
    if (!jpeg->frame.restart)
        place_entries(jpeg, jpeg->entries.nr_rows, area->bottom - (is_whole ? 0 : 1));
    return 0;
}
