#include "daemon/track/wandblog.h"

#include <string.h>
#include <zlib.h>

#include "loader/base/mem.h"

#define BLOCK 32768
#define HEAD  7 /* of a fragment: u32 checksum, u16 length, u8 type */

enum { FULL = 1, FIRST, MIDDLE, LAST };

static const uint8_t header[NP_WANDBLOG_HEAD] = {':', 'W', '&', 'B', 0xe1, 0xbe, 0};

static uint32_t checksum(uint8_t type, const uint8_t *bytes, size_t n)
{
    return (uint32_t)crc32(crc32(0, &type, 1), bytes, (uInt)n);
}

void np_wandblog_head(struct np_pb *out)
{
    for (size_t i = 0; i < sizeof(header); i++)
        np_pb_le(out, header[i], 1);
}

static void put_fragment(struct np_pb *out, int type, const uint8_t *bytes, size_t n)
{
    np_pb_le(out, checksum((uint8_t)type, bytes, n), 4);
    np_pb_le(out, n, 2);
    np_pb_le(out, (unsigned)type, 1);
    for (size_t i = 0; i < n; i++)
        np_pb_le(out, bytes[i], 1);
}

void np_wandblog_put(struct np_pb *out, uint64_t offset, const struct np_pb *message)
{
    const size_t begin = out->used;
    size_t done = 0;
    bool is_first = true;

    do {
        size_t room = BLOCK - (offset + out->used - begin) % BLOCK;

        if (room < HEAD) { /* too little for a head: zeros up to the next block */
            np_pb_le(out, 0, (int)room);
            room = BLOCK;
        }
        const size_t left = message->used - done, n = left < room - HEAD ? left : room - HEAD;
        const int type = is_first ? (n == left ? FULL : FIRST) : n == left ? LAST : MIDDLE;

        put_fragment(out, type, message->bytes + done, n);
        done += n;
        is_first = false; /* a first one may be empty */
    } while (done < message->used);
}

/* The fragment at *at; moves *at behind it. 0: there is no whole one. */
static int get_fragment(const uint8_t *bytes, uint64_t nr_bytes, uint64_t *at,
    const uint8_t **ret_inside, size_t *ret_n)
{
    const uint64_t room = BLOCK - *at % BLOCK;

    if (room < HEAD)
        *at += room;
    if (*at > nr_bytes || nr_bytes - *at < HEAD)
        return 0;
    const uint8_t *head = bytes + *at;
    const size_t n = (size_t)(head[4] | head[5] << 8);
    const uint32_t crc =
        head[0] | (uint32_t)head[1] << 8 | (uint32_t)head[2] << 16 | (uint32_t)head[3] << 24;
    if (nr_bytes - *at - HEAD < n || head[6] < FULL || head[6] > LAST ||
        checksum(head[6], head + HEAD, n) != crc)
        return 0;
    *ret_inside = head + HEAD;
    *ret_n = n;
    *at += HEAD + n;
    return head[6];
}

uint64_t np_wandblog_read(const uint8_t *bytes, uint64_t nr_bytes,
    bool (*each)(void *context, const uint8_t *message, const uint8_t *message_end), void *context)
{
    uint64_t at = NP_WANDBLOG_HEAD, end = at;
    struct np_pb message = {0};
    const uint8_t *inside;
    bool is_open = false;
    size_t n;

    if (nr_bytes < sizeof(header) || memcmp(bytes, header, sizeof(header)) != 0)
        return 0;
    for (int type; (type = get_fragment(bytes, nr_bytes, &at, &inside, &n));) {
        if ((type == FULL || type == FIRST) == is_open)
            break; /* not in order */
        if (!is_open)
            message.used = 0;
        for (size_t i = 0; i < n; i++)
            np_pb_le(&message, inside[i], 1);
        is_open = type == FIRST || type == MIDDLE;
        const uint8_t *begin = message.used ? message.bytes : inside;
        if (!is_open && !each(context, begin, begin + message.used))
            break;
        if (!is_open)
            end = at;
    }
    np_free(message.bytes);
    return end;
}
