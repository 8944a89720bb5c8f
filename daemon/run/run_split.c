/* val.txt of a run: the names of the samples that data.split keeps from training, one per line. Main
 * thread. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "daemon/run/run.h"

int np_run_write_split(struct np_run *run, struct np_err *err)
{
    const struct np_split *split = &run->setup.split;
    char *text = NULL, *path = np_format("%s/val.txt", run->dir), name[NP_MAX_NAME + 1];
    size_t bytes = 0;
    FILE *out = path && run->config->data.split > 0 ? open_memstream(&text, &bytes) : NULL;
    int code = 0;

    for (uint64_t i = 0; out && i < split->nr_eval; i++) {
        np_index_name(run->setup.train, split->order[i], name, sizeof(name));
        np_text_clean(name); /* a newline in it would be another sample's */
        fprintf(out, "%s\n", name);
    }
    if (out && fclose(out) != 0)
        code = np_err_set(err, -ENOMEM, "out of memory for the names of data.split");
    if (out && code == 0)
        code = np_io_replace(&run->io, path, text, bytes, err);
    free(text);
    np_free(path);
    return code;
}
