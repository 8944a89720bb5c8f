/* For a second link of the program, in which the memory of one process is damaged: at update number
 * $NNPIPE_FLIP_AT (1: the first) of the rank $NNPIPE_FLIP_RANK the lowest bit of a weight is flipped. Linked
 * with -Wl,--wrap. */
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/optim.h"

void __real_np_optim_update(const struct np_hyper *hyper, const struct np_update *update);
void __wrap_np_optim_update(const struct np_hyper *hyper, const struct np_update *update);

void __wrap_np_optim_update(const struct np_hyper *hyper, const struct np_update *update)
{
    static atomic_int done;
    const char *rank = getenv("NNPIPE_FLIP_RANK"), *own = getenv("NNPIPE_RANK"),
               *at = getenv("NNPIPE_FLIP_AT");
    uint32_t bits;

    __real_np_optim_update(hyper, update);
    if (!rank || !own || !at || strcmp(rank, own) != 0 ||
        hyper->update + 1 != strtoull(at, NULL, 10) || atomic_exchange(&done, 1))
        return;
    memcpy(&bits, update->params, sizeof(bits));
    bits ^= 1;
    memcpy(update->params, &bits, sizeof(bits));
}
