/* Values that may be changed on purpose when a run is resumed: learning rate, weight decay,
 * schedule, and the run's length. A run's folder keeps the config it began with; its checkpoints
 * keep the list of changes, so a run resumed from one gets the values that were current then.
 * Pure, but for memory; any thread.
 *
 * A list of changes is a list of mappings, stored in a checkpoint's facts:
 *   step  number of training steps done before the new value was used
 *   key   path in the resolved config: "optimizer.sgd.lr", "schedule", "train.epochs"
 *   from, to  the values as YAML text
 *   reset     true: the schedule begins anew at this step */
#ifndef NP_RUN_CHANGE_H
#define NP_RUN_CHANGE_H

#include <stddef.h>
#include <stdint.h>

#include "daemon/cmd.h"
#include "daemon/config/config.h"

struct np_changes {
    struct np_node *list; /* owned; NULL: not opened */
    int nr_new;           /* the last nr_new entries are of this start and have no step yet */
};

/* Copies the list of a checkpoint's facts (NULL: there is none). */
void np_changes_open(struct np_changes *changes, const struct np_node *list);
void np_changes_close(struct np_changes *changes);

/* Applies the list to a resolved config. -EBADMSG: an entry cannot be read. */
int np_changes_apply(const struct np_changes *changes, struct np_node *config, struct np_err *err);

/* Compares the config of this start (`now`) with the current one. `began`: the config that the
 * run began with; `in_force`: the same after np_changes_apply(). A differing value becomes a new
 * change if it was given on purpose: by -o, or with `reset` in the config file. A value that
 * `now` has unchanged from `began` is replaced by the one in `in_force`. Other differences are
 * left for np_config_same(). Afterwards `now` and `in_force` hold the values of this start. */
void np_changes_merge(struct np_changes *changes, const struct np_node *began,
    struct np_node *in_force, struct np_node *now, const struct np_overrides *overrides,
    bool reset);

/* Sets the step of the new changes: the run resumes after that many steps. Changes of a later step,
 * whose checkpoint was damaged, move to this one. */
void np_changes_settle(struct np_changes *changes, uint64_t step);
/* The step at which the schedule last began; 0: with the run. */
uint64_t np_changes_schedule_start(const struct np_changes *changes);
/* Writes entry i: "from step 40 on: optimizer.sgd.lr 0.01, was 0.1"; false: there is no entry i. */
bool np_changes_text(const struct np_changes *changes, int i, char *text, size_t text_bytes);

/* Copies rate, decay, schedule and length from a resolved config into a parsed one. */
int np_changes_take(const struct np_node *resolved, struct np_config *config, struct np_err *err);

/* Do two resolved configs give the same weights? Ignores keys that may change from one start of
 * a run to the next (readers, I/O, evaluation, checkpoints ...). If false, why has a sentence:
 * the first key that differs, with both values. `extends`: the schedule allows now's
 * train.epochs (or steps) to be larger; train.ema.rise does not. */
bool np_config_same(const struct np_node *then, const struct np_node *now, bool extends, char *why,
    size_t why_bytes);

#endif
