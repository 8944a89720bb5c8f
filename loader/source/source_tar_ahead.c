/* See source_tar_ahead.h. At most WINDOW archives are listed and not yet taken, which bounds the
 * memory. The caller's thread lists an archive that must be unpacked, because it reports
 * progress. */
#include "loader/source/source_tar_ahead.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "loader/base/mem.h"

#define WINDOW (4 * NP_MAX_LISTERS)

/* One archive. Belongs to the thread that lists it; once done, to the caller's. */
struct listed {
    struct np_tar_ahead *ahead;
    struct np_tar_scan *scan;
    struct np_source_progress progress; /* of the scan */
    struct np_err err;
    int code;
    char **notes; /* (nr_notes) */
    size_t nr_notes, notes_room;
    uint64_t nr_counted; /* samples added to ahead->nr_seen */
    bool own;            /* the caller's thread lists it */
};

struct np_tar_ahead {
    struct np_tar_scan *scan;
    const struct np_paths *paths;
    np_tar_list_fn list;
    pthread_mutex_t lock;
    pthread_cond_t work, ready;   /* with `lock`: an archive to list; the one to take next */
    int next, taken;              /* under lock: archive to list, to take next */
    bool stop;                    /* under lock */
    uint64_t nr_seen;             /* under lock: samples found, all archives */
    struct listed listed[WINDOW]; /* archive i in i % WINDOW */
    bool done[WINDOW];            /* under lock */
    uint64_t nr_reported;         /* the rest: caller's thread only */
    pthread_t threads[NP_MAX_LISTERS];
    int nr_threads;
};

static void report(struct np_tar_ahead *ahead, uint64_t nr_seen)
{
    const struct np_source_progress *progress = ahead->scan->progress;

    if (nr_seen <= ahead->nr_reported || !progress || !progress->count)
        return;
    ahead->nr_reported = nr_seen;
    progress->count(progress->context, progress->path, nr_seen);
}

static void add_note(void *context, const char *text)
{
    struct listed *listed = context;

    if (np_try_grow(&listed->notes, &listed->notes_room, listed->nr_notes + 1,
            sizeof(*listed->notes), &listed->err) ||
        !(listed->notes[listed->nr_notes] = np_try_strdup(text, &listed->err)))
        listed->code = -ENOMEM;
    else
        listed->nr_notes++;
}

static void add_count(void *context, const char *path, uint64_t samples)
{
    struct listed *listed = context;
    struct np_tar_ahead *ahead = listed->ahead;
    uint64_t nr_seen;

    pthread_mutex_lock(&ahead->lock);
    ahead->nr_seen += samples - listed->nr_counted;
    nr_seen = ahead->nr_seen;
    pthread_mutex_unlock(&ahead->lock);
    listed->nr_counted = samples;
    if (listed->own)
        report(ahead, nr_seen);
}

static int begin(struct np_tar_ahead *ahead, struct listed *listed)
{
    const struct np_tar_scan *whole = ahead->scan;
    struct np_tar_scan *scan = np_try_alloc(sizeof(*scan), &listed->err);

    listed->scan = scan;
    if (!scan || !(scan->index = np_index_new(&listed->err)))
        return -ENOMEM;
    listed->progress = (struct np_source_progress){
        .note = add_note, .count = add_count, .context = listed, .no_unpack = true};
    scan->options = whole->options;
    scan->progress = &listed->progress;
    scan->err = &listed->err;
    scan->file.fd = -1;
    scan->webdataset = whole->webdataset;
    scan->decided = true;
    scan->labels = whole->labels;
    scan->fields = whole->fields;
    scan->max_cls = -1;
    return 0;
}

static void fini(struct listed *listed)
{
    if (listed->scan)
        np_index_free(listed->scan->index);
    np_free(listed->scan);
    for (size_t i = 0; i < listed->nr_notes; i++)
        np_free(listed->notes[i]);
    np_free(listed->notes);
}

/* Under lock. */
static bool is_work(const struct np_tar_ahead *ahead)
{
    return ahead->next < ahead->paths->nr_paths && ahead->next < ahead->taken + WINDOW;
}

/* Under lock; releases the lock while it lists the next archive. */
static void list_next(struct np_tar_ahead *ahead, bool own)
{
    const int number = ahead->next++;
    struct listed *listed = &ahead->listed[number % WINDOW];
    int code;

    pthread_mutex_unlock(&ahead->lock);
    *listed = (struct listed){.ahead = ahead, .own = own};
    code = begin(ahead, listed);
    if (!code)
        code = ahead->list(listed->scan, ahead->paths->paths[number]);
    listed->code = listed->code ? listed->code : code;
    pthread_mutex_lock(&ahead->lock);
    ahead->done[number % WINDOW] = true;
    if (number == ahead->taken)
        pthread_cond_signal(&ahead->ready);
}

static void *thread_main(void *context)
{
    struct np_tar_ahead *ahead = context;

    pthread_setname_np(pthread_self(), "lister");
    pthread_mutex_lock(&ahead->lock);
    while (!ahead->stop)
        if (is_work(ahead))
            list_next(ahead, false);
        else
            pthread_cond_wait(&ahead->work, &ahead->lock);
    pthread_mutex_unlock(&ahead->lock);
    return NULL;
}

