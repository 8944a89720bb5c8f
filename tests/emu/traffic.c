/* The counters of traffic.h. One launch at a time: the emulated runtime holds its lock. */
#include "tests/emu/traffic.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define SECTOR    32
#define MAX_NAMES 512
#define NAME      320

struct row {
    char name[NAME];
    uint64_t launches, read, read_once, written, written_once;
};

static struct row rows[MAX_NAMES], *now; /* now: of the launch that runs; NULL: none is counted */
static int nr_rows;
static uint64_t nr_steps, nr_nodes;
static const uint8_t *region;
static size_t region_bytes; /* 0: no access is counted */
/* The launch that accessed each sector last: pages that nobody touches cost nothing. */
static uint32_t *readers, *writers, nr_launches;

bool np_emu_traffic(void)
{
    static int on = -1;

    if (on < 0)
        on = getenv("NNPIPE_EMU_TRAFFIC") != NULL;
    return on;
}

static uint32_t *marks(size_t sectors)
{
    uint32_t *memory = mmap(NULL, sectors * sizeof(*memory), PROT_READ | PROT_WRITE,
        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (memory == MAP_FAILED) {
        fprintf(stderr, "traffic: no addresses for the marks of sectors\n");
        abort();
    }
    return memory;
}

void np_emu_traffic_region(const void *memory, size_t bytes)
{
    if (!np_emu_traffic())
        return;
    region = memory;
    region_bytes = bytes;
    readers = marks(bytes / SECTOR + 1);
    writers = marks(bytes / SECTOR + 1);
}

/* NULL before the first batch. */
static struct row *row_of(const char *name)
{
    if (strncmp(name, "set_step", 8) == 0 && nr_steps++ == 0)
        nr_nodes = 0;
    if (nr_steps == 0)
        return NULL;
    for (int i = 0; i < nr_rows; i++)
        if (strncmp(rows[i].name, name, NAME - 1) == 0)
            return &rows[i];
    if (nr_rows == MAX_NAMES) {
        fprintf(stderr, "traffic: more than %d kernels\n", MAX_NAMES);
        abort();
    }
    snprintf(rows[nr_rows].name, NAME, "%s", name);
    return &rows[nr_rows++];
}

void np_emu_traffic_begin(const char *name)
{
    if (!np_emu_traffic())
        return;
    now = row_of(name);
    nr_launches++;
    if (now)
        now->launches++;
}

void np_emu_traffic_end(void)
{
    now = NULL;
}

void np_emu_traffic_add(const char *name, uint64_t read, uint64_t written)
{
    struct row *row = np_emu_traffic() ? row_of(name) : NULL;

    if (!row)
        return;
    row->launches++;
    row->read += read;
    row->read_once += read;
    row->written += written;
    row->written_once += written;
}

void np_emu_traffic_node(void)
{
    nr_nodes++;
}

void np_emu_traffic_fill(void *to, int64_t elements, int bytes, float scale)
{
    for (int64_t i = 0; i < elements; i++) {
        const float x = scale * (float)((uint32_t)i * 2654435761u >> 8) / (float)(1 << 23) - scale;
        uint32_t bits;

        memcpy(&bits, &x, 4);
        if (bytes == 4)
            memcpy((float *)to + i, &bits, 4);
        else
            ((uint16_t *)to)[i] = (uint16_t)(bits >> 16);
    }
}

__attribute__((destructor)) static void report(void)
{
    const char *path = getenv("NNPIPE_EMU_TRAFFIC");
    FILE *file = nr_steps ? fopen(path, "w") : NULL;

    if (!file)
        return;
    fprintf(file, "steps %llu; graph %llu\n", (unsigned long long)nr_steps,
        (unsigned long long)nr_nodes);
    for (int i = 0; i < nr_rows; i++)
        fprintf(file, "%s; %llu %llu %llu %llu %llu\n", rows[i].name,
            (unsigned long long)rows[i].launches, (unsigned long long)rows[i].read,
            (unsigned long long)rows[i].read_once, (unsigned long long)rows[i].written,
            (unsigned long long)rows[i].written_once);
    fclose(file);
}

/* --- what the compiler calls ------------------------------------------------------------------ */

#ifndef __SANITIZE_THREAD__

static uint64_t touch(uint32_t *marks_, size_t at, size_t bytes)
{
    uint64_t fresh = 0;

    for (size_t sector = at / SECTOR; sector <= (at + bytes - 1) / SECTOR; sector++)
        if (marks_[sector] != nr_launches) {
            marks_[sector] = nr_launches;
            fresh += SECTOR;
        }
    return fresh;
}

static inline void reads(const void *from, size_t bytes)
{
    const size_t at = (size_t)((const uint8_t *)from - region);

    if (at >= region_bytes || !now)
        return;
    now->read += bytes;
    now->read_once += touch(readers, at, bytes);
}

static inline void writes(const void *to, size_t bytes)
{
    const size_t at = (size_t)((const uint8_t *)to - region);

    if (at >= region_bytes || !now)
        return;
    now->written += bytes;
    now->written_once += touch(writers, at, bytes);
}

void __tsan_init(void);
void __tsan_read_range(const void *from, size_t bytes);
void __tsan_write_range(const void *to, size_t bytes);

void __tsan_init(void)
{
}
void __tsan_read_range(const void *from, size_t bytes)
{
    reads(from, bytes);
}
void __tsan_write_range(const void *to, size_t bytes)
{
    writes(to, bytes);
}
#define ACCESS(bytes)                                                                              \
    void __tsan_read##bytes(const void *from);                                                     \
    void __tsan_write##bytes(const void *to);                                                      \
    void __tsan_read##bytes(const void *from)                                                      \
    {                                                                                              \
        reads(from, bytes);                                                                        \
    }                                                                                              \
    void __tsan_write##bytes(const void *to)                                                       \
    {                                                                                              \
        writes(to, bytes);                                                                         \
    }
ACCESS(1)
ACCESS(2)
ACCESS(4)
ACCESS(8)
ACCESS(16)

#endif
