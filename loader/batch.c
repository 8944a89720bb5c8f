#include "loader/batch.h"

#include "loader/growth.h"

struct np_batch_shape np_batch_shape_of(
    const struct np_batch_shape *shape, enum np_batch_kind kind, uint64_t step)
{
    struct np_batch_shape of = *shape;

    if (kind == NP_BATCH_TRAIN && shape->growth) {
        const struct np_grown *grown = np_growth_at(shape->growth, np_batch_first_row(shape, step));

        of.height = grown->height;
        of.width = grown->width;
    } else if (kind == NP_BATCH_EVAL && shape->eval_width > 0) {
        of.height = shape->eval_height;
        of.width = shape->eval_width;
    }
    of.eval_height = of.eval_width = 0;
    of.growth = NULL;
    return of;
}

size_t np_batch_row_bytes_of(
    const struct np_batch_shape *shape, enum np_batch_kind kind, uint64_t step)
{
    const struct np_batch_shape of = np_batch_shape_of(shape, kind, step);

    return np_batch_row_bytes(&of);
}

size_t np_batch_row_room(const struct np_batch_shape *shape)
{
    const size_t train = np_batch_row_bytes(shape); /* rows never become smaller */
    const size_t eval = np_batch_row_bytes_of(shape, NP_BATCH_EVAL, 0);

    return train > eval ? train : eval;
}
