/* Sizes of pictures from their headers, and the file that keeps them (loader/lib/lib_sizes*.h, lib_header.h). */
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "loader/base/mem.h"
#include "loader/lib/lib.h"
#include "loader/lib/lib_header.h"
#include "loader/lib/lib_sizes.h"
#include "loader/lib/lib_sizes_file.h"
#include "loader/lib/lib_spread.h"
#include "loader/pixels/codec.h"
#include "tests/test.h"
#include "tests/unit/made_jpegs.h"
#include "tests/unit/made_sets.h"

enum { N = 300 };

/* --- headers ------------------------------------------------------------------------------------- */

static bool header_of(const uint8_t *bytes, size_t n, int32_t *width, int32_t *height)
{
    const int fd = memfd_create("picture", MFD_CLOEXEC);
    bool found;

    /* Amid a file of the same bytes: those behind it are not the picture's. */
    for (int i = 0; i < 3; i++)
        cr_assert(fd >= 0 && write(fd, bytes, n) == (ssize_t)n);
    found = np_header_size(fd, n, n, width, height);
    close(fd);
    return found;
}

/* What np_header_size() says is what a decoder says, if it opens the picture. Returns 1 if both have said it. */
static int compare(struct np_decoder *decoder, const struct made_file *file, int i)
{
    struct np_image_info info;
    int32_t width = 0, height = 0;
    const bool found = header_of(file->bytes, file->nr_bytes, &width, &height);

    if (np_decoder_open(decoder, file->bytes, file->nr_bytes, NULL, &info, NULL) < 0 || !found)
        return 0;
    cr_expect(width == info.width && height == info.height, "file %d: %d x %d, not %d x %d", i,
        width, height, info.width, info.height);
    return 1;
}

Test(lib_sizes, a_header_has_the_size_that_the_decoder_finds, .timeout = 120)
{
    struct np_decoder *decoder = NULL;
    int nr_whole = 0, nr_damaged = 0;

    cr_assert_eq(np_decoder_new(&decoder, NULL), 0);
    for (int i = 0; i < N; i++) {
        struct np_draws draws;
        struct made_jpeg made;
        struct made_file file, damaged;

        np_draws_init(&draws, 7, NP_STREAM_TEST, 0, (uint32_t)i, 0);
        made_any_jpeg(&draws, &made);
        file = made_any_file(&draws, &made);
        damaged = made_damaged_file(&draws, &file);
        nr_whole += compare(decoder, &file, i);
        nr_damaged += compare(decoder, &damaged, i);
        free(file.bytes);
        free(damaged.bytes);
    }
    cr_expect(nr_whole > N * 9 / 10, "%d of %d headers were read", nr_whole, N);
    cr_expect(nr_damaged > N / 10, "%d of %d damaged headers were read", nr_damaged, N);
    np_decoder_free(decoder);
}

/* Two segments of 60,000 bytes before the frame, of which only the heads are read. */
Test(lib_sizes, long_segments_are_passed_over, .timeout = 120)
{
    static uint8_t file[200000];
    static const uint8_t frame[] = {0xff, 0xc2, 0, 17, 8, 0x12, 0x34, 0x01, 0x02, 3};
    size_t at = 2;
    int32_t width = 0, height = 0;

    memcpy(file, "\xff\xd8", 2);
    for (int i = 0; i < 2; i++, at += 60002)
        memcpy(file + at, "\xff\xe1\xea\x60", 4);
    memcpy(file + at, frame, sizeof(frame));
    cr_expect(header_of(file, at + 9, &width, &height));
    cr_expect(width == 0x102 && height == 0x1234);
    cr_expect_not(header_of(file, at + 8, &width, &height), "the size is cut off");
    file[at + 5] = file[at + 6] = 0;
    cr_expect_not(header_of(file, at + 9, &width, &height), "no height: DNL has it");
    file[at] = 0;
    cr_expect_not(header_of(file, at + 9, &width, &height), "no marker");
}

Test(lib_sizes, png_and_unknown_headers, .timeout = 120)
{
    uint8_t png[33] = "\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\1\2\0\0\3\4";
    int32_t width = 0, height = 0;

    cr_expect(header_of(png, sizeof(png), &width, &height));
    cr_expect(width == 0x102 && height == 0x304);
    png[16] = 1; /* 2^24 columns */
    cr_expect_not(header_of(png, sizeof(png), &width, &height));
    cr_expect_not(header_of((const uint8_t *)"P6 10 10 255 ................", 28, &width, &height));
    cr_expect_not(header_of((const uint8_t *)"", 0, &width, &height));
}

