/* See trace_encode.h. The tables below name the field numbers. */
#include "daemon/analysis/trace_encode.h"

#include <assert.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "loader/base/stat.h"

/* Fields of messages, by number. */
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
enum {
    TRACK_UUID = 1,
    TRACK_NAME = 2,
    TRACK_PROCESS = 3,
    TRACK_THREAD = 4,
    TRACK_PARENT = 5,
    TRACK_COUNTER = 8,
};
enum { PROCESS_PID = 1, PROCESS_NAME = 6, THREAD_PID = 1, THREAD_TID = 2, THREAD_NAME = 5 };
enum { COUNTER_UNIT = 6 };

/* Sequence numbers: the process, each counter, then the tracks. uuids have the same order. */
enum { SEQUENCE_FILE = 1, SEQUENCE_GAUGE, SEQUENCE_TRACK = SEQUENCE_GAUGE + NP_NR_TRACE_GAUGES };

/* Names by number. */
enum { BATCH = 1, ROW, BYTES };
static const char *const annotation_names[] = {[BATCH] = "batch", [ROW] = "row", [BYTES] = "bytes"};

/* --- encoding ------------------------------------------------------------------------------------ */

static void varint(struct np_trace_buffer *out, uint64_t value)
{
    for (; value >= 0x80; value >>= 7)
        out->bytes[out->nr++] = (uint8_t)(value | 0x80);
    out->bytes[out->nr++] = (uint8_t)value;
}

static void number(struct np_trace_buffer *out, int field, uint64_t value)
{
    varint(out, (uint64_t)field << 3);
    varint(out, value);
}

static void fixed(struct np_trace_buffer *out, int field, uint64_t bits)
{
    varint(out, (uint64_t)field << 3 | 1);
    for (int i = 0; i < 8; i++)
        out->bytes[out->nr++] = (uint8_t)(bits >> (8 * i));
}

static void text(struct np_trace_buffer *out, int field, const char *text_)
{
    const size_t bytes = strnlen(text_, 63);

    varint(out, (uint64_t)field << 3 | 2);
    varint(out, bytes);
    memcpy(out->bytes + out->nr, text_, bytes);
    out->nr += bytes;
}

/* Begins a nested message. Its length takes one byte; if it needs two, end() moves the message. */
static size_t begin(struct np_trace_buffer *out, int field)
{
    varint(out, (uint64_t)field << 3 | 2);
    return out->nr++;
}

static void end(struct np_trace_buffer *out, size_t at)
{
    const size_t bytes = out->nr - at - 1;

    assert(bytes < 1 << 14);
    if (bytes < 0x80) {
        out->bytes[at] = (uint8_t)bytes;
        return;
    }
    memmove(out->bytes + at + 2, out->bytes + at + 1, bytes);
    out->bytes[at] = (uint8_t)(bytes | 0x80);
    out->bytes[at + 1] = (uint8_t)(bytes >> 7);
    out->nr++;
}

static size_t begin_packet(struct np_trace_buffer *out, int sequence, int flags)
{
    assert(
        out->room - out->nr >= NP_TRACE_MAX / 2); /* a call's packets are two large ones at most */
    const size_t packet = begin(out, TRACE_PACKET);

    number(out, PACKET_SEQUENCE, (uint64_t)sequence);
    number(out, PACKET_FLAGS, (uint64_t)flags);
    return packet;
}

static size_t begin_event(
    struct np_trace_buffer *out, int sequence, uint64_t now_ns, int type, size_t *ret_event)
{
    const size_t packet = begin_packet(out, sequence, FLAG_NEEDS_STATE);

    number(out, PACKET_TIMESTAMP, now_ns);
    *ret_event = begin(out, PACKET_EVENT);
    number(out, EVENT_TYPE, (uint64_t)type);
    return packet;
}

/* --- sequences and tracks ------------------------------------------------------------------------ */

static uint64_t uuid_of(const struct np_trace_file *file, int sequence)
{
    return file->uuid + (uint64_t)sequence - SEQUENCE_FILE;
}

static void intern(struct np_trace_buffer *out, int field, int iid, const char *name)
{
    const size_t at = begin(out, field);

    number(out, INTERNED_IID, (uint64_t)iid);
    text(out, INTERNED_NAME, name);
    end(out, at);
}

static void name_kind(int kind, char *name, size_t room)
{
    if (kind >= NP_SPAN_PART)
        snprintf(name, room, "%s, a part", np_stage_names[kind - NP_SPAN_PART]);
    else
        snprintf(name, room, "%s",
            kind < NP_SPAN_STATE     ? np_stage_names[kind]
            : kind < NP_SPAN_COMPUTE ? np_state_names[kind - NP_SPAN_STATE]
                                     : "compute");
}

