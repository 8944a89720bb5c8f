/* Readers beside their GPU: on its node's CPUs, if the process then has no fewer of them. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "daemon/run/near.h"
#include "loader/base/mem.h"
#include "tests/test.h"

static char root[] = "/tmp/nnpipe-near-XXXXXX";
static cpu_set_t allowed, cpus;

static void write_list(int node, const char *list)
{
    char path[200];
    static const char *const folders[] = {
        "sys", "sys/devices", "sys/devices/system", "sys/devices/system/node"};

    for (size_t i = 0; i < 4; i++) {
        snprintf(path, sizeof(path), "%s/%s", root, folders[i]);
        mkdir(path, 0755);
    }
    snprintf(path, sizeof(path), "%s/sys/devices/system/node/node%d", root, node);
    mkdir(path, 0755);
    strcat(path, "/cpulist");
    FILE *file = fopen(path, "w");
    fprintf(file, "%s\n", list);
    fclose(file);
}

/* Two nodes of eight CPUs, whose threads are numbered behind all cores. */
static void set_up(void)
{
    snprintf(root, sizeof(root), "/tmp/nnpipe-near-XXXXXX"); /* also where tests share a process */
    cr_assert_not_null(mkdtemp(root));
    write_list(0, "0-3,8-11");
    write_list(1, "4-7,12-15");
    CPU_ZERO(&allowed);
    for (size_t cpu = 0; cpu < 16; cpu++)
        CPU_SET(cpu, &allowed);
}

static void tear_down(void)
{
    char command[100];

    snprintf(command, sizeof(command), "rm -rf %s", root);
    cr_assert_eq(system(command), 0);
}

static bool find(int node, int nr_on_node, int nr_here)
{
    return np_near_cpus(root, &(struct np_near){node, nr_on_node, nr_here}, &allowed, &cpus);
}

Test(near, readers_run_on_the_node_of_their_gpu, .init = set_up, .fini = tear_down)
{
    cr_assert(find(1, 4, 8));
    cr_assert(CPU_COUNT(&cpus) == 8 && CPU_ISSET(4, &cpus) && CPU_ISSET(15, &cpus) &&
              !CPU_ISSET(3, &cpus) && !CPU_ISSET(8, &cpus));
    cr_assert(find(0, 1, 2) && CPU_ISSET(0, &cpus) && CPU_ISSET(11, &cpus));
}

Test(near, readers_stay_where_they_are_if_that_would_leave_them_fewer_cpus, .init = set_up,
    .fini = tear_down)
{
    cr_assert(!find(0, 8, 8), "all GPUs are on one node: the other node's CPUs would be idle");
    cr_assert(!find(0, 5, 8));
    cr_assert(!find(0, 1, 1), "one process has all CPUs");
    cr_assert(find(0, 3, 8));
}

Test(near, readers_stay_where_no_node_is_known_or_the_launcher_has_bound_them, .init = set_up,
    .fini = tear_down)
{
    cr_assert(!find(-1, 1, 2));
    cr_assert(!find(2, 1, 2));
    write_list(3, "what");
    cr_assert(!find(3, 1, 2));
    CPU_ZERO(&allowed);
    for (size_t cpu = 4; cpu < 8; cpu++)
        CPU_SET(cpu, &allowed);
    cr_assert(!find(1, 1, 2), "it has CPUs of this node only");
    cr_assert(!find(0, 1, 2), "it has none of this node");
}
