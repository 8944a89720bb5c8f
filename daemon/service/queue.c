/* The only user of sqlite3.h. Each change is one transaction. */
#include "daemon/service/queue.h"

#include <errno.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "loader/base/mem.h"

const char *const np_entry_states[NP_NR_ENTRY_STATES] = {"queued", "running", "pausing", "yielding",
    "stopping", "paused", "stopped", "done", "failed", "timeout"};

enum statement {
    ADD,
    ADD_TEXT,
    NAME_DIR,
    ADD_AFTER,
    FIND_KEY,
    UPDATE,
    REMOVE,
    REMOVE_TEXT,
    REMOVE_AFTER,
    READ,
    READ_TEXT,
    READ_AFTER,
    SET_TOKEN,
    DROP_TOKEN,
    FIND_TOKEN,
    DRAIN,
    UNDRAIN,
    READ_DRAINED,
    NR_STATEMENTS
};

static const char *const sql[NR_STATEMENTS] = {
    [ADD] =
        "INSERT INTO runs (key, name, uid, gid, path, device, priority, max_retries,"
        " umask, submitted, dir, time_limit, memory, cpus, overrides, reason, user, on_end,"
        " sweep, processes) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    [ADD_TEXT] = "INSERT INTO configs (id, config, environment) VALUES (?, ?, ?)",
    [NAME_DIR] = "UPDATE runs SET dir = dir || '/' || name || '-' || id WHERE id = ?",
    [ADD_AFTER] = "INSERT INTO after (id, other) VALUES (?, ?)",
    [FIND_KEY] = "SELECT id FROM runs WHERE uid = ? AND key = ?",
    [UPDATE] = "UPDATE runs SET priority = ?, state = ?, assigned = ?, dir = ?, reason = ?,"
               " max_retries = ?, retries = ?, attempt = ?, exit_code = ?, not_before = ?,"
               " started = ?, ended = ?, time_limit = ?, ran = ?, lived = ?,"
               " process = ?, kind = ?, told = ?, user = ?, reserves = ? WHERE id = ?",
    [REMOVE] = "DELETE FROM runs WHERE id = ?",
    [REMOVE_TEXT] = "DELETE FROM configs WHERE id = ?",
    [REMOVE_AFTER] = "DELETE FROM after WHERE id = ?",
    [READ] = "SELECT id, key, name, uid, gid, path, device, priority, max_retries, state,"
             " assigned, dir, reason, retries, attempt, exit_code, not_before, submitted, started,"
             " ended, time_limit, ran, lived, memory, cpus, overrides, process, kind, umask,"
             " told, user, on_end, sweep, processes, reserves FROM runs ORDER BY id",
    [READ_TEXT] = "SELECT config, environment FROM configs WHERE id = ?",
    [READ_AFTER] = "SELECT other FROM after WHERE id = ? ORDER BY other",
    [SET_TOKEN] = "INSERT OR REPLACE INTO tokens (uid, hash, made) VALUES (?, ?, ?)",
    [DROP_TOKEN] = "DELETE FROM tokens WHERE uid = ?",
    [FIND_TOKEN] = "SELECT uid FROM tokens WHERE hash = ?",
    [DRAIN] = "INSERT OR IGNORE INTO drained (device) VALUES (?)",
    [UNDRAIN] = "DELETE FROM drained WHERE device = ?",
    [READ_DRAINED] = "SELECT device FROM drained ORDER BY device",
};

/* Each entry upgrades the tables by one version (PRAGMA user_version). Do not change a released
 * entry: older files are upgraded by it. */
