/* hard_jpegs FROM TO EVERY [TIMES]: the same photographs as files that are harder to decode: of FROM's images
 * CLASS/NAME, EVERY percent are written to TO/CLASS/NAME, the others are linked. As progressive JPEGs without
 * chroma subsampling, of the same size in pixels; with TIMES as a camera writes them, TIMES as wide and high. */
#include <dirent.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jpeglib.h>

static int times = 1;

/* Each of n pixels `times` times, from the last one on: in place. */
static void widen(unsigned char *row, size_t n)
{
    for (size_t to = n * (size_t)times; to-- > 0;)
        memmove(row + 3 * to, row + 3 * (to / (size_t)times), 3);
}

/* Decodes FROM and encodes it again. libjpeg ends the program if it cannot read a file. */
static void rewrite(const char *from, const char *to)
{
    struct jpeg_error_mgr errors;
    struct jpeg_decompress_struct in = {.err = jpeg_std_error(&errors)};
    struct jpeg_compress_struct out = {.err = &errors};
    FILE *source = fopen(from, "rb"), *sink = fopen(to, "wb");
    JSAMPARRAY row;

    if (!source || !sink) {
        perror(source ? to : from);
        exit(1);
    }
    jpeg_create_decompress(&in);
    jpeg_stdio_src(&in, source);
    jpeg_read_header(&in, TRUE);
    in.out_color_space = JCS_RGB;
    jpeg_start_decompress(&in);
    jpeg_create_compress(&out);
    jpeg_stdio_dest(&out, sink);
    out.image_width = in.output_width * (unsigned)times;
    out.image_height = in.output_height * (unsigned)times;
    out.input_components = 3;
    out.in_color_space = JCS_RGB;
    jpeg_set_defaults(&out);
    jpeg_set_quality(&out, times > 1 ? 90 : 95, TRUE);
    if (times == 1) {
        out.comp_info[0].h_samp_factor = out.comp_info[0].v_samp_factor = 1;
        jpeg_simple_progression(&out);
    }
    jpeg_start_compress(&out, TRUE);
    row = in.mem->alloc_sarray((j_common_ptr)&in, JPOOL_IMAGE, out.image_width * 3, 1);
    while (in.output_scanline < in.output_height) {
        jpeg_read_scanlines(&in, row, 1);
        widen(row[0], in.output_width);
        for (int i = 0; i < times; i++)
            jpeg_write_scanlines(&out, row, 1);
    }
    jpeg_finish_compress(&out);
    jpeg_finish_decompress(&in);
    jpeg_destroy_compress(&out);
    jpeg_destroy_decompress(&in);
    fclose(source);
    fclose(sink);
}

static void one_class(const char *from, const char *to, double share, double *owed)
{
    DIR *folder = opendir(from);
    struct dirent *entry;
    char source[4096], sink[4096];

    mkdir(to, 0777);
    while (folder && (entry = readdir(folder))) {
        if (entry->d_name[0] == '.')
            continue;
        snprintf(source, sizeof(source), "%s/%s", from, entry->d_name);
        snprintf(sink, sizeof(sink), "%s/%s", to, entry->d_name);
        unlink(sink);
        *owed += share;
        if (*owed >= 1) {
            *owed -= 1;
            rewrite(source, sink);
        } else if (link(source, sink) < 0) {
            perror(sink);
            exit(1);
        }
    }
    if (folder)
        closedir(folder);
}

int main(int argc, char **argv)
{
    DIR *folder = argc == 4 || argc == 5 ? opendir(argv[1]) : NULL;
    struct dirent *entry;
    char from[4096], to[4096];
    double owed = 0;

    if (!folder) {
        fprintf(stderr, "usage: hard_jpegs FROM TO PERCENT [TIMES]\n");
        return 64;
    }
    if (argc == 5 && (times = atoi(argv[4])) < 1)
        times = 1;
    mkdir(argv[2], 0777);
    while ((entry = readdir(folder))) {
        if (entry->d_name[0] == '.')
            continue;
        snprintf(from, sizeof(from), "%s/%s", argv[1], entry->d_name);
        snprintf(to, sizeof(to), "%s/%s", argv[2], entry->d_name);
        one_class(from, to, atof(argv[3]) / 100, &owed);
    }
    closedir(folder);
    return 0;
}
