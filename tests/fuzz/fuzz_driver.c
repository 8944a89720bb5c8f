/* Runs a fuzz target over its corpus and over mutations of it: fuzz_NAME CORPUS SECONDS [SEED].
 * The same seed gives the same inputs. A target is one function with libFuzzer's name, so that
 * clang's -fsanitize=fuzzer takes it too; it returns, or it has found a bug. The input under way
 * lies in FUZZ_INPUT (default ./fuzz-input) when the process dies. */
#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "loader/base/clock.h"
#include "loader/base/rng.h"

#define MAX_SEEDS    256
#define MAX_BYTES    (1u << 20)
#define HANG_SECONDS 20

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

struct seed {
    uint8_t *data;
    size_t bytes;
};

static int load_corpus(const char *folder, struct seed *seeds)
{
    DIR *dir = opendir(folder);
    const struct dirent *item;
    char path[1024];
    int n = 0;

    while (dir != NULL && (item = readdir(dir)) != NULL && n < MAX_SEEDS) {
        snprintf(path, sizeof(path), "%s/%s", folder, item->d_name);
        FILE *file = item->d_name[0] == '.' ? NULL : fopen(path, "rb");
        if (file == NULL)
            continue;
        seeds[n].data = malloc(MAX_BYTES);
        seeds[n].bytes = fread(seeds[n].data, 1, MAX_BYTES, file);
        fclose(file);
        n++;
    }
    if (dir != NULL)
        closedir(dir);
    return n;
}

static void change_byte(struct np_draws *draws, uint8_t *data, size_t bytes)
{
    static const uint8_t odd[] = {0, 1, 0x7f, 0x80, 0xff, '"', '0', '9', '-', '[', '}', '\n', '/'};
    uint8_t *at = &data[np_draw_below(draws, (uint32_t)bytes)];

    switch (np_draw_below(draws, 4)) {
    case 0: *at ^= (uint8_t)(1 << np_draw_below(draws, 8)); break;
    case 1: *at = odd[np_draw_below(draws, sizeof(odd))]; break;
    case 2: *at = (uint8_t)(*at + np_draw_below(draws, 7) - 3); break;
    default: *at = (uint8_t)np_draw_u32(draws);
    }
}

/* A 2, 4 or 8 byte number at a byte's boundary, of the kind that overflows. */
static void change_number(struct np_draws *draws, uint8_t *data, size_t bytes)
{
    static const uint64_t odd[] = {0, 1, 0x7fff, 0xffff, 0x7fffffff, 0x80000000, 0xffffffff,
        0x100000000, 0x7fffffffffffffff, UINT64_MAX, UINT64_MAX - 7};
    uint64_t number = odd[np_draw_below(draws, sizeof(odd) / sizeof(odd[0]))];
    size_t width = (size_t)2 << np_draw_below(draws, 3);

    if (np_draw_below(draws, 3) == 0)
        number = np_draw_below(draws, 2 * (uint32_t)bytes + 2);
    if (width <= bytes)
        memcpy(data + np_draw_below(draws, (uint32_t)(bytes - width + 1)), &number, width);
}

/* Copies bytes of the input to another place in it, overwriting or inserting. */
static size_t move_bytes(struct np_draws *draws, uint8_t *data, size_t bytes)
{
    size_t from = np_draw_below(draws, (uint32_t)bytes), to = np_draw_below(draws, (uint32_t)bytes);
    size_t n = 1 + np_draw_below(draws, 32);

    n = n > bytes - from ? bytes - from : n;
    if (np_draw_below(draws, 2) == 0 && bytes + n <= MAX_BYTES) {
        memmove(data + to + n, data + to, bytes - to);
        return bytes + n;
    }
    n = n > bytes - to ? bytes - to : n;
    memmove(data + to, data + from, n);
    return bytes;
}

static size_t drop_bytes(struct np_draws *draws, uint8_t *data, size_t bytes)
{
    size_t at = np_draw_below(draws, (uint32_t)bytes), n = 1 + np_draw_below(draws, 16);

    if (np_draw_below(draws, 3) == 0)
        return at; /* cut off */
    n = n > bytes - at ? bytes - at : n;
    memmove(data + at, data + at + n, bytes - at - n);
    return bytes - n;
}

static size_t mutate(struct np_draws *draws, uint8_t *data, size_t bytes)
{
    for (uint32_t times = 1 + np_draw_below(draws, 6); times > 0 && bytes > 0; times--) {
        switch (np_draw_below(draws, 6)) {
        case 0: change_number(draws, data, bytes); break;
        case 1: bytes = move_bytes(draws, data, bytes); break;
        case 2: bytes = drop_bytes(draws, data, bytes); break;
        default: change_byte(draws, data, bytes);
        }
    }
    return bytes;
}

/* Shared with the file, so that it holds what a crash was made of. */
static uint8_t *map_input(void)
{
    const char *path = getenv("FUZZ_INPUT");
    int fd = open(path ? path : "fuzz-input", O_RDWR | O_CREAT | O_TRUNC, 0666);
    uint8_t *map = MAP_FAILED;

    if (fd >= 0 && ftruncate(fd, MAX_BYTES + 8) == 0)
        map = mmap(NULL, MAX_BYTES + 8, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0)
        close(fd);
    return map == MAP_FAILED ? NULL : map;
}

/* On a copy of its exact size, so that a sanitizer sees every step beyond. */
static void run_one(uint8_t *input, const uint8_t *data, size_t bytes)
{
    uint8_t *copy = malloc(bytes ? bytes : 1);
    uint64_t length = bytes;

    memcpy(input, &length, 8); /* the file: u64 length, then the bytes */
    memcpy(input + 8, data, bytes);
    memcpy(copy, data, bytes);
    alarm(HANG_SECONDS);
    LLVMFuzzerTestOneInput(copy, bytes);
    alarm(0);
    free(copy);
}

int main(int argc, char **argv)
{
    static struct seed seeds[MAX_SEEDS];
    static uint8_t work[MAX_BYTES];
    uint8_t *input = map_input();
    int nr_seeds = argc > 2 ? load_corpus(argv[1], seeds) : 0;
    uint64_t n = 0, seed = argc > 3 ? strtoull(argv[3], NULL, 10) : 1;

    if (nr_seeds == 0 || input == NULL) {
        fprintf(stderr, "usage: %s CORPUS SECONDS [SEED]; the corpus may not be empty\n", argv[0]);
        return 2;
    }
    uint64_t end_ns = np_now_ns() + strtoull(argv[2], NULL, 10) * 1000000000u;
    for (; n < (uint64_t)nr_seeds; n++)
        run_one(input, seeds[n].data, seeds[n].bytes);
    for (; np_now_ns() < end_ns; n++) {
        struct np_draws draws;
        np_draws_init(&draws, seed, NP_STREAM_TEST, (uint32_t)(n >> 32), (uint32_t)n, 0);
        const struct seed *from = &seeds[np_draw_below(&draws, (uint32_t)nr_seeds)];
        memcpy(work, from->data, from->bytes);
        run_one(input, work, mutate(&draws, work, from->bytes));
    }
    for (int i = 0; i < nr_seeds; i++)
        free(seeds[i].data);
    munmap(input, MAX_BYTES + 8);
    printf("%llu inputs\n", (unsigned long long)n);
    return 0;
}
