/* Reads folders ahead with a few threads: the entries of each, sorted, with the sizes of images.
 * All threads examine the entries of a large folder, which hides the latency of the storage. The
 * caller takes the folders in its own order, so that the result does not depend on the threads. For
 * source_folder.c. */
#ifndef NP_FOLDERS_H
#define NP_FOLDERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "loader/base/err.h"

struct np_folder_entry {
    const char *name;        /* of the folder */
    uint64_t bytes;          /* of a file with the name of an image; else 0 */
    int code;                /* -errno of stat() */
    bool is_folder, is_file; /* links are followed; neither: a pipe, for example */
    unsigned char type;      /* DT_*, from readdir() */
};

struct np_folder {
    char *path;
    int code;         /* -errno if it could not be read */
    const char *what; /* the action that failed, for messages */
    struct stat st;
    struct np_folder_entry *entries; /* (nr_entries), in byte order of their names */
    int nr_entries;

    /* Private to folders.c: */
    int fd;                          /* while it is read */
    struct np_folder_batch *batches; /* reading thread, then the caller: they own the names */
    int state, nr_open;              /* under its lock; nr_open: batches not examined yet */
    struct np_folder *next;          /* under its lock */
};

struct np_folders;
/* Up to nr_threads threads read, the caller's among them. tick reports progress while the calling
 * thread reads or waits, in that thread: the number of entries examined so far, in all folders.
 * NULL: out of memory. */
struct np_folders *np_folders_new(int nr_threads, void (*tick)(void *context, uint64_t nr_seen),
    void *context, struct np_err *err);
/* Call it after every folder is dropped. */
void np_folders_free(struct np_folders *folders);
/* Queues the folder at path (copied) for reading. NULL: out of memory. One thread calls this and
 * the next two. */
struct np_folder *np_folders_ask(struct np_folders *folders, const char *path, struct np_err *err);
/* Waits until the folder has been read; reads it in this thread if no other has begun. */
void np_folders_wait(struct np_folders *folders, struct np_folder *folder);
/* Frees a folder, read or not; waits if a thread is reading it. NULL is fine. */
void np_folders_drop(struct np_folders *folders, struct np_folder *folder);

#endif
