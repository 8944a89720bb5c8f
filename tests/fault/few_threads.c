/* Preloaded into a run: after FEW_THREADS threads (not set: as many as it wants) no other one can be started. Where it
 * ends the file $FEW_THREADS_SAID gets "started N refused M". */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

static atomic_int asked;

static int allowed(void)
{
    const char *text = getenv("FEW_THREADS");

    return text ? atoi(text) : 1 << 30;
}

int pthread_create(
    pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *argument)
{
    int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) =
        dlsym(RTLD_NEXT, "pthread_create");

    return atomic_fetch_add(&asked, 1) < allowed() ? real(thread, attributes, start, argument)
                                                   : EAGAIN;
}

static void __attribute__((destructor)) say(void)
{
    const char *path = getenv("FEW_THREADS_SAID");
    FILE *file = path ? fopen(path, "w") : NULL;
    const int all = atomic_load(&asked), max = allowed();

    if (!file)
        return;
    fprintf(file, "started %d refused %d\n", all < max ? all : max, all > max ? all - max : 0);
    fclose(file);
}
