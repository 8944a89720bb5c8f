/* Reading and durable writing through a table of backends: `uring` (an io_uring per thread) and
 * `pread` (for example for containers that refuse io_uring). Tests add a third. An np_io belongs to
 * one thread. */
#ifndef NP_IO_H
#define NP_IO_H

#include <stdbool.h>
#include <stdint.h>

#include "loader/base/err.h"

/* One read in flight. The caller owns it, path and buffer, and leaves them unchanged until
 * np_io_reap() returns it. */
struct np_io_read {
    const char *path; /* NULL: a read; else opens this file, and `result` is the descriptor */
    int fd; /* a descriptor; with the backend `http` also a handle of loader/base/remote.h */
    uint64_t offset;
    uint32_t bytes; /* at most INT32_MAX */
    void *buffer;
    void *owner;
    int32_t result;      /* bytes read (short only at the end of the file), or a negative errno */
    const char *why;     /* of a failed read of an object, until the next call; NULL: strerror() */
    bool direct;         /* past the page cache (O_DIRECT): np_io_widen() */
    uint32_t done_bytes; /* for np_io alone: bytes read so far */
    bool blocks;         /* for np_io alone: this file system has no non-blocking reads */
};

struct np_io;

/* The read table. The thread that opened the np_io makes the calls. */
struct np_io_ops {
    const char *name;
    bool no_cache_probe; /* sends all reads to the backend, without a try of the page cache */
    bool opens;          /* submit() accepts a read with a path, if the kernel does */
    /* Required. At most `depth` reads in flight. -ENOSYS: not on this machine. */
    int (*open)(struct np_io *io, int depth, struct np_err *err);
    /* Required. Starts the read at done_bytes; never blocks. */
    int (*submit)(struct np_io *io, struct np_io_read *read);
    /* Required. Returns a complete read or NULL. wait: blocks until there is one. */
    struct np_io_read *(*reap)(struct np_io *io, bool wait);
    /* Required. Called when nothing is in flight. */
    void (*close)(struct np_io *io);
    /* Optional: NULL means that only reap() can wait. A descriptor that polls as readable when
     * reap() has a read. */
    int (*wake_fd)(const struct np_io *io);
    /* Optional: NULL means np_io_posix_write. */
    const struct np_io_write_ops *write;
};

/* The table for durable writes; paths are absolute or relative to the working directory. */
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
    void *state;
    int depth, nr_in_flight;      /* submitted and not reaped */
    struct np_io_read **complete; /* (depth) ring of reads that the page cache served */
    int first_complete, nr_complete;
    uint64_t nr_reads, nr_cached; /* nr_cached: of these, complete at once */
    bool opens;                   /* np_io_open_now() may return -EINPROGRESS */
    bool blocks;                  /* as np_io_read.blocks, of the last read */
};

extern const struct np_io_ops np_io_uring, np_io_pread;
extern const struct np_io_write_ops np_io_posix_write;

/* name: "uring", "pread", or "auto": uring, or pread if uring cannot be set up for any reason;
 * io->ops->name is the chosen backend. Allocates all memory of the np_io. */
int np_io_open(struct np_io *io, const char *name, int depth, struct np_err *err);
/* Starts a read; at most io->depth may be in flight. A read that the page cache can serve
 * (RWF_NOWAIT) completes at once. Does not wait for the disk. */
int np_io_submit(struct np_io *io, struct np_io_read *read);
/* Opens a file for reading. Returns the descriptor or -errno. -EINPROGRESS: the caches do not have
 * the path, so submit a read with it: many opens can wait for the storage at once. A backend
 * without such opens (pread, io_uring before Linux 5.12) opens the file here and waits. */
int np_io_open_now(const struct np_io *io, const char *path, bool direct);
/* Turns a read into one past the page cache: widens it to multiples of NP_IO_BLOCK, and returns the
 * number of bytes added before its place. Its descriptor was opened with O_DIRECT; its buffer has
 * that much space on both sides and the same remainder as its offset. It is complete after one
 * successful call; if its bytes are too few, or it fails, the caller repeats it through the page
 * cache. */
#define NP_IO_BLOCK 4096
uint32_t np_io_widen(struct np_io_read *read);
/* Returns a complete read, in any order; NULL: none. wait: blocks until a read is complete; then
 * NULL: none is in flight. A failed read has its errno in `result`, after all retries. */
struct np_io_read *np_io_reap(struct np_io *io, bool wait);
/* Waits for the reads in flight. Accepts a zeroed np_io that was never opened. */
void np_io_close(struct np_io *io);
/* For backends: adds the result of one system call (bytes, or a negative errno). True: the read is
 * complete, with its result; false: continue it at done_bytes. */
bool np_io_advance(struct np_io_read *read, int64_t returned);

/* Durable writing, in the order of a checkpoint. All calls block. io NULL: the POSIX calls. Errors
 * name the file, and for a full disk its free space. An open file is locked: another process that
 * creates the same file waits until it is closed. */
int np_io_create(struct np_io *io, const char *path, int *ret_fd, struct np_err *err);
int np_io_append(struct np_io *io, int fd, const void *data, uint64_t bytes, struct np_err *err);
/* Closes fd in any case. */
int np_io_sync_close(struct np_io *io, int fd, struct np_err *err);
int np_io_rename(struct np_io *io, const char *from, const char *to, struct np_err *err);
int np_io_sync_dir(struct np_io *io, const char *folder, struct np_err *err);
/* Replaces a file: creates, writes and syncs `path.new`, renames it to path, and syncs the folder.
 * At any time either the old or the new file is there. */
int np_io_replace(
    struct np_io *io, const char *path, const void *data, uint64_t bytes, struct np_err *err);
/* Makes the next np_io_replace() of path leave a file of mode 0600. */
int np_io_make_private(const char *path, struct np_err *err);

#define NP_WRITE_PRIVATE 1 /* mode 0600 */
#define NP_WRITE_DURABLE 2 /* syncs file and folder */
/* The same with the POSIX calls and without the lock: of two concurrent writers one may fail.
 * Removes an old `path.new` first, even a link. */
int np_write_file(
    const char *path, const void *data, uint64_t bytes, int flags, struct np_err *err);

/* Writes a file that a command line names. A regular file, or one that is new, is replaced as by
 * np_write_file(); a link stays, and its target is replaced or made. Anything else is written into and
 * stays: a device, a pipe, and the descriptors of this process (/dev/stdout, /dev/stderr,
 * /dev/fd/N), which are never truncated. Blocks until a FIFO has a reader. A reader that has gone:
 * -EPIPE if SIGPIPE is ignored. A bound socket: -ENXIO. */
int np_write_output(const char *path, const void *data, uint64_t bytes, struct np_err *err);

/* Reads a whole file of at most max_bytes into memory, and adds a NUL; np_free. "/dev/stdin" reads
 * the open standard input from its current place. Errors name the file. */
int np_read_file(
    const char *path, uint64_t max_bytes, char **ret_data, uint64_t *ret_bytes, struct np_err *err);
/* Reads `bytes` bytes at offset. Returns their number (smaller only at the end of the file), or
 * -errno. */
int64_t np_read_at(int fd, uint64_t offset, void *buffer, size_t bytes);
int np_make_dirs(const char *path, struct np_err *err);   /* mkdir -p */
int np_make_parent(const char *path, struct np_err *err); /* the same for the folder of a file */

#endif
