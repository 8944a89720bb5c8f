/* See folders.h. Work is of two kinds: a folder to read, and a batch of its entries to examine.
 * Batches come first, so that folders are finished in the order in which they were begun. */
#include "loader/source/folders.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "loader/base/mem.h"
#include "loader/source/source_scan.h"

#define BATCH_ENTRIES 1024
#define TICK_ENTRIES  256 /* between two calls of tick() */

enum { QUEUED, READING, READY };

/* Neighbours in a folder, examined by one thread. */
struct np_folder_batch {
    struct np_folder *folder;
    struct np_folder_batch *next;        /* of the folder */
    struct np_folder_batch *next_queued; /* under lock */
    char *names;                         /* each with its NUL, in the order of the entries */
    size_t names_bytes, names_room;
    struct np_folder_entry *entries; /* (nr_entries) */
    size_t room;
    int nr_entries;
};

struct np_folders {
    pthread_mutex_t lock;
    pthread_cond_t asked, ready;                   /* with `lock` */
    struct np_folder *first, *last;                /* under lock: QUEUED, first in, first out */
    struct np_folder_batch *batches;               /* under lock: to examine, last in, first out */
    bool stop;                                     /* under lock */
    uint64_t nr_seen;                              /* under lock: entries examined, all folders */
    void (*tick)(void *context, uint64_t nr_seen); /* set once; caller's thread only */
    void *context;
    pthread_t threads[NP_MAX_LISTERS]; /* under lock */
    int nr_threads, max_threads;       /* under lock; set once; neither counts the caller's */
};

/* Finds type and size, without stat() if the folder's entry is enough. */
static void examine(int fd, struct np_folder_entry *entry)
{
    struct stat st;

    if (entry->type == DT_DIR || (entry->type == DT_REG && !np_is_image_name(entry->name))) {
        entry->is_folder = entry->type == DT_DIR;
        entry->is_file = entry->type == DT_REG;
        return;
    }
    if (fstatat(fd, entry->name, &st, 0) < 0) {
        entry->code = -errno;
        return;
    }
    entry->is_folder = S_ISDIR(st.st_mode);
    entry->is_file = S_ISREG(st.st_mode);
    entry->bytes = entry->is_file ? (uint64_t)st.st_size : 0;
}

/* Counts TICK_ENTRIES more. own, in all of this file: in the caller's thread. */
static void add_seen(struct np_folders *folders, bool own)
{
    uint64_t nr_seen;

    pthread_mutex_lock(&folders->lock);
    folders->nr_seen += TICK_ENTRIES;
    nr_seen = folders->nr_seen;
    pthread_mutex_unlock(&folders->lock);
    if (own)
        folders->tick(folders->context, nr_seen);
}

static void examine_batch(struct np_folders *folders, struct np_folder_batch *batch, bool own)
{
    const char *name = batch->names;

    for (int i = 0; i < batch->nr_entries; i++, name += strlen(name) + 1) {
        batch->entries[i].name = name;
        examine(batch->folder->fd, &batch->entries[i]);
        if ((i + 1) % TICK_ENTRIES == 0)
            add_seen(folders, own);
    }
}

/* Under lock; releases the lock while it examines the batch queued last. */
static void examine_queued(struct np_folders *folders, bool own)
{
    struct np_folder_batch *batch = folders->batches;

    folders->batches = batch->next_queued;
    pthread_mutex_unlock(&folders->lock);
    examine_batch(folders, batch, own);
    pthread_mutex_lock(&folders->lock);
    if (--batch->folder->nr_open == 0)
        pthread_cond_broadcast(&folders->ready);
}

/* Under lock; releases the lock. Waits for other threads; the caller's thread reports progress. */
static void wait_for_others(struct np_folders *folders, bool own)
{
    const uint64_t before = folders->nr_seen;
    struct timespec until;
    uint64_t nr_seen;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec++;
    pthread_cond_timedwait(&folders->ready, &folders->lock, &until);
    nr_seen = folders->nr_seen;
    if (!own || nr_seen == before)
        return;
    pthread_mutex_unlock(&folders->lock);
    folders->tick(folders->context, nr_seen);
    pthread_mutex_lock(&folders->lock);
}

/* Examines batches, of this folder or others, until all of this folder's are examined. */
static void finish_batches(struct np_folders *folders, const struct np_folder *folder, bool own)
{
    pthread_mutex_lock(&folders->lock);
    while (folder->nr_open)
        if (folders->batches)
            examine_queued(folders, own);
        else
            wait_for_others(folders, own);
    pthread_mutex_unlock(&folders->lock);
}

