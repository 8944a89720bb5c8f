/* Processor time of chains of augmentation, draws and all, on pictures in memory: for bench_augment.sh.
 *   bench_augment PICTURES SIDE CHAIN
 * PICTURES: a file, u8 (n, SIDE, SIDE, 3). CHAIN: as of a config. Prints microseconds of CPU a picture: one pass over
 * all pictures, the median of 5 after one that is not counted. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "loader/base/yaml.h"
#include "loader/pixels/painter.h"

#define PASSES 6

static void fail(const char *what)
{
    fprintf(stderr, "bench_augment: %s\n", what);
    exit(2);
}

static double now_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static struct np_chain *parse(const char *text)
{
    struct np_node *list = NULL;
    struct np_chain *chain = NULL;
    struct np_report report;

    np_report_init(&report, "chain");
    if (np_yaml_parse(text, strlen(text), &list, &report) ||
        np_chain_parse(list, "augment", &chain, &report))
        fail(report.errs[0].text);
    np_report_fini(&report);
    np_node_free(list);
    return chain;
}

static size_t load(const char *path, size_t bytes_each, uint8_t **ret_pictures)
{
    FILE *file = fopen(path, "rb");
    size_t n;

    if (!file || fseek(file, 0, SEEK_END))
        fail(path);
    n = (size_t)ftell(file) / bytes_each;
    rewind(file);
    *ret_pictures = malloc(n * bytes_each);
    if (n == 0 || fread(*ret_pictures, bytes_each, n, file) != n)
        fail("no pictures");
    fclose(file);
    return n;
}

int main(int argc, char **argv)
{
    const int side = argc > 2 ? atoi(argv[2]) : 0;
    const size_t bytes = (size_t)side * (size_t)side * 3;
    double took[PASSES];
    struct np_chain *chain;
    struct np_painter *painter;
    struct np_drawn drawn = {0};
    struct np_pixels pixels = {.width = side, .height = side, .channels = 3, .stride = side * 3};
    uint8_t *pictures, *row;
    size_t n;

    if (argc != 4 || side < 1)
        fail("usage: bench_augment PICTURES SIDE CHAIN");
    n = load(argv[1], bytes, &pictures);
    chain = parse(argv[3]);
    painter = np_painter_new(NP_RULE_PILLOW_13, NULL);
    drawn.steps = malloc((size_t)np_chain_max_steps(chain) * sizeof(struct np_step) + 1);
    row = malloc(bytes);
    for (uint32_t pass = 0; pass < PASSES; pass++) {
        const double start = now_us();

        for (size_t i = 0; i < n; i++) {
            pixels.data = pictures + i * bytes;
            np_augment_draw_row(chain, 1, pass, (uint32_t)i, i, side, side, &drawn);
            np_geometry_order(&drawn.geometry, NP_RULE_PILLOW_13);
            if (drawn.width != side || drawn.height != side ||
                np_painter_row(painter, &pixels, &drawn, row, NULL))
                fail("the chain must keep the size");
        }
        took[pass] = (now_us() - start) / (double)n;
    }
    qsort(took + 1, PASSES - 1, sizeof(*took), ascending);
    printf("%.2f\n", took[1 + (PASSES - 1) / 2]);
    free(row);
    free(drawn.steps);
    free(pictures);
    np_painter_free(painter);
    np_chain_free(chain);
    return 0;
}
