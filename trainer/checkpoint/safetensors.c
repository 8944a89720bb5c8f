/* Reads safetensors: checks the header to the last byte at open, reads tensors on request. The
 * opener owns the file; any thread. */
#include "trainer/checkpoint/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "loader/base/mem.h"

#define MAX_HEADER 100000000u /* bytes, as in the format's own library */
#define MAX_READ   (1u << 30) /* bytes per system call */
#define HASH_PIECE (1u << 20) /* bytes */

/* --- other files of weights ------------------------------------------------------------------- */

#define KIND_BYTES 128 /* at a file's start, enough to identify it */

/* Accepts the state dict inside "state_dict" or "model", as training scripts save it; clone()
 * because safetensors refuses tensors that share memory. */
#define TORCH_LINES                                                                                \
    "python3 -c 'import torch, safetensors.torch as s; d = torch.load(\"%s\", "                    \
    "map_location=\"cpu\", weights_only=True); d = d.get(\"state_dict\", d.get(\"model\", d)); "   \
    "s.save_file({k: v.clone().contiguous() for k, v in d.items() if torch.is_tensor(v)}, "        \
    "\"%.*s.safetensors\")'"

#define CONVERT(text)                                                                              \
    text "; load it with its own program and save the tensors by torch's names: "                  \
         "safetensors.torch.save_file({name: tensor, ...}, \"weights.safetensors\")"

static const struct kind {
    const char *magic;
    size_t offset, bytes;
    const char *text;
} kinds[] = {
    {"\x89HDF\r\n\x1a\n", 0, 8, CONVERT("an HDF5 file, as Keras writes it")},
    {"TFL3", 4, 4, CONVERT("a TensorFlow Lite file")},
    {"GGUF", 0, 4, CONVERT("a GGUF file")},
    {"\x12\x01\0\0\0\0\0\0", 0, 8, CONVERT("a file of MXNet's parameters")},
    {"\x93NUMPY", 0, 6, CONVERT("a NumPy array")},
};

static bool holds(const uint8_t *start, size_t bytes, const char *word)
{
    return memmem(start, bytes, word, strlen(word)) != NULL;
}

static bool ends(const char *name, const char *ending)
{
    const size_t n = strlen(name), m = strlen(ending);

    return n > m && strcmp(name + n - m, ending) == 0;
}

/* torch.save() writes a zip archive whose first entry is NAME/data.pkl; before 1.6 a pickle of a
 * magic number. */
static bool is_torch(const char *name, const uint8_t *start, size_t bytes)
{
    static const char magic[] = "\x80\x02\x8a\x0al\xfc\x9c\x46\xf9 j\xa8P\x19.";

    return (bytes >= 4 && memcmp(start, "PK\3\4", 4) == 0 &&
               (holds(start, bytes, "/data.pkl") || ends(name, ".pt") || ends(name, ".pth"))) ||
           (bytes >= sizeof(magic) - 1 && memcmp(start, magic, sizeof(magic) - 1) == 0);
}

/* NULL: unknown. Some kinds need the file's name as well. */
static const char *kind_of(const char *name, const uint8_t *start, size_t bytes)
{
    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
        if (bytes >= kinds[i].offset + kinds[i].bytes &&
            memcmp(start + kinds[i].offset, kinds[i].magic, kinds[i].bytes) == 0)
            return kinds[i].text;
    if (bytes >= 4 && memcmp(start, "PK\3\4", 4) == 0)
        return holds(start, bytes, ".npy") ? CONVERT("a NumPy archive") : CONVERT("a zip archive");
    if (bytes >= 2 && start[0] == 0x80 && start[1] >= 2 && start[1] <= 5)
        return CONVERT("a Python pickle");
    if (bytes >= 3 && start[0] == 8 && start[1] < 32 && (start[2] == 0x12 || ends(name, ".onnx")))
        return CONVERT("an ONNX file");
    if (ends(name, ".caffemodel"))
        return CONVERT("a Caffe model");
    return NULL;
}

