/* Files of a set that are not as they were listed: counted once each, the first one named. */
#ifndef NP_CHANGED_H
#define NP_CHANGED_H

#include <stddef.h>
#include <stdint.h>

#include "loader/base/err.h"

struct np_changed;
/* For a set of so many samples; NULL: out of memory. */
struct np_changed *np_changed_new(uint64_t nr_samples, struct np_err *err);
void np_changed_free(struct np_changed *changed);
/* path is copied. Any thread. */
void np_changed_add(struct np_changed *changed, uint64_t sample, const char *path);
/* How many; first: path of the first one, if there is any. Any thread. */
uint64_t np_changed_read(struct np_changed *changed, char *first, size_t first_bytes);

#endif
