/* See folders.h. The queue is first in, first out; threads start as it fills. */
#include "loader/source/folders.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "loader/base/mem.h"
#include "loader/source/source_scan.h"

#define MAX_THREADS  8   /* they wait for the storage, not for a core */
#define TICK_ENTRIES 256 /* between two calls of tick() */

enum { QUEUED, READING, READY };

struct np_folders {
    pthread_mutex_t lock;
    pthread_cond_t asked, ready;                   /* with `lock` */
    struct np_folder *first, *last;                /* under lock: QUEUED */
    bool stop;                                     /* under lock */
    uint64_t nr_seen;                              /* under lock: entries examined, all folders */
    void (*tick)(void *context, uint64_t nr_seen); /* set once; caller's thread only */
    void *context;
    pthread_t threads[MAX_THREADS]; /* caller's thread only */
    int nr_threads;
};

/* --- reading ---------------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
    return strcmp(
        ((const struct np_folder_entry *)a)->name, ((const struct np_folder_entry *)b)->name);
}

static int add_entry(struct np_folder *folder, const char *name)
{
    const size_t n = (size_t)folder->nr_entries;
    char *copy = NULL;

    if (np_try_grow(&folder->entries, &folder->room, n + 1, sizeof(*folder->entries), NULL) ||
        !(copy = np_try_strdup(name, NULL)))
        return -ENOMEM;
    folder->entries[folder->nr_entries++] = (struct np_folder_entry){.name = copy};
    return 0;
}

/* Finds type and size; without stat() where the folder's entry is enough. */
static void examine(int fd, struct np_folder_entry *entry, unsigned char type)
{
    struct stat st;

    if (type == DT_DIR || (type == DT_REG && !np_is_image_name(entry->name))) {
        entry->is_folder = type == DT_DIR;
        entry->is_file = type == DT_REG;
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

static int fail(struct np_folder *folder, int code, const char *what)
{
    folder->code = code;
    folder->what = what;
    return code;
}

/* Counts TICK_ENTRIES more; own: in the caller's thread. */
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

static void read_entries(struct np_folders *folders, struct np_folder *folder, DIR *dir, bool own)
{
    const struct dirent *entry;
    int code = 0;

    for (errno = 0; !code && (entry = readdir(dir)); errno = 0) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        code = add_entry(folder, entry->d_name);
        if (!code)
            examine(dirfd(dir), &folder->entries[folder->nr_entries - 1], entry->d_type);
        if (!code && folder->nr_entries % TICK_ENTRIES == 0)
            add_seen(folders, own);
    }
    if (!code && errno)
        code = -errno;
    if (code)
        fail(folder, code, "cannot be listed");
    else if (folder->nr_entries)
        qsort(folder->entries, (size_t)folder->nr_entries, sizeof(*folder->entries), by_name);
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

/* --- threads ---------------------------------------------------------------------------------- */

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
        if (folders->first)
            read_queued(folders, folders->first, false);
        else
            pthread_cond_wait(&folders->asked, &folders->lock);
    }
    pthread_mutex_unlock(&folders->lock);
    return NULL;
}

/* A failure is ignored: the threads that exist, or the caller, read the folders. */
static void start_thread(struct np_folders *folders)
{
    sigset_t all, before;

    if (folders->nr_threads == MAX_THREADS)
        return;
    sigfillset(&all); /* signals are the main thread's */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (pthread_create(&folders->threads[folders->nr_threads], NULL, thread_main, folders) == 0)
        folders->nr_threads++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

struct np_folders *np_folders_new(
    void (*tick)(void *context, uint64_t nr_seen), void *context, struct np_err *err)
{
    struct np_folders *folders = np_try_alloc(sizeof(*folders), err);

    if (!folders)
        return NULL;
    folders->tick = tick;
    folders->context = context;
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
    pthread_mutex_unlock(&folders->lock);
    if (many)
        start_thread(folders);
    return folder;
}

void np_folders_wait(struct np_folders *folders, struct np_folder *folder)
{
    pthread_mutex_lock(&folders->lock);
    if (folder->state == QUEUED)
        read_queued(folders, folder, true);
    while (folder->state != READY) {
        const uint64_t nr_seen = folders->nr_seen;
        struct timespec until;

        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec++;
        if (pthread_cond_timedwait(&folders->ready, &folders->lock, &until) != ETIMEDOUT ||
            nr_seen == folders->nr_seen)
            continue;
        pthread_mutex_unlock(&folders->lock);
        folders->tick(folders->context, nr_seen);
        pthread_mutex_lock(&folders->lock);
    }
    pthread_mutex_unlock(&folders->lock);
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
    for (int i = 0; i < folder->nr_entries; i++)
        np_free(folder->entries[i].name);
    np_free(folder->entries);
    np_free(folder->path);
    np_free(folder);
}