struct np_tar_ahead *np_tar_ahead_new(
    struct np_tar_scan *scan, const struct np_paths *paths, int first, np_tar_list_fn list)
{
    struct np_tar_ahead *ahead = np_try_alloc(sizeof(*ahead), scan->err);
    const int nr_threads = np_listers(scan->options) - 1;
    sigset_t all, before;

    if (!ahead)
        return NULL;
    ahead->scan = scan;
    ahead->paths = paths;
    ahead->list = list;
    ahead->next = ahead->taken = first;
    ahead->nr_seen = ahead->nr_reported = np_index_samples(scan->index);
    pthread_mutex_init(&ahead->lock, NULL);
    pthread_cond_init(&ahead->work, NULL);
    pthread_cond_init(&ahead->ready, NULL);
    sigfillset(&all); /* the main thread handles signals */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    /* A failure is ignored: the other threads, or the caller, list. */
    while (ahead->nr_threads < nr_threads && ahead->nr_threads < paths->nr_paths - first - 1 &&
           pthread_create(&ahead->threads[ahead->nr_threads], NULL, thread_main, ahead) == 0)
        ahead->nr_threads++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return ahead;
}

void np_tar_ahead_free(struct np_tar_ahead *ahead)
{
    if (!ahead)
        return;
    pthread_mutex_lock(&ahead->lock);
    ahead->stop = true;
    pthread_cond_broadcast(&ahead->work);
    pthread_mutex_unlock(&ahead->lock);
    for (int i = 0; i < ahead->nr_threads; i++)
        pthread_join(ahead->threads[i], NULL);
    for (int i = ahead->taken; i < ahead->next; i++)
        fini(&ahead->listed[i % WINDOW]);
    pthread_cond_destroy(&ahead->work);
    pthread_cond_destroy(&ahead->ready);
    pthread_mutex_destroy(&ahead->lock);
    np_free(ahead);
}

/* Adds the counts, and the first name of each. */
static void add_skipped(struct np_tar_scan *whole, const struct np_tar_scan *scan)
{
    if (whole->nr_skipped == 0)
        memcpy(whole->skipped, scan->skipped, sizeof(whole->skipped));
    if (whole->nr_links == 0)
        memcpy(whole->link, scan->link, sizeof(whole->link));
    whole->nr_skipped += scan->nr_skipped;
    whole->nr_links += scan->nr_links;
    if (scan->max_cls > whole->max_cls)
        whole->max_cls = scan->max_cls;
}

static int append(struct np_tar_scan *whole, const struct np_tar_scan *scan, const char *path)
{
    const uint64_t before = np_index_samples(whole->index);
    const int label = np_tar_scan_last_label(whole);
    int code = np_index_append(whole->index, scan->index, path, whole->err);

    if (code)
        return code;
    if (scan->follows && np_index_samples(whole->index) > before)
        np_index_set_label(whole->index, before, label);
    add_skipped(whole, scan);
    return 0;
}

/* Reports the listing as if it took place now; lists now if the archive must be unpacked. */
static int take(struct np_tar_ahead *ahead, const struct listed *listed, const char *path)
{
    struct np_tar_scan *scan = ahead->scan;

    if (listed->code == -EAGAIN)
        return ahead->list(scan, path);
    for (size_t i = 0; i < listed->nr_notes; i++)
        np_source_note(scan->progress, "%s", listed->notes[i]);
    if (listed->code)
        return np_err_set(scan->err, listed->code, "%s", listed->err.text);
    return append(scan, listed->scan, path);
}

/* Under lock; releases the lock. */
static void wait_for_others(struct np_tar_ahead *ahead)
{
    struct timespec until;
    uint64_t nr_seen;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec++;
    pthread_cond_timedwait(&ahead->ready, &ahead->lock, &until);
    nr_seen = ahead->nr_seen;
    pthread_mutex_unlock(&ahead->lock);
    report(ahead, nr_seen);
    pthread_mutex_lock(&ahead->lock);
}

int np_tar_ahead_take(struct np_tar_ahead *ahead)
{
    const int number = ahead->taken, at = number % WINDOW;
    int code;

    pthread_mutex_lock(&ahead->lock);
    while (!ahead->done[at])
        if (is_work(ahead))
            list_next(ahead, true);
        else
            wait_for_others(ahead);
    pthread_mutex_unlock(&ahead->lock);
    code = take(ahead, &ahead->listed[at], ahead->paths->paths[number]);
    report(ahead, np_index_samples(ahead->scan->index));
    fini(&ahead->listed[at]);
    pthread_mutex_lock(&ahead->lock);
    ahead->done[at] = false;
    ahead->taken++;
    if (ahead->next - ahead->taken <= WINDOW / 2) /* for small archives: wakes threads less often */
        pthread_cond_broadcast(&ahead->work);
    pthread_mutex_unlock(&ahead->lock);
    return code;
}
