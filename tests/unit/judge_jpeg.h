/* The judge of JPEG files: libjpeg-turbo's pixels of the whole picture, and a comparison with a part
 * of it. For a test and a fuzzer; one thread. */
#ifndef JUDGE_JPEG_H
#define JUDGE_JPEG_H

#include <setjmp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>

#include "loader/pixels/geometry.h"

struct picture {
    uint8_t *pixels; /* RGB or grey */
    int width, height, channels;
};

static jmp_buf judge_failed;

static inline void give_up(j_common_ptr cinfo)
{
    longjmp(judge_failed, 1);
}

static inline void say_nothing(j_common_ptr cinfo)
{
}

/* libjpeg-turbo's picture; false: it refuses the file. */
static inline bool judge(const uint8_t *bytes, size_t nr_bytes, struct picture *ret_picture)
{
    struct jpeg_decompress_struct cinfo;
    struct jpeg_error_mgr errors;
    uint8_t *volatile pixels = NULL;
    size_t stride;

    cinfo.err = jpeg_std_error(&errors);
    errors.error_exit = give_up;
    errors.output_message = say_nothing;
    jpeg_create_decompress(&cinfo);
    if (setjmp(judge_failed)) {
        jpeg_destroy_decompress(&cinfo);
        free(pixels);
        return false;
    }
    jpeg_mem_src(&cinfo, bytes, nr_bytes);
    jpeg_read_header(&cinfo, TRUE);
    cinfo.out_color_space = cinfo.num_components == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_start_decompress(&cinfo);
    stride = (size_t)cinfo.output_width * (size_t)cinfo.output_components;
    pixels = malloc(stride * cinfo.output_height);
    while (cinfo.output_scanline < cinfo.output_height) {
        JSAMPROW row = pixels + stride * cinfo.output_scanline;

        jpeg_read_scanlines(&cinfo, &row, 1);
    }
    *ret_picture = (struct picture){
        pixels, (int)cinfo.output_width, (int)cinfo.output_height, cinfo.output_components};
    jpeg_destroy_decompress(&cinfo);
    return true;
}

static inline bool equal(
    const struct picture *whole, const struct np_rect *need, const struct np_pixels *part)
{
    const size_t bytes = (size_t)(need->right - need->left) * (size_t)whole->channels;

    for (int y = need->top; y < need->bottom; y++) {
        const uint8_t *row =
            whole->pixels +
            ((size_t)y * (size_t)whole->width + (size_t)need->left) * (size_t)whole->channels;

        if (memcmp(row, part->data + (y - need->top) * part->stride, bytes) != 0)
            return false;
    }
    return part->channels == whole->channels && part->origin_x == need->left &&
           part->origin_y == need->top;
}

#endif
