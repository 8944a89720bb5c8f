/* Hostile bytes as sample_losses.bin. An accepted file gives rows of one epoch, each once, the
 * highest loss first. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/run/losses_file.h"
#include "daemon/run/run_log.h"
#include "loader/base/mem.h"

#define NR_STEPS 1000

static bool is_before(const struct np_row_loss *a, const struct np_row_loss *b)
{
    const float x = isnan(a->loss) ? INFINITY : a->loss, y = isnan(b->loss) ? INFINITY : b->loss;

    return x > y || (x == y && a->number < b->number);
}

static void check(const struct np_losses *losses, uint64_t nr_train)
{
    const uint64_t first = losses->epoch * nr_train;

    if (losses->nr_rows > nr_train)
        abort();
    for (uint64_t i = 0; i < losses->nr_rows; i++)
        if (losses->rows[i].number < first || losses->rows[i].number >= first + nr_train ||
            (i > 0 && !is_before(&losses->rows[i - 1], &losses->rows[i])))
            abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct np_losses_head head = {.batch = 4, .nr_train = 10};
    struct np_losses losses;
    char path[64];
    const int fd = memfd_create("losses", 0);

    memcpy(&head, data, n < sizeof(head) ? 0 : sizeof(head));
    if (head.batch < 1 || head.batch > 100)
        head.batch = 4;
    if (head.nr_train < 1 || head.nr_train > 1000)
        head.nr_train = 10;
    if (fd < 0 || write(fd, data, n) != (ssize_t)n)
        abort();
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    if (np_losses_read(path, head.batch, head.nr_train, NR_STEPS, &losses, NULL) == 0) {
        check(&losses, head.nr_train);
        np_free(losses.rows);
    }
    close(fd);
    return 0;
}
