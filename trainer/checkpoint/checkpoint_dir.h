/* Names in a folder of checkpoints: step-N; .step-N.tmp, one being written or removed;
 * .step-N.old, one that made room for another of the same step; best, a link to a step-N. */
#ifndef NP_CHECKPOINT_DIR_H
#define NP_CHECKPOINT_DIR_H

#define NP_MANIFEST "manifest.json"

/* A folder and the files in it; best effort: what cannot be removed stays. */
void np_remove_folder(const char *path);

#endif
