/* Which tensors are weights, and the hash of weights that compares two runs. */
#include "trainer/checkpoint/weights.h"

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