/* Begins a sequence: its clock, its track, and its table of names. */
static void begin_sequence(struct np_trace_buffer *out, int sequence, uint64_t uuid, bool has_names)
{
    const size_t packet = begin_packet(out, sequence, FLAG_STATE_CLEARED);
    size_t at = begin(out, PACKET_DEFAULTS), in;

    in = begin(out, DEFAULTS_EVENT);
    number(out, EVENT_TRACK, uuid);
    end(out, in);
    number(out, DEFAULTS_CLOCK, MONOTONIC);
    end(out, at);
    if (has_names) {
        at = begin(out, PACKET_INTERNED);
        for (int kind = 0; kind < NP_NR_SPANS; kind++) {
            char name[32];

            name_kind(kind, name, sizeof(name));
            intern(out, INTERNED_EVENT_NAME, kind + 1, name);
        }
        for (int i = BATCH; i <= BYTES; i++)
            intern(out, INTERNED_ANNOTATION_NAME, i, annotation_names[i]);
        end(out, at);
    }
    end(out, packet);
}

static size_t begin_track(
    struct np_trace_buffer *out, int sequence, uint64_t uuid, uint64_t parent, size_t *ret_packet)
{
    *ret_packet = begin_packet(out, sequence, FLAG_NEEDS_STATE);
    const size_t track = begin(out, PACKET_TRACK);

    number(out, TRACK_UUID, uuid);
    if (parent)
        number(out, TRACK_PARENT, parent);
    return track;
}

static void clock_at(struct np_trace_buffer *out, int id, uint64_t ns)
{
    const size_t at = begin(out, CLOCKS_CLOCK);

    number(out, CLOCK_ID, (uint64_t)id);
    number(out, CLOCK_TIMESTAMP, ns);
    end(out, at);
}

static void clocks(struct np_trace_buffer *out, uint64_t now_ns, uint64_t boot_ns)
{
    const size_t packet = begin_packet(out, SEQUENCE_FILE, 0), at = begin(out, PACKET_CLOCKS);

    clock_at(out, MONOTONIC, now_ns);
    clock_at(out, BOOTTIME, boot_ns);
    number(out, CLOCKS_PRIMARY, MONOTONIC);
    end(out, at);
    end(out, packet);
}

static void gauge_track(struct np_trace_buffer *out, const struct np_trace_file *file, int sequence,
    const char *name, const char *unit)
{
    const uint64_t uuid = uuid_of(file, sequence);
    size_t packet, track, at;

    begin_sequence(out, sequence, uuid, false);
    track = begin_track(out, sequence, uuid, file->uuid, &packet);
    text(out, TRACK_NAME, name);
    at = begin(out, TRACK_COUNTER);
    text(out, COUNTER_UNIT, unit);
    end(out, at);
    end(out, track);
    end(out, packet);
}

void np_trace_head(struct np_trace_buffer *out, const struct np_trace_file *file, uint64_t now_ns,
    uint64_t boot_ns)
{
    size_t packet, track, at;

    clocks(out, now_ns, boot_ns);
    begin_sequence(out, SEQUENCE_FILE, file->uuid, false);
    track = begin_track(out, SEQUENCE_FILE, file->uuid, 0, &packet);
    at = begin(out, TRACK_PROCESS);
    number(out, PROCESS_PID, (uint64_t)file->pid);
    text(out, PROCESS_NAME, "nnpipe");
    end(out, at);
    end(out, track);
    end(out, packet);
    gauge_track(out, file, SEQUENCE_GAUGE + NP_TRACE_READY, "batches ready", "batches");
    gauge_track(out, file, SEQUENCE_GAUGE + NP_TRACE_RATE, "images per second", "img/s");
}

void np_trace_track(struct np_trace_buffer *out, const struct np_trace_file *file, int number_,
    int shown, const char *name, int tid)
{
    const int sequence = SEQUENCE_TRACK + number_;
    const uint64_t uuid = uuid_of(file, SEQUENCE_TRACK + shown);
    size_t packet, track, at;

    begin_sequence(out, sequence, uuid, true);
    track = begin_track(out, sequence, uuid, file->uuid, &packet);
    text(out, TRACK_NAME, name);
    if (tid) {
        at = begin(out, TRACK_THREAD);
        number(out, THREAD_PID, (uint64_t)file->pid);
        number(out, THREAD_TID, (uint64_t)tid);
        text(out, THREAD_NAME, name);
        end(out, at);
    }
    end(out, track);
    end(out, packet);
}

/* --- events -------------------------------------------------------------------------------------- */

static void annotate_by_name(struct np_trace_buffer *out, const char *name, uint64_t value)
{
    const size_t at = begin(out, EVENT_ANNOTATION);

    text(out, ANNOTATION_NAME, name);
    number(out, ANNOTATION_UINT, value);
    end(out, at);
}

/* An arrow connects a batch's first row, its copy and its step. */
static bool flows(const struct np_span *span)
{
    return span->batch != NP_SPAN_NO_BATCH &&
           ((span->kind == NP_STAGE_AUGMENT && span->row == 0) || span->kind == NP_STAGE_COPY ||
               span->kind == NP_STAGE_STEP || span->kind == NP_SPAN_COMPUTE);
}

