/* The backend `http` against a server in this process: what becomes one request, what waits for what, a stop, and
 * memory that is out. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "loader/base/clock.h"
#include "loader/base/io.h"
#include "loader/base/mem.h"
#include "loader/base/remote.h"
#include "loader/remote/remote_http.h"
#include "tests/test.h"
#include "tests/unit/made_memory.h"
#include "tests/unit/made_server.h"

#define BYTES 1000000

static uint8_t byte_at(uint64_t at)
{
    return (uint8_t)(at * 2654435761u >> 13);
}

static struct made_server server;
static int nr_ranges, hang; /* atomic; nr_ranges: requests for more than the first byte */

/* An object of BYTES bytes. */
static bool answer(int fd, const char *request)
{
    unsigned long long first, last;
    char head[300];
    uint8_t *body;
    bool sent;

    sscanf(strstr(request, "Range: bytes="), "Range: bytes=%llu-%llu", &first, &last);
    if (last > 0) {
        __atomic_fetch_add(&nr_ranges, 1, __ATOMIC_RELAXED);
        while (__atomic_load_n(&hang, __ATOMIC_RELAXED))
            usleep(1000);
    }
    sprintf(head,
        "HTTP/1.1 206 X\r\nETag: \"a\"\r\nContent-Range: bytes %llu-%llu/%d\r\nContent-Length: "
        "%llu\r\n\r\n",
        first, last, BYTES, last - first + 1);
    body = malloc(last - first + 1);
    for (unsigned long long i = first; i <= last; i++)
        body[i - first] = byte_at(i);
    sent = made_server_send(fd, head, strlen(head), BYTES) &&
           made_server_send(fd, body, last - first + 1, BYTES);
    free(body);
    return sent;
}

/* The object's handle. */
static int start_server(void)
{
    char url[64];
    int file;

    made_server_start(&server, answer);
    np_remote_use(&np_remote_http);
    snprintf(url, sizeof(url), "http://127.0.0.1:%d/a.tar", server.port);
    cr_assert_eq(np_remote()->open(url, &file, NULL), 0);
    cr_assert(np_is_remote(file));
    return file;
}

static bool is_right(const struct np_io_read *read)
{
    for (int32_t i = 0; i < read->result; i++)
        if (((const uint8_t *)read->buffer)[i] != byte_at(read->offset + (uint64_t)i))
            return false;
    return read->result >= 0;
}

static int read_all(struct np_io *io, struct np_io_read *reads, int nr)
{
    for (int i = 0; i < nr; i++)
        cr_assert_eq(np_io_submit(io, &reads[i]), 0);
    int nr_right = 0;
    for (int i = 0; i < nr; i++)
        nr_right += is_right(np_io_reap(io, true));
    return nr_right;
}

Test(io_http, neighbours_are_one_request, .timeout = 120)
{
    const struct np_remote_session session = {.limit_ns = 10000000000u};
    struct np_io_read reads[6];
    static uint8_t buffers[6][20000];
    static const uint64_t offsets[] = {40000, 0, 20000, 500000, 500100, 999000};
    const int file = start_server(), before = nr_ranges; /* tests may share a process */
    struct np_io io;

    for (int i = 0; i < 6; i++)
        reads[i] = (struct np_io_read){.fd = file,
            .offset = offsets[i],
            .bytes = 20000,
            .buffer = buffers[i],
            .owner = &reads[i]};
    cr_assert_eq(np_io_http_open(&io, "pread", 6, &session, NULL), 0);
    cr_assert_eq(read_all(&io, reads, 6), 6);
    cr_expect_eq(nr_ranges - before,
        3); /* 0 to 60000; 500000 to 520100, of which most is read twice; the end */
    cr_expect_eq(reads[5].result, 1000);
    reads[0].offset = BYTES;
    cr_assert_eq(read_all(&io, reads, 1), 1);
    cr_expect_eq(reads[0].result, 0);
    cr_expect_eq(nr_ranges - before, 3);
    np_io_close(&io);
}

