/* The formats of files of weights, and those of other programs that are refused by name. */
#include "trainer/checkpoint/weights_file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "loader/base/mem.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/checkpoint/torch_state.h"

#define START_BYTES 128 /* at a file's start, enough to identify it */

/* --- refused ------------------------------------------------------------------------------- */

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

static bool ends(const char *name, const char *ending)
{
    const size_t n = strlen(name), m = strlen(ending);

    return n > m && strcmp(name + n - m, ending) == 0;
}

/* NULL: unknown. Some kinds need the file's name as well. */
static const char *kind_of(const char *name, const uint8_t *start, size_t bytes)
{
    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
        if (bytes >= kinds[i].offset + kinds[i].bytes &&
            memcmp(start + kinds[i].offset, kinds[i].magic, kinds[i].bytes) == 0)
            return kinds[i].text;
    if (bytes >= 4 && memcmp(start, "PK\3\4", 4) == 0 && memmem(start, bytes, ".npy", 4))
        return CONVERT("a NumPy archive");
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
    const char *kind = kind_of(name, start, bytes);

    if (kind)
        snprintf(text, text_bytes, "%s", kind);
    return kind != NULL;
}

/* --- formats ------------------------------------------------------------------------------- */

static int read_torch(struct np_st_file *file, const char *key,
    int (*read)(const struct np_st_file *file, struct np_torch *torch, struct np_err *err),
    struct np_err *err)
{
    struct np_torch torch;
    int code = read(file, &torch, err);

    if (code == 0)
        code = np_torch_tensors(&torch, key, file, err);
    np_torch_fini(&torch);
    return code;
}

static int read_zip(struct np_st_file *file, const char *key, struct np_err *err)
{
    return read_torch(file, key, np_torch_read_zip, err);
}

static int read_old(struct np_st_file *file, const char *key, struct np_err *err)
{
    return read_torch(file, key, np_torch_read_old, err);
}

/* A header has less than 2^40 bytes, and no text has such zeros. */
static bool is_safetensors(const uint8_t *start, size_t bytes)
{
    return bytes >= 9 && memcmp(start + 5, "\0\0\0{", 4) == 0;
}

static int read_safetensors(struct np_st_file *file, const char *key, struct np_err *err)
{
    if (key)
        return np_err_set(err, -EINVAL,
            "%s: a safetensors file has no part '%s'; a prefix of names ends with a dot: %s#%s.",
            file->name, key, file->name, key);
    return np_st_parse(file, err);
}

static const struct format {
    bool (*is)(const uint8_t *start, size_t bytes); /* its first bytes */
    /* Fills tensors, part and others. key: the part that the user wants; NULL: none. */
    int (*read)(struct np_st_file *file, const char *key, struct np_err *err);
} formats[] = {
    {np_torch_is_zip, read_zip},
    {np_torch_is_old, read_old},
    {is_safetensors, read_safetensors},
};

/* Reads the first bytes, *ret_n of them. *ret_format NULL: of no format. */
static int find_format(const struct np_st_file *file, uint8_t start[START_BYTES], size_t *ret_n,
    const struct format **ret_format, struct np_err *err)
{
    const size_t n = file->nr_bytes < START_BYTES ? (size_t)file->nr_bytes : START_BYTES;
    const int code = np_st_read_at(file, 0, start, n, err);

    *ret_n = n;
    *ret_format = NULL;
    for (size_t i = 0; code == 0 && !*ret_format && i < sizeof(formats) / sizeof(formats[0]); i++)
        if (formats[i].is(start, n))
            *ret_format = &formats[i];
    return code;
}

static int read_format(struct np_st_file *file, const char *key, struct np_err *err)
{
    const struct format *format;
    uint8_t start[START_BYTES];
    char kind[400];
    size_t n;
    const int code = find_format(file, start, &n, &format, err);

    if (code < 0)
        return code;
    if (format)
        return format->read(file, key, err);
    if (np_weights_kind(file->name, start, n, kind, sizeof(kind)))
        return np_err_set(
            err, -EBADMSG, "%s: neither a safetensors nor a PyTorch file but %s", file->name, kind);
    return np_err_set(err, -EBADMSG,
        "%s: neither a safetensors nor a PyTorch file, or damaged at its start", file->name);
}

size_t np_weights_path(const char *path)
{
    const char *hash = strrchr(path, '#');

    return hash && hash > path && access(path, F_OK) < 0 ? (size_t)(hash - path) : strlen(path);
}

/* Cuts FILE#KEY/PREFIX. into its parts; key and prefix are NULL if they are not given. */
static void cut(const char *path, char **ret_file, char **ret_key, char **ret_prefix)
{
    const size_t n = np_weights_path(path);
    const char *key = path[n] == '#' ? path + n + 1 : "", *slash = strrchr(key, '/');
    const char *tail = slash ? slash + 1 : key;

    *ret_file = np_format("%.*s", (int)n, path);
    *ret_prefix = *tail && ends(key, ".") ? np_strdup(tail) : NULL;
    const size_t length = *ret_prefix ? (size_t)(tail - key) : strlen(key);
    const size_t used = length - (*ret_prefix && length > 0); /* without the slash */
    *ret_key = used > 0 ? np_format("%.*s", (int)used, key) : NULL;
}

bool np_weights_is_file(const char *path)
{
    char *name = np_format("%.*s", (int)np_weights_path(path), path);
    const struct format *format = NULL;
    struct np_st_file *file = NULL;
    uint8_t start[START_BYTES];
    size_t n;

    if (np_st_open_raw(name, &file, NULL) == 0)
        find_format(file, start, &n, &format, NULL);
    np_st_close(file);
    np_free(name);
    return format != NULL;
}

int np_weights_open(const char *path, struct np_st_file **ret_file, struct np_err *err)
{
    struct np_st_file *file = NULL;
    struct np_err why = {0};
    char *name, *key, *prefix;

    cut(path, &name, &key, &prefix);
    int code = np_st_open_raw(name, &file, &why);
    if (code == 0)
        code = read_format(file, key, &why);
    if (code < 0) {
        np_st_close(file);
        np_free(prefix);
        np_err_set(err, code, "%s", why.text);
    } else {
        file->prefix = prefix;
        *ret_file = file;
    }
    np_free(name);
    np_free(key);
    return code;
}
