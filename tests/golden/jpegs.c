/* Random JPEG files (made_jpegs.h) for jpegs.sh and jpegs_campaign.sh. File i is the same each time.
 *   jpegs compare FIRST NR    pictures FIRST.. with crops and damaged copies: our decoder with
 *                             libjpeg-turbo, for each instruction set, with entries and without
 *   jpegs blocks FIRST NR     pairs of groups of 4096 random blocks: coefficients and pixels
 *   jpegs verdicts FIRST NR   damaged files to stdout, each with what nnpipe makes of it:
 *                             little-endian u32 bytes, good, width, height, CRC-32 of the RGB pixels
 *   jpegs files FIRST NR DIR  pictures to DIR/NUMBER.jpg, an eighth of them of other kinds
 *                             (progressive, arithmetic, RGB, CMYK), a quarter of them large
 *   jpegs damaged FIRST NR DIR  damaged large pictures
 * compare and blocks print counts, `NAME NUMBER`, and end with 1 if any pixel differs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <zlib.h>

#include "loader/base/mem.h"
#include "loader/base/vectors.h"
#include "loader/pixels/codec.h"
#include "loader/pixels/jpeg.h"
#include "loader/pixels/jpeg_parts.h"
#include "tests/unit/judge_jpeg.h"
#include "tests/unit/made_jpegs.h"

#define SEED       16
#define CROPS      5       /* of a picture */
#define DAMAGED    4       /* copies of a picture */
#define MAX_PIXELS 1000000 /* of a damaged file, which may say any size */
#define GROUP      4096    /* blocks of a file */
#define NR_SETS    3

static const char *const set_names[NR_SETS] = {"plain C", "AVX2", "AVX-512"};
static const enum np_vectors set_vectors[NR_SETS] = {NP_SSE2, NP_AVX2, NP_AVX512};

enum {
    PICTURES, /* all of these are counted once, not for each instruction set */
    FINISHED,
    CROPS_WITHOUT,
    CROPS_WITH,
    LOWER, /* crops with entries that begin below the first row of MCUs */
    ENTERED,
    DAMAGED_COPIES,
    DAMAGED_FINISHED,
    WRONG,
    NR_COUNTS
};
static const char *const count_names[NR_COUNTS] = {"pictures", "finished", "crops", "crops-entries",
    "crops-lower", "crops-entered", "damaged", "damaged-finished", "wrong"};

struct campaign {
    struct np_jpeg *sets[NR_SETS]; /* NULL: not on this CPU */
    uint32_t number;               /* of the file */
    uint64_t counts[NR_COUNTS];
};

/* What a loader keeps. */
struct kept {
    struct np_jpeg_entry *at;
    int nr_rows, per_row;
};

static int below(struct np_draws *draws, int n)
{
    return (int)np_draw_below(draws, (uint32_t)n);
}

static void wrong(struct campaign *campaign, const char *what, int set)
{
    if (campaign->counts[WRONG]++ < 20)
        printf("# file %u: %s, %s\n", campaign->number, what, set_names[set]);
}

static struct np_jpeg *use(const struct campaign *campaign, int set)
{
    np_vectors_limit(set_vectors[set]);
    return campaign->sets[set];
}

static struct np_rect draw_box(struct np_draws *draws, int width, int height)
{
    const int left = below(draws, width), top = below(draws, height);

    return (struct np_rect){
        left, top, left + 1 + below(draws, width - left), top + 1 + below(draws, height - top)};
}

/* False: refused, or no pixels that are libjpeg-turbo's, which is counted. */
static bool decode(struct campaign *campaign, int set, const struct made_file *file,
    const struct kept *kept, const struct picture *whole, const struct np_rect *need)
{
    struct np_jpeg *jpeg = use(campaign, set);
    struct np_image_info info;
    struct np_pixels pixels;
    struct np_err err;

    if (!np_jpeg_open(jpeg, file->bytes, file->nr_bytes, &info) ||
        (kept && kept->nr_rows && np_jpeg_set_entries(jpeg, kept->at, kept->nr_rows, &err)) ||
        np_jpeg_decode(jpeg, need, info.channels, &pixels, &err))
        return false;
    if (equal(whole, need, &pixels))
        return true;
    wrong(campaign, kept ? "other pixels with entries" : "other pixels", set);
    return false;
}

