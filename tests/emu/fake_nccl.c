/* NCCL between emulated processes, for tests: the emulated libnccl.so.2. Processes meet in a file in
 * TMPDIR, mapped by all; what goes from one to another passes a mailbox there, in pieces of random
 * size. An operation moves bytes when its stream has come to it, and is done when both ends are; until
 * then other streams go on, as on a GPU. A send ends only when all of it was received, so that calls
 * which rely on buffers hang.
 *
 * Use that NCCL leaves undefined ends the program: memory that is not the device's, a count, type or
 * order that differs between the ends, an unknown rank or communicator, a communicator that is left
 * while a graph still has its operations (for which NCCL would wait for ever), a call in a captured
 * stream at one end alone. After ncclCommAbort() what is queued ends with NaN in what it writes.
 *
 * Environment, each "RANK:N", for the process with that NNPIPE_RANK:
 *     NNPIPE_EMU_NCCL_KILL    kills the process in the middle of the Nth operation that runs
 *     NNPIPE_EMU_NCCL_ERROR   the Nth operation never ends, and the communicator has an error
 *     NNPIPE_EMU_NCCL_FLIP    a bit of what the Nth operation gives this process is flipped
 *     NNPIPE_EMU_NCCL_ABSENT  (N any) ncclCommInitRank() does not return
 *     NNPIPE_EMU_NCCL_LATE    it returns, with 0, or N 1: with an error, after main() has returned, and the
 *                             process ends a moment later
 * NNPIPE_EMU_NCCL_LEAVE_S (20): seconds after which operations that are left count as such,
 * and NNPIPE_EMU_FAIL counts its calls, too. */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "tests/emu/cudart.h"
#include "tests/emu/fake_numbers.h"
#include "trainer/cuda/nccl_api.h"

#define MAX_WORLD 16
#define MAX_PARTS 32 /* operations of a group */
#define BOX_BYTES 4096

enum { SUCCESS, CUDA_ERROR, SYSTEM_ERROR, INTERNAL_ERROR, BAD_ARGUMENT, BAD_USAGE, REMOTE_ERROR };

/* From one rank to another; bytes written and read so far. */
struct box {
    _Atomic uint64_t written, taken;
    uint8_t bytes[BOX_BYTES];
};
struct hall {                               /* the file */
    _Atomic int here, gone;                 /* ranks */
    struct box boxes[MAX_WORLD][MAX_WORLD]; /* [from][to] */
};
/* Precedes the bytes of an operation. */
struct label {
    uint64_t number, count; /* of the operation between these two */
    uint32_t type, captured;
};

struct ncclComm {
    uint64_t magic;
    int rank, world;
    struct hall *hall;
    uint64_t sent[MAX_WORLD], received[MAX_WORLD]; /* operations queued, by the other rank */
    _Atomic int held;                              /* jobs in queues and graphs */
    _Atomic bool aborted, failed, leaves;
    uint64_t nr_ran;
    pthread_t pusher;
};
#define MAGIC 0x6e63636c6e63636cull

struct part { /* of an operation: a message one way */
    bool sends, begun;
    int peer;
    uint64_t done, all;        /* bytes, with the label */
    struct label own, passing; /* what is due; what goes or comes */
    uint8_t *memory;           /* of the device, or `own` of a sum */
};
struct job {
    struct ncclComm *comm;
    int nr;
    struct part parts[MAX_PARTS];
    bool counted; /* in comm->nr_ran, in this run */
    bool stays;   /* never ends */
    bool flips;   /* a bit of its result, in this run */
    /* of a sum */
    uint8_t *x, *others; /* others: (world) arrays; NULL: no sum */
    uint64_t n;
    enum number type;
    bool stored; /* x was copied to others[rank], in this run */
};

static __thread struct {
    int depth;
    struct job *job; /* NULL: nothing yet */
    cudaStream_t stream;
    np_nccl_result result;
} group;
static __thread char last_error[200];

static np_nccl_result error(np_nccl_result result, const char *text)
{
    snprintf(last_error, sizeof(last_error), "%s", text);
    return result;
}

/* "RANK:N" for this process: N, or 0. */
static uint64_t planned(const char *name)
{
    const char *text = getenv(name), *rank = getenv("NNPIPE_RANK");
    unsigned long long who, n;

    if (!text || !rank || sscanf(text, "%llu:%llu", &who, &n) != 2 ||
        who != strtoull(rank, NULL, 10))
        return 0;
    return n;
}

static size_t bytes_of(np_nccl_type type)
{
    return type == NP_NCCL_F32 ? 4 : 2;
}

