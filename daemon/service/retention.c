#include "daemon/service/retention.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "loader/base/json.h"
#include "loader/base/mem.h"

#define MAX_S     600 /* time limit: the disk may hang */
#define MAX_BYTES (64u << 10)
#define UNKNOWN   (-1.0) /* value of np_service_run.spare */
#define JUMP_S    60.0
#define STEADY_S  3600.0

struct np_retention {
    struct np_child child;
    int64_t id;  /* the child's run */
    bool prunes; /* else it measures */
    pid_t left;  /* a killed child that has not ended; 0: none */
    struct np_steady clock;
};

struct order {
    const char *dir;
    bool prunes;
};

static int be_pruner(const void *context, int out_fd)
{
    const struct order *order = context;
    const char *words[] = {"nnpipe", "prune", order->dir, "--keep", "0", "--json",
        order->prunes ? NULL : "--dry-run", NULL};

    if (dup2(out_fd, STDOUT_FILENO) >= 0)
        execv("/proc/self/exe", (char *const *)words);
    return 1;
}

static void begin(struct np_service *service, const struct np_service_run *run, bool prunes)
{
    const struct np_entry *entry = &run->entry;
    const struct order order = {entry->dir, prunes};
    const struct np_child_start start = {.uid = entry->uid,
        .gid = entry->gid,
        .work = be_pruner,
        .context = &order,
        .epoll_fd = service->epoll_fd,
        .max_s = MAX_S,
        .max_bytes = MAX_BYTES};

    if (np_child_start(&start, &service->retention->child, NULL) == 0) {
        service->retention->id = entry->id;
        service->retention->prunes = prunes;
    }
}

/* No retry for a run that cannot be measured or pruned: its folder is gone, or another process uses
 * it. */
static void take_answer(struct np_service *service)
{
    struct np_retention *retention = service->retention;
    struct np_service_run *run = np_book_run(service, retention->id);
    struct np_node *answer = NULL;
    const int code = np_child_turn(&retention->child);

    if (code == 0)
        return;
    if (run)
        run->spare = 0;
    /* The first line is the run's, the second the sum. */
    if (code == 1 && run &&
        np_json_parse(retention->child.text, strcspn(retention->child.text, "\n"), &answer, NULL) ==
            0) {
        const double freed = np_node_number(answer, "freed_bytes", 0);

        if (!retention->prunes)
            run->spare = freed;
        else
            fprintf(stderr, "nnpipe daemon: run %lld: removed %.1f MiB of old checkpoints\n",
                (long long)retention->id, freed / (1 << 20));
    }
    np_node_free(answer);
    retention->left = np_child_stop(&retention->child);
}

void np_retention_turn(struct np_service *service)
{
    struct np_retention *retention = service->retention;
    struct np_service_run *oldest = NULL;
    double sum = 0;

    if (retention->child.pid > 0)
        take_answer(service);
    if (retention->left > 0 && np_child_reap(retention->left))
        retention->left = 0;
    if (retention->child.pid > 0 || retention->left > 0 || service->options.keep_bytes == 0)
        return;
    for (int i = 0; i < service->nr_runs; i++) {
        struct np_service_run *run = service->runs[i];

        if (!np_entry_is_finished(&run->entry) || !run->entry.dir)
            continue;
        if (run->spare == UNKNOWN) {
            begin(service, run, false);
            return;
        }
        sum += run->spare;
        if (run->spare > 0 && (!oldest || run->entry.ended < oldest->entry.ended))
            oldest = run;
    }
    if (oldest && sum > (double)service->options.keep_bytes)
        begin(service, oldest, true);
}

void np_retention_leave(struct np_retention *retention, int64_t id)
{
    if (retention->id == id && retention->child.pid > 0)
        retention->left = np_child_stop(&retention->child);
}

struct np_retention *np_retention_new(void)
{
    struct np_retention *retention = np_alloc(sizeof(*retention));

    retention->child = NP_NO_CHILD;
    return retention;
}

void np_retention_free(struct np_retention *retention)
{
    if (retention)
        np_child_stop(&retention->child);
    np_free(retention);
}

bool np_retention_is_at(const struct np_retention *retention, int64_t id)
{
    return retention->id == id && (retention->child.pid > 0 || retention->left > 0);
}

/* The oldest run of any owner with more than keep_runs runs, or NULL. */
static const struct np_entry *beyond_number(const struct np_service_options *options,
    const struct np_entry *const *entries, int nr, struct np_owners *over)
{
    const struct np_entry *oldest = NULL;

    for (int i = 0; i < nr; i++)
        if (np_entry_is_finished(entries[i]))
            ++*np_owners_count(over, entries[i]->uid);
    for (int i = 0; i < nr; i++)
        if (np_entry_is_finished(entries[i]) &&
            *np_owners_count(over, entries[i]->uid) > options->keep_runs &&
            (!oldest || entries[i]->ended < oldest->ended))
            oldest = entries[i];
    return oldest;
}

bool np_retention_is_steady(struct np_steady *clock, double now, double ticks)
{
    const double apart = now - ticks;

    if (clock->since == 0 || fabs(apart - clock->apart) > JUMP_S)
        clock->since = ticks;
    clock->apart = apart;
    return ticks - clock->since >= STEADY_S;
}

int64_t np_retention_oldest(const struct np_service_options *options,
    const struct np_entry *const *entries, int nr, double now)
{
    const struct np_entry *oldest = NULL, *beyond = NULL;
    struct np_owners over = {0};

    if (options->keep_runs > 0)
        beyond = beyond_number(options, entries, nr, &over);
    np_owners_fini(&over);
    for (int i = 0; i < nr; i++)
        if (np_entry_is_finished(entries[i]) && (!oldest || entries[i]->ended < oldest->ended))
            oldest = entries[i];
    if (!beyond && oldest && options->keep_s > 0 && now - oldest->ended > options->keep_s)
        beyond = oldest;
    return beyond ? beyond->id : 0;
}

struct np_service_run *np_retention_next(struct np_service *service)
{
    const double wall = np_book_now();
    const bool steady = np_retention_is_steady(&service->retention->clock, wall, np_book_ticks());

    return np_book_run(service, np_retention_oldest(&service->options, service->entries,
                                    service->nr_runs, steady ? wall : 0));
}
