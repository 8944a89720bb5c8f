#include "daemon/track/tfevents.h"

#include <string.h>

#include "loader/base/crc32c.h"
#include "loader/base/mem.h"

#define HEAD 12 /* u64 length, u32 checksum */
#define TAIL 4  /* u32 checksum */

/* Fields, by number, and wire types of protobuf. */
enum { EVENT_TIME = 1, EVENT_STEP = 2, EVENT_VERSION = 3, EVENT_SUMMARY = 5, EVENT_SESSION = 7 };
enum { SUMMARY_VALUE = 1, VALUE_TAG = 1, VALUE_SIMPLE = 2, SESSION_STATUS = 1, SESSION_START = 1 };
enum { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

/* A checksum over bytes that hold checksums would be weak, so they are stored masked. */
static uint32_t masked(const void *bytes, size_t nr_bytes)
{
    const uint32_t crc = np_crc32c(0, bytes, nr_bytes);

    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

/* --- writing ------------------------------------------------------------------------------- */

static void put_byte(struct np_tfrecord *record, unsigned byte)
{
    np_grow(&record->bytes, &record->room, record->used + 1, 1);
    record->bytes[record->used++] = (uint8_t)byte;
}

static void put_le(struct np_tfrecord *record, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        put_byte(record, (unsigned)(value >> (8 * i)) & 0xff);
}

static void put_varint(struct np_tfrecord *record, uint64_t value)
{
    for (; value >= 0x80; value >>= 7)
        put_byte(record, (unsigned)(value & 0x7f) | 0x80);
    put_byte(record, (unsigned)value);
}

static void put_key(struct np_tfrecord *record, int field, int wire)
{
    put_varint(record, (uint64_t)field << 3 | (unsigned)wire);
}

static void put_text(struct np_tfrecord *record, int field, const char *text)
{
    put_key(record, field, WIRE_BYTES);
    put_varint(record, strlen(text));
    while (*text)
        put_byte(record, (unsigned char)*text++);
}

static size_t varint_bytes(uint64_t value)
{
    size_t bytes = 1;

    while (value >>= 7)
        bytes++;
    return bytes;
}

static void begin(struct np_tfrecord *record, double time, uint64_t step)
{
    uint64_t bits;

    record->used = 0;
    put_le(record, 0, 8); /* the head: np_tfrecord_end() */
    put_le(record, 0, 4);
    memcpy(&bits, &time, sizeof(bits));
    put_key(record, EVENT_TIME, WIRE_64);
    put_le(record, bits, 8);
    if (step == 0) /* protobuf leaves out zeros */
        return;
    put_key(record, EVENT_STEP, WIRE_VARINT);
    put_varint(record, step);
}

void np_tfrecord_version(struct np_tfrecord *record, double time)
{
    begin(record, time, 0);
    put_text(record, EVENT_VERSION, "brain.Event:2");
}

void np_tfrecord_restart(struct np_tfrecord *record, double time, uint64_t step)
{
    begin(record, time, step);
    put_key(record, EVENT_SESSION, WIRE_BYTES);
    put_varint(record, 2);
    put_key(record, SESSION_STATUS, WIRE_VARINT);
    put_varint(record, SESSION_START);
}

/* The bytes of one value of a summary, without key and length. */
static size_t value_bytes(const struct np_scalar *scalar)
{
    const size_t tag = strlen(scalar->tag);

    return 1 + varint_bytes(tag) + tag + 1 + 4;
}

void np_tfrecord_scalars(
    struct np_tfrecord *record, double time, uint64_t step, const struct np_scalar *scalars, int n)
{
    size_t bytes = 0;

    for (int i = 0; i < n; i++)
        bytes += 1 + varint_bytes(value_bytes(&scalars[i])) + value_bytes(&scalars[i]);
    begin(record, time, step);
    put_key(record, EVENT_SUMMARY, WIRE_BYTES);
    put_varint(record, bytes);
    for (int i = 0; i < n; i++) {
        const float value = (float)scalars[i].value;
        uint32_t bits;

        memcpy(&bits, &value, sizeof(bits));
        put_key(record, SUMMARY_VALUE, WIRE_BYTES);
        put_varint(record, value_bytes(&scalars[i]));
        put_text(record, VALUE_TAG, scalars[i].tag);
        put_key(record, VALUE_SIMPLE, WIRE_32);
        put_le(record, bits, 4);
    }
}

static void store_le(uint8_t *at, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        at[i] = (uint8_t)(value >> (8 * i));
}

size_t np_tfrecord_end(struct np_tfrecord *record)
{
    const size_t bytes = record->used - HEAD;

    store_le(record->bytes, bytes, 8);
    store_le(record->bytes + 8, masked(record->bytes, 8), 4);
    put_le(record, masked(record->bytes + HEAD, bytes), 4);
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

static bool get_varint(const uint8_t **at, const uint8_t *end, uint64_t *ret_value)
{
    uint64_t value = 0;

    for (int shift = 0; shift < 64 && *at < end; shift += 7) {
        const uint8_t byte = *(*at)++;

        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            *ret_value = value;
            return true;
        }
    }
    return false;
}

/* A field: a number in `bits`, or bytes from `inside` to the message's new place. */
struct field {
    int number, wire;
    uint64_t bits;
    const uint8_t *inside, *end; /* WIRE_BYTES */
};

/* Reads the field at *at and moves *at behind it. False: the message ends, or is damaged. */
static bool get_field(const uint8_t **at, const uint8_t *end, struct field *ret_field)
{
    struct field field = {0};
    uint64_t key;

    if (!get_varint(at, end, &key))
        return false;
    field.number = (int)(key >> 3 & 0xffffff);
    field.wire = (int)(key & 7);
    const int fixed = field.wire == WIRE_64 ? 8 : field.wire == WIRE_32 ? 4 : 0;
    if (fixed) {
        if (end - *at < fixed)
            return false;
        field.bits = get_le(*at, fixed);
        *at += fixed;
    } else if ((field.wire != WIRE_VARINT && field.wire != WIRE_BYTES) ||
               !get_varint(at, end, &field.bits)) {
        return false;
    }
    if (field.wire == WIRE_BYTES) {
        if (field.bits > (uint64_t)(end - *at))
            return false;
        field.inside = *at;
        field.end = *at += field.bits;
    }
    *ret_field = field;
    return true;
}

static void get_value(const uint8_t *at, const uint8_t *end, struct np_tfevent *event)
{
    struct field field;

    while (get_field(&at, end, &field))
        if (field.number == VALUE_TAG && field.wire == WIRE_BYTES) {
            const size_t bytes = (size_t)(field.end - field.inside);
            const size_t kept = bytes < sizeof(event->tag) ? bytes : sizeof(event->tag) - 1;

            memcpy(event->tag, field.inside, kept);
            event->tag[kept] = '\0';
        } else if (field.number == VALUE_SIMPLE && field.wire == WIRE_32) {
            const uint32_t bits = (uint32_t)field.bits;
            float value;

            memcpy(&value, &bits, sizeof(value));
            event->value = (double)value;
        }
}

static void get_event(const uint8_t *at, const uint8_t *end, struct np_tfevent *ret_event)
{
    struct field field, value;

    *ret_event = (struct np_tfevent){0};
    while (get_field(&at, end, &field))
        if (field.number == EVENT_TIME && field.wire == WIRE_64)
            memcpy(&ret_event->time, &field.bits, sizeof(field.bits));
        else if (field.number == EVENT_STEP && field.wire == WIRE_VARINT)
            ret_event->step = field.bits;
        else if (field.number == EVENT_SUMMARY && field.wire == WIRE_BYTES &&
                 get_field(&field.inside, field.end, &value) && value.number == SUMMARY_VALUE &&
                 value.wire == WIRE_BYTES)
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
