/* Reading through every backend: the same bytes, whatever the cache, the end of the file and
 * a kernel without io_uring do. */
#include <errno.h>
#include <dirent.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "loader/base/io.h"
#include "loader/base/mem.h"
#include "loader/base/rng.h"

#include "tests/test.h"

enum { FILE_BYTES = 3 << 20, DEPTH = 8 };

static const char *const names[] = {"uring", "pread", "auto"};

/* A file of known bytes, unlinked already. */
static int make_file(uint64_t bytes, bool cold)
{
    char path[] = "/var/tmp/np_test_io.XXXXXX";
    int fd = mkostemp(path, O_CLOEXEC);
    uint32_t *words = malloc(bytes + 4);

    unlink(path);
    for (uint64_t i = 0; i < (bytes + 3) / 4; i++)
        words[i] = (uint32_t)(i * 2654435761u);
    if (write(fd, words, bytes) != (ssize_t)bytes)
        abort();
    free(words);
    if (cold) {
        fsync(fd);
        posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    }
    return fd;
}

static bool is_right(const struct np_io_read *read)
{
    const unsigned char *bytes = read->buffer;

    for (int32_t i = 0; i < read->result; i++) {
        uint64_t at = read->offset + (uint64_t)i;
        uint32_t word = (uint32_t)(at / 4 * 2654435761u);

        if (bytes[i] != (word >> at % 4 * 8 & 255))
            return false;
    }
    return true;
}

static int32_t should_give(const struct np_io_read *read)
{
    uint64_t left = read->offset < FILE_BYTES ? FILE_BYTES - read->offset : 0;

    return (int32_t)(left < read->bytes ? left : read->bytes);
}

/* 400 random reads, DEPTH in flight, some at and past the end; how many were wrong. */
static int read_at_random(struct np_io *io, int fd)
{
    struct np_io_read reads[DEPTH];
    struct np_draws draws;
    int wrong = 0, started = 0, ended = 0;

    np_draws_init(&draws, 1, NP_STREAM_TEST, 0, 0, 0);
    for (int i = 0; i < DEPTH; i++)
        reads[i] = (struct np_io_read){.fd = fd, .buffer = malloc(200000), .owner = io};
    for (; ended < 400; ended++) {
        struct np_io_read *read;

        for (; started < 400 && started - ended < DEPTH; started++) {
            read = started < DEPTH ? &reads[started] : reads[started % DEPTH].owner;
            read->offset = np_draw_below(&draws, FILE_BYTES + 5000);
            read->bytes = np_draw_below(&draws, 200000);
            wrong += np_io_submit(io, read) != 0;
        }
        read = np_io_reap(io, true);
        wrong += !read || read->result != should_give(read) || !is_right(read);
        reads[ended % DEPTH].owner = read; /* the next to start */
    }
    wrong += np_io_reap(io, true) != NULL || np_io_reap(io, false) != NULL || io->nr_in_flight;
    for (int i = 0; i < DEPTH; i++)
        free(reads[i].buffer);
    return wrong;
}

Test(io, every_backend_reads_the_same_bytes_warm_and_cold, .timeout = 120)
{
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        for (int cold = 0; cold <= 1; cold++) {
            int fd = make_file(FILE_BYTES, cold);
            struct np_io io;
            struct np_err err = {0};

            cr_assert_eq(np_io_open(&io, names[i], DEPTH, &err), 0, "%s", err.text);
            cr_assert_eq(read_at_random(&io, fd), 0, "%s", names[i]);
            cr_assert_eq(io.nr_reads, 400u);
            cr_assert(cold || io.nr_cached > 300);
            np_io_close(&io);
            close(fd);
        }
}

Test(io, the_backend_alone_reads_the_same_bytes, .timeout = 120)
{
    const struct np_io_ops *const tables[] = {&np_io_uring, &np_io_pread};

    for (int i = 0; i < 2; i++) {
        struct np_io_ops blind = *tables[i]; /* nothing comes from the page cache's probe */
        int fd = make_file(FILE_BYTES, i == 0);
        struct np_io io;

        blind.no_cache_probe = true;
        cr_assert_eq(np_io_open(&io, blind.name, DEPTH, NULL), 0);
        io.ops = &blind;
        cr_assert_eq(read_at_random(&io, fd), 0, "%s", blind.name);
        np_io_close(&io);
        close(fd);
    }
}

