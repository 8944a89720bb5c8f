/* Failing allocations. The linker puts __wrap_X in X's place where another file calls it (see the Makefile), and the
 * program's own malloc() comes before libc's, for libraries as well. */
#include "tests/unit/made_memory.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "loader/base/mem.h"

/* --- np_try_* -------------------------------------------------------------------------------- */

static _Atomic int failing, nr_calls, has_failed;
static _Atomic size_t nr_bytes;
static void *_Atomic caller; /* returns to here */
extern const char __executable_start[];

void made_memory_fail(int n)
{
    atomic_store(&failing, n);
    atomic_store(&nr_calls, 0);
    atomic_store(&has_failed, 0);
    atomic_store(&nr_bytes, 0);
}

int made_memory_failed(void)
{
    return atomic_load(&has_failed);
}

int made_memory_calls(void)
{
    return atomic_load(&nr_calls);
}

size_t made_memory_bytes(void)
{
    return atomic_load(&nr_bytes);
}

static void find_name(size_t address, char *name, int bytes)
{
    char command[128];
    FILE *lines;

    snprintf(command, sizeof(command), "addr2line -f -e /proc/%d/exe %#zx", (int)getpid(), address);
    lines = popen(command, "r");
    if (!lines || !fgets(name, bytes, lines))
        *name = '\0';
    name[strcspn(name, "\n")] = '\0';
    if (lines)
        pclose(lines);
}

const char *made_memory_caller(void)
{
    static struct {
        size_t address;
        char name[64];
    } known[256]; /* a search takes a tenth of a second */
    const size_t address = (size_t)((const char *)atomic_load(&caller) - 1 - __executable_start);
    size_t at = address % 256;

    if (!made_memory_failed())
        return "";
    if (known[at].address != address)
        find_name(address, known[at].name, sizeof(known[at].name));
    known[at].address = address;
    return known[at].name;
}

static int runs_out(struct np_err *err, void *return_address)
{
    if (atomic_fetch_add(&nr_calls, 1) + 1 != atomic_load(&failing))
        return 0;
    atomic_store(&caller, return_address);
    atomic_store(&has_failed, 1);
    return np_err_set(err, -ENOMEM, "out of memory: a test has made it so");
}

void *__real_np_try_alloc(size_t bytes, struct np_err *err);
void *__real_np_try_array(size_t n, size_t bytes, struct np_err *err);
char *__real_np_try_strdup(const char *text, struct np_err *err);
int __real_np_try_grow(void *array, size_t *room, size_t n, size_t item_bytes, struct np_err *err);
int __real_np_hold(void *memory, size_t *room, size_t bytes, struct np_err *err);
void *__wrap_np_try_alloc(size_t bytes, struct np_err *err);
void *__wrap_np_try_array(size_t n, size_t bytes, struct np_err *err);
char *__wrap_np_try_strdup(const char *text, struct np_err *err);
char *__wrap_np_try_format(struct np_err *err, const char *format, ...);
int __wrap_np_try_grow(void *array, size_t *room, size_t n, size_t item_bytes, struct np_err *err);
int __wrap_np_hold(void *memory, size_t *room, size_t bytes, struct np_err *err);

void *__wrap_np_try_alloc(size_t bytes, struct np_err *err)
{
    atomic_fetch_add(&nr_bytes, bytes);
    return runs_out(err, __builtin_return_address(0)) ? NULL : __real_np_try_alloc(bytes, err);
}

void *__wrap_np_try_array(size_t n, size_t bytes, struct np_err *err)
{
    atomic_fetch_add(&nr_bytes, n * bytes);
    return runs_out(err, __builtin_return_address(0)) ? NULL : __real_np_try_array(n, bytes, err);
}

char *__wrap_np_try_strdup(const char *text, struct np_err *err)
{
    return text && runs_out(err, __builtin_return_address(0)) ? NULL
                                                              : __real_np_try_strdup(text, err);
}

char *__wrap_np_try_format(struct np_err *err, const char *format, ...)
{
    va_list args;
    char *text = NULL;
    int bytes;

    if (runs_out(err, __builtin_return_address(0)))
        return NULL;
    va_start(args, format);
    bytes = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (bytes >= 0 && (text = __real_np_try_alloc((size_t)bytes + 1, err))) {
        va_start(args, format);
        vsnprintf(text, (size_t)bytes + 1, format, args);
        va_end(args);
    }
    return text;
}

int __wrap_np_try_grow(void *array, size_t *room, size_t n, size_t item_bytes, struct np_err *err)
{
    return n > *room && runs_out(err, __builtin_return_address(0))
               ? -ENOMEM
               : __real_np_try_grow(array, room, n, item_bytes, err);
}

int __wrap_np_hold(void *memory, size_t *room, size_t bytes, struct np_err *err)
{
    if (bytes <= *room || !runs_out(err, __builtin_return_address(0)))
        return __real_np_hold(memory, room, bytes, err);
    np_free(*(void **)memory); /* as np_hold() does on failure */
    *(void **)memory = NULL;
    *room = 0;
    return -ENOMEM;
}

/* --- malloc() -------------------------------------------------------------------------------- */

static _Thread_local int left, failed; /* allocations until one fails; 0: never */

void made_memory_fail_libc(int n)
{
    left = n;
    failed = 0;
}

int made_memory_failed_libc(void)
{
    return failed;
}

#ifndef NP_SAN
#include <stdlib.h>

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t n, size_t bytes);
void *__libc_realloc(void *memory, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);

static int fails(void)
{
    if (left == 0 || --left > 0)
        return 0;
    failed = 1;
    return 1;
}

void *malloc(size_t bytes)
{
    return fails() ? NULL : __libc_malloc(bytes);
}

void *calloc(size_t n, size_t bytes)
{
    return fails() ? NULL : __libc_calloc(n, bytes);
}

void *realloc(void *memory, size_t bytes)
{
    return fails() ? NULL : __libc_realloc(memory, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    return fails() ? NULL : __libc_memalign(alignment, bytes);
}
#endif
