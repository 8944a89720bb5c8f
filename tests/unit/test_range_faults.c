/* The cache of remote ranges, when things go wrong: kill -9 at any system call, a power cut, a full disk, one that
 * hangs, and folders that are damaged or hostile. What is lost is fetched again; nothing wrong is served. */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "loader/base/io.h"
#include "loader/base/mem.h"
#include "loader/base/rng.h"
#include "tests/test.h"
#include "tests/unit/made_memory.h"
#include "tests/unit/made_ranges.h"

#define BLOCK   ((uint64_t)NP_RANGE_BLOCK)
#define BYTES   (5 * BLOCK + 1000) /* 6 blocks, the last one short */
#define PLENTY  (1ull << 30)
#define PER_SET (4096 + 5 * BLOCK + 4096) /* on the account, for an object of BYTES */

static struct np_range_numbers numbers_of(const struct np_range_cache *cache)
{
    struct np_range_numbers numbers;

    np_range_numbers(cache, &numbers);
    return numbers;
}

/* Puts an object of BYTES, called as its set, whole. */
static void fill(
    const char *folder, const char *set, uint64_t max_bytes, const struct np_range_disk *disk)
{
    struct np_range_cache *cache = made_ranges_open(folder, set, max_bytes, disk);
    struct np_range_object *object = made_ranges_object(cache, set, "1", BYTES);

    made_ranges_put(object, set, "1", 0, BYTES);
    np_range_flush(cache);
    np_range_object_close(object);
    np_range_cache_close(cache);
}

/* Opens it again: how many blocks are there (-1: wrong bytes were served), and how many were found to be wrong. */
static int look(const char *folder, const char *set, uint64_t *ret_wrong, uint64_t *ret_damaged)
{
    struct np_range_cache *cache = made_ranges_open(folder, set, PLENTY, NULL);
    struct np_range_object *object = made_ranges_object(cache, set, "1", BYTES);
    const int nr = made_ranges_count(object, set, "1", BYTES);

    *ret_wrong += numbers_of(cache).nr_wrong;
    *ret_damaged += numbers_of(cache).nr_damaged;
    np_range_object_close(object);
    np_range_cache_close(cache);
    return nr;
}

/* --- kill -9 ------------------------------------------------------------------------------- */

/* In two calls, so that a kill can come between; an entry of the map cannot be torn by one. */
static int write_halves(int fd, const void *data, uint64_t bytes, uint64_t offset)
{
    const uint64_t half = bytes > 8 ? bytes / 2 : 0;

    if (pwrite(fd, data, half, (off_t)offset) != (ssize_t)half ||
        pwrite(fd, (const char *)data + half, bytes - half, (off_t)(offset + half)) !=
            (ssize_t)(bytes - half))
        return -errno;
    return 0;
}

static int sync_nothing(int fd)
{
    (void)fd; /* kill -9 loses nothing that was written */
    return 0;
}

static const struct np_range_disk halves = {write_halves, sync_nothing};

/* Runs fill() and kills it at the n-th stop at the begin or end of a system call, of any thread. False: it ended
 * before. */
static bool killed_at(int n, const char *folder, const char *set, uint64_t max_bytes)
{
    const pid_t pid = fork();
    int nr_stops = 0, status;
    bool killed = false;

    if (pid == 0) {
        ptrace(PTRACE_TRACEME, 0, NULL, NULL);
        raise(SIGSTOP);
        fill(folder, set, max_bytes, &halves);
        _exit(0);
    }
    if (waitpid(pid, &status, __WALL) != pid || !WIFSTOPPED(status))
        abort();
    ptrace(PTRACE_SETOPTIONS, pid, NULL,
        PTRACE_O_EXITKILL | PTRACE_O_TRACECLONE | PTRACE_O_TRACESYSGOOD);
    ptrace(PTRACE_SYSCALL, pid, NULL, NULL);
    for (;;) {
        const pid_t who = waitpid(-1, &status, __WALL);

        if (who < 0)
            return killed;
        if (!WIFSTOPPED(status))
            continue;
        if (WSTOPSIG(status) == (SIGTRAP | 0x80) && ++nr_stops == n) {
            killed = true;
            kill(pid, SIGKILL);
        }
        ptrace(PTRACE_SYSCALL, who, NULL, NULL);
    }
}

