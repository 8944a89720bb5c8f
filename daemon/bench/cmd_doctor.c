/* `nnpipe doctor`: checks whether this machine is set up well. Prints a line per check, with advice
 * if something can be better, and the checks that were not made. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "daemon/cmd.h"
#include "loader/base/box.h"
#include "loader/base/clock.h"
#include "loader/base/io.h"
#include "loader/base/json.h"
#include "loader/base/mem.h"
#include "trainer/device.h"

#define MIN_MEMLOCK  (8ull << 20)
#define MIN_FREE     (2ull << 30)
#define MIN_DISK_MBS 200.0 /* about 2,000 photographs a second */
#define DISK_FILE    (128ull << 20)
#define DISK_ROOM    (1ull << 30) /* free space that the test file must leave */
#define DISK_READ    (1u << 20)
#define DISK_DEPTH   8
#define DISK_NS      1000000000ull

struct doctor {
    bool json;
    struct np_json line;
    int counts[3]; /* by verdict */
};

static const char *const verdicts[] = {"ok", "warn", "not checked"};

static void found(void *context, const struct np_finding *finding)
{
    struct doctor *doctor = context;

    doctor->counts[finding->verdict]++;
    if (!doctor->json) {
        printf("%-12s %-18s %s\n", verdicts[finding->verdict], finding->what, finding->text);
        if (finding->advice)
            printf("%-12s %-18s -> %s\n", "", "", finding->advice);
        fflush(stdout); /* the next check may take seconds */
        return;
    }
    np_json_begin(&doctor->line, "finding");
    np_json_text(&doctor->line, "what", finding->what);
    np_json_text(&doctor->line, "verdict", verdicts[finding->verdict]);
    np_json_text(&doctor->line, "text", finding->text);
    np_json_text(&doctor->line, "advice", finding->advice);
    np_json_print(&doctor->line, stdout);
}

static void say(struct doctor *doctor, enum np_verdict verdict, const char *what, const char *text,
    const char *advice)
{
    const struct np_finding finding = {
        verdict, what, text, verdict == NP_FOUND_WARN ? advice : NULL};

    found(doctor, &finding);
}

/* --- the machine ---------------------------------------------------------------------------- */

static void look_at_uring(struct doctor *doctor)
{
    struct np_err err = {0};
    struct np_io io = {0};
    bool works = np_io_open(&io, "uring", 64, &err) == 0;

    np_io_close(&io);
    say(doctor, works ? NP_FOUND_OK : NP_FOUND_WARN, "io_uring",
        works ? "works, 64 reads in flight" : err.text,
        "pread is used instead; to allow io_uring: `sysctl kernel.io_uring_disabled=0`; in a "
        "container, a seccomp profile that allows its calls");
}

static void look_at_limits(struct doctor *doctor)
{
    struct np_box box;
    char text[160], room[32] = "no limit";
    long online = sysconf(_SC_NPROCESSORS_ONLN);

    np_box_read(&box);
    if (box.memlock_bytes != UINT64_MAX)
        snprintf(room, sizeof(room), "%" PRIu64 " KiB", box.memlock_bytes >> 10);
    say(doctor, box.memlock_bytes >= MIN_MEMLOCK ? NP_FOUND_OK : NP_FOUND_WARN, "locked memory",
        room,
        "older kernels count io_uring and pinned pages against it: raise it by `ulimit -l "
        "unlimited`, LimitMEMLOCK=infinity of the unit, or --ulimit memlock=-1 of the container");
    snprintf(text, sizeof(text), "%d of the machine's %ld (affinity, cpuset, cpu.max)", box.nr_cpus,
        online);
    say(doctor, box.nr_cpus > 1 ? NP_FOUND_OK : NP_FOUND_WARN, "CPUs", text,
        "one CPU must read, decode and compute in turn: give this process more");
    snprintf(text, sizeof(text), "%.1f GiB free of %.1f GiB (memory.max)",
        (double)box.free_bytes / (1 << 30), (double)box.memory_bytes / (1 << 30));
    say(doctor, box.free_bytes >= MIN_FREE ? NP_FOUND_OK : NP_FOUND_WARN, "memory", text,
        "batches and caches need memory: stop other programs, or raise the cgroup's memory.max");
}