static const char *const versions[] = {
    "CREATE TABLE runs ("
    " id INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT, name TEXT NOT NULL,"
    " uid INTEGER NOT NULL, gid INTEGER NOT NULL, path TEXT NOT NULL, config TEXT NOT NULL,"
    " device TEXT NOT NULL, priority INTEGER NOT NULL, max_retries INTEGER NOT NULL,"
    " state TEXT NOT NULL DEFAULT 'queued', assigned TEXT NOT NULL DEFAULT '', dir TEXT,"
    " reason TEXT NOT NULL DEFAULT '', retries INTEGER NOT NULL DEFAULT 0, attempt INTEGER NOT "
    "NULL DEFAULT 0,"
    " exit_code INTEGER NOT NULL DEFAULT -1, not_before REAL NOT NULL DEFAULT 0,"
    " submitted REAL NOT NULL, started REAL NOT NULL DEFAULT 0, ended REAL NOT NULL DEFAULT 0,"
    " UNIQUE (uid, key)) STRICT;"
    "CREATE TABLE after (id INTEGER NOT NULL, other INTEGER NOT NULL, PRIMARY KEY (id, other))"
    " STRICT, WITHOUT ROWID;",
    /* 2: a run's limits and overrides, and drained devices */
    "ALTER TABLE runs ADD COLUMN time_limit REAL NOT NULL DEFAULT 0;"
    "ALTER TABLE runs ADD COLUMN ran REAL NOT NULL DEFAULT 0;"
    "ALTER TABLE runs ADD COLUMN lived REAL NOT NULL DEFAULT 0;"
    "ALTER TABLE runs ADD COLUMN memory INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE runs ADD COLUMN cpus REAL NOT NULL DEFAULT 0;"
    "ALTER TABLE runs ADD COLUMN overrides TEXT;"
    "CREATE TABLE drained (device TEXT PRIMARY KEY) STRICT, WITHOUT ROWID;",
    /* 3: a run's process, and the kind of device it began on */
    "ALTER TABLE runs ADD COLUMN process TEXT NOT NULL DEFAULT '';"
    "ALTER TABLE runs ADD COLUMN kind TEXT NOT NULL DEFAULT '';",
    /* 4: configs in their own table, so that a change of state does not write them again; the
     * submitter's environment, umask and name; notified ends; users' tokens */
    "CREATE TABLE configs (id INTEGER PRIMARY KEY, config TEXT NOT NULL,"
    " environment TEXT NOT NULL DEFAULT '') STRICT;"
    "INSERT INTO configs (id, config) SELECT id, config FROM runs;"
    "ALTER TABLE runs DROP COLUMN config;"
    "ALTER TABLE runs ADD COLUMN umask INTEGER NOT NULL DEFAULT -1;"
    "ALTER TABLE runs ADD COLUMN told INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE runs ADD COLUMN user TEXT NOT NULL DEFAULT '';"
    "UPDATE runs SET told = 1 WHERE state IN ('stopped', 'done', 'failed', 'timeout');"
    "CREATE TABLE tokens (uid INTEGER PRIMARY KEY, hash TEXT NOT NULL UNIQUE, made REAL NOT NULL)"
    " STRICT;",
    /* 5: a run's own on_end command */
    "ALTER TABLE runs ADD COLUMN on_end TEXT;",
    /* 6: the sweep that a run belongs to */
    "ALTER TABLE runs ADD COLUMN sweep TEXT NOT NULL DEFAULT '';",
    /* 7: runs of several processes, for which devices are reserved */
    "ALTER TABLE runs ADD COLUMN processes INTEGER NOT NULL DEFAULT 1;"
    "ALTER TABLE runs ADD COLUMN reserves REAL NOT NULL DEFAULT 0;",
};
#define VERSION ((int)(sizeof(versions) / sizeof(*versions)))

struct np_queue {
    sqlite3 *db;
    char *path;
    sqlite3_stmt *statements[NR_STATEMENTS];
};

void np_entry_fini(struct np_entry *entry)
{
    np_free(entry->path);
    np_free(entry->config);
    np_free(entry->environment);
    np_free(entry->dir);
    np_free(entry->overrides);
    np_free(entry->on_end);
    *entry = (struct np_entry){0};
}

bool np_entry_is_finished(const struct np_entry *entry)
{
    return entry->state == NP_ENTRY_STOPPED || entry->state == NP_ENTRY_DONE ||
           entry->state == NP_ENTRY_FAILED || entry->state == NP_ENTRY_TIMEOUT;
}

bool np_entry_has_worker(const struct np_entry *entry)
{
    return entry->state == NP_ENTRY_RUNNING || entry->state == NP_ENTRY_PAUSING ||
           entry->state == NP_ENTRY_YIELDING || entry->state == NP_ENTRY_STOPPING;
}

int np_entry_processes(const struct np_entry *entry)
{
    return entry->processes > 1 ? (int)entry->processes : 1;
}

