/* Where a sample lies, and opening it where it is a file of its own. Any thread. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "loader/source/source.h"

void np_source_locate(const struct np_index *index, uint64_t sample, struct np_extent *ret_extent)
{
    const char *root = np_index_root(index);

    ret_extent->record = np_index_record(index, sample);
    ret_extent->path_buffer[0] = '\0';
    if (root) {
        const int room = (int)sizeof(ret_extent->path_buffer);
        int used = snprintf(ret_extent->path_buffer, (size_t)room, "%s/", root);

        used = used < room ? used : room - 1; /* a scan refuses such a root; a file may say it */
        np_index_name(index, sample, ret_extent->path_buffer + used, room - used);
        ret_extent->path = ret_extent->path_buffer;
    } else if (np_index_raw(index)->kind == NP_RAW_SYNTH)
        ret_extent->path = "synth";
    else
        ret_extent->path = np_index_file(index, (int)ret_extent->record->file);
}

int np_extent_open(const char *path, struct np_record *record)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    uint32_t bytes;

    if (fd < 0)
        return -errno;
    const int code = fstat(fd, &st) < 0 ? -errno : S_ISDIR(st.st_mode) ? -EISDIR : 0;
    if (code) {
        close(fd);
        return code;
    }
    if (!S_ISREG(st.st_mode))
        return fd;
    bytes = st.st_size > UINT32_MAX ? UINT32_MAX : (uint32_t)st.st_size;
    if (bytes != record->bytes)
        record->has_crc = 0;
    record->bytes = record->inner_bytes = bytes;
    return fd;
}

bool np_extent_is_bad(const struct np_index *index, int code)
{
    struct stat st;

    switch (-code) {
    case ENOENT:
    case ENOTDIR:
    case EACCES:
    case EPERM:
    case ELOOP:
    case EISDIR:
    case ENAMETOOLONG: return stat(np_index_root(index), &st) == 0 && S_ISDIR(st.st_mode);
    default: return false;
    }
}
