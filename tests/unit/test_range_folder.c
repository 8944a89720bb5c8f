/* The folder of a cache of remote ranges: what it refuses to open, who may share it, its account after damage, and
 * the list of its sets. */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "loader/base/io.h"
#include "loader/base/mem.h"
#include "loader/base/range_folder.h"
#include "tests/test.h"
#include "tests/unit/made_memory.h"
#include "tests/unit/made_ranges.h"

#define BLOCK  ((uint64_t)NP_RANGE_BLOCK)
#define BYTES  (3 * BLOCK)
#define PLENTY (1ull << 30)

static int fill(const char *folder, const char *set)
{
    return made_ranges_fill(folder, set, PLENTY, BYTES);
}

/* What opening folder and object "s" says; "": it works. */
static const char *refusal(const char *folder)
{
    static struct np_err err;
    const struct np_range_options options = {.folder = folder, .set = "s", .max_bytes = PLENTY};
    const struct np_range_name name = {"s", "1", BYTES};
    struct np_range_cache *cache = NULL;
    struct np_range_object *object = NULL;

    err = (struct np_err){0};
    if (np_range_cache_open(&options, &cache, &err) == 0 &&
        np_range_object_open(cache, &name, &object, &err) == 0)
        np_range_object_close(object);
    np_range_cache_close(cache);
    return err.code ? err.text : "";
}

static void sh(const char *folder, const char *command)
{
    char text[1000];

    snprintf(text, sizeof(text), "cd %s && %s", folder, command);
    if (system(text) != 0)
        abort();
}

