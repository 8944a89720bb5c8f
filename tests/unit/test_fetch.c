/* Samples read one by one, and the faults found in them. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "loader/base/crc32c.h"
#include "loader/pack/fetch.h"
#include "tests/test.h"
#include "tests/unit/made_sets.h"

Test(fetch, finds_wrong_crcs_short_and_missing_files)
{
    char *folder = make_set(), path[1024];
    struct np_index *index;
    struct np_fetch *fetch;
    const uint8_t *bytes;
    struct np_err err = {0};
    uint32_t n;

    put_file(folder, "set/a/1.jpg", "one", 3);
    put_file(folder, "set/a/2.jpg", "two", 3);
    put_file(folder, "set/a/3.jpg", "", 0);
    cr_assert_eq(open_set(folder, "folder", "set", NULL, NULL, &index, NULL), 0);
    cr_assert_eq(np_fetch_open(index, &fetch, NULL), 0);
    cr_assert_eq(np_fetch_get(fetch, 1, &bytes, &n, NULL), 0);
    cr_assert(n == 3 && memcmp(bytes, "two", 3) == 0);
    np_index_set_crc(index, 0, np_crc32c(0, "one", 3));
    cr_assert_eq(np_fetch_get(fetch, 0, &bytes, &n, NULL), 0);
    np_index_set_crc(index, 1, 1234);
    cr_assert_eq(np_fetch_get(fetch, 1, &bytes, &n, &err), -EBADMSG);
    cr_assert_not_null(strstr(err.text, "wrong checksum"));
    err.code = 0;
    cr_assert_eq(np_fetch_get(fetch, 2, &bytes, &n, &err), -EBADMSG);
    cr_assert_str_eq(err.text, "is empty");
    put_file(folder, "set/a/1.jpg", "on", 2);
    err.code = 0;
    cr_assert_eq(
        np_fetch_get(fetch, 0, &bytes, &n, &err), 0); /* as it is now, whatever its CRC was */
    cr_assert(n == 2 && memcmp(bytes, "on", 2) == 0);
    snprintf(path, sizeof(path), "%s/set/a/1.jpg", folder);
    unlink(path);
    err.code = 0;
    np_fetch_close(fetch);
    cr_assert_eq(np_fetch_open(index, &fetch, NULL), 0);
    cr_assert_eq(np_fetch_get(fetch, 0, &bytes, &n, &err), -EBADMSG);
    cr_assert_str_eq(err.text, "cannot be opened: No such file or directory");
    np_fetch_close(fetch);
    np_index_free(index);
    remove_set(folder);
}
