#include "loader/base/missing.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define MAX_NAMED 5

bool np_missing_add(struct np_missing *missing, int number, const struct np_err *why)
{
    int at = missing->nr++;

    for (; at > 0 && missing->numbers[at - 1] > number; at--)
        missing->numbers[at] = missing->numbers[at - 1];
    missing->numbers[at] = number;
    if (at == 0)
        missing->why = *why;
    return missing->nr < NP_MAX_MISSING;
}

int np_missing_err(
    const struct np_missing *missing, char *const *names, int nr_names, struct np_err *err)
{
    const int nr = missing->nr, nr_named = nr < MAX_NAMED ? nr : MAX_NAMED;
    const bool all_known = nr < NP_MAX_MISSING;
    char text[500] = "";
    size_t used = 0;

    if (nr <= 1)
        return nr ? np_err_set(err, -ENOENT, "%s", missing->why.text) : 0;
    for (int i = 0; i < nr_named && used < sizeof(text); i++)
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s",
            i == 0                                ? ""
            : i == nr_named - 1 && nr == nr_named ? " and "
                                                  : ", ",
            names[missing->numbers[i]]);
    return np_err_set(err, -ENOENT, "%s%d of %d files are missing: %s%s (%s)",
        all_known ? "" : "at least ", nr, nr_names, text, nr > nr_named ? " and others" : "",
        missing->why.text);
}