/* --- whole files --------------------------------------------------------------------------- */

static void keep(struct kept *kept, const struct np_jpeg *jpeg)
{
    const struct np_jpeg_entries *entries = np_jpeg_entries(jpeg);
    const size_t bytes = (size_t)entries->nr_rows * (size_t)entries->per_row * sizeof(*entries->at);

    if (entries->nr_rows <= kept->nr_rows)
        return;
    kept->nr_rows = entries->nr_rows;
    kept->per_row = entries->per_row;
    kept->at = realloc(kept->at, bytes);
    memcpy(kept->at, entries->at, bytes);
}

static bool same_entries(const struct kept *a, const struct kept *b)
{
    bool same = a->nr_rows == b->nr_rows;

    for (int i = 0; same && i < a->nr_rows * a->per_row; i++)
        same = a->at[i].bit == b->at[i].bit &&
               memcmp(a->at[i].dc, b->at[i].dc, sizeof(a->at[i].dc)) == 0;
    return same;
}

/* The bytes before the entry at which a crop that begins in this row of MCUs may begin at the
 * latest, destroyed: who decodes the crop all the same has entered there. */
static struct made_file destroyed(const struct made_file *file, const struct kept *kept, int row)
{
    struct made_file copy = {malloc(file->nr_bytes), file->nr_bytes};
    const int first = row < kept->nr_rows ? row : kept->nr_rows - 1;
    const size_t end = kept->at[first * kept->per_row].bit / 8;

    memcpy(copy.bytes, file->bytes, file->nr_bytes);
    for (size_t i = kept->at[0].bit / 8; i < end; i++)
        copy.bytes[i] = i % 2 ? 0xff : 1;
    return copy;
}

/* A crop with the entries of those before it. */
static void crop_with_entries(struct campaign *campaign, const struct made_file *file,
    struct kept kept[NR_SETS], const struct picture *whole, const struct np_rect *need,
    int mcu_height)
{
    /* Interpolation needs the row of pixels above. */
    const int row = need->top > 0 ? (need->top - 1) / mcu_height : 0;
    bool lower = false, entered = true;

    for (int set = 0; set < NR_SETS; set++) {
        if (!campaign->sets[set])
            continue;
        if (row > 0 && kept[set].nr_rows > 1) {
            struct made_file copy = destroyed(file, &kept[set], row);

            entered = decode(campaign, set, &copy, &kept[set], whole, need) && entered;
            free(copy.bytes);
        } else
            entered = false;
        lower = row > 0;
        if (!decode(campaign, set, file, &kept[set], whole, need))
            wrong(campaign, "refused with entries", set);
        keep(&kept[set], campaign->sets[set]);
        if (!same_entries(&kept[set], &kept[0]))
            wrong(campaign, "other entries", set);
    }
    campaign->counts[CROPS_WITH]++;
    campaign->counts[LOWER] += lower;
    campaign->counts[ENTERED] += lower && entered;
}

static void crops(struct campaign *campaign, struct np_draws *draws, const struct made_file *file,
    const struct picture *whole, int mcu_height)
{
    struct kept kept[NR_SETS] = {{0}};

    for (int i = 0; i < CROPS; i++) {
        const struct np_rect need = draw_box(draws, whole->width, whole->height);

        for (int set = 0; set < NR_SETS; set++)
            if (campaign->sets[set] && !decode(campaign, set, file, NULL, whole, &need))
                wrong(campaign, "a crop is refused, the whole is not", set);
            else if (campaign->sets[set] && i == 0)
                keep(&kept[set], campaign->sets[set]);
        campaign->counts[CROPS_WITHOUT]++;
        if (i > 0)
            crop_with_entries(campaign, file, kept, whole, &need, mcu_height);
    }
    for (int set = 0; set < NR_SETS; set++)
        free(kept[set].at);
}

