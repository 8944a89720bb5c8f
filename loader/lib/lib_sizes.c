/* See lib_sizes.h. */
#include "loader/lib/lib_sizes.h"

#include <errno.h>

#include "loader/base/mem.h"
#include "loader/pack/fetch.h"
#include "loader/pixels/codec.h"

struct np_sizes {
    struct size {
        int32_t width, height;
    } * sizes; /* (samples) */
};

int np_sizes_read(const struct np_index *index, struct np_sizes **ret_sizes, struct np_err *err)
{
    const uint64_t n = np_index_samples(index);
    struct np_sizes *sizes;
    struct np_fetch *fetch = NULL;
    struct np_decoder *decoder = NULL;
    int code;

    *ret_sizes = NULL;
    if (index->raw.kind != NP_RAW_NONE)
        return 0;
    sizes = np_try_alloc(sizeof(*sizes), err);
    if (!sizes)
        return -ENOMEM;
    sizes->sizes = np_try_array(n, sizeof(*sizes->sizes), err);
    code = sizes->sizes ? np_fetch_open(index, &fetch, err) : -ENOMEM;
    if (!code)
        code = np_decoder_new(&decoder, err);
    for (uint64_t i = 0; !code && i < n; i++) {
        struct np_image_info info = {0};
        const uint8_t *bytes;
        uint32_t nr_bytes;

        if (np_fetch_get(fetch, i, &bytes, &nr_bytes, NULL) == 0 &&
            np_decoder_open(decoder, bytes, nr_bytes, &index->raw, &info, NULL) == 0)
            sizes->sizes[i] = (struct size){info.width, info.height};
    }
    np_fetch_close(fetch);
    np_decoder_free(decoder);
    if (code)
        np_sizes_free(sizes);
    else
        *ret_sizes = sizes;
    return code;
}

void np_sizes_free(struct np_sizes *sizes)
{
    if (!sizes)
        return;
    np_free(sizes->sizes);
    np_free(sizes);
}

void np_sizes_get(const struct np_sizes *sizes, const struct np_index *index, uint64_t sample,
    int32_t *ret_width, int32_t *ret_height)
{
    *ret_width = sizes ? sizes->sizes[sample].width : index->raw.width;
    *ret_height = sizes ? sizes->sizes[sample].height : index->raw.height;
}