/* For speed, spans are written through a local pointer: for the compiler a byte stored through out->bytes
 * might change out->nr. No part of a span has 128 bytes. */
static uint8_t *quick_varint(uint8_t *at, uint64_t value)
{
    for (; value >= 0x80; value >>= 7)
        *at++ = (uint8_t)(value | 0x80);
    *at++ = (uint8_t)value;
    return at;
}

static uint8_t *quick_annotate(uint8_t *at, int iid, uint64_t value)
{
    uint8_t *bytes = at + 1;

    at[0] = EVENT_ANNOTATION << 3 | 2;
    at[2] = ANNOTATION_NAME_IID << 3;
    at[3] = (uint8_t)iid;
    at[4] = ANNOTATION_UINT << 3;
    at = quick_varint(at + 5, value);
    *bytes = (uint8_t)(at - bytes - 1);
    return at;
}

/* Writes a packet up to the event's type; the caller sets the lengths of packet and event. */
static uint8_t *quick_event(
    uint8_t *at, int sequence, uint64_t now_ns, int type, uint8_t **ret_packet, uint8_t **ret_event)
{
    *at++ = TRACE_PACKET << 3 | 2;
    *ret_packet = at++;
    *at++ = PACKET_SEQUENCE << 3;
    at = quick_varint(at, (uint64_t)sequence);
    *at++ = PACKET_FLAGS << 3;
    *at++ = FLAG_NEEDS_STATE;
    *at++ = PACKET_TIMESTAMP << 3;
    at = quick_varint(at, now_ns);
    *at++ = PACKET_EVENT << 3 | 2;
    *ret_event = at++;
    *at++ = EVENT_TYPE << 3;
    *at++ = (uint8_t)type;
    return at;
}

static uint8_t *quick_end(uint8_t *at, uint8_t *packet, uint8_t *event)
{
    *event = (uint8_t)(at - event - 1);
    *packet = (uint8_t)(at - packet - 1);
    return at;
}

static uint8_t *quick_flow(uint8_t *at, uint64_t flow)
{
    at = quick_varint(at, EVENT_FLOW << 3 | 1);
    for (int i = 0; i < 8; i++)
        *at++ = (uint8_t)(flow >> (8 * i));
    return at;
}

void np_trace_span(struct np_trace_buffer *out, int number_, const struct np_span *span)
{
    const int sequence = SEQUENCE_TRACK + number_;
    uint8_t *at = out->bytes + out->nr, *packet, *event;

    assert(out->room - out->nr >= NP_TRACE_MAX);
    at = quick_event(at, sequence, span->start_ns, SLICE_BEGIN, &packet, &event);
    *at++ = EVENT_NAME_IID << 3;
    *at++ = (uint8_t)(span->kind + 1);
    if (span->batch != NP_SPAN_NO_BATCH)
        at = quick_annotate(at, BATCH, span->batch);
    if (span->row != NP_SPAN_NO_ROW)
        at = quick_annotate(at, ROW, span->row);
    if (span->bytes)
        at = quick_annotate(at, BYTES, span->bytes);
    if (flows(span))
        at = quick_flow(at, span->batch + 1); /* 0 is none */
    at = quick_end(at, packet, event);
    at = quick_event(at, sequence, span->start_ns + span->ns, SLICE_END, &packet, &event);
    at = quick_end(at, packet, event);
    out->nr = (size_t)(at - out->bytes);
}

void np_trace_gap(struct np_trace_buffer *out, int number_, uint64_t now_ns, uint64_t nr_dropped)
{
    size_t event, packet = begin_event(out, SEQUENCE_TRACK + number_, now_ns, INSTANT, &event);

    text(out, EVENT_NAME, "spans dropped");
    annotate_by_name(out, "dropped", nr_dropped);
    end(out, event);
    end(out, packet);
}

void np_trace_gauge(
    struct np_trace_buffer *out, enum np_trace_gauge gauge, uint64_t now_ns, double value)
{
    const int sequence = SEQUENCE_GAUGE + (int)gauge;
    size_t event, packet = begin_event(out, sequence, now_ns, COUNTER, &event);
    uint64_t bits;

    memcpy(&bits, &value, sizeof(bits));
    fixed(out, EVENT_DOUBLE, bits);
    end(out, event);
    end(out, packet);
}

void np_trace_tail(struct np_trace_buffer *out, uint64_t now_ns, const struct np_trace_sums *sums)
{
    size_t event, packet = begin_event(out, SEQUENCE_FILE, now_ns, INSTANT, &event);

    text(out, EVENT_NAME, "end of trace");
    annotate_by_name(out, "spans", sums->spans);
    annotate_by_name(out, "dropped, ring full", sums->dropped);
    annotate_by_name(out, "left out, file full", sums->left);
    end(out, event);
    end(out, packet);
}