/* One folder for all: what a killed process leaves is in the way of the next. */
Test(range_cache, kill_9_at_a_hundred_places_leaves_it_right, .timeout = 120)
{
    const char *const sets[3] = {"a", "b", "c"};
    const char *every = getenv("KILL_EVERY");       /* 1: at each */
    const uint64_t max_bytes = 2 * PER_SET + BLOCK; /* so that it evicts, too */
    char *folder = made_ranges_folder();
    int nr_killed = 0, n = 1;

    for (; killed_at(n, folder, sets[n % 3], max_bytes); nr_killed++) {
        uint64_t nr_wrong = 0, nr_damaged = 0;
        struct np_range_cache *cache;

        for (int i = 0; i < 3; i++)
            cr_assert_geq(look(folder, sets[i], &nr_wrong, &nr_damaged), 0);
        cr_assert_eq(nr_wrong, 0);
        cr_assert_eq(nr_damaged, 0);
        cr_assert_leq(made_ranges_used(folder), max_bytes + 3 * 4096);
        cache = made_ranges_open(folder, "a", max_bytes, NULL); /* counts */
        cr_assert_eq(numbers_of(cache).used_bytes, made_ranges_used(folder));
        np_range_cache_close(cache);
        n += every ? atoi(every) : 5;
    }
    cr_assert_geq(nr_killed, every && atoi(every) == 1 ? 100 : 20);
    fprintf(stderr, "killed at %d of %d places\n", nr_killed, n);
    made_ranges_remove(folder);
}

/* Gets and puts drawn ranges of drawn objects, for ever. Exits if it gets wrong bytes. */
static _Noreturn void work(const char *folder, uint64_t max_bytes, uint32_t number)
{
    struct np_draws draws;

    np_draws_init(&draws, number, NP_STREAM_TEST, 0, 0, 0);
    for (;;) {
        const char *const urls[3] = {"a", "b", "c"}, *const versions[2] = {"1", "2"};
        const char *url = urls[np_draw_below(&draws, 3)],
                   *version = versions[np_draw_below(&draws, 2)];
        struct np_range_cache *cache = made_ranges_open(folder, url, max_bytes, &halves);
        struct np_range_object *object = made_ranges_object(cache, url, version, BYTES);

        for (int i = 0; i < 8; i++) {
            const uint64_t offset = np_draw_below(&draws, BYTES), most = BYTES - offset;
            uint64_t at = offset, bytes = 1 + np_draw_below(&draws, 2 * NP_RANGE_BLOCK);
            int got;

            bytes = bytes < most ? bytes : most;
            got = made_ranges_get(object, url, version, offset, bytes);
            if (got < 0 || numbers_of(cache).nr_wrong || numbers_of(cache).nr_damaged)
                _exit(1);
            if (got == 0 && np_range_wants(object, &at, &bytes))
                made_ranges_put(object, url, version, at, bytes);
        }
        np_range_object_close(object);
        np_range_cache_close(cache);
    }
}

/* Four processes, one of which is killed every few milliseconds and replaced. */
Test(range_cache, processes_that_are_killed_at_random_disturb_nobody, .timeout = 1000)
{
    const char *text = getenv("KILL_SECONDS");
    const uint64_t max_bytes = 3 * PER_SET;
    const int nr_kills = 100 * (text ? atoi(text) : 1) / 2;
    char *folder = made_ranges_folder();
    pid_t pids[4];
    struct np_range_cache *cache;
    uint64_t used_bytes;
    int status;

    for (int i = 0; i < nr_kills + 4; i++) {
        const int which = i % 4;

        if (i >= 4) {
            usleep((useconds_t)(i * 7919 % 12000));
            kill(pids[which], SIGKILL);
            cr_assert_eq(waitpid(pids[which], &status, 0), pids[which]);
            cr_assert(
                WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "wrong bytes were served");
            used_bytes = made_ranges_used(folder);
            cr_assert_leq(used_bytes, max_bytes, "%llu more than %llu",
                (unsigned long long)(used_bytes - max_bytes), (unsigned long long)max_bytes);
        }
        if (i < nr_kills && made_ranges_fork(&pids[which]))
            work(folder, max_bytes, (uint32_t)i);
    }
    cache = made_ranges_open(folder, "a", max_bytes, NULL); /* counts */
    cr_assert_eq(numbers_of(cache).used_bytes, made_ranges_used(folder));
    np_range_cache_close(cache);
    made_ranges_remove(folder);
}

