/* The containers of torch.save(): the pickle of what was saved, and where the bytes of each storage
 * lie. A zip file (since 1.6): NAME/data.pkl, NAME/data/KEY, NAME/byteorder. Before: five pickles
 * (magic number, version, system, what was saved, the storages' keys), then of each storage the
 * number of elements (i64) and its bytes. torch_state.c makes tensors of them. Any thread. */
#ifndef NP_TORCH_FILE_H
#define NP_TORCH_FILE_H

#include "trainer/checkpoint/pickle.h"
#include "trainer/checkpoint/tensor_file.h"

struct np_torch_storage {
    const char *key; /* (key_bytes), without a NUL */
    size_t key_bytes;
    uint64_t offset, bytes; /* from the file's start; offset 0: not in the file */
    uint32_t crc32;         /* of the bytes; 0: not known */
};
struct np_torch {
    struct np_pickle pickle, keys;     /* keys: of the old format */
    struct np_torch_storage *storages; /* (nr_storages) sorted by key */
    size_t nr_storages;
    uint8_t *bytes; /* the pickles */
    char *names;    /* the zip file's */
};

/* Does a file begin as torch.save() begins one? start: its first bytes. A zip file of other content
 * is refused when it is read. */
bool np_torch_is_zip(const uint8_t *start, size_t bytes);
bool np_torch_is_old(const uint8_t *start, size_t bytes);

/* Reads the containers; file: np_st_open_raw(). -EBADMSG: damaged, of a machine with another byte
 * order, or TorchScript. np_torch_fini(), also after an error. */
int np_torch_read_zip(const struct np_st_file *file, struct np_torch *torch, struct np_err *err);
int np_torch_read_old(const struct np_st_file *file, struct np_torch *torch, struct np_err *err);
void np_torch_fini(struct np_torch *torch);

/* The type and bytes per element of a class of storages, such as "torch.FloatStorage"; a type that
 * safetensors does not have gets torch's name. false: unknown. */
bool np_torch_storage_type(
    const struct np_pickle_value *type, const char **ret_dtype, uint64_t *ret_bytes);
/* The storage of a key; NULL: none. */
const struct np_torch_storage *np_torch_find(
    const struct np_torch *torch, const struct np_pickle_value *key);

#endif
