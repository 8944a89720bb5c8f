/* Images for tests. Aborts on failure: a test cannot continue without them. */
#include "tests/unit/made_images.h"

#include <stdio.h>
#include <stdlib.h>

#include <jpeglib.h>

uint8_t *made_pixels(int width, int height, int channels, unsigned seed)
{
    uint8_t *pixels = malloc((size_t)width * height * channels + 1), *at = pixels;
    uint32_t noise = seed * 2654435761u + 1;

    if (!pixels)
        abort();
    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x++)
            for (int c = 0; c < channels; c++) {
                int value = (x * (3 + c) + y * (5 - c)) & 255;

                noise = noise * 1664525u + 1013904223u;
                if ((x / 7 + y / 5 + c) % 3 == 0)
                    value = 255 - value; /* edges */
                *at++ = (uint8_t)((value * 7 + (int)(noise >> 24)) / 8);
            }
    return pixels;
}

static void set_kind(j_compress_ptr cinfo, const struct made_jpeg *made)
{
    cinfo->input_components = made->components;
    cinfo->in_color_space = made->components == 1   ? JCS_GRAYSCALE
                            : made->components == 3 ? JCS_RGB
                                                    : JCS_CMYK;
    jpeg_set_defaults(cinfo);
    cinfo->optimize_coding = made->own_codes;
    if (made->rgb)
        jpeg_set_colorspace(cinfo, JCS_RGB);
    if (made->ycck)
        jpeg_set_colorspace(cinfo, JCS_YCCK);
    jpeg_set_quality(cinfo, made->quality ? made->quality : 85, !made->wide);
    for (int c = 0; c < cinfo->num_components; c++)
        cinfo->comp_info[c].h_samp_factor = cinfo->comp_info[c].v_samp_factor = 1;
    for (int c = 1; c < 3 && cinfo->num_components == 3; c++) {
        cinfo->comp_info[c].h_samp_factor = made->chroma_h ? made->chroma_h : 1;
        cinfo->comp_info[c].v_samp_factor = made->chroma_v ? made->chroma_v : 1;
    }
    if (made->third_h && cinfo->num_components == 3) {
        cinfo->comp_info[2].h_samp_factor = made->third_h;
        cinfo->comp_info[2].v_samp_factor = made->third_v;
    }
    cinfo->comp_info[0].h_samp_factor = made->h ? made->h : 1;
    cinfo->comp_info[0].v_samp_factor = made->v ? made->v : 1;
    if (made->components == 4) {
        cinfo->comp_info[3].h_samp_factor = cinfo->comp_info[0].h_samp_factor;
        cinfo->comp_info[3].v_samp_factor = cinfo->comp_info[0].v_samp_factor;
    }
    cinfo->restart_interval = (unsigned)made->restart;
    cinfo->arith_code = made->arithmetic;
    if (made->progressive)
        jpeg_simple_progression(cinfo);
}

/* Pixels of noise, or of a slope. */
static void draw_over(const struct made_jpeg *made, uint8_t *pixels)
{
    uint32_t noise = 1;

    for (int i = 0; i < made->width * made->height * made->components; i++) {
        const int at = i / made->components, x = at % made->width, y = at / made->width;

        noise = noise * 1664525u + 1013904223u;
        pixels[i] = (uint8_t)(made->noise ? noise >> 24 : (uint32_t)(x + 2 * y) / 5 + 40);
    }
}

uint8_t *made_jpeg(const struct made_jpeg *made, size_t *ret_nr_bytes)
{
    struct jpeg_compress_struct cinfo;
    struct jpeg_error_mgr errors;
    unsigned char *bytes = NULL;
    unsigned long nr_bytes = 0;
    uint8_t *pixels = made_pixels(made->width, made->height, made->components, 1);

    if (made->noise || made->smooth)
        draw_over(made, pixels);
    cinfo.err = jpeg_std_error(&errors); /* exits on error */
    errors.trace_level = -1;             /* no remark about wide quantisers */
    jpeg_create_compress(&cinfo);
    jpeg_mem_dest(&cinfo, &bytes, &nr_bytes);
    cinfo.image_width = (JDIMENSION)made->width;
    cinfo.image_height = (JDIMENSION)made->height;
    set_kind(&cinfo, made);
    jpeg_start_compress(&cinfo, TRUE);
    while (cinfo.next_scanline < cinfo.image_height) {
        JSAMPROW row = pixels + (size_t)cinfo.next_scanline * made->width * made->components;

        jpeg_write_scanlines(&cinfo, &row, 1);
    }
    jpeg_finish_compress(&cinfo);
    jpeg_destroy_compress(&cinfo);
    free(pixels);
    *ret_nr_bytes = nr_bytes;
    return bytes;
}
