/* Loads weights by name from other programs' files, and hashes weights to compare two runs. */
#include "trainer/checkpoint/weights.h"

#include <errno.h>
#include <inttypes.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/base/mem.h"

bool np_tensor_is_weight(const struct np_tensor *tensor)
{
    return tensor->role == NP_ROLE_PARAM || tensor->role == NP_ROLE_BUFFER;
}

bool np_tensor_fits(const struct np_tensor *tensor, const struct np_st_tensor *stored)
{
    if (stored->nr_dims != tensor->nr_dims)
        return false;
    for (int i = 0; i < tensor->nr_dims; i++)
        if (stored->dims[i] != tensor->dims[i])
            return false;
    return true;
}

bool np_is_batch_count(const char *name)
{
    const char *dot = strrchr(name, '.');

    return strcmp(dot ? dot + 1 : name, "num_batches_tracked") == 0;
}

#define PIECE 4096 /* elements converted at a time */

/* --- loading ------------------------------------------------------------------------------- */

static float f32_from_f16(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, exponent = half >> 10 & 31, bits;
    uint32_t fraction = half & 0x3ff;
    float value;

    if (exponent == 0) { /* zero, subnormal: fraction * 2^-24 is exact */
        value = (float)fraction * 0x1p-24f;
        return sign ? -value : value;
    }
    bits = sign | fraction << 13 | (exponent == 31 ? 0x7f800000u : (exponent + 112) << 23);
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static bool is_float(const char *dtype)
{
    return strcmp(dtype, "F32") == 0 || strcmp(dtype, "F64") == 0 || strcmp(dtype, "F16") == 0 ||
           strcmp(dtype, "BF16") == 0;
}

/* dtype: F64, F16 or BF16. */
static void convert(float *out, const uint8_t *data, uint64_t n, const char *dtype)
{
    for (uint64_t i = 0; i < n; i++) {
        if (strcmp(dtype, "F64") == 0) {
            double value;
            memcpy(&value, data + 8 * i, 8);
            out[i] = (float)value;
        } else {
            uint16_t half;
            memcpy(&half, data + 2 * i, 2);
            uint32_t bits = (uint32_t)half << 16; /* bf16 is the upper half of f32 */
            if (strcmp(dtype, "F16") == 0)
                out[i] = f32_from_f16(half);
            else
                memcpy(&out[i], &bits, 4);
        }
    }
}

/* Only for a dtype that is_float(). */
static int read_f32(const struct np_st_file *file, const struct np_st_tensor *tensor, float *out,
    struct np_err *err)
{
    const uint64_t size = np_st_dtype_bytes(tensor->dtype), n = tensor->bytes / size;
    uint8_t piece[PIECE * 8];
    int code = 0;

    if (strcmp(tensor->dtype, "F32") == 0)
        return np_st_read(file, tensor, 0, out, tensor->bytes, err);
    for (uint64_t i = 0; code == 0 && i < n; i += PIECE) {
        uint64_t some = n - i < PIECE ? n - i : PIECE;
        code = np_st_read(file, tensor, i * size, piece, some * size, err);
        if (code == 0)
            convert(out + i, piece, some, tensor->dtype);
    }
    return code;
}

struct listing { /* "missing: a, b and 3 more; unexpected: c" */
    FILE *out;
    int nr_kinds, nr_here;
};
#define MAX_LISTED 10

static void list_kind(struct listing *listing)
{
    if (listing->nr_here > MAX_LISTED)
        fprintf(listing->out, " and %d more", listing->nr_here - MAX_LISTED);
    listing->nr_here = 0;
}

/* Writes the separator before the next name; false: the list is full. */
static bool list_next(struct listing *listing, const char *kind)
{
    if (listing->nr_here == 0)
        fprintf(listing->out, "%s%s: ", listing->nr_kinds++ > 0 ? "; " : "", kind);
    else if (listing->nr_here < MAX_LISTED)
        fprintf(listing->out, ", ");
    return listing->nr_here++ < MAX_LISTED;
}

static void print_dims(FILE *out, const struct np_st_tensor *stored, const struct np_tensor *tensor)
{
    fprintf(out, "%s (file: ", tensor->name);
    for (int i = 0; i < stored->nr_dims; i++)
        fprintf(out, "%s%" PRId64, i > 0 ? "x" : "", stored->dims[i]);
    fprintf(out, " %s, network: ", stored->dtype);
    for (int i = 0; i < tensor->nr_dims; i++)
        fprintf(out, "%s%d", i > 0 ? "x" : "", tensor->dims[i]);
    fprintf(out, ")");
}

/* Lists the tensors that are missing or do not fit. */
static int load_all(const struct np_st_file *file, const struct np_graph *graph, float *params,
    float *buffers, struct listing *listing, int *ret_nr_loaded, struct np_err *err)
{
    int nr_loaded = 0, code;

    for (int i = 0; i < graph->nr_tensors; i++) {
        const struct np_tensor *tensor = &graph->tensors[i];
        if (!np_tensor_is_weight(tensor))
            continue;
        if (np_st_find(file, tensor->name) == NULL && list_next(listing, "missing"))
            fprintf(listing->out, "%s", tensor->name);
    }
    list_kind(listing);
    for (int i = 0; i < graph->nr_tensors; i++) {
        const struct np_tensor *tensor = &graph->tensors[i];
        const struct np_st_tensor *stored =
            np_tensor_is_weight(tensor) ? np_st_find(file, tensor->name) : NULL;
        if (!stored)
            continue;
        float *array = tensor->role == NP_ROLE_PARAM ? params : buffers;
        if (np_tensor_fits(tensor, stored) && is_float(stored->dtype)) {
            if ((code = read_f32(file, stored, array + tensor->offset, err)) < 0)
                return code;
            nr_loaded++;
        } else if (list_next(listing, "another shape or type, not loaded"))
            print_dims(listing->out, stored, tensor);
    }
    list_kind(listing);
    *ret_nr_loaded = nr_loaded;
    return 0;
}

static int compare_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Batch counts are not listed. */
static void list_unexpected(
    const struct np_st_file *file, const struct np_graph *graph, struct listing *listing)
{
    const char **names = np_alloc_array((size_t)graph->nr_tensors, sizeof(*names));
    size_t n = 0;

    for (int i = 0; i < graph->nr_tensors; i++)
        if (np_tensor_is_weight(&graph->tensors[i]))
            names[n++] = graph->tensors[i].name;
    qsort(names, n, sizeof(*names), compare_text);
    for (int i = 0; i < file->n; i++) {
        const char *name = file->tensors[i].name;
        if (!np_is_batch_count(name) &&
            bsearch(&name, names, n, sizeof(*names), compare_text) == NULL &&
            list_next(listing, "unexpected"))
            fprintf(listing->out, "%s", name);
    }
    list_kind(listing);
    np_free(names);
}

/* Finds a prefix of all names in the file, such as DistributedDataParallel's "module.". Returns a
 * name that has it, and its length; NULL: there is none. */
static const char *prefixed(
    const struct np_st_file *file, const struct np_graph *graph, size_t *ret)
{
    const char *first = NULL, *last = NULL;

    for (int i = 0; i < graph->nr_tensors; i++)
        if (np_tensor_is_weight(&graph->tensors[i])) {
            first = first ? first : graph->tensors[i].name;
            last = graph->tensors[i].name;
        }
    for (int i = 0; first && i < file->n; i++) {
        const char *name = file->tensors[i].name;
        const size_t n = strlen(name), m = strlen(first);

        if (n <= m || name[n - m - 1] != '.' || strcmp(name + n - m, first) != 0)
            continue;
        char *other = np_format("%.*s%s", (int)(n - m), name, last);
        const bool there = np_st_find(file, other);
        np_free(other);
        *ret = n - m;
        if (there)
            return name;
    }
    return NULL;
}

static int no_fit(const struct np_st_file *file, const struct np_graph *graph, const char *path,
    const char *text, struct np_err *err)
{
    size_t n = 0;
    const char *name = prefixed(file, graph, &n);

    if (name)
        return np_err_set(err, -EINVAL,
            "%s: its names begin with '%.*s', the network's do not: save them without the prefix, "
            "{k.removeprefix(\"%.*s\"): v for k, v in state_dict.items()}",
            path, (int)n, name, (int)n, name);
    return np_err_set(err, -EINVAL, "%s: no tensor fits the network: %.500s", path, text);
}

int np_weights_load(const char *path, const struct np_graph *graph, float *params, float *buffers,
    char **ret_text, struct np_err *err)
{
    struct np_st_file *file = NULL;
    struct listing listing = {0};
    char *text = NULL;
    size_t length;
    int nr_loaded = 0, code = np_st_open(path, &file, err);

    if (code < 0)
        return code;
    listing.out = open_memstream(&text, &length);
    code = listing.out ? 0 : -ENOMEM;
    if (code == 0) {
        code = load_all(file, graph, params, buffers, &listing, &nr_loaded, err);
        if (code == 0)
            list_unexpected(file, graph, &listing);
        if (fclose(listing.out) != 0)
            code = -ENOMEM;
    }
    if (code == 0 && nr_loaded == 0)
        code = no_fit(file, graph, path, text, err);
    np_st_close(file);
    if (code < 0) /* another error has filled err */
        np_err_set(err, code, "%s: out of memory", path);
    if (code < 0 || text[0] == '\0') {
        free(text);
        text = NULL;
    }
    if (code == 0)
        *ret_text = text;
    return code;
}

/* --- the hash ------------------------------------------------------------------------------ */

static int compare_tensors(const void *a, const void *b)
{
    return strcmp(
        (*(const struct np_tensor *const *)a)->name, (*(const struct np_tensor *const *)b)->name);
}

static int hash_u64(EVP_MD_CTX *hash, uint64_t value)
{
    uint8_t bytes[8];

    for (int i = 0; i < 8; i++)
        bytes[i] = (uint8_t)(value >> (8 * i));
    return EVP_DigestUpdate(hash, bytes, sizeof(bytes));
}

/* Elements are hashed as stored: nnpipe runs on little-endian machines only. */
static int hash_tensor(EVP_MD_CTX *hash, const struct np_tensor *tensor, const float *array)
{
    int good = EVP_DigestUpdate(hash, tensor->name, strlen(tensor->name) + 1) &&
               hash_u64(hash, (uint64_t)tensor->nr_dims);

    for (int i = 0; i < tensor->nr_dims; i++)
        good = good && hash_u64(hash, (uint64_t)tensor->dims[i]);
    return good && EVP_DigestUpdate(
                       hash, array + tensor->offset, np_tensor_elements(tensor) * sizeof(float));
}

void np_weights_sha256(
    const struct np_graph *graph, const float *params, const float *buffers, char ret_hex[65])
{
    const struct np_tensor **sorted = np_alloc_array((size_t)graph->nr_tensors, sizeof(*sorted));
    EVP_MD_CTX *hash = EVP_MD_CTX_new();
    unsigned char digest[EVP_MAX_MD_SIZE];
    size_t n = 0;
    int good = hash && EVP_DigestInit_ex(hash, EVP_sha256(), NULL);

    for (int i = 0; i < graph->nr_tensors && good; i++)
        if (np_tensor_is_weight(&graph->tensors[i]))
            sorted[n++] = &graph->tensors[i];
    if (n > 0)
        qsort(sorted, n, sizeof(*sorted), compare_tensors);
    for (size_t i = 0; i < n && good; i++)
        good = hash_tensor(hash, sorted[i], sorted[i]->role == NP_ROLE_PARAM ? params : buffers);
    good = good && EVP_DigestFinal_ex(hash, digest, NULL);
    for (int i = 0; i < 32 && good; i++)
        snprintf(ret_hex + 2 * i, 3, "%02x", digest[i]);
    if (!good) /* out of memory: equals no hash */
        ret_hex[0] = '\0';
    EVP_MD_CTX_free(hash);
    np_free(sorted);
}
