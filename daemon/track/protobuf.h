/* Protobuf's wire format: fields of messages, written and read one by one. Pure; any thread. */
#ifndef NP_PROTOBUF_H
#define NP_PROTOBUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum np_pb_wire { NP_PB_VARINT = 0, NP_PB_64 = 1, NP_PB_BYTES = 2, NP_PB_32 = 5 };

/* A message that is being written; reused, so that the steady state allocates nothing. Zeroed by
 * the caller, who frees bytes (np_free). */
struct np_pb {
    uint8_t *bytes;
    size_t used, room;
};
void np_pb_le(struct np_pb *pb, uint64_t value, int bytes); /* little-endian, without a key */
void np_pb_varint(struct np_pb *pb, uint64_t value);        /* likewise */
void np_pb_key(struct np_pb *pb, int field, enum np_pb_wire wire);
void np_pb_number(struct np_pb *pb, int field, uint64_t value);
void np_pb_text(struct np_pb *pb, int field, const char *text);
void np_pb_message(struct np_pb *pb, int field, const struct np_pb *inner);
size_t np_pb_varint_bytes(uint64_t value);

struct np_pb_field {
    int number, wire;
    uint64_t bits;               /* a number; NP_PB_BYTES: their count */
    const uint8_t *inside, *end; /* NP_PB_BYTES */
};
/* Reads the field at *at and moves *at behind it. False: the message ends, or is damaged. */
bool np_pb_next(const uint8_t **at, const uint8_t *end, struct np_pb_field *ret_field);
/* The text of a field, truncated; "" if it is none. */
void np_pb_copy(const struct np_pb_field *field, char *text, size_t text_bytes);

#endif
