/* Every encoder writes at a pointer and returns the end of its bytes. The pointer is a local
 * variable everywhere: stored in a struct, it would be read again after each byte, because for
 * the compiler that byte may have changed it. */
#include "daemon/analysis/trace_encode.h"

#include <assert.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "loader/base/stat.h"

/* The fields of each message, by number, and the values of some. */
enum { TRACE_PACKET = 1 };
enum {
    PACKET_CLOCKS = 6,
    PACKET_TIMESTAMP = 8,
    PACKET_SEQUENCE = 10,
    PACKET_EVENT = 11,
    PACKET_INTERNED = 12,
    PACKET_FLAGS = 13,
    PACKET_DEFAULTS = 59,
    PACKET_TRACK = 60,
};
enum { FLAG_STATE_CLEARED = 1, FLAG_NEEDS_STATE = 2 };
enum { DEFAULTS_EVENT = 11, DEFAULTS_CLOCK = 58 };
enum { CLOCKS_CLOCK = 1, CLOCKS_PRIMARY = 2, CLOCK_ID = 1, CLOCK_TIMESTAMP = 2 };
enum { MONOTONIC = 3, BOOTTIME = 6 };
enum {
    EVENT_ANNOTATION = 4,
    EVENT_TYPE = 9,
    EVENT_NAME_IID = 10,
    EVENT_TRACK = 11,
    EVENT_NAME = 23,
    EVENT_DOUBLE = 44,
    EVENT_FLOW = 47,
};
enum { SLICE_BEGIN = 1, SLICE_END = 2, INSTANT = 3, COUNTER = 4 };
enum { ANNOTATION_NAME_IID = 1, ANNOTATION_UINT = 3, ANNOTATION_NAME = 10 };
enum { INTERNED_EVENT_NAME = 2, INTERNED_ANNOTATION_NAME = 3, INTERNED_IID = 1, INTERNED_NAME = 2 };
enum { TRACK_UUID = 1, TRACK_NAME, TRACK_PROCESS, TRACK_THREAD, TRACK_PARENT, TRACK_COUNTER = 8 };
enum { PROCESS_PID = 1, PROCESS_NAME = 6, THREAD_PID = 1, THREAD_TID = 2, THREAD_NAME = 5 };
enum { COUNTER_UNIT = 6 };

/* Sequence numbers: the process, each counter, then the tracks. uuids have the same order. */
enum { SEQUENCE_FILE = 1, SEQUENCE_GAUGE, SEQUENCE_TRACK = SEQUENCE_GAUGE + NP_NR_TRACE_GAUGES };

static const char *const gauges[NP_NR_TRACE_GAUGES][2] = {/* name, unit */
    [NP_TRACE_READY] = {"batches ready", "batches"},
    [NP_TRACE_RATE] = {"images per second", "img/s"}};

/* Interned names of annotations, by number. */
enum { BATCH = 1, ROW, BYTES };
static const char *const annotation_names[] = {[BATCH] = "batch", [ROW] = "row", [BYTES] = "bytes"};

/* --- fields -------------------------------------------------------------------------------- */

static inline uint8_t *varint(uint8_t *at, uint64_t value)
{
    for (; value >= 0x80; value >>= 7)
        *at++ = (uint8_t)(value | 0x80);
    *at++ = (uint8_t)value;
    return at;
}

static inline uint8_t *number(uint8_t *at, int field, uint64_t value)
{
    return varint(varint(at, (uint64_t)field << 3), value);
}

static inline uint8_t *fixed(uint8_t *at, int field, uint64_t bits)
{
    at = varint(at, (uint64_t)field << 3 | 1);
    for (int i = 0; i < 8; i++)
        *at++ = (uint8_t)(bits >> (8 * i));
    return at;
}

static uint8_t *text(uint8_t *at, int field, const char *text_)
{
    const size_t bytes = strnlen(text_, 63);

    at = varint(varint(at, (uint64_t)field << 3 | 2), bytes);
    memcpy(at, text_, bytes);
    return at + bytes;
}

/* Begins a nested message, whose length takes one byte before its contents. */
static inline uint8_t *begin(uint8_t *at, int field)
{
    return varint(at, (uint64_t)field << 3 | 2) + 1;
}

/* Ends the message whose contents begin at `inside`; moves them if the length needs two bytes. */
static inline uint8_t *end(uint8_t *at, uint8_t *inside)
{
    const size_t bytes = (size_t)(at - inside);

    assert(bytes < 1 << 14);
    inside[-1] = (uint8_t)bytes;
    if (bytes < 0x80)
        return at;
    memmove(inside + 1, inside, bytes);
    inside[-1] |= 0x80;
    inside[0] = (uint8_t)(bytes >> 7);
    return at + 1;
}

