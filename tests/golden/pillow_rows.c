/* Rows for pillow.sh: reads one geometry a line from stdin and writes the row's bytes to stdout.
 *   pillow_rows SIMD_LEVEL
 *   line: left top right bottom scaled_w scaled_h window_x window_y window_w window_h flip border
 *         filter channels PATH
 * A sample that does not decode gives no bytes and one line on stderr. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/base/io.h"
#include "loader/base/mem.h"
#include "loader/resize.h"

static int row(struct np_decoder *decoder, struct np_resizer *resizer,
    const struct np_geometry *geometry, int channels, const uint8_t *bytes, size_t nr_bytes,
    struct np_err *err)
{
    size_t n = (size_t)geometry->window_w * (size_t)geometry->window_h * (size_t)channels;
    uint8_t *out = malloc(n);
    struct np_image_info info;
    struct np_pixels pixels;
    int code = np_decoder_open(decoder, bytes, nr_bytes, NULL, &info, err);

    if (code == 0)
        code = np_decoder_decode(decoder, geometry, channels, &pixels, err);
    if (code == 0)
        code = np_resize(resizer, &pixels, geometry, out, err);
    if (code == 0)
        fwrite(out, 1, n, stdout);
    free(out);
    return code;
}

static uint8_t *slurp(const char *path, size_t *ret_nr_bytes)
{
    FILE *file = fopen(path, "rb");
    uint8_t *bytes;
    long n;

    if (!file || fseek(file, 0, SEEK_END) || (n = ftell(file)) < 0 || fseek(file, 0, SEEK_SET))
        exit(2);
    bytes = malloc((size_t)n + 1);
    if (!bytes || fread(bytes, 1, (size_t)n, file) != (size_t)n)
        exit(2);
    fclose(file);
    *ret_nr_bytes = (size_t)n;
    return bytes;
}

int main(int argc, char **argv)
{
    struct np_resizer *resizer = np_resizer_new();
    struct np_decoder *decoder;
    struct np_geometry g;
    char line[4096], path[4000], last[4000] = "";
    uint8_t *bytes = NULL;
    size_t nr_bytes = 0;

    if (argc != 2 || !resizer || np_decoder_new(&decoder, NULL))
        return 2;
    np_resize_set_simd(atoi(argv[1]));
    while (fgets(line, sizeof(line), stdin)) {
        int channels, flip, border, filter;
        struct np_err err = {0};

        memset(&g, 0, sizeof(g));
        if (sscanf(line, "%d %d %d %d %d %d %d %d %d %d %d %d %d %d %3999[^\n]", &g.left, &g.top,
                &g.right, &g.bottom, &g.scaled_w, &g.scaled_h, &g.window_x, &g.window_y,
                &g.window_w, &g.window_h, &flip, &border, &filter, &channels, path) != 15)
            return 2;
        g.flip = (uint8_t)flip;
        g.border = (uint8_t)border;
        g.filter = (uint8_t)filter;
        if (strcmp(path, last) != 0) {
            free(bytes);
            bytes = slurp(path, &nr_bytes);
            strcpy(last, path);
        }
        if (row(decoder, resizer, &g, channels, bytes, nr_bytes, &err))
            fprintf(stderr, "%s: %s\n", path, err.text);
    }
    free(bytes);
    np_decoder_free(decoder);
    np_resizer_free(resizer);
    return 0;
}
