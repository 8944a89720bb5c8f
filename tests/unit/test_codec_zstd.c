/* One zstd frame into memory. */
#include <errno.h>
#include <string.h>

#include <zstd.h>

#include "loader/pixels/codec.h"
#include "tests/test.h"

Test(unzstd, a_frame_is_unpacked_and_the_rest_is_left)
{
    struct np_unzstd *unzstd = np_unzstd_new(NULL);
    char text[1000], frame[2000], out[1000];
    size_t n, got;

    for (int i = 0; i < 1000; i++)
        text[i] = (char)(i * i);
    n = ZSTD_compress(frame, sizeof(frame), text, sizeof(text), 3);
    memset(frame + n, 'x', 100);
    cr_assert_eq(np_unzstd_frame(unzstd, frame, n + 100, out, sizeof(out), &got, NULL), 0);
    cr_assert_eq(got, sizeof(text));
    cr_assert_arr_eq(out, text, sizeof(text));
    np_unzstd_free(unzstd);
}

Test(unzstd, a_truncated_damaged_or_too_large_frame_is_bad)
{
    struct np_unzstd *unzstd = np_unzstd_new(NULL);
    char text[1000] = "abc", frame[2000], out[1000];
    struct np_err err = {0};
    size_t n = ZSTD_compress(frame, sizeof(frame), text, sizeof(text), 3), got = 77;

    cr_assert_eq(np_unzstd_frame(unzstd, frame, n - 1, out, sizeof(out), &got, &err), -EBADMSG);
    cr_assert(strstr(err.text, "bad zstd frame"));
    cr_assert_eq(np_unzstd_frame(unzstd, frame, n, out, 999, &got, NULL), -EBADMSG);
    cr_assert_eq(np_unzstd_frame(unzstd, frame, 0, out, 999, &got, NULL), -EBADMSG);
    frame[0] ^= 1;
    cr_assert_eq(np_unzstd_frame(unzstd, frame, n, out, sizeof(out), &got, NULL), -EBADMSG);
    cr_assert_eq(got, 77);
    np_unzstd_free(unzstd);
    np_unzstd_free(NULL);
}
