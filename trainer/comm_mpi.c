/* Open MPI's binary interface, which is that of libmpi.so.40 (versions 2 to 5): its objects are structs
 * that the library exports, and handles are their addresses. MPICH's is another one. */
#include "trainer/comm_mpi.h"

#include <assert.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "loader/base/mem.h"

#define LIBRARY     "libmpi.so.40"
#define FUNNELED    1 /* MPI_THREAD_FUNNELED: the thread that calls init makes all calls */
#define MAX_TEXT    256
#define MAX_VERSION 256 /* MPI_MAX_LIBRARY_VERSION_STRING */
#define TAG_OF_SUMS 1

struct np_mpi {
    void *library, *world, *byte; /* MPI_COMM_WORLD, MPI_BYTE */
    void *requests[2];
    char version[MAX_VERSION];
    int (*init)(int *argc, char ***argv, int wanted, int *ret_given);
    int (*finalize)(void);
    int (*get_version)(char *text, int *ret_n);
    int (*size)(void *comm, int *ret_size);
    int (*rank)(void *comm, int *ret_rank);
    int (*set_handler)(void *comm, void *handler);
    int (*send)(const void *data, int n, void *type, int rank, int tag, void *comm, void **request);
    int (*recv)(void *data, int n, void *type, int rank, int tag, void *comm, void **request);
    int (*test)(int n, void **requests, int *ret_done, void *statuses);
    int (*text)(int code, char *text, int *ret_n);
};

static int fail(const struct np_mpi *mpi, const char *call, int code, struct np_err *err)
{
    char text[MAX_TEXT] = "";
    int n;

    mpi->text(code, text, &n);
    return np_err_set(err, -EIO, "Open MPI: %s: %s", call, text);
}

static int load(struct np_mpi *mpi, struct np_err *err)
{
    const struct {
        const char *name;
        void *to;
    } symbols[] = {{"ompi_mpi_comm_world", &mpi->world}, {"ompi_mpi_byte", &mpi->byte},
        {"MPI_Init_thread", &mpi->init}, {"MPI_Finalize", &mpi->finalize},
        {"MPI_Get_library_version", &mpi->get_version}, {"MPI_Comm_size", &mpi->size},
        {"MPI_Comm_rank", &mpi->rank}, {"MPI_Comm_set_errhandler", &mpi->set_handler},
        {"MPI_Isend", &mpi->send}, {"MPI_Irecv", &mpi->recv}, {"MPI_Testall", &mpi->test},
        {"MPI_Error_string", &mpi->text}};

    /* Its parts look for its symbols. */
    if (!(mpi->library = dlopen(LIBRARY, RTLD_NOW | RTLD_GLOBAL)))
        return np_err_set(err, -ENOENT,
            "NNPIPE_COMM_DATA=mpi: %s; install Open MPI (Debian: libopenmpi3), or leave the "
            "variable "
            "out",
            dlerror());
    for (size_t i = 0; i < sizeof(symbols) / sizeof(*symbols); i++) {
        void *found = dlsym(mpi->library, symbols[i].name);

        if (!found)
            return np_err_set(
                err, -ENOENT, "NNPIPE_COMM_DATA=mpi: " LIBRARY " has no %s", symbols[i].name);
        memcpy(symbols[i].to, &found, sizeof(found));
    }
    return 0;
}

static int init(struct np_mpi *mpi, const struct np_launch *launch, struct np_err *err)
{
    int given = 0, world = 0, rank = 0, n = 0, code = mpi->init(NULL, NULL, FUNNELED, &given);
    void *handler = dlsym(mpi->library, "ompi_mpi_errors_return");

    if (code)
        return fail(mpi, "MPI_Init_thread", code, err);
    if (handler)
        mpi->set_handler(mpi->world, handler);
    mpi->get_version(mpi->version, &n);
    mpi->version[strcspn(mpi->version, ",")] = '\0'; /* "Open MPI v4.1.4, package: ..." */
    if ((code = mpi->size(mpi->world, &world)) || (code = mpi->rank(mpi->world, &rank)))
        return fail(mpi, "MPI_Comm_size", code, err);
    if (world != launch->world || rank != launch->rank)
        return np_err_set(err, -EINVAL,
            "%s says that this is rank %d of %d, Open MPI that it is rank %d of %d: was nnpipe "
            "started by another MPI's mpirun?",
            launch->by, launch->rank, launch->world, rank, world);
    return 0;
}

int np_mpi_find(struct np_err *err)
{
    struct np_mpi mpi = {0};

    return load(&mpi, err); /* it stays loaded, for np_mpi_open() */
}

int np_mpi_open(const struct np_launch *launch, struct np_mpi **ret_mpi, struct np_err *err)
{
    struct np_mpi *mpi = np_alloc(sizeof(*mpi));
    int code = load(mpi, err);

    if (code == 0)
        code = init(mpi, launch, err);
    if (code < 0)
        np_free(mpi); /* the library stays loaded: threads of its own may run */
    else
        *ret_mpi = mpi;
    return code;
}

void np_mpi_close(struct np_mpi *mpi, bool whole)
{
    if (mpi && whole)
        mpi->finalize();
    np_free(mpi);
}

const char *np_mpi_version(const struct np_mpi *mpi)
{
    return mpi->version;
}

int np_mpi_exchange(struct np_mpi *mpi, int rank, const void *send, size_t nr_send, void *recv,
    size_t nr_recv, struct np_err *err)
{
    assert(nr_send <= INT32_MAX && nr_recv <= INT32_MAX);
    int code =
        mpi->recv(recv, (int)nr_recv, mpi->byte, rank, TAG_OF_SUMS, mpi->world, &mpi->requests[0]);

    if (code)
        return fail(mpi, "MPI_Irecv", code, err);
    code =
        mpi->send(send, (int)nr_send, mpi->byte, rank, TAG_OF_SUMS, mpi->world, &mpi->requests[1]);
    return code ? fail(mpi, "MPI_Isend", code, err) : 0;
}

int np_mpi_done(struct np_mpi *mpi, struct np_err *err)
{
    int done = 0;
    const int code = mpi->test(2, mpi->requests, &done, NULL);

    return code ? fail(mpi, "MPI_Testall", code, err) : done != 0;
}
