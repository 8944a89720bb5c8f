/* Reading and durable writing through a table of backends: `uring` (one io_uring a
 * thread), `pread` (the fallback, as in containers that refuse io_uring) and `sim`
 * (tests: short reads, errors, latency, power cuts). A np_io belongs to one thread. */
#ifndef NP_IO_H
#define NP_IO_H

#include <stdbool.h>
#include <stdint.h>

#include "loader/base/err.h"

/* One read in flight. The caller owns it and the buffer until np_io_reap() returns it. */
struct np_io_read {
    int fd;
    uint64_t offset;
    uint32_t bytes; /* wanted */
    void *buffer;
    void *owner;         /* the caller's own */
    int32_t result;      /* bytes read (short only at the end of the file), or a negative errno */
    uint32_t done_bytes; /* backend's own */
};

struct np_io;

/* The read table. Calls are made by the thread that opened the np_io. */
struct np_io_ops {
    const char *name;
    /* Required. At most `depth` reads in flight. -ENOSYS: not on this machine. */
    int (*open)(struct np_io *io, int depth, struct np_err *err);
    /* Required. Never blocks; the read is in flight or already complete. */
    int (*submit)(struct np_io *io, struct np_io_read *read);
    /* Required. The next complete read, or NULL. wait: blocks until there is one. */
    struct np_io_read *(*reap)(struct np_io *io, bool wait);
    /* Required. Waits for what is in flight. */
    void (*close)(struct np_io *io);
    /* Optional: NULL means the shared POSIX ones of io.c. What must survive is written by these. */
    const struct np_io_write_ops *write;
};

/* The durable-write table; paths are absolute or relative to the working directory. */
struct np_io_write_ops {
    int (*create)(struct np_io *io, const char *path); /* fd or negative errno */
    int (*append)(
        struct np_io *io, int fd, const void *data, uint64_t bytes); /* all of it, or -errno */
    int (*sync)(struct np_io *io, int fd);
    int (*close)(struct np_io *io, int fd);
    int (*rename)(struct np_io *io, const char *from, const char *to);
    int (*sync_dir)(struct np_io *io, const char *path);
};

struct np_io {
    const struct np_io_ops *ops;
    void *state; /* backend's own */
    int depth, nr_in_flight;
};

extern const struct np_io_ops np_io_uring, np_io_pread, np_io_sim;

/* name: "auto" (uring, or pread where it is refused), "uring", "pread", "sim". */
int np_io_open(struct np_io *io, const char *name, int depth, struct np_err *err);
/* Starts a read. The page cache is asked first (RWF_NOWAIT); what is there completes at once. */
int np_io_submit(struct np_io *io, struct np_io_read *read);
struct np_io_read *np_io_reap(struct np_io *io, bool wait);
void np_io_close(struct np_io *io);

/* Durable writing, in the order of a checkpoint. */
int np_io_create(struct np_io *io, const char *path, int *ret_fd, struct np_err *err);
int np_io_append(struct np_io *io, int fd, const void *data, uint64_t bytes, struct np_err *err);
int np_io_sync_close(struct np_io *io, int fd, struct np_err *err);
int np_io_rename(struct np_io *io, const char *from, const char *to, struct np_err *err);
int np_io_sync_dir(struct np_io *io, const char *path, struct np_err *err);
/* create + append + sync_close + rename over path + sync_dir: the file is whole or as before. */
int np_io_replace(
    struct np_io *io, const char *path, const void *data, uint64_t bytes, struct np_err *err);

/* Whole file into memory (caller frees with np_free), at most max_bytes; ret_data has a
 * NUL after its last byte. Errors name the file. */
int np_read_file(
    const char *path, uint64_t max_bytes, char **ret_data, uint64_t *ret_bytes, struct np_err *err);
int np_make_dirs(const char *path, struct np_err *err); /* mkdir -p */

#endif
