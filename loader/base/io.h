/* Reading and durable writing through a table of backends: `uring` (one io_uring a thread) and `pread`
 * (the fallback, as in containers that refuse io_uring). Tests bring a third. A np_io belongs to one
 * thread. */
#ifndef NP_IO_H
#define NP_IO_H

#include <stdbool.h>
#include <stdint.h>

#include "loader/base/err.h"

/* One read in flight. The caller owns it and the buffer until np_io_reap() returns it. */
struct np_io_read {
    int fd;
    uint64_t offset;
    uint32_t bytes; /* wanted, at most INT32_MAX */
    void *buffer;
    void *owner;         /* the caller's own */
    int32_t result;      /* bytes read (short only at the end of the file), or a negative errno */
    uint32_t done_bytes; /* of them, so far: np_io's own */
};

struct np_io;

/* The read table. Calls are made by the thread that opened the np_io. */
struct np_io_ops {
    const char *name;
    bool no_cache_probe; /* every read goes to the backend, whatever the page cache holds */
    /* Required. At most `depth` reads in flight. -ENOSYS: not on this machine. */
    int (*open)(struct np_io *io, int depth, struct np_err *err);
    /* Required. Never blocks; the read goes on at done_bytes. */
    int (*submit)(struct np_io *io, struct np_io_read *read);
    /* Required. The next complete read, or NULL. wait: blocks until there is one. */
    struct np_io_read *(*reap)(struct np_io *io, bool wait);
    /* Required. Nothing is in flight. */
    void (*close)(struct np_io *io);
    /* Optional: NULL means np_io_posix_write. What must survive is written by these. */
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
    void *state;                  /* backend's own */
    int depth, nr_in_flight;      /* submitted and not reaped yet */
    struct np_io_read **complete; /* (depth) ring of reads that the page cache had */
    int first_complete, nr_complete;
    uint64_t nr_reads, nr_cached; /* so far; of them complete at once */
};

extern const struct np_io_ops np_io_uring, np_io_pread;
extern const struct np_io_write_ops np_io_posix_write;

/* name: "auto" (uring, or pread where it cannot be set up, whatever the reason), "uring", "pread". io->ops->name tells which it
 * became. Reads and the page cache's ring are allocated here, nothing later. */
int np_io_open(struct np_io *io, const char *name, int depth, struct np_err *err);
/* Starts a read; at most io->depth may be in flight. The page cache is asked first (RWF_NOWAIT);
 * what is there completes at once. Does not wait for the disk. */
int np_io_submit(struct np_io *io, struct np_io_read *read);
/* A complete read, in any order; NULL: none (wait: none in flight). A read that failed has its
 * errno in `result`; all that can be retried has been. wait: blocks until there is one. */
struct np_io_read *np_io_reap(struct np_io *io, bool wait);
/* Waits for what is in flight. Takes an np_io that was zeroed and never opened. */
void np_io_close(struct np_io *io);
/* For backends: takes what one read call returned (bytes, or a negative errno). True: the read is
 * complete, its result set; false: it goes on at done_bytes. */
bool np_io_advance(struct np_io_read *read, int64_t returned);

/* Durable writing, in the order of a checkpoint. All block. io NULL: the POSIX calls, as with a
 * backend that has none of its own. Errors name the file, and where the disk is full how much is
 * free. A file being created is locked until it is closed: of two processes that create the same
 * one, the second waits. */
int np_io_create(struct np_io *io, const char *path, int *ret_fd, struct np_err *err);
int np_io_append(struct np_io *io, int fd, const void *data, uint64_t bytes, struct np_err *err);
/* Closes fd even when it fails. */
int np_io_sync_close(struct np_io *io, int fd, struct np_err *err);
int np_io_rename(struct np_io *io, const char *from, const char *to, struct np_err *err);
/* path: of the folder. */
int np_io_sync_dir(struct np_io *io, const char *path, struct np_err *err);
/* create `path.new` + append + sync + rename over path + sync_dir: the file is whole or as
 * before. */
int np_io_replace(
    struct np_io *io, const char *path, const void *data, uint64_t bytes, struct np_err *err);

#define NP_WRITE_PRIVATE 1 /* for its owner alone: mode 0600 */
#define NP_WRITE_DURABLE 2 /* synced, and its folder */
/* As np_io_replace(), with the POSIX calls and without the lock: of two that write at once, one may fail. What is left
 * at `path.new`, a link too, is removed first. */
int np_write_file(
    const char *path, const void *data, uint64_t bytes, int flags, struct np_err *err);

/* Whole file into memory (caller frees with np_free), at most max_bytes; ret_data has a
 * NUL after its last byte. "/dev/stdin" is what this process has open, from where it is, though it may not be
 * allowed to open that. Errors name the file. */
int np_read_file(
    const char *path, uint64_t max_bytes, char **ret_data, uint64_t *ret_bytes, struct np_err *err);
/* Reads `bytes` bytes at offset. Returns their number, fewer only at the file's end, or -errno. */
int64_t np_read_at(int fd, uint64_t offset, void *buffer, size_t bytes);
int np_make_dirs(const char *path, struct np_err *err); /* mkdir -p */
int np_make_parent(const char *path, struct np_err *err); /* the same for the folder of a file */

#endif
