/* The folder of a range cache: who may share it, its account, its data sets and their eviction.
 *
 *   account         the bytes used; whoever changes them, or opens or evicts, holds its flock
 *   writing         each process holds its flock, shared, while it writes what it has reserved; while
 *                   nobody does, the files can be counted
 *   set-HASH/       a data set
 *   set-HASH/holders   its name; each process that uses the set holds its flock, shared, so the lock
 *                   dies with the process; its mtime is the set's last use
 *   set-HASH/HASH-HASH   an object (range_file.h)
 *
 * Everything is opened below the folder's descriptor, without following links. Any thread: `lock`
 * is between the threads of a process, the flock between processes. */
#ifndef NP_RANGE_FOLDER_H
#define NP_RANGE_FOLDER_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "loader/base/err.h"

struct np_range_folder {
    /* set once */
    char *path; /* owned */
    int fd, writing_fd, set_fd, holders_fd;
    bool can_write; /* else this user only finds */
    bool is_shared; /* the folder's group may write: its members are trusted */
    mode_t file_mode, set_mode;
    uid_t owner;
    gid_t group;
    uint64_t max_bytes;

    /* under lock */
    pthread_mutex_t lock;
    int account_fd;
    uint64_t used_bytes;
    uint64_t new_bytes; /* reserved since take, which the disk's free space may still have */
    uint64_t nr_evicted;
    bool is_busy;        /* the last take gave up: the next one waits 0.1 s */
    uint64_t counted_ns; /* np_now_ns() of the last count; 0: none */
};

/* path and max_bytes as in struct np_range_options; set NULL: none, for listings. */
int np_range_folder_open(struct np_range_folder *folder, const char *path, const char *set,
    uint64_t max_bytes, struct np_err *err);
void np_range_folder_close(struct np_range_folder *folder);

/* Takes lock and flock and reads the account. Waits up to 10 s. -EBUSY; -ESTALE: the folder was
 * removed. */
int np_range_folder_take(struct np_range_folder *folder, struct np_err *err);
void np_range_folder_release(struct np_range_folder *folder); /* writes the account */

/* These between take and release. */

/* Adds bytes to the account, after evicting what nobody holds if it must. False: there is no room. */
bool np_range_folder_reserve(struct np_range_folder *folder, uint64_t bytes);
void np_range_folder_return(struct np_range_folder *folder, uint64_t bytes);
/* Writes the account, as release does: before what was reserved is used. */
void np_range_folder_save(struct np_range_folder *folder);
/* What was reserved is written until np_range_folder_end(), which is called without take. One thread
 * of a process makes these three calls. */
void np_range_folder_begin(struct np_range_folder *folder);
void np_range_folder_end(struct np_range_folder *folder);
/* Sets the account to what the files have, unless a process is writing, or it was done less than
 * 30 s ago: killed processes have reserved what they never wrote. */
void np_range_folder_count(struct np_range_folder *folder);
/* Unlinks a file of the set, and takes it off the account. */
void np_range_folder_unlink(struct np_range_folder *folder, const char *name);
/* Removes the other versions of an object that no process has open. */
void np_range_folder_drop_versions(struct np_range_folder *folder, const char *name);

/* Opens a regular file in the folder dir_fd, not through a link, of a trusted owner. flags may have
 * O_CREAT, for a mode that suits the folder. -ENOENT has no text. */
int np_range_folder_file(const struct np_range_folder *folder, int dir_fd, const char *name,
    int flags, int *ret_fd, struct np_err *err);

/* For listings; without take. Calls each with every set: its name, bytes, last use (Unix time) and
 * whether a process holds it. */
struct np_range_set {
    const char *name;
    uint64_t bytes, nr_objects;
    int64_t used_s;
    bool is_held;
};
int np_range_folder_sets(struct np_range_folder *folder,
    void (*each)(void *context, const struct np_range_set *set), void *context, struct np_err *err);
/* Removes all sets that nobody holds. */
int np_range_folder_clear(struct np_range_folder *folder, uint64_t *ret_bytes, struct np_err *err);

#endif
