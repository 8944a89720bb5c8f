/* manifest.json of a checkpoint: what its files must be, and where the run stood. */
#ifndef NP_MANIFEST_H
#define NP_MANIFEST_H

#include "trainer/checkpoint/checkpoint.h"

enum { NP_FILE_WEIGHTS, NP_FILE_OPTIMIZER, NP_NR_FILES };
extern const char *const np_manifest_files[NP_NR_FILES]; /* "weights.safetensors", ... */

struct np_manifest {
    struct np_position position;
    struct {
        uint64_t bytes, xxh3;
    } files[NP_NR_FILES];
};

/* As text (free() it); facts_json: an object, or NULL for an empty one. -EINVAL: it is none. */
int np_manifest_dump(const struct np_manifest *manifest, const char *facts_json, char **ret_text,
    struct np_err *err);
/* Reads and checks path. *ret_facts_json: np_free. -EBADMSG: damaged. -EPROTO: another version's. */
int np_manifest_read(
    const char *path, struct np_manifest *ret_manifest, char **ret_facts_json, struct np_err *err);

#endif
