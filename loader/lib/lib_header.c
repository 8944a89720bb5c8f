/* See lib_header.h. Numbers in parentheses, (B.1.1.4), are sections of ITU-T T.81. */
#include "loader/lib/lib_header.h"

#include <string.h>

#include "loader/base/io.h"
#include "loader/pixels/codec.h"

#define WINDOW       4096 /* bytes of a read */
#define MAX_SEGMENTS 256

/* The bytes of the picture that were read last. */
struct window {
    int fd;
    uint64_t start, picture_bytes; /* of the picture in the file */
    uint64_t offset;               /* in the picture */
    size_t nr_bytes;
    uint8_t bytes[WINDOW];
};

/* Bytes offset to offset + n - 1 of the picture; NULL: it ends before, or cannot be read. */
static const uint8_t *look(struct window *window, uint64_t offset, size_t n)
{
    int64_t got;

    if (n > window->picture_bytes || offset > window->picture_bytes - n)
        return NULL;
    if (offset < window->offset || offset + n > window->offset + window->nr_bytes) {
        got = np_read_at(window->fd, window->start + offset, window->bytes, WINDOW);
        window->offset = offset;
        window->nr_bytes = got < 0 ? 0 : (size_t)got;
    }
    return n <= window->nr_bytes - (offset - window->offset)
               ? window->bytes + (offset - window->offset)
               : NULL;
}

static uint32_t two_bytes(const uint8_t *at)
{
    return (uint32_t)at[0] << 8 | at[1];
}

/* True for a start of frame (B.1.1.3): 0xc0 to 0xcf without DHT, JPG and DAC. */
static bool is_frame(int marker)
{
    return (marker & 0xf0) == 0xc0 && marker != 0xc4 && marker != 0xc8 && marker != 0xcc;
}

/* Segments that may stand before it: tables (DHT, DAC, DQT, DRI), APPn, COM. */
static bool may_precede(int marker)
{
    return marker == 0xc4 || marker == 0xcc || marker == 0xdb || marker == 0xdd ||
           (marker & 0xf0) == 0xe0 || marker == 0xfe;
}

/* Goes from segment to segment (B.1.1.4) until the frame's (B.2.2). */
static bool jpeg_size(struct window *window, uint32_t *width, uint32_t *height)
{
    uint64_t offset = 2;

    for (int i = 0; i < MAX_SEGMENTS; i++) {
        const uint8_t *at = look(window, offset, 4);

        if (!at || at[0] != 0xff || two_bytes(at + 2) < 2)
            return false;
        if (is_frame(at[1])) {
            if (!(at = look(window, offset, 9)))
                return false;
            *height = two_bytes(at + 5);
            *width = two_bytes(at + 7);
            return true;
        }
        if (!may_precede(at[1]))
            return false;
        offset += 2 + two_bytes(at + 2);
    }
    return false;
}

/* The first chunk is IHDR, of 13 bytes (PNG, 11.2.2). */
static bool png_size(const uint8_t *at, uint32_t *width, uint32_t *height)
{
    if (memcmp(at, "\x89PNG\r\n\x1a\n\0\0\0\rIHDR", 16) != 0)
        return false;
    *width = two_bytes(at + 16) << 16 | two_bytes(at + 18);
    *height = two_bytes(at + 20) << 16 | two_bytes(at + 22);
    return true;
}

bool np_header_size(
    int fd, uint64_t start, uint64_t nr_bytes, int32_t *ret_width, int32_t *ret_height)
{
    struct window window = {.fd = fd, .start = start, .picture_bytes = nr_bytes};
    const uint8_t *at = look(&window, 0, 24);
    uint32_t width = 0, height = 0;
    bool found = at && at[0] == 0xff && at[1] == 0xd8 && at[2] == 0xff;

    found = found ? jpeg_size(&window, &width, &height) : at && png_size(at, &width, &height);
    if (!found || width < 1 || width > NP_MAX_SIDE || height < 1 || height > NP_MAX_SIDE ||
        (uint64_t)width * height > NP_MAX_PIXELS)
        return false;
    *ret_width = (int32_t)width;
    *ret_height = (int32_t)height;
    return true;
}
