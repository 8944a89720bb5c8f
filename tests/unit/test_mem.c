/* Memory and time. */
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "loader/base/clock.h"
#include "loader/base/mem.h"

#include "tests/test.h"
#include "tests/unit/made_memory.h"

static bool all_zero(const unsigned char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (bytes[i])
            return false;
    return true;
}

Test(mem, blocks_are_aligned_and_zeroed)
{
    for (size_t bytes = 0; bytes < 5000; bytes += 37) {
        unsigned char *memory = np_alloc(bytes);

        cr_assert_not_null(memory);
        cr_assert_eq((uintptr_t)memory % NP_ALIGN, 0u);
        cr_assert(all_zero(memory, bytes));
        memset(memory, 0xaa, bytes);
        np_free(memory);
    }
    np_free(NULL);
}

Test(mem, sizes_beyond_all_memory_give_NULL_and_an_error_with_the_size)
{
    volatile size_t half = SIZE_MAX / 2 + 1;
    struct np_err err = {0};
    size_t room = 0;
    int *array = NULL;

    cr_assert_null(np_try_array(half, 2, NULL));
    cr_assert_null(np_try_array(half, half, &err));
    cr_assert_eq(err.code, -ENOMEM);
    cr_assert_not_null(strstr(err.text, "out of memory"));
    cr_assert_eq(np_try_grow(&array, &room, half, 4, NULL), -ENOMEM);
    cr_assert(!array && room == 0);
#ifndef NP_SAN /* the sanitizers end the process at such a request */
    cr_assert_null(np_try_alloc(SIZE_MAX - 10, NULL));
    cr_assert_null(np_try_alloc(SIZE_MAX, NULL));
    err = (struct np_err){0};
    cr_assert_null(np_try_alloc(half, &err));
    cr_assert_not_null(strstr(err.text, "9223372036854775808 bytes"));
#endif
}

#ifndef NP_SAN
Test(mem, a_failed_small_allocation_ends_the_process, .signal = SIGABRT)
{
    np_alloc(SIZE_MAX / 2);
}
#endif

Test(mem, an_array_grows_and_keeps_its_content)
{
    size_t room = 0;
    int *array = NULL;

    for (int i = 0; i < 3000; i++) {
        np_grow(&array, &room, (size_t)i + 1, sizeof(*array));
        cr_assert_geq(room, (size_t)i + 1);
        cr_assert_eq(array[i], 0);
        array[i] = i;
    }
    for (int i = 0; i < 3000; i++)
        cr_assert_eq(array[i], i);
    np_free(array);
}

Test(mem, pages_are_aligned_zeroed_and_can_be_huge)
{
    static const size_t sizes[] = {1, 4096, 100000, 2u << 20, 5u << 20};

    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        unsigned char *memory = np_page_allocator.alloc(np_page_allocator.context, sizes[i]);

        cr_assert_not_null(memory);
        cr_assert_eq((uintptr_t)memory % 4096, 0u);
        cr_assert(all_zero(memory, sizes[i]));
        memset(memory, 1, sizes[i]);
        np_page_allocator.free(np_page_allocator.context, memory, sizes[i]);
    }
    cr_assert_null(np_page_allocator.alloc(np_page_allocator.context, SIZE_MAX / 2));
    np_page_allocator.free(np_page_allocator.context, NULL, 4096);
}

Test(mem, texts_are_copied_and_formatted_at_any_length)
{
    char *text = np_strdup("abc"), *long_text;

    cr_assert_str_eq(text, "abc");
    np_free(text);
    cr_assert_null(np_strdup(NULL));
    text = np_strdup("");
    cr_assert_str_eq(text, "");
    np_free(text);
    long_text = np_format("%0500d|%s", 7, "x");
    cr_assert_eq(strlen(long_text), 502u);
    cr_assert_str_eq(long_text + 499, "7|x");
    np_free(long_text);
}

static void ignore(int signal)
{
    (void)signal;
}

Test(clock, a_sleep_continues_after_signals)
{
    struct sigaction action = {.sa_handler = ignore}, was;
    struct itimerval often = {{0, 2000}, {0, 2000}}, never = {{0, 0}, {0, 0}};
    uint64_t start, slept;

    sigaction(SIGALRM, &action, &was);
    setitimer(ITIMER_REAL, &often, NULL);
    start = np_now_ns();
    np_sleep_until_ns(start + 25000000);
    slept = np_now_ns() - start;
    setitimer(ITIMER_REAL, &never, NULL);
    sigaction(SIGALRM, &was, NULL);
    cr_assert_geq(slept, 25000000u);
    cr_assert_lt(slept, 50000000000u);
    start = np_now_ns();
    np_sleep_until_ns(start - 1);
    np_sleep_until_ns(0);
    cr_assert_lt(np_now_ns() - start, 50000000000u);
}

Test(mem, a_test_can_fail_the_nth_allocation_and_the_caller_gets_the_error)
{
    struct np_err err = {0};
    char *text = NULL;
    int *grown = NULL;
    size_t room = 0;

    for (int n = 1; n <= 5; n++) {
        int failed = 0;
        void *a, *b;

        made_memory_fail(n);
        np_free(a = np_try_alloc(8, NULL));
        np_free(b = np_try_array(2, 8, NULL));
        failed += !a + !b;
        np_free(a = np_try_strdup("a", NULL));
        np_free(b = np_try_format(NULL, "%d", n));
        failed += !a + !b;
        cr_assert_null(np_try_strdup(NULL, NULL));
        failed += np_try_grow(&grown, &room, room + 1, sizeof(int), &err) == -ENOMEM;
        cr_assert_eq(failed, 1, "%d of 5 failed, of which the %d. should", failed, n);
        cr_assert(made_memory_failed());
        cr_assert_eq(made_memory_calls(), 5);
    }
    cr_assert_eq(err.code, -ENOMEM);
    made_memory_fail(1);
    room = 0;
    cr_assert_eq(np_hold(&text, &room, 10, NULL), -ENOMEM);
    made_memory_fail(0);
    cr_assert_eq(np_hold(&text, &room, 10, NULL), 0);
    cr_assert_eq(made_memory_calls(), 1);
    cr_assert_not(made_memory_failed());
    np_free(text);
    np_free(grown);
}
