/* The store of a made-up set's entries: bench_entries FOLDER CODED... puts the coded entries of real pictures, the
 * files CODED in turn, for 1.28 million samples, and measures their space, and how long it takes to open them and to
 * get one. Prints the rows of a table. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "loader/base/io.h"
#include "loader/base/mem.h"
#include "loader/source/entries.h"

enum { NR = 1280000, ROUNDS = 5, GETS = 20000 };

static double now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return 1e3 * (double)now.tv_sec + 1e-6 * (double)now.tv_nsec;
}

static long resident_kib(void)
{
    FILE *file = fopen("/proc/self/statm", "r");
    long pages = 0;

    if (!file || fscanf(file, "%*d %ld", &pages) != 1)
        exit(1);
    fclose(file);
    return pages * 4;
}

static struct np_index *make_index(const char *folder)
{
    struct np_index *index = np_index_new(NULL);

    for (int i = 0; i < NR; i++) {
        const struct np_record record = {.bytes = 110000, .inner_bytes = 110000, .no_label = 1};
        char name[32];

        snprintf(name, sizeof(name), "n%03d/p%07d.JPEG", i / 1280, i);
        if (np_index_add(index, &record, name, NULL, NULL))
            exit(1);
    }
    if (np_index_finish(index, NULL))
        exit(1);
    index->cached = np_format("%s/index", folder);
    return index;
}

static struct np_entries *open_store(const struct np_index *index)
{
    struct np_entries *entries = NULL;

    if (np_entries_open(index, 1ll << 40, true, &entries, NULL) || !entries)
        exit(1);
    return entries;
}

static void fill(const struct np_index *index, char *const *coded, const uint64_t *bytes, int nr)
{
    struct np_entries *entries = open_store(index);

    for (uint64_t i = 0; i < NR; i++) {
        while (!np_entries_takes(entries))
            if (np_entries_flush(entries, NULL))
                exit(1);
        if (np_entries_put(entries, i, (struct np_entries_of){110000, 1 + i},
                coded[i % (uint64_t)nr], bytes[i % (uint64_t)nr], NULL))
            exit(1);
    }
    if (*np_entries_note(entries))
        exit(1);
    np_entries_close(entries);
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Microseconds to get one, in random order. */
static double get(struct np_entries *entries)
{
    uint8_t *buffer = NULL;
    size_t room = 0;
    uint64_t sample = 1;
    const double start = now_ms();

    for (int i = 0; i < GETS; i++) {
        sample = (sample * 2862933555777941757u + 3037000493u) % NR;
        if (np_entries_get(entries, sample, (struct np_entries_of){110000, 1 + sample}, &buffer,
                &room, NULL) <= 0)
            exit(1);
    }
    np_free(buffer);
    return (now_ms() - start) * 1e3 / GETS;
}

int main(int argc, char **argv)
{
    const int nr = argc - 2;
    char **coded = calloc((size_t)argc, sizeof(*coded));
    uint64_t *bytes = calloc((size_t)argc, sizeof(*bytes)), sum = 0;
    struct np_index *index;
    struct np_entries *entries;
    double open_ms[ROUNDS], start;
    long before;

    for (int i = 0; i < nr; i++) {
        if (np_read_file(argv[2 + i], 1 << 20, &coded[i], &bytes[i], NULL))
            return 1;
        sum += bytes[i];
    }
    if (nr < 1)
        return 2;
    index = make_index(argv[1]);
    start = now_ms();
    fill(index, coded, bytes, nr);
    printf("| bytes a picture | %.0f |\n", (double)sum / nr);
    printf("| all written, s | %.1f |\n", (now_ms() - start) * 1e-3);
    for (int i = 0; i < ROUNDS; i++) {
        before = resident_kib();
        start = now_ms();
        entries = open_store(index);
        open_ms[i] = now_ms() - start;
        if (i + 1 < ROUNDS)
            np_entries_close(entries);
    }
    qsort(open_ms, ROUNDS, sizeof(*open_ms), ascending);
    printf("| open, ms | %.1f (%.1f to %.1f) |\n", open_ms[ROUNDS / 2], open_ms[0],
        open_ms[ROUNDS - 1]);
    printf("| memory, MiB | %.1f |\n", (double)(resident_kib() - before) / 1024);
    printf("| get one, us | %.1f |\n", get(entries));
    np_entries_close(entries);
    np_index_free(index);
    return 0;
}
