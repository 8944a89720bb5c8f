/* Hostile bytes as a JPEG: our decoder refuses them, or has libjpeg-turbo's pixels, with plain C and
 * with each instruction set, of the whole picture and of a part; and all of these agree. From the
 * entries of the whole the part's pixels are the same, and wrong entries do no harm. */
#include <stdint.h>

#include "loader/base/vectors.h"
#include "loader/pixels/jpeg.h"
#include "tests/unit/judge_jpeg.h"

#define MAX_PIXELS 300000

/* A part that the bytes choose. */
static struct np_rect part_of(const struct np_image_info *info, const uint8_t *data, size_t n)
{
    const int left = data[n / 2] * info->width >> 8, top = data[n / 3] * info->height >> 8;

    return (struct np_rect){left, top, left + 1 + (data[n / 5] * (info->width - left - 1) >> 8),
        top + 1 + (data[n / 7] * (info->height - top - 1) >> 8)};
}

/* Decodes; aborts if the pixels are wrong. Returns whether it was accepted. */
static bool check(struct np_jpeg *jpeg, const struct picture *whole, bool judged,
    const struct np_rect *need, int channels)
{
    struct np_pixels pixels;
    struct np_err err;

    if (np_jpeg_decode(jpeg, need, channels, &pixels, &err) != 0)
        return false;
    if (!judged || !equal(whole, need, &pixels))
        abort();
    return true;
}

/* Decodes a part from the entries that decoding the whole has just noted, then from wrong ones. */
static void check_entries(struct np_jpeg *jpeg, const struct picture *whole, const uint8_t *data,
    size_t n, const struct np_rect *need)
{
    const struct np_jpeg_entries *noted = np_jpeg_entries(jpeg);
    const int nr_rows = noted->nr_rows, nr = nr_rows * noted->per_row;
    struct np_jpeg_entry *at = malloc((size_t)nr * sizeof(*at) + 1);
    struct np_image_info info;
    struct np_pixels pixels;
    struct np_err err;

    memcpy(at, noted->at, (size_t)nr * sizeof(*at));
    for (int wrong = 0; wrong < 2 && nr > 0; wrong++) {
        if (!np_jpeg_open(jpeg, data, n, &info) || np_jpeg_set_entries(jpeg, at, nr_rows, &err) ||
            (np_jpeg_decode(jpeg, need, info.channels, &pixels, &err) != 0 && !wrong))
            abort();
        if (!wrong && !equal(whole, need, &pixels))
            abort();
        for (int i = 0; i < nr; i++)
            at[i].bit += (uint64_t)data[((size_t)i * 7 + 3) % n] << data[(size_t)i % n] % 40;
    }
    free(at);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static struct np_jpeg *decoders[NP_AVX512 + 1];
    struct np_image_info info;
    struct picture whole = {0};
    int accepted[2] = {0}, nr = 0;
    bool judged = false;

    for (int vectors = NP_SSE2; n > 0 && vectors <= NP_AVX512; vectors++) {
        if ((int)np_vectors_limit((enum np_vectors)vectors) != vectors)
            continue;
        if (!decoders[vectors]) {
            decoders[vectors] = np_jpeg_new(NULL);
            if (vectors == NP_SSE2)
                np_jpeg_use_plain(decoders[vectors]);
        }
        if (!np_jpeg_open(decoders[vectors], data, n, &info) ||
            (int64_t)info.width * info.height > MAX_PIXELS)
            break;
        if (nr++ == 0)
            judged = judge(data, n, &whole);
        const struct np_rect all = {0, 0, info.width, info.height}, part = part_of(&info, data, n);

        if (check(decoders[vectors], &whole, judged, &all, info.channels)) {
            accepted[0]++;
            check_entries(decoders[vectors], &whole, data, n, &part);
            np_jpeg_open(decoders[vectors], data, n, &info);
        }
        accepted[1] += check(decoders[vectors], &whole, judged, &part, info.channels);
    }
    if ((accepted[0] != 0 && accepted[0] != nr) || (accepted[1] != 0 && accepted[1] != nr))
        abort();
    free(whole.pixels);
    return 0;
}