static struct ncclComm *known(np_nccl_comm comm, const char *call)
{
    if (!comm || comm->magic != MAGIC)
        np_emu_die(call, "%p is no communicator: it was left, or never joined", (void *)comm);
    return comm;
}

/* --- moving bytes ----------------------------------------------------------------------------- */

static uint8_t *at_byte(struct part *part)
{
    const uint64_t label = sizeof(part->passing);

    return part->done < label ? (uint8_t *)&part->passing + part->done
                              : part->memory + (part->done - label);
}

/* Up to the end of the label, of the box's ring, or of a drawn piece. */
static uint64_t piece(const struct part *part, uint64_t at, uint64_t room)
{
    const uint64_t label = sizeof(part->passing), end = part->done < label ? label : part->all;
    uint64_t n = end - part->done, drawn = 1 + np_emu_draw() % BOX_BYTES;

    n = n < room ? n : room;
    n = n < drawn ? n : drawn;
    return n < BOX_BYTES - at % BOX_BYTES ? n : BOX_BYTES - at % BOX_BYTES;
}

static void move_out(struct part *part, struct box *box)
{
    uint64_t at = atomic_load(&box->written), n;

    while ((n = piece(part, at, BOX_BYTES - (at - atomic_load(&box->taken)))) > 0) {
        memcpy(box->bytes + at % BOX_BYTES, at_byte(part), n);
        part->done += n;
        atomic_store(&box->written, at += n);
    }
}

static void check_label(int rank, const struct part *part)
{
    const struct label *own = &part->own, *other = &part->passing;

    if (memcmp(own, other, sizeof(*own)) == 0)
        return;
    np_emu_die("nccl",
        "rank %d receives %llu elements of type %u in operation %llu (%s), and rank %d sends %llu "
        "of "
        "type %u in operation %llu (%s)",
        rank, (unsigned long long)own->count, own->type, (unsigned long long)own->number,
        own->captured ? "captured" : "not captured", part->peer, (unsigned long long)other->count,
        other->type, (unsigned long long)other->number,
        other->captured ? "captured" : "not captured");
}

static void move_in(int rank, struct part *part, struct box *box)
{
    uint64_t at = atomic_load(&box->taken), n;

    while ((n = piece(part, at, atomic_load(&box->written) - at)) > 0) {
        memcpy(at_byte(part), box->bytes + at % BOX_BYTES, n);
        part->done += n;
        atomic_store(&box->taken, at += n);
        if (part->done == sizeof(part->passing))
            check_label(rank, part);
    }
}

/* Has all of it arrived? */
static bool move(struct ncclComm *comm, struct part *part)
{
    uint64_t *number = part->sends ? &comm->sent[part->peer] : &comm->received[part->peer];
    struct box *box = part->sends ? &comm->hall->boxes[comm->rank][part->peer]
                                  : &comm->hall->boxes[part->peer][comm->rank];

    if (!part->begun) { /* counted as it runs: a graph may run often */
        part->own.number = (*number)++;
        part->passing = part->own;
    }
    part->begun = true;
    if (part->sends)
        move_out(part, box);
    else
        move_in(comm->rank, part, box);
    return part->done == part->all &&
           (!part->sends || atomic_load(&box->taken) == atomic_load(&box->written));
}

/* --- jobs ------------------------------------------------------------------------------------- */

static void count(struct job *job)
{
    struct ncclComm *comm = job->comm;
    const uint64_t n = ++comm->nr_ran;

    job->counted = true;
    if (n == planned("NNPIPE_EMU_NCCL_KILL"))
        kill(getpid(), SIGKILL);
    if (n == planned("NNPIPE_EMU_NCCL_ERROR")) {
        job->stays = true;
        atomic_store(&comm->failed, true);
    }
    job->flips = n == planned("NNPIPE_EMU_NCCL_FLIP");
}

static bool job_ready(void *context)
{
    struct job *job = context;
    bool all = true;

    if (atomic_load(&job->comm->aborted))
        return true;
    if (job->others && !job->stored) {
        memcpy(job->others + (uint64_t)job->comm->rank * job->n * (job->type == F32 ? 4 : 2),
            job->x, job->n * (job->type == F32 ? 4 : 2));
        job->stored = true;
    }
    if (!job->stays && np_emu_draw() % 4 == 0)
        return false; /* some moments nothing moves */
    for (int i = 0; i < job->nr && !job->stays; i++)
        all &= move(job->comm, &job->parts[i]);
    if (!job->counted)
        count(job);
    return all && !job->stays;
}

