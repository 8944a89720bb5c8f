/* See made_set.h. */
#include "tests/unit/made_set.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#include "loader/base/mem.h"
#include "loader/pixels/codec.h"

uint8_t made_byte(uint64_t s, int i)
{
    return (uint8_t)((s * 2654435761u >> 7) + (unsigned)i * 31 + (unsigned)i * (unsigned)i / 7);
}

static uint8_t *jpeg(uint64_t s, int height, int width, uint32_t *ret_bytes)
{
    uint8_t *pixels = malloc((size_t)(height * width * 3)), *bytes;
    size_t nr_bytes;

    for (int i = 0; i < height * width * 3; i++)
        pixels[i] = made_byte(s, i);
    if (np_codec_jpeg.encode(pixels, width, height, 3, 90, &bytes, &nr_bytes, NULL))
        abort();
    free(pixels);
    *ret_bytes = (uint32_t)nr_bytes;
    return bytes;
}

/* One sample's bytes, malloc'd. */
static uint8_t *sample(enum made_kind kind, uint64_t s, int height, int width, uint32_t *ret_bytes)
{
    if (kind >= MADE_JPEG)
        return jpeg(s, height, width, ret_bytes);

    const int n = height * width * 3;
    uint8_t *bytes = malloc((size_t)n + 32);
    int head =
        kind == MADE_RAW ? 0 : snprintf((char *)bytes, 32, "P6\n%d %d\n255\n", width, height);

    for (int i = 0; i < n; i++)
        bytes[head + i] = made_byte(s, i);
    *ret_bytes = (uint32_t)(head + n);
    return bytes;
}

static struct np_record record_of(uint64_t offset, uint32_t bytes, uint64_t s)
{
    return (struct np_record){
        .offset = offset, .bytes = bytes, .inner_bytes = bytes, .label = s % MADE_CLASSES};
}

/* Samples one after the other in one file. */
static void write_plain(struct made_set *set, enum made_kind kind, FILE *file)
{
    for (int s = 0; s < set->n; s++) {
        char name[32];
        uint32_t nr_bytes;
        uint8_t *bytes = sample(kind, (uint64_t)s, set->height, set->width, &nr_bytes);
        struct np_record record = record_of((uint64_t)ftell(file), nr_bytes, (uint64_t)s);

        snprintf(name, sizeof(name), "c%d/%04d.ppm", s % MADE_CLASSES, s);
        fwrite(bytes, 1, nr_bytes, file);
        np_index_add(set->index, &record, name, NULL, NULL);
        free(bytes);
    }
}

/* Three samples a zstd frame. */
static void write_zstd(struct made_set *set, enum made_kind kind, FILE *file)
{
    for (int first = 0; first < set->n; first += 3) {
        uint32_t nr_bytes = 0, at[3], length[3] = {0};
        uint8_t *frame = malloc((size_t)(set->height * set->width * 6 + 3000) * 3), *packed;
        size_t cap, packed_bytes;

        for (int k = 0; k < 3 && first + k < set->n; k++) {
            uint8_t *bytes =
                sample(kind, (uint64_t)(first + k), set->height, set->width, &length[k]);

            memcpy(frame + nr_bytes, bytes, length[k]);
            at[k] = nr_bytes;
            nr_bytes += length[k];
            free(bytes);
        }
        cap = ZSTD_compressBound(nr_bytes);
        packed = malloc(cap);
        packed_bytes = ZSTD_compress(packed, cap, frame, nr_bytes, 3);
        for (int k = 0; k < 3 && first + k < set->n; k++) {
            char name[32];
            struct np_record record =
                record_of((uint64_t)ftell(file), (uint32_t)packed_bytes, (uint64_t)(first + k));

            record.inner_offset = at[k];
            record.inner_bytes = length[k];
            record.packing = NP_PACKING_ZSTD;
            snprintf(name, sizeof(name), "c%d/%04d.ppm", (first + k) % MADE_CLASSES, first + k);
            np_index_add(set->index, &record, name, NULL, NULL);
        }
        fwrite(packed, 1, packed_bytes, file);
        free(packed);
        free(frame);
    }
}

