/* JPEG -> pixels. Decodes only the part that a geometry needs; its pixels are those of Pillow,
 * which uses libjpeg-turbo with ISLOW and fancy upsampling. Our own decoder (jpeg.h) decodes most
 * files; libjpeg-turbo decodes those that it refuses, and decides which are bad. Reader threads, a
 * state each; decompressor and buffers are reused for the next image, but never a table.
 *
 * Whether a file is bad depends on its bytes alone, not on the part decoded: it is bad if Pillow
 * cannot load it (docs/PIXELS.md). Pillow ignores libjpeg's warnings, so a file of one Huffman scan
 * that runs to its end marker is good whatever its codes are: a search for markers shows that,
 * without decoding. Of any other file all data is read, from a source that stops where Pillow's
 * does, since Pillow may not read the bytes after such a stop. */
#include "loader/pixels/codec.h"

#include <assert.h>
#include <errno.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>
#include <jerror.h>

#include "loader/base/mem.h"
#include "loader/pixels/jpeg.h"

#define MAX_SCANS  500   /* of a progressive file; more would take too long */
#define SMALL_SIDE 64    /* up to here a crop costs more than it saves */
#define HALO       2     /* pixels past an edge that fancy upsampling reads */
#define MIN_CROP   16    /* a narrower picture would get plain upsampling */
#define MAX_ROWS   64    /* row pointers handed to libjpeg at a time */
#define BLOCK      65536 /* bytes that Pillow reads from a file at a time */
/* Rows begin this many bytes past NP_ALIGN: libjpeg-turbo bypasses the cache for rows aligned to 32
 * bytes, but ours are read again at once. */
#define ODD 16

struct jpeg_state {
    struct jpeg_decompress_struct cinfo;
    struct jpeg_error_mgr errors;
    struct jpeg_source_mgr source;
    struct jpeg_progress_mgr progress;
    jmp_buf failed;
    int code; /* why it failed: -EBADMSG or -ENOMEM */
    char message[JMSG_LENGTH_MAX];
    const uint8_t *bytes; /* of the file whose header has been read; NULL: none */
    size_t nr_bytes;
    const uint8_t *end,
        *limit; /* of the file; of the bytes that the source gives before it stops */
    uint8_t *pixels;
    size_t pixels_bytes;
    struct np_jpeg *own;
    const uint8_t *own_bytes; /* of the file that it opened and has not refused; NULL: none */
};

/* --- libjpeg's callbacks ------------------------------------------------------------------- */

static void fail(j_common_ptr cinfo)
{
    struct jpeg_state *state = cinfo->client_data;

    cinfo->err->format_message(cinfo, state->message);
    state->code = cinfo->err->msg_code == JERR_OUT_OF_MEMORY ? -ENOMEM : -EBADMSG;
    longjmp(state->failed, 1);
}

static void fail_with(struct jpeg_state *state, int code, const char *message)
{
    snprintf(state->message, sizeof(state->message), "%s", message);
    state->code = code;
    longjmp(state->failed, 1);
}

static void ignore_warning(j_common_ptr cinfo, int level)
{
}

static void print_nothing(j_common_ptr cinfo)
{
}

static void limit_scans(j_common_ptr common)
{
    j_decompress_ptr cinfo = (j_decompress_ptr)common;

    if (cinfo->input_scan_number > MAX_SCANS)
        fail_with(common->client_data, -EBADMSG, "more than 500 scans");
}

static void nothing(j_decompress_ptr cinfo)
{
}

/* The source is at its limit: libjpeg's call returns, and the caller repeats it after
 * next_block(). */
static boolean suspend(j_decompress_ptr cinfo)
{
    return FALSE;
}

static void skip_bytes(j_decompress_ptr cinfo, long nr_bytes)
{
    struct jpeg_state *state = cinfo->client_data;
    struct jpeg_source_mgr *source = cinfo->src;
    const size_t rest = (size_t)(state->end - source->next_input_byte);

    if (nr_bytes <= 0)
        return;
    source->next_input_byte += (size_t)nr_bytes < rest ? (size_t)nr_bytes : rest;
    if ((size_t)nr_bytes < source->bytes_in_buffer)
        source->bytes_in_buffer -= (size_t)nr_bytes;
    else
        source->bytes_in_buffer = 0;
}