static void sum(struct job *job)
{
    const int world = job->comm->world;

    for (uint64_t i = 0; i < job->n; i++) {
        float total = 0; /* each part of the array begins at another rank, as in a ring */
        const int first = (int)(i * (uint64_t)world / job->n);

        for (int r = 0; r < world; r++) {
            const uint64_t at = (uint64_t)((first + r) % world) * job->n + i;
            const float x = fake_load(job->others, job->type, (int64_t)at);

            total = r == 0 ? x : total + x;
            if (job->type != F32) { /* each hop rounds */
                uint8_t rounded[4];

                fake_store(rounded, job->type, 0, total);
                total = fake_load(rounded, job->type, 0);
            }
        }
        fake_store(job->x, job->type, (int64_t)i, total);
    }
}

/* A high bit of the mantissa of the first number that has come. */
static void flip(struct job *job)
{
    for (int i = 0; i < job->nr; i++)
        if (!job->parts[i].sends) {
            uint8_t *number = job->others ? job->x : job->parts[i].memory;

            number[job->parts[i].own.type == NP_NCCL_F32 ? 2 : 0] ^= 0x40;
            return;
        }
}

static void job_run(void *context)
{
    struct job *job = context;
    const bool aborted = atomic_load(&job->comm->aborted);

    for (int i = 0; aborted && i < job->nr; i++)
        if (!job->parts[i].sends)
            memset(job->parts[i].memory, 0xff, job->parts[i].all - sizeof(struct label));
    if (aborted && job->others)
        memset(job->x, 0xff, job->n * (job->type == F32 ? 4 : 2));
    else if (job->others)
        sum(job);
    if (job->flips)
        flip(job);
    job->counted = job->stored = false;
    for (int i = 0; i < job->nr; i++) {
        job->parts[i].done = 0;
        job->parts[i].begun = false;
    }
}

static void job_drop(void *context)
{
    struct job *job = context;

    atomic_fetch_sub(&job->comm->held, 1);
    free(job->others);
    free(job);
}

static bool is_captured(cudaStream_t stream)
{
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;

    cudaStreamIsCapturing(stream, &status);
    return status != cudaStreamCaptureStatusNone;
}

static struct job *new_job(struct ncclComm *comm)
{
    struct job *job = calloc(1, sizeof(*job));

    if (!job)
        np_emu_die("nccl", "no memory");
    job->comm = comm;
    return job;
}

static void queue(struct job *job, cudaStream_t stream)
{
    const bool captured = is_captured(stream);

    for (int i = 0; i < job->nr; i++)
        job->parts[i].own.captured = captured;
    atomic_fetch_add(&job->comm->held, 1);
    np_emu_queue_waiting(stream, job_ready, job_run, job_drop, job);
}

static void add_part(
    struct job *job, bool sends, void *memory, uint64_t n, np_nccl_type type, int peer)
{
    if (job->nr == MAX_PARTS)
        np_emu_die("nccl", "more than %d operations in a group are not emulated", MAX_PARTS);
    for (int i = 0; i < job->nr; i++)
        if (job->parts[i].peer == peer && job->parts[i].sends == sends)
            np_emu_die(
                "nccl", "two sends, or two receives, of one peer in a group are not emulated");
    job->parts[job->nr++] = (struct part){.sends = sends,
        .peer = peer,
        .all = sizeof(struct label) + n * bytes_of(type),
        .own = {.count = n, .type = type},
        .memory = memory};
}

static np_nccl_result one_way(bool sends, const void *memory, uint64_t n, np_nccl_type type,
    int peer, np_nccl_comm comm, cudaStream_t stream, const char *call)
{
    known(comm, call);
    if (np_emu_fails(call))
        return group.result = error(SYSTEM_ERROR, "NNPIPE_EMU_FAIL says so");
    if (type != NP_NCCL_F32 && type != NP_NCCL_BF16 && type != NP_NCCL_F16)
        np_emu_die(call, "type %u is not emulated", type);
    if (peer < 0 || peer >= comm->world || peer == comm->rank)
        np_emu_die(call, "rank %d calls %d of %d", comm->rank, peer, comm->world);
    if (n > 0 && !np_emu_holds(memory, n * bytes_of(type)))
        np_emu_die(
            call, "%p, %llu elements: not the device's memory", memory, (unsigned long long)n);
    if (group.job && (group.job->comm != comm || group.stream != stream))
        np_emu_die(call, "a group of several streams is not emulated");
    if (!group.job)
        group.job = new_job(comm);
    group.stream = stream;
    add_part(group.job, sends, (void *)(uintptr_t)memory, n, type, peer);
    if (group.depth == 0) {
        queue(group.job, stream);
        group.job = NULL;
    }
    return SUCCESS;
}

