/* Our JPEG decoder beside libjpeg-turbo in one program, one thread, CPU time: whole pictures, and
 * crops as random_resized_crop draws them. Each work is a sweep over all files; the works alternate.
 *   bench_jpeg ROUNDS FILE...
 * The last row of pixels takes nearly all of the entropy decoding, and little else. Files that our
 * decoder refuses are counted and left out. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <jpeglib.h>

#include "loader/base/vectors.h"
#include "loader/pixels/jpeg.h"

enum { WHOLE_TURBO, WHOLE, ENTROPY_TURBO, ENTROPY, CROP_TURBO, CROP, CROP_ENTRIES, NR_WORKS };
#define MAX_ROUNDS 99
static const char *const names[NR_WORKS] = {"whole, libjpeg-turbo", "whole, nnpipe",
    "last row of pixels, libjpeg-turbo", "last row of pixels, nnpipe", "crop, libjpeg-turbo",
    "crop, nnpipe", "crop with entries, nnpipe"};

struct file {
    uint8_t *bytes;
    size_t nr_bytes;
    int width, height, channels;
    struct np_rect box;
    struct np_jpeg_entry *entries;
    int nr_rows;
};

static double now_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static double draw(void)
{
    static uint64_t state = 1;

    state = state * 6364136223846793005u + 1442695040888963407u;
    return (double)(state >> 11) / 9007199254740992.0;
}

/* torchvision's RandomResizedCrop: 8 to 100 % of the area, 3/4 to 4/3. */
static void draw_box(struct file *file)
{
    file->box = (struct np_rect){0, 0, file->width, file->height};
    for (int i = 0; i < 10; i++) {
        const double area = file->width * (double)file->height * (0.08 + 0.92 * draw());
        const double ratio = exp(log(0.75) + draw() * log(16.0 / 9.0));
        const int w = (int)rint(sqrt(area * ratio)), h = (int)rint(sqrt(area / ratio));

        if (w < 1 || h < 1 || w > file->width || h > file->height)
            continue;
        file->box.left = (int)(draw() * (file->width - w + 1));
        file->box.top = (int)(draw() * (file->height - h + 1));
        file->box.right = file->box.left + w;
        file->box.bottom = file->box.top + h;
        return;
    }
}

/* --- the decoders -------------------------------------------------------------------------- */

/* With crop and skip, and two pixels more on each side, which its interpolation needs. */
static void by_turbo(const struct file *file, const struct np_rect *box, uint8_t *out)
{
    struct jpeg_decompress_struct cinfo;
    struct jpeg_error_mgr errors;
    JDIMENSION left = box->left > 2 ? (JDIMENSION)box->left - 2 : 0, width;
    const int top = box->top > 2 ? box->top - 2 : 0;
    const int bottom = box->bottom + 2 < file->height ? box->bottom + 2 : file->height;

    cinfo.err = jpeg_std_error(&errors);
    jpeg_create_decompress(&cinfo);
    jpeg_mem_src(&cinfo, file->bytes, file->nr_bytes);
    jpeg_read_header(&cinfo, TRUE);
    jpeg_start_decompress(&cinfo);
    width = (JDIMENSION)(box->right + 2 < file->width ? box->right + 2 : file->width) - left;
    if (width < cinfo.output_width)
        jpeg_crop_scanline(&cinfo, &left, &width);
    if (top > 0)
        jpeg_skip_scanlines(&cinfo, (JDIMENSION)top);
    while ((int)cinfo.output_scanline < bottom) {
        JSAMPROW row = out + (size_t)(cinfo.output_scanline - (JDIMENSION)top) *
                                 cinfo.output_width * (size_t)cinfo.output_components;

        jpeg_read_scanlines(&cinfo, &row, 1);
    }
    jpeg_abort_decompress(&cinfo);
    jpeg_destroy_decompress(&cinfo);
}

/* False: refused. */
static bool by_ours(struct np_jpeg *jpeg, const struct file *file, const struct np_rect *box)
{
    struct np_image_info info;
    struct np_pixels pixels;
    struct np_err err;

    return np_jpeg_open(jpeg, file->bytes, file->nr_bytes, &info) &&
           (!file->entries || np_jpeg_set_entries(jpeg, file->entries, file->nr_rows, &err) == 0) &&
           np_jpeg_decode(jpeg, box, info.channels, &pixels, &err) == 0;
}