static void look_at_huge_pages(struct doctor *doctor)
{
    char *text = NULL;
    uint64_t bytes;

    if (np_read_file("/sys/kernel/mm/transparent_hugepage/enabled", 4096, &text, &bytes, NULL) <
        0) {
        say(doctor, NP_FOUND_SKIPPED, "huge pages", "this kernel has none", NULL);
        return;
    }
    bool never = strstr(text, "[never]") != NULL;
    text[strcspn(text, "\n")] = '\0';
    say(doctor, never ? NP_FOUND_WARN : NP_FOUND_OK, "huge pages", text,
        "the slots of batches are large: `echo madvise > "
        "/sys/kernel/mm/transparent_hugepage/enabled`");
    np_free(text);
}

/* --- disk ---------------------------------------------------------------------------------- */

/* Creates an unnamed file in folder with incompressible data, and syncs it. */
static int make_file(const char *folder, void *buffer, int *ret_fd, struct np_err *err)
{
    struct statvfs room;
    int fd;

    if (statvfs(folder, &room) == 0 && (uint64_t)room.f_bavail * room.f_frsize < DISK_ROOM)
        return np_err_set(err, -ENOSPC, "%s: not enough free space to write a file", folder);
    fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0)
        return np_err_set(
            err, -errno, "%s: no file can be written there: %s", folder, strerror(errno));
    uint64_t word = 1, *words = buffer;
    for (uint64_t at = 0; at < DISK_FILE; at += DISK_READ) {
        for (size_t i = 0; i < DISK_READ / sizeof(word); i++)
            words[i] = word = word * 6364136223846793005u + 1442695040888963407u;
        if (write(fd, buffer, DISK_READ) != (ssize_t)DISK_READ) {
            np_err_set(err, -EIO, "%s: cannot write there: %s", folder, strerror(errno));
            break;
        }
    }
    if (err->code == 0 && fsync(fd) < 0)
        np_err_set(err, -errno, "%s: cannot write there: %s", folder, strerror(errno));
    if (err->code)
        close(fd);
    else
        *ret_fd = fd;
    return err->code;
}

/* Opens the file again for direct reads, if the file system allows it. */
static int reopen_direct(int fd, bool *ret_direct)
{
    char path[64];

    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    int direct = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
    *ret_direct = direct >= 0;
    if (direct < 0) {
        posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        direct = dup(fd);
    }
    return direct;
}

/* Reads the file from its start for at most a second. *ret_speed: bytes per second. */
static int read_speed(int fd, uint64_t file_bytes, char *buffers, double *ret_speed,
    const char **ret_io, struct np_err *err)
{
    struct np_io_read reads[DISK_DEPTH] = {0}, *read;
    struct np_io io = {0};
    uint64_t next = 0, done = 0, start_ns;
    int code = np_io_open(&io, "auto", DISK_DEPTH, err);

    if (code < 0)
        return code;
    start_ns = np_now_ns();
    for (int i = 0; i < DISK_DEPTH; i++) {
        reads[i] = (struct np_io_read){
            .fd = fd, .bytes = DISK_READ, .buffer = buffers + (size_t)i * DISK_READ};
        if (next + DISK_READ > file_bytes)
            break;
        reads[i].offset = next;
        next += DISK_READ;
        np_io_submit(&io, &reads[i]);
    }
    while ((read = np_io_reap(&io, true)) != NULL) {
        if (read->result < 0) {
            code = np_err_set(err, read->result, "cannot read: %s", strerror(-read->result));
            break;
        }
        done += (uint64_t)read->result;
        if (np_now_ns() - start_ns > DISK_NS || next + DISK_READ > file_bytes)
            continue;
        read->offset = next;
        read->done_bytes = 0;
        next += DISK_READ;
        np_io_submit(&io, read);
    }
    *ret_speed = (double)done / ((double)(np_now_ns() - start_ns) * 1e-9);
    *ret_io = io.ops->name;
    np_io_close(&io);
    return code;
}

static void report_speed(
    const char *path, double speed, const char *io, bool direct, struct doctor *doctor)
{
    char text[512];

    snprintf(text, sizeof(text), "%.0f MB/s read from %.300s (%d reads of 1 MiB in flight, %s%s)",
        speed * 1e-6, path, DISK_DEPTH, io, direct ? "" : ", through the page cache");
    say(doctor, speed * 1e-6 >= MIN_DISK_MBS ? NP_FOUND_OK : NP_FOUND_WARN, "disk", text,
        "200 MB/s feed about 2,000 photographs of 100 KB a second: use a local NVMe disk, or "
        "loader.cache: encoded if the data fit the memory");
}

