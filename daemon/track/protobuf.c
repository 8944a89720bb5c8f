#include "daemon/track/protobuf.h"

#include <string.h>

#include "loader/base/mem.h"

static void put_bytes(struct np_pb *pb, const void *bytes, size_t n)
{
    np_grow(&pb->bytes, &pb->room, pb->used + n + 1, 1);
    memcpy(pb->bytes + pb->used, bytes, n);
    pb->used += n;
}

void np_pb_le(struct np_pb *pb, uint64_t value, int bytes)
{
    uint8_t text[8];

    for (int i = 0; i < bytes; i++)
        text[i] = (uint8_t)(value >> (8 * i));
    put_bytes(pb, text, (size_t)bytes);
}

void np_pb_varint(struct np_pb *pb, uint64_t value)
{
    for (; value >= 0x80; value >>= 7)
        np_pb_le(pb, (value & 0x7f) | 0x80, 1);
    np_pb_le(pb, value, 1);
}

void np_pb_key(struct np_pb *pb, int field, enum np_pb_wire wire)
{
    np_pb_varint(pb, (uint64_t)field << 3 | (unsigned)wire);
}

void np_pb_number(struct np_pb *pb, int field, uint64_t value)
{
    np_pb_key(pb, field, NP_PB_VARINT);
    np_pb_varint(pb, value);
}

void np_pb_text(struct np_pb *pb, int field, const char *text)
{
    np_pb_key(pb, field, NP_PB_BYTES);
    np_pb_varint(pb, strlen(text));
    put_bytes(pb, text, strlen(text));
}

void np_pb_message(struct np_pb *pb, int field, const struct np_pb *inner)
{
    np_pb_key(pb, field, NP_PB_BYTES);
    np_pb_varint(pb, inner->used);
    put_bytes(pb, inner->used ? inner->bytes : (const uint8_t *)"", inner->used);
}

size_t np_pb_varint_bytes(uint64_t value)
{
    size_t bytes = 1;

    while (value >>= 7)
        bytes++;
    return bytes;
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

static uint64_t get_le(const uint8_t *at, int bytes)
{
    uint64_t value = 0;

    for (int i = bytes; i-- > 0;)
        value = value << 8 | at[i];
    return value;
}

bool np_pb_next(const uint8_t **at, const uint8_t *end, struct np_pb_field *ret_field)
{
    struct np_pb_field field = {0};
    uint64_t key;

    if (!get_varint(at, end, &key))
        return false;
    field.number = (int)(key >> 3 & 0xffffff);
    field.wire = (int)(key & 7);
    const int fixed = field.wire == NP_PB_64 ? 8 : field.wire == NP_PB_32 ? 4 : 0;
    if (fixed) {
        if (end - *at < fixed)
            return false;
        field.bits = get_le(*at, fixed);
        *at += fixed;
    } else if ((field.wire != NP_PB_VARINT && field.wire != NP_PB_BYTES) ||
               !get_varint(at, end, &field.bits)) {
        return false;
    }
    if (field.wire == NP_PB_BYTES) {
        if (field.bits > (uint64_t)(end - *at))
            return false;
        field.inside = *at;
        field.end = *at += field.bits;
    }
    *ret_field = field;
    return true;
}

void np_pb_copy(const struct np_pb_field *field, char *text, size_t text_bytes)
{
    const size_t bytes = field->wire == NP_PB_BYTES ? (size_t)(field->end - field->inside) : 0,
                 kept = bytes < text_bytes ? bytes : text_bytes - 1;

    if (kept)
        memcpy(text, field->inside, kept);
    text[kept] = '\0';
}
