/* `nnpipe show FILE`: the tensors in a file of weights. Main thread. */
#ifndef NP_SHOW_WEIGHTS_H
#define NP_SHOW_WEIGHTS_H

#include <stdbool.h>

/* Prints name, type and shape of each tensor of a file that np_weights_open() takes, in the order of
 * their bytes; json: an event "tensor" for each. Returns the exit code, after a message. */
int np_show_weights(const char *path, bool json);

#endif
