/* The header of a baseline JPEG file (T.81 Annex B), up to the entropy-coded data. Refuses any
 * unusual file, instead of guessing what libjpeg-turbo would make of it. */
#include <string.h>

#include "loader/pixels/jpeg_parts.h"

#define MAX_SIDE 65500 /* libjpeg's limit */

/* Markers (B.1.1.3). */
enum {
    SOF0 = 0xc0, /* baseline */
    SOF1 = 0xc1, /* extended sequential: may have 8-bit samples and four tables */
    DHT = 0xc4,
    SOI = 0xd8,
    SOS = 0xda,
    DQT = 0xdb,
    DRI = 0xdd,
    APP0 = 0xe0,
    APP14 = 0xee,
    APP15 = 0xef,
    COM = 0xfe
};

struct segment {
    const uint8_t *at, *end;
};

struct colour {
    bool jfif, adobe;
    int transform; /* Adobe's */
};

static int two_bytes(const uint8_t *at)
{
    return at[0] << 8 | at[1];
}

static int ceil_div(int a, int b)
{
    return (a + b - 1) / b;
}

/* B.2.4.1 */
static bool parse_quant(struct segment segment, struct np_jpeg_frame *frame)
{
    while (segment.at < segment.end) {
        const int number = *segment.at & 15, bytes = (*segment.at >> 4) + 1;

        segment.at++;
        if (number > 3 || bytes > 2 || segment.end - segment.at < 64 * bytes)
            return false;
        for (int i = 0; i < 64; i++, segment.at += bytes)
            frame->quant[number][np_jpeg_natural[i]] =
                (uint16_t)(bytes == 2 ? two_bytes(segment.at) : *segment.at);
        frame->has_quant[number] = true;
    }
    return true;
}

/* B.2.4.2 */
static bool parse_huff(struct segment segment, struct np_jpeg_frame *frame)
{
    while (segment.at < segment.end) {
        const int class = *segment.at >> 4, number = *segment.at & 15;
        int nr = 0;

        segment.at++;
        if (class > 1 || number > 3 || segment.end - segment.at < 16)
            return false;
        for (int i = 0; i < 16; i++)
            nr += segment.at[i];
        if (nr > 256 || segment.end - segment.at < 16 + nr)
            return false;
        (class == 0 ? frame->dc : frame->ac)[number] = (struct np_jpeg_huff){segment.at, nr};
        segment.at += 16 + nr;
    }
    return true;
}

/* B.2.2 */
static bool parse_frame(struct segment segment, struct np_jpeg_frame *frame)
{
    const uint8_t *at = segment.at;

    if (frame->nr_components > 0 || segment.end - at < 6 || at[0] != 8)
        return false;
    frame->height = two_bytes(at + 1);
    frame->width = two_bytes(at + 3);
    frame->nr_components = at[5];
    if (frame->height < 1 || frame->height > MAX_SIDE || frame->width < 1 ||
        frame->width > MAX_SIDE || (frame->nr_components != 1 && frame->nr_components != 3) ||
        segment.end - at != 6 + 3 * frame->nr_components)
        return false;
    for (int c = 0; c < frame->nr_components; c++) {
        struct np_jpeg_component *component = &frame->component[c];

        at = segment.at + 6 + 3 * c;
        component->id = at[0];
        component->h = at[1] >> 4;
        component->v = at[1] & 15;
        component->quant = at[2];
        if (component->h < 1 || component->h > 2 || component->v < 1 || component->v > 2 ||
            component->quant > 3)
            return false;
        for (int i = 0; i < c; i++)
            if (frame->component[i].id == component->id)
                return false;
    }
    return true;
}

/* B.2.3: the only scan, of all components in the frame's order. */
static bool parse_scan(struct segment segment, struct np_jpeg_frame *frame)
{
    const uint8_t *at = segment.at;
    const int nr = frame->nr_components;

    if (nr == 0 || segment.end - at != 4 + 2 * nr || at[0] != nr)
        return false;
    for (int c = 0; c < nr; c++) {
        struct np_jpeg_component *component = &frame->component[c];

        component->dc = at[2 + 2 * c] >> 4;
        component->ac = at[2 + 2 * c] & 15;
        if (at[1 + 2 * c] != component->id || component->dc > 3 || component->ac > 3 ||
            !frame->dc[component->dc].counts || !frame->ac[component->ac].counts ||
            !frame->has_quant[component->quant])
            return false;
    }
    at += 1 + 2 * nr;
    return at[0] == 0 && at[1] == 63 && at[2] == 0;
}

