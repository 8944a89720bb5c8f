/* Compiled, never run, against the real nccl.h: are the functions of nccl_api.h NCCL's, and the numbers
 * its enums'? */
#define NP_NCCL_HEADER
#include "trainer/cuda/nccl_api.h"

_Static_assert(sizeof(np_nccl_id) == 128, "an id");
_Static_assert(sizeof(np_nccl_result) == sizeof(unsigned) &&
                   sizeof(np_nccl_type) == sizeof(unsigned) &&
                   sizeof(np_nccl_operation) == sizeof(unsigned),
    "enums");
_Static_assert(
    (int)ncclSuccess == NP_NCCL_SUCCESS && (int)ncclInProgress == NP_NCCL_IN_PROGRESS, "results");
_Static_assert((int)ncclFloat16 == NP_NCCL_F16 && (int)ncclFloat32 == NP_NCCL_F32 &&
                   (int)ncclBfloat16 == NP_NCCL_BF16,
    "types");
_Static_assert((int)ncclSum == NP_NCCL_SUM, "operations");

const struct np_nccl np_nccl_of_header = {
    .get_version = ncclGetVersion,
    .error_string = ncclGetErrorString,
    .last_error = ncclGetLastError,
    .get_id = ncclGetUniqueId,
    .init = ncclCommInitRank,
    .destroy = ncclCommDestroy,
    .abort = ncclCommAbort,
    .async_error = ncclCommGetAsyncError,
    .group_start = ncclGroupStart,
    .group_end = ncclGroupEnd,
    .send = ncclSend,
    .receive = ncclRecv,
    .all_reduce = ncclAllReduce,
};
