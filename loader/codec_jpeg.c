/* JPEG -> pixels, equal to the whole decode of libjpeg-turbo with ISLOW and fancy upsampling,
 * which is what Pillow gives, but only the part a geometry needs. Reader threads, a state each;
 * the decompressor, its tables and the buffers are kept from image to image.
 *
 * What is found out about a damaged file: any libjpeg warning (but extraneous bytes before a
 * marker) makes it bad. Entropy-coded data below the last row that is needed is not decoded, so a
 * bad code there goes unseen; that the file goes on to its end marker is checked always, so a file
 * cut short is bad whatever the crop. Progressive files are read whole. */
#include "loader/codec.h"

#include <assert.h>
#include <errno.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>
#include <jerror.h>

#include "loader/base/mem.h"
#include "loader/codec_convert.h"
#include "loader/geometry.h"

#define MAX_SCANS  500 /* of a progressive file: more is an attack on our time */
#define SMALL_SIDE 64  /* up to here a crop costs more than it saves */
#define HALO       2   /* pixels that fancy upsampling looks past an edge */
#define LEAST_CROP 16  /* a narrower picture would get plain upsampling */
#define MAX_ROWS   64  /* row pointers handed to libjpeg at a time */
/* Rows begin this many bytes past NP_ALIGN: libjpeg-turbo writes rows that are aligned to 32 bytes
 * past the cache, and ours are read again at once. */
#define ODD 16

struct jpeg_state {
    struct jpeg_decompress_struct cinfo;
    struct jpeg_error_mgr errors;
    struct jpeg_source_mgr source;
    struct jpeg_progress_mgr progress;
    jmp_buf failed;
    char message[JMSG_LENGTH_MAX];
    const uint8_t *bytes; /* whose header has been read; NULL: nobody's */
    size_t nr_bytes;
    uint8_t *pixels; /* as libjpeg gives them */
    uint8_t *converted;
    size_t pixels_bytes, converted_bytes;
};

/* --- libjpeg's callbacks ------------------------------------------------------------------- */

static void fail(j_common_ptr cinfo)
{
    struct jpeg_state *state = cinfo->client_data;

    cinfo->err->format_message(cinfo, state->message);
    longjmp(state->failed, 1);
}

static void fail_with(j_decompress_ptr cinfo, const char *message)
{
    struct jpeg_state *state = cinfo->client_data;

    snprintf(state->message, sizeof(state->message), "%s", message);
    longjmp(state->failed, 1);
}

static void heed_warning(j_common_ptr cinfo, int level)
{
    if (level < 0 && cinfo->err->msg_code != JWRN_EXTRANEOUS_DATA)
        fail(cinfo);
}

static void say_nothing(j_common_ptr cinfo)
{
    (void)cinfo;
}

static void limit_scans(j_common_ptr common)
{
    j_decompress_ptr cinfo = (j_decompress_ptr)common;

    if (cinfo->input_scan_number > MAX_SCANS)
        fail_with(cinfo, "more than 500 scans");
}

static void nothing(j_decompress_ptr cinfo)
{
    (void)cinfo;
}

static boolean end_of_bytes(j_decompress_ptr cinfo)
{
    fail_with(cinfo, "the file ends too early");
    return FALSE;
}

static void skip_bytes(j_decompress_ptr cinfo, long nr_bytes)
{
    if (nr_bytes <= 0)
        return;
    if ((size_t)nr_bytes > cinfo->src->bytes_in_buffer)
        fail_with(cinfo, "the file ends too early");
    cinfo->src->next_input_byte += nr_bytes;
    cinfo->src->bytes_in_buffer -= (size_t)nr_bytes;
}

/* --- the table's entries ------------------------------------------------------------------- */

static bool jpeg_sniff(const uint8_t *bytes, size_t nr_bytes)
{
    return nr_bytes >= 3 && bytes[0] == 0xff && bytes[1] == 0xd8 && bytes[2] == 0xff;
}

