/* Folders read ahead by a few threads: what lies in each, sorted, with the sizes of images. On storage
 * where every question takes its time a listing is as fast as many can ask at once; what it gives
 * depends on the folders alone, since whoever lists takes them in his own order. For source_folder.c. */
#ifndef NP_FOLDERS_H
#define NP_FOLDERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

/* Something in a folder. */
struct np_folder_entry {
    char *name;
    bool is_folder, is_file; /* links are followed; neither: a pipe, say */
    uint64_t bytes;          /* of a file with the name of an image; else 0 */
    int code;                /* -errno: it could not be looked at */
};

struct np_folder {
    char *path;
    int code; /* 0, or -errno: it could not be read, `what` it could not */
    const char *what;
    struct stat st;
    struct np_folder_entry *entries; /* (nr_entries), in byte order of their names */
    int nr_entries;
    size_t room; /* entries that fit */
    int state;   /* folders.c's own, under its lock */
    struct np_folder *next;
};

struct np_folders;
/* tick is called by the caller's thread while it reads or waits: how many entries were looked at so far, in all
 * folders. A large folder of slow storage takes long. NULL: out of memory. */
struct np_folders *np_folders_new(void (*tick)(void *context, uint64_t nr_seen), void *context);
/* Every folder that was asked for has been dropped. */
void np_folders_free(struct np_folders *folders);
/* Begins to read the folder at path (copied); NULL: out of memory. One thread calls these three. */
struct np_folder *np_folders_ask(struct np_folders *folders, const char *path);
/* Waits until it has been read; reads it itself where no thread has begun. */
void np_folders_wait(struct np_folders *folders, struct np_folder *folder);
/* Frees it, read or not; NULL is fine. */
void np_folders_drop(struct np_folders *folders, struct np_folder *folder);

#endif