/* --- the file ------------------------------------------------------------------------------------- */

static char *folder;

static void make(void)
{
    folder = make_set();
}

static void clear(void)
{
    remove_set(folder);
}

static void put_picture(const char *name, int width, int height)
{
    const struct made_jpeg made = {
        .width = width, .height = height, .components = 3, .h = 1, .v = 1, .quality = 70};
    size_t n;
    uint8_t *bytes = made_jpeg(&made, &n);

    put_file(folder, name, bytes, n);
    free(bytes);
}

/* The set of six files: two pictures, one as PPM, an empty file, one that is no picture, and a missing one. */
static struct nnp_data *six(void)
{
    static const char *const paths[] = {"1.jpg", "2.jpg", "3.ppm", "4.jpg", "5.jpg", "6.jpg"};
    static const int64_t labels[6];
    char error[1024] = "";
    struct nnp_data *data = nnp_data_files(folder, paths, labels, 6, NULL, 0, error, sizeof(error));

    cr_assert_not_null(data, "%s", error);
    return data;
}

/* Reads the sizes; widths[i] and heights[i] are those of sample i. Returns the headers read. */
static int read_sizes(int32_t widths[6], int32_t heights[6])
{
    struct nnp_data *data = six();
    struct np_sizes *sizes = NULL;
    struct np_err err = {0};
    int nr_read;

    cr_assert_eq(np_sizes_read(data->index, &sizes, &err), 0, "%s", err.text);
    for (uint64_t i = 0; i < 6; i++)
        np_sizes_get(sizes, data->index, i, &widths[i], &heights[i]);
    nr_read = (int)np_sizes_nr_read(sizes);
    np_sizes_free(sizes);
    nnp_data_free(data);
    return nr_read;
}

static void expect_sizes(int32_t width_2, int nr_read)
{
    int32_t widths[6], heights[6];

    cr_expect_eq(read_sizes(widths, heights), nr_read);
    cr_expect(widths[0] == 40 && heights[0] == 30);
    cr_expect(widths[1] == width_2 && heights[1] == 20);
    cr_expect(widths[2] == 2 && heights[2] == 1);
    for (int i = 3; i < 6; i++)
        cr_expect(widths[i] == 0 && heights[i] == 0);
}

static void put_six(void)
{
    put_picture("1.jpg", 40, 30);
    put_picture("2.jpg", 25, 20);
    put_file(folder, "3.ppm", "P6 2 1 255 abcdef", 17);
    put_file(folder, "4.jpg", "", 0);
    put_file(folder, "5.jpg", "a text", 6);
}

/* The name of the kept file below `folder`. */
static const char *kept(void)
{
    static char name[1024];
    char pattern[1024];
    glob_t found;

    snprintf(pattern, sizeof(pattern), "%s/cache/nnpipe/index/files.*.npidx", folder);
    cr_assert_eq(glob(pattern, 0, NULL, &found), 0);
    cr_assert_eq(found.gl_pathc, 1u);
    snprintf(name, sizeof(name), "%s", found.gl_pathv[0] + strlen(folder) + 1);
    globfree(&found);
    return name;
}

Test(lib_sizes, headers_are_read_once_and_again_where_a_file_has_changed, .init = make,
    .fini = clear, .timeout = 120)
{
    struct timespec times[2] = {{0, UTIME_OMIT}, {1000000000, 5}};
    char path[1100];

    put_six();
    expect_sizes(25, 5);
    expect_sizes(25, 0);
    put_picture("2.jpg", 26, 20); /* another size or time */
    expect_sizes(26, 1);
    snprintf(path, sizeof(path), "%s/1.jpg", folder);
    cr_assert_eq(utimensat(AT_FDCWD, path, times, 0), 0);
    expect_sizes(26, 1);
    expect_sizes(26, 0);
}