/* Decodes the whole with each instruction set, which must agree whether it is theirs. */
static bool is_ours(
    struct campaign *campaign, const struct made_file *file, const struct picture *whole)
{
    const struct np_rect all = {0, 0, whole->width, whole->height};
    bool ours[NR_SETS];

    for (int set = 0; set < NR_SETS; set++) {
        ours[set] = campaign->sets[set] && decode(campaign, set, file, NULL, whole, &all);
        if (campaign->sets[set] && ours[set] != ours[0])
            wrong(campaign, "one instruction set refuses what another decodes", set);
    }
    return ours[0];
}

/* --- damaged files ------------------------------------------------------------------------- */

/* Decodes the whole, or a crop, with all instruction sets; libjpeg-turbo only if one of them does. */
static void try_damaged(
    struct campaign *campaign, struct np_draws *draws, const struct made_file *file)
{
    struct np_image_info info;
    struct np_pixels pixels;
    struct picture whole;
    struct np_err err;
    int nr = 0, finished = 0;

    campaign->counts[DAMAGED_COPIES]++;
    if (!np_jpeg_open(use(campaign, 0), file->bytes, file->nr_bytes, &info) ||
        (int64_t)info.width * info.height > MAX_PIXELS)
        return;
    const struct np_rect need = below(draws, 2) ? draw_box(draws, info.width, info.height)
                                                : (struct np_rect){0, 0, info.width, info.height};
    bool judged = false;
    for (int set = 0; set < NR_SETS; set++) {
        struct np_jpeg *jpeg = campaign->sets[set] ? use(campaign, set) : NULL;

        if (!jpeg)
            continue;
        nr++;
        if (!np_jpeg_open(jpeg, file->bytes, file->nr_bytes, &info) ||
            np_jpeg_decode(jpeg, &need, info.channels, &pixels, &err))
            continue;
        if (finished++ == 0)
            judged = judge(file->bytes, file->nr_bytes, &whole);
        if (!judged || !equal(&whole, &need, &pixels))
            wrong(campaign, judged ? "damaged: other pixels" : "damaged: not refused", set);
    }
    if (judged)
        free(whole.pixels);
    if (finished != 0 && finished != nr)
        wrong(campaign, "damaged: only some instruction sets refuse", 0);
    campaign->counts[DAMAGED_FINISHED] += finished > 0;
}

/* --- the campaigns ------------------------------------------------------------------------- */

static void draws_of(struct np_draws *draws, uint32_t number)
{
    np_draws_init(draws, SEED, NP_STREAM_TEST, 0, number, 0);
}

static int mcu_height(const struct made_jpeg *made)
{
    int v = made->v;

    if (made->components == 1)
        return 8;
    v = made->chroma_v > v ? made->chroma_v : v;
    return 8 * (made->third_v > v ? made->third_v : v);
}

static void compare(struct campaign *campaign)
{
    struct made_jpeg made;
    struct np_draws draws;
    struct picture whole;

    draws_of(&draws, campaign->number);
    made_any_jpeg(&draws, &made);
    struct made_file file = made_any_file(&draws, &made);
    campaign->counts[PICTURES]++;
    if (judge(file.bytes, file.nr_bytes, &whole)) {
        if (is_ours(campaign, &file, &whole)) {
            campaign->counts[FINISHED]++;
            crops(campaign, &draws, &file, &whole, mcu_height(&made));
        }
        free(whole.pixels);
    } else if (made.components != 4) /* libjpeg makes no RGB of CMYK */
        wrong(campaign, "libjpeg-turbo refuses a whole file", 0);
    for (int i = 0; i < DAMAGED; i++) {
        struct made_file damaged = made_damaged_file(&draws, &file);

        try_damaged(campaign, &draws, &damaged);
        free(damaged.bytes);
    }
    free(file.bytes);
}

