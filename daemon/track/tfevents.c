#include "daemon/track/tfevents.h"

#include <string.h>

#include "loader/base/crc32c.h"

#define HEAD 12 /* u64 length, u32 checksum */
#define TAIL 4  /* u32 checksum */

/* Fields, by number. */
enum { EVENT_TIME = 1, EVENT_STEP = 2, EVENT_VERSION = 3, EVENT_SUMMARY = 5, EVENT_SESSION = 7 };
enum { SUMMARY_VALUE = 1, VALUE_TAG = 1, VALUE_SIMPLE = 2, SESSION_STATUS = 1, SESSION_START = 1 };

/* A checksum over bytes that hold checksums would be weak, so they are stored masked. */
static uint32_t masked(const void *bytes, size_t nr_bytes)
{
    const uint32_t crc = np_crc32c(0, bytes, nr_bytes);

    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

/* --- writing ------------------------------------------------------------------------------- */

static void begin(struct np_pb *record, double time, uint64_t step)
{
    uint64_t bits;

    record->used = 0;
    np_pb_le(record, 0, 8); /* the head: np_tfrecord_end() */
    np_pb_le(record, 0, 4);
    memcpy(&bits, &time, sizeof(bits));
    np_pb_key(record, EVENT_TIME, NP_PB_64);
    np_pb_le(record, bits, 8);
    if (step > 0) /* protobuf leaves out zeros */
        np_pb_number(record, EVENT_STEP, step);
}

void np_tfrecord_version(struct np_pb *record, double time)
{
    begin(record, time, 0);
    np_pb_text(record, EVENT_VERSION, "brain.Event:2");
}

void np_tfrecord_restart(struct np_pb *record, double time, uint64_t step)
{
    begin(record, time, step);
    np_pb_key(record, EVENT_SESSION, NP_PB_BYTES);
    np_pb_varint(record, 2);
    np_pb_number(record, SESSION_STATUS, SESSION_START);
}

/* The bytes of one value of a summary, without key and length. */
static size_t value_bytes(const struct np_scalar *scalar)
{
    const size_t tag = strlen(scalar->tag);

    return 1 + np_pb_varint_bytes(tag) + tag + 1 + 4;
}

void np_tfrecord_scalars(
    struct np_pb *record, double time, uint64_t step, const struct np_scalar *scalars, int n)
{
    size_t bytes = 0;

    for (int i = 0; i < n; i++)
        bytes += 1 + np_pb_varint_bytes(value_bytes(&scalars[i])) + value_bytes(&scalars[i]);
    begin(record, time, step);
    np_pb_key(record, EVENT_SUMMARY, NP_PB_BYTES);
    np_pb_varint(record, bytes);
    for (int i = 0; i < n; i++) {
        const float value = (float)scalars[i].value;
        uint32_t bits;

        memcpy(&bits, &value, sizeof(bits));
        np_pb_key(record, SUMMARY_VALUE, NP_PB_BYTES);
        np_pb_varint(record, value_bytes(&scalars[i]));
        np_pb_text(record, VALUE_TAG, scalars[i].tag);
        np_pb_key(record, VALUE_SIMPLE, NP_PB_32);
        np_pb_le(record, bits, 4);
    }
}

static void store_le(uint8_t *at, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        at[i] = (uint8_t)(value >> (8 * i));
}

size_t np_tfrecord_end(struct np_pb *record)
{
    const size_t bytes = record->used - HEAD;

    store_le(record->bytes, bytes, 8);
    store_le(record->bytes + 8, masked(record->bytes, 8), 4);
    np_pb_le(record, masked(record->bytes + HEAD, bytes), 4);
    return record->used;
}

/* --- reading ------------------------------------------------------------------------------- */

static uint64_t get_le(const uint8_t *at, int bytes)
{
    uint64_t value = 0;

    for (int i = bytes; i-- > 0;)
        value = value << 8 | at[i];
    return value;
}

static void get_value(const uint8_t *at, const uint8_t *end, struct np_tfevent *event)
{
    struct np_pb_field field;

    while (np_pb_next(&at, end, &field))
        if (field.number == VALUE_TAG) {
            np_pb_copy(&field, event->tag, sizeof(event->tag));
        } else if (field.number == VALUE_SIMPLE && field.wire == NP_PB_32) {
            const uint32_t bits = (uint32_t)field.bits;
            float value;

            memcpy(&value, &bits, sizeof(value));
            event->value = (double)value;
        }
}

static void get_event(const uint8_t *at, const uint8_t *end, struct np_tfevent *ret_event)
{
    struct np_pb_field field, value;

    *ret_event = (struct np_tfevent){0};
    while (np_pb_next(&at, end, &field))
        if (field.number == EVENT_TIME && field.wire == NP_PB_64)
            memcpy(&ret_event->time, &field.bits, sizeof(field.bits));
        else if (field.number == EVENT_STEP && field.wire == NP_PB_VARINT)
            ret_event->step = field.bits;
        else if (field.number == EVENT_SUMMARY && field.wire == NP_PB_BYTES &&
                 np_pb_next(&field.inside, field.end, &value) && value.number == SUMMARY_VALUE &&
                 value.wire == NP_PB_BYTES)
            get_value(value.inside, value.end, ret_event);
}

void np_tfevents_read(const uint8_t *bytes, uint64_t nr_bytes,
    bool (*each)(void *context, const struct np_tfevent *event, uint64_t end), void *context)
{
    struct np_tfevent event;

    for (uint64_t at = 0; nr_bytes - at >= HEAD + TAIL;) {
        const uint8_t *record = bytes + at;
        const uint64_t length = get_le(record, 8);

        if (masked(record, 8) != get_le(record + 8, 4) || length > nr_bytes - at - HEAD - TAIL ||
            masked(record + HEAD, length) != get_le(record + HEAD + length, 4))
            return;
        get_event(record + HEAD, record + HEAD + length, &event);
        at += HEAD + length + TAIL;
        if (!each(context, &event, at))
            return;
    }
}
