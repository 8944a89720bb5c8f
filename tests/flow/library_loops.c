/* Opens and closes loaders of libnnpipe thousands of times in one process, with batches that outlive their loader,
 * positions that are set, forks, two loaders at once, several threads and dealt order; memory and threads must stay as
 * they are. library_loops FOLDER LOOPS: FOLDER holds a set of pictures, set/CLASS/NN. Prints what it measured; exit 1:
 * something grew, or a call failed. */
#include <dirent.h>
#include <malloc.h>
#include <math.h>
#include <nnpipe.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_FILES 64
#define KEPT      8 /* batches that outlive their loader */

static const char config[] =
    "data: {train: {source: folder, path: set}}\n"
    "loader: {batch: 4, readers: 2, prefetch: 3, bad_samples: {budget: 100%}, "
    "augment: [{random_resized_crop: 16}, flip]}\n";
static const char bad_config[] =
    "data: {train: {source: folder, path: set}}\nloader: {batch: 0, raeders: 2}\n";
static const char *folder;
static struct nnp_batch *kept[KEPT];

static void die(const char *what, const char *why)
{
    fprintf(stderr, "library_loops: %s: %s\n", what, why);
    exit(1);
}

static struct nnp_loader *opened(
    const char *text, struct nnp_data *data, const char *const *options)
{
    struct nnp_loader *loader;
    char error[2048];

    if (nnp_open(text, folder, data, options, &loader, error, sizeof(error)) < 0)
        die("nnp_open", error);
    return loader;
}

static struct nnp_batch *next(struct nnp_loader *loader)
{
    struct nnp_batch *batch;
    char error[1024];
    int code;

    while ((code = nnp_next(loader, -1, &batch)) == 0)
        ;
    if (code < 0) {
        nnp_error(loader, error, sizeof(error));
        die("nnp_next", error);
    }
    return batch;
}

static void take(struct nnp_loader *loader, int n)
{
    while (n-- > 0)
        nnp_batch_release(next(loader));
}

static void keep(struct nnp_batch *batch, int i)
{
    if (kept[i % KEPT])
        nnp_batch_release(kept[i % KEPT]);
    kept[i % KEPT] = batch;
}

static void fork_once(struct nnp_loader *loader)
{
    struct nnp_batch *batch = next(loader);
    const pid_t child = fork();
    int status;

    if (child == 0) {
        struct nnp_batch *other;
        const int code = nnp_next(loader, 0, &other);

        nnp_batch_release(batch);
        nnp_close(loader);
        _exit(code == -10 /* -ECHILD */ ? 0 : 1);
    }
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
        die("fork", "the child could use the parent's loader");
    nnp_batch_release(batch);
}

static void *take_some(void *context)
{
    take(context, 3);
    return NULL;
}

static void use_threads(struct nnp_loader *loader)
{
    pthread_t threads[2];
    char text[2048];

    for (int i = 0; i < 2; i++)
        if (pthread_create(&threads[i], NULL, take_some, loader) != 0)
            die("pthread_create", "no thread");
    for (int i = 0; i < 20; i++)
        if (nnp_counters(loader, text, sizeof(text)) < 0)
            die("nnp_counters", "no counters");
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
}

static void *open_another(void *context)
{
    struct nnp_loader *loader = opened(config, NULL, context);

    take(loader, 2);
    nnp_close(loader);
    return NULL;
}

static void fail_once(void)
{
    struct nnp_loader *loader;
    char error[1024] = "";

    if (nnp_open(bad_config, folder, NULL, NULL, &loader, error, sizeof(error)) >= 0 ||
        !strstr(error, "raeders"))
        die("nnp_open of a wrong config", error);
}

/* --- dealt order ------------------------------------------------------------------------------------ */

static char names[MAX_FILES][300];
static const char *paths[MAX_FILES];
static int64_t labels[MAX_FILES], samples[MAX_FILES];
static uint64_t nr_files;

static void list_files(void)
{
    char path[4096];
    struct dirent *class, *file;
    DIR *set, *inside;

    snprintf(path, sizeof(path), "%s/set", folder);
    if (!(set = opendir(path)))
        die(path, "cannot be opened");
    while ((class = readdir(set))) {
        snprintf(path, sizeof(path), "%s/set/%s", folder, class->d_name);
        inside = class->d_name[0] == '.' ? NULL : opendir(path);
        while (inside && (file = readdir(inside)) && nr_files < MAX_FILES)
            if (file->d_name[0] != '.') {
                snprintf(names[nr_files], sizeof(names[0]), "%.100s/%.190s", class->d_name,
                    file->d_name);
                paths[nr_files] = names[nr_files];
                samples[nr_files] = (int64_t)nr_files;
                nr_files++;
            }
        if (inside)
            closedir(inside);
    }
    closedir(set);
}

static float own_exp(void *context, float x)
{
    return expf(x);
}

static float own_log(void *context, float x)
{
    return logf(x);
}