/* A group of blocks and its file. */
struct group {
    int16_t *blocks; /* (GROUP, 64) */
    struct made_file file;
    struct np_jpeg_tables tables;
    struct np_jpeg_block found[GROUP + 1];
    struct np_jpeg_stream stream;
    struct np_jpeg_lane lane;
};

static void make_group(struct group *group, struct np_draws *draws)
{
    /* The larger the quantiser, the smaller the coefficients: a product beyond 8-bit samples is
     * refused. */
    const int shift = below(draws, 6);

    memset(group, 0, sizeof(*group));
    group->blocks = made_blocks(draws, GROUP, 10 - shift);
    group->file = made_blocks_file(group->blocks, 64, GROUP / 64, 1 << shift, below(draws, 2));
}

static void free_group(struct group *group)
{
    free(group->blocks);
    free(group->file.bytes);
    free(group->stream.bytes);
    free(group->stream.stuffed);
}

/* Sets the group's lane to its first block; false: its header or tables are refused. */
static bool arm(struct group *group)
{
    const struct made_file *file = &group->file;
    struct np_jpeg_frame frame;

    if (!np_jpeg_parse(file->bytes, file->nr_bytes, &frame) ||
        !np_jpeg_make_tables(&frame.dc[0], &frame.ac[0], &group->tables))
        return false;
    group->stream.bytes = calloc(1, file->nr_bytes + NP_JPEG_SLACK * (size_t)GROUP);
    group->stream.stuffed = malloc(file->nr_bytes / 2 * sizeof(*group->stream.stuffed));
    np_jpeg_unstuff(&group->stream, frame.scan, frame.end);
    for (int i = 0; i < GROUP; i++) {
        group->found[i].ac = group->tables.ac.entries;
        group->found[i].next = group->tables.dc.entries;
    }
    np_jpeg_seek(&group->lane.bits, group->stream.bytes, 0);
    np_jpeg_arm(&group->lane, group->found, GROUP);
    return true;
}

static bool is_done(const struct group *group)
{
    return group->lane.bad || group->lane.block == group->lane.end;
}

static bool has_its_coefficients(struct group *group)
{
    bool same = !group->lane.bad;
    int dc = 0;

    for (int i = 0; same && i < GROUP; i++) {
        int16_t *found = group->found[i].coef;

        dc = found[0] = (int16_t)(dc + found[0]);
        same = memcmp(found, group->blocks + (size_t)i * 64, 128) == 0;
    }
    return same;
}

static void check_pixels(struct campaign *campaign, const struct group *group)
{
    struct picture whole = {0};

    campaign->counts[PICTURES] += GROUP;
    if (!judge(group->file.bytes, group->file.nr_bytes, &whole))
        wrong(campaign, "libjpeg-turbo refuses it", 0);
    else if (is_ours(campaign, &group->file, &whole))
        campaign->counts[FINISHED] += GROUP;
    free(whole.pixels);
}

/* Two groups, by two lanes until one of them is at its end, and then by one. */
static void blocks(struct campaign *campaign)
{
    static struct group groups[2];
    struct group *a = &groups[0], *b = &groups[1];
    struct np_draws draws;

    np_draws_init(&draws, SEED, NP_STREAM_TEST, 1, campaign->number, 0);
    make_group(a, &draws);
    make_group(b, &draws);
    if (arm(a) && arm(b)) {
        np_jpeg_run(&a->lane, &b->lane);
        while (!is_done(a) || !is_done(b))
            np_jpeg_run(is_done(a) ? &b->lane : &a->lane, NULL);
        if (!has_its_coefficients(a) || !has_its_coefficients(b))
            wrong(campaign, "other coefficients", 0);
    } else
        wrong(campaign, "the tables are refused", 0);
    check_pixels(campaign, a);
    check_pixels(campaign, b);
    free_group(a);
    free_group(b);
}

static bool open_campaign(struct campaign *campaign)
{
    for (int set = 0; set < NR_SETS; set++)
        if (np_vectors_limit(set_vectors[set]) == set_vectors[set])
            campaign->sets[set] = np_jpeg_new(NULL);
    if (campaign->sets[0])
        np_jpeg_use_plain(campaign->sets[0]);
    return campaign->sets[0] != NULL;
}

