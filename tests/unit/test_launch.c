/* What started a process, by its environment: rank, number and the place to meet. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "trainer/comm.h"

#include "tests/test.h"
#include "tests/unit/made_launch.h"

/* set: "NAME=VALUE NAME=VALUE" */
static int find(const char *set, struct np_launch *ret_launch, struct np_err *err)
{
    char words[600], *rest = NULL;

    made_launch_clear();
    snprintf(words, sizeof(words), "%s", set);
    for (char *word = strtok_r(words, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        char *equals = strchr(word, '=');

        *equals = '\0';
        setenv(word, equals + 1, 1);
    }
    return np_launch_find(ret_launch, err);
}

Test(launch, each_launcher_is_understood)
{
    static const struct {
        const char *set, *by, *address;
        int rank, world, local_rank, local_world;
    } cases[] = {
        {"HOME=/", "", "", 0, 1, 0, 1},
        {"NNPIPE_RANK=1 NNPIPE_WORLD=2 NNPIPE_COMM=unix:a", "nnpipe", "unix:a", 1, 2, 1, 2},
        {"RANK=5 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=4 MASTER_ADDR=box MASTER_PORT=29500",
            "torchrun", "tcp:box:29501", 5, 8, 1, 4},
        {"RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 MASTER_ADDR=::1 MASTER_PORT=1 "
         "NNPIPE_COMM_PORT=777",
            "torchrun", "tcp:::1:777", 0, 2, 0, 2},
        {"OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=8 OMPI_COMM_WORLD_LOCAL_RANK=1 "
         "OMPI_COMM_WORLD_LOCAL_SIZE=2 NNPIPE_COMM=tcp:box:5000",
            "mpirun", "tcp:box:5000", 3, 8, 1, 2},
        {"SLURM_PROCID=2 SLURM_STEP_NUM_TASKS=4 SLURM_LOCALID=0 SLURM_JOB_ID=100 SLURM_STEP_ID=1 "
         "SLURM_STEP_NUM_NODES=2 SLURM_STEP_NODELIST=gpu[03-05,9],gate",
            "srun", "tcp:gpu03:21601", 2, 4, 0, 1},
        {"SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=2 SLURM_JOB_ID=1 SLURM_STEP_ID=0 "
         "SLURM_STEP_NUM_NODES=2 SLURM_STEP_NODELIST=a-1,b",
            "srun", "tcp:a-1:20016", 0, 2, 0, 1},
        /* tasks of each node: the processes of a machine share its cores */
        {"SLURM_PROCID=5 SLURM_STEP_NUM_TASKS=8 SLURM_LOCALID=1 SLURM_JOB_ID=1 SLURM_STEP_ID=0 "
         "SLURM_STEP_NUM_NODES=4 SLURM_STEP_NODELIST=a,b SLURM_STEP_TASKS_PER_NODE=2(x3),1(x2) "
         "SLURM_NODEID=2",
            "srun", "tcp:a:20016", 5, 8, 1, 2},
        {"SLURM_PROCID=7 SLURM_STEP_NUM_TASKS=8 SLURM_LOCALID=0 SLURM_JOB_ID=1 SLURM_STEP_ID=0 "
         "SLURM_STEP_NUM_NODES=2 SLURM_STEP_NODELIST=a,b SLURM_STEP_TASKS_PER_NODE=5,3 "
         "SLURM_NODEID=1",
            "srun", "tcp:a:20016", 7, 8, 0, 3},
        {"SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2 SLURM_LOCALID=0 SLURM_JOB_ID=1 SLURM_STEP_ID=0 "
         "SLURM_STEP_NUM_NODES=2 SLURM_STEP_NODELIST=a,b SLURM_STEP_TASKS_PER_NODE=1(x0),9(xx) "
         "SLURM_NODEID=1",
            "srun", "tcp:a:20016", 1, 2, 0, 1},
        /* a batch script itself, which srun has not started */
        {"SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_JOB_ID=100", "", "", 0, 1, 0, 1},
        {"RANK=0 HOME=/", "", "", 0, 1, 0, 1},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct np_launch launch;
        struct np_err err = {0};

        cr_assert_eq(find(cases[i].set, &launch, &err), 0, "%s: %s", cases[i].set, err.text);
        cr_assert_str_eq(launch.by, cases[i].by);
        cr_assert_str_eq(launch.address, cases[i].address);
        cr_assert(launch.rank == cases[i].rank && launch.world == cases[i].world &&
                      launch.local_rank == cases[i].local_rank &&
                      launch.local_world == cases[i].local_world,
            "%s", cases[i].set);
    }
}

Test(launch, slurms_tasks_of_each_node_are_counted)
{
    static const struct {
        const char *list;
        int node, local_world;
    } cases[] = {{"8(x2)", 0, 8}, {"8(x2)", 1, 8}, {"2(x3),1", 2, 2}, {"2(x3),1", 3, 1},
        {"4,12", 1, 12},
        /* no list, and hostile ones: not known */
        {"", 0, 1}, {"8", 1, 1}, {"8(x", 0, 1}, {"8(x0),4", 1, 1},
        {"8(x-9223372036854775808)", 0, 1}, {"99", 0, 1}, {"-3", 0, 1}, {"8(x1", 0, 1},
        {"8;8", 1, 1}};

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct np_launch launch;
        struct np_err err = {0};
        char set[400];

        snprintf(set, sizeof(set),
            "SLURM_PROCID=9 SLURM_STEP_NUM_TASKS=16 SLURM_LOCALID=1 SLURM_JOB_ID=1 SLURM_STEP_ID=0 "
            "SLURM_STEP_NUM_NODES=2 SLURM_STEP_NODELIST=a,b SLURM_NODEID=%d "
            "SLURM_STEP_TASKS_PER_NODE=%s",
            cases[i].node, cases[i].list);
        cr_assert_eq(find(set, &launch, &err), 0, "%s", err.text);
        cr_assert_eq(launch.local_world, cases[i].local_world, "%s, node %d: %d", cases[i].list,
            cases[i].node, launch.local_world);
    }
}

