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
    uint64_t passes, least; /* of shared memory */
};

/* An access of shared memory: the n-th of its thread at this place in the code. */
struct access {
    const void *code;
    unsigned thread, nth, word, bytes;
};

static struct row rows[MAX_NAMES], *now; /* now: of the launch that runs; NULL: none is counted */
static int nr_rows;
static uint64_t nr_steps, nr_nodes;
static const uint8_t *region;
static size_t region_bytes; /* 0: no access is counted */
/* The launch that accessed each sector last: pages that nobody touches cost nothing. */
static uint32_t *readers, *writers, nr_launches;

/* Of a launch's first block. */
static struct {
    const uint8_t *memory;
    size_t bytes;
} shared[8];
static int nr_shared;
static bool first_block;
static unsigned thread;
static struct access *accesses;
static size_t nr_accesses, accesses_room;

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
    first_block = now != NULL;
    nr_shared = 0;
    nr_accesses = 0;
    if (now)
        now->launches++;
}

void np_emu_traffic_end(void)
{
    now = NULL;
}

/* --- shared memory ---------------------------------------------------------------------------- */

void np_emu_traffic_share(const void *memory, size_t bytes)
{
    if (!first_block || nr_shared == 8)
        return;
    shared[nr_shared].memory = memory;
    shared[nr_shared++].bytes = bytes;
}

void np_emu_traffic_thread(unsigned thread_)
{
    thread = thread_;
}

/* Which shared memory it is in does not matter: each begins at bank 0. */
static void note_shared(const void *at, size_t bytes, const void *code)
{
    for (int i = 0; i < nr_shared; i++) {
        const size_t offset = (size_t)((const uint8_t *)at - shared[i].memory);

        if (offset >= shared[i].bytes)
            continue;
        if (nr_accesses == accesses_room) {
            accesses_room = accesses_room ? 2 * accesses_room : 4096;
            accesses = realloc(accesses, accesses_room * sizeof(*accesses));
            if (!accesses)
                abort();
        }
        accesses[nr_accesses++] = (struct access){
            code, thread, (unsigned)nr_accesses, (unsigned)(offset / 4), (unsigned)bytes};
    }
}

static int by_code_thread_time(const void *a_, const void *b_)
{
    const struct access *a = a_, *b = b_;

    return a->code != b->code       ? (a->code < b->code ? -1 : 1)
           : a->thread != b->thread ? (a->thread < b->thread ? -1 : 1)
                                    : (a->nth < b->nth ? -1 : 1);
}

static int by_code_warp_nth(const void *a_, const void *b_)
{
    const struct access *a = a_, *b = b_;
    const unsigned warp_a = a->thread / 32, warp_b = b->thread / 32;

    return a->code != b->code       ? (a->code < b->code ? -1 : 1)
           : warp_a != warp_b       ? (warp_a < warp_b ? -1 : 1)
           : a->nth != b->nth       ? (a->nth < b->nth ? -1 : 1)
           : a->thread == b->thread ? 0
                                    : (a->thread < b->thread ? -1 : 1);
}

/* Passes of the part of a warp's access that goes at once: different words of the fullest bank. */
static unsigned passes_of(const struct access *part, size_t n)
{
    unsigned most = 1;

    for (unsigned bank = 0; bank < 32; bank++) {
        unsigned words[128], nr = 0;

        for (size_t i = 0; i < n; i++)
            for (unsigned w = 0; w < (part[i].bytes + 3) / 4; w++) {
                const unsigned word = part[i].word + w;
                unsigned k = 0;

                while (k < nr && words[k] != word)
                    k++;
                if (word % 32 == bank && k == nr)
                    words[nr++] = word;
            }
        most = nr > most ? nr : most;
    }
    return most;
}

static void count_warp(const struct access *all, size_t n)
{
    const unsigned words = (all->bytes + 3) / 4, at_once = 32 / words;

    for (size_t i = 0, end; i < n; i = end) {
        end = i;
        while (end < n && all[end].thread % 32 / at_once == all[i].thread % 32 / at_once)
            end++;
        now->passes += passes_of(all + i, end - i);
        now->least++;
    }
}

void np_emu_traffic_block_end(void)
{
    struct access last = {0};
    unsigned nth = 0;

    if (!first_block)
        return;
    first_block = false;
    qsort(accesses, nr_accesses, sizeof(*accesses), by_code_thread_time);
    for (size_t i = 0; i < nr_accesses; i++) {
        nth = accesses[i].code == last.code && accesses[i].thread == last.thread ? nth + 1 : 0;
        last = accesses[i];
        accesses[i].nth = nth;
    }
    qsort(accesses, nr_accesses, sizeof(*accesses), by_code_warp_nth);
    for (size_t i = 0, end; i < nr_accesses; i = end) {
        end = i;
        while (end < nr_accesses && accesses[end].code == accesses[i].code &&
               accesses[end].nth == accesses[i].nth &&
               accesses[end].thread / 32 == accesses[i].thread / 32)
            end++;
        count_warp(accesses + i, end - i);
    }
}

/* --- what others add, and the report ---------------------------------------------------------- */

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
        fprintf(file, "%s; %llu %llu %llu %llu %llu %llu %llu\n", rows[i].name,
            (unsigned long long)rows[i].launches, (unsigned long long)rows[i].read,
            (unsigned long long)rows[i].read_once, (unsigned long long)rows[i].written,
            (unsigned long long)rows[i].written_once, (unsigned long long)rows[i].passes,
            (unsigned long long)rows[i].least);
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

static inline void reads(const void *from, size_t bytes, const void *code)
{
    const size_t at = (size_t)((const uint8_t *)from - region);

    if (!now)
        return;
    if (first_block && nr_shared > 0)
        note_shared(from, bytes, code);
    if (at >= region_bytes)
        return;
    now->read += bytes;
    now->read_once += touch(readers, at, bytes);
}

static inline void writes(const void *to, size_t bytes, const void *code)
{
    const size_t at = (size_t)((const uint8_t *)to - region);

    if (!now)
        return;
    if (first_block && nr_shared > 0)
        note_shared(to, bytes, code);
    if (at >= region_bytes)
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
    reads(from, bytes, __builtin_return_address(0));
}
void __tsan_write_range(const void *to, size_t bytes)
{
    writes(to, bytes, __builtin_return_address(0));
}
#define ACCESS(bytes)                                                                              \
    void __tsan_read##bytes(const void *from);                                                     \
    void __tsan_write##bytes(const void *to);                                                      \
    void __tsan_read##bytes(const void *from)                                                      \
    {                                                                                              \
        reads(from, bytes, __builtin_return_address(0));                                           \
    }                                                                                              \
    void __tsan_write##bytes(const void *to)                                                       \
    {                                                                                              \
        writes(to, bytes, __builtin_return_address(0));                                            \
    }
ACCESS(1)
ACCESS(2)
ACCESS(4)
ACCESS(8)
ACCESS(16)

#endif