/* MT19937's first numbers of seed 1 as float32 from 0.08 to 1, so that nnp_deal() accepts these probes. */
static void make_probes(float probes[NNP_DEAL_PROBES])
{
    static uint32_t w[624];

    w[0] = 1;
    for (uint32_t i = 1; i < 624; i++)
        w[i] = 1812433253u * (w[i - 1] ^ w[i - 1] >> 30) + i;
    for (int i = 0; i < 624; i++) {
        const uint32_t mixed = (w[i] & 0x80000000u) | (w[(i + 1) % 624] & 0x7fffffffu);

        w[i] = w[(i + 397) % 624] ^ mixed >> 1 ^ ((w[(i + 1) % 624] & 1) ? 0x9908b0dfu : 0);
    }
    for (int i = 0; i < NNP_DEAL_PROBES; i++) {
        uint32_t y = w[i];

        y ^= y >> 11;
        y ^= y << 7 & 0x9d2c5680u;
        y ^= y << 15 & 0xefc60000u;
        y ^= y >> 18;
        probes[i] = fmaf((float)(y & 0xffffff) * 0x1p-24f, 1 - 0.08f, 0.08f);
    }
}

static void deal_once(int i)
{
    static const char *const options[] = {"order=dealt", "dtype=float32", "layout=nchw", NULL};
    static float probes[NNP_DEAL_PROBES];
    const struct nnp_deal deal = {sizeof(deal), 1 + i % 3, 2, own_exp, own_log, NULL, probes, NULL};
    char root[4096], error[1024];
    struct nnp_data *data;
    struct nnp_loader *loader;

    snprintf(root, sizeof(root), "%s/set", folder);
    data = nnp_data_files(root, paths, labels, nr_files, NULL, 0, error, sizeof(error));
    if (!data)
        die("nnp_data_files", error);
    loader = opened(config, data, options);
    make_probes(probes);
    if (nnp_deal(loader, &deal) < 0)
        die("nnp_deal", "refused");
    for (int epoch = 0; epoch < 2; epoch++) { /* the first is broken off */
        if (nnp_deal_epoch(loader, samples, nr_files, 7, epoch, 2) < 0)
            die("nnp_deal_epoch", "refused");
        take(loader, 1 + epoch);
    }
    nnp_close(loader);
}

/* --- measurements ----------------------------------------------------------------------------------- */

static int nr_threads(void)
{
    DIR *tasks = opendir("/proc/self/task");
    int n = -2;

    while (tasks && readdir(tasks))
        n++;
    if (tasks)
        closedir(tasks);
    return n;
}

static int nr_files_open(void)
{
    DIR *fds = opendir("/proc/self/fd");
    int n = -3;

    while (fds && readdir(fds))
        n++;
    if (fds)
        closedir(fds);
    return n;
}

static long rss_kib(void)
{
    FILE *file = fopen("/proc/self/statm", "r");
    long pages = 0;

    if (!file || fscanf(file, "%*d %ld", &pages) != 1)
        die("/proc/self/statm", "cannot be read");
    fclose(file);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static void loop(int i)
{
    struct nnp_loader *loader = opened(config, NULL, NULL);
    pthread_t another;

    take(loader, 1 + i % 3);
    keep(next(loader), i);
    if (i % 5 == 1 && nnp_seek(loader, (uint64_t)i % 4, 1) < 0)
        die("nnp_seek", "refused");
    if (i % 7 == 2)
        fork_once(loader);
    if (i % 7 == 3)
        use_threads(loader);
    if (i % 7 == 4)
        fail_once();
    if (i % 7 == 5)
        deal_once(i);
    if (i % 7 == 6 && pthread_create(&another, NULL, open_another, NULL) == 0) {
        take(loader, 2);
        pthread_join(another, NULL);
    }
    nnp_close(loader);
}

int main(int argc, char **argv)
{
    const int nr_loops = argc > 2 ? atoi(argv[2]) : 0, warm = nr_loops / 3;
    int alone = 0;
    int threads = 0, files = 0;
    long before = 0;
    size_t used = 0;

    if (nr_loops < 30)
        die("usage", "library_loops FOLDER LOOPS, at least 30");
    folder = argv[1];
    list_files();
    for (int i = 0; i < nr_loops; i++) {
        loop(i);
        if (i == 0)
            alone = nr_threads(); /* a sanitizer has one of its own */
        if (i == warm) {          /* caches of the libraries are made */
            before = rss_kib();
            used = mallinfo2().uordblks;
            threads = nr_threads();
            files = nr_files_open();
        }
    }
    const long grown = rss_kib() - before, allocated = (long)mallinfo2().uordblks - (long)used;
    printf("%d loops: RSS %ld KiB, %+ld; malloc %+ld bytes; %d threads, %+d; %d files, %+d\n",
        nr_loops, before, grown, allocated, threads, nr_threads() - threads, files,
        nr_files_open() - files);
    for (int i = 0; i < KEPT; i++)
        keep(NULL, i);
    if (threads != alone || nr_threads() != alone || nr_files_open() != files)
        die("threads or files", "grew");
        /* 200 bytes a loop are a leak of the smallest thing a loader has. Sanitizers keep freed memory. */
#ifndef NP_SAN
    if (allocated > 64 * 1024 + 50l * (nr_loops - warm) || grown > 8192 + (nr_loops - warm))
        die("memory", "grew");
#endif
    return 0;
}
