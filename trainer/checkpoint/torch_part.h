/* The part of what torch.save() wrote that holds the weights. Any thread. */
#ifndef NP_TORCH_PART_H
#define NP_TORCH_PART_H

#include "trainer/checkpoint/pickle.h"

struct np_torch_part {
    const struct np_pickle_value *value; /* a map of names to tensors, or a module */
    char *path;                          /* "model/state_dict"; NULL: the whole */
    char *others; /* other parts with tensors: "model_ema, net"; NULL: none */
};

/* Finds the part. name: the file's, for errors; key: the part that the user wants, names separated by
 * '/'; NULL: the one that training scripts call state_dict, model, net ..., else the one with most
 * tensors. -EBADMSG: there is none; -EINVAL: there is no such part, the error names those that are.
 * The caller frees path and others (np_free), also after an error. */
int np_torch_find_part(const char *name, const struct np_pickle_value *root, const char *key,
    struct np_torch_part *part, struct np_err *err);

#endif