/* The contents of a packet and of the message in it; neither is ended yet. */
struct open_packet {
    uint8_t *packet, *message;
};

static inline uint8_t *end_both(uint8_t *at, const struct open_packet *open)
{
    return end(end(at, open->message), open->packet);
}

static inline uint8_t *begin_packet(uint8_t *at, int sequence, int flags, uint8_t **ret_packet)
{
    at = *ret_packet = begin(at, TRACE_PACKET);
    at = number(at, PACKET_SEQUENCE, (uint64_t)sequence);
    return number(at, PACKET_FLAGS, (uint64_t)flags);
}

/* --- sequences and tracks ------------------------------------------------------------------ */

static uint8_t *intern(uint8_t *at, int field, int iid, const char *name)
{
    uint8_t *const inside = begin(at, field);

    return end(text(number(inside, INTERNED_IID, (uint64_t)iid), INTERNED_NAME, name), inside);
}

static uint8_t *intern_names(uint8_t *at)
{
    uint8_t *const inside = at = begin(at, PACKET_INTERNED);

    for (int kind = 0; kind < NP_NR_SPANS; kind++) {
        const bool part = kind >= NP_SPAN_PART;
        char name[64];

        snprintf(name, sizeof(name), "%s%s",
            part                     ? np_stage_names[kind - NP_SPAN_PART]
            : kind < NP_SPAN_STATE   ? np_stage_names[kind]
            : kind < NP_SPAN_COMPUTE ? np_state_names[kind - NP_SPAN_STATE]
                                     : "compute",
            part ? ", a part" : "");
        at = intern(at, INTERNED_EVENT_NAME, kind + 1, name);
    }
    for (int i = BATCH; i <= BYTES; i++)
        at = intern(at, INTERNED_ANNOTATION_NAME, i, annotation_names[i]);
    return end(at, inside);
}

/* Begins a sequence (its clock, its track, and for spans its table of names) and the description
 * of the track, which end_both() ends. shown: the sequence whose uuid it has. name NULL: the
 * process. */
static uint8_t *begin_track(uint8_t *at, const struct np_trace_file *file, int sequence, int shown,
    const char *name, struct open_packet *ret_open)
{
    const uint64_t uuid = file->uuid + (uint64_t)(shown - SEQUENCE_FILE);
    uint8_t *packet, *defaults, *event;

    at = begin_packet(at, sequence, FLAG_STATE_CLEARED, &packet);
    at = defaults = begin(at, PACKET_DEFAULTS);
    at = event = begin(at, DEFAULTS_EVENT);
    at = end(number(at, EVENT_TRACK, uuid), event);
    at = end(number(at, DEFAULTS_CLOCK, MONOTONIC), defaults);
    at = end(sequence >= SEQUENCE_TRACK ? intern_names(at) : at, packet);
    at = begin_packet(at, sequence, FLAG_NEEDS_STATE, &ret_open->packet);
    at = ret_open->message = begin(at, PACKET_TRACK);
    at = number(at, TRACK_UUID, uuid);
    return name ? text(number(at, TRACK_PARENT, file->uuid), TRACK_NAME, name) : at;
}

static uint8_t *clock_at(uint8_t *at, int id, uint64_t ns)
{
    uint8_t *const inside = begin(at, CLOCKS_CLOCK);

    return end(number(number(inside, CLOCK_ID, (uint64_t)id), CLOCK_TIMESTAMP, ns), inside);
}

uint8_t *np_trace_head(
    uint8_t *at, const struct np_trace_file *file, uint64_t now_ns, uint64_t boot_ns)
{
    uint8_t *packet, *about;
    struct open_packet open;

    at = begin_packet(at, SEQUENCE_FILE, 0, &packet);
    at = about = begin(at, PACKET_CLOCKS);
    at = clock_at(clock_at(at, MONOTONIC, now_ns), BOOTTIME, boot_ns);
    at = end(end(number(at, CLOCKS_PRIMARY, MONOTONIC), about), packet);

    at = begin_track(at, file, SEQUENCE_FILE, SEQUENCE_FILE, NULL, &open);
    at = about = begin(at, TRACK_PROCESS);
    at = text(number(at, PROCESS_PID, (uint64_t)file->pid), PROCESS_NAME, "nnpipe");
    at = end_both(end(at, about), &open);
    for (int i = 0; i < NP_NR_TRACE_GAUGES; i++) {
        const int sequence = SEQUENCE_GAUGE + i;

        at = begin_track(at, file, sequence, sequence, gauges[i][0], &open);
        at = about = begin(at, TRACK_COUNTER);
        at = end_both(end(text(at, COUNTER_UNIT, gauges[i][1]), about), &open);
    }
    return at;
}

