/* `track:` of a config: the numbers of metrics.jsonl, also in the files of TensorBoard, MLflow or W&B.
 * A tracker that cannot write (a full disk) is left out with a warning; the run continues. Main
 * thread. */
#ifndef NP_TRACK_H
#define NP_TRACK_H

#include "daemon/track/tracker.h"

#define NP_TRACK_WORDS "tensorboard, mlflow, wandb"

/* Reads a name or a list of names into bits, by the trackers' places in their table. node NULL: 0.
 * -EINVAL: report has the mistake. */
int np_track_parse(const struct np_node *node, unsigned *ret_which, struct np_report *report);
struct np_node *np_track_node(unsigned which); /* the list; np_node_free */

struct np_track;
/* Opens the trackers of `which` for a run. warn: called for each that fails, now or later; both
 * pointers are borrowed until np_track_close(). NULL: which is 0. */
struct np_track *np_track_open(unsigned which, const struct np_tracked_run *run,
    void (*warn)(void *context, const char *text), void *context);
/* Takes a line of metrics.jsonl, or of result.json. The first line of a step behind another line than a
 * step's also makes all numbers before it readable for other processes. track or line NULL: nothing. */
void np_track_line(struct np_track *track, const char *line);
/* Makes all numbers so far readable; before a checkpoint, so that a resumed run finds them. */
void np_track_flush(struct np_track *track);
void np_track_close(struct np_track *track, enum np_track_end end);

#endif
