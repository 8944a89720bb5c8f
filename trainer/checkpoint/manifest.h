/* manifest.json of a checkpoint: sizes and hashes of its files, and the run's position. */
#ifndef NP_MANIFEST_H
#define NP_MANIFEST_H

#include <stdbool.h>
#include <stdint.h>

#include "loader/base/err.h"
#include "trainer/early.h"
#include "trainer/plateau.h"

#define NP_MANIFEST "manifest.json"

enum { NP_FILE_WEIGHTS, NP_FILE_OPTIMIZER, NP_NR_FILES };
extern const char *const np_manifest_files[NP_NR_FILES]; /* "weights.safetensors", ... */

/* A run's position, besides its weights. Stored in manifest.json. */
struct np_position {
    uint64_t step;              /* training steps done */
    bool eval_due;              /* the evaluation after that step has not been made */
    uint64_t ticket_hash;       /* running XXH3 of all sample indices so far */
    uint64_t nr_bad, bad_epoch; /* bad samples of that epoch */
    /* A resumed run truncates its logs to these. */
    uint64_t log_bytes, metrics_bytes, bad_bytes, history_bytes, losses_bytes;
    double best_accuracy;
    uint64_t best_step;
    double train_seconds; /* so far */
    double loss_sum;
    uint64_t loss_rows; /* of the epoch so far */
    struct np_plateau plateau;
    struct np_early early;
};

struct np_manifest {
    struct np_position position;
    struct {
        uint64_t bytes, xxh3;
    } files[NP_NR_FILES];
};

/* Prints it as text (free() it); facts_json: an object, or NULL for an empty one. -EINVAL: not
 * an object. */
int np_manifest_dump(const struct np_manifest *manifest, const char *facts_json, char **ret_text,
    struct np_err *err);
/* Reads and checks path. *ret_facts_json: np_free. -EBADMSG: damaged. -EPROTO: of another
 * version. */
int np_manifest_read(
    const char *path, struct np_manifest *ret_manifest, char **ret_facts_json, struct np_err *err);

#endif
