/* Planted bottlenecks: functions of the program that run more often or later than the program
 * knows. Linked with -Wl,--wrap=NAME to a second copy of the program, from the same objects.
 * $NNPIPE_PLANT names a file of lines "NAME VALUE"; without it every call goes straight through.
 *
 *   decompress N     np_unzstd_frame() is done N times      (fractions are made up over the calls:
 *   decode N         np_decoder_decode() likewise            2.5 is twice and three times in turn)
 *   augment N        np_resize() likewise
 *   pause_ms P       of every pause_every_ms, P pass in which no reader hands a row in
 *   pause_every_ms E
 *   write_mbps R     fsync() takes as long as a disk of R MB/s needs for what was written,
 *   fsync_ms F       and F more
 *
 * The first four act in reader threads alone. The plants do real work over again, or sleep; they count
 * nothing and tell nobody. */
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "loader/base/clock.h"
#include "loader/pixels/codec.h"
#include "loader/pixels/resize.h"
#include "loader/ring.h"

#define MAX_FDS 4096

static struct {
    double decompress, decode, augment;
    double pause_ms, pause_every_ms;
    double write_mbps, fsync_ms;
} plants = {.decompress = 1, .decode = 1, .augment = 1};

static _Atomic uint64_t written[MAX_FDS]; /* bytes since the last fsync */

__attribute__((constructor)) static void read_plants(void)
{
    const struct {
        const char *name;
        double *value;
    } table[] = {
        {"decompress", &plants.decompress},
        {"decode", &plants.decode},
        {"augment", &plants.augment},
        {"pause_ms", &plants.pause_ms},
        {"pause_every_ms", &plants.pause_every_ms},
        {"write_mbps", &plants.write_mbps},
        {"fsync_ms", &plants.fsync_ms},
    };
    const char *path = getenv("NNPIPE_PLANT");
    FILE *file = path && *path ? fopen(path, "r") : NULL;
    char name[32];
    double value;

    if (path && *path && !file) {
        fprintf(stderr, "NNPIPE_PLANT: cannot read %s\n", path);
        _exit(64);
    }
    while (file && fscanf(file, "%31s %lf", name, &value) == 2) {
        double *at = NULL;

        for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++)
            if (strcmp(table[i].name, name) == 0)
                at = table[i].value;
        if (!at) {
            fprintf(stderr, "%s: no plant is called %s\n", path, name);
            _exit(64);
        }
        *at = value;
    }
    if (file && !feof(file)) {
        fprintf(stderr, "%s: a plant has no number\n", path);
        _exit(64);
    }
    if (file)
        fclose(file);
}

/* The main thread trains; no plant slows it down but fsync()'s. */
static bool in_reader(void)
{
    static _Thread_local int here;

    if (here == 0)
        here = (pid_t)syscall(SYS_gettid) == getpid() ? -1 : 1;
    return here > 0;
}

/* How many times more this call is done. *owed: what calls before left over. */
static int more(double times, double *owed)
{
    int whole;

    if (times <= 1 || !in_reader())
        return 0;
    *owed += times - 1;
    whole = (int)floor(*owed);
    *owed -= whole;
    return whole;
}

/* --- readers ------------------------------------------------------------------------------ */

__typeof__(np_unzstd_frame) __real_np_unzstd_frame, __wrap_np_unzstd_frame;
int __wrap_np_unzstd_frame(struct np_unzstd *unzstd, const void *frame, size_t frame_bytes,
    void *out, size_t out_bytes, size_t *ret_bytes, struct np_err *err)
{
    static _Thread_local double owed;

    for (int i = more(plants.decompress, &owed); i > 0; i--)
        __real_np_unzstd_frame(unzstd, frame, frame_bytes, out, out_bytes, ret_bytes, NULL);
    return __real_np_unzstd_frame(unzstd, frame, frame_bytes, out, out_bytes, ret_bytes, err);
}

/* What was opened last, to be opened again: a picture is decoded once an opening. */
static _Thread_local struct {
    const uint8_t *bytes;
    size_t nr_bytes;
    const struct np_raw *raw;
} opened;

__typeof__(np_decoder_open) __real_np_decoder_open, __wrap_np_decoder_open;
int __wrap_np_decoder_open(struct np_decoder *decoder, const uint8_t *bytes, size_t nr_bytes,
    const struct np_raw *raw, struct np_image_info *ret_info, struct np_err *err)
{
    opened.bytes = bytes;
    opened.nr_bytes = nr_bytes;
    opened.raw = raw;
    return __real_np_decoder_open(decoder, bytes, nr_bytes, raw, ret_info, err);
}

__typeof__(np_decoder_decode) __real_np_decoder_decode, __wrap_np_decoder_decode;
int __wrap_np_decoder_decode(struct np_decoder *decoder, const struct np_geometry *geometry,
    int channels, struct np_pixels *ret_pixels, struct np_err *err)
{
    static _Thread_local double owed;
    struct np_image_info info;

    for (int i = more(plants.decode, &owed); i > 0; i--) {
        __real_np_decoder_decode(decoder, geometry, channels, ret_pixels, NULL);
        __real_np_decoder_open(decoder, opened.bytes, opened.nr_bytes, opened.raw, &info, NULL);
    }
    return __real_np_decoder_decode(decoder, geometry, channels, ret_pixels, err);
}

__typeof__(np_resize) __real_np_resize, __wrap_np_resize;
int __wrap_np_resize(struct np_resizer *resizer, const struct np_pixels *pixels,
    const struct np_geometry *geometry, uint8_t *out, struct np_err *err)
{
    static _Thread_local double owed;

    for (int i = more(plants.augment, &owed); i > 0; i--)
        __real_np_resize(resizer, pixels, geometry, out, NULL);
    return __real_np_resize(resizer, pixels, geometry, out, err);
}

/* As the header has it: a wrap of another shape does not compile. */
__typeof__(np_ring_commit) __real_np_ring_commit, __wrap_np_ring_commit;
void __wrap_np_ring_commit(
    struct np_ring *ring, struct np_batch *batch, const struct np_block *block)
{
    if (plants.pause_ms > 0 && in_reader()) {
        const uint64_t every = (uint64_t)(plants.pause_every_ms * 1e6);
        const uint64_t pause = (uint64_t)(plants.pause_ms * 1e6);
        const uint64_t now = np_now_ns(), begin = now - now % every;

        if (now < begin + pause)
            np_sleep_until_ns(begin + pause);
    }
    __real_np_ring_commit(ring, batch, block);
}

/* --- the disk that checkpoints go to -------------------------------------------------------- */

ssize_t __real_write(int fd, const void *data, size_t bytes);
ssize_t __wrap_write(int fd, const void *data, size_t bytes);
ssize_t __wrap_write(int fd, const void *data, size_t bytes)
{
    ssize_t wrote = __real_write(fd, data, bytes);

    if (plants.write_mbps > 0 && wrote > 0 && fd >= 0 && fd < MAX_FDS)
        atomic_fetch_add_explicit(&written[fd], (uint64_t)wrote, memory_order_relaxed);
    return wrote;
}

int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __wrap_fsync(int fd)
{
    double seconds = plants.fsync_ms * 1e-3;
    int result = __real_fsync(fd);

    if (plants.write_mbps > 0 && fd >= 0 && fd < MAX_FDS)
        seconds += (double)atomic_exchange_explicit(&written[fd], 0, memory_order_relaxed) * 1e-6 /
                   plants.write_mbps;
    if (seconds > 0)
        np_sleep_until_ns(np_now_ns() + (uint64_t)(seconds * 1e9));
    return result;
}