/* --- a power cut ---------------------------------------------------------------------------- */

/* A disk that remembers what was not synced. Calls come from the thread of the cache and from the test's. */
static struct {
    struct pending {
        ino_t file;
        int fd; /* own */
        uint64_t offset, bytes;
        uint8_t *old;
    } pending[1000];
    int nr_pending, nr_calls, cut, skip_sync, nr_syncs;
    bool off;
    struct np_draws draws;
} power;

static void forget(ino_t file)
{
    int nr = 0;

    for (int i = 0; i < power.nr_pending; i++)
        if (!file || power.pending[i].file == file) {
            close(power.pending[i].fd);
            free(power.pending[i].old);
        } else
            power.pending[nr++] = power.pending[i];
    power.nr_pending = nr;
}

/* Each sector that was not synced is as before or as written, the last write first. */
static void cut_power(void)
{
    power.off = true;
    for (int i = power.nr_pending - 1; i >= 0; i--)
        for (uint64_t at = 0; at < power.pending[i].bytes; at += 512) {
            const uint64_t left = power.pending[i].bytes - at, bytes = left < 512 ? left : 512;

            if (np_draw_below(&power.draws, 2) &&
                pwrite(power.pending[i].fd, power.pending[i].old + at, bytes,
                    (off_t)(power.pending[i].offset + at)) != (ssize_t)bytes)
                abort();
        }
    forget(0);
}

static bool is_cut(void)
{
    if (!power.off && ++power.nr_calls == power.cut)
        cut_power();
    return power.off;
}

static int power_write(int fd, const void *data, uint64_t bytes, uint64_t offset)
{
    struct pending *pending = &power.pending[power.nr_pending];
    char link[40];
    struct stat st;

    if (is_cut())
        return -EIO;
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    *pending = (struct pending){
        .fd = open(link, O_RDWR), .offset = offset, .bytes = bytes, .old = calloc(1, bytes)};
    if (fstat(fd, &st) < 0 || pending->fd < 0 || !pending->old ||
        np_read_at(fd, offset, pending->old, bytes) < 0 || ++power.nr_pending == 1000)
        abort();
    pending->file = st.st_ino;
    return np_range_posix_disk.write(fd, data, bytes, offset);
}

static int power_sync(int fd)
{
    struct stat st;

    if (is_cut())
        return -EIO;
    if (++power.nr_syncs == power.skip_sync)
        return 0;
    if (fstat(fd, &st) < 0)
        abort();
    forget(st.st_ino);
    return 0;
}

static const struct np_range_disk power_disk = {power_write, power_sync};

/* Two batches of one object; the power is cut at this call. */
static int cut_at(int call, int skip_sync, uint64_t *nr_wrong, uint64_t *nr_damaged)
{
    char *folder = made_ranges_folder();
    struct np_range_cache *cache;
    struct np_range_object *object;
    int nr;

    memset(&power, 0, sizeof(power));
    np_draws_init(&power.draws, (uint64_t)call, NP_STREAM_TEST, (uint32_t)skip_sync, 0, 0);
    power.cut = call;
    power.skip_sync = skip_sync;
    cache = made_ranges_open(folder, "s", PLENTY, &power_disk);
    object = made_ranges_object(cache, "s", "1", BYTES);
    made_ranges_put(object, "s", "1", 0, 3 * BLOCK);
    np_range_flush(cache);
    made_ranges_put(object, "s", "1", 0, BYTES);
    np_range_flush(cache);
    if (!power.off)
        cut_power();
    np_range_object_close(object);
    np_range_cache_close(cache);
    nr = look(folder, "s", nr_wrong, nr_damaged);
    made_ranges_remove(folder);
    return nr;
}