static int jpeg_init(void **ret_state)
{
    struct jpeg_state *state = np_alloc(sizeof(*state));

    if (!state)
        return -ENOMEM;
    state->cinfo.err = jpeg_std_error(&state->errors);
    state->errors.error_exit = fail;
    state->errors.emit_message = heed_warning;
    state->errors.output_message = say_nothing;
    state->cinfo.client_data = state;
    if (setjmp(state->failed)) {
        np_free(state);
        return -ENOMEM;
    }
    jpeg_create_decompress(&state->cinfo);
    state->cinfo.client_data = state;
    state->source = (struct jpeg_source_mgr){.init_source = nothing,
        .fill_input_buffer = end_of_bytes,
        .skip_input_data = skip_bytes,
        .resync_to_restart = jpeg_resync_to_restart,
        .term_source = nothing};
    state->cinfo.src = &state->source;
    state->progress.progress_monitor = limit_scans;
    *ret_state = state;
    return 0;
}

static void jpeg_fini(void *memory)
{
    struct jpeg_state *state = memory;

    if (!state)
        return;
    jpeg_destroy_decompress(&state->cinfo);
    np_free(state->pixels);
    np_free(state->converted);
    np_free(state);
}

/* Reads the header, or longjmps. */
static void read_header(struct jpeg_state *state, const uint8_t *bytes, size_t nr_bytes)
{
    j_decompress_ptr cinfo = &state->cinfo;

    jpeg_abort_decompress(cinfo);
    state->bytes = NULL;
    cinfo->progress = NULL;
    state->source.next_input_byte = bytes;
    state->source.bytes_in_buffer = nr_bytes;
    jpeg_read_header(cinfo, TRUE);
    if ((uint64_t)cinfo->image_width * cinfo->image_height > NP_MAX_PIXELS)
        fail_with(cinfo, "it has more than 178956970 pixels");
    if (cinfo->jpeg_color_space == JCS_UNKNOWN ||
        (cinfo->num_components != 1 && cinfo->num_components != 3 && cinfo->num_components != 4))
        fail_with(cinfo, "it is neither grey, colour nor CMYK");
    state->bytes = bytes;
    state->nr_bytes = nr_bytes;
}

static int failed(struct jpeg_state *state, struct np_err *err)
{
    state->bytes = NULL;
    jpeg_abort_decompress(&state->cinfo);
    return np_err_set(err, -EBADMSG, "bad JPEG: %s", state->message);
}

static int jpeg_info(void *memory, const uint8_t *bytes, size_t nr_bytes,
    struct np_image_info *ret_info, struct np_err *err)
{
    struct jpeg_state *state = memory;

    if (setjmp(state->failed))
        return failed(state, err);
    read_header(state, bytes, nr_bytes);
    ret_info->width = (int)state->cinfo.image_width;
    ret_info->height = (int)state->cinfo.image_height;
    ret_info->channels = state->cinfo.num_components;
    return 0;
}

/* --- what to decode ------------------------------------------------------------------------ */

/* A progressive file may leave coefficients unsent; libjpeg then smooths across blocks, and a crop
 * would see other neighbours. */
static bool smooths(j_decompress_ptr cinfo)
{
    if (!cinfo->progressive_mode || !cinfo->coef_bits)
        return false;
    for (int c = 0; c < cinfo->num_components; c++)
        for (int i = 0; i < DCTSIZE2; i++)
            if (cinfo->coef_bits[c][i] != 0)
                return true;
    return false;
}

/* Widens need to what gives the same pixels as the whole image. */
static void widen(j_decompress_ptr cinfo, struct np_rect *need)
{
    int width = (int)cinfo->output_width, height = (int)cinfo->output_height;

    if ((width <= SMALL_SIDE && height <= SMALL_SIDE) || smooths(cinfo)) {
        *need = (struct np_rect){0, 0, width, height};
        return;
    }
    if (cinfo->max_h_samp_factor > 1) {
        need->left -= HALO;
        need->right += HALO;
    }
    if (need->right < need->left + LEAST_CROP)
        need->right = need->left + LEAST_CROP;
    if (need->right > width) {
        need->right = width;
        if (need->left > width - LEAST_CROP)
            need->left = width - LEAST_CROP;
    }
    if (need->left < 0)
        need->left = 0;
    if (cinfo->max_v_samp_factor > 1) {
        need->top -= HALO;
        need->bottom += HALO;
    }
    if (need->top < 0)
        need->top = 0;
    if (need->bottom > height)
        need->bottom = height;
}

