/* What `nnpipe doctor` looks at without a GPU: io_uring, limits, the cgroup's share, huge pages, the
 * disk. Main thread. */
#ifndef NP_DOCTOR_BOX_H
#define NP_DOCTOR_BOX_H

#include "trainer/device.h"

void np_doctor_box(np_found_fn found, void *context);
/* path: a file that is read, or a folder in which a file of 128 MiB without a name is written and
 * read back; takes a second or two. */
void np_doctor_disk(const char *path, np_found_fn found, void *context);

#endif
