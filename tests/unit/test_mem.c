/* Memory and time. */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "loader/base/clock.h"
#include "loader/base/mem.h"

#include "tests/test.h"

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

Test(mem, sizes_beyond_all_memory_give_NULL)
{
    volatile size_t half = SIZE_MAX / 2 + 1;

    cr_assert_null(np_alloc_array(half, 2));
    cr_assert_null(np_alloc_array(half, half));
#ifndef NP_SAN /* the sanitizers end the process at such a request */
    cr_assert_null(np_alloc(SIZE_MAX - 10));
    cr_assert_null(np_alloc(SIZE_MAX));
    cr_assert_null(np_alloc(half));
#endif
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

Test(clock, sleeping_goes_on_when_signals_arrive)
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
    alarm(1200); /* the plain runner's, which setitimer() took */
    cr_assert_geq(slept, 25000000u);
    cr_assert_lt(slept, 5000000000u);
    start = np_now_ns();
    np_sleep_until_ns(start - 1);
    np_sleep_until_ns(0);
    cr_assert_lt(np_now_ns() - start, 1000000000u);
}