/* --- files --------------------------------------------------------------------------------- */

static bool load(struct np_jpeg *jpeg, const char *path, struct file *file)
{
    FILE *from = fopen(path, "rb");
    struct np_image_info info;
    bool good = from != NULL;

    file->bytes = malloc(64 << 20);
    if (good) {
        file->nr_bytes = fread(file->bytes, 1, 64 << 20, from);
        fclose(from);
    }
    file->bytes = realloc(file->bytes, file->nr_bytes + 1);
    good = good && np_jpeg_open(jpeg, file->bytes, file->nr_bytes, &info);
    if (!good)
        return false;
    file->width = info.width;
    file->height = info.height;
    file->channels = info.channels;
    draw_box(file);
    return by_ours(jpeg, file, &(struct np_rect){0, 0, file->width, file->height});
}

/* Copies of the files with the entries that decoding the whole notes. */
static struct file *with_entries(struct np_jpeg *jpeg, const struct file *files, int n)
{
    struct file *entered = malloc((size_t)n * sizeof(*entered));

    for (int i = 0; i < n; i++) {
        const struct np_jpeg_entries *entries = np_jpeg_entries(jpeg);
        size_t bytes;

        entered[i] = files[i];
        by_ours(jpeg, &files[i], &(struct np_rect){0, 0, files[i].width, files[i].height});
        bytes = (size_t)entries->nr_rows * (size_t)entries->per_row * sizeof(*entries->at);
        entered[i].entries = bytes ? malloc(bytes) : NULL;
        if (bytes)
            memcpy(entered[i].entries, entries->at, bytes);
        entered[i].nr_rows = entries->nr_rows;
    }
    return entered;
}

static double sweep(
    int work, struct np_jpeg *jpeg, const struct file *files, const struct file *entered, int n)
{
    static uint8_t out[200 << 20];
    const double start = now_us();

    for (int i = 0; i < n; i++) {
        const struct file *file = work == CROP_ENTRIES ? &entered[i] : &files[i];
        const struct np_rect all = {0, 0, file->width, file->height};
        const struct np_rect last = {0, file->height - 1, file->width, file->height};
        const struct np_rect *box = work < ENTROPY_TURBO ? &all
                                    : work < CROP_TURBO  ? &last
                                                         : &file->box;

        if (work == WHOLE_TURBO || work == ENTROPY_TURBO || work == CROP_TURBO)
            by_turbo(file, box, out);
        else
            by_ours(jpeg, file, box);
    }
    return (now_us() - start) / n;
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    const int rounds = argc > 2 && atoi(argv[1]) < MAX_ROUNDS ? atoi(argv[1]) : 1;
    struct file *files = calloc((size_t)argc, sizeof(*files)), *entered;
    struct np_jpeg *jpeg = np_jpeg_new(NULL);
    double us[NR_WORKS][MAX_ROUNDS];
    int n = 0;

    for (int i = 2; i < argc; i++)
        n += load(jpeg, argv[i], &files[n]);
    if (n == 0)
        return 2;
    entered = with_entries(jpeg, files, n);
    for (int round = 0; round < rounds; round++)
        for (int work = 0; work < NR_WORKS; work++)
            us[work][round] = sweep(work, jpeg, files, entered, n);
    printf("%d of %d files, %s\n\n", n, argc - 2, np_vectors_name());
    printf("| work | us a picture: median (least to most) | libjpeg-turbo's / ours "
           "|\n|---|---|---|\n");
    for (int work = 0; work < NR_WORKS; work++) {
        const double *turbo = us[work < ENTROPY_TURBO ? WHOLE_TURBO
                                 : work < CROP_TURBO  ? ENTROPY_TURBO
                                                      : CROP_TURBO];

        qsort(us[work], (size_t)rounds, sizeof(double), by_size);
        printf("| %s | %.0f (%.0f to %.0f) | %.2f |\n", names[work], us[work][rounds / 2],
            us[work][0], us[work][rounds - 1], turbo[rounds / 2] / us[work][rounds / 2]);
    }
    return 0;
}
