/* Decompresses one zstd frame. Reader threads, a context each. */
#include "loader/pixels/codec.h"

#include <errno.h>
#include <zstd.h>
#include <zstd_errors.h>

/* A struct np_unzstd is a ZSTD_DCtx. */
struct np_unzstd *np_unzstd_new(struct np_err *err)
{
    ZSTD_DCtx *context = ZSTD_createDCtx();

    if (!context)
        np_err_set(err, -ENOMEM, "out of memory for zstd");
    return (void *)context;
}

void np_unzstd_free(struct np_unzstd *unzstd)
{
    ZSTD_freeDCtx((void *)unzstd);
}

int np_unzstd_frame(struct np_unzstd *unzstd, const void *frame, size_t frame_bytes, void *out,
    size_t out_bytes, size_t *ret_bytes, struct np_err *err)
{
    size_t length = ZSTD_findFrameCompressedSize(frame, frame_bytes), result;

    if (ZSTD_isError(length))
        return np_err_set(err, -EBADMSG, "bad zstd frame: %s", ZSTD_getErrorName(length));
    result = ZSTD_decompressDCtx((void *)unzstd, out, out_bytes, frame, length);
    if (ZSTD_getErrorCode(result) == ZSTD_error_memory_allocation)
        return np_err_set(err, -ENOMEM, "out of memory for a zstd frame");
    if (ZSTD_isError(result))
        return np_err_set(err, -EBADMSG, "bad zstd frame: %s", ZSTD_getErrorName(result));
    *ret_bytes = result;
    return 0;
}