/* --- the API ---------------------------------------------------------------------------------- */

np_nccl_result ncclGetVersion(int *version);
const char *ncclGetErrorString(np_nccl_result result);
const char *ncclGetLastError(np_nccl_comm comm);
np_nccl_result ncclGetUniqueId(np_nccl_id *id);
np_nccl_result ncclCommInitRank(np_nccl_comm *ret_comm, int world, np_nccl_id id, int rank);
np_nccl_result ncclCommDestroy(np_nccl_comm comm);
np_nccl_result ncclCommAbort(np_nccl_comm comm);
np_nccl_result ncclCommGetAsyncError(np_nccl_comm comm, np_nccl_result *ret_error);
np_nccl_result ncclGroupStart(void);
np_nccl_result ncclGroupEnd(void);
np_nccl_result ncclSend(const void *from, size_t n, np_nccl_type type, int peer, np_nccl_comm comm,
    cudaStream_t stream);
np_nccl_result ncclRecv(
    void *to, size_t n, np_nccl_type type, int peer, np_nccl_comm comm, cudaStream_t stream);
np_nccl_result ncclAllReduce(const void *from, void *to, size_t n, np_nccl_type type,
    np_nccl_operation operation, np_nccl_comm comm, cudaStream_t stream);

np_nccl_result ncclGetVersion(int *version)
{
    *version = 22809;
    return SUCCESS;
}

const char *ncclGetErrorString(np_nccl_result result)
{
    return result == SUCCESS        ? "no error"
           : result == REMOTE_ERROR ? "remote process exited or there was a network error"
                                    : "an error of the emulated library";
}

const char *ncclGetLastError(np_nccl_comm comm)
{
    (void)comm;
    return last_error;
}

np_nccl_result ncclGetUniqueId(np_nccl_id *id)
{
    const char *folder = getenv("TMPDIR");

    if (np_emu_fails(__func__))
        return error(SYSTEM_ERROR, "NNPIPE_EMU_FAIL says so");
    memset(id, 0, sizeof(*id));
    snprintf(id->internal, sizeof(id->internal), "%s/nccl-XXXXXX", folder ? folder : "/tmp");
    const int fd = mkstemp(id->internal);
    if (fd < 0 || ftruncate(fd, sizeof(struct hall)) < 0)
        np_emu_die(__func__, "%s cannot be made", id->internal);
    close(fd);
    return SUCCESS;
}

static void nap(void)
{
    const struct timespec moment = {0, 200000};

    nanosleep(&moment, NULL);
}

/* What is queued goes on although the host does something else. */
static void *push(void *context)
{
    struct ncclComm *comm = context;

    while (!atomic_load(&comm->leaves))
        if (atomic_load(&comm->held) == 0 || !np_emu_progress())
            nap();
    return NULL;
}

static _Atomic bool ends, is_late;

static void let_late_return(void)
{
    const struct timespec moment = {0, 300000000};

    if (!atomic_load(&is_late))
        return;
    atomic_store(&ends, true);
    nanosleep(&moment, NULL);
}

static np_nccl_result be_late(void)
{
    atomic_store(&is_late, true);
    while (!atomic_load(&ends))
        nap();
    return planned("NNPIPE_EMU_NCCL_LATE") == 1 ? error(SYSTEM_ERROR, "late") : SUCCESS;
}