Test(lib_sizes, a_damaged_or_foreign_file_is_made_anew, .init = make, .fini = clear, .timeout = 120)
{
    uint8_t *bytes;
    size_t n;

    put_six();
    expect_sizes(25, 5);
    bytes = get_file(folder, kept(), &n);
    cr_assert_eq(n, sizeof(struct np_sizes_header) + 6 * sizeof(struct np_size));
    for (size_t at = 0; at < n; at += 3) { /* in its header and its sizes */
        bytes[at] ^= 4;
        put_file(folder, kept(), bytes, n);
        bytes[at] ^= 4;
        expect_sizes(25, 5);
    }
    put_file(folder, kept(), bytes, n - 1);
    expect_sizes(25, 5);
    put_file(folder, kept(), bytes, 3);
    expect_sizes(25, 5);
    expect_sizes(25, 0);
    free(bytes);
}

/* Two pictures, a text, and a picture that ends within its header. */
Test(lib_sizes, of_parts_of_files_the_headers_alone_are_read, .init = make, .fini = clear,
    .timeout = 120)
{
    char path[1100], error[1024] = "";
    const char *const paths[] = {path};
    static const int64_t labels[4];
    struct nnp_extent parts[4] = {{0}};
    struct np_sizes *sizes = NULL;
    struct nnp_data *data;
    uint8_t *first, *second, *whole;
    size_t n, m;

    put_six();
    first = get_file(folder, "1.jpg", &n);
    second = get_file(folder, "2.jpg", &m);
    whole = calloc(n + m, 2);
    cr_assert_not_null(whole);
    memcpy(whole, first, n);
    memcpy(whole + n, second, m);
    memcpy(whole + n + m, first, n);
    put_file(folder, "all", whole, 2 * (n + m));
    snprintf(path, sizeof(path), "%s/all", folder);
    parts[0].bytes = n;
    parts[1] = (struct nnp_extent){0, n, m};
    parts[2] = (struct nnp_extent){0, 2 * n + m, m};
    parts[3] = (struct nnp_extent){0, n + m, 30};
    data = nnp_data_extents(paths, 1, parts, labels, 4, error, sizeof(error));
    cr_assert_not_null(data, "%s", error);
    cr_assert_eq(np_sizes_read(data->index, &sizes, NULL), 0);
    for (uint64_t i = 0; i < 4; i++) {
        int32_t width, height;

        np_sizes_get(sizes, data->index, i, &width, &height);
        cr_expect_eq(width, i == 0 ? 40 : i == 1 ? 25 : 0, "part %d", (int)i);
        cr_expect_eq(height, i == 0 ? 30 : i == 1 ? 20 : 0, "part %d", (int)i);
    }
    cr_expect_eq(np_sizes_nr_read(sizes), 2u);
    np_sizes_free(sizes);
    nnp_data_free(data);
    free(first);
    free(second);
    free(whole);
}

Test(lib_sizes, without_a_cache_folder_headers_are_read_each_time, .init = make, .fini = clear,
    .timeout = 120)
{
    put_six();
    setenv("XDG_CACHE_HOME", "/dev/null", 1);
    expect_sizes(25, 5);
    expect_sizes(25, 5);
}

/* --- threads -------------------------------------------------------------------------------------- */

struct tally {
    _Atomic int seen[5000];
    uint64_t fails_at;
};

static int tally(void *context, uint64_t first, uint64_t end, struct np_err *err)
{
    struct tally *tally = context;

    for (uint64_t i = first; i < end; i++) {
        if (i == tally->fails_at)
            return np_err_set(err, -ENOMEM, "item %d", (int)i);
        tally->seen[i]++;
    }
    return 0;
}

Test(lib_sizes, work_that_is_spread_does_each_item_once_or_reports_its_error, .timeout = 120)
{
    static const uint64_t sizes[] = {0, 1, 127, 128, 129, 5000};

    for (size_t s = 0; s < sizeof(sizes) / sizeof(*sizes); s++) {
        static struct tally all;
        struct np_err err = {0};

        memset(&all, 0, sizeof(all));
        all.fails_at = UINT64_MAX;
        cr_expect_eq(np_spread(sizes[s], tally, &all, &err), 0);
        for (uint64_t i = 0; i < 5000; i++)
            cr_assert_eq(all.seen[i], i < sizes[s]);
        all.fails_at = sizes[s] / 2;
        cr_expect_eq(np_spread(sizes[s], tally, &all, &err), sizes[s] ? -ENOMEM : 0);
        cr_expect_eq(err.code, sizes[s] ? -ENOMEM : 0);
    }
}