static void write_folder(struct made_set *set, enum made_kind kind)
{
    set->index->root = np_try_strdup(set->dir, NULL);
    if (!set->index->root)
        abort();
    for (int s = 0; s < set->n; s++) {
        char name[32], path[160];
        uint32_t nr_bytes;
        uint8_t *bytes = sample(kind, (uint64_t)s, set->height, set->width, &nr_bytes);
        struct np_record record = record_of(0, nr_bytes, (uint64_t)s);
        FILE *file;

        snprintf(name, sizeof(name), "%04d.ppm", s);
        snprintf(path, sizeof(path), "%s/%s", set->dir, name);
        file = fopen(path, "wb");
        if (file) {
            fwrite(bytes, 1, nr_bytes, file);
            fclose(file);
        }
        np_index_add(set->index, &record, name, NULL, NULL);
        free(bytes);
    }
}

static void write_shard(struct made_set *set, enum made_kind kind)
{
    FILE *file = fopen(set->path, "wb");

    np_index_add_file(set->index, set->path, &(struct stat){0}, NULL);
    if (!file)
        return;
    if (kind == MADE_ZSTD || kind == MADE_JPEG_ZSTD)
        write_zstd(set, kind, file);
    else
        write_plain(set, kind, file);
    fclose(file);
}

int made_set(enum made_kind kind, int n, int height, int width, struct made_set *ret_set)
{
    struct made_set set = {.n = n, .height = height, .width = width};

    snprintf(set.dir, sizeof(set.dir), "/tmp/nnpipe-set.XXXXXX");
    if (!mkdtemp(set.dir))
        return 1;
    snprintf(set.path, sizeof(set.path), "%s/shard", set.dir);
    set.index = np_index_new(NULL);
    np_index_add_class(set.index, "a", NULL, NULL);
    np_index_add_class(set.index, "b", NULL, NULL);
    np_index_add_class(set.index, "c", NULL, NULL);
    if (kind == MADE_RAW)
        set.index->raw =
            (struct np_raw){.kind = NP_RAW_HWC, .height = height, .width = width, .channels = 3};
    if (kind == MADE_FOLDER || kind == MADE_JPEG_FOLDER)
        write_folder(&set, kind);
    else
        write_shard(&set, kind);
    np_index_finish(set.index, NULL);
    *ret_set = set;
    return 0;
}

void made_set_free(struct made_set *set)
{
    char command[128];

    snprintf(command, sizeof(command), "rm -rf '%s'", set->dir);
    if (system(command))
        fprintf(stderr, "cannot remove %s\n", set->dir);
    np_index_free(set->index);
}

void made_damage(const struct made_set *set, uint64_t s, int at, const void *bytes, int nr_bytes)
{
    int fd = open(set->path, O_WRONLY);

    if (fd < 0 || pwrite(fd, bytes, (size_t)nr_bytes,
                      (off_t)np_index_record(set->index, s)->offset + at) != nr_bytes)
        fprintf(stderr, "cannot damage %s\n", set->path);
    if (fd >= 0)
        close(fd);
}

void made_cut(const struct made_set *set, uint64_t s)
{
    const struct np_record *record = np_index_record(set->index, s);

    if (truncate(set->path, (off_t)(record->offset + record->bytes / 2)))
        fprintf(stderr, "cannot cut %s\n", set->path);
}

struct np_index *made_classes(const int *sizes, int nr_classes, bool labelled)
{
    struct np_index *index = np_index_new(NULL);
    char name[32];
    bool more = true;
    int file;

    file = np_index_add_file(index, "/shard.tar", &(struct stat){.st_size = 1 << 20}, NULL);
    for (int c = 0; c < nr_classes; c++) {
        snprintf(name, sizeof(name), "class-%02d", c);
        np_index_add_class(index, name, NULL, NULL);
    }
    for (int k = 0; more; k++) {
        more = false;
        for (int c = 0; c < nr_classes; c++) {
            const struct np_record record = {.bytes = 1,
                .inner_bytes = 1,
                .file = (uint32_t)file,
                .no_label = !labelled && c == nr_classes - 1,
                .label = (unsigned)c & 0x3fffff};

            if (k >= sizes[c])
                continue;
            more = true;
            snprintf(name, sizeof(name), "c%d/%d.jpg", c, k);
            if (np_index_add(index, &record, name, NULL, NULL) != 0)
                abort();
        }
    }
    if (np_index_finish(index, NULL) != 0)
        abort();
    return index;
}
