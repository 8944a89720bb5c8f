/* The queue's file: acknowledged changes are there when it is opened again, once; a damaged or later file is
 * left as it is. */
#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/service/queue.h"
#include "loader/base/mem.h"
#include "tests/test.h"

static char dir[64], path[96];

static void set_up(void)
{
    snprintf(dir, sizeof(dir), "/tmp/nnpipe-queue-XXXXXX");
    cr_assert_not_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/queue.db", dir);
}

static void tear_down(void)
{
    char command[128];

    snprintf(command, sizeof(command), "rm -rf %s", dir);
    cr_assert_eq(system(command), 0);
}

static struct np_queue *open_queue(void)
{
    struct np_queue *queue = NULL;
    struct np_err err = {0};

    if (np_queue_open(path, NULL, &queue, &err) < 0)
        fprintf(stderr, "# %s\n", err.text);
    return queue;
}

static struct np_entry entry_of(const char *key)
{
    struct np_entry entry = {.uid = 1000,
        .gid = 100,
        .path = (char *)"/home/ann/cnn.yaml",
        .config = (char *)"name: cnn\n",
        .overrides = (char *)"train.epochs=2\nname=a",
        .device = "auto",
        .environment = (char *)"NNPIPE_DATA=/data\n",
        .umask = 027,
        .priority = -3,
        .max_retries = 4,
        .after = {7, 9},
        .nr_after = 2,
        .submitted = 1e9 + 0.25,
        .time_limit_s = 3600,
        .memory_bytes = 1 << 30,
        .cpus = 1.5,
        .processes = 2,
        .on_end = (char *)"mail ann"};

    snprintf(entry.key, sizeof(entry.key), "%s", key);
    snprintf(entry.name, sizeof(entry.name), "cnn");
    snprintf(entry.sweep, sizeof(entry.sweep), "net");
    return entry;
}

struct seen {
    struct np_entry last;
    int nr;
};

static int see(void *context, const struct np_entry *entry, struct np_err *err)
{
    struct seen *seen = context;

    (void)err;
    np_entry_fini(&seen->last);
    seen->last = *entry;
    seen->last.path = np_strdup(entry->path);
    seen->last.config = seen->last.environment = NULL;
    seen->last.dir = entry->dir ? np_strdup(entry->dir) : NULL;
    seen->last.overrides = entry->overrides ? np_strdup(entry->overrides) : NULL;
    seen->last.on_end = entry->on_end ? np_strdup(entry->on_end) : NULL;
    seen->nr++;
    return 0;
}