np_nccl_result ncclCommInitRank(np_nccl_comm *ret_comm, int world, np_nccl_id id, int rank)
{
    struct ncclComm *comm = calloc(1, sizeof(*comm));
    const int fd = open(id.internal, O_RDWR | O_CLOEXEC);

    if (planned("NNPIPE_EMU_NCCL_LATE"))
        atexit(let_late_return);
    if (world < 1 || world > MAX_WORLD || rank < 0 || rank >= world)
        np_emu_die(__func__, "rank %d of %d", rank, world);
    if (!comm || fd < 0 || np_emu_fails(__func__)) {
        free(comm);
        if (fd >= 0)
            close(fd);
        return error(SYSTEM_ERROR, "no such meeting, or NNPIPE_EMU_FAIL says so");
    }
    comm->hall = mmap(NULL, sizeof(struct hall), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (comm->hall == MAP_FAILED)
        np_emu_die(__func__, "%s cannot be mapped", id.internal);
    comm->magic = MAGIC;
    comm->rank = rank;
    comm->world = world;
    while (planned("NNPIPE_EMU_NCCL_ABSENT"))
        nap();
    if (planned("NNPIPE_EMU_NCCL_LATE")) {
        *ret_comm = comm;
        return be_late();
    }
    atomic_fetch_add(&comm->hall->here, 1);
    while (atomic_load(&comm->hall->here) < world)
        nap();
    unlink(id.internal);
    if (pthread_create(&comm->pusher, NULL, push, comm) != 0)
        np_emu_die(__func__, "no thread");
    *ret_comm = comm;
    return SUCCESS;
}

/* NCCL waits for its graphs; here that is a mistake of the caller. */
static void leave(struct ncclComm *comm, const char *call)
{
    const char *seconds = getenv("NNPIPE_EMU_NCCL_LEAVE_S");
    const long limit = seconds ? atol(seconds) : 20;
    struct timespec start, now;

    clock_gettime(CLOCK_MONOTONIC, &start);
    do { /* what is queued runs, or is dropped with the runtime */
        nap();
        clock_gettime(CLOCK_MONOTONIC, &now);
        if (now.tv_sec - start.tv_sec > limit)
            np_emu_die(call,
                "%d operations are still in graphs or queues: NCCL would wait for ever",
                atomic_load(&comm->held));
    } while (atomic_load(&comm->held) > 0);
    atomic_store(&comm->leaves, true);
    pthread_join(comm->pusher, NULL);
    munmap(comm->hall, sizeof(struct hall));
    comm->magic = 0;
    free(comm);
}

/* As in NCCL the processes of a machine leave together. */
np_nccl_result ncclCommDestroy(np_nccl_comm comm)
{
    known(comm, __func__);
    atomic_fetch_add(&comm->hall->gone, 1);
    while (atomic_load(&comm->hall->gone) < comm->world)
        nap();
    leave(comm, __func__);
    return SUCCESS;
}

np_nccl_result ncclCommAbort(np_nccl_comm comm)
{
    known(comm, __func__);
    atomic_store(&comm->aborted, true);
    leave(comm, __func__);
    return SUCCESS;
}

np_nccl_result ncclCommGetAsyncError(np_nccl_comm comm, np_nccl_result *ret_error)
{
    *ret_error = atomic_load(&known(comm, __func__)->failed) ? REMOTE_ERROR : SUCCESS;
    return SUCCESS;
}

np_nccl_result ncclGroupStart(void)
{
    if (np_emu_fails(__func__))
        return error(SYSTEM_ERROR, "NNPIPE_EMU_FAIL says so");
    if (group.depth++ == 0)
        group.result = SUCCESS;
    return SUCCESS;
}

np_nccl_result ncclGroupEnd(void)
{
    struct job *job = group.job;

    if (group.depth == 0)
        np_emu_die(__func__, "no group was started");
    if (--group.depth > 0)
        return SUCCESS;
    group.job = NULL;
    if (job && group.result == SUCCESS)
        queue(job, group.stream);
    else
        free(job);
    return group.result;
}

np_nccl_result ncclSend(
    const void *from, size_t n, np_nccl_type type, int peer, np_nccl_comm comm, cudaStream_t stream)
{
    return one_way(true, from, n, type, peer, comm, stream, __func__);
}

np_nccl_result ncclRecv(
    void *to, size_t n, np_nccl_type type, int peer, np_nccl_comm comm, cudaStream_t stream)
{
    return one_way(false, to, n, type, peer, comm, stream, __func__);
}

np_nccl_result ncclAllReduce(const void *from, void *to, size_t n, np_nccl_type type,
    np_nccl_operation operation, np_nccl_comm comm, cudaStream_t stream)
{
    known(comm, __func__);
    if (np_emu_fails(__func__))
        return error(SYSTEM_ERROR, "NNPIPE_EMU_FAIL says so");
    if (operation != NP_NCCL_SUM || from != to || group.depth > 0)
        np_emu_die(__func__, "only sums in place, outside of groups, are emulated");
    if (!np_emu_holds(to, n * bytes_of(type)))
        np_emu_die(__func__, "%p, %zu elements: not the device's memory", to, n);
    struct job *job = new_job(comm);
    job->x = to;
    job->n = n;
    job->type = type == NP_NCCL_F32 ? F32 : type == NP_NCCL_BF16 ? BF16 : F16;
    job->others = calloc((size_t)comm->world * n + 1, bytes_of(type));
    if (!job->others)
        np_emu_die(__func__, "no memory");
    uint8_t *own = job->others + (uint64_t)comm->rank * n * bytes_of(type);
    for (int r = 0; r < comm->world; r++)
        if (r != comm->rank) {
            add_part(job, true, own, n, type, r);
            add_part(job, false, job->others + (uint64_t)r * n * bytes_of(type), n, type, r);
        }
    queue(job, stream);
    return SUCCESS;
}
