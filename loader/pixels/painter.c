/* See painter.h. Operations on pixels work in place, so a picture moves only where geometry is a
 * step: between two buffers, which grow to the largest picture, and at the last such step into
 * the row. */
#include "loader/pixels/painter.h"

#include <errno.h>
#include <string.h>

#include "loader/base/mem.h"
#include "loader/pixels/resize.h"

#define BEHIND 64 /* bytes behind a picture that the resizer may read */

struct buffer {
    uint8_t *bytes;
    size_t room;
};

struct np_painter {
    struct np_resizer *resizer;
    enum np_pixels_rule rule;
    struct buffer pictures[2], scratch;
};

struct np_painter *np_painter_new(enum np_pixels_rule rule, struct np_err *err)
{
    struct np_painter *painter = np_try_alloc(sizeof(*painter), err);

    if (!painter)
        return NULL;
    painter->rule = rule;
    painter->resizer = np_resizer_new(err);
    if (painter->resizer)
        return painter;
    np_painter_free(painter);
    return NULL;
}

void np_painter_free(struct np_painter *painter)
{
    if (!painter)
        return;
    np_resizer_free(painter->resizer);
    np_free(painter->pictures[0].bytes);
    np_free(painter->pictures[1].bytes);
    np_free(painter->scratch.bytes);
    np_free(painter);
}

static int hold(struct buffer *buffer, size_t bytes, struct np_err *err)
{
    return np_hold(&buffer->bytes, &buffer->room, bytes + BEHIND, err);
}

static int last_geometry(const struct np_drawn *drawn)
{
    int last = drawn->nr_steps - 1;

    while (last >= 0 && drawn->steps[last].op)
        last--;
    return last;
}

/* Puts what the geometry makes of pixels into picture: in `out`, or if that is NULL in a buffer. */
static int place(struct np_painter *painter, const struct np_pixels *pixels,
    const struct np_geometry *geometry, uint8_t *out, struct np_canvas *picture, struct np_err *err)
{
    struct buffer *buffer = &painter->pictures[pixels->data == painter->pictures[0].bytes];
    struct np_canvas next = {out, geometry->window_h, geometry->window_w, pixels->channels};

    if (!out && hold(buffer, np_canvas_bytes(&next), err))
        return -ENOMEM;
    if (!out)
        next.pixels = buffer->bytes;
    *picture = next;
    return np_resize(painter->resizer, pixels, geometry, next.pixels, err);
}

static int move(struct np_painter *painter, const struct np_step *step, uint8_t *out,
    struct np_canvas *picture, struct np_err *err)
{
    const struct np_pixels pixels = {.data = picture->pixels,
        .width = picture->width,
        .height = picture->height,
        .channels = picture->channels,
        .stride = (ptrdiff_t)picture->width * picture->channels};
    struct np_geometry geometry = step->geometry;

    np_geometry_order(&geometry, painter->rule);
    return place(painter, &pixels, &geometry, out, picture, err);
}

/* Where the line of floats begins behind the copy of the pixels. */
static size_t line_at(const struct np_canvas *picture)
{
    return (np_canvas_bytes(picture) + NP_ALIGN - 1) / NP_ALIGN * NP_ALIGN;
}

static int touch(struct np_painter *painter, const struct np_step *step, struct np_canvas *picture,
    struct np_err *err)
{
    const size_t line = (size_t)(picture->width + 2 * NP_MAX_RADIUS) * (size_t)picture->channels;
    struct np_scratch scratch;

    if (!step->op->wants_scratch) {
        step->op->apply(step->values, NULL, picture);
        return 0;
    }
    if (hold(&painter->scratch, line_at(picture) + line * sizeof(float), err))
        return -ENOMEM;
    scratch.before = memcpy(painter->scratch.bytes, picture->pixels, np_canvas_bytes(picture));
    scratch.line = (float *)(void *)(painter->scratch.bytes + line_at(picture));
    step->op->apply(step->values, &scratch, picture);
    return 0;
}

int np_painter_row(struct np_painter *painter, const struct np_pixels *pixels,
    const struct np_drawn *drawn, uint8_t *out, struct np_err *err)
{
    const int last = last_geometry(drawn);
    struct np_canvas picture;
    int code = place(painter, pixels, &drawn->geometry, last < 0 ? out : NULL, &picture, err);

    for (int i = 0; code == 0 && i < drawn->nr_steps; i++) {
        const struct np_step *step = &drawn->steps[i];

        code = step->op ? touch(painter, step, &picture, err)
                        : move(painter, step, i == last ? out : NULL, &picture, err);
    }
    return code;
}
