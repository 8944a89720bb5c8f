/* Pageable memory -> device, through a small ring of pinned pieces: the driver would copy it through
 * pieces of its own, and make the caller wait for the copy stream. Trainer thread. */
#ifndef NP_STAGING_H
#define NP_STAGING_H

#include "trainer/device.h"

#define NP_STAGING_PIECES 4

struct np_staging;
/* piece_bytes: of each of NP_STAGING_PIECES pieces, from the device's pinned allocator; at least 1. */
int np_staging_new(struct np_device *device, size_t piece_bytes, struct np_staging **ret_staging,
    struct np_err *err);
/* Queues the copy of src, which is free at once; dst: device. Waits, as the device's done() does, only
 * where all pieces are still being copied. Negative errno: the device failed. */
int np_staging_upload(struct np_staging *staging, void *dst, const void *src, size_t bytes);
/* Waits for what is queued. */
void np_staging_free(struct np_staging *staging);

#endif
