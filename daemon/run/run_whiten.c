/* Initial weights from the data: pictures of the training set for trainer/whiten.h. Main thread, at
 * the start of a new run. */
#include "daemon/run/run_parts.h"

#include <string.h>

#include "daemon/data/remake.h"
#include "trainer/whiten.h"

#define MAX_BYTES (16 << 20) /* of the rows that a loader makes at once */

static int take_row(void *context, const struct np_remade *row, struct np_err *err)
{
    np_whiten_add(context, row->pixels);
    return 0;
}

/* The rows are those with which training begins, augmented. */
static int add_rows(struct np_run *run, struct np_whiten *whiten, struct np_err *err)
{
    struct np_loader_config config;

    np_run_rows_config(run, run->stat, &config);
    const uint64_t row_bytes = (uint64_t)config.shape.height * (uint64_t)config.shape.width *
                               (uint64_t)config.shape.channels;
    int each = (int)(MAX_BYTES / row_bytes), code = 0;
    char changed[1024] = "";

    each = each < 1 ? 1 : each > 1000 ? 1000 : each;
    for (int done = 0; code == 0 && done < NP_WHITEN_PICTURES; done += each)
        code = np_remake_rows(&config, (uint64_t)done, each, take_row, whiten, changed, err);
    if (code < 0)
        np_err_context(err, "init: whitening needs %d training pictures", NP_WHITEN_PICTURES);
    return code;
}

int np_run_whiten(struct np_run *run, struct np_err *err)
{
    struct np_whiten *whiten =
        np_whiten_new(run->setup.graph, run->setup.sets.size.height, run->setup.sets.size.width);
    int code = 0;

    if (whiten) {
        np_run_say(run, "init: whitening reads %d training pictures", NP_WHITEN_PICTURES);
        code = add_rows(run, whiten, err);
    }
    if (whiten && code == 0)
        np_whiten_write(whiten, run->arrays[NP_ARRAY_PARAMS]);
    np_whiten_free(whiten);
    return code;
}
