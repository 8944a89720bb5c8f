#include "daemon/config/config_lanes.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "trainer/plan.h"

#define MAX_NAMED 5 /* numbers of a list */

/* "3", "3 or 6", "3, 6 or 12" */
static void list(const int64_t *numbers, int nr, char text[NP_LANES_TEXT])
{
    text[0] = '\0';
    for (int i = 0; i < nr; i++) {
        const size_t used = strlen(text);

        snprintf(text + used, NP_LANES_TEXT - used, "%s%lld",
            i == 0       ? ""
            : i + 1 < nr ? ", "
                         : " or ",
            (long long)numbers[i]);
    }
}

/* The largest ones, if there are too many. */
void np_lanes_text(int64_t lanes, char text[NP_LANES_TEXT])
{
    int64_t numbers[MAX_NAMED];
    int nr = 0;

    for (int64_t n = 1; n <= lanes; n++) {
        if (lanes % n)
            continue;
        if (nr == MAX_NAMED)
            memmove(numbers, numbers + 1, (size_t)--nr * sizeof(*numbers));
        numbers[nr++] = n;
    }
    list(numbers, nr, text);
}

bool np_lanes_sum_as_one(int64_t lanes, int64_t processes)
{
    const int64_t own = lanes / processes;

    return processes == 1 || (own & (own - 1)) == 0;
}

/* --- a config --------------------------------------------------------------------------------- */

/* Batches near this one that n divides: "30 and 36". */
static void near_batches(int64_t batch, int64_t n, char text[NP_LANES_TEXT])
{
    const int64_t below = batch / n * n;

    if (below > 0)
        snprintf(text, NP_LANES_TEXT, "%lld and %lld", (long long)below, (long long)(below + n));
    else
        snprintf(text, NP_LANES_TEXT, "%lld", (long long)n);
}

static void check_over(const struct np_config *config, struct np_report *report)
{
    const struct np_node *node = np_node_get(config->run_node, "batchnorm_over");
    const int64_t over = config->run.batchnorm_over, lanes = config->run.lanes;
    const int64_t lane = config->loader.batch / (lanes > 0 ? lanes : 1);

    if (!node || over <= 0)
        return;
    if (lanes <= 1)
        np_report_add(report, node->line, node->column,
            "train.batchnorm_over: groups of rows need a number of train.lanes, which divide a "
            "batch");
    else if (over < lane ? lane % over != 0 : over % lane != 0 || lanes % (over / lane) != 0)
        np_report_add(report, node->line, node->column,
            "train.batchnorm_over: %lld rows are neither an equal part of a lane (%lld rows) nor "
            "whole lanes that divide the %lld",
            (long long)over, (long long)lane, (long long)lanes);
}

void np_config_check_lanes(const struct np_config *config, struct np_report *report)
{
    const struct np_node *node = np_node_get(config->run_node, "lanes");
    const int64_t lanes = config->run.lanes, batch = config->loader.batch;
    char near[NP_LANES_TEXT];

    if (batch < 1)
        return;
    if (lanes <= 1 || !node || batch % lanes == 0) {
        check_over(config, report);
        return;
    }
    near_batches(batch, lanes, near);
    np_report_add(report, node->line, node->column,
        "train.lanes: %lld does not divide loader.batch, %lld; it divides %s", (long long)lanes,
        (long long)batch, near);
}

/* Lanes for so many processes, which sum as one. */
static void good_lanes(int64_t batch, int64_t processes, char text[NP_LANES_TEXT])
{
    int64_t numbers[MAX_NAMED];
    int nr = 0;

    for (int64_t n = processes; n <= NP_MAX_LANES && nr < MAX_NAMED && batch % n == 0; n *= 2)
        numbers[nr++] = n;
    list(numbers, nr, text);
}

int np_config_check_processes(const struct np_config *config, int64_t processes, struct np_err *err)
{
    const int64_t batch = config->loader.batch, lanes = config->run.lanes;
    const int64_t over = config->run.batchnorm_over;
    char text[NP_LANES_TEXT];

    if (batch % processes) {
        near_batches(batch, processes, text);
        return np_err_set(err, -EINVAL,
            "loader.batch: %lld rows cannot be divided among %lld processes, but %s can",
            (long long)batch, (long long)processes, text);
    }
    if (lanes > 0 && lanes % processes) {
        good_lanes(batch, processes, text);
        return np_err_set(err, -EINVAL,
            "train.lanes: %lld cannot be divided among %lld processes, which need as many each: "
            "take %s",
            (long long)lanes, (long long)processes, text);
    }
    if (over > 0 && batch / processes % over)
        return np_err_set(err, -EINVAL,
            "train.batchnorm_over: groups of rows are of one process, and %lld rows do not divide "
            "the %lld that each of %lld processes has",
            (long long)over, (long long)(batch / processes), (long long)processes);
    return 0;
}
