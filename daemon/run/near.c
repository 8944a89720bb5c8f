#include "daemon/run/near.h"

#include <stdio.h>
#include <string.h>

#include "loader/base/text.h"

bool np_near_cpus(
    const char *root, const struct np_near *near, const cpu_set_t *allowed, cpu_set_t *ret_cpus)
{
    char path[4096], list[4096];
    cpu_set_t cpus, one;

    if (near->node < 0 || near->nr_on_node < 1)
        return false;
    snprintf(path, sizeof(path), "%s/sys/devices/system/node/node%d/cpulist", root, near->node);
    FILE *file = fopen(path, "re");
    const bool is_read = file && fgets(list, sizeof(list), file);
    if (file)
        fclose(file);
    if (!is_read)
        return false;
    list[strcspn(list, "\n")] = '\0';
    CPU_ZERO(&cpus);
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        if (CPU_ISSET(cpu, allowed) && np_text_cpus(list, &one) == 1)
            CPU_SET(cpu, &cpus);
    }
    const int of_node = CPU_COUNT(&cpus), all = CPU_COUNT(allowed);
    if (of_node == 0 || of_node == all || of_node * near->nr_here < all * near->nr_on_node)
        return false;
    *ret_cpus = cpus;
    return true;
}