/* Does the end marker stand where reading stopped, or anywhere after? Stuffed data cannot look
 * like it. */
static bool has_end(j_decompress_ptr cinfo)
{
    const uint8_t *first = cinfo->src->next_input_byte;
    size_t n = cinfo->src->bytes_in_buffer;

    if (jpeg_input_complete(cinfo) || cinfo->unread_marker == JPEG_EOI)
        return true;
    while (n >= 2) {
        const uint8_t *last = memrchr(first + 1, JPEG_EOI, n - 1);

        if (!last)
            return false;
        if (last[-1] == 0xff)
            return true;
        n = (size_t)(last - first);
    }
    return false;
}

static void choose_output(j_decompress_ptr cinfo, int channels)
{
    if (cinfo->num_components == 1)
        cinfo->out_color_space = channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    else
        cinfo->out_color_space = cinfo->num_components == 4 ? JCS_CMYK : JCS_RGB;
    cinfo->dct_method = JDCT_ISLOW;
    cinfo->do_fancy_upsampling = TRUE;
}

static void read_rows(struct jpeg_state *state, int nr_rows, size_t stride)
{
    JSAMPROW rows[MAX_ROWS];
    uint8_t *at = state->pixels + ODD;

    while (nr_rows > 0) {
        int n = nr_rows < MAX_ROWS ? nr_rows : MAX_ROWS;

        for (int i = 0; i < n; i++)
            rows[i] = at + (size_t)i * stride;
        n = (int)jpeg_read_scanlines(&state->cinfo, rows, (JDIMENSION)n);
        at += (size_t)n * stride;
        nr_rows -= n;
    }
}

/* Decodes need, widened, into state->pixels; or longjmps. */
static void decode_part(struct jpeg_state *state, struct np_rect need, struct np_pixels *ret_pixels)
{
    j_decompress_ptr cinfo = &state->cinfo;
    JDIMENSION left, width;
    size_t stride;

    if (cinfo->progressive_mode)
        cinfo->progress = &state->progress;
    jpeg_start_decompress(cinfo);
    widen(cinfo, &need);
    left = (JDIMENSION)need.left;
    width = (JDIMENSION)(need.right - need.left);
    if (width < cinfo->output_width)
        jpeg_crop_scanline(cinfo, &left, &width);
    stride = ((size_t)cinfo->output_width * cinfo->output_components + NP_ALIGN - 1) / NP_ALIGN *
             NP_ALIGN;
    if (np_hold(
            &state->pixels, &state->pixels_bytes, stride * (size_t)(need.bottom - need.top) + ODD))
        fail_with(cinfo, "out of memory");
    if (need.top > 0)
        jpeg_skip_scanlines(cinfo, (JDIMENSION)need.top);
    read_rows(state, need.bottom - need.top, stride);
    if (!has_end(cinfo))
        fail_with(cinfo, "the file ends too early");
    *ret_pixels = (struct np_pixels){.data = state->pixels + ODD,
        .width = (int)cinfo->output_width,
        .height = need.bottom - need.top,
        .channels = cinfo->output_components,
        .stride = (ptrdiff_t)stride,
        .origin_x = (int)left,
        .origin_y = need.top};
}

static int jpeg_decode(void *memory, const uint8_t *bytes, size_t nr_bytes,
    const struct np_geometry *geometry, int channels, struct np_pixels *ret_pixels,
    struct np_err *err)
{
    struct jpeg_state *state = memory;
    struct np_pixels pixels;
    struct np_rect need;

