/* See setup.h. The size of a set's images, from the headers of some samples. */
#include "daemon/config/setup.h"

#include <errno.h>

#include "loader/pixels/codec.h"
#include "loader/pack/fetch.h"
#include "loader/row.h"

#define MAX_TRIES  16 /* bad samples to skip */
#define NR_HEADERS 32 /* read by np_check_sizes() */

static int header_size(const struct np_index *index, const uint8_t *bytes, size_t nr_bytes,
    int *ret_width, int *ret_height, struct np_err *err)
{
    struct np_decoder *decoder = NULL;
    struct np_image_info info = {0};
    int code = np_decoder_new(&decoder, err);

    if (code == 0)
        code = np_decoder_open(decoder, bytes, nr_bytes, &index->raw, &info, err);
    np_decoder_free(decoder);
    if (code == 0) {
        *ret_width = info.width;
        *ret_height = info.height;
    }
    return code;
}

static int sample_size(const struct np_index *index, struct np_fetch *fetch, uint64_t sample,
    int *ret_width, int *ret_height, struct np_err *err)
{
    const uint32_t listed = np_index_record(index, sample)->bytes;
    const uint8_t *bytes;
    uint32_t nr_bytes;

    if (listed > NP_MAX_SAMPLE_BYTES)
        return np_err_set(err, -EBADMSG, "%u bytes are too many for an image", listed);
    int code = np_fetch_get(fetch, sample, &bytes, &nr_bytes, err);
    return code ? code : header_size(index, bytes, nr_bytes, ret_width, ret_height, err);
}

int np_first_size(const struct np_index *index, int *ret_width, int *ret_height, struct np_err *err)
{
    const struct np_raw *raw = &index->raw;
    struct np_err first = {0};
    struct np_fetch *fetch = NULL;
    char name[1024] = "";
    int code;

    if (raw && raw->kind != NP_RAW_NONE) {
        *ret_width = raw->width;
        *ret_height = raw->height;
        return 0;
    }
    if ((code = np_fetch_open(index, &fetch, err)) < 0)
        return code;
    code = -ENODATA;
    for (uint64_t i = 0; code && i < np_index_samples(index) && i < MAX_TRIES; i++)
        code = sample_size(index, fetch, i, ret_width, ret_height, &first);
    np_fetch_close(fetch);
    if (code == 0)
        return 0;
    np_index_name(index, 0, name, sizeof(name));
    return np_err_set(err, first.code,
        "the network's input size is taken from the first image, %.300s: %.400s", name, first.text);
}

int np_check_sizes(
    const struct np_index *index, int width, int height, double budget, struct np_err *err)
{
    const uint64_t n = np_index_samples(index), some = n < NR_HEADERS ? n : NR_HEADERS;
    int other_width = 0, other_height = 0, nr_other = 0, code;
    uint64_t other = 0;
    struct np_fetch *fetch = NULL;
    char name[1024] = "";

    if (index->raw.kind != NP_RAW_NONE)
        return 0;
    if ((code = np_fetch_open(index, &fetch, err)) < 0)
        return code;
    for (uint64_t k = 0; k < some; k++) {
        /* Unequal distances, because sizes may alternate. */
        const uint64_t stride = n / some, i = k * n / some + k * 7919 % stride;
        int w, h;

        if (sample_size(index, fetch, i, &w, &h, NULL) < 0 || (w == width && h == height))
            continue; /* a bad sample has no size */
        if (nr_other++ == 0) {
            other = i;
            other_width = w;
            other_height = h;
        }
    }
    np_fetch_close(fetch);
    if (nr_other < (some == n ? 1 : 2) || nr_other <= budget * (double)some)
        return 0;
    np_index_name(index, other, name, sizeof(name));
    return np_err_set(err, -EINVAL, "its images differ in size: %.300s is %dx%d, others are %dx%d",
        name, other_width, other_height, width, height);
}

uint64_t np_picture_bytes(const struct np_index *index, int channels)
{
    int width, height;

    if (np_first_size(index, &width, &height, NULL) < 0)
        return 0;
    return (uint64_t)width * (uint64_t)height * (uint64_t)channels;
}