int np_entry_slots_on(const struct np_entry *entry, const char *device)
{
    const size_t bytes = strlen(device);
    int nr = 0, found = 0;

    for (const char *at = entry->assigned; *at; at += strcspn(at, ","), at += *at == ',') {
        found += strcspn(at, ",") == bytes && memcmp(at, device, bytes) == 0;
        nr++;
    }
    return nr == 1 && found ? np_entry_processes(entry) : found;
}

int np_entry_find(const struct np_entry *const *entries, int nr, int64_t id)
{
    int low = 0, high = nr;

    while (low < high) {
        const int middle = (low + high) / 2;

        if (entries[middle]->id < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low < nr && entries[low]->id == id ? low : -1;
}

/* --- errors ----------------------------------------------------------------------------------- */

static int code_of(int result)
{
    switch (result & 0xff) {
    case SQLITE_OK:
    case SQLITE_ROW:
    case SQLITE_DONE: return 0;
    case SQLITE_NOMEM: return -ENOMEM;
    case SQLITE_FULL: return -ENOSPC;
    case SQLITE_BUSY:
    case SQLITE_LOCKED: return -EAGAIN; /* -EBUSY has another meaning: a busy run */
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB: return -EBADMSG;
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_AUTH: return -EACCES;
    default: return -EIO; /* CANTOPEN, too: -ENOENT means that there is no such run */
    }
}

static int fail(const struct np_queue *queue, int result, const char *what, struct np_err *err)
{
    const int code = code_of(result);

    if (code == -ENOSPC)
        return np_err_set(err, code,
            "%s: the queue cannot be %s: the disk is full; free some space", queue->path, what);
    if (code == -EAGAIN)
        return np_err_set(err, code, "%s: another nnpipe daemon uses this queue", queue->path);
    return np_err_set(err, code, "%s: the queue cannot be %s: %s", queue->path, what,
        queue->db ? sqlite3_errmsg(queue->db) : sqlite3_errstr(result));
}

static int run_sql(struct np_queue *queue, const char *text, const char *what, struct np_err *err)
{
    const int result = sqlite3_exec(queue->db, text, NULL, NULL, NULL);

    return result == SQLITE_OK ? 0 : fail(queue, result, what, err);
}

/* Commits the transaction if code is 0, else undoes it. */
static int finish(struct np_queue *queue, int code, const char *what, struct np_err *err)
{
    if (code == 0)
        code = run_sql(queue, "COMMIT", what, err);
    if (code < 0)
        sqlite3_exec(queue->db, "ROLLBACK", NULL, NULL, NULL);
    return code;
}

/* --- statements ------------------------------------------------------------------------------- */

/* Runs a statement once and resets it. ret_id: the first number of a row, or NULL. */
static int step(struct np_queue *queue, enum statement which, int64_t *ret_id, const char *what,
    struct np_err *err)
{
    sqlite3_stmt *statement = queue->statements[which];
    const int result = sqlite3_step(statement);

    if (result == SQLITE_ROW && ret_id)
        *ret_id = sqlite3_column_int64(statement, 0);
    sqlite3_reset(statement);
    sqlite3_clear_bindings(statement);
    if (result == SQLITE_ROW || result == SQLITE_DONE)
        return 0;
    return fail(queue, result, what, err);
}

static void bind_text(sqlite3_stmt *statement, int *at, const char *text)
{
    sqlite3_bind_text(statement, (*at)++, text, -1, SQLITE_STATIC);
}

/* "" becomes NULL, which UNIQUE allows many times. */
static void bind_key(sqlite3_stmt *statement, int *at, const char *key)
{
    sqlite3_bind_text(statement, (*at)++, *key ? key : NULL, -1, SQLITE_STATIC);
}

static void bind_int(sqlite3_stmt *statement, int *at, int64_t value)
{
    sqlite3_bind_int64(statement, (*at)++, value);
}

static void bind_real(sqlite3_stmt *statement, int *at, double value)
{
    sqlite3_bind_double(statement, (*at)++, value);
}

static int step_id(struct np_queue *queue, enum statement which, int64_t id, struct np_err *err)
{
    int at = 1;

    bind_int(queue->statements[which], &at, id);
    return step(queue, which, NULL, "written", err);
}

/* --- opening ---------------------------------------------------------------------------------- */

static int read_int(void *context, int nr, char **values, char **names)
{
    if (nr > 0 && values[0])
        sscanf(values[0], "%d", (int *)context);
    return 0;
}

static int check_whole(void *context, int nr, char **values, char **names)
{
    *(bool *)context = nr > 0 && values[0] && strcmp(values[0], "ok") == 0;
    return 0;
}

/* Upgrades the file from its version to this nnpipe's, in one transaction. */
static int make_tables(struct np_queue *queue, int version, struct np_err *err)
{
    char end[64];
    int code = run_sql(queue, "BEGIN IMMEDIATE", "made", err);

    if (code < 0)
        return code;
    snprintf(end, sizeof(end), "PRAGMA user_version=%d", VERSION);
    for (int i = version; i < VERSION && code == 0; i++)
        code = run_sql(queue, versions[i], "made", err);
    if (code == 0)
        code = run_sql(queue, end, "made", err);
    return finish(queue, code, "made", err);
}

static int set_up(struct np_queue *queue, struct np_err *err)
{
    int version = 0, code;
    bool whole = false;

    /* The first read takes the lock for good: one daemon for each queue. Unlike FULL, EXTRA also
     * syncs the folder after the file's first journal was removed, so that the journal cannot come
     * back and undo the transaction. */
    code = run_sql(queue,
        "PRAGMA locking_mode=EXCLUSIVE; PRAGMA synchronous=EXTRA; PRAGMA journal_mode=WAL;"
        "PRAGMA foreign_keys=ON; PRAGMA wal_autocheckpoint=200;",
        "opened", err);
    if (code < 0)
        return code;
    int result = sqlite3_exec(queue->db, "PRAGMA quick_check(1)", check_whole, &whole, NULL);
    if (result != SQLITE_OK)
        return fail(queue, result, "read", err);
    if (!whole)
        return np_err_set(err, -EBADMSG,
            "%s: the queue is damaged and was not changed; move it away to start a new one (the "
            "runs' folders do not depend on it)",
            queue->path);
    result = sqlite3_exec(queue->db, "PRAGMA user_version", read_int, &version, NULL);
    if (result != SQLITE_OK)
        return fail(queue, result, "read", err);
    if (version > VERSION)
        return np_err_set(err, -EBADMSG,
            "%s: the queue was written by a later nnpipe (its version is %d, this nnpipe knows %d)",
            queue->path, version, VERSION);
    return version == VERSION ? 0 : make_tables(queue, version, err);
}

static int prepare(struct np_queue *queue, struct np_err *err)
{
    for (int i = 0; i < NR_STATEMENTS; i++) {
        const int result = sqlite3_prepare_v3(
            queue->db, sql[i], -1, SQLITE_PREPARE_PERSISTENT, &queue->statements[i], NULL);

        if (result != SQLITE_OK)
            return fail(queue, result, "read", err);
    }
    return 0;
}

int np_queue_open(
    const char *path, const char *vfs, struct np_queue **ret_queue, struct np_err *err)
{
    const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX |
                      SQLITE_OPEN_EXRESCODE | SQLITE_OPEN_NOFOLLOW;
    struct np_queue *queue = np_alloc(sizeof(*queue));
    const mode_t before = umask(0077); /* -wal and -shm get the file's mode */
    const int result = sqlite3_open_v2(path, &queue->db, flags, vfs);
    int code = 0;

    umask(before);
    queue->path = np_strdup(path);
    if (result != SQLITE_OK)
        code = fail(queue, result, "opened", err);
    else if ((code = set_up(queue, err)) == 0)
        code = prepare(queue, err);
    if (code < 0)
        np_queue_close(queue);
    else
        *ret_queue = queue;
    return code;
}

void np_queue_close(struct np_queue *queue)
{
    if (!queue)
        return;
    for (int i = 0; i < NR_STATEMENTS; i++)
        sqlite3_finalize(queue->statements[i]);
    sqlite3_close(queue->db);
    np_free(queue->path);
    np_free(queue);
}

/* --- changes ---------------------------------------------------------------------------------- */

static int insert(struct np_queue *queue, const struct np_entry *entry, struct np_err *err)
{
    sqlite3_stmt *add = queue->statements[ADD];
    int at = 1;

    bind_key(add, &at, entry->key);
    bind_text(add, &at, entry->name);
    bind_int(add, &at, entry->uid);
    bind_int(add, &at, entry->gid);
    bind_text(add, &at, entry->path);
    bind_text(add, &at, entry->device);
    bind_int(add, &at, entry->priority);
    bind_int(add, &at, entry->max_retries);
    bind_int(add, &at, entry->umask);
    bind_real(add, &at, entry->submitted);
    bind_text(add, &at, entry->dir);
    bind_real(add, &at, entry->time_limit_s);
    bind_int(add, &at, entry->memory_bytes);
    bind_real(add, &at, entry->cpus);
    bind_text(add, &at, entry->overrides);
    bind_text(add, &at, entry->reason);
    bind_text(add, &at, entry->user);
    bind_text(add, &at, entry->on_end);
    bind_text(add, &at, entry->sweep);
    bind_int(add, &at, np_entry_processes(entry));
    return step(queue, ADD, NULL, "written", err);
}

static int insert_text(
    struct np_queue *queue, int64_t id, const struct np_entry *entry, struct np_err *err)
{
    sqlite3_stmt *add = queue->statements[ADD_TEXT];
    int at = 1;

    bind_int(add, &at, id);
    bind_text(add, &at, entry->config);
    bind_text(add, &at, entry->environment ? entry->environment : "");
    return step(queue, ADD_TEXT, NULL, "written", err);
}

static int insert_after(
    struct np_queue *queue, int64_t id, const struct np_entry *entry, struct np_err *err)
{
    int code = 0;

    for (int i = 0; i < entry->nr_after && code == 0; i++) {
        int at = 1;

        bind_int(queue->statements[ADD_AFTER], &at, id);
        bind_int(queue->statements[ADD_AFTER], &at, entry->after[i]);
        code = step(queue, ADD_AFTER, NULL, "written", err);
    }
    return code;
}

int np_queue_add(struct np_queue *queue, const struct np_entry *entry, int64_t *ret_id,
    bool *ret_known, struct np_err *err)
{
    int64_t id = 0;
    int at = 1, code;

    bind_int(queue->statements[FIND_KEY], &at, entry->uid);
    bind_key(queue->statements[FIND_KEY], &at, entry->key);
    code = step(queue, FIND_KEY, &id, "read", err);
    if (code < 0)
        return code;
    if (id > 0) {
        *ret_id = id;
        *ret_known = true;
        return 0;
    }
    code = run_sql(queue, "BEGIN IMMEDIATE", "written", err);
    if (code < 0)
        return code;
    code = insert(queue, entry, err);
    id = sqlite3_last_insert_rowid(queue->db);
    if (code == 0)
        code = step_id(queue, NAME_DIR, id, err);
    if (code == 0)
        code = insert_text(queue, id, entry, err);
    if (code == 0)
        code = insert_after(queue, id, entry, err);
    code = finish(queue, code, "written", err);
    if (code < 0)
        return code;
    *ret_id = id;
    *ret_known = false;
    return 0;
}

int np_queue_update(struct np_queue *queue, const struct np_entry *entry, struct np_err *err)
{
    sqlite3_stmt *update = queue->statements[UPDATE];
    int at = 1;

    bind_int(update, &at, entry->priority);
    bind_text(update, &at, np_entry_states[entry->state]);
    bind_text(update, &at, entry->assigned);
    bind_text(update, &at, entry->dir);
    bind_text(update, &at, entry->reason);
    bind_int(update, &at, entry->max_retries);
    bind_int(update, &at, entry->retries);
    bind_int(update, &at, entry->attempt);
    bind_int(update, &at, entry->exit_code);
    bind_real(update, &at, entry->not_before);
    bind_real(update, &at, entry->started);
    bind_real(update, &at, entry->ended);
    bind_real(update, &at, entry->time_limit_s);
    bind_real(update, &at, entry->ran_s);
    bind_real(update, &at, entry->lived_s);
    bind_text(update, &at, entry->process);
    bind_text(update, &at, entry->kind);
    bind_int(update, &at, entry->notified);
    bind_text(update, &at, entry->user);
    bind_real(update, &at, entry->reserves);
    bind_int(update, &at, entry->id);
    return step(queue, UPDATE, NULL, "written", err);
}

int np_queue_remove(struct np_queue *queue, int64_t id, struct np_err *err)
{
    static const enum statement parts[] = {REMOVE, REMOVE_TEXT, REMOVE_AFTER};
    int code = run_sql(queue, "BEGIN IMMEDIATE", "written", err);

    if (code < 0)
        return code;
    for (size_t i = 0; i < sizeof(parts) / sizeof(*parts) && code == 0; i++)
        code = step_id(queue, parts[i], id, err);
    return finish(queue, code, "written", err);
}

int np_queue_drain(struct np_queue *queue, const char *device, bool drained, struct np_err *err)
{
    const enum statement which = drained ? DRAIN : UNDRAIN;
    int at = 1;

    bind_text(queue->statements[which], &at, device);
    return step(queue, which, NULL, "written", err);
}

/* --- reading ---------------------------------------------------------------------------------- */

static const char *column(sqlite3_stmt *row, int *at)
{
    const char *text = (const char *)sqlite3_column_text(row, (*at)++);

    return text ? text : "";
}

/* NULL for "". */
static char *copy_of(sqlite3_stmt *row, int *at, struct np_err *err)
{
    const char *text = column(row, at);

    return *text ? np_try_strdup(text, err) : NULL;
}

static void copy(char *to, size_t bytes, const char *text)
{
    snprintf(to, bytes, "%s", text);
}

static int state_of(const char *name)
{
    for (int i = 0; i < NP_NR_ENTRY_STATES; i++)
        if (strcmp(np_entry_states[i], name) == 0)
            return i;
    return -1;
}

static int read_after(struct np_queue *queue, struct np_entry *entry, struct np_err *err)
{
    sqlite3_stmt *row = queue->statements[READ_AFTER];
    int at = 1, result;

    bind_int(row, &at, entry->id);
    while ((result = sqlite3_step(row)) == SQLITE_ROW)
        if (entry->nr_after < NP_MAX_AFTER)
            entry->after[entry->nr_after++] = sqlite3_column_int64(row, 0);
    sqlite3_reset(row);
    return result == SQLITE_DONE ? 0 : fail(queue, result, "read", err);
}

static int read_entry(
    struct np_queue *queue, sqlite3_stmt *row, struct np_entry *entry, struct np_err *err)
{
    struct np_err none = {0};
    int at = 0, state;

    entry->id = sqlite3_column_int64(row, at++);
    copy(entry->key, sizeof(entry->key), column(row, &at));
    copy(entry->name, sizeof(entry->name), column(row, &at));
    entry->uid = (uid_t)sqlite3_column_int64(row, at++);
    entry->gid = (gid_t)sqlite3_column_int64(row, at++);
    entry->path = np_try_strdup(column(row, &at), &none);
    copy(entry->device, sizeof(entry->device), column(row, &at));
    entry->priority = sqlite3_column_int64(row, at++);
    entry->max_retries = sqlite3_column_int64(row, at++);
    state = state_of(column(row, &at));
    copy(entry->assigned, sizeof(entry->assigned), column(row, &at));
    entry->dir = copy_of(row, &at, &none);
    copy(entry->reason, sizeof(entry->reason), column(row, &at));
    entry->retries = sqlite3_column_int64(row, at++);
    entry->attempt = sqlite3_column_int64(row, at++);
    entry->exit_code = sqlite3_column_int64(row, at++);
    entry->not_before = sqlite3_column_double(row, at++);
    entry->submitted = sqlite3_column_double(row, at++);
    entry->started = sqlite3_column_double(row, at++);
    entry->ended = sqlite3_column_double(row, at++);
    entry->time_limit_s = sqlite3_column_double(row, at++);
    entry->ran_s = sqlite3_column_double(row, at++);
    entry->lived_s = sqlite3_column_double(row, at++);
    entry->memory_bytes = sqlite3_column_int64(row, at++);
    entry->cpus = sqlite3_column_double(row, at++);
    entry->overrides = copy_of(row, &at, &none);
    copy(entry->process, sizeof(entry->process), column(row, &at));
    copy(entry->kind, sizeof(entry->kind), column(row, &at));
    entry->umask = sqlite3_column_int64(row, at++);
    entry->notified = sqlite3_column_int(row, at++) != 0;
    copy(entry->user, sizeof(entry->user), column(row, &at));
    entry->on_end = copy_of(row, &at, &none);
    copy(entry->sweep, sizeof(entry->sweep), column(row, &at));
    entry->processes = sqlite3_column_int64(row, at++);
    entry->reserves = sqlite3_column_double(row, at++);
    if (none.code)
        return np_err_set(err, none.code, "%s", none.text);
    if (state < 0)
        return np_err_set(
            err, -EBADMSG, "%s: run %lld has an unknown state", queue->path, (long long)entry->id);
    entry->state = (enum np_entry_state)state;
    return read_after(queue, entry, err);
}

int np_queue_read(struct np_queue *queue,
    int (*each)(void *context, const struct np_entry *entry, struct np_err *err), void *context,
    struct np_err *err)
{
    sqlite3_stmt *row = queue->statements[READ];
    int code = 0, result = SQLITE_DONE;

    while (code == 0 && (result = sqlite3_step(row)) == SQLITE_ROW) {
        struct np_entry entry = {0};

        code = read_entry(queue, row, &entry, err);
        if (code == 0)
            code = each(context, &entry, err);
        np_entry_fini(&entry);
    }
    sqlite3_reset(row);
    if (code == 0 && result != SQLITE_DONE)
        code = fail(queue, result, "read", err);
    return code;
}

int np_queue_drained(struct np_queue *queue, void (*each)(void *context, const char *device),
    void *context, struct np_err *err)
{
    sqlite3_stmt *row = queue->statements[READ_DRAINED];
    int result;

    while ((result = sqlite3_step(row)) == SQLITE_ROW)
        each(context, (const char *)sqlite3_column_text(row, 0));
    sqlite3_reset(row);
    return result == SQLITE_DONE ? 0 : fail(queue, result, "read", err);
}

int np_queue_text(struct np_queue *queue, int64_t id, char **ret_config, char **ret_environment,
    struct np_err *err)
{
    sqlite3_stmt *row = queue->statements[READ_TEXT];
    char *config = NULL, *environment = NULL;
    int at = 1, column_ = 0, code = 0;

    bind_int(row, &at, id);
    const int result = sqlite3_step(row);
    if (result == SQLITE_ROW) {
        config = np_try_strdup(column(row, &column_), err);
        if (ret_environment)
            environment = np_try_strdup(column(row, &column_), err);
    }
    if (result == SQLITE_DONE)
        code = np_err_set(
            err, -ENOENT, "%s: the config of run %lld is missing", queue->path, (long long)id);
    else if (result != SQLITE_ROW)
        code = fail(queue, result, "read", err);
    else if (!config || (ret_environment && !environment))
        code = -ENOMEM;
    sqlite3_reset(row);
    if (code < 0) {
        np_free(config);
        np_free(environment);
        return code;
    }
    *ret_config = config;
    if (ret_environment)
        *ret_environment = environment;
    return 0;
}

/* --- tokens ----------------------------------------------------------------------------------- */

int np_queue_set_token(
    struct np_queue *queue, uid_t uid, const char *hash, double now, struct np_err *err)
{
    sqlite3_stmt *set = queue->statements[SET_TOKEN];
    int at = 1;

    bind_int(set, &at, uid);
    bind_text(set, &at, hash);
    bind_real(set, &at, now);
    return step(queue, SET_TOKEN, NULL, "written", err);
}

int np_queue_drop_token(struct np_queue *queue, uid_t uid, struct np_err *err)
{
    return step_id(queue, DROP_TOKEN, uid, err);
}

int np_queue_find_token(
    struct np_queue *queue, const char *hash, uid_t *ret_uid, bool *ret_found, struct np_err *err)
{
    int64_t uid = -1;
    int at = 1;

    bind_text(queue->statements[FIND_TOKEN], &at, hash);
    const int code = step(queue, FIND_TOKEN, &uid, "read", err);
    if (code < 0)
        return code;
    *ret_found = uid >= 0;
    if (uid >= 0)
        *ret_uid = (uid_t)uid;
    return 0;
}
