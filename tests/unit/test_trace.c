/* Traces: the bytes of Perfetto's format, and the thread that writes them. That another parser reads
 * whole traces is tests/flow/trace.sh's. */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/analysis/trace.h"
#include "daemon/analysis/trace_encode.h"
#include "loader/base/clock.h"
#include "loader/base/stat.h"

#include "tests/test.h"

/* --- a reader of the wire format ----------------------------------------------------------------- */

struct wire {
    const uint8_t *at, *end;
    bool bad;
};
struct field {
    uint64_t number, value; /* of a message or text: its bytes lie in `in` */
    struct wire in;
};

static uint64_t varint(struct wire *wire)
{
    uint64_t value = 0;

    for (int shift = 0; shift < 64 && wire->at < wire->end; shift += 7) {
        const uint8_t byte = *wire->at++;

        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80)
            return value;
    }
    wire->bad = true;
    return 0;
}

static bool next(struct wire *wire, struct field *ret_field)
{
    if (wire->at == wire->end || wire->bad)
        return false;
    const uint64_t tag = varint(wire);

    *ret_field = (struct field){.number = tag >> 3};
    if ((tag & 7) == 0) {
        ret_field->value = varint(wire);
    } else if ((tag & 7) == 1 && wire->end - wire->at >= 8) {
        memcpy(&ret_field->value, wire->at, 8);
        wire->at += 8;
    } else {
        const uint64_t bytes = varint(wire);

        wire->bad |= (tag & 7) != 2 || bytes > (uint64_t)(wire->end - wire->at);
        if (!wire->bad) {
            ret_field->in = (struct wire){wire->at, wire->at + bytes, false};
            wire->at += bytes;
        }
    }
    return !wire->bad;
}

/* The first field of that number. */
static bool find(struct wire wire, uint64_t number, struct field *ret_field)
{
    while (next(&wire, ret_field))
        if (ret_field->number == number)
            return true;
    return false;
}

static uint64_t number_of(struct wire wire, uint64_t number)
{
    struct field field;

    return find(wire, number, &field) ? field.value : UINT64_MAX;
}

static int count(const uint8_t *bytes, size_t nr, bool *ret_bad)
{
    struct wire wire = {bytes, bytes + nr, false};
    struct field field;
    int packets = 0;

    while (next(&wire, &field))
        packets += field.number == 1;
    *ret_bad = wire.bad || wire.at != wire.end;
    return packets;
}

/* --- the encoder --------------------------------------------------------------------------------- */

Test(trace, a_span_is_two_packets_byte_for_byte)
{
    /* clang-format off */
    static const uint8_t want[] = {
        0x0a, 35,                       /* packet */
            0x50, 0x04, 0x68, 0x02,     /* sequence 4, needs its state */
            0x40, 0xe8, 0x07,           /* at 1000 ns */
            0x5a, 26,                   /* event */
                0x48, 0x01,             /* a slice begins */
                0x50, 0x04,             /* named 4: augment */
                0x22, 5, 0x08, 1, 0x18, 0xac, 0x02, /* 1 (batch): 300 */
                0x22, 4, 0x08, 2, 0x18, 7,          /* 2 (row): 7 */
                0x22, 7, 0x08, 3, 0x18, 0x80, 0x80, 0x80, 0x01, /* 3 (bytes): 2 MiB */
        0x0a, 11,
            0x50, 0x04, 0x68, 0x02, 0x40, 0xcc, 0x08, /* at 1100 */
            0x5a, 2, 0x48, 0x02};       /* a slice ends */
    /* clang-format on */
    const struct np_span span = {.start_ns = 1000,
        .ns = 100,
        .kind = NP_STAGE_AUGMENT,
        .batch = 300,
        .row = 7,
        .bytes = 2 << 20};
    uint8_t bytes[NP_TRACE_MAX], *end;

    end = np_trace_span(bytes, 0, &span);
    cr_assert_eq(end - bytes, (ptrdiff_t)sizeof(want));
    cr_assert_eq(memcmp(bytes, want, sizeof(want)), 0);
}