Test(queue, acknowledged_changes_are_there_after_a_restart, .init = set_up, .fini = tear_down)
{
    struct np_queue *queue = open_queue();
    struct np_entry entry = entry_of("a");
    struct seen seen = {0};
    struct np_err err = {0};
    struct stat stat_;
    char *config, *environment;
    int64_t id = 0;
    bool known = true;

    cr_assert_not_null(queue);
    cr_assert_eq(np_queue_add(queue, &entry, &id, &known, &err), 0);
    cr_assert(id == 1 && !known);
    entry.id = id;
    entry.state = NP_ENTRY_YIELDING;
    entry.dir = (char *)"/runs/cnn-1";
    strcpy(entry.assigned, "cuda:1,cuda:2");
    entry.reserves = 7.5;
    strcpy(entry.process, "12 345 6-7");
    strcpy(entry.user, "ann");
    strcpy(entry.kind, "gpu");
    strcpy(entry.reason, "for run 2");
    entry.retries = 3;
    entry.exit_code = 75;
    entry.not_before = 1e9 + 0.5;
    entry.notified = true;
    entry.max_retries = 5;
    entry.ran_s = 12.5;
    entry.lived_s = 0.5;
    cr_assert_eq(np_queue_update(queue, &entry, &err), 0);
    np_queue_close(queue);
    cr_assert_eq(stat(path, &stat_), 0);
    cr_assert_eq(stat_.st_mode & 0777, 0600);

    queue = open_queue();
    cr_assert_eq(np_queue_read(queue, see, &seen, &err), 0);
    cr_assert_eq(np_queue_text(queue, id, &config, &environment, &err), 0);
    cr_assert_str_eq(config, "name: cnn\n");
    cr_assert_str_eq(environment, "NNPIPE_DATA=/data\n");
    np_free(config);
    np_free(environment);
    cr_assert_eq(np_queue_text(queue, id + 1, &config, &environment, &err), -ENOENT);
    np_queue_close(queue);
    cr_assert_eq(seen.nr, 1);
    cr_assert(seen.last.notified && seen.last.umask == 027);
    cr_assert_str_eq(seen.last.dir, "/runs/cnn-1");
    cr_assert_str_eq(seen.last.overrides, "train.epochs=2\nname=a");
    cr_assert_str_eq(seen.last.on_end, "mail ann");
    cr_assert_str_eq(seen.last.sweep, "net");
    cr_assert_str_eq(seen.last.assigned, "cuda:1,cuda:2");
    cr_assert(seen.last.processes == 2 && seen.last.reserves == 7.5);
    cr_assert_str_eq(seen.last.process, "12 345 6-7");
    cr_assert_str_eq(seen.last.user, "ann");
    cr_assert_str_eq(seen.last.kind, "gpu");
    cr_assert_str_eq(seen.last.reason, "for run 2");
    cr_assert(seen.last.state == NP_ENTRY_YIELDING && seen.last.priority == -3 &&
              seen.last.max_retries == 5 && seen.last.retries == 3 && seen.last.exit_code == 75 &&
              seen.last.not_before == 1e9 + 0.5 && seen.last.submitted == 1e9 + 0.25 &&
              seen.last.uid == 1000 && seen.last.gid == 100);
    cr_assert(seen.last.time_limit_s == 3600 && seen.last.ran_s == 12.5 &&
              seen.last.lived_s == 0.5 && seen.last.memory_bytes == 1 << 30 &&
              seen.last.cpus == 1.5);
    cr_assert(seen.last.nr_after == 2 && seen.last.after[0] == 7 && seen.last.after[1] == 9);
    np_entry_fini(&seen.last);
}

/* As the first release made it. */
static const char first_tables[] =
    "CREATE TABLE runs (id INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT, name TEXT NOT NULL,"
    " uid INTEGER NOT NULL, gid INTEGER NOT NULL, path TEXT NOT NULL, config TEXT NOT NULL,"
    " device TEXT NOT NULL, priority INTEGER NOT NULL, max_retries INTEGER NOT NULL,"
    " state TEXT NOT NULL DEFAULT 'queued', assigned TEXT NOT NULL DEFAULT '', dir TEXT,"
    " reason TEXT NOT NULL DEFAULT '', retries INTEGER NOT NULL DEFAULT 0,"
    " attempt INTEGER NOT NULL DEFAULT 0, exit_code INTEGER NOT NULL DEFAULT -1,"
    " not_before REAL NOT NULL DEFAULT 0, submitted REAL NOT NULL,"
    " started REAL NOT NULL DEFAULT 0, ended REAL NOT NULL DEFAULT 0, UNIQUE (uid, key)) STRICT;"
    "CREATE TABLE after (id INTEGER NOT NULL, other INTEGER NOT NULL, PRIMARY KEY (id, other))"
    " STRICT, WITHOUT ROWID;"
    "INSERT INTO runs (key, name, uid, gid, path, config, device, priority, max_retries, state,"
    " dir, submitted) VALUES ('k', 'old', 1000, 100, '/old.yaml', 'name: old', 'cpu', 7, 2,"
    " 'paused', '/runs/old-1', 1e9);"
    "INSERT INTO after (id, other) VALUES (1, 9);"
    "PRAGMA user_version=1;";

static bool is_config(struct np_queue *queue, int64_t id, const char *text)
{
    char *config = NULL, *environment = NULL;
    struct np_err err = {0};
    const bool is = np_queue_text(queue, id, &config, &environment, &err) == 0 &&
                    strcmp(config, text) == 0 && *environment == '\0';

    np_free(config);
    np_free(environment);
    return is;
}