bool np_weights_kind(
    const char *name, const uint8_t *start, size_t bytes, char *text, size_t text_bytes)
{
    const char *base = strrchr(name, '/') ? strrchr(name, '/') + 1 : name;
    const char *dot = strrchr(base, '.');
    const size_t stem = dot && dot > base ? (size_t)(dot - name) : strlen(name);
    const char *kind;

    if (is_torch(name, start, bytes)) {
        snprintf(text, text_bytes,
            "a PyTorch file; this makes a safetensors file of it: " TORCH_LINES, name, (int)stem,
            name);
        return true;
    }
    kind = kind_of(name, start, bytes);
    if (kind)
        snprintf(text, text_bytes, "%s", kind);
    return kind != NULL;
}

/* --- one tensor's entry ----------------------------------------------------------------------- */

static const struct {
    const char *name;
    int bytes;
} dtypes[] = {{"F32", 4}, {"I64", 8}, {"BF16", 2}, {"F16", 2}, {"F64", 8}, {"BOOL", 1}, {"U8", 1},
    {"I8", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"I16", 2}, {"U16", 2}, {"I32", 4}, {"U32", 4},
    {"U64", 8}};

uint64_t np_st_dtype_bytes(const char *dtype)
{
    for (size_t i = 0; i < sizeof(dtypes) / sizeof(dtypes[0]); i++)
        if (strcmp(dtypes[i].name, dtype) == 0)
            return (uint64_t)dtypes[i].bytes;
    return 0;
}

static bool read_count(const json_t *value, uint64_t *ret_count)
{
    *ret_count = (uint64_t)json_integer_value(value);
    return json_is_integer(value) && json_integer_value(value) >= 0;
}

static int parse_shape(const struct np_st_file *file, const json_t *shape,
    struct np_st_tensor *tensor, uint64_t *ret_elements, struct np_err *err)
{
    uint64_t elements = 1, size;

    if (!json_is_array(shape) || json_array_size(shape) > NP_ST_MAX_DIMS)
        return np_err_set(err, -EBADMSG, "%s: %s: shape is not a list of at most %d sizes",
            file->name, tensor->name, NP_ST_MAX_DIMS);
    tensor->nr_dims = (int)json_array_size(shape);
    for (int i = 0; i < tensor->nr_dims; i++) {
        if (!read_count(json_array_get(shape, (size_t)i), &size) ||
            __builtin_mul_overflow(elements, size, &elements))
            return np_err_set(err, -EBADMSG, "%s: %s: size %d of its shape is impossible",
                file->name, tensor->name, i);
        tensor->dims[i] = (int64_t)size;
    }
    *ret_elements = elements;
    return 0;
}

static int parse_offsets(const struct np_st_file *file, const json_t *offsets, uint64_t data_start,
    struct np_st_tensor *tensor, struct np_err *err)
{
    uint64_t first, last, data_bytes = file->nr_bytes - data_start;

    if (json_array_size(offsets) != 2 || !read_count(json_array_get(offsets, 0), &first) ||
        !read_count(json_array_get(offsets, 1), &last) || last < first)
        return np_err_set(
            err, -EBADMSG, "%s: %s: data_offsets are not [begin, end]", file->name, tensor->name);
    if (last > data_bytes)
        return np_err_set(err, -EBADMSG,
            "%s: %s: ends at byte %" PRIu64 ", the data at %" PRIu64 ": the file is truncated",
            file->name, tensor->name, last, data_bytes);
    tensor->offset = data_start + first;
    tensor->bytes = last - first;
    return 0;
}

static int parse_tensor(const struct np_st_file *file, const char *name, const json_t *entry,
    uint64_t data_start, struct np_st_tensor *tensor, struct np_err *err)
{
    const char *dtype = json_string_value(json_object_get(entry, "dtype"));
    uint64_t elements = 0, bytes;

    tensor->name = name;
    tensor->dtype = dtype;
    if (!dtype || np_st_dtype_bytes(dtype) == 0)
        return np_err_set(err, -EBADMSG, "%s: %s: dtype %s is not known", file->name, name,
            dtype ? dtype : "is missing or");
    int code = parse_shape(file, json_object_get(entry, "shape"), tensor, &elements, err);
    if (code == 0)
        code = parse_offsets(file, json_object_get(entry, "data_offsets"), data_start, tensor, err);
    if (code < 0)
        return code;
    if (__builtin_mul_overflow(elements, np_st_dtype_bytes(dtype), &bytes) ||
        bytes != tensor->bytes)
        return np_err_set(err, -EBADMSG,
            "%s: %s: its shape and dtype do not match its %" PRIu64 " bytes", file->name, name,
            tensor->bytes);
    return 0;
}