Test(trace, a_span_of_no_batch_has_no_annotations)
{
    const struct np_span span = {.start_ns = 5,
        .ns = 1,
        .kind = NP_STAGE_STEP,
        .batch = NP_SPAN_NO_BATCH,
        .row = NP_SPAN_NO_ROW};
    uint8_t bytes[NP_TRACE_MAX], *end;
    struct field packet, event, field;

    end = np_trace_span(bytes, 0, &span);
    cr_assert(find((struct wire){bytes, end, false}, 1, &packet));
    cr_assert(find(packet.in, 11, &event));
    cr_assert(!find(event.in, 4, &field) && !find(event.in, 47, &field));
    cr_assert_eq(number_of(event.in, 10), NP_STAGE_STEP + 1u);
}

/* What a call appends is at most what it says, with the longest of everything. */
Test(trace, no_call_appends_more_than_it_may)
{
    const struct np_trace_file file = {.uuid = INT64_MAX, .pid = INT32_MAX};
    const struct np_span span = {.start_ns = UINT64_MAX,
        .ns = 0,
        .kind = NP_SPAN_COMPUTE,
        .batch = NP_SPAN_NO_BATCH - 1,
        .row = NP_SPAN_NO_ROW - 1,
        .bytes = UINT64_MAX};
    const struct np_trace_sums sums = {UINT64_MAX, UINT64_MAX, UINT64_MAX};
    char name[400];
    uint8_t bytes[2 * NP_TRACE_MAX], *end = NULL;
    bool bad;

    memset(name, 'n', sizeof(name));
    name[sizeof(name) - 1] = 0;
    for (int call = 0; call < 6; call++) {
        switch (call) {
        case 0: end = np_trace_head(bytes, &file, UINT64_MAX, UINT64_MAX); break;
        case 1: end = np_trace_track(bytes, &file, 4095, 4095, name, INT32_MAX); break;
        case 2: end = np_trace_span(bytes, 4095, &span); break;
        case 3: end = np_trace_gap(bytes, 4095, UINT64_MAX, UINT64_MAX); break;
        case 4: end = np_trace_gauge(bytes, NP_TRACE_RATE, UINT64_MAX, -1e300); break;
        case 5: end = np_trace_tail(bytes, UINT64_MAX, &sums); break;
        }
        cr_assert_gt(end, bytes);
        cr_assert_leq(end - bytes, NP_TRACE_MAX);
        cr_assert_gt(count(bytes, (size_t)(end - bytes), &bad), 0);
        cr_assert(!bad);
    }
}

Test(trace, a_track_names_its_thread_and_its_spans)
{
    const struct np_trace_file file = {.uuid = 1000, .pid = 42};
    uint8_t bytes[NP_TRACE_MAX], *end;
    struct wire trace;
    struct field packet, interned, name, track, thread, field;
    int kind = 0;

    end = np_trace_track(bytes, &file, 2, 0, "reader 0", 43);
    trace = (struct wire){bytes, end, false};
    cr_assert(next(&trace, &packet));
    cr_assert_eq(number_of(packet.in, 13), 1u); /* the state begins */
    cr_assert(find(packet.in, 12, &interned));
    while (next(&interned.in, &field) && field.number == 2) {
        const char *want = kind < NP_NR_STAGES       ? np_stage_names[kind]
                           : kind < NP_SPAN_COMPUTE  ? np_state_names[kind - NP_NR_STAGES]
                           : kind == NP_SPAN_COMPUTE ? "compute"
                           : kind == NP_SPAN_PART    ? "read, a part"
                                                     : "";

        cr_assert_eq(number_of(field.in, 1), ++kind + 0u);
        cr_assert(find(field.in, 2, &name));
        cr_assert(*want == 0 || (size_t)(name.in.end - name.in.at) == strlen(want));
        cr_assert_eq(memcmp(name.in.at, want, strlen(want)), 0);
    }
    cr_assert_eq(kind, NP_NR_SPANS);
    cr_assert(next(&trace, &packet) && find(packet.in, 60, &track) && find(track.in, 4, &thread));
    cr_assert_eq(number_of(thread.in, 1), 42u);
    cr_assert_eq(number_of(thread.in, 2), 43u);
    cr_assert_eq(number_of(track.in, 5), 1000u); /* below the process */
}

