#include "daemon/run/eval_facts.h"

#include <stdio.h>

void np_eval_sample_name(
    const struct np_eval_facts *facts, uint64_t sample, char *name, size_t name_bytes)
{
    if (np_index_name(facts->evaluation->index, sample, name, (int)name_bytes) < 0)
        snprintf(name, name_bytes, "sample %llu", (unsigned long long)sample);
}