Test(range_cache, links_and_strange_files_are_refused, .timeout = 120)
{
    static const struct {
        const char *command, *text;
    } cases[] = {
        {"f=$(echo set-*/*-*) && mv $f x && ln -s $PWD/x $f", "is a symbolic link"},
        {"f=$(echo set-*/*-*) && rm $f && mkfifo $f", "is no regular file"},
        {"f=$(echo set-*/*-*) && rm $f && mkdir $f", "Is a directory"},
        {"mv set-* x && ln -s x $(cat name)", "remove it if it is a link"},
        {"rm account && ln -s /etc/passwd account", "account is a symbolic link"},
        {"rm account && mkfifo account", "account is no regular file"},
        {"rm set-*/holders && ln -s /etc/passwd $(cat name)/holders", "is a symbolic link"},
        {"chmod o+w .", "all users may write"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        char *folder = made_ranges_folder();

        cr_assert_eq(fill(folder, "s"), 3);
        cr_assert_str_eq(refusal(folder), "");
        sh(folder, "echo set-* >name");
        sh(folder, cases[i].command);
        cr_assert(
            strstr(refusal(folder), cases[i].text), "%s: %s", cases[i].command, refusal(folder));
        made_ranges_remove(folder);
    }
}

Test(range_cache, a_link_to_a_folder_is_refused, .timeout = 120)
{
    char *folder = made_ranges_folder(), *beside = np_format("%s-link", folder);

    cr_assert_eq(symlink(folder, beside), 0);
    cr_assert(strstr(refusal(beside), "name the folder itself"));
    unlink(beside);
    np_free(beside);
    made_ranges_remove(folder);
}

Test(range_cache, a_folder_of_another_user_is_refused, .timeout = 120)
{
    char *folder = made_ranges_folder();

    if (geteuid() != 0) {
        made_ranges_remove(folder);
        cr_skip_test("only root can give files away");
    }
    cr_assert_eq(fill(folder, "s"), 3);
    sh(folder, "chown 4321 set-*/*-*");
    cr_assert(strstr(refusal(folder), "belongs to user 4321"));
    sh(folder, "chown 0 set-*/*-* && chown 4321 set-*");
    cr_assert(strstr(refusal(folder), "belongs to user 4321"));
    sh(folder, "chown 0 set-* && chown 4321 .");
    cr_assert(strstr(refusal(folder), "install -d -o root -g GROUP -m 2770"));
    made_ranges_remove(folder);
}

/* Runs fill() as a user of group 1234; returns the blocks that this user finds. */
static int fill_as(const char *folder, const char *set, uid_t user)
{
    const pid_t pid = fork();
    int status;

    if (pid == 0) {
        const gid_t group = 1234;

        if (setgroups(1, &group) || setresgid(4321, 4321, 4321) || setresuid(user, user, user))
            _exit(100);
        _exit(fill(folder, set));
    }
    if (waitpid(pid, &status, 0) != pid)
        abort();
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

Test(range_cache, a_group_shares_a_folder_of_root, .timeout = 120)
{
    char *folder = made_ranges_folder();

    if (geteuid() != 0) {
        made_ranges_remove(folder);
        cr_skip_test("only root can become other users");
    }
    sh(folder, "chgrp 1234 . && chmod 2770 .");
    cr_assert_eq(fill(folder, "s"), 3);
    cr_assert_eq(fill_as(folder, "s", 4321), 3);
    cr_assert_eq(fill_as(folder, "other", 4322), 3);
    cr_assert_eq(fill(folder, "other"), 3);
    cr_assert_eq(fill_as(folder, "other", 4321), 3); /* a member's file, for another member */
    sh(folder, "test $(stat -c %a set-*/*-* | sort -u) = 660");
    sh(folder, "chmod -R g-w . && test $(stat -c %a set-*/*-* | sort -u) = 640");
    cr_assert_eq(fill_as(folder, "s", 4321), 3);   /* who may only read, finds */
    cr_assert_eq(fill_as(folder, "new", 4321), 0); /* and puts nothing */
    made_ranges_remove(folder);
}

Test(range_cache, a_damaged_account_is_counted_again, .timeout = 120)
{
    const char *const damages[] = {
        ": >account", "echo nonsense >account", "head -c 100000 /dev/zero >account", "rm account"};

    for (size_t i = 0; i < sizeof(damages) / sizeof(*damages); i++) {
        char *folder = made_ranges_folder();
        struct np_range_cache *cache;
        struct np_range_numbers numbers;

        cr_assert_eq(fill(folder, "s"), 3);
        cache = made_ranges_open(folder, "t", PLENTY, NULL);
        sh(folder, damages[i]);
        np_range_cache_close(cache);
        cache = made_ranges_open(folder, "t", PLENTY, NULL);
        np_range_numbers(cache, &numbers);
        cr_assert_eq(numbers.used_bytes, made_ranges_used(folder));
        cr_assert_gt(numbers.used_bytes, BYTES);
        np_range_cache_close(cache);
        made_ranges_remove(folder);
    }
}

static void add_set(void *context, const struct np_range_set *set)
{
    char *text = context;
    const size_t used = strlen(text);

    snprintf(text + used, 400 - used, "%s %llu %llu %d; ", set->name,
        (unsigned long long)set->bytes, (unsigned long long)set->nr_objects, set->is_held);
}

Test(range_cache, sets_are_listed_and_cleared_but_for_those_held, .timeout = 120)
{
    char *folder = made_ranges_folder(), text[400] = "";
    struct np_range_folder listed;
    struct np_range_cache *held;
    uint64_t bytes;

    cr_assert_eq(fill(folder, "a\033[2J"), 3);
    held = made_ranges_open(folder, "b", PLENTY, NULL);
    cr_assert_eq(fill(folder, "b"), 3);
    sh(folder, "mkdir set-1 other && touch other/file set-1/file");
    cr_assert_eq(np_range_folder_open(&listed, folder, NULL, PLENTY, NULL), 0);
    cr_assert_eq(np_range_folder_sets(&listed, add_set, text, NULL), 0);
    cr_assert(strstr(text, "a?[2J 397312 1 0; "), "%s", text);
    cr_assert(strstr(text, "b 397312 1 1; "), "%s", text);
    cr_assert_eq(np_range_folder_clear(&listed, &bytes, NULL), 0);
    cr_assert_eq(bytes, 397312);
    cr_assert_eq(made_ranges_used(folder), 397312);
    np_range_cache_close(held);
    cr_assert_eq(np_range_folder_clear(&listed, &bytes, NULL), 0);
    cr_assert_eq(made_ranges_used(folder), 0);
    sh(folder, "test -f other/file && test -f set-1/file");
    np_range_folder_close(&listed);
    made_ranges_remove(folder);
}

Test(range_cache, each_failed_allocation_is_reported, .timeout = 120)
{
    char *folder = made_ranges_folder();
    const struct np_range_options options = {.folder = folder, .set = "s", .max_bytes = PLENTY};
    const struct np_range_name name = {"s", "1", BYTES};

    for (int n = 1;; n++) {
        struct np_range_cache *cache = NULL;
        struct np_range_object *object = NULL;
        struct np_err err = {0};
        int code;

        made_memory_fail(n);
        code = np_range_cache_open(&options, &cache, &err);
        if (!code)
            code = np_range_object_open(cache, &name, &object, &err);
        np_range_object_close(object);
        np_range_cache_close(cache);
        if (!made_memory_failed())
            break;
        cr_assert_eq(code, -ENOMEM);
        cr_assert_str_not_empty(err.text);
    }
    made_memory_fail(0);
    made_ranges_remove(folder);
}

Test(range_cache, objects_that_it_cannot_hold_are_refused, .timeout = 120)
{
    char *folder = made_ranges_folder(), *url = np_alloc(20000);
    struct np_range_cache *cache = made_ranges_open(folder, "s", PLENTY, NULL);
    struct np_range_object *object;
    struct np_err err = {0};

    memset(url, 'u', 19999);
    cr_assert_eq(np_range_object_open(cache, &(struct np_range_name){url, "1", 1}, &object, &err),
        -ENAMETOOLONG);
    cr_assert_eq(
        np_range_object_open(cache, &(struct np_range_name){"u", "1", UINT64_MAX}, &object, NULL),
        -EFBIG);
    np_range_cache_close(cache);
    np_free(url);
    made_ranges_remove(folder);
}

Test(range_cache, a_limit_of_its_own_is_half_of_what_there_is, .timeout = 120)
{
    char *folder = made_ranges_folder();
    struct np_range_cache *cache = made_ranges_open(folder, "s", 0, NULL);
    struct np_range_numbers numbers;

    np_range_numbers(cache, &numbers);
    cr_assert_gt(numbers.max_bytes, 0);
    np_range_cache_close(cache);
    made_ranges_remove(folder);
}

Test(range_cache, a_direct_descriptor_reads_the_same, .timeout = 120)
{
    char *folder = made_ranges_folder();
    const struct np_range_options options = {
        .folder = folder, .set = "s", .max_bytes = PLENTY, .direct = true};
    struct np_range_cache *cache = NULL;
    struct np_range_object *object;
    struct np_range_place place;
    uint8_t *data = NULL, right[4096];

    cr_assert_eq(fill(folder, "s"), 3);
    cr_assert_eq(np_range_cache_open(&options, &cache, NULL), 0);
    object = made_ranges_object(cache, "s", "1", BYTES);
    cr_assert_eq(made_ranges_count(object, "s", "1", BYTES), 3);
    cr_assert_eq(np_range_find(object, BLOCK + 8192, 4096, &place), NP_RANGE_HIT);
    if (place.direct_fd >= 0) { /* some file systems have no such reads */
        cr_assert_eq(posix_memalign((void **)&data, 4096, 4096), 0);
        cr_assert_eq(pread(place.direct_fd, data, 4096, (off_t)place.file_offset), 4096);
        made_ranges_bytes("s", "1", BLOCK + 8192, right, 4096);
        cr_assert_arr_eq(data, right, 4096);
        free(data);
    }
    np_range_object_close(object);
    np_range_cache_close(cache);
    made_ranges_remove(folder);
}