Test(queue, a_queue_of_the_first_release_is_read, .init = set_up, .fini = tear_down)
{
    struct np_queue *queue;
    struct seen seen = {0};
    struct np_err err = {0};
    sqlite3 *db;

    cr_assert_eq(sqlite3_open(path, &db), SQLITE_OK);
    cr_assert_eq(sqlite3_exec(db, first_tables, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
    for (int i = 1; i <= 2; i++) { /* the second time it is one of this release */
        cr_assert_not_null(queue = open_queue());
        cr_assert_eq(np_queue_read(queue, see, &seen, &err), 0);
        cr_assert(is_config(queue, 1, "name: old"));
        np_queue_close(queue);
        cr_assert_eq(seen.nr, i);
    }
    cr_assert_str_eq(seen.last.dir, "/runs/old-1");
    cr_assert(seen.last.state == NP_ENTRY_PAUSED && seen.last.priority == 7 &&
              seen.last.max_retries == 2 && seen.last.nr_after == 1 && seen.last.after[0] == 9);
    cr_assert(seen.last.time_limit_s == 0 && seen.last.ran_s == 0 && seen.last.memory_bytes == 0 &&
              !seen.last.overrides && !seen.last.on_end && !*seen.last.process &&
              !*seen.last.kind && !*seen.last.sweep && seen.last.processes == 1 &&
              seen.last.reserves == 0);
    np_entry_fini(&seen.last);
}

static void note_device(void *context, const char *device)
{
    strcat(context, device);
    strcat(context, " ");
}

Test(queue, drained_devices_are_remembered, .init = set_up, .fini = tear_down)
{
    struct np_queue *queue = open_queue();
    struct np_err err = {0};
    char devices[64] = "";

    cr_assert_eq(np_queue_drain(queue, "cuda:1", true, &err), 0);
    cr_assert_eq(np_queue_drain(queue, "cuda:1", true, &err), 0);
    cr_assert_eq(np_queue_drain(queue, "cpu", true, &err), 0);
    cr_assert_eq(np_queue_drain(queue, NP_ALL_DEVICES, true, &err), 0);
    cr_assert_eq(np_queue_drain(queue, "cpu", false, &err), 0);
    np_queue_close(queue);
    cr_assert_not_null(queue = open_queue());
    cr_assert_eq(np_queue_drained(queue, note_device, devices, &err), 0);
    np_queue_close(queue);
    cr_assert_str_eq(devices, "* cuda:1 ");
}

Test(queue, a_key_is_one_run_and_an_id_is_never_reused, .init = set_up, .fini = tear_down)
{
    struct np_queue *queue = open_queue();
    struct np_entry entry = entry_of("same");
    struct np_err err = {0};
    struct seen seen = {0};
    int64_t id, again;
    bool known;

    cr_assert_eq(np_queue_add(queue, &entry, &id, &known, &err), 0);
    cr_assert_eq(np_queue_add(queue, &entry, &again, &known, &err), 0);
    cr_assert(known && id == again);
    cr_assert_eq(np_queue_remove(queue, id, &err), 0);
    entry = entry_of("other");
    cr_assert_eq(np_queue_add(queue, &entry, &again, &known, &err), 0);
    cr_assert(!known && again == id + 1);
    cr_assert_eq(np_queue_read(queue, see, &seen, &err), 0);
    cr_assert_eq(seen.nr, 1);
    np_entry_fini(&seen.last);
    np_queue_close(queue);
}

Test(queue, a_key_belongs_to_its_user_and_may_be_absent, .init = set_up, .fini = tear_down)
{
    struct np_queue *queue = open_queue();
    struct np_entry entries[] = {entry_of("same"), entry_of("same"), entry_of(""), entry_of("")};
    struct np_err err = {0};
    int64_t id;
    bool known;

    entries[1].uid++;
    for (int i = 0; i < 4; i++) {
        cr_assert_eq(np_queue_add(queue, &entries[i], &id, &known, &err), 0);
        cr_assert(!known && id == i + 1);
    }
    np_queue_close(queue);
}

Test(queue, a_second_daemon_gets_an_error, .init = set_up, .fini = tear_down)
{
    struct np_queue *queue = open_queue(), *second = NULL;
    struct np_err err = {0};

    cr_assert_eq(np_queue_open(path, NULL, &second, &err), -EAGAIN);
    cr_assert(strstr(err.text, "another nnpipe daemon"));
    np_queue_close(queue);
}

/* Writes bytes at an offset of the file. */
static void damage(off_t at, const char *bytes, size_t nr)
{
    const int fd = open(path, O_WRONLY);

    cr_assert_geq(fd, 0);
    cr_assert_eq(pwrite(fd, bytes, nr, at), (ssize_t)nr);
    close(fd);
}

Test(queue, a_damaged_file_is_left_as_it_is, .init = set_up, .fini = tear_down)
{
    struct np_queue *queue = open_queue();
    struct np_entry entry = entry_of("a");
    struct np_err err = {0};
    struct stat before, after;
    int64_t id;
    bool known;

    cr_assert_eq(np_queue_add(queue, &entry, &id, &known, &err), 0);
    np_queue_close(queue);
    damage(0, "this is no queue", 16);
    cr_assert_eq(stat(path, &before), 0);
    cr_assert_eq(np_queue_open(path, NULL, &queue, &err), -EBADMSG);
    cr_assert_eq(stat(path, &after), 0);
    cr_assert_eq(before.st_size, after.st_size);
}

Test(queue, a_queue_of_a_later_version_is_refused_with_a_reason, .init = set_up, .fini = tear_down)
{
    struct np_queue *queue = open_queue();
    struct np_err err = {0};
    sqlite3 *db;

    np_queue_close(queue);
    cr_assert_eq(sqlite3_open(path, &db), SQLITE_OK);
    cr_assert_eq(sqlite3_exec(db, "PRAGMA user_version = 999", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
    cr_assert_eq(np_queue_open(path, NULL, &queue, &err), -EBADMSG);
    cr_assert(strstr(err.text, "a later nnpipe"), "%s", err.text);
}

Test(queue, a_change_of_state_does_not_write_the_config_again, .init = set_up, .fini = tear_down)
{
    struct np_queue *queue = open_queue();
    struct np_entry entry = entry_of("a");
    char *config = np_alloc((200 << 10) + 1), wal[112];
    struct np_err err = {0};
    struct stat before, after;
    int64_t id;
    bool known;

    memset(config, 'x', 200 << 10);
    entry.config = config;
    snprintf(wal, sizeof(wal), "%s-wal", path);
    cr_assert_eq(np_queue_add(queue, &entry, &id, &known, &err), 0);
    cr_assert_eq(stat(wal, &before), 0);
    entry.id = id;
    entry.state = NP_ENTRY_RUNNING;
    cr_assert_eq(np_queue_update(queue, &entry, &err), 0);
    cr_assert_eq(stat(wal, &after), 0);
    cr_assert_lt(after.st_size - before.st_size, 50 << 10);
    np_queue_close(queue);
    np_free(config);
}

Test(queue, a_token_belongs_to_one_user_until_it_is_replaced, .init = set_up, .fini = tear_down)
{
    struct np_queue *queue = open_queue();
    struct np_err err = {0};
    uid_t uid = 0;
    bool found = true;

    cr_assert_eq(np_queue_set_token(queue, 1000, "aa", 1, &err), 0);
    cr_assert_eq(np_queue_set_token(queue, 1001, "bb", 1, &err), 0);
    cr_assert_eq(np_queue_set_token(queue, 1000, "cc", 2, &err), 0);
    np_queue_close(queue);
    queue = open_queue();
    cr_assert_eq(np_queue_find_token(queue, "aa", &uid, &found, &err), 0);
    cr_assert_not(found);
    cr_assert_eq(np_queue_find_token(queue, "cc", &uid, &found, &err), 0);
    cr_assert(found && uid == 1000);
    cr_assert_eq(np_queue_find_token(queue, "bb", &uid, &found, &err), 0);
    cr_assert(found && uid == 1001);
    np_queue_close(queue);
}

/* Of data that the check did not look at, say. */
Test(queue, a_new_run_keeps_its_reason, .init = set_up, .fini = tear_down)
{
    struct np_queue *queue = open_queue();
    struct np_entry entry = entry_of("a");
    struct seen seen = {0};
    struct np_err err = {0};
    int64_t id = 0;
    bool known = true;

    strcpy(entry.reason, "the data were not looked at");
    cr_assert_eq(np_queue_add(queue, &entry, &id, &known, &err), 0);
    cr_assert_eq(np_queue_read(queue, see, &seen, &err), 0);
    cr_assert_str_eq(seen.last.reason, "the data were not looked at");
    np_queue_close(queue);
    np_entry_fini(&seen.last);
}
