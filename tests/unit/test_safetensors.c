/* safetensors: round trip, a real file, and hostile ones. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "loader/base/mem.h"
#include "tests/test.h"
#include "trainer/checkpoint/safetensors.h"

static int open_bytes(const void *bytes, size_t n, struct np_st_file **ret_file, struct np_err *err)
{
    char path[40];
    const int fd = memfd_create("x", MFD_CLOEXEC);

    cr_assert(fd >= 0 && write(fd, bytes, n) == (ssize_t)n);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    const int code = np_st_open(path, ret_file, err);
    close(fd);
    return code;
}

/* A file in memory: header text and data; NULL when it is refused (the reason in why). */
static char why[1024];
static struct np_st_file *parse(const char *header, const void *data, size_t data_bytes)
{
    static uint8_t bytes[4096];
    struct np_st_file *file = NULL;
    struct np_err err = {0};
    size_t length = strlen(header);

    memset(bytes, 0, 8);
    bytes[0] = (uint8_t)length;
    bytes[1] = (uint8_t)(length >> 8);
    memcpy(bytes + 8, header, length);
    if (data_bytes > 0)
        memcpy(bytes + 8 + length, data, data_bytes);
    why[0] = '\0';
    if (open_bytes(bytes, 8 + length + data_bytes, &file, &err) < 0)
        snprintf(why, sizeof(why), "%s", err.code == -EBADMSG ? err.text : "another code");
    return file;
}

/* Refused, with this in the reason? */
static bool refuses(const char *header, size_t data_bytes, const char *reason)
{
    static const char zeros[256];
    struct np_st_file *file = parse(header, zeros, data_bytes);
    bool right = file == NULL && strstr(why, reason) != NULL;

    if (!right)
        fprintf(stderr, "%s: %s\n", header, file ? "was taken" : why);
    np_st_close(file);
    return right;
}

Test(safetensors, tensors_come_in_the_order_of_their_bytes)
{
    float data[3] = {1, 2, 3}, back[2];
    struct np_st_file *file =
        parse("{\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]},"
              "\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]},"
              "\"__metadata__\":{\"format\":\"pt\"}}   ",
            data, sizeof(data));
    cr_assert_not_null(file);
    cr_assert_eq(file->n, 2);
    cr_assert_str_eq(file->tensors[0].name, "a");
    cr_assert_eq(file->tensors[0].nr_dims, 0);
    cr_assert_eq(file->tensors[1].dims[0], 2);
    cr_assert_eq(np_st_read(file, np_st_find(file, "b"), 0, back, 8, NULL), 0);
    cr_assert_eq(memcmp(back, data + 1, 8), 0);
    cr_assert_null(np_st_find(file, "c"));
    cr_assert_null(np_st_find(file, "__metadata__"));
    np_st_close(file);
}

Test(safetensors, an_empty_set_is_a_file)
{
    struct np_st_file *file = parse("{}", NULL, 0);
    cr_assert_not_null(file);
    cr_assert_eq(file->n, 0);
    cr_assert_null(np_st_find(file, ""));
    np_st_close(file);
}

#define ONE(dtype, shape, offsets)                                                                 \
    "{\"w\":{\"dtype\":" dtype ",\"shape\":" shape ",\"data_offsets\":" offsets "}}"
#define TWO(a, b)                                                                                  \
    "{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":" a "},"                              \
    "\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":" b "}}"

Test(safetensors, hostile_headers_are_refused_with_the_reason)
{
    cr_assert(refuses(ONE("\"F32\"", "[2]", "[0,8]"), 7, "truncated"));
    cr_assert(refuses(ONE("\"F32\"", "[2]", "[0,8]"), 9, "1 bytes after the last tensor"));
    cr_assert(refuses(ONE("\"F32\"", "[3]", "[0,8]"), 8, "do not match its 8 bytes"));
    cr_assert(refuses(ONE("\"F33\"", "[2]", "[0,8]"), 8, "dtype F33"));
    cr_assert(refuses(ONE("7", "[2]", "[0,8]"), 8, "dtype is missing"));
    cr_assert(refuses(ONE("\"F32\"", "[-2]", "[0,8]"), 8, "impossible"));
    cr_assert(refuses(ONE("\"F32\"", "[2.0]", "[0,8]"), 8, "impossible"));
    cr_assert(refuses(ONE("\"F32\"", "2", "[0,8]"), 8, "is not a list"));
    cr_assert(refuses(ONE("\"F32\"", "[1,1,1,1,1,1,1,1,2]", "[0,8]"), 8, "is not a list"));
    cr_assert(refuses(ONE("\"F32\"", "[2]", "[8,0]"), 8, "[begin, end]"));
    cr_assert(refuses(ONE("\"F32\"", "[2]", "[0]"), 8, "[begin, end]"));
    cr_assert(refuses(ONE("\"F32\"", "[2]", "[-8,0]"), 8, "[begin, end]"));
    cr_assert(refuses(ONE("\"F32\"", "[2]", "[0,9223372036854775807]"), 8, "truncated"));
    cr_assert(refuses(ONE("\"F32\"", "[2]", "[0,18446744073709551616]"), 8, "too big integer"));
    /* 2^62 * 4 elements of 4 bytes wrap around to nothing */
    cr_assert(refuses(ONE("\"F32\"", "[4611686018427387904,4]", "[0,0]"), 0, "impossible"));
    cr_assert(
        refuses(ONE("\"F32\"", "[4611686018427387904]", "[0,0]"), 0, "do not match its 0 bytes"));
    cr_assert(refuses("{\"w\":7}", 8, "w: dtype"));
    cr_assert(refuses("{\"w\":", 8, "damaged"));
    cr_assert(refuses("[1]", 0, "not a safetensors file"));
    cr_assert(refuses("{\"__metadata__\":{\"a\":1}}", 0, "a is not text"));
    cr_assert(refuses("{\"__metadata__\":[]}", 0, "is not a mapping"));
    cr_assert(refuses("{\"a\\u0000b\":{}}", 0, "damaged"));
    cr_assert(refuses("{\"a\":{},\"a\":{}}", 0, "damaged"));
}