uint8_t *np_trace_track(uint8_t *at, const struct np_trace_file *file, int number_, int shown,
    const char *name, int tid)
{
    struct open_packet open;
    uint8_t *about;

    at = begin_track(at, file, SEQUENCE_TRACK + number_, SEQUENCE_TRACK + shown, name, &open);
    if (tid) {
        at = about = begin(at, TRACK_THREAD);
        at = number(number(at, THREAD_PID, (uint64_t)file->pid), THREAD_TID, (uint64_t)tid);
        at = end(text(at, THREAD_NAME, name), about);
    }
    return end_both(at, &open);
}

/* --- events -------------------------------------------------------------------------------- */

/* end_both() ends packet and event. */
static inline uint8_t *begin_event(
    uint8_t *at, int sequence, uint64_t now_ns, int type, struct open_packet *ret_open)
{
    at = begin_packet(at, sequence, FLAG_NEEDS_STATE, &ret_open->packet);
    at = number(at, PACKET_TIMESTAMP, now_ns);
    at = ret_open->message = begin(at, PACKET_EVENT);
    return number(at, EVENT_TYPE, (uint64_t)type);
}

static inline uint8_t *annotate(uint8_t *at, int iid, uint64_t value)
{
    uint8_t *const inside = begin(at, EVENT_ANNOTATION);

    at = number(inside, ANNOTATION_NAME_IID, (uint64_t)iid);
    return end(number(at, ANNOTATION_UINT, value), inside);
}

static uint8_t *annotate_by_name(uint8_t *at, const char *name, uint64_t value)
{
    uint8_t *const inside = begin(at, EVENT_ANNOTATION);

    return end(number(text(inside, ANNOTATION_NAME, name), ANNOTATION_UINT, value), inside);
}

/* An arrow connects a batch's first row, its copy and its step. */
static bool flows(const struct np_span *span)
{
    return span->batch != NP_SPAN_NO_BATCH &&
           ((span->kind == NP_STAGE_AUGMENT && span->row == 0) || span->kind == NP_STAGE_COPY ||
               span->kind == NP_STAGE_STEP || span->kind == NP_SPAN_COMPUTE);
}

uint8_t *np_trace_span(uint8_t *at, int number_, const struct np_span *span)
{
    const int sequence = SEQUENCE_TRACK + number_;
    struct open_packet open;

    at = begin_event(at, sequence, span->start_ns, SLICE_BEGIN, &open);
    at = number(at, EVENT_NAME_IID, span->kind + 1u);
    if (span->batch != NP_SPAN_NO_BATCH)
        at = annotate(at, BATCH, span->batch);
    if (span->row != NP_SPAN_NO_ROW)
        at = annotate(at, ROW, span->row);
    if (span->bytes)
        at = annotate(at, BYTES, span->bytes);
    if (flows(span))
        at = fixed(at, EVENT_FLOW, span->batch + 1); /* 0 is none */
    at = end_both(at, &open);
    at = begin_event(at, sequence, span->start_ns + span->ns, SLICE_END, &open);
    return end_both(at, &open);
}

uint8_t *np_trace_gap(uint8_t *at, int number_, uint64_t now_ns, uint64_t nr_dropped)
{
    struct open_packet open;

    at = begin_event(at, SEQUENCE_TRACK + number_, now_ns, INSTANT, &open);
    at = text(at, EVENT_NAME, "spans dropped");
    return end_both(annotate_by_name(at, "dropped", nr_dropped), &open);
}

uint8_t *np_trace_gauge(uint8_t *at, enum np_trace_gauge gauge, uint64_t now_ns, double value)
{
    struct open_packet open;
    uint64_t bits;

    memcpy(&bits, &value, sizeof(bits));
    at = begin_event(at, SEQUENCE_GAUGE + (int)gauge, now_ns, COUNTER, &open);
    return end_both(fixed(at, EVENT_DOUBLE, bits), &open);
}

uint8_t *np_trace_tail(uint8_t *at, uint64_t now_ns, const struct np_trace_sums *sums)
{
    struct open_packet open;

    at = begin_event(at, SEQUENCE_FILE, now_ns, INSTANT, &open);
    at = text(at, EVENT_NAME, "end of trace");
    at = annotate_by_name(at, "spans", sums->spans);
    at = annotate_by_name(at, "dropped, ring full", sums->dropped);
    at = annotate_by_name(at, "left out, file full", sums->left);
    return end_both(at, &open);
}