static int run(void (*test)(struct campaign *), uint32_t first, uint32_t nr)
{
    struct campaign campaign = {0};

    if (!open_campaign(&campaign))
        return 2;
    for (campaign.number = first; campaign.number - first < nr; campaign.number++)
        test(&campaign);
    for (int i = 0; i < NR_COUNTS; i++)
        printf("%s %llu\n", count_names[i], (unsigned long long)campaign.counts[i]);
    for (int set = 0; set < NR_SETS; set++)
        np_jpeg_free(campaign.sets[set]);
    return campaign.counts[WRONG] != 0;
}

/* --- files for Pillow ---------------------------------------------------------------------- */

/* Decodes as the loader does, and a crop: its verdict and pixels must be the whole's. */
static bool decode_rgb(struct np_decoder *decoder, const struct made_file *file,
    const struct np_rect *need, struct np_pixels *ret_pixels)
{
    const struct np_geometry geometry = {.left = need->left,
        .top = need->top,
        .right = need->right,
        .bottom = need->bottom,
        .scaled_w = need->right - need->left,
        .scaled_h = need->bottom - need->top,
        .window_w = need->right - need->left,
        .window_h = need->bottom - need->top};
    struct np_image_info info;
    struct np_err err;

    return np_decoder_open(decoder, file->bytes, file->nr_bytes, NULL, &info, &err) == 0 &&
           np_decoder_decode(decoder, &geometry, 3, ret_pixels, &err) == 0;
}

/* A dense copy of `need`. */
static uint8_t *copy_of(const struct np_pixels *pixels, const struct np_rect *need)
{
    const size_t stride = (size_t)(need->right - need->left) * 3;
    uint8_t *copy = malloc(stride * (size_t)(need->bottom - need->top));

    for (int y = need->top; y < need->bottom; y++)
        memcpy(copy + (size_t)(y - need->top) * stride,
            pixels->data + (y - pixels->origin_y) * pixels->stride +
                (ptrdiff_t)(need->left - pixels->origin_x) * 3,
            stride);
    return copy;
}

/* Writes the file's record; false: a crop has another verdict or other pixels than the whole. */
static bool put_verdict(
    struct np_decoder *decoder, struct np_draws *draws, const struct made_file *file)
{
    struct np_image_info info = {0};
    struct np_pixels pixels;
    struct picture whole = {.channels = 3};
    struct np_err err;
    uint32_t head[5] = {(uint32_t)file->nr_bytes};
    bool same = true;

    if (np_decoder_open(decoder, file->bytes, file->nr_bytes, NULL, &info, &err))
        info.width = 0;
    if ((int64_t)info.width * info.height > MAX_PIXELS)
        return true;
    if (info.width > 0) {
        const struct np_rect all = {0, 0, info.width, info.height};
        const struct np_rect need = draw_box(draws, info.width, info.height);

        head[1] = decode_rgb(decoder, file, &all, &pixels);
        head[2] = (uint32_t)info.width;
        head[3] = (uint32_t)info.height;
        if (head[1]) {
            whole.pixels = copy_of(&pixels, &all);
            whole.width = info.width;
            head[4] = (uint32_t)crc32(0, whole.pixels, (uInt)(3 * info.width * info.height));
        }
        same = decode_rgb(decoder, file, &need, &pixels) == (bool)head[1];
        if (same && head[1]) {
            uint8_t *part = copy_of(&pixels, &need);
            const struct np_pixels dense = {.data = part,
                .channels = 3,
                .stride = (ptrdiff_t)(need.right - need.left) * 3,
                .origin_x = need.left,
                .origin_y = need.top};

            same = equal(&whole, &need, &dense);
            free(part);
        }
    }
    free(whole.pixels);
    fwrite(head, sizeof(head), 1, stdout);
    fwrite(file->bytes, 1, file->nr_bytes, stdout);
    return same;
}