/* Sets the source's limit to the end of the block that `at` ends or is in. */
static void limit_to_block(struct jpeg_state *state, const uint8_t *at)
{
    const size_t blocks = ((size_t)(at - state->bytes) + BLOCK - 1) / BLOCK;

    state->limit = blocks * BLOCK < state->nr_bytes ? state->bytes + blocks * BLOCK : state->end;
    state->source.bytes_in_buffer = (size_t)(state->limit - state->source.next_input_byte);
}

/* Adds one block, as Pillow does when libjpeg stops; longjmps if there is none. */
static void next_block(struct jpeg_state *state)
{
    const uint8_t *at = state->source.next_input_byte;

    if (state->limit == state->end)
        fail_with(state, -EBADMSG, "the file ends too early");
    limit_to_block(state, at > state->limit ? at : state->limit + 1);
}

/* --- the table's entries ------------------------------------------------------------------- */

static bool jpeg_sniff(const uint8_t *bytes, size_t nr_bytes)
{
    return nr_bytes >= 3 && bytes[0] == 0xff && bytes[1] == 0xd8 && bytes[2] == 0xff;
}

static void jpeg_fini(void *memory)
{
    struct jpeg_state *state = memory;

    if (!state)
        return;
    jpeg_destroy_decompress(&state->cinfo);
    np_jpeg_free(state->own);
    np_free(state->pixels);
    np_free(state);
}

static int jpeg_init(void **ret_state, struct np_err *err)
{
    struct jpeg_state *state = np_try_alloc(sizeof(*state), err);

    if (!state)
        return -ENOMEM;
    state->cinfo.err = jpeg_std_error(&state->errors);
    state->errors.error_exit = fail;
    state->errors.emit_message = ignore_warning;
    state->cinfo.client_data = state;
    state->source = (struct jpeg_source_mgr){.init_source = nothing,
        .fill_input_buffer = suspend,
        .skip_input_data = skip_bytes,
        .resync_to_restart = jpeg_resync_to_restart,
        .term_source = nothing};
    state->progress.progress_monitor = limit_scans;
    state->own = np_jpeg_new(err);
    if (!state->own) {
        np_free(state);
        return -ENOMEM;
    }
    *ret_state = state;
    return 0;
}

/* Marks the present tables as another file's: any DQT or DHT overwrites the mark. */
static void mark_tables(j_decompress_ptr cinfo)
{
    for (int i = 0; i < NUM_QUANT_TBLS; i++)
        if (cinfo->quant_tbl_ptrs[i])
            cinfo->quant_tbl_ptrs[i]->quantval[0] = 0;
    for (int i = 0; i < NUM_HUFF_TBLS; i++) {
        if (cinfo->dc_huff_tbl_ptrs[i])
            cinfo->dc_huff_tbl_ptrs[i]->bits[0] = 1;
        if (cinfo->ac_huff_tbl_ptrs[i])
            cinfo->ac_huff_tbl_ptrs[i]->bits[0] = 1;
    }
}

static bool quant_is_marked(const j_decompress_ptr cinfo, int i)
{
    return i >= 0 && i < NUM_QUANT_TBLS && cinfo->quant_tbl_ptrs[i] &&
           cinfo->quant_tbl_ptrs[i]->quantval[0] == 0;
}

static bool huff_is_marked(JHUFF_TBL *const tables[NUM_HUFF_TBLS], int i)
{
    return i >= 0 && i < NUM_HUFF_TBLS && tables[i] && tables[i]->bits[0] != 0;
}

/* True if the file may use another file's table. With several scans any marked table counts, since
 * the file may define tables between them. */
