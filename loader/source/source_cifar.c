/* CIFAR-10's binary version: records of a label byte and 3072 bytes of pixels, red, green and blue
 * planes of 32 rows of 32. Class names come from batches.meta.txt in the same folder, if it exists.
 * The scan reads all labels, in the caller's thread. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "loader/base/mem.h"
#include "loader/source/source_scan.h"

#define RECORD_BYTES 3073u
#define PIXEL_BYTES  3072u
#define NR_CLASSES   10
#define RECORDS_READ 256u

struct names {
    char names[NR_CLASSES][64];
    int labels[NR_CLASSES]; /* class numbers in the index */
};

/* One name a line; "0" to "9" if the file is missing or does not have ten. */
static void read_names(const char *path, struct names *names)
{
    const char *slash = strrchr(path, '/');
    char *meta = np_try_format(NULL, "%.*s/batches.meta.txt", (int)(slash - path), path);
    FILE *file = meta ? fopen(meta, "re") : NULL;
    char line[64];
    int n = 0;

    while (file && n < NR_CLASSES && fgets(line, sizeof(line), file)) {
        line[strcspn(line, "\r\n")] = '\0';
        if (*line)
            strcpy(names->names[n++], line);
    }
    if (file)
        fclose(file);
    np_free(meta);
    for (int i = 0; n < NR_CLASSES && i < NR_CLASSES; i++)
        snprintf(names->names[i], sizeof(names->names[i]), "%d", i);
}

static int add_records(struct np_index *index, const char *path, const struct np_scan_file *file,
    uint64_t first, uint64_t n, const uint8_t *bytes, const struct names *names, struct np_err *err)
{
    const char *slash = strrchr(path, '/');

    for (uint64_t i = 0; i < n; i++) {
        const uint64_t offset = (first + i) * RECORD_BYTES;
        const uint8_t label = bytes[i * RECORD_BYTES];
        /* The last record of a truncated file is shorter. */
        const uint64_t rest = file->bytes - offset - 1;
        const uint32_t there = rest < PIXEL_BYTES ? (uint32_t)rest : PIXEL_BYTES;
        struct np_record record = {.offset = offset + 1,
            .bytes = there,
            .inner_bytes = there,
            .file = (uint32_t)file->number};
        char name[4096 + 32];
        int code;

        if (label >= NR_CLASSES)
            return np_err_set(err, -EBADMSG,
                "%s: record %llu at offset %llu has label %d: not the binary version of CIFAR-10",
                path, (unsigned long long)(first + i), (unsigned long long)offset, label);
        record.label = (uint32_t)names->labels[label];
        snprintf(name, sizeof(name), "%s/%05llu", slash + 1, (unsigned long long)(first + i));
        code = np_index_add(index, &record, name, path, err);
        if (code)
            return code;
    }
    return 0;
}

static int scan_records(struct np_index *index, const char *path, const struct np_scan_file *file,
    const struct names *names, const struct np_source_progress *progress, struct np_err *err)
{
    const uint64_t n = (file->bytes + RECORD_BYTES - 1) / RECORD_BYTES;
    uint8_t *bytes = np_try_alloc(RECORDS_READ * RECORD_BYTES, err);
    int code = bytes ? 0 : -ENOMEM;

    if (file->bytes % RECORD_BYTES)
        np_source_note(progress,
            "%s is truncated: %llu bytes are not a multiple of %u; the last whole record is %lld "
            "at offset %lld",
            path, (unsigned long long)file->bytes, RECORD_BYTES, (long long)n - 2,
            n >= 2 ? ((long long)n - 2) * RECORD_BYTES : -1ll);
    for (uint64_t first = 0; !code && first < n; first += RECORDS_READ) {
        const uint64_t count = n - first < RECORDS_READ ? n - first : RECORDS_READ;
        uint64_t want = count * RECORD_BYTES;

        if (want > file->bytes - first * RECORD_BYTES)
            want = file->bytes - first * RECORD_BYTES;
        code = np_scan_read(file, path, first * RECORD_BYTES, bytes, want, err);
        if (!code)
            code = add_records(index, path, file, first, count, bytes, names, err);
        np_source_count(progress, index);
    }
    np_free(bytes);
    return code;
}

static int scan(const struct np_source_options *options, struct np_index *index,
    const struct np_source_progress *progress, struct np_err *err)
{
    struct names names;
    struct np_paths paths;
    int code = np_paths_find(options->path, &paths, err);

    if (code)
        return code;
    index->raw = (struct np_raw){NP_RAW_CHW, 32, 32, 3, 0};
    read_names(paths.paths[0], &names);
    for (int i = 0; !code && i < NR_CLASSES; i++) {
        names.labels[i] = np_index_add_class(index, names.names[i], options->path, err);
        code = names.labels[i] < 0 ? names.labels[i] : 0;
    }
    for (int i = 0; !code && i < paths.nr_paths; i++) {
        struct np_scan_file file;

        code = np_scan_open(index, paths.paths[i], &file, err);
        if (code)
            break;
        code = scan_records(index, paths.paths[i], &file, &names, progress, err);
        close(file.fd);
    }
    np_paths_fini(&paths);
    return code;
}

const struct np_source np_source_cifar10 = {
    .name = "cifar10",
    .help = "CIFAR-10's binary version: data_batch_*.bin, test_batch.bin",
    .keys = "path",
    .scan = scan,
};