/* Large enough for a loader to keep entries (NP_ENTRIES_MIN_BYTES); with noise, larger than a block
 * of bytes that Pillow reads. */
static void enlarge(struct np_draws *draws, struct made_jpeg *made)
{
    made->width += 100 + below(draws, 300);
    made->height += 200 + below(draws, 300);
    made->quality = 60 + below(draws, 40);
    made->smooth = false;
}

static int verdicts(uint32_t first, uint32_t nr)
{
    struct np_decoder *decoder;
    int nr_wrong = 0;

    if (np_decoder_new(&decoder, NULL))
        return 2;
    for (uint32_t number = first; number - first < nr; number++) {
        struct made_jpeg made;
        struct np_draws draws;

        draws_of(&draws, number);
        made_any_jpeg(&draws, &made);
        if (number % 64 == 0) {
            enlarge(&draws, &made);
            made.noise = true;
        }
        struct made_file file = made_any_file(&draws, &made);
        for (int i = 0; i < DAMAGED; i++) {
            struct made_file damaged = made_damaged_file(&draws, &file);

            if (!put_verdict(decoder, &draws, &damaged) && nr_wrong++ < 20)
                fprintf(stderr, "# file %u, copy %d: a crop is not the whole's\n", number, i);
            free(damaged.bytes);
        }
        free(file.bytes);
    }
    np_decoder_free(decoder);
    return nr_wrong || fflush(stdout);
}

/* A kind that our decoder refuses. */
static void make_other(struct made_jpeg *made, uint32_t number)
{
    const bool rgb = number % 4 == 2, cmyk = number % 4 == 3;

    made->progressive = number % 4 == 0;
    made->arithmetic = number % 4 == 1;
    made->own_codes &= !made->arithmetic;
    if (rgb || cmyk)
        *made = (struct made_jpeg){.width = made->width,
            .height = made->height,
            .components = rgb ? 3 : 4,
            .rgb = rgb,
            .ycck = cmyk && number % 8 == 3,
            .quality = made->quality};
}

static struct made_file odd_file(uint32_t number, bool is_damaged)
{
    struct made_jpeg made;
    struct np_draws draws;

    draws_of(&draws, number);
    made_any_jpeg(&draws, &made);
    if (number % 8 == 0 && !is_damaged)
        make_other(&made, number / 8);
    if (number % 4 == 1 || is_damaged)
        enlarge(&draws, &made);
    struct made_file file = made_any_file(&draws, &made);
    if (is_damaged) {
        struct made_file damaged = made_damaged_file(&draws, &file);

        free(file.bytes);
        return damaged;
    }
    return file;
}

static int files(uint32_t first, uint32_t nr, const char *dir, bool are_damaged)
{
    for (uint32_t number = first; number - first < nr; number++) {
        struct made_file file = odd_file(number, are_damaged);
        char path[4096];

        snprintf(path, sizeof(path), "%s/%06u.jpg", dir, number);
        FILE *out = fopen(path, "wb");
        if (!out || fwrite(file.bytes, 1, file.nr_bytes, out) != file.nr_bytes || fclose(out))
            return 1;
        free(file.bytes);
    }
    return 0;
}

int main(int argc, char **argv)
{
    const uint32_t first = argc > 3 ? (uint32_t)atol(argv[2]) : 0;
    const uint32_t nr = argc > 3 ? (uint32_t)atol(argv[3]) : 0;

    if (argc == 4 && strcmp(argv[1], "compare") == 0)
        return run(compare, first, nr);
    if (argc == 4 && strcmp(argv[1], "blocks") == 0)
        return run(blocks, first, nr);
    if (argc == 4 && strcmp(argv[1], "verdicts") == 0)
        return verdicts(first, nr);
    if (argc == 5 && strcmp(argv[1], "files") == 0)
        return files(first, nr, argv[4], false);
    if (argc == 5 && strcmp(argv[1], "damaged") == 0)
        return files(first, nr, argv[4], true);
    return 2;
}