static bool borrows_tables(j_decompress_ptr cinfo)
{
    bool borrows = false;

    for (int c = 0; c < cinfo->num_components; c++) {
        const jpeg_component_info *component = &cinfo->comp_info[c];

        borrows |= quant_is_marked(cinfo, component->quant_tbl_no) ||
                   huff_is_marked(cinfo->dc_huff_tbl_ptrs, component->dc_tbl_no) ||
                   huff_is_marked(cinfo->ac_huff_tbl_ptrs, component->ac_tbl_no);
    }
    for (int i = 0; jpeg_has_multiple_scans(cinfo) && i < NUM_QUANT_TBLS; i++)
        borrows |= quant_is_marked(cinfo, i) || huff_is_marked(cinfo->dc_huff_tbl_ptrs, i) ||
                   huff_is_marked(cinfo->ac_huff_tbl_ptrs, i);
    return borrows;
}

/* Resets the decompressor, or makes one; may longjmp. */
static void begin(struct jpeg_state *state, const uint8_t *bytes, size_t nr_bytes)
{
    j_decompress_ptr cinfo = &state->cinfo;

    state->bytes = NULL;
    if (cinfo->mem) {
        jpeg_abort_decompress(cinfo);
        mark_tables(cinfo);
    } else {
        jpeg_create_decompress(cinfo);
        cinfo->mem->max_memory_to_use = 0; /* ignores $JPEGMEM */
        cinfo->src = &state->source;
    }
    cinfo->progress = NULL;
    state->source.next_input_byte = bytes;
    state->source.bytes_in_buffer = nr_bytes;
    state->end = state->limit = bytes + nr_bytes;
}

/* May longjmp. Tables alone, with their own end marker, may come first. */
static void find_header(struct jpeg_state *state, const uint8_t *bytes, size_t nr_bytes)
{
    int found;

    begin(state, bytes, nr_bytes);
    do
        found = jpeg_read_header(&state->cinfo, FALSE);
    while (found == JPEG_HEADER_TABLES_ONLY);
    if (found == JPEG_SUSPENDED)
        fail_with(state, -EBADMSG, "the file ends too early");
}

/* Reads the header; may longjmp. For a file that lacks tables makes a new decompressor, which has
 * none either. */
static void read_header(struct jpeg_state *state, const uint8_t *bytes, size_t nr_bytes)
{
    j_decompress_ptr cinfo = &state->cinfo;

    find_header(state, bytes, nr_bytes);
    if (borrows_tables(cinfo)) {
        jpeg_destroy_decompress(cinfo);
        find_header(state, bytes, nr_bytes);
    }
    if (cinfo->jpeg_color_space == JCS_UNKNOWN ||
        (cinfo->num_components != 1 && cinfo->num_components != 3 && cinfo->num_components != 4))
        fail_with(state, -EBADMSG, "it is not grey, colour or CMYK");
    state->bytes = bytes;
    state->nr_bytes = nr_bytes;
}

/* Bytes of coefficients that libjpeg keeps until it has read all scans; 0 if there is one scan. */
static uint64_t coefficient_bytes(j_decompress_ptr cinfo)
{
    uint64_t blocks = 0;

    if (jpeg_has_multiple_scans(cinfo))
        for (int c = 0; c < cinfo->num_components; c++)
            blocks += (uint64_t)cinfo->comp_info[c].width_in_blocks *
                      cinfo->comp_info[c].height_in_blocks;
    return blocks * sizeof(JBLOCK);
}

static int failed(struct jpeg_state *state, struct np_err *err)
{
    state->bytes = NULL;
    jpeg_abort_decompress(&state->cinfo);
    return np_err_set(
        err, state->code, state->code == -ENOMEM ? "%s" : "bad JPEG: %s", state->message);
}

static int jpeg_info(void *memory, const uint8_t *bytes, size_t nr_bytes,
    struct np_image_info *ret_info, struct np_err *err)
{
    struct jpeg_state *state = memory;

