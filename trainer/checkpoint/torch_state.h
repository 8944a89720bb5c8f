/* The state dict in a file of torch.save(): which part of the file it is, and its tensors. Any
 * thread. */
#ifndef NP_TORCH_STATE_H
#define NP_TORCH_STATE_H

#include "trainer/checkpoint/torch_file.h"

/* Fills file->tensors from what torch.save() wrote; takes nothing of torch, which may be freed
 * afterwards. key: the part that the user wants, names separated by '/' ("model_ema"); NULL: the
 * part that training scripts call state_dict, model, net ..., else the whole; file->part and
 * file->others tell which. Values of the state dict that are numbers, text or lists are skipped.
 * Compares the CRC-32 of each storage used. -EBADMSG: no state dict, another object in it (its name
 * is in the error), a tensor outside of its storage, damage; -EINVAL: there is no such part. */
int np_torch_tensors(
    const struct np_torch *torch, const char *key, struct np_st_file *file, struct np_err *err);

#endif
