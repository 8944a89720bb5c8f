/* Reads sample_losses.bin of a run (run_log.h has its format): the losses of the rows of the last
 * epoch. The run may be training meanwhile. Main thread. */
#ifndef NP_LOSSES_FILE_H
#define NP_LOSSES_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "loader/base/err.h"

struct np_row_loss {
    uint64_t number; /* step * batch + row */
    float loss;
};
struct np_losses {
    struct np_row_loss *rows; /* (nr_rows), the highest loss first; np_free */
    uint64_t nr_rows;
    uint64_t epoch; /* from 0: the last complete epoch, or epoch 0 up to the last step */
    bool complete;
};
/* Reads path. batch, nr_train, nr_steps: of the run. -ENOENT: there is no file; -ENODATA: it has no
 * step yet; -EBADMSG: it is damaged or of another run. */
int np_losses_read(const char *path, uint32_t batch, uint64_t nr_train, uint64_t nr_steps,
    struct np_losses *ret_losses, struct np_err *err);

#endif
