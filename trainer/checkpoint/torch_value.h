/* What the values in a pickle of torch.save() mean: mappings, modules, tensors. Python would call the
 * functions that the pickle names; here a table says what a call of them means, and every other
 * object is only known by its name. Any thread. */
#ifndef NP_TORCH_VALUE_H
#define NP_TORCH_VALUE_H

#include "trainer/checkpoint/pickle.h"

/* A dict, OrderedDict or defaultdict? */
bool np_torch_is_map(const struct np_pickle_value *value);
/* An object of torch.nn.Module, which torch.save(model) writes? Its class does not matter. */
bool np_torch_is_module(const struct np_pickle_value *value);
/* The mapping of a module: "_parameters", "_buffers" or "_modules". NULL: it has none. */
const struct np_pickle_value *np_torch_of_module(
    const struct np_pickle_value *module, const char *which);

/* The entries of a mapping, i below np_torch_nr_entries(). *ret_key NULL: the key is not text, and
 * *ret_value is not set. */
size_t np_torch_nr_entries(const struct np_pickle_value *map);
void np_torch_entry(const struct np_pickle_value *map, size_t i,
    const struct np_pickle_value **ret_key, const struct np_pickle_value **ret_value);

struct np_torch_tensor {
    const struct np_pickle_value *storage, *size, *stride; /* STORED, tuples of the same length */
    int64_t offset;                                        /* elements */
};
enum np_torch_meaning {
    NP_TORCH_TENSOR,
    NP_TORCH_IGNORED, /* numbers, text, lists ...: no state dict needs them */
    NP_TORCH_REFUSED, /* an object: it may stand for a tensor */
};
/* What a value of a state dict is. *ret_tensor: only of NP_TORCH_TENSOR; *ret_what: of
 * NP_TORCH_REFUSED, "a sparse tensor", or NULL: an object without a name here. */
enum np_torch_meaning np_torch_meaning(
    const struct np_pickle_value *value, struct np_torch_tensor *ret_tensor, const char **ret_what);

#endif
