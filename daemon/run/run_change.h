/* What may be changed on purpose when a run is resumed: learning rate, weight decay, schedule, and
 * the run's length. A run's folder keeps the config it began with; its checkpoints keep the list of
 * changes, so whoever resumes from one goes on with the values that were in force. Pure, but for
 * memory; any thread.
 *
 * A list of changes is a list of mappings, as it stands in a checkpoint's facts:
 *   step  the training steps that were done when the new value came into force
 *   key   path in the normal form: "optimizer.sgd.lr", "schedule", "train.epochs"
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
    int nr_new;           /* the last so many were made now and have no step yet */
};

/* Takes the list of a checkpoint's facts (NULL: there are none). */
void np_changes_open(struct np_changes *changes, const struct np_node *list);
void np_changes_close(struct np_changes *changes);

/* The values in force, into a config in normal form. -EBADMSG: an entry cannot be read. */
int np_changes_apply(const struct np_changes *changes, struct np_node *config, struct np_err *err);

/* Holds the config of this start (`now`) against the one in force. `began`: the run's own config,
 * `in_force`: the same with np_changes_apply(). A value that differs becomes a new change where it
 * was given on purpose: by -o, or with `reset` in the config file. A value that stands in `now` as it
 * did when the run began is replaced by the one in force. Whatever else differs is left for
 * np_config_same(). Both trees then hold the values of this start. */
void np_changes_merge(struct np_changes *changes, const struct np_node *began,
    struct np_node *in_force, struct np_node *now, const struct np_overrides *overrides,
    bool reset);

/* The run goes on after so many steps, and there the new changes come into force; so do those made at a
 * later step, whose checkpoint was damaged. */
void np_changes_settle(struct np_changes *changes, uint64_t step);
/* The step at which the schedule began; 0: with the run. */
uint64_t np_changes_schedule_start(const struct np_changes *changes);
/* "from step 40 on: optimizer.sgd.lr 0.01, was 0.1"; false: there is no entry i. */
bool np_changes_text(const struct np_changes *changes, int i, char *text, size_t text_bytes);

/* Rate, decay, schedule and length of a config in normal form, into a config that was parsed. */
int np_changes_take(const struct np_node *normal, struct np_config *config, struct np_err *err);

/* Do two configs in normal form give the same weights? What may change from one start of a run to the next
 * (readers, I/O, evaluation, checkpoints ...) is passed over.
 *
 * True, or false with a sentence in why: the first key that differs, with both values. `extends`: the
 * schedule allows now's train.epochs (or steps) to be larger. */
bool np_config_same(const struct np_node *then, const struct np_node *now, bool extends, char *why,
    size_t why_bytes);

#endif
