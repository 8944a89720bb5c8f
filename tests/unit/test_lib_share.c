/* Loaders of libnnpipe that want the same batches. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/lib/lib.h"
#include "tests/test.h"
#include "tests/unit/made_lib.h"
#include "tests/unit/made_sets.h"

/* The batches that a counter tells of. */
static int nr_told(struct nnp_loader *loader, const char *field)
{
    char text[2048];
    int n = -1;

    cr_assert(nnp_counters(loader, text, sizeof(text)) > 0);
    cr_assert(strstr(text, field), "%s", text);
    cr_assert_eq(sscanf(strstr(text, field) + strlen(field), "\": %d", &n), 1);
    return n;
}

/* The next batch, of whatever epoch. */
static void pass_one(struct nnp_loader *loader)
{
    struct nnp_batch *batch;
    int code;

    do
        code = nnp_next(loader, -1, &batch);
    while (code == 0);
    cr_assert(code > 0, "%s", made_error(loader));
    nnp_batch_release(batch);
}

Test(lib, counters_tell_batches_made_here_from_those_of_other_jobs, .timeout = 120)
{
    const char *shared = MADE_CONFIG(", share: {name: lib, wait: 10s}");
    char *folder = made_pictures(20);
    struct nnp_loader *alone, *a, *b;

    setenv("XDG_RUNTIME_DIR", folder, 1);
    alone = made_open(MADE_CONFIG(", share: off"), folder, NULL, NULL);
    a = made_open(shared, folder, NULL, NULL);
    b = made_open(shared, folder, NULL, NULL);
    pass_one(alone);
    cr_expect_eq(nr_told(alone, "made_batches"), 0);
    cr_expect_eq(nr_told(alone, "taken_batches"), 0);
    for (int n = 1; nr_told(a, "taken_batches") + nr_told(b, "taken_batches") == 0; n++) {
        pass_one(a);
        pass_one(b);
        cr_expect(nr_told(a, "made_batches") + nr_told(a, "taken_batches") >= n);
        cr_expect(nr_told(b, "made_batches") + nr_told(b, "taken_batches") >= n);
    }
    nnp_close(alone);
    nnp_close(a);
    nnp_close(b);
    unsetenv("XDG_RUNTIME_DIR");
    remove_set(folder);
}