    state->own_bytes = NULL;
    if (np_jpeg_open(state->own, bytes, nr_bytes, ret_info)) {
        state->own_bytes = bytes;
        return 0;
    }
    if (setjmp(state->failed))
        return failed(state, err);
    read_header(state, bytes, nr_bytes);
    ret_info->width = (int)state->cinfo.image_width;
    ret_info->height = (int)state->cinfo.image_height;
    ret_info->channels = state->cinfo.num_components;
    ret_info->coefficient_bytes = coefficient_bytes(&state->cinfo);
    return 0;
}

/* --- decoding ------------------------------------------------------------------------------ */

/* A progressive file may lack coefficients; libjpeg then smooths across blocks, and a crop would
 * have other neighbours. */
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

/* Widens need so that its pixels are the same as in the whole image. */
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
    if (need->right < need->left + MIN_CROP)
        need->right = need->left + MIN_CROP;
    if (need->right > width) {
        need->right = width;
        if (need->left > width - MIN_CROP)
            need->left = width - MIN_CROP;
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

/* True if the end marker is the first marker in the entropy-coded data, not counting stuffed bytes,
 * fill bytes and restarts. */
static bool runs_to_its_end(const uint8_t *at, const uint8_t *end)
{
    while (at < end && (at = memchr(at, 0xff, (size_t)(end - at))) != NULL) {
        while (at < end && *at == 0xff)
            at++;
        if (at == end)
            return false;
        if (*at != 0 && (*at < JPEG_RST0 || *at > JPEG_RST0 + 7))
            return *at == JPEG_EOI;
        at++;
    }
    return false;
}

static void choose_output(j_decompress_ptr cinfo, int channels)
{
    if (cinfo->num_components == 1)
        cinfo->out_color_space = channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    else /* Adobe's CMYK is inverted, and Pillow inverts that of every JPEG */
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
        if (n == 0)
            next_block(state);
        at += (size_t)n * stride;
        nr_rows -= n;
    }
}

static size_t hold_rows(struct jpeg_state *state, int nr_rows)
{
    const j_decompress_ptr cinfo = &state->cinfo;
    const size_t stride = ((size_t)cinfo->output_width * cinfo->output_components + NP_ALIGN - 1) /
                          NP_ALIGN * NP_ALIGN;

    if (np_hold(&state->pixels, &state->pixels_bytes, stride * (size_t)nr_rows + ODD, NULL))
        fail_with(state, -ENOMEM, "out of memory for an image");
    return stride;
}

/* Decodes need, widened, into state->pixels; may longjmp. All input has been read, or it cannot end
 * too early, as jpeg_skip_scanlines() requires. */
static void decode_part(struct jpeg_state *state, struct np_rect need, struct np_pixels *ret_pixels)
{
    j_decompress_ptr cinfo = &state->cinfo;
    JDIMENSION left, width;
    size_t stride;

    widen(cinfo, &need);
    left = (JDIMENSION)need.left;
    width = (JDIMENSION)(need.right - need.left);
    if (width < cinfo->output_width)
        jpeg_crop_scanline(cinfo, &left, &width);
    stride = hold_rows(state, need.bottom - need.top);
    if (need.top > 0)
        jpeg_skip_scanlines(cinfo, (JDIMENSION)need.top);
    read_rows(state, need.bottom - need.top, stride);
    *ret_pixels = (struct np_pixels){.data = state->pixels + ODD,
        .width = (int)cinfo->output_width,
        .height = need.bottom - need.top,
        .channels = cinfo->output_components,
        .stride = (ptrdiff_t)stride,
        .origin_x = (int)left,
        .origin_y = need.top};
}

/* Decodes the whole of one scan that may not run to its end marker into state->pixels; may longjmp.
 * If the source stops after the last row, Pillow reads no further. */
static void decode_all(struct jpeg_state *state, struct np_pixels *ret_pixels)
{
    j_decompress_ptr cinfo = &state->cinfo;
    const size_t stride = hold_rows(state, (int)cinfo->output_height);

    read_rows(state, (int)cinfo->output_height, stride);
    jpeg_finish_decompress(cinfo);
    *ret_pixels = (struct np_pixels){.data = state->pixels + ODD,
        .width = (int)cinfo->output_width,
        .height = (int)cinfo->output_height,
        .channels = cinfo->output_components,
        .stride = (ptrdiff_t)stride};
}