static void *thread_main(void *context);

/* Under lock. A failure is ignored: the threads that exist, or the caller, do the work. */
static void start_thread(struct np_folders *folders)
{
    sigset_t all, before;

    if (folders->nr_threads == folders->max_threads)
        return;
    sigfillset(&all); /* the main thread handles signals */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (pthread_create(&folders->threads[folders->nr_threads], NULL, thread_main, folders) == 0)
        folders->nr_threads++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void queue_batch(struct np_folders *folders, struct np_folder_batch *batch)
{
    pthread_mutex_lock(&folders->lock);
    batch->folder->nr_open++;
    batch->next_queued = folders->batches;
    folders->batches = batch;
    pthread_cond_signal(&folders->asked);
    start_thread(folders);
    pthread_mutex_unlock(&folders->lock);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(
        ((const struct np_folder_entry *)a)->name, ((const struct np_folder_entry *)b)->name);
}

static int fail(struct np_folder *folder, int code, const char *what)
{
    folder->code = code;
    folder->what = what;
    return code;
}

static int add_entry(struct np_folder_batch *batch, const struct dirent *found)
{
    const size_t n = (size_t)batch->nr_entries, bytes = strlen(found->d_name) + 1;

    if (np_try_grow(&batch->entries, &batch->room, n + 1, sizeof(*batch->entries), NULL) ||
        np_try_grow(&batch->names, &batch->names_room, batch->names_bytes + bytes, 1, NULL))
        return -ENOMEM;
    memcpy(batch->names + batch->names_bytes, found->d_name, bytes);
    batch->names_bytes += bytes;
    batch->entries[batch->nr_entries++] = (struct np_folder_entry){.type = found->d_type};
    return 0;
}

static struct np_folder_batch *add_batch(struct np_folder *folder)
{
    struct np_folder_batch *batch = np_try_alloc(sizeof(*batch), NULL);

    if (batch) {
        batch->folder = folder;
        batch->next = folder->batches;
        folder->batches = batch;
    }
    return batch;
}

/* Reads all names. Other threads examine the full batches, this one examines the last. */
static int read_batches(struct np_folders *folders, struct np_folder *folder, DIR *dir, bool own)
{
    struct np_folder_batch *batch = NULL;
    const struct dirent *found;
    int code = 0;

    for (errno = 0; !code && (found = readdir(dir)); errno = 0) {
        if (strcmp(found->d_name, ".") == 0 || strcmp(found->d_name, "..") == 0)
            continue;
        if (!batch)
            batch = add_batch(folder);
        code = batch ? add_entry(batch, found) : -ENOMEM;
        if (!code && batch->nr_entries == BATCH_ENTRIES) {
            queue_batch(folders, batch);
            batch = NULL;
        }
    }
    if (!code)
        code = -errno;
    if (!code && batch)
        examine_batch(folders, batch, own);
    return code;
}

static int gather(struct np_folder *folder)
{
    size_t n = 0;

    for (const struct np_folder_batch *batch = folder->batches; batch; batch = batch->next)
        n += (size_t)batch->nr_entries;
    folder->entries = n > INT_MAX ? NULL : np_try_array(n, sizeof(*folder->entries), NULL);
    if (!folder->entries)
        return -ENOMEM;
    for (struct np_folder_batch *batch = folder->batches; batch; batch = batch->next) {
        memcpy(folder->entries + folder->nr_entries, batch->entries,
            (size_t)batch->nr_entries * sizeof(*folder->entries));
        folder->nr_entries += batch->nr_entries;
        np_free(batch->entries);
        batch->entries = NULL;
    }
    if (n)
        qsort(folder->entries, n, sizeof(*folder->entries), by_name);
    return 0;
}

static void read_entries(struct np_folders *folders, struct np_folder *folder, DIR *dir, bool own)
{
    int code;

    folder->fd = dirfd(dir);
    code = read_batches(folders, folder, dir, own);
    finish_batches(folders, folder, own);
    if (!code)
        code = gather(folder);
    if (code)
        fail(folder, code, "cannot be listed");
}

static void read_folder(struct np_folders *folders, struct np_folder *folder, bool own)
{
    const int fd = open(folder->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir;

    if (fd < 0) {
        fail(folder, -errno, "cannot open the folder");
        return;
    }
    /* The folder's time is read before its entries: a file added meanwhile makes the index
     * stale. */
    dir = fstat(fd, &folder->st) < 0 ? NULL : fdopendir(fd);
    if (!dir) {
        fail(folder, -errno, "cannot be listed");
        close(fd);
        return;
    }
    read_entries(folders, folder, dir, own);
    closedir(dir);
}

/* Under lock. */
static void unlink_folder(struct np_folders *folders, struct np_folder *folder)
{
    struct np_folder **at = &folders->first, *before = NULL;

    for (; *at != folder; at = &(*at)->next)
        before = *at;
    *at = folder->next;
    if (folders->last == folder)
        folders->last = before;
}

/* Under lock; releases the lock while it reads. */
static void read_queued(struct np_folders *folders, struct np_folder *folder, bool own)
{
    unlink_folder(folders, folder);
    folder->state = READING;
    pthread_mutex_unlock(&folders->lock);
    read_folder(folders, folder, own);
    pthread_mutex_lock(&folders->lock);
    folder->state = READY;
    pthread_cond_broadcast(&folders->ready);
}

static void *thread_main(void *context)
{
    struct np_folders *folders = context;

    pthread_setname_np(pthread_self(), "lister");
    pthread_mutex_lock(&folders->lock);
    while (!folders->stop) {
        if (folders->batches)
            examine_queued(folders, false);
        else if (folders->first)
            read_queued(folders, folders->first, false);
        else
            pthread_cond_wait(&folders->asked, &folders->lock);
    }
    pthread_mutex_unlock(&folders->lock);
    return NULL;
}

struct np_folders *np_folders_new(int nr_threads, void (*tick)(void *context, uint64_t nr_seen),
    void *context, struct np_err *err)
{
    struct np_folders *folders = np_try_alloc(sizeof(*folders), err);

    if (!folders)
        return NULL;
    folders->tick = tick;
    folders->context = context;
    folders->max_threads = (nr_threads < NP_MAX_LISTERS ? nr_threads : NP_MAX_LISTERS) - 1;
    pthread_mutex_init(&folders->lock, NULL);
    pthread_cond_init(&folders->asked, NULL);
    pthread_cond_init(&folders->ready, NULL);
    return folders;
}

void np_folders_free(struct np_folders *folders)
{
    if (!folders)
        return;
    pthread_mutex_lock(&folders->lock);
    folders->stop = true;
    pthread_cond_broadcast(&folders->asked);
    pthread_mutex_unlock(&folders->lock);
    for (int i = 0; i < folders->nr_threads; i++)
        pthread_join(folders->threads[i], NULL);
    pthread_cond_destroy(&folders->asked);
    pthread_cond_destroy(&folders->ready);
    pthread_mutex_destroy(&folders->lock);
    np_free(folders);
}

struct np_folder *np_folders_ask(struct np_folders *folders, const char *path, struct np_err *err)
{
    struct np_folder *folder = np_try_alloc(sizeof(*folder), err);
    bool many;

    if (folder && !(folder->path = np_try_strdup(path, err))) {
        np_free(folder);
        return NULL;
    }
    if (!folder)
        return NULL;
    pthread_mutex_lock(&folders->lock);
    many = folders->first != NULL; /* the caller reads one itself */
    if (folders->last)
        folders->last->next = folder;
    else
        folders->first = folder;
    folders->last = folder;
    pthread_cond_signal(&folders->asked);
    if (many)
        start_thread(folders);
    pthread_mutex_unlock(&folders->lock);
    return folder;
}

void np_folders_wait(struct np_folders *folders, struct np_folder *folder)
{
    pthread_mutex_lock(&folders->lock);
    if (folder->state == QUEUED)
        read_queued(folders, folder, true);
    while (folder->state != READY)
        if (folders->batches)
            examine_queued(folders, true);
        else if (folders->first)
            read_queued(folders, folders->first, true);
        else
            wait_for_others(folders, true);
    pthread_mutex_unlock(&folders->lock);
}

static void free_batches(struct np_folder *folder)
{
    while (folder->batches) {
        struct np_folder_batch *batch = folder->batches;

        folder->batches = batch->next;
        np_free(batch->entries);
        np_free(batch->names);
        np_free(batch);
    }
}

void np_folders_drop(struct np_folders *folders, struct np_folder *folder)
{
    if (!folder)
        return;
    pthread_mutex_lock(&folders->lock);
    if (folder->state == QUEUED)
        unlink_folder(folders, folder);
    while (folder->state == READING)
        pthread_cond_wait(&folders->ready, &folders->lock);
    pthread_mutex_unlock(&folders->lock);
    free_batches(folder);
    np_free(folder->entries);
    np_free(folder->path);
    np_free(folder);
}