/* The bytes at offsets and of lengths that O_DIRECT does not allow, as far as the file goes. */
Test(io, widened_reads_pass_the_page_cache, .timeout = 120)
{
    static const uint64_t offsets[] = {0, 1, 4096, 5000, FILE_BYTES - 4096, FILE_BYTES - 700};
    static unsigned char memory[12 * NP_IO_BLOCK] __attribute__((aligned(NP_IO_BLOCK)));
    int fd = make_file(FILE_BYTES - 100, false), direct;
    char link[40];
    struct np_io io;

    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    direct = open(link, O_RDONLY | O_DIRECT | O_CLOEXEC);
    if (direct < 0)
        cr_skip_test("/var/tmp has no O_DIRECT");
    fsync(fd);
    cr_assert_eq(np_io_open(&io, "uring", 2, NULL), 0);
    for (size_t i = 0; i < sizeof(offsets) / sizeof(*offsets); i++) {
        unsigned char *place = memory + NP_IO_BLOCK + offsets[i] % NP_IO_BLOCK;
        struct np_io_read read = {
            .fd = direct, .offset = offsets[i], .bytes = 20000, .buffer = place};
        const uint32_t before = np_io_widen(&read);
        const int64_t left = FILE_BYTES - 100 - (int64_t)offsets[i];

        cr_assert_eq(before, offsets[i] % NP_IO_BLOCK);
        cr_assert_eq(np_io_submit(&io, &read), 0);
        cr_assert_eq(np_io_reap(&io, true), &read);
        cr_expect_geq(read.result - (int64_t)before, left < 20000 ? left : 20000);
        cr_expect(is_right(&read));
    }
    cr_expect_eq(io.nr_cached, 0u);
    np_io_close(&io);
    close(direct);
    close(fd);
}

Test(io, a_failed_read_gives_its_cause)
{
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        struct np_io io;
        char buffer[16];
        struct np_io_read read = {.fd = -1, .bytes = 16, .buffer = buffer};
        struct np_io_read folder = {
            .fd = open("/", O_RDONLY | O_DIRECTORY), .bytes = 16, .buffer = buffer};

        cr_assert_eq(np_io_open(&io, names[i], 2, NULL), 0);
        cr_assert_eq(np_io_submit(&io, &read), 0);
        cr_assert_eq(np_io_reap(&io, true), &read);
        cr_assert_eq(read.result, -EBADF);
        cr_assert_eq(np_io_submit(&io, &folder), 0);
        cr_assert_eq(np_io_reap(&io, true), &folder);
        cr_assert_eq(folder.result, -EISDIR);
        np_io_close(&io);
        close(folder.fd);
    }
}

Test(io, empty_reads_and_empty_files_give_nothing)
{
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        int fd = make_file(0, false);
        struct np_io io;
        char buffer[16];
        struct np_io_read none = {.fd = fd, .bytes = 0, .buffer = buffer, .result = 7};
        struct np_io_read end = {.fd = fd, .bytes = 16, .buffer = buffer, .result = 7};

        cr_assert_eq(np_io_open(&io, names[i], 2, NULL), 0);
        cr_assert_eq(np_io_submit(&io, &none), 0);
        cr_assert_eq(np_io_submit(&io, &end), 0);
        cr_assert_not_null(np_io_reap(&io, true));
        cr_assert_not_null(np_io_reap(&io, true));
        cr_assert_eq(none.result, 0);
        cr_assert_eq(end.result, 0);
        np_io_close(&io);
        close(fd);
    }
}

Test(io, closing_waits_for_reads_in_flight)
{
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        int fd = make_file(FILE_BYTES, true);
        char *buffers[4];
        struct np_io_read reads[4];
        struct np_io io;

        cr_assert_eq(np_io_open(&io, names[i], 4, NULL), 0);
        for (int j = 0; j < 4; j++) {
            buffers[j] = malloc(1 << 19);
            reads[j] = (struct np_io_read){
                .fd = fd, .offset = (uint64_t)j << 19, .bytes = 1 << 19, .buffer = buffers[j]};
            cr_assert_eq(np_io_submit(&io, &reads[j]), 0);
        }
        np_io_close(&io);
        for (int j = 0; j < 4; j++) {
            cr_assert_eq(reads[j].result, 1 << 19);
            cr_assert(is_right(&reads[j]));
            free(buffers[j]);
        }
        np_io_close(&io); /* once more: nothing */
        close(fd);
    }
}

/* Opens a file as a reader does, at once or through the backend: its descriptor, or -errno. */
static int open_file(struct np_io *io, const char *path)
{
    struct np_io_read read = {.path = path};
    int fd = np_io_open_now(io, path, false);

    if (fd != -EINPROGRESS)
        return fd;
    if (np_io_submit(io, &read) || np_io_reap(io, true) != &read)
        abort();
    return read.result;
}