    assert(channels == 1 || channels == 3);
    if (setjmp(state->failed))
        return failed(state, err);
    if (state->bytes != bytes || state->nr_bytes != nr_bytes)
        read_header(state, bytes, nr_bytes);
    np_geometry_need(geometry, &need);
    assert(need.left >= 0 && need.right <= (int)state->cinfo.image_width);
    assert(need.top >= 0 && need.bottom <= (int)state->cinfo.image_height);
    choose_output(&state->cinfo, channels);
    decode_part(state, need, &pixels);
    jpeg_abort_decompress(&state->cinfo);
    state->bytes = NULL;
    /* Adobe's CMYK lies inverted, and Pillow turns every CMYK JPEG over: so does np_convert. */
    if (np_convert(&pixels, channels, &state->converted, &state->converted_bytes))
        return np_err_set(err, -ENOMEM, "out of memory for converting an image");
    *ret_pixels = pixels;
    return 0;
}

/* --- packing ------------------------------------------------------------------------------- */

struct jpeg_packer {
    struct jpeg_compress_struct cinfo;
    struct jpeg_error_mgr errors;
    jmp_buf failed;
    char message[JMSG_LENGTH_MAX];
    unsigned char *bytes;
    unsigned long nr_bytes;
};

static void fail_packing(j_common_ptr cinfo)
{
    struct jpeg_packer *packer = cinfo->client_data;

    cinfo->err->format_message(cinfo, packer->message);
    longjmp(packer->failed, 1);
}

static void write_rows(struct jpeg_packer *packer, const uint8_t *pixels, int width, int height,
    int channels, int quality)
{
    j_compress_ptr cinfo = &packer->cinfo;

    jpeg_create_compress(cinfo);
    jpeg_mem_dest(cinfo, &packer->bytes, &packer->nr_bytes);
    cinfo->image_width = (JDIMENSION)width;
    cinfo->image_height = (JDIMENSION)height;
    cinfo->input_components = channels;
    cinfo->in_color_space = channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_set_defaults(cinfo);
    jpeg_set_quality(cinfo, quality, TRUE);
    cinfo->optimize_coding = TRUE;
    jpeg_start_compress(cinfo, TRUE);
    while (cinfo->next_scanline < cinfo->image_height) {
        JSAMPROW row =
            (JSAMPROW)(pixels + (size_t)cinfo->next_scanline * (size_t)width * (size_t)channels);

        jpeg_write_scanlines(cinfo, &row, 1);
    }
    jpeg_finish_compress(cinfo);
}

static int jpeg_encode(const uint8_t *pixels, int width, int height, int channels, int quality,
    uint8_t **ret_bytes, size_t *ret_nr_bytes, struct np_err *err)
{
    struct jpeg_packer *packer = np_alloc(sizeof(*packer));
    uint8_t *copy = NULL;
    int code = 0;

    assert((channels == 1 || channels == 3) && quality >= 1 && quality <= 100);
    if (!packer)
        return np_err_set(err, -ENOMEM, "out of memory for writing a JPEG");
    packer->cinfo.err = jpeg_std_error(&packer->errors);
    packer->errors.error_exit = fail_packing;
    packer->errors.output_message = say_nothing;
    packer->cinfo.client_data = packer;
    if (setjmp(packer->failed)) {
        code = np_err_set(err, -EINVAL, "cannot write an image of %d x %d as JPEG: %s", width,
            height, packer->message);
        goto out;
    }
    write_rows(packer, pixels, width, height, channels, quality);
    copy = np_alloc(packer->nr_bytes);
    if (!copy) {
        code = np_err_set(err, -ENOMEM, "out of memory for writing a JPEG");
        goto out;
    }
    memcpy(copy, packer->bytes, packer->nr_bytes);
    *ret_bytes = copy;
    *ret_nr_bytes = packer->nr_bytes;
out:
    jpeg_destroy_compress(&packer->cinfo);
    free(packer->bytes);
    np_free(packer);
    return code;
}

const struct np_codec np_codec_jpeg = {
    .name = "jpeg",
    .sniff = jpeg_sniff,
    .init = jpeg_init,
    .info = jpeg_info,
    .decode = jpeg_decode,
    .encode = jpeg_encode,
    .fini = jpeg_fini,
};
