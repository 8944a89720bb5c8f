/* Images per second of one core: codec, resizer and augmentation against bare libjpeg-turbo (whole
 * decode of the same files, one decompressor reused), alternating in one run.
 *   bench_pixels DATA [ROUNDS [photos|cifar|both [alone]]]
 * DATA: folder of imagenet-sample-500.tar, cifar10-jpeg.tar.zst. alone: no peer, for a profiler.
 * Build: gcc -D_GNU_SOURCE -O2 -I. tests/bench/bench_pixels.c build/libnnpipe.a -ljpeg -lspng -lz -lzstd -lm */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <jpeglib.h>

#include "loader/pixels/codec.h"
#include "loader/pixels/augment.h"
#include "loader/pixels/geometry.h"
#include "loader/pixels/resize.h"

#define MAX_FILES 10000
#define MAX_BYTES (400u << 20)

struct files {
    uint8_t *tar;
    int n;
    const uint8_t *bytes[MAX_FILES];
    size_t nr_bytes[MAX_FILES];
};

/* Of this thread on its core: others on the machine do not count. */
static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static size_t slurp(const char *folder, const char *name, uint8_t *out)
{
    char path[4096];
    FILE *file;
    size_t n;

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    file = fopen(path, "rb");
    if (!file) {
        perror(path);
        exit(2);
    }
    n = fread(out, 1, MAX_BYTES, file);
    fclose(file);
    return n;
}

static void list_tar(struct files *files, size_t nr_bytes)
{
    for (size_t at = 0; at + 512 <= nr_bytes && files->tar[at] && files->n < MAX_FILES;) {
        size_t size = strtoul((char *)files->tar + at + 124, NULL, 8);

        if ((files->tar[at + 156] == '0' || !files->tar[at + 156]) && size) {
            files->bytes[files->n] = files->tar + at + 512;
            files->nr_bytes[files->n++] = size;
        }
        at += 512 + (size + 511) / 512 * 512;
    }
}

static struct np_chain *chain_of(const char *op, const char *key, const char *size, const char *pad)
{
    struct np_node *list = np_node_new(NP_NODE_LIST, 0, 0), *map = np_node_new(NP_NODE_MAP, 0, 0);
    struct np_node *args = np_node_new(NP_NODE_MAP, 0, 0);
    struct np_report report;
    struct np_chain *chain;

    np_node_add(args, key, np_node_scalar(size, 0, 0));
    if (pad)
        np_node_add(args, "pad", np_node_scalar(pad, 0, 0));
    np_node_add(map, op, args);
    np_node_add(list, NULL, map);
    np_node_add(list, NULL, np_node_scalar("flip", 0, 0));
    np_report_init(&report, "bench");
    if (np_chain_parse(list, "augment", &chain, &report))
        exit(2);
    return chain;
}

/* stage_ns (may be NULL: clocks cost) takes the time of open, decode and resize. */
static double ours(
    const struct files *files, const struct np_chain *chain, uint32_t epoch, uint64_t *stage_ns)
{
    static uint8_t out[224 * 224 * 3];
    struct np_resizer *resizer = np_resizer_new(NULL);
    struct np_decoder *decoder;
    uint64_t start = now_ns(), times[4] = {0};

    np_decoder_new(&decoder, NULL);
    for (int i = 0; i < files->n; i++) {
        struct np_err err = {0};
        struct np_image_info info;
        struct np_pixels pixels;
        struct np_geometry g;

        times[0] = stage_ns ? now_ns() : 0;
        if (np_decoder_open(decoder, files->bytes[i], files->nr_bytes[i], NULL, &info, &err))
            exit(3);
        np_augment_draw(chain, 1, epoch, (uint32_t)i, info.width, info.height, &g);
        np_geometry_order(&g, NP_RULE_PILLOW_13);
        times[1] = stage_ns ? now_ns() : 0;
        if (np_decoder_decode(decoder, &g, 3, &pixels, &err))
            exit(3);
        times[2] = stage_ns ? now_ns() : 0;
        if (np_resize(resizer, &pixels, &g, out, &err))
            exit(3);
        times[3] = stage_ns ? now_ns() : 0;
        for (int k = 0; stage_ns && k < 3; k++)
            stage_ns[k] += times[k + 1] - times[k];
    }
    start = now_ns() - start;
    np_decoder_free(decoder);
    np_resizer_free(resizer);
    return files->n / (start * 1e-9);
}

static double bare(const struct files *files)
{
    struct jpeg_decompress_struct cinfo;
    struct jpeg_error_mgr errors;
    uint8_t *pixels = malloc(MAX_BYTES);
    uint64_t start = now_ns();

    cinfo.err = jpeg_std_error(&errors);
    jpeg_create_decompress(&cinfo);
    for (int i = 0; i < files->n; i++) {
        jpeg_mem_src(&cinfo, files->bytes[i], files->nr_bytes[i]);
        jpeg_read_header(&cinfo, TRUE);
        cinfo.out_color_space = JCS_RGB;
        jpeg_start_decompress(&cinfo);
        while (cinfo.output_scanline < cinfo.output_height) {
            JSAMPROW row = pixels + (size_t)cinfo.output_scanline * cinfo.output_width * 3;

            jpeg_read_scanlines(&cinfo, &row, 1);
        }
        jpeg_finish_decompress(&cinfo);
    }
    jpeg_destroy_decompress(&cinfo);
    free(pixels);
    return files->n / ((now_ns() - start) * 1e-9);
}

static void measure(const char *name, const struct files *files, const struct np_chain *chain,
    int rounds, bool alone)
{
    double best = 0, best_bare = 0;
    uint64_t ns[3] = {0};

    for (int r = 0; r < rounds; r++) {
        double a = ours(files, chain, (uint32_t)r, NULL), b = alone ? 1 : bare(files);

        best = a > best ? a : best;
        best_bare = b > best_bare ? b : best_bare;
    }
    ours(files, chain, 0, ns);
    printf("%s: %.0f img/s a core, bare whole decode %.0f, ratio %.2f; us an image: open %.1f, "
           "decode %.1f, resize %.1f\n",
        name, best, best_bare, best / best_bare, ns[0] * 1e-3 / files->n, ns[1] * 1e-3 / files->n,
        ns[2] * 1e-3 / files->n);
}

int main(int argc, char **argv)
{
    struct files *photos = calloc(1, sizeof(*photos)), *cifar = calloc(1, sizeof(*cifar));
    int rounds = argc > 2 ? atoi(argv[2]) : 3;
    const char *what = argc > 3 ? argv[3] : "both";
    bool alone = argc > 4;
    uint8_t *packed = malloc(MAX_BYTES);
    struct np_unzstd *unzstd = np_unzstd_new(NULL);
    size_t n;

    if (argc < 2)
        return 2;
    photos->tar = malloc(MAX_BYTES);
    cifar->tar = malloc(MAX_BYTES);
    list_tar(photos, slurp(argv[1], "imagenet-sample-500.tar", photos->tar));
    n = slurp(argv[1], "cifar10-jpeg.tar.zst", packed);
    if (np_unzstd_frame(unzstd, packed, n, cifar->tar, MAX_BYTES, &n, NULL))
        return 3;
    list_tar(cifar, n);
    if (strcmp(what, "cifar") != 0)
        measure("photographs, random_resized_crop 224, flip", photos,
            chain_of("random_resized_crop", "size", "224", NULL), rounds, alone);
    if (strcmp(what, "photos") != 0)
        measure("CIFAR-10 JPEGs, random_crop 32 of 40, flip", cifar,
            chain_of("random_crop", "size", "32", "4"), rounds, alone);
    return 0;
}
