/* Hostile bytes as a zstd file with a seek table, read whole through it. */
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "loader/source/seekable.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static uint8_t buffer[1 << 16];
    const int fd = memfd_create("fuzz", MFD_CLOEXEC);
    struct np_seek_table *table;
    struct np_seek_reader *reader;

    if (fd < 0 || write(fd, data, n) != (ssize_t)n)
        abort();
    if (np_seek_table_read(fd, "fuzz", &table, NULL) == 0) {
        if (np_seek_reader_open(fd, "fuzz", table, &reader, NULL) == 0) {
            for (uint64_t at = 0; at < table->content_bytes && at < 1 << 20; at += sizeof(buffer))
                if (np_seek_reader_read(reader, at, buffer, sizeof(buffer), NULL) <= 0)
                    break;
            np_seek_reader_free(reader);
        }
        np_seek_table_free(table);
    }
    close(fd);
    return 0;
}
