/* Loads weights by name from other programs' files: finds the prefix of the file's names, converts
 * numbers to f32, and fills the table of what was loaded. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/base/mem.h"
#include "trainer/checkpoint/weights.h"
#include "trainer/checkpoint/weights_file.h"

#define PIECE        4096 /* elements converted at a time */
#define MAX_PREFIXES 8

struct load {
    const struct np_st_file *file;
    const struct np_graph *graph;
    char *prefix; /* "": none */
    char *key;    /* a name of the network with the prefix: the next name's */
    size_t key_room;
};

/* --- numbers ------------------------------------------------------------------------------- */

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

/* dtype: one that is_float(). */
static void convert(float *out, const uint8_t *data, uint64_t n, const char *dtype)
{
    for (uint64_t i = 0; i < n; i++) {
        if (strcmp(dtype, "F32") == 0) {
            memcpy(&out[i], data + 4 * i, 4);
        } else if (strcmp(dtype, "F64") == 0) {
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

/* Reads all bytes between the first element and the last, and gathers the elements in the order of
 * their indices. */
static int read_strided(const struct np_st_file *file, const struct np_st_tensor *tensor,
    uint64_t size, float *out, struct np_err *err)
{
    int64_t index[NP_ST_MAX_DIMS] = {0};
    uint8_t *data = np_try_alloc(tensor->bytes, err);
    int code = data ? np_st_read(file, tensor, 0, data, tensor->bytes, err)
                    : np_err_context(err, "%s: %s", file->name, tensor->name);

    for (int d = 0; code == 0 && d >= 0;) {
        int64_t at = 0;
        for (int i = 0; i < tensor->nr_dims; i++)
            at += index[i] * tensor->strides[i];
        convert(out++, data + (uint64_t)at * size, 1, tensor->dtype);
        for (d = tensor->nr_dims - 1; d >= 0 && ++index[d] == tensor->dims[d]; d--)
            index[d] = 0;
    }
    np_free(data);
    return code;
}

/* Only for a dtype that is_float(). */
static int read_f32(const struct np_st_file *file, const struct np_st_tensor *tensor, float *out,
    struct np_err *err)
{
    const uint64_t size = np_st_dtype_bytes(tensor->dtype), n = tensor->bytes / size;
    uint8_t piece[PIECE * 8];
    int code = 0;

    if (tensor->strided)
        return read_strided(file, tensor, size, out, err);
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

/* --- names --------------------------------------------------------------------------------- */

/* The file's tensor of a name of the network. */
static const struct np_st_tensor *find(struct load *load, const char *prefix, const char *name)
{
    const size_t n = strlen(prefix), m = strlen(name);

    np_grow(&load->key, &load->key_room, n + m + 1, 1);
    memcpy(load->key, prefix, n);
    memcpy(load->key + n, name, m + 1);
    return np_st_find(load->file, load->key);
}

static int nr_found(struct load *load, const char *prefix)
{
    int n = 0;

    for (int i = 0; i < load->graph->nr_tensors; i++)
        if (np_tensor_is_weight(&load->graph->tensors[i]))
            n += find(load, prefix, load->graph->tensors[i].name) != NULL;
    return n;
}

/* The length of what DataParallel, torch.compile() and a trainer's module put before a name. */
static size_t wrapper_of(const char *name)
{
    static const char *const wrappers[] = {"module.", "_orig_mod.", "model."};

    for (size_t i = 0; i < sizeof(wrappers) / sizeof(wrappers[0]); i++)
        if (strncmp(name, wrappers[i], strlen(wrappers[i])) == 0)
            return strlen(wrappers[i]);
    return 0;
}

/* Chooses the prefix, made of wrappers, with which most of the network's names are in the file; the
 * first of equals, so that no prefix wins. */
static void choose_prefix(struct load *load)
{
    char *tried[MAX_PREFIXES] = {np_strdup("")};
    int nr_tried = 1, best = 0, most = nr_found(load, "");

    for (int i = 0; i < load->file->n && nr_tried < MAX_PREFIXES; i++) {
        const char *name = load->file->tensors[i].name;
        for (size_t n = 0, more; (more = wrapper_of(name + n)) > 0 && nr_tried < MAX_PREFIXES;) {
            int known = 0;
            n += more;
            while (known < nr_tried &&
                   (strncmp(tried[known], name, n) != 0 || tried[known][n] != '\0'))
                known++;
            if (known < nr_tried)
                continue;
            tried[nr_tried] = np_format("%.*s", (int)n, name);
            const int found = nr_found(load, tried[nr_tried]);
            if (found > most) {
                most = found;
                best = nr_tried;
            }
            nr_tried++;
        }
    }
    load->prefix = tried[best];
    for (int i = 0; i < nr_tried; i++)
        if (i != best)
            np_free(tried[i]);
}

/* --- all tensors ----------------------------------------------------------------------------- */

/* "is 1000x512 I64 in the file, 8x512 here"; the type only if it is no float. np_free. */
static char *difference(const struct np_st_tensor *stored, const struct np_tensor *tensor)
{
    char file[NP_ST_MAX_DIMS * 21 + 1] = "", here[4 * 12 + 1] = "";

    for (int i = 0, at = 0; i < stored->nr_dims; i++)
        at += snprintf(
            file + at, sizeof(file) - (size_t)at, "%s%" PRId64, i > 0 ? "x" : "", stored->dims[i]);
    for (int i = 0, at = 0; i < tensor->nr_dims; i++)
        at += snprintf(
            here + at, sizeof(here) - (size_t)at, "%s%d", i > 0 ? "x" : "", tensor->dims[i]);
    return np_format("is %s%s%s in the file, %s here", *file ? file : "a number",
        is_float(stored->dtype) ? "" : " ", is_float(stored->dtype) ? "" : stored->dtype, here);
}

static int load_all(struct load *load, float *params, float *buffers,
    struct np_weights_table *table, int *ret_nr_loaded, struct np_err *err)
{
    for (int i = 0; i < load->graph->nr_tensors; i++) {
        const struct np_tensor *tensor = &load->graph->tensors[i];
        if (!np_tensor_is_weight(tensor))
            continue;
        const struct np_st_tensor *stored = find(load, load->prefix, tensor->name);
        const bool fits = stored && np_tensor_fits(tensor, stored) && is_float(stored->dtype);
        char *why = !stored ? np_strdup("is missing") : fits ? NULL : difference(stored, tensor);
        float *array = tensor->role == NP_ROLE_PARAM ? params : buffers;
        np_weights_table_add(table, &(struct np_weights_entry){.name = tensor->name,
                                        .nr_values = np_tensor_elements(tensor),
                                        .why = why,
                                        .misshapen = stored != NULL,
                                        .frozen = tensor->rule.thaw > 0});
        np_free(why);
        const int code = fits ? read_f32(load->file, stored, array + tensor->offset, err) : 0;
        if (code < 0)
            return code;
        *ret_nr_loaded += fits;
    }
    return 0;
}

static int compare_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Batch counts are not listed. */
static void list_unused(const struct load *load, struct np_weights_table *table)
{
    const struct np_graph *graph = load->graph;
    const char **names = np_alloc_array((size_t)graph->nr_tensors, sizeof(*names));
    const size_t length = strlen(load->prefix);
    size_t n = 0;

    for (int i = 0; i < graph->nr_tensors; i++)
        if (np_tensor_is_weight(&graph->tensors[i]))
            names[n++] = graph->tensors[i].name;
    qsort(names, n, sizeof(*names), compare_text);
    for (int i = 0; i < load->file->n; i++) {
        const char *name = load->file->tensors[i].name;
        const bool has_prefix = strncmp(name, load->prefix, length) == 0;
        const char *own = has_prefix ? name + length : name;
        if (!np_is_batch_count(own) &&
            (!has_prefix || !bsearch(&own, names, n, sizeof(*names), compare_text)))
            np_weights_table_unused(table, own, has_prefix);
    }
    np_free(names);
}

/* --- nothing fits --------------------------------------------------------------------------- */

/* Finds a prefix with which the network's first and last names are in the file. Returns a name that
 * has it, and its length; NULL: there is none. */
static const char *prefixed(struct load *load, size_t *ret_length)
{
    const struct np_graph *graph = load->graph;
    const char *first = NULL, *last = NULL;

    for (int i = 0; i < graph->nr_tensors; i++)
        if (np_tensor_is_weight(&graph->tensors[i])) {
            first = first ? first : graph->tensors[i].name;
            last = graph->tensors[i].name;
        }
    for (int i = 0; first && i < load->file->n; i++) {
        const char *name = load->file->tensors[i].name;
        const size_t n = strlen(name), m = strlen(first);

        if (n <= m || name[n - m - 1] != '.' || strcmp(name + n - m, first) != 0)
            continue;
        char *prefix = np_format("%.*s", (int)(n - m), name);
        const bool there = find(load, prefix, last) != NULL;
        np_free(prefix);
        *ret_length = n - m;
        if (there)
            return name;
    }
    return NULL;
}

static int no_fit(struct load *load, const struct np_weights_table *table, struct np_err *err)
{
    size_t n = 0;
    const char *name = prefixed(load, &n), *part = load->file->part;

    if (name)
        return np_err_set(err, -EINVAL,
            "%s: its names begin with '%.*s', the network's do not: %s#%s%s%.*s takes them without",
            table->path, (int)n, name, load->file->name, part ? part : "", part ? "/" : "", (int)n,
            name);
    char *text = np_weights_table_misfit(table);
    np_err_set(err, -EINVAL, "%s: no tensor fits the network: %.500s", table->path,
        text ? text : "it has no weights");
    np_free(text);
    return -EINVAL;
}

int np_weights_load(const char *path, const struct np_graph *graph, float *params, float *buffers,
    struct np_weights_table **ret_table, struct np_err *err)
{
    struct np_st_file *file = NULL;
    struct np_err why = {0};
    int nr_loaded = 0, code = np_weights_open(path, &file, err);

    if (code < 0)
        return code;
    struct load load = {.file = file, .graph = graph};
    if (file->prefix)
        load.prefix = np_strdup(file->prefix);
    else
        choose_prefix(&load);
    struct np_weights_table *table =
        np_weights_table_new(file->name, file->part, file->others, load.prefix);
    code = load_all(&load, params, buffers, table, &nr_loaded, &why);
    if (code == 0)
        list_unused(&load, table);
    if (code == 0 && nr_loaded == 0)
        code = no_fit(&load, table, &why);
    np_free(load.prefix);
    np_free(load.key);
    np_st_close(file);
    if (code < 0) {
        np_weights_table_free(table);
        return np_err_set(err, code, "%s", why.text);
    }
    *ret_table = table;
    return 0;
}