static int nr_descriptors(void)
{
    DIR *dir = opendir("/proc/self/fd");
    int n = 0;

    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

Test(io, every_backend_opens_files, .timeout = 120)
{
    for (size_t i = 0; i < 2 * sizeof(names) / sizeof(*names); i++) {
        char path[] = "/tmp/np_test_io.XXXXXX", below[64], name[300];
        struct np_io io;
        struct stat made, opened;
        int fd = mkostemp(path, O_CLOEXEC);

        cr_assert_eq(np_io_open(&io, names[i / 2], DEPTH, NULL), 0);
        io.blocks = i % 2; /* else what is in the kernel's cache is opened at once */
        fstat(fd, &made);
        close(fd);
        fd = open_file(&io, path);
        cr_assert_geq(fd, 0, "%s: %d", io.ops->name, fd);
        fstat(fd, &opened);
        cr_expect_eq(opened.st_ino, made.st_ino);
        cr_expect(fcntl(fd, F_GETFD) & FD_CLOEXEC);
        close(fd);
        snprintf(below, sizeof(below), "%s/below", path);
        cr_expect_eq(open_file(&io, below), -ENOTDIR);
        unlink(path);
        cr_expect_eq(open_file(&io, path), -ENOENT);
        snprintf(name, sizeof(name), "/tmp/%0290d", 0);
        cr_expect_eq(open_file(&io, name), -ENAMETOOLONG);
        np_io_close(&io);
    }
}

Test(io, closing_closes_the_files_that_were_being_opened, .timeout = 120)
{
    const int before = nr_descriptors();
    struct np_io_read reads[DEPTH];
    struct np_io io;

    cr_assert_eq(np_io_open(&io, "uring", DEPTH, NULL), 0);
    io.blocks = true;
    for (int i = 0; i < DEPTH; i++) {
        reads[i] = (struct np_io_read){.path = i % 2 ? "/proc/version" : "/nowhere"};
        cr_assert_eq(np_io_open_now(&io, reads[i].path, false), -EINPROGRESS);
        cr_assert_eq(np_io_submit(&io, &reads[i]), 0);
    }
    np_io_close(&io);
    cr_expect_eq(nr_descriptors(), before);
}

Test(io, without_a_free_descriptor_opening_fails)
{
    struct rlimit before, few;
    struct np_io io;

    cr_assert_eq(np_io_open(&io, "uring", DEPTH, NULL), 0);
    getrlimit(RLIMIT_NOFILE, &before);
    few = (struct rlimit){3, before.rlim_max};
    setrlimit(RLIMIT_NOFILE, &few);
    for (int blocks = 0; blocks < 2; blocks++) {
        io.blocks = blocks;
        cr_expect_eq(open_file(&io, "/proc/version"), -EMFILE);
    }
    setrlimit(RLIMIT_NOFILE, &before);
    np_io_close(&io);
}

/* As network file systems do, /proc refuses to read without waiting. */
Test(io, a_file_system_that_only_blocks_is_read_by_threads_of_the_kernel, .timeout = 120)
{
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        char expected[512], got[512];
        struct np_io io;
        int fd = open("/proc/version", O_RDONLY | O_CLOEXEC);
        const ssize_t bytes = pread(fd, expected, sizeof(expected), 0);
        struct np_io_read read = {.fd = fd, .bytes = sizeof(got), .buffer = got};

        cr_assert_eq(np_io_open(&io, names[i], 2, NULL), 0);
        cr_assert_eq(np_io_submit(&io, &read), 0);
        cr_expect(io.blocks && read.blocks);
        cr_assert_eq(np_io_reap(&io, true), &read);
        cr_assert_eq(read.result, bytes);
        cr_expect_eq(memcmp(got, expected, (size_t)bytes), 0);
        close(fd);
        fd = make_file(100, false);
        read = (struct np_io_read){.fd = fd, .bytes = 100, .buffer = got};
        cr_assert_eq(np_io_submit(&io, &read), 0);
        cr_expect_not(io.blocks || read.blocks);
        cr_assert_eq(np_io_reap(&io, true), &read);
        np_io_close(&io);
        close(fd);
    }
}

Test(io, advance_retries_continues_and_ends)
{
    struct np_io_read read = {.bytes = 100};

    cr_assert_not(np_io_advance(&read, -EINTR));
    cr_assert_not(np_io_advance(&read, -EAGAIN));
    cr_assert_not(np_io_advance(&read, 60));
    cr_assert_eq(read.done_bytes, 60u);
    cr_assert(np_io_advance(&read, 40));
    cr_assert_eq(read.result, 100);
    read.done_bytes = 60;
    cr_assert(np_io_advance(&read, 0)); /* the end */
    cr_assert_eq(read.result, 60);
    cr_assert(np_io_advance(&read, -EIO));
    cr_assert_eq(read.result, -EIO);
}

