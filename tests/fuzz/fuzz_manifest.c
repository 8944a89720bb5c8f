/* np_manifest_read() on hostile bytes; what it takes it writes back the same. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "loader/base/mem.h"
#include "trainer/checkpoint/manifest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct np_manifest manifest;
    struct np_err err = {0};
    char path[40], *facts = NULL, *text = NULL;
    int fd = memfd_create("manifest", 0);

    if (fd < 0 || write(fd, data, bytes) != (ssize_t)bytes)
        abort();
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    int result = np_manifest_read(path, &manifest, &facts, &err);
    assert((result == 0) == (facts != NULL) && (result == 0) == (err.code == 0));
    if (result == 0) {
        assert(np_manifest_dump(&manifest, facts, &text, NULL) == 0);
        free(text);
    }
    np_free(facts);
    close(fd);
    return 0;
}