Test(io_http, local_files_are_read_beside_objects, .timeout = 120)
{
    const struct np_remote_session session = {.limit_ns = 10000000000u};
    static const char *const backends[] = {"pread", "auto"};
    static uint8_t far[1000], near[1000];
    const int file = start_server();
    char name[] = "/tmp/nnpipe-io-http.XXXXXX";
    const int fd = mkstemp(name);

    unlink(name);
    for (int i = 0; i < 1000; i++)
        cr_assert_eq(write(fd, &(uint8_t){byte_at((uint64_t)i)}, 1), 1);
    for (int b = 0; b < 2; b++) {
        struct np_io_read reads[2] = {
            {.fd = file, .bytes = 1000, .buffer = far}, {.fd = fd, .bytes = 1000, .buffer = near}};
        struct np_io io;

        cr_assert_eq(np_io_http_open(&io, backends[b], 2, &session, NULL), 0);
        posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        cr_assert_eq(read_all(&io, reads, 2), 2);
        np_io_close(&io);
    }
    close(fd);
}

Test(io_http, a_stop_ends_reads_that_hang, .timeout = 120)
{
    struct np_remote_session session = {.limit_ns = 1000000000000u};
    static uint8_t buffer[100];
    const int file = start_server();
    struct np_io_read read = {.fd = file, .bytes = 100, .buffer = buffer};
    struct np_io io;

    hang = 1;
    cr_assert_eq(np_io_http_open(&io, "pread", 1, &session, NULL), 0);
    cr_assert_eq(np_io_submit(&io, &read), 0);
    cr_expect_null(np_io_reap(&io, false));
    __atomic_store_n(&session.stopped, 1, __ATOMIC_RELAXED);
    cr_assert_eq(np_io_reap(&io, true), &read);
    cr_expect_eq(read.result, -ECANCELED);
    cr_assert_eq(np_io_submit(&io, &read), 0); /* a retry ends at once, too */
    cr_assert_eq(np_io_reap(&io, true), &read);
    cr_expect_eq(read.result, -ECANCELED);
    hang = 0;
    np_io_close(&io);
}

Test(io_http, the_time_of_a_read_is_limited, .timeout = 120)
{
    const struct np_remote_session session = {.limit_ns = 300000000};
    static uint8_t buffer[100];
    const int file = start_server();
    struct np_io_read read = {.fd = file, .bytes = 100, .buffer = buffer};
    struct np_io io;

    made_server_refuse(&server);
    cr_assert_eq(np_io_http_open(&io, "pread", 1, &session, NULL), 0);
    cr_assert_eq(np_io_submit(&io, &read), 0);
    cr_assert_eq(np_io_reap(&io, true), &read);
    cr_expect_eq(read.result, -ETIMEDOUT);
    cr_expect(read.why && strstr(read.why, "given up after") && strstr(read.why, "a.tar"), "%s",
        read.why);
    np_io_close(&io);
}

Test(io_http, each_lack_of_memory_is_an_error, .timeout = 120)
{
    const struct np_remote_session session = {.limit_ns = 10000000000u};
    static uint8_t buffer[1000];
    const int file = start_server();
    bool failed = true;

    for (int n = 1; failed; n++) {
        struct np_io_read read = {.fd = file, .bytes = 1000, .buffer = buffer};
        struct np_io io;
        int code;

        made_memory_fail(n);
        code = np_io_http_open(&io, "pread", 4, &session, NULL);
        failed = made_memory_failed();
        made_memory_fail(0);
        cr_assert_eq(code, failed ? -ENOMEM : 0);
        if (code == 0) {
            cr_assert_eq(read_all(&io, &read, 1), 1);
            np_io_close(&io);
        }
    }
    for (int n = 1; n < 40; n++) {
        int64_t got;

        made_memory_fail(n);
        got = np_file_read(file, 1000, buffer, 1000, NULL);
        made_memory_fail(0);
        cr_assert(got == 1000 || got == -ENOMEM, "%lld", (long long)got);
    }
}
