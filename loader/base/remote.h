/* Objects that lie elsewhere (s3://, gs://, https://), read through the same handles as files: a handle
 * is a descriptor, or a negative number that only the calls here know. A program installs the table
 * of calls; libnnpipe has none, and refuses URLs. Any thread, unless a call says otherwise. */
#ifndef NP_REMOTE_H
#define NP_REMOTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "loader/base/err.h"

struct np_io;
struct np_remote_store;

/* What the readers of a loader share; owned by the loader. */
struct np_remote_session {
    uint64_t limit_ns;             /* a read is retried for this time; set once */
    int stopped;                   /* atomic: reads in flight end with -ECANCELED */
    struct np_remote_store *store; /* their cache on local disk; NULL: none; set once */
};

/* Numbers of all readers since the program began, for reports. */
struct np_remote_numbers {
    uint64_t nr_requests, nr_retries, nr_hedges; /* retries and hedges are among the requests */
    uint64_t bytes;                              /* received */
};

struct np_remote_table {
    /* "s3://b/a-{0..9}.tar" gives ten URLs. Does not touch the network. -EINVAL: no such URL. The
     * caller frees each and the list. */
    int (*expand)(const char *pattern, char ***ret_urls, int *ret_nr, struct np_err *err);
    /* Asks the servers for size and version of each object. Blocks. */
    int (*look)(char *const *urls, int nr, struct np_err *err);
    /* The object's handle; asks the server if look() did not. Valid until the process ends. */
    int (*open)(const char *url, int *ret_file, struct np_err *err);
    /* Size; a number that differs for another version; and the version, valid as the handle. "": the
     * server names none, so that the number is good for this process only. */
    void (*facts)(int file, uint64_t *ret_bytes, uint64_t *ret_number, const char **ret_version);
    /* As np_read_at(). Reads ahead where calls go forward. */
    int64_t (*read)(int file, uint64_t offset, void *buffer, size_t bytes, struct np_err *err);
    /* The backend that reads both: local is the name of the one for descriptors. session is
     * borrowed. */
    int (*open_io)(struct np_io *io, const char *local, int depth,
        const struct np_remote_session *session, struct np_err *err);
    /* Copies what a server answered last instead of bytes ("HTTP 503 ..."), if it was after
     * since_ns; returns whether it was. */
    bool (*trouble)(uint64_t since_ns, char *text, size_t text_bytes);
    void (*numbers)(struct np_remote_numbers *ret_numbers);
};

/* Installs the table. Before other threads start. */
void np_remote_use(const struct np_remote_table *table);
/* NULL: this program reads no URLs. */
const struct np_remote_table *np_remote(void);

/* True for "scheme://...". */
bool np_is_url(const char *path);
/* Bytes of a path up to the query of an http URL, which may be a secret and no part of a name. */
size_t np_path_bytes(const char *path);
/* True if a handle is an object's. */
static inline bool np_is_remote(int file)
{
    return file <= -1000;
}
/* 0; or -ENOTSUP, if this program reads no URLs. */
int np_remote_check(const char *url, struct np_err *err);

/* open() for reading, stat(), fstat(), close() and np_read_at() of files and URLs. They return 0 or
 * a descriptor, or -errno; for a URL err has the cause, for a file it stays unset. */
int np_file_open(const char *path, struct np_err *err);
int np_file_stat(const char *path, struct stat *ret_stat, struct np_err *err);
int np_file_fstat(int file, struct stat *ret_stat);
void np_file_close(int file);
int64_t np_file_read(int file, uint64_t offset, void *buffer, size_t bytes, struct np_err *err);

#endif
