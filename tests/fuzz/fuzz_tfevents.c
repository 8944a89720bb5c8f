/* Hostile bytes as an event file of TensorBoard, as the message of a record whose checksums are right,
 * and as a file of W&B. Records lie one behind another, inside the file; a tag is a text. */
#include <stdlib.h>
#include <string.h>

#include "daemon/track/tfevents.h"
#include "daemon/track/wandblog.h"
#include "loader/base/crc32c.h"

#define MAX_MESSAGE 4096

struct seen {
    uint64_t nr_bytes, end;
};

static bool check(void *context, const struct np_tfevent *event, uint64_t end)
{
    struct seen *seen = context;

    if (end < seen->end + 16 || end > seen->nr_bytes || !memchr(event->tag, 0, sizeof(event->tag)))
        abort();
    seen->end = end;
    return true;
}

static bool check_message(void *context, const uint8_t *message, const uint8_t *end)
{
    struct seen *seen = context;
    struct np_pb_field field;

    seen->end += (uint64_t)(end - message) + 7;
    while (np_pb_next(&message, end, &field))
        if (field.wire == NP_PB_BYTES && (field.inside > field.end || field.end > end))
            abort();
    return true;
}

static void store_crc(uint8_t *at, const uint8_t *bytes, size_t n)
{
    const uint32_t crc = np_crc32c(0, bytes, n), masked = (crc >> 15 | crc << 17) + 0xa282ead8u;

    for (int i = 0; i < 4; i++)
        at[i] = (uint8_t)(masked >> (8 * i));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    uint8_t record[MAX_MESSAGE + 16] = {(uint8_t)n, (uint8_t)(n >> 8)};
    struct seen seen = {.nr_bytes = n}, one = {.nr_bytes = n + 16};

    np_tfevents_read(data, n, check, &seen);
    seen.end = 7;
    const uint64_t end = np_wandblog_read(data, n, check_message, &seen);
    if (end > n || (end > 0 && end < seen.end))
        abort();
    if (n > MAX_MESSAGE)
        return 0;
    memcpy(record + 12, data, n);
    store_crc(record + 8, record, 8);
    store_crc(record + 12 + n, data, n);
    np_tfevents_read(record, n + 16, check, &one);
    if (one.end != n + 16)
        abort();
    return 0;
}