/* --- the thread that writes ---------------------------------------------------------------------- */

static void read_whole(const char *path, uint8_t **ret_bytes, size_t *ret_nr)
{
    FILE *file = fopen(path, "rb");
    struct stat stat_;

    *ret_bytes = NULL;
    *ret_nr = 0;
    if (!file || fstat(fileno(file), &stat_) < 0)
        return;
    *ret_bytes = malloc((size_t)stat_.st_size + 1);
    *ret_nr = fread(*ret_bytes, 1, (size_t)stat_.st_size, file);
    fclose(file);
}

Test(trace, spans_dropped_and_left_out_are_counted, .timeout = 120)
{
    char path[] = "/tmp/nnpipe-trace-XXXXXX";
    const int fd = mkstemp(path);
    struct np_trace *trace = NULL;
    struct np_trace_end end;
    struct np_err err = {0};
    struct np_spans *spans;
    const uint64_t nr_put = 400000;
    uint8_t *bytes;
    size_t nr;
    bool bad;

    cr_assert(fd >= 0);
    close(fd);
    cr_assert_eq(np_trace_open(path, "1", &trace, &err), 0);
    spans = np_tracks_join(np_trace_tracks(trace), "reader 0", 1);
    for (uint64_t i = 0; i < nr_put; i++)
        np_spans_put(spans, NP_STAGE_DECODE, i, 1, np_now_ns());
    np_trace_finish(trace, &end);
    cr_assert_eq(end.spans + end.dropped + end.left, nr_put);
    cr_assert_gt(end.spans, 0u);
    cr_assert_gt(end.left + end.dropped, 0u);
    cr_assert_leq(end.bytes, 1u << 20);
    cr_assert_eq(end.code, 0);
    cr_assert(strstr(end.text, path) != NULL);
    read_whole(path, &bytes, &nr);
    cr_assert_eq(nr, end.bytes);
    cr_assert_geq(count(bytes, nr, &bad), (int)(2 * end.spans));
    cr_assert(!bad);
    free(bytes);
    np_trace_free(trace);
    unlink(path);
}

Test(trace, a_full_disk_ends_it_with_its_error, .timeout = 120)
{
    struct np_trace *trace = NULL;
    struct np_trace_end end;
    struct np_err err = {0};
    struct np_spans *spans;

    cr_assert_eq(np_trace_open("/dev/full", NULL, &trace, &err), 0);
    spans = np_tracks_join(np_trace_tracks(trace), "reader 0", 1);
    for (int i = 0; i < 100; i++)
        np_spans_put(spans, NP_STAGE_DECODE, 1, 1, np_now_ns());
    np_trace_finish(trace, &end);
    cr_assert_eq(end.code, -ENOSPC);
    cr_assert_eq(end.spans, 0u);
    cr_assert_eq(end.left, 100u);
    cr_assert_eq(end.bytes, 0u);
    cr_assert(strstr(end.text, "without 100 spans: No space left") != NULL);
    np_trace_free(trace);
}

Test(trace, impossible_paths_and_options_are_errors)
{
    static const char *const limits[] = {"", "0", "-1", "1.5", "12x", "99999999999999999999"};
    struct np_trace *trace = NULL;
    struct np_err err = {0};

    cr_assert_eq(np_trace_open("/no/where/at/all", NULL, &trace, &err), -ENOENT);
    cr_assert(strstr(err.text, "/no/where/at/all") != NULL);
    for (size_t i = 0; i < sizeof(limits) / sizeof(*limits); i++) {
        err = (struct np_err){0};
        cr_assert_eq(np_trace_open("/dev/null", limits[i], &trace, &err), -EINVAL);
    }
    cr_assert_null(trace);
    np_trace_free(NULL);
}