/* Cuts it at each call, until there are no more. */
Test(range_cache, a_power_cut_at_any_write_loses_blocks_at_most, .timeout = 120)
{
    uint64_t nr_wrong = 0, nr_damaged = 0;
    int call = 1, nr;

    cr_assert_eq(cut_at(1, 0, &nr_wrong, &nr_damaged), 0);
    do {
        nr = cut_at(++call, 0, &nr_wrong, &nr_damaged);
        cr_assert_geq(nr, 0);
    } while (power.nr_calls == power.cut);
    cr_assert_eq(nr_wrong, 0, "a block was in the map before it was synced");
    cr_assert_gt(call, 14);
}

Test(range_cache, without_a_sync_the_checksums_find_what_a_power_cut_lost, .timeout = 120)
{
    uint64_t nr_wrong = 0, nr_damaged = 0;
    int call = 0;

    do {
        call++;
        for (int sync = 1; sync <= 2; sync++)
            cr_assert_geq(cut_at(call, sync, &nr_wrong, &nr_damaged), 0);
    } while (power.nr_calls == power.cut);
    cr_assert_gt(nr_wrong, 0, "this test can see no damage");
    cr_assert_gt(nr_damaged, 0);
}

/* --- a full disk, one that fails, one that hangs ----------------------------------------------- */

static atomic_int fail_at, fail_with;

static int write_some(int fd, const void *data, uint64_t bytes, uint64_t offset)
{
    if (atomic_fetch_sub(&fail_at, 1) <= 1)
        return -atomic_load(&fail_with);
    return np_range_posix_disk.write(fd, data, bytes, offset);
}

static int sync_some(int fd)
{
    return atomic_fetch_sub(&fail_at, 1) <= 1 ? -atomic_load(&fail_with)
                                              : np_range_posix_disk.sync(fd);
}

Test(range_cache, a_full_disk_ends_the_writing_with_one_note, .timeout = 120)
{
    static const struct np_range_disk disk = {write_some, sync_some};
    const int codes[3] = {ENOSPC, EDQUOT, EIO};

    for (int i = 2; i < 16; i++) { /* 1: the header */
        char *folder = made_ranges_folder();
        struct np_range_cache *cache;
        struct np_range_object *object;
        uint64_t nr_wrong = 0, nr_damaged = 0, offset = 0, bytes = 1;
        int nr;

        atomic_store(&fail_at, i);
        atomic_store(&fail_with, codes[i % 3]);
        cache = made_ranges_open(folder, "s", PLENTY, &disk);
        object = made_ranges_object(cache, "s", "1", BYTES);
        made_ranges_put(object, "s", "1", 0, 2 * BLOCK);
        np_range_flush(cache);
        made_ranges_put(object, "s", "1", 0, BYTES);
        np_range_flush(cache);
        nr = made_ranges_count(object, "s", "1", BYTES);
        cr_assert_eq(nr, (int)numbers_of(cache).nr_stored);
        cr_assert_lt(nr, 6);
        cr_assert(strstr(np_range_note(cache), strerror(codes[i % 3])));
        cr_assert(numbers_of(cache).is_off);
        cr_assert_not(np_range_wants(object, &offset, &bytes));
        np_range_object_close(object);
        np_range_cache_close(cache);
        cr_assert_eq(look(folder, "s", &nr_wrong, &nr_damaged), nr);
        cr_assert_eq(nr_wrong, 0);
        fill(folder, "s", PLENTY, NULL); /* later there is space again */
        cr_assert_eq(look(folder, "s", &nr_wrong, &nr_damaged), 6);
        made_ranges_remove(folder);
    }
}

Test(range_cache, some_of_a_small_disk_stays_free_for_others, .timeout = 120)
{
    char *folder = made_ranges_folder();
    struct np_range_cache *cache;
    struct np_range_object *object;

    if (unshare(CLONE_NEWNS) < 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("none", folder, "tmpfs", 0, "size=1m,mode=700") < 0) {
        made_ranges_remove(folder);
        cr_skip_test("it may not mount a tmpfs");
    }
    cache = made_ranges_open(folder, "s", PLENTY, NULL);
    object = made_ranges_object(cache, "s", "1", 16 * BLOCK);
    made_ranges_put(object, "s", "1", 0, 16 * BLOCK);
    np_range_flush(cache);
    cr_assert_eq(made_ranges_count(object, "s", "1", 16 * BLOCK), 7);
    cr_assert_str_eq(np_range_note(cache), "");
    cr_assert_eq(numbers_of(cache).nr_full, 9);
    np_range_object_close(object);
    np_range_cache_close(cache);
    umount(folder);
    made_ranges_remove(folder);
}