Test(safetensors, overlaps_and_gaps_are_refused)
{
    struct np_st_file *file = parse(TWO("[4,8]", "[0,4]"), "abcdefgh", 8);
    cr_assert_not_null(file);
    np_st_close(file);
    cr_assert(refuses(TWO("[0,4]", "[2,6]"), 6, "overlap"));
    cr_assert(refuses(TWO("[0,4]", "[0,4]"), 4, "overlap"));
    cr_assert(refuses(TWO("[0,4]", "[5,9]"), 9, "gap"));
    cr_assert(refuses(TWO("[1,5]", "[5,9]"), 9, "gap"));
}

Test(safetensors, wrong_lengths_are_refused)
{
    uint8_t bytes[16] = {0};
    struct np_st_file *file = NULL;
    static const uint64_t lengths[] = {0, 1, 9, 100000001, UINT64_MAX, UINT64_MAX - 7};

    for (uint64_t n = 0; n < 8; n++)
        cr_assert_eq(open_bytes(bytes, n, &file, NULL), -EBADMSG);
    bytes[8] = '{';
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        memcpy(bytes, &lengths[i], 8);
        cr_assert_eq(open_bytes(bytes, sizeof(bytes), &file, NULL), -EBADMSG);
    }
    cr_assert_null(file);
}

Test(safetensors, deep_json_is_refused)
{
    static char header[3000];
    memset(header, '[', sizeof(header) - 1);
    header[0] = '{';
    memcpy(header + 1, "\"a\":", 4);
    cr_assert(refuses(header, 0, "damaged"));
}

Test(safetensors, every_cut_of_a_good_file_is_refused)
{
    static const char header[] = ONE("\"F32\"", "[2]", "[0,8]") "  ";
    uint8_t bytes[8 + sizeof(header) - 1 + 8] = {sizeof(header) - 1};
    struct np_st_file *file = NULL;

    memcpy(bytes + 8, header, sizeof(header) - 1);
    cr_assert_eq(open_bytes(bytes, sizeof(bytes), &file, NULL), 0);
    np_st_close(file);
    for (size_t n = 0; n < sizeof(bytes); n++)
        cr_assert_eq(open_bytes(bytes, n, &file, NULL), -EBADMSG);
}

Test(safetensors, missing_and_odd_files_are_named)
{
    struct np_st_file *file = NULL;
    struct np_err err = {0};
    cr_assert_eq(np_st_open("/nonexistent/x", &file, &err), -ENOENT);
    cr_assert_not_null(strstr(err.text, "/nonexistent/x"));
    cr_assert_eq(np_st_open("/", &file, NULL), -EINVAL);
}

static const char *temporary(void)
{
    static char path[64];
    snprintf(path, sizeof(path), "/tmp/nnpipe-st-%d", (int)getpid());
    return path;
}

