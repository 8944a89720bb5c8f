/* NCCL's functions, as the plugin calls them: it is built without nccl.h, and finds the library when it
 * runs (libs.h). tests/cuda/nccl.sh compiles this against the real header, with NP_NCCL_HEADER. */
#ifndef NP_NCCL_API_H
#define NP_NCCL_API_H

#include <cuda_runtime_api.h>
#include <stddef.h>

#ifdef NP_NCCL_HEADER
#include <nccl.h>
typedef ncclComm_t np_nccl_comm;
typedef ncclUniqueId np_nccl_id;
typedef ncclResult_t np_nccl_result;
typedef ncclDataType_t np_nccl_type;
typedef ncclRedOp_t np_nccl_operation;
#else
typedef struct ncclComm *np_nccl_comm;
typedef struct {
    char internal[128];
} np_nccl_id;
typedef unsigned np_nccl_result, np_nccl_type, np_nccl_operation; /* enums */
#endif

enum { NP_NCCL_SUCCESS = 0, NP_NCCL_IN_PROGRESS = 7 };       /* np_nccl_result */
enum { NP_NCCL_F16 = 6, NP_NCCL_F32 = 7, NP_NCCL_BF16 = 9 }; /* np_nccl_type */
enum { NP_NCCL_SUM = 0 };                                    /* np_nccl_operation */

struct np_nccl {
    np_nccl_result (*get_version)(int *version);
    const char *(*error_string)(np_nccl_result result);
    const char *(*last_error)(np_nccl_comm comm); /* NULL: an older NCCL, without it */
    np_nccl_result (*get_id)(np_nccl_id *id);
    np_nccl_result (*init)(np_nccl_comm *comm, int world, np_nccl_id id, int rank);
    np_nccl_result (*destroy)(np_nccl_comm comm);
    np_nccl_result (*abort)(np_nccl_comm comm);
    np_nccl_result (*async_error)(np_nccl_comm comm, np_nccl_result *error);
    np_nccl_result (*group_start)(void);
    np_nccl_result (*group_end)(void);
    np_nccl_result (*send)(const void *from, size_t n, np_nccl_type type, int peer,
        np_nccl_comm comm, cudaStream_t stream);
    np_nccl_result (*receive)(
        void *to, size_t n, np_nccl_type type, int peer, np_nccl_comm comm, cudaStream_t stream);
    np_nccl_result (*all_reduce)(const void *from, void *to, size_t n, np_nccl_type type,
        np_nccl_operation operation, np_nccl_comm comm, cudaStream_t stream);
};

#endif
