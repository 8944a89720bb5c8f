/* Hostile bytes as a file of kept sizes (first byte 0), whose checksum is made right so that the rest is tested too,
 * and as a picture whose header is read. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "loader/lib/lib_header.h"
#include "loader/lib/lib_sizes_file.h"
#include "loader/pixels/codec.h"

enum { NR = 3 };

static void parse(const uint8_t *data, size_t n, uint64_t set)
{
    struct np_size sizes[NR + 1];

    memset(sizes, 0x5a, sizeof(sizes));
    const int code = np_sizes_parse(data, n, set, NR, sizes);
    for (size_t i = code ? 0 : NR * sizeof(*sizes); i < sizeof(sizes); i++)
        if (((const uint8_t *)sizes)[i] != 0x5a)
            abort();
}

static void read_kept(const uint8_t *data, size_t n)
{
    _Alignas(8) uint8_t file[4096];
    struct np_sizes_header *header = (struct np_sizes_header *)(void *)file;

    parse(data, n, 0);
    if (n < sizeof(*header) || n > sizeof(file))
        return;
    memcpy(file, data, n);
    if (header->nr == (n - sizeof(*header)) / sizeof(struct np_size))
        np_sizes_seal(header);
    parse(file, n, header->set);
}

static void read_header(const uint8_t *data, size_t n)
{
    static int fd = -1;
    int32_t width = 0, height = 0;

    if (fd < 0)
        fd = memfd_create("picture", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, 0) < 0 || pwrite(fd, data, n, 0) != (ssize_t)n)
        abort();
    if (np_header_size(fd, 0, n, &width, &height) &&
        (width < 1 || height < 1 || width > NP_MAX_SIDE || height > NP_MAX_SIDE))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n > 0 && data[0] == 0)
        read_kept(data + 1, n - 1);
    else
        read_header(data, n);
    return 0;
}