static void look_at_disk(const char *path, struct doctor *doctor)
{
    static char buffers[DISK_DEPTH * DISK_READ] __attribute__((aligned(4096))); /* for O_DIRECT */
    struct np_err err = {0};
    struct stat info = {0};
    double speed = 0;
    bool direct = false;
    const char *io = "";
    int fd = -1, direct_fd = -1;

    if (stat(path, &info) < 0)
        np_err_set(&err, -errno, "%s: %s", path, strerror(errno));
    else if (S_ISDIR(info.st_mode))
        make_file(path, buffers, &fd, &err);
    else if (!S_ISREG(info.st_mode) || info.st_size < (off_t)DISK_READ)
        np_err_set(&err, -EINVAL, "%s: neither a folder nor a file of 1 MiB or more", path);
    else if ((fd = open(path, O_RDONLY | O_CLOEXEC)) < 0)
        np_err_set(&err, -errno, "%s: %s", path, strerror(errno));
    if (fd >= 0 && (direct_fd = reopen_direct(fd, &direct)) < 0)
        np_err_set(&err, -errno, "%s: %s", path, strerror(errno));
    if (direct_fd >= 0) {
        uint64_t bytes = S_ISDIR(info.st_mode) ? DISK_FILE : (uint64_t)info.st_size;
        read_speed(direct_fd, bytes, buffers, &speed, &io, &err);
    }
    if (err.code)
        say(doctor, NP_FOUND_SKIPPED, "disk", err.text, NULL);
    else
        report_speed(path, speed, io, direct, doctor);
    if (direct_fd >= 0)
        close(direct_fd);
    if (fd >= 0)
        close(fd);
}

/* --- the device, the command ---------------------------------------------------------------- */

/* Without a GPU there is nothing to report, unless the user named one. */
static void look_at_device(struct doctor *doctor, const char *name)
{
    struct np_err err = {0};
    bool asked = strcmp(name, "auto") != 0;

    if (strcmp(name, "cpu") == 0 || strcmp(name, "sim") == 0)
        return;
    if (np_device_doctor(name, found, doctor, &err) == 0)
        return;
    const struct np_finding finding = {asked ? NP_FOUND_WARN : NP_FOUND_SKIPPED,
        asked ? name : "GPU", err.text, asked ? "`nnpipe devices` lists the devices" : NULL};
    found(doctor, &finding);
}

static int end(struct doctor *doctor)
{
    const int *counts = doctor->counts;

    if (doctor->json) {
        np_json_begin(&doctor->line, "done");
        np_json_int(&doctor->line, "ok", counts[NP_FOUND_OK]);
        np_json_int(&doctor->line, "warn", counts[NP_FOUND_WARN]);
        np_json_int(&doctor->line, "not_checked", counts[NP_FOUND_SKIPPED]);
        np_json_print(&doctor->line, stdout);
    } else {
        printf("%d ok, %d to look at, %d not checked\n", counts[NP_FOUND_OK], counts[NP_FOUND_WARN],
            counts[NP_FOUND_SKIPPED]);
    }
    np_json_fini(&doctor->line);
    return counts[NP_FOUND_WARN] ? NP_EXIT_FAILED : NP_EXIT_DONE;
}

int np_cmd_doctor(int argc, char **argv)
{
    struct doctor doctor = {0};
    const char *device = "auto";
    char name[NP_DEVICE_NAME];
    const struct np_flag flags[] = {{"--device", &device, NULL, NULL},
        {"--json", NULL, &doctor.json, NULL}, {NULL, NULL, NULL, NULL}};
    int nr, code = np_flags_parse(argc, argv, flags, NULL, &nr);

    if (code)
        return code;
    if (nr > 1)
        return np_usage("doctor", "takes at most one PATH");
    if (!np_device_find(device, name))
        return np_usage("doctor", "--device: expected " NP_DEVICE_NAMES ", not '%s'", device);
    look_at_uring(&doctor);
    look_at_limits(&doctor);
    look_at_huge_pages(&doctor);
    look_at_disk(nr ? argv[1] : ".", &doctor);
    look_at_device(&doctor, name);
    return end(&doctor);
}
