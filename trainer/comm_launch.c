/* What started this process: mpirun, srun, torchrun or `nnpipe train --processes`. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "loader/base/text.h"
#include "trainer/comm.h"

/* A launcher's variables. */
struct launcher {
    const char *by, *rank, *world, *local_rank, *local_world;
    /* Writes the address of rank 0; false: it is not known. */
    bool (*address)(const struct np_launch *launch, char *address, size_t room);
};

static const char *text_of(const char *name)
{
    const char *text = getenv(name);

    return text ? text : "";
}

static bool of_unix(char *address, size_t room, const char *by, const char *job)
{
    snprintf(address, room, "unix:nnpipe-%u-%s-%s", (unsigned)getuid(), by, job);
    return *job != '\0';
}

/* NNPIPE_COMM is all there is. */
static bool no_address(const struct np_launch *launch, char *address, size_t room)
{
    return false;
}

/* The agent of torchrun listens at MASTER_PORT itself. */
static bool torch_address(const struct np_launch *launch, char *address, size_t room)
{
    const char *host = text_of("MASTER_ADDR"), *port = text_of("NNPIPE_COMM_PORT");
    int64_t number = 0;

    if (*port ? !np_text_int(port, 1, 65535, &number)
              : !np_text_int(text_of("MASTER_PORT"), 1, 65534, &number))
        return false;
    snprintf(address, room, "tcp:%s:%d", host, (int)number + !*port);
    return *host != '\0';
}

static bool mpi_address(const struct np_launch *launch, char *address, size_t room)
{
    const char *job = text_of("PMIX_NAMESPACE");

    if (launch->local_world < launch->world)
        return false;
    return of_unix(address, room, "mpi", *job ? job : text_of("OMPI_MCA_ess_base_jobid"));
}

/* The first host of a list such as "box[03-05,9],gate". */
static void first_host(const char *list, char *host, size_t room)
{
    const size_t stem = strcspn(list, ",["), number = strcspn(list + stem, ",-]");

    snprintf(host, room, "%.*s%.*s", (int)stem, list, list[stem] == '[' ? (int)number - 1 : 0,
        list[stem] == '[' ? list + stem + 1 : "");
}

/* On several machines the port follows from the job, so that jobs do not meet each other. */
static bool slurm_address(const struct np_launch *launch, char *address, size_t room)
{
    const char *job = text_of("SLURM_JOB_ID"), *step = text_of("SLURM_STEP_ID");
    char host[200], name[100];
    int64_t number = 0, step_number = 0;

    snprintf(name, sizeof(name), "%s.%s", job, step);
    if (launch->local_world == launch->world)
        return of_unix(address, room, "slurm", name);
    first_host(text_of("SLURM_STEP_NODELIST"), host, sizeof(host));
    if (!*host || !np_text_int(job, 0, INT64_MAX, &number) ||
        !np_text_int(step, 0, INT64_MAX, &step_number))
        return false;
    snprintf(address, room, "tcp:%s:%d", host, 20000 + (int)((number * 16 + step_number) % 12000));
    return true;
}

static const struct launcher launchers[] = {
    {"nnpipe", "NNPIPE_RANK", "NNPIPE_WORLD", "NNPIPE_RANK", "NNPIPE_WORLD", no_address},
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", torch_address},
    {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE", mpi_address},
    /* A batch script that is not started by srun has a SLURM_PROCID, but no number of tasks of its step. */
    {"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", NULL, slurm_address},
};

/* Tasks of this node, by Slurm's list of those of each node: "2(x3),1". 1: not known. */
static int slurm_local_world(int world)
{
    const char *list = text_of("SLURM_STEP_TASKS_PER_NODE");
    int64_t node = 0;
    int tasks, times, bytes;

    if (strcmp(text_of("SLURM_STEP_NUM_NODES"), "1") == 0)
        return world;
    if (!np_text_int(text_of("SLURM_NODEID"), 0, INT32_MAX, &node))
        return 1;
    while (sscanf(list, "%d%n", &tasks, &bytes) == 1 && tasks > 0 && tasks <= world) {
        list += bytes;
        times = 1;
        if (sscanf(list, "(x%d)%n", &times, &bytes) == 1)
            list += bytes;
        if (times < 1 || node < times)
            return times < 1 ? 1 : tasks;
        node -= times;
        list += *list == ',';
    }
    return 1;
}

static int take(const struct launcher *launcher, struct np_launch *ret_launch, struct np_err *err)
{
    int64_t rank, world, local_rank = 0, local_world = 1;
    const char *own = text_of("NNPIPE_COMM");

    if (!np_text_int(text_of(launcher->world), 1, NP_MAX_WORLD, &world))
        return np_err_set(err, -EINVAL, "%s=%.40s: expected the number of processes, 1 to %d",
            launcher->world, text_of(launcher->world), NP_MAX_WORLD);
    if (!np_text_int(text_of(launcher->rank), 0, world - 1, &rank))
        return np_err_set(err, -EINVAL, "%s=%.40s: expected 0 to %d, since %s is %d",
            launcher->rank, text_of(launcher->rank), (int)world - 1, launcher->world, (int)world);
    np_text_int(text_of(launcher->local_rank), 0, world - 1, &local_rank);
    if (!launcher->local_world)
        local_world = slurm_local_world((int)world);
    else
        np_text_int(text_of(launcher->local_world), 1, world, &local_world);
    struct np_launch launch = {(int)rank, (int)world, (int)local_rank, (int)local_world, "", ""};
    snprintf(launch.by, sizeof(launch.by), "%s", launcher->by);
    if (*own)
        snprintf(launch.address, sizeof(launch.address), "%s", own);
    else if (world > 1 && !launcher->address(&launch, launch.address, sizeof(launch.address)))
        return np_err_set(err, -EINVAL,
            "%s started %d processes, but where rank 0 can be reached is not known: set "
            "NNPIPE_COMM=tcp:HOST:PORT in all of them, with the host of rank 0 and a free port",
            launcher->by, (int)world);
    *ret_launch = launch;
    return 0;
}

int np_launch_find(struct np_launch *ret_launch, struct np_err *err)
{
    for (size_t i = 0; i < sizeof(launchers) / sizeof(*launchers); i++)
        if (*text_of(launchers[i].rank) && *text_of(launchers[i].world))
            return take(&launchers[i], ret_launch, err);
    *ret_launch = (struct np_launch){0, 1, 0, 1, "", ""};
    return 0;
}
