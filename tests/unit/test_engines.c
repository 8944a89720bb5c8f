/* The chosen plans of cuDNN as they are stored: lines of checkpoints, and the cache file. */
#ifdef NP_EMULATED_CUDA
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "loader/base/mem.h"
#include "tests/test.h"
#include "trainer/cuda/engines_cuda.h"

static struct np_engines *parsed(const char *text, int *ret_code)
{
    struct np_engines *engines = np_engines_new();

    *ret_code = np_engines_parse(engines, text, NULL);
    return engines;
}

static void put(struct np_engines *engines, const char *name, int n)
{
    char key[40];

    snprintf(key, sizeof(key), "%s_%d", name, n);
    cr_assert_eq(np_engines_put(engines, key, "40:2=1", 0.25f, NULL), 0);
}

static void cache_file(char path[64])
{
    int fd;

    snprintf(path, 64, "/tmp/nnpipe-engines-XXXXXX");
    fd = mkstemp(path);
    cr_assert_geq(fd, 0);
    close(fd);
}

static void remove_cache(const char *path)
{
    char lock[80];

    snprintf(lock, sizeof(lock), "%s.lock", path);
    unlink(path);
    unlink(lock);
}

Test(engines, prints_only_this_networks_choices_and_reads_them_back)
{
    int code;
    struct np_engines *engines =
        parsed("plan a 40:2=0,7=64 0.125\nplan b 41 0\nplan c apart 2\n", &code);
    char *text = np_strdup("scaler 1 0\n");

    np_engines_find(engines, "a")->used = true;
    cr_assert_eq(np_engines_put(engines, "c", "42:1=1", 0.5f, NULL), 0);
    np_engines_print(engines, &text);
    cr_assert_str_eq(text, "scaler 1 0\nplan a 40:2=0,7=64 0.125\nplan c 42:1=1 0.5\n");
    np_engines_free(engines);
    engines = parsed(text, &code);
    cr_assert_eq(code, 0);
    cr_assert_eq(engines->n, 2);
    cr_assert_str_eq(np_engines_find(engines, "a")->id, "40:2=0,7=64");
    cr_assert_null(np_engines_find(engines, "b"));
    np_engines_free(engines);
    np_free(text);
}

Test(engines, leaves_out_and_counts_choices_stored_as_list_positions)
{
    int code;
    struct np_engines *engines = parsed("engine a 3\nplan b 41 0\nengine c 0\n", &code);

    cr_assert_eq(code, 0);
    cr_assert_eq(engines->nr_old, 2);
    cr_assert_eq(engines->n, 1);
    cr_assert_null(np_engines_find(engines, "a"));
    np_engines_free(engines);
}

Test(engines, refuses_a_malformed_line)
{
    static const char *const lines[] = {"plan a\n", "plan a 40\n", "plan a 40 x\n",
        "plan a 40 -1\n", "plan a 40 nan\n", "plan a 40 1 2\n"};

    for (size_t i = 0; i < sizeof(lines) / sizeof(*lines); i++) {
        int code;

        np_engines_free(parsed(lines[i], &code));
        cr_assert_eq(code, -EBADMSG, "%s", lines[i]);
    }
}

Test(engines, drops_the_oldest_of_a_full_cache)
{
    struct np_engines *engines = np_engines_new();
    char path[64], key[40];

    cache_file(path);
    for (int i = 0; i < NP_ENGINE_MAX + 100; i++)
        put(engines, "key", i);
    cr_assert_eq(engines->n, NP_ENGINE_MAX + 100, "a run has all that it chose");
    np_engines_merge(engines, path);
    np_engines_free(engines);
    engines = np_engines_new();
    put(engines, "newest", 0);
    np_engines_merge(engines, path);
    np_engines_free(engines);

    engines = np_engines_new();
    np_engines_read(engines, path);
    cr_assert_eq(engines->n, NP_ENGINE_MAX);
    cr_assert_null(np_engines_find(engines, "key_100"));
    snprintf(key, sizeof(key), "key_%d", 101);
    cr_assert_not_null(np_engines_find(engines, key));
    cr_assert_not_null(np_engines_find(engines, "newest_0"));
    np_engines_free(engines);
    remove_cache(path);
}

/* Each of four processes adds a choice twenty times. */
Test(engines, loses_no_choice_when_processes_save_at_once, .timeout = 120)
{
    struct np_engines *engines;
    char path[64], name[16];
    pid_t children[4];

    cache_file(path);
    for (int p = 0; p < 4; p++)
        if ((children[p] = fork()) == 0) {
            snprintf(name, sizeof(name), "process%d", p);
            engines = np_engines_new();
            for (int i = 0; i < 20; i++) {
                np_engines_free(engines);
                engines = np_engines_new();
                put(engines, name, i);
                np_engines_merge(engines, path);
            }
            _exit(0);
        }
    for (int p = 0; p < 4; p++)
        cr_assert_eq(waitpid(children[p], NULL, 0), children[p]);
    engines = np_engines_new();
    np_engines_read(engines, path);
    cr_assert_eq(engines->n, 80, "%d", engines->n);
    np_engines_free(engines);
    remove_cache(path);
}
#endif