static int write_never(int fd, const void *data, uint64_t bytes, uint64_t offset)
{
    if (offset == 0) /* the header */
        return np_range_posix_disk.write(fd, data, bytes, offset);
    for (;;)
        pause();
}

/* A close that leaves the thread behind after 5 s ends with a thread, so it has a process of its own. */
static _Noreturn void use_hung_disk(const char *folder)
{
    static const struct np_range_disk disk = {write_never, sync_nothing};
    const uint64_t bytes = 600 * BLOCK; /* more than can wait */
    struct np_range_cache *cache = made_ranges_open(folder, "s", PLENTY, &disk);
    struct np_range_object *object = made_ranges_object(cache, "s", "1", bytes);
    struct np_range_place place;
    int result = 0;

    made_ranges_put(object, "s", "1", 0, bytes);
    if (np_range_find(object, 0, 1, &place) != NP_RANGE_MISS || numbers_of(cache).nr_slow == 0)
        result = 1;
    np_range_object_close(object);
    np_range_cache_close(cache);
    _exit(result);
}

Test(range_cache, a_disk_that_hangs_stops_neither_put_nor_find_nor_close, .timeout = 120)
{
    char *folder = made_ranges_folder();
    pid_t pid;
    int status;

    if (made_ranges_fork(&pid))
        use_hung_disk(folder);
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    cr_assert_eq(status, 0);
    made_ranges_remove(folder);
}

/* --- damaged and hostile folders --------------------------------------------------------------- */

/* The path of the only object in the folder; np_free. */
static char *object_path(const char *folder, const char *set, const char *version)
{
    const struct np_range_name name = {set, version, BYTES};
    char file[NP_RANGE_FILE_NAME], command[200], path[400] = "";
    FILE *pipe;

    np_range_file_name(&name, file);
    snprintf(command, sizeof(command), "echo %s/set-*/%s", folder, file);
    pipe = popen(command, "r");
    if (!pipe || !fgets(path, sizeof(path), pipe))
        abort();
    pclose(pipe);
    path[strcspn(path, "\n")] = '\0';
    return np_strdup(path);
}

static void flip(const char *path, uint64_t offset)
{
    const int fd = open(path, O_RDWR);
    char byte;

    if (fd < 0 || pread(fd, &byte, 1, (off_t)offset) != 1)
        abort();
    byte ^= 0x10;
    if (pwrite(fd, &byte, 1, (off_t)offset) != 1)
        abort();
    close(fd);
}

Test(range_cache, a_changed_byte_anywhere_costs_a_block_or_the_file, .timeout = 120)
{
    const struct np_range_name name = {"s", "1", BYTES};
    struct np_range_layout layout;
    char *folder = made_ranges_folder(), *path;

    cr_assert_eq(np_range_layout(&name, &layout, NULL), 0);
    fill(folder, "s", PLENTY, NULL);
    path = object_path(folder, "s", "1");
    for (uint64_t at = 0; at < layout.file_bytes; at += at < 200 ? 7 : 40009) {
        uint64_t nr_wrong = 0, nr_damaged = 0;
        const bool in_head = at < layout.map_offset;
        const bool in_gap = at >= layout.map_offset + 8 * layout.nr_blocks &&
                            at < layout.data_offset; /* means nothing */
        int nr;

        flip(path, at);
        nr = look(folder, "s", &nr_wrong, &nr_damaged);
        cr_assert_eq(nr, in_head ? 0 : in_gap ? 6 : 5);
        cr_assert_eq(nr_wrong, !in_head && !in_gap);
        cr_assert_eq(nr_damaged, in_head);
        fill(folder, "s", PLENTY, NULL); /* what is missing is put again */
        cr_assert_eq(look(folder, "s", &nr_wrong, &nr_damaged), 6 - (!in_head && !in_gap));
        if (!in_head && !in_gap)
            flip(path, at);
    }
    np_free(path);
    made_ranges_remove(folder);
}
