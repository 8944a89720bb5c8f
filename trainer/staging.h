/* Copies pageable memory to the device through a small ring of pinned pieces. (The driver's own
 * copy would make the caller wait for the copy stream.) Trainer thread. */
#ifndef NP_STAGING_H
#define NP_STAGING_H

#include "trainer/device.h"

#define NP_STAGING_PIECES 4

struct np_staging;
/* Allocates NP_STAGING_PIECES pieces of piece_bytes (at least 1) from the device's pinned
 * allocator. */
int np_staging_new(struct np_device *device, size_t piece_bytes, struct np_staging **ret_staging,
    struct np_err *err);
/* Queues the copy of src to dst on the device; the caller may reuse src at once. Blocks only
 * while all pieces are still being copied. Negative errno: the device failed. */
int np_staging_upload(struct np_staging *staging, void *dst, const void *src, size_t bytes);
/* Waits for all queued copies. */
void np_staging_free(struct np_staging *staging);

#endif
