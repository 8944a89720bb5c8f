#include "daemon/serve/answers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/config/config.h"
#include "daemon/run/compute.h"
#include "loader/base/mem.h"

static const double bounds_s[NP_NR_BUCKETS - 1] = {
    .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5};

void np_answers_fini(struct np_answers *answers)
{
    np_json_fini(&answers->json);
}

const char *np_answers_error(struct np_answers *answers, const char *code, const char *text)
{
    struct np_json *json = &answers->json;

    np_json_begin(json, NULL);
    np_json_open(json, "error", '{');
    np_json_text(json, "code", code);
    np_json_text(json, "text", text);
    np_json_close(json, '}');
    return np_json_end(json);
}

const char *np_answers_prediction(
    struct np_answers *answers, const struct np_inference *net, double *odds, int top)
{
    struct np_json *json = &answers->json;
    const int n = net->setup.sets.classes->nr_items, type = net->config->data.train.label_type;

    np_json_begin(json, NULL);
    if (type == NP_LABEL_VALUE) {
        np_json_open(json, "values", '{');
        for (int i = 0; i < n; i++)
            np_json_real(json, net->setup.sets.classes->items[i]->text, odds[i]);
        np_json_close(json, '}');
        return np_json_end(json);
    }
    if (type == NP_LABEL_MULTI)
        np_odds_classes(json, net->setup.sets.classes, odds);
    for (int k = 0; k < top && k < n; k++) {
        const int best = np_take_best(odds, n);
        const char *name = net->setup.sets.classes->items[best]->text;

        if (k == 0) {
            np_json_int(json, "label", best);
            np_json_text(json, "class", name);
            np_json_real(json, "probability", odds[best]);
            np_json_open(json, "top", '[');
        }
        np_json_open(json, NULL, '{');
        np_json_text(json, "class", name);
        np_json_real(json, "probability", odds[best]);
        np_json_close(json, '}');
        odds[best] = -1;
    }
    np_json_close(json, ']');
    return np_json_end(json);
}

const char *np_answers_model(
    struct np_answers *answers, const struct np_inference *net, const char *weights)
{
    struct np_json *json = &answers->json;
    const struct np_node *classes = net->setup.sets.classes;

    np_json_begin(json, NULL);
    np_json_text(json, "weights", weights);
    np_json_text(json, "label_type", np_label_types[net->config->data.train.label_type]);
    np_json_text(json, "device", net->device->name);
    np_json_text(json, "precision", np_precision_names[net->precision]);
    np_json_text(json, "tta", np_tta_names[net->config->run.tta]);
    np_json_int(json, "height", net->setup.sets.size.height);
    np_json_int(json, "width", net->setup.sets.size.width);
    np_json_int(json, "channels", net->config->loader.channels);
    np_json_int(json, "max_batch", net->setup.eval_graph->batch);
    np_json_open(json, "classes", '[');
    for (int i = 0; i < classes->nr_items; i++)
        np_json_text(json, NULL, classes->items[i]->text);
    np_json_close(json, ']');
    return np_json_end(json);
}

void np_answers_count(struct np_answers *answers, unsigned status)
{
    answers->statuses[status / 100 < 6 ? status / 100 : 5]++;
}

void np_answers_measure(struct np_answers *answers, const struct np_asked *asked)
{
    const double seconds = (double)(asked->done_ns - asked->given_ns) * 1e-9;
    int bucket = 0;

    while (bucket < NP_NR_BUCKETS - 1 && seconds > bounds_s[bucket])
        bucket++;
    answers->latencies[bucket]++;
    answers->latency_sum_s += seconds;
    answers->pictures++;
    answers->batches_of += (uint64_t)asked->batch_rows;
}

char *np_answers_prometheus(const struct np_answers *answers, int waiting, int held)
{
    char *text = NULL;
    size_t bytes = 0;
    uint64_t sum = 0;
    FILE *out = open_memstream(&text, &bytes);

    if (!out)
        return np_strdup("");
    fputs("# HELP nnpipe_serve_answers_total Answers by the first digit of their status.\n"
          "# TYPE nnpipe_serve_answers_total counter\n",
        out);
    for (int i = 2; i < 6; i++)
        fprintf(out, "nnpipe_serve_answers_total{status=\"%dxx\"} %llu\n", i,
            (unsigned long long)answers->statuses[i]);
    fprintf(out,
        "# HELP nnpipe_serve_waiting Pictures that wait for a batch.\n"
        "# TYPE nnpipe_serve_waiting gauge\nnnpipe_serve_waiting %d\n"
        "# HELP nnpipe_serve_held Requests whose answers are due.\n"
        "# TYPE nnpipe_serve_held gauge\nnnpipe_serve_held %d\n"
        "# HELP nnpipe_serve_batch_rows_sum Pictures in the batches of all pictures; divided by "
        "nnpipe_serve_seconds_count: the mean.\n"
        "# TYPE nnpipe_serve_batch_rows_sum counter\nnnpipe_serve_batch_rows_sum %llu\n"
        "# HELP nnpipe_serve_seconds From the end of a request to its result.\n"
        "# TYPE nnpipe_serve_seconds histogram\n",
        waiting, held, (unsigned long long)answers->batches_of);
    for (int i = 0; i < NP_NR_BUCKETS; i++) {
        char bound[16] = "+Inf";

        if (i < NP_NR_BUCKETS - 1)
            snprintf(bound, sizeof(bound), "%g", bounds_s[i]);
        sum += answers->latencies[i];
        fprintf(
            out, "nnpipe_serve_seconds_bucket{le=\"%s\"} %llu\n", bound, (unsigned long long)sum);
    }
    fprintf(out, "nnpipe_serve_seconds_sum %.6f\nnnpipe_serve_seconds_count %llu\n",
        answers->latency_sum_s, (unsigned long long)answers->pictures);
    fclose(out);
    return text;
}
