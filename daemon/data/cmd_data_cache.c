/* `nnpipe data cache`: the objects from servers that the cache folder keeps, by data set; --clear
 * removes the sets that no process uses. Main thread. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "daemon/data/data.h"
#include "daemon/ui/progress.h"
#include "loader/base/mem.h"
#include "loader/base/range_folder.h"
#include "loader/source/source.h"

/* Copies: nothing is printed while the folder is locked, because a pipe may be full. */
struct sets {
    struct np_range_set *sets;
    int nr;
    size_t room;
};

static void add_set(void *context, const struct np_range_set *set)
{
    struct sets *sets = context;

    np_grow(&sets->sets, &sets->room, (size_t)sets->nr + 1, sizeof(*sets->sets));
    sets->sets[sets->nr] = *set;
    sets->sets[sets->nr++].name = np_strdup(set->name);
}

static double mib(uint64_t bytes)
{
    return (double)bytes / (1 << 20);
}

static void print_set(struct np_ui *ui, const struct np_range_set *set)
{
    const double age_s = (double)(time(NULL) - set->used_s);
    char age[40] = "in use";

    if (!set->is_held) {
        np_duration_text(age_s > 0 ? age_s : 0, age, sizeof(age) - 4);
        strcat(age, " ago");
    }
    np_ui_say(ui, "%10.1f MiB  %6" PRIu64 " object%s  %-12s %s", mib(set->bytes), set->nr_objects,
        set->nr_objects == 1 ? " " : "s", age, set->name);
    np_json_begin(&ui->object, "set");
    np_json_text(&ui->object, "name", set->name);
    np_json_int(&ui->object, "bytes", (int64_t)set->bytes);
    np_json_int(&ui->object, "objects", (int64_t)set->nr_objects);
    np_json_int(&ui->object, "used", set->used_s);
    np_json_bool(&ui->object, "held", set->is_held);
    np_ui_event(ui, np_json_end(&ui->object));
}

static void print_all(
    struct np_ui *ui, const char *path, const struct sets *sets, bool clear, uint64_t freed_bytes)
{
    uint64_t bytes = 0;

    for (int i = 0; i < sets->nr; i++) {
        print_set(ui, &sets->sets[i]);
        bytes += sets->sets[i].bytes;
    }
    if (clear)
        np_ui_say(ui, "%s: %.1f MiB removed, %.1f MiB left", path, mib(freed_bytes), mib(bytes));
    else
        np_ui_say(
            ui, "%s: %.1f MiB in %d set%s", path, mib(bytes), sets->nr, sets->nr == 1 ? "" : "s");
    np_json_begin(&ui->object, "done");
    np_json_text(&ui->object, "path", path);
    np_json_int(&ui->object, "bytes", (int64_t)bytes);
    np_json_int(&ui->object, "removed", (int64_t)freed_bytes);
    np_ui_event(ui, np_json_end(&ui->object));
}

/* A folder that is no cache has no sets, and is not made one. */
static int run(struct np_ui *ui, const char *path, bool clear)
{
    char *account = np_format("%s/account", path);
    struct np_range_folder folder;
    struct sets sets = {0};
    struct np_err err = {0};
    uint64_t freed_bytes = 0;
    int code = 0;

    if (access(account, F_OK) == 0) {
        code = np_range_folder_open(&folder, path, NULL, 0, &err);
        if (!code) {
            if (clear)
                code = np_range_folder_clear(&folder, &freed_bytes, &err);
            if (!code)
                code = np_range_folder_sets(&folder, add_set, &sets, &err);
            np_range_folder_close(&folder);
        }
    }
    if (code)
        np_ui_error(ui, &err);
    else
        print_all(ui, path, &sets, clear, freed_bytes);
    for (int i = 0; i < sets.nr; i++)
        np_free((char *)sets.sets[i].name);
    np_free(sets.sets);
    np_free(account);
    return code ? NP_EXIT_FAILED : NP_EXIT_DONE;
}

int np_data_cache(int argc, char **argv)
{
    bool clear = false, json = false;
    const struct np_flag flags[] = {
        {"--clear", NULL, &clear, NULL}, {"--json", NULL, &json, NULL}, {NULL, NULL, NULL, NULL}};
    char *cache = NULL, *path;
    struct np_err err = {0};
    struct np_ui ui;
    int nr, code = np_flags_parse(argc, argv, flags, NULL, &nr);

    if (code)
        return code;
    if (nr > 1)
        return np_data_usage("cache takes one folder");
    np_ui_init(&ui, json);
    code = nr ? 0 : np_cache_dir(NULL, &cache, &err);
    path = nr ? np_strdup(argv[1]) : np_format("%s/objects", cache ? cache : "");
    if (code) {
        np_ui_error(&ui, &err);
        code = NP_EXIT_FAILED;
    } else
        code = run(&ui, path, clear);
    np_ui_fini(&ui);
    np_free(cache);
    np_free(path);
    return code;
}
