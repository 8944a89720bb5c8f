/* Sorts the samples by class, and draws by arithmetic, as the sampler does. */
#include "loader/balance.h"

#include <errno.h>

#include "loader/base/mem.h"
#include "loader/base/rng.h"

static uint64_t number_of(const uint32_t *order, uint64_t i)
{
    return order ? order[i] : i;
}

/* first: (classes of the index + 1) zeros. Sets first[class + 1] to the number of its samples. */
static int count(const struct np_index *index, const uint32_t *order, uint64_t nr_samples,
    uint32_t *first, struct np_err *err)
{
    for (uint64_t i = 0; i < nr_samples; i++) {
        const struct np_record record = np_index_get(index, number_of(order, i));

        if (record.no_label)
            return np_err_set(err, -EINVAL,
                "loader.balance: sample %llu of the training set is in no class",
                (unsigned long long)number_of(order, i));
        first[record.label + 1]++;
    }
    return 0;
}

/* Turns numbers of samples into places, and leaves out the classes without any. at: receives the
 * place of each class of the index. */
static uint32_t place(int nr_classes, uint32_t *first, uint32_t *at)
{
    uint32_t n = 0, end = 0;

    for (int class = 0; class < nr_classes; class ++) {
        const uint32_t samples = first[class + 1];

        at[class] = end;
        end += samples;
        if (samples)
            first[++n] = end; /* n <= class + 1: that number is read */
    }
    return n;
}

int np_balance_new(const struct np_index *index, const uint32_t *order, uint64_t nr_samples,
    struct np_balance **ret_balance, struct np_err *err)
{
    const size_t nr_classes = (size_t)index->nr_classes;
    struct np_balance *balance = np_try_alloc(sizeof(*balance), err);
    uint32_t *at = np_try_array(nr_classes + 1, sizeof(*at), err);
    int code = balance && at ? 0 : -ENOMEM;

    if (code == 0) {
        balance->first = np_try_array(nr_classes + 1, sizeof(*balance->first), err);
        balance->samples = np_try_array(nr_samples + 1, sizeof(*balance->samples), err);
        code = balance->first && balance->samples ? 0 : -ENOMEM;
    }
    if (code == 0)
        code = count(index, order, nr_samples, balance->first, err);
    if (code == 0) {
        balance->nr_classes = place(index->nr_classes, balance->first, at);
        for (uint64_t i = 0; i < nr_samples; i++)
            balance->samples[at[np_index_get(index, number_of(order, i)).label]++] = (uint32_t)i;
        *ret_balance = balance;
    } else {
        np_balance_free(balance);
    }
    np_free(at);
    return code;
}

void np_balance_free(struct np_balance *balance)
{
    if (!balance)
        return;
    np_free(balance->first);
    np_free(balance->samples);
    np_free(balance);
}

uint32_t np_balance_sample(const struct np_balance *balance, uint64_t seed, uint64_t draw)
{
    const uint32_t class = (uint32_t)(draw % balance->nr_classes);
    const uint64_t of_class = draw / balance->nr_classes;
    const uint32_t *first = &balance->first[class];
    const uint64_t n = first[1] - first[0];

    return balance->samples[first[0] + np_permute(n, seed, NP_STREAM_BALANCE,
                                           (uint32_t)(of_class / n), class, of_class % n)];
}
