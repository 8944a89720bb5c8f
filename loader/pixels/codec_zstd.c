/* Decompresses one zstd frame. Reader threads, a context each. */
#include "loader/pixels/codec.h"

#include <errno.h>
#include <zstd.h>
#include <zstd_errors.h>

#include "loader/base/mem.h"

struct np_unzstd {
    ZSTD_DCtx *context;
};

struct np_unzstd *np_unzstd_new(struct np_err *err)
{
    struct np_unzstd *unzstd = np_try_alloc(sizeof(*unzstd), err);

    if (!unzstd)
        return NULL;
    unzstd->context = ZSTD_createDCtx();
    if (!unzstd->context) {
        np_err_set(err, -ENOMEM, "out of memory for zstd");
        np_free(unzstd);
        return NULL;
    }
    return unzstd;
}

void np_unzstd_free(struct np_unzstd *unzstd)
{
    if (!unzstd)
        return;
    ZSTD_freeDCtx(unzstd->context);
    np_free(unzstd);
}

int np_unzstd_frame(struct np_unzstd *unzstd, const void *frame, size_t frame_bytes, void *out,
    size_t out_bytes, size_t *ret_bytes, struct np_err *err)
{
    size_t length = ZSTD_findFrameCompressedSize(frame, frame_bytes), result;

    if (ZSTD_isError(length))
        return np_err_set(err, -EBADMSG, "bad zstd frame: %s", ZSTD_getErrorName(length));
    result = ZSTD_decompressDCtx(unzstd->context, out, out_bytes, frame, length);
    if (ZSTD_getErrorCode(result) == ZSTD_error_memory_allocation)
        return np_err_set(err, -ENOMEM, "out of memory for a zstd frame");
    if (ZSTD_isError(result))
        return np_err_set(err, -EBADMSG, "bad zstd frame: %s", ZSTD_getErrorName(result));
    *ret_bytes = result;
    return 0;
}