Test(safetensors, a_written_file_reads_back)
{
    float w[6] = {1, -2, 3, 4.5f, 5, 6}, b = 7;
    int64_t steps = 12345678901;
    struct np_st_tensor tensors[] = {
        {"w\"\\\xc3\xa9", "F32", {2, 3}, 2, w, sizeof(w), 0, false, {0}},
        {"b", "F32", {1}, 1, &b, sizeof(b), 0, false, {0}},
        {"steps", "I64", {0}, 0, &steps, 8, 0, false, {0}},
        {"none", "F32", {0, 4}, 2, NULL, 0, 0, false, {0}}};
    struct np_st_file *file = NULL;
    struct np_err err = {0};
    struct np_io io = {0};
    uint64_t bytes, xxh3, there, hash;
    char back[24], *text = NULL;

    cr_assert_eq(np_io_open(&io, "pread", 1, &err), 0);
    cr_assert_eq(np_st_write(&io, temporary(), tensors, 4, &bytes, &xxh3, &err), 0);
    cr_assert_eq(np_st_open(temporary(), &file, &err), 0);
    cr_assert_eq(np_read_file(temporary(), 1 << 16, &text, &there, NULL), 0);
    cr_assert_not_null(strstr(text + 8, "{\"__metadata__\":{\"format\":\"pt\""));
    np_free(text);
    unlink(temporary());
    cr_assert_eq(np_st_hash(file, &hash, NULL), 0);
    cr_assert_eq(there, bytes);
    cr_assert_eq(hash, xxh3);
    cr_assert_eq(file->n, 4);
    const struct np_st_tensor *tensor = np_st_find(file, tensors[0].name);
    cr_assert_not_null(tensor);
    cr_assert(tensor->nr_dims == 2 && tensor->dims[0] == 2 && tensor->dims[1] == 3);
    cr_assert_eq(np_st_read(file, tensor, 0, back, sizeof(w), NULL), 0);
    cr_assert_eq(memcmp(back, w, sizeof(w)), 0);
    cr_assert_eq(np_st_read(file, tensor, 8, back, 4, NULL), 0);
    cr_assert_eq(memcmp(back, w + 2, 4), 0);
    tensor = np_st_find(file, "steps");
    cr_assert_eq(tensor->offset % 8, 0); /* before the smaller ones, so aligned */
    cr_assert_eq(np_st_read(file, tensor, 0, back, 8, NULL), 0);
    cr_assert_eq(memcmp(back, &steps, 8), 0);
    cr_assert_eq(np_st_find(file, "none")->bytes, 0);
    np_st_close(file);
    np_io_close(&io);
}

/* As on a network's disk: another machine rewrites the file while it is open here. */
Test(safetensors, a_file_cut_short_while_it_is_open_is_an_error_of_the_read)
{
    static float w[5000] = {1};
    struct np_st_tensor tensor = {"w", "F32", {5000}, 1, w, sizeof(w), 0, false, {0}};
    struct np_st_file *file = NULL;
    struct np_err err = {0};
    struct np_io io = {0};
    uint64_t hash;

    cr_assert_eq(np_io_open(&io, "pread", 1, NULL), 0);
    cr_assert_eq(np_st_write(&io, temporary(), &tensor, 1, NULL, NULL, NULL), 0);
    cr_assert_eq(np_st_open(temporary(), &file, NULL), 0);
    cr_assert_eq(truncate(temporary(), 9000), 0);
    cr_assert_eq(np_st_read(file, &file->tensors[0], 0, w, sizeof(w), &err), -EBADMSG);
    cr_assert_not_null(strstr(err.text, "truncated: it ends at byte 9000"));
    err = (struct np_err){0};
    cr_assert_eq(np_st_hash(file, &hash, &err), -EBADMSG);
    cr_assert_not_null(strstr(err.text, temporary()));
    cr_assert_eq(np_st_read(file, &file->tensors[0], 0, w, 4000, NULL), 0);
    unlink(temporary());
    np_st_close(file);
    np_io_close(&io);
}

Test(safetensors, a_folder_that_is_not_there_and_a_full_disk_are_errors)
{
    float w[1000] = {0};
    struct np_st_tensor tensor = {"w", "F32", {1000}, 1, w, sizeof(w), 0, false, {0}};
    struct np_err err = {0};
    struct np_io io = {0};

    cr_assert_eq(np_io_open(&io, "pread", 1, &err), 0);
    cr_assert_eq(np_st_write(&io, "/nonexistent/x", &tensor, 1, NULL, NULL, &err), -ENOENT);
    cr_assert_not_null(strstr(err.text, "/nonexistent/x"));
    err = (struct np_err){0};
    cr_assert_eq(np_st_write(&io, "/dev/full", &tensor, 1, NULL, NULL, &err), -ENOSPC);
    cr_assert_not_null(strstr(err.text, "/dev/full"));
    np_io_close(&io);
}

Test(safetensors, a_name_that_is_no_utf8_cannot_be_written)
{
    float w = 0;
    struct np_st_tensor tensor = {"\xff", "F32", {1}, 1, &w, sizeof(w), 0, false, {0}};
    struct np_io io = {0};
    cr_assert_eq(np_io_open(&io, "pread", 1, NULL), 0);
    cr_assert_lt(np_st_write(&io, temporary(), &tensor, 1, NULL, NULL, NULL), 0);
    np_io_close(&io);
}

Test(safetensors, a_file_of_another_writer_lists_its_tensors)
{
    const char *data = getenv("NNPIPE_DATA");
    char path[512];
    struct np_st_file *file = NULL;
    struct np_err err = {0};

    if (data == NULL || *data == 0)
        cr_skip_test("NNPIPE_DATA is not set");
    snprintf(path, sizeof(path), "%s/conformance/safetensors/mnist.safetensors", data);
    cr_assert_eq(np_st_open(path, &file, &err), 0);
    cr_assert_eq(file->n, 20);
    const struct np_st_tensor *tensor = np_st_find(file, "fc1.weight");
    cr_assert(tensor->nr_dims == 2 && tensor->dims[0] == 32 && tensor->dims[1] == 11616);
    cr_assert_str_eq(tensor->dtype, "F32");
    cr_assert_eq(tensor->bytes, 4u * 32 * 11616);
    cr_assert_eq(np_st_find(file, "norm1.num_batches_tracked")->nr_dims, 0);
    np_st_close(file);
}