Test(io, an_unknown_backend_is_named)
{
    struct np_io io;
    struct np_err err = {0};

    cr_assert_eq(np_io_open(&io, "aio", 1, &err), -EINVAL);
    cr_assert_not_null(strstr(err.text, "'aio'"));
    cr_assert_not_null(strstr(err.text, "auto, uring or pread"));
}

/* From here on the call fails with `error`, as a container's profile makes it. */
static bool refuse_call(unsigned call, int error)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof(code) / sizeof(*code), code};

    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

/* In a process of its own: 0, or the line that was wrong. */
static int refused(unsigned call, int error)
{
    struct np_io io;
    struct np_err err = {0};
    int fd = make_file(FILE_BYTES, true);

    if (!refuse_call(call, error))
        return __LINE__;
    if (np_io_open(&io, "uring", DEPTH, &err) != -error)
        return __LINE__;
    if (!strstr(err.text, "io: pread") || !strstr(err.text, strerror(error)))
        return __LINE__;
    if (np_io_open(&io, "auto", DEPTH, NULL) != 0 || strcmp(io.ops->name, "pread") != 0)
        return __LINE__;
    if (read_at_random(&io, fd) != 0)
        return __LINE__;
    np_io_close(&io);
    close(fd);
    return 0;
}

/* The registering calls are of use only: a kernel that has none of them gives a ring without limits. */
static int without_registering(int error)
{
    struct np_io io;
    int fd = make_file(FILE_BYTES, true);

    if (!refuse_call(__NR_io_uring_register, error))
        return __LINE__;
    if (np_io_open(&io, "auto", DEPTH, NULL) != 0)
        return __LINE__;
    if (read_at_random(&io, fd) != 0)
        return __LINE__;
    np_io_close(&io);
    close(fd);
    return 0;
}

/* Without openat2() a backend opens files at once. */
static int without_openat2(int error)
{
    struct np_io io;
    int fd;

    if (!refuse_call(__NR_openat2, error))
        return __LINE__;
    if (np_io_open(&io, "uring", DEPTH, NULL) != 0 || io.opens)
        return __LINE__;
    fd = np_io_open_now(&io, "/proc/version", false);
    if (fd < 0 || np_io_open_now(&io, "/nowhere", false) != -ENOENT)
        return __LINE__;
    close(fd);
    np_io_close(&io);
    return 0;
}

static void in_a_child(unsigned call, int error)
{
    int status;
    pid_t child = fork();

    if (child == 0) {
        int line = call == __NR_io_uring_register ? without_registering(error)
                   : call == __NR_openat2         ? without_openat2(error)
                                                  : refused(call, error);

        if (line)
            fprintf(stderr, "line %d\n", line);
        _exit(line != 0);
    }
    waitpid(child, &status, 0);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "call %u, errno %d", call, error);
}

Test(io, without_io_uring_auto_is_pread_and_uring_is_an_error, .timeout = 120)
{
    const int errors[] = {ENOSYS, EPERM, EACCES, ENOMEM, EMFILE, EINVAL, EOPNOTSUPP};

    for (int i = 0; i < 7; i++) {
        in_a_child(__NR_io_uring_setup, errors[i]);
        in_a_child(__NR_io_uring_enter, errors[i]);
        in_a_child(__NR_io_uring_register, errors[i]);
        in_a_child(__NR_openat2, errors[i]);
    }
}

Test(io, the_ring_accepts_only_reads_and_opens)
{
    struct np_io io;
    struct np_err err = {0};
    char link[64], target[64] = "";
    int fd = -1;

    cr_assert_eq(np_io_open(&io, "uring", 4, &err), 0, "%s", err.text);
    for (int i = 3; i < 256 && fd < 0; i++) { /* the ring's descriptor */
        snprintf(link, sizeof(link), "/proc/self/fd/%d", i);
        memset(target, 0, sizeof(target));
        if (readlink(link, target, sizeof(target) - 1) > 0 && strstr(target, "[io_uring]"))
            fd = i;
    }
    cr_assert_geq(fd, 0);
    /* IORING_REGISTER_PROBE (8) is allowed on any ring that is not restricted. */
    errno = 0;
    cr_assert_eq(syscall(__NR_io_uring_register, fd, 8, NULL, 0), -1);
    cr_assert_eq(errno, EACCES);
    np_io_close(&io);
}