/* --- the header ---------------------------------------------------------------------------- */

static int by_place(const void *a, const void *b)
{
    const struct np_st_tensor *x = a, *y = b;

    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    if (x->bytes != y->bytes) /* an empty tensor before its neighbour at the same offset */
        return x->bytes < y->bytes ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* Every byte after the header belongs to exactly one tensor. */
static int check_cover(const struct np_st_file *file, uint64_t data_start, struct np_err *err)
{
    uint64_t at = data_start;

    for (int i = 0; i < file->n; i++) {
        const struct np_st_tensor *tensor = &file->tensors[i];
        if (tensor->offset != at)
            return np_err_set(err, -EBADMSG, "%s: %s: its bytes %s", file->name, tensor->name,
                tensor->offset < at ? "overlap the tensor before it" : "leave a gap before them");
        at += tensor->bytes;
    }
    if (at != file->nr_bytes)
        return np_err_set(err, -EBADMSG, "%s: %" PRIu64 " bytes after the last tensor", file->name,
            file->nr_bytes - at);
    return 0;
}

static int compare_names(const void *a, const void *b, void *context)
{
    const struct np_st_tensor *tensors = context;

    return strcmp(tensors[*(const int *)a].name, tensors[*(const int *)b].name);
}

static int check_metadata(const struct np_st_file *file, json_t *metadata, struct np_err *err)
{
    if (!json_is_object(metadata))
        return np_err_set(err, -EBADMSG, "%s: __metadata__ is not a mapping", file->name);
    for (void *at = json_object_iter(metadata); at; at = json_object_iter_next(metadata, at))
        if (!json_is_string(json_object_iter_value(at)))
            return np_err_set(err, -EBADMSG, "%s: __metadata__: %s is not text", file->name,
                json_object_iter_key(at));
    return 0;
}

static int parse_entries(struct np_st_file *file, uint64_t data_start, struct np_err *err)
{
    size_t room = json_object_size(file->root);

    file->tensors = np_try_array(room, sizeof(*file->tensors), err);
    file->by_name = np_try_array(room, sizeof(*file->by_name), err);
    if (!file->tensors || !file->by_name)
        return np_err_context(err, "%s", file->name);
    for (void *at = json_object_iter(file->root); at; at = json_object_iter_next(file->root, at)) {
        const char *name = json_object_iter_key(at);
        json_t *entry = json_object_iter_value(at);
        int code = strcmp(name, "__metadata__") == 0 ? check_metadata(file, entry, err)
                                                     : parse_tensor(file, name, entry, data_start,
                                                           &file->tensors[file->n++], err);
        if (code < 0)
            return code;
    }
    qsort(file->tensors, (size_t)file->n, sizeof(*file->tensors), by_place);
    for (int i = 0; i < file->n; i++)
        file->by_name[i] = i;
    qsort_r(file->by_name, (size_t)file->n, sizeof(*file->by_name), compare_names, file->tensors);
    return check_cover(file, data_start, err);
}

/* --- bytes --------------------------------------------------------------------------------- */

static int read_at(
    const struct np_st_file *file, uint64_t from, void *out, uint64_t bytes, struct np_err *err)
{
    uint8_t *to = out;

    while (bytes > 0) {
        ssize_t n = pread(file->fd, to, bytes < MAX_READ ? bytes : MAX_READ, (off_t)from);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return np_err_set(err, -errno, "%s: cannot be read at byte %" PRIu64 ": %s", file->name,
                from, strerror(errno));
        if (n == 0)
            return np_err_set(err, -EBADMSG,
                "%s: truncated: it ends at byte %" PRIu64 ", before its former end", file->name,
                from);
        to += n;
        from += (uint64_t)n;
        bytes -= (uint64_t)n;
    }
    return 0;
}

int np_st_read(const struct np_st_file *file, const struct np_st_tensor *tensor, uint64_t from,
    void *out, uint64_t bytes, struct np_err *err)
{
    return read_at(file, tensor->offset + from, out, bytes, err);
}

int np_st_hash(const struct np_st_file *file, uint64_t *ret_xxh3, struct np_err *err)
{
    XXH3_state_t *state = XXH3_createState();
    uint8_t *piece = np_try_alloc(HASH_PIECE, err);
    int code = state && piece ? 0 : np_err_set(err, -ENOMEM, "%s: out of memory", file->name);

    if (code == 0)
        XXH3_64bits_reset(state);
    for (uint64_t at = 0; code == 0 && at < file->nr_bytes;) {
        uint64_t left = file->nr_bytes - at, n = left < HASH_PIECE ? left : HASH_PIECE;
        code = read_at(file, at, piece, n, err);
        if (code == 0)
            XXH3_64bits_update(state, piece, n);
        at += n;
    }
    if (code == 0)
        *ret_xxh3 = XXH3_64bits_digest(state);
    XXH3_freeState(state);
    np_free(piece);
    return code;
}

/* --- files --------------------------------------------------------------------------------- */

static int not_safetensors(const struct np_st_file *file, uint64_t header_bytes, struct np_err *err)
{
    const size_t n = file->nr_bytes < KIND_BYTES ? (size_t)file->nr_bytes : KIND_BYTES;
    uint8_t start[KIND_BYTES];
    char kind[600];
    int code = read_at(file, 0, start, n, err);

    if (code < 0)
        return code;
    if (np_weights_kind(file->name, start, n, kind, sizeof(kind)))
        return np_err_set(err, -EBADMSG, "%s: not a safetensors file but %s", file->name, kind);
    return np_err_set(err, -EBADMSG,
        "%s: not a safetensors file, or truncated: a header of %" PRIu64 " bytes in a file of "
        "%" PRIu64,
        file->name, header_bytes, file->nr_bytes);
}

static int parse_file(struct np_st_file *file, struct np_err *err)
{
    uint8_t start[9] = {0};
    uint64_t header_bytes = 0;
    json_error_t why;

    if (file->nr_bytes < 8)
        return np_err_set(err, -EBADMSG, "%s: %" PRIu64 " bytes are not a safetensors file",
            file->name, file->nr_bytes);
    int code = read_at(file, 0, start, file->nr_bytes < 9 ? 8 : 9, err);
    if (code < 0)
        return code;
    for (int i = 7; i >= 0; i--)
        header_bytes = header_bytes << 8 | start[i];
    if (header_bytes > MAX_HEADER || header_bytes > file->nr_bytes - 8 || header_bytes < 2 ||
        start[8] != '{')
        return not_safetensors(file, header_bytes, err);
    char *header = np_try_alloc(header_bytes, err);

    if (!header)
        return np_err_context(err, "%s", file->name);
    code = read_at(file, 8, header, header_bytes, err);
    if (code == 0)
        file->root = json_loadb(header, (size_t)header_bytes, JSON_REJECT_DUPLICATES, &why);
    np_free(header);
    if (code == 0 && !file->root)
        code = np_err_set(err, -EBADMSG, "%s: its header is damaged at byte %d: %s", file->name,
            why.position + 8, why.text);
    return code == 0 ? parse_entries(file, 8 + header_bytes, err) : code;
}

int np_st_open(const char *path, struct np_st_file **ret_file, struct np_err *err)
{
    struct stat info;
    int code = 0, fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return np_err_set(err, -errno, "cannot open %s: %s", path, strerror(errno));
    if (fstat(fd, &info) < 0)
        code = np_err_set(err, -errno, "%s: %s", path, strerror(errno));
    else if (!S_ISREG(info.st_mode))
        code = np_err_set(err, -EINVAL, "%s: not a regular file", path);
    if (code < 0) {
        close(fd);
        return code;
    }
    struct np_st_file *file = np_alloc(sizeof(*file));
    file->name = np_strdup(path);
    file->fd = fd;
    file->nr_bytes = (uint64_t)info.st_size;
    code = parse_file(file, err);
    if (code < 0)
        np_st_close(file);
    else
        *ret_file = file;
    return code;
}

void np_st_close(struct np_st_file *file)
{
    if (!file)
        return;
    close(file->fd);
    json_decref(file->root);
    np_free(file->tensors);
    np_free(file->by_name);
    np_free(file->name);
    np_free(file);
}

const struct np_st_tensor *np_st_find(const struct np_st_file *file, const char *name)
{
    int first = 0, last = file->n;

    while (first < last) {
        int middle = first + (last - first) / 2;
        const struct np_st_tensor *tensor = &file->tensors[file->by_name[middle]];
        int order = strcmp(name, tensor->name);
        if (order == 0)
            return tensor;
        if (order < 0)
            last = middle;
        else
            first = middle + 1;
    }
    return NULL;
}
