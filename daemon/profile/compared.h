/* Runs side by side, for `nnpipe compare`: JSON, and their curves over each other. Main thread. */
#ifndef NP_COMPARED_H
#define NP_COMPARED_H

#include "daemon/run/runs_found.h"
#include "loader/base/json.h"

/* Numbers that are not known are NAN. */
struct np_compared {
    int found;   /* index of the run in np_found_runs */
    char id[24]; /* its number in the service; "": none */
    char state[16];
    double images_per_second, epoch_seconds;
    double seconds; /* of training; of an unfinished run since its start */
};
struct np_compared_runs {
    struct np_found_runs found;
    struct np_compared *runs; /* sorted; np_free */
    int nr_runs;
    size_t room;
    struct np_node *keys; /* a list: the keys that differ. NULL: none yet */
};

const struct np_found_run *np_compared_run(const struct np_compared_runs *c, int i);
/* Fills speed and times of run i from its folder. ran_s: what the service knows, or NAN. */
void np_compared_measure(struct np_compared_runs *c, int i, double ran_s);
/* Finds the keys that differ, and sorts by the best accuracy, then by the loss. */
void np_compared_sort(struct np_compared_runs *c);
/* Writes the fields of run i into an open object. */
void np_compared_write(struct np_json *json, const struct np_compared_runs *c, int i);

/* Write the picture, or the page with table and curves, of the first NP_OVERLAY_MAX_RUNS runs; read
 * their metrics.jsonl. -errno: the file cannot be written. */
int np_compared_svg(
    const struct np_compared_runs *c, const char *title, const char *path, struct np_err *err);
int np_compared_html(
    const struct np_compared_runs *c, const char *title, const char *path, struct np_err *err);
/* The page with this JSON; a function for np_page_write(). */
void np_compare_html_to(FILE *out, const void *json);

#endif