/* Decodes at least need; longjmps if the file is bad. */
static void decode_checked(
    struct jpeg_state *state, const struct np_rect *need, struct np_pixels *ret_pixels)
{
    j_decompress_ptr cinfo = &state->cinfo;
    const bool many_scans = jpeg_has_multiple_scans(cinfo);
    const bool sound = !many_scans && !cinfo->arith_code &&
                       runs_to_its_end(cinfo->src->next_input_byte, state->end);

    if (!sound)
        limit_to_block(state, cinfo->src->next_input_byte);
    if (many_scans)
        cinfo->progress = &state->progress;
    while (!jpeg_start_decompress(cinfo)) /* reads several scans up to the end marker */
        next_block(state);
    if (sound || many_scans)
        decode_part(state, *need, ret_pixels);
    else
        decode_all(state, ret_pixels);
}

static int decode_by_libjpeg(struct jpeg_state *state, const uint8_t *bytes, size_t nr_bytes,
    const struct np_rect *need, int channels, struct np_pixels *ret_pixels, struct np_err *err)
{
    if (setjmp(state->failed))
        return failed(state, err);
    if (state->bytes != bytes || state->nr_bytes != nr_bytes)
        read_header(state, bytes, nr_bytes);
    assert(need->left >= 0 && need->right <= (int)state->cinfo.image_width);
    assert(need->top >= 0 && need->bottom <= (int)state->cinfo.image_height);
    choose_output(&state->cinfo, channels);
    decode_checked(state, need, ret_pixels);
    jpeg_abort_decompress(&state->cinfo);
    state->bytes = NULL;
    return 0;
}

static int jpeg_decode(void *memory, const uint8_t *bytes, size_t nr_bytes,
    const struct np_geometry *geometry, int channels, struct np_pixels *ret_pixels,
    struct np_err *err)
{
    struct jpeg_state *state = memory;
    struct np_rect need;
    int code = -EBADMSG;

    np_geometry_need(geometry, &need);
    if (state->own_bytes == bytes)
        code = np_jpeg_decode(state->own, &need, channels, ret_pixels, err);
    if (code != -EBADMSG)
        return code;
    state->own_bytes = NULL;
    return decode_by_libjpeg(state, bytes, nr_bytes, &need, channels, ret_pixels, err);
}

static struct np_jpeg *jpeg_own(void *memory)
{
    struct jpeg_state *state = memory;

    return state->own_bytes ? state->own : NULL;
}

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
    struct jpeg_packer *packer = np_try_alloc(sizeof(*packer), err);
    int code = 0;

    assert((channels == 1 || channels == 3) && quality >= 1 && quality <= 100);
    if (!packer)
        return -ENOMEM;
    packer->cinfo.err = jpeg_std_error(&packer->errors);
    packer->errors.error_exit = fail_packing;
    packer->errors.output_message = print_nothing;
    packer->cinfo.client_data = packer;
    if (setjmp(packer->failed)) {
        code = np_err_set(err, -EINVAL, "cannot write an image of %d x %d as JPEG: %s", width,
            height, packer->message);
        free(packer->bytes);
    } else {
        write_rows(packer, pixels, width, height, channels, quality);
        *ret_bytes = packer->bytes;
        *ret_nr_bytes = packer->nr_bytes;
    }
    jpeg_destroy_compress(&packer->cinfo);
    np_free(packer);
    return code;
}

const struct np_codec np_codec_jpeg = {
    .name = "jpeg",
    .sniff = jpeg_sniff,
    .init = jpeg_init,
    .info = jpeg_info,
    .decode = jpeg_decode,
    .jpeg = jpeg_own,
    .encode = jpeg_encode,
    .fini = jpeg_fini,
};