Test(launch, a_process_may_be_given_a_gpu)
{
    struct np_launch launch;

    cr_assert_eq(
        find("NNPIPE_RANK=1 NNPIPE_WORLD=2 NNPIPE_COMM=unix:a NNPIPE_GPU=5", &launch, NULL), 0);
    cr_assert_eq(launch.gpu, 5);
    cr_assert_eq(
        find("NNPIPE_RANK=1 NNPIPE_WORLD=2 NNPIPE_COMM=unix:a NNPIPE_GPU=x", &launch, NULL), 0);
    cr_assert_eq(launch.gpu, -1);
    cr_assert_eq(find("HOME=/", &launch, NULL), 0);
    cr_assert_eq(launch.gpu, -1);
}

Test(launch, processes_of_one_machine_meet_at_a_name_of_their_job)
{
    struct np_launch launch;
    struct np_err err = {0};

    cr_assert_eq(find("OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=0 "
                      "OMPI_COMM_WORLD_LOCAL_SIZE=2 PMIX_NAMESPACE=4711",
                     &launch, &err),
        0);
    cr_assert(
        strncmp(launch.address, "unix:nnpipe-", 12) == 0 && strstr(launch.address, "-mpi-4711"));
    cr_assert_eq(find("SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2 SLURM_JOB_ID=9 SLURM_STEP_ID=3 "
                      "SLURM_STEP_NUM_NODES=1 SLURM_STEP_NODELIST=a",
                     &launch, &err),
        0);
    cr_assert(strstr(launch.address, "-slurm-9.3"));
    cr_assert_eq(launch.local_world, 2);
}

Test(launch, what_contradicts_itself_is_named)
{
    static const struct {
        const char *set, *says;
    } cases[] = {
        {"RANK=4 WORLD_SIZE=4 MASTER_ADDR=a MASTER_PORT=1", "RANK=4: expected 0 to 3"},
        {"RANK=x WORLD_SIZE=4 MASTER_ADDR=a MASTER_PORT=1", "RANK=x: expected 0 to 3"},
        {"RANK=0 WORLD_SIZE=0 MASTER_ADDR=a", "WORLD_SIZE=0: expected the number of processes"},
        {"RANK=0 WORLD_SIZE=99999999999999999999", "expected the number of processes"},
        {"RANK=0 WORLD_SIZE=2 MASTER_PORT=9", "torchrun started 2 processes, but where rank 0"},
        {"RANK=0 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=65535", "NNPIPE_COMM=tcp:HOST:PORT"},
        {"OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_SIZE=2",
            "mpirun started 4 processes, but"},
        {"SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=4 SLURM_STEP_NUM_NODES=2 SLURM_JOB_ID=x "
         "SLURM_STEP_ID=0",
            "srun started 4 processes, but"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct np_launch launch;
        struct np_err err = {0};

        cr_assert_eq(find(cases[i].set, &launch, &err), -EINVAL, "%s", cases[i].set);
        cr_assert(strstr(err.text, cases[i].says), "%s", err.text);
    }
}
