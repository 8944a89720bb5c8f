/* service_cycles SOCKET PID DIR CYCLES LIVE: submits a run, pauses, resumes and stops it, CYCLES times,
 * over one connection; every tenth run has a worker, the others wait for a run that stays paused. After
 * a warm-up it looks at what the daemon has allocated and not freed (the file LIVE, of live_bytes.c), its
 * descriptors and threads, and again at the end, both times with nothing under way; then at its processor
 * time over some idle seconds. Prints what it saw; 1: descriptors or threads have grown, or what is
 * allocated by more than SLACK and LEAK a cycle. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "loader/base/json.h"
#include "daemon/client/client.h"
#include "loader/base/mem.h"

#define IDLE_S  5
#define WARM_UP 120 /* cycles: more than the runs it keeps, so that the oldest are being removed */
#define SLACK   16384 /* bytes: SQLite's and the heap's own caches, which fill slowly */
#define LEAK    4     /* bytes a cycle: a leak in each cycle, or in every tenth, is more */

struct seen {
    long live_bytes, resident_kib, descriptors, threads;
};

static long status_field(int pid, const char *name)
{
    char path[64], line[256];
    long value = -1;

    snprintf(path, sizeof(path), "/proc/%d/status", pid);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof(line), file))
        if (strncmp(line, name, strlen(name)) == 0)
            value = strtol(line + strlen(name), NULL, 10);
    if (file)
        fclose(file);
    return value;
}

static long descriptors(int pid)
{
    char path[64];
    long nr = 0;

    snprintf(path, sizeof(path), "/proc/%d/fd", pid);
    DIR *folder = opendir(path);
    for (const struct dirent *item; folder && (item = readdir(folder));)
        nr += item->d_name[0] != '.';
    if (folder)
        closedir(folder);
    return nr;
}

static long number_in(const char *path)
{
    char line[64] = "-1";
    FILE *file = fopen(path, "re");

    if (file && !fgets(line, sizeof(line), file))
        line[0] = '\0';
    if (file)
        fclose(file);
    return strtol(line, NULL, 10);
}

/* Once nothing is under way: what came in last has been answered, and old runs are removed. */
static struct seen look(int pid, const char *live)
{
    long before;

    do {
        before = number_in(live);
        sleep(1);
    } while (number_in(live) != before);
    return (struct seen){.live_bytes = before,
        .resident_kib = status_field(pid, "VmRSS:"),
        .descriptors = descriptors(pid),
        .threads = status_field(pid, "Threads:")};
}

/* Clock ticks of the process so far. */
static double processor_seconds(int pid)
{
    char path[64], text[1024] = "";
    unsigned long user = 0, system = 0;

    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    FILE *file = fopen(path, "re");
    if (file && fgets(text, sizeof(text), file)) {
        const char *after = strrchr(text, ')');

        if (after)
            sscanf(
                after + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system);
    }
    if (file)
        fclose(file);
    return (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
}

static void fail(const struct np_err *err)
{
    printf("%s\n", err->text);
    exit(1);
}

static int64_t submit(struct np_client *client, const char *dir, int64_t after)
{
    char *config = np_format("name: cycle\ndevice: cpu\n"
                             "data: {train: {source: synth, samples: 500, size: 8}}\n"
                             "loader: {batch: 10, cache: none, readers: 1}\n"
                             "model: [flatten, {linear: {out: classes}}]\n"
                             "train: {steps: 100000, threads: 1}\nruns: %s/runs\n",
        dir);
    char *path = np_format("%s/cycle.yaml", dir);
    struct np_json body = {0};
    struct np_node *run = NULL;
    struct np_err err = {0};

    np_json_begin(&body, NULL);
    np_json_text(&body, "config", config);
    np_json_text(&body, "path", path);
    if (after > 0) {
        np_json_open(&body, "after", '[');
        np_json_int(&body, NULL, after);
        np_json_close(&body, ']');
    }
    if (np_client_request_node(client, "POST", "/v1/runs", np_json_end(&body), &run, &err) < 0)
        fail(&err);
    const int64_t id = (int64_t)np_node_number(run, "id", 0);
    np_node_free(run);
    np_json_fini(&body);
    np_free(config);
    np_free(path);
    return id;
}

static void ask(struct np_client *client, const char *method, int64_t id, const char *what)
{
    struct np_response answer;
    struct np_err err = {0};
    char target[64];

    snprintf(target, sizeof(target), "/v1/runs/%lld%s", (long long)id, what);
    if (np_client_request(client, method, target, NULL, &answer, &err) < 0)
        fail(&err);
}

static void await(struct np_client *client, int64_t id, const char *while_it_is)
{
    struct np_response answer;
    struct np_err err = {0};
    char target[128];

    snprintf(target, sizeof(target), "/v1/runs/%lld?wait=60&state=%s", (long long)id, while_it_is);
    if (np_client_request(client, "GET", target, NULL, &answer, &err) < 0)
        fail(&err);
}

static void cycle(struct np_client *client, const char *dir, bool works, int64_t blocker)
{
    const int64_t id = submit(client, dir, works ? 0 : blocker);

    if (works)
        await(client, id, "queued");
    ask(client, "POST", id, "/pause");
    if (works)
        await(client, id, "running,pausing");
    ask(client, "POST", id, "/resume");
    if (works)
        await(client, id, "paused,queued,yielding");
    ask(client, "POST", id, "/stop");
    await(client, id, "queued,running,stopping,yielding,pausing");
}

static bool has_grown(const struct seen *early, const struct seen *late, int cycles)
{
    printf("%d cycles: %+.2f bytes a cycle not freed (%ld then %ld), resident %ld then %ld KiB, "
           "%ld then %ld descriptors, %ld then %ld threads; ",
        cycles, (double)(late->live_bytes - early->live_bytes) / cycles, early->live_bytes,
        late->live_bytes, early->resident_kib, late->resident_kib, early->descriptors,
        late->descriptors, early->threads, late->threads);
    return early->live_bytes <= 0 || late->live_bytes - early->live_bytes > SLACK + LEAK * cycles ||
           late->descriptors > early->descriptors || late->threads > early->threads;
}

int main(int argc, char **argv)
{
    if (argc != 6)
        return 2;
    const int pid = atoi(argv[2]), cycles = atoi(argv[4]);
    struct np_client *client = np_client_open(argv[1]);
    const int64_t blocker = submit(client, argv[3], 0);
    ask(client, "POST", blocker, "/pause");
    await(client, blocker, "pausing,running");
    for (int i = 0; i < WARM_UP; i++)
        cycle(client, argv[3], i % 10 == 0, blocker);
    const struct seen early = look(pid, argv[5]);
    for (int i = 0; i < cycles; i++)
        cycle(client, argv[3], i % 10 == 0, blocker);
    const struct seen late = look(pid, argv[5]);
    const double before = processor_seconds(pid);
    sleep(IDLE_S);
    const double idle = (processor_seconds(pid) - before) / IDLE_S;
    const bool grown = has_grown(&early, &late, cycles);
    printf("idle: %.2f %% of a core\n", 100 * idle);
    np_client_close(client);
    return grown;
}