/* JFIF's and Adobe's segments decide what the components are. */
static void parse_app(int marker, struct segment segment, struct colour *colour)
{
    const ptrdiff_t bytes = segment.end - segment.at;

    if (marker == APP0 && bytes >= 14 && memcmp(segment.at, "JFIF", 5) == 0)
        colour->jfif = true;
    if (marker == APP14 && bytes >= 12 && memcmp(segment.at, "Adobe", 5) == 0) {
        colour->adobe = true;
        colour->transform = segment.at[11];
    }
}

/* True for grey or YCbCr. In a file without JFIF's segment libjpeg takes the ids 'R', 'G', 'B', or
 * Adobe's transform 0, for RGB. */
static bool is_ycc(const struct np_jpeg_frame *frame, const struct colour *colour)
{
    if (frame->nr_components == 1 || colour->jfif)
        return true;
    if (colour->adobe)
        return colour->transform == 1;
    return frame->component[0].id == 1 && frame->component[1].id == 2 &&
           frame->component[2].id == 3;
}

/* Derives the sizes (A.1.1, A.2). A single component's sampling factors have no effect. */
static bool lay_out(struct np_jpeg_frame *frame)
{
    int h = 1, v = 1;

    if (frame->nr_components == 1)
        frame->component[0].h = frame->component[0].v = 1;
    for (int c = 0; c < frame->nr_components; c++) {
        h = frame->component[c].h > h ? frame->component[c].h : h;
        v = frame->component[c].v > v ? frame->component[c].v : v;
    }
    frame->mcu_width = 8 * h;
    frame->mcu_height = 8 * v;
    frame->mcus_across = ceil_div(frame->width, frame->mcu_width);
    frame->mcus_down = ceil_div(frame->height, frame->mcu_height);
    for (int c = 0; c < frame->nr_components; c++) {
        struct np_jpeg_component *component = &frame->component[c];

        component->first = frame->mcu_blocks;
        frame->mcu_blocks += component->h * component->v;
        component->across = h / component->h;
        component->down = v / component->v;
        component->width = ceil_div(frame->width, component->across);
        component->height = ceil_div(frame->height, component->down);
        if (component->across == 2 && component->width <= 2)
            return false; /* libjpeg does not interpolate so few samples */
    }
    return frame->mcu_blocks <= NP_JPEG_MCU_BLOCKS;
}

static bool parse_segment(
    int marker, struct segment segment, struct np_jpeg_frame *frame, struct colour *colour)
{
    switch (marker) {
    case DQT: return parse_quant(segment, frame);
    case DHT: return parse_huff(segment, frame);
    case SOF0:
    case SOF1: return parse_frame(segment, frame);
    case SOS: return parse_scan(segment, frame);
    case DRI:
        frame->restart = segment.end - segment.at == 2 ? two_bytes(segment.at) : 0;
        return segment.end - segment.at == 2;
    default:
        parse_app(marker, segment, colour);
        return marker == COM || (marker >= APP0 && marker <= APP15);
    }
}

bool np_jpeg_parse(const uint8_t *bytes, size_t nr_bytes, struct np_jpeg_frame *ret_frame)
{
    const uint8_t *at = bytes, *end = bytes + nr_bytes;
    struct colour colour = {0};
    int marker = 0;

    if (nr_bytes < 4 || at[0] != 0xff || at[1] != SOI)
        return false;
    memset(ret_frame, 0, offsetof(struct np_jpeg_frame, quant));
    memset(ret_frame->has_quant, 0, sizeof(*ret_frame) - offsetof(struct np_jpeg_frame, has_quant));
    for (at += 2; marker != SOS;) {
        int length;

        if (end - at < 4 || at[0] != 0xff)
            return false;
        marker = at[1];
        length = two_bytes(at + 2);
        if (length < 2 || end - at < 2 + length ||
            !parse_segment(marker, (struct segment){at + 4, at + 2 + length}, ret_frame, &colour))
            return false;
        at += 2 + length;
    }
    ret_frame->bytes = bytes;
    ret_frame->scan = at;
    ret_frame->end = end;
    return is_ycc(ret_frame, &colour) && lay_out(ret_frame);
}

size_t np_jpeg_header(const struct np_jpeg *jpeg, uint8_t *header, size_t room)
{
    const struct np_jpeg_frame *frame = &jpeg->frame;
    size_t used = 0, bytes = 2; /* SOI */

    for (const uint8_t *at = frame->bytes; at < frame->scan; at += bytes) {
        const int marker = at[1];

        if (at > frame->bytes)
            bytes = 2 + (size_t)two_bytes(at + 2);
        if (marker == COM || (marker > APP0 && marker <= APP15 && marker != APP14))
            continue;
        if (bytes > room - used)
            return 0;
        memcpy(header + used, at, bytes);
        used += bytes;
    }
    return used;
}
