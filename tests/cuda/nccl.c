/* nccl CASE: two processes with an emulated GPU each use the emulated NCCL, rightly or wrongly; nccl.sh
 * knows what each case must end with. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "trainer/cuda/nccl_api.h"

#define N 10000

np_nccl_result ncclGetUniqueId(np_nccl_id *id);
np_nccl_result ncclCommInitRank(np_nccl_comm *ret_comm, int world, np_nccl_id id, int rank);
np_nccl_result ncclCommDestroy(np_nccl_comm comm);
np_nccl_result ncclGroupStart(void);
np_nccl_result ncclGroupEnd(void);
np_nccl_result ncclSend(const void *from, size_t n, np_nccl_type type, int peer, np_nccl_comm comm,
    cudaStream_t stream);
np_nccl_result ncclRecv(
    void *to, size_t n, np_nccl_type type, int peer, np_nccl_comm comm, cudaStream_t stream);
np_nccl_result ncclAllReduce(const void *from, void *to, size_t n, np_nccl_type type,
    np_nccl_operation operation, np_nccl_comm comm, cudaStream_t stream);

static const char *wanted;
static float host[N];
static float *own, *other;
static np_nccl_comm comm;
static cudaStream_t stream;
static int rank;

static int is(const char *name)
{
    return strcmp(wanted, name) == 0;
}

static void swap(size_t n, np_nccl_type type)
{
    const int grouped = !is("ungrouped");

    if (grouped)
        ncclGroupStart();
    ncclSend(is("host") ? host : own, n, type, is("itself") ? rank : 1 - rank, comm, stream);
    ncclRecv(other, n, type, 1 - rank, comm, stream);
    if (grouped)
        ncclGroupEnd();
}

static void capture(void)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;

    cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
    swap(N, NP_NCCL_F32);
    cudaStreamEndCapture(stream, &graph);
    cudaGraphInstantiate(&exec, graph, 0);
    cudaGraphDestroy(graph);
    for (int i = 0; i < 3; i++)
        cudaGraphLaunch(exec, stream);
    cudaStreamSynchronize(stream);
    if (!is("graph"))
        cudaGraphExecDestroy(exec);
}

/* 0: what arrived is right. */
static int work(void)
{
    float sum[N], came[N];

    for (int i = 0; i < N; i++)
        host[i] = (float)(i * (rank + 1));
    cudaMemcpyAsync(own, host, sizeof(host), cudaMemcpyHostToDevice, stream);
    if (is("captured") && rank == 0)
        capture();
    else if (is("captured"))
        for (int i = 0; i < 3; i++)
            swap(N, NP_NCCL_F32);
    swap(is("counts") && rank == 1 ? N - 1 : N,
        is("types") && rank == 1 ? NP_NCCL_BF16 : NP_NCCL_F32);
    if (is("right") || is("graph"))
        capture();
    cudaMemcpyAsync(came, other, sizeof(came), cudaMemcpyDeviceToHost, stream);
    ncclAllReduce(own, own, N, NP_NCCL_F32, NP_NCCL_SUM, comm, stream);
    cudaMemcpyAsync(sum, own, sizeof(sum), cudaMemcpyDeviceToHost, stream);
    cudaStreamSynchronize(stream);
    for (int i = 0; i < N; i++)
        if (came[i] != (float)(i * (2 - rank)) || sum[i] != (float)(3 * i))
            return 1;
    return 0;
}

static int process(np_nccl_id id)
{
    setenv("NNPIPE_RANK", rank ? "1" : "0", 1);
    alarm(is("ungrouped") ? 2 : 30);
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    cudaMalloc((void **)&own, sizeof(host));
    cudaMalloc((void **)&other, sizeof(host));
    ncclCommInitRank(&comm, 2, id, rank);
    if (is("none"))
        comm = NULL;
    const int code = work();
    ncclCommDestroy(comm);
    cudaStreamDestroy(stream);
    return code;
}

int main(int argc, char **argv)
{
    np_nccl_id id;
    int status, code = 0;

    wanted = argc > 1 ? argv[1] : "right";
    ncclGetUniqueId(&id);
    const pid_t first = getpid();
    for (int r = 0; r < 2 && getpid() == first; r++)
        if (fork() == 0) {
            rank = r;
            _exit(process(id));
        }
    for (int r = 0; r < 2; r++)
        if (wait(&status) > 0 && status)
            code = 1;
    return code;
}
