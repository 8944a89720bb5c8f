/* `nnpipe serve RUN`: answers over HTTP which class a picture shows. Main thread: the device. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "daemon/cmd.h"
#include "daemon/config/config.h"
#include "daemon/run/compute.h"
#include "daemon/serve/batcher.h"
#include "daemon/serve/server.h"
#include "daemon/ui/progress.h"
#include "loader/base/clock.h"
#include "loader/base/mem.h"
#include "loader/base/text.h"

#define LISTEN      "127.0.0.1:8500"
#define MAX_BATCH   "32"
#define MAX_DELAY   "2"
#define MAX_WAITING "256"
#define MAX_SIZE    "32"
#define TOP         "5"

struct numbers { /* of the command line */
    int64_t max_batch, max_waiting, max_size, top;
    double max_delay_ms;
};

static volatile int end_fd = -1; /* of the server */

static void on_end(int signal)
{
    const uint64_t one = 1;
    const int before = errno;

    if (write(end_fd, &one, sizeof(one)) < 0) /* it ends already */
        errno = before;
}

/* From now on SIGTERM and Ctrl-C end the server after its last answers. */
static void take_signals(const struct np_server *server)
{
    struct sigaction action = {.sa_handler = on_end, .sa_flags = SA_RESTART};

    end_fd = np_server_end_fd(server);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
}

static int run(struct np_inference *net, const struct np_server_options *options,
    const struct numbers *numbers, struct np_err *err)
{
    struct np_server *server = NULL;
    struct np_batcher *batcher = NULL;
    char how[224];
    int code = np_server_open(options, &server, err);

    if (code == 0) {
        const struct np_batcher_options batching = {.net = net,
            .max_delay_ns = (uint64_t)(numbers->max_delay_ms * 1e6),
            .nr_decoders = np_compute_threads(net->config),
            .max_waiting = (int)numbers->max_waiting,
            .done_fd = np_server_done_fd(server)};
        code = np_batcher_open(&batching, &batcher, err);
    }
    if (code == 0)
        code = np_server_start(server, batcher, err);
    if (code == 0) {
        take_signals(server);
        np_inference_text(net, how, sizeof(how));
        fprintf(stderr, "nnpipe serve: http://%s/ answers %s, %d classes, batches of up to %d\n",
            np_server_at(server), how, net->setup.sets.classes->nr_items,
            net->setup.eval_graph->batch);
        if (!np_server_is_loopback(server))
            fprintf(stderr, "nnpipe serve: anybody who reaches %s may ask: there is no password\n",
                np_server_at(server));
        code = np_batcher_run(batcher, err);
        np_server_finish(server);
        end_fd = -1;
    }
    np_batcher_close(batcher);
    np_server_close(server);
    return code;
}

static int serve(struct np_config *config, const char *weights,
    const struct np_overrides *overrides, const struct np_server_options *options,
    const struct numbers *numbers)
{
    uint64_t last_ns = np_now_ns();
    const struct np_source_progress progress = {
        .note = np_note, .count = np_note_listing, .context = &last_ns};
    struct np_inference net = {.serving = true};
    struct np_server_options with_net = *options;
    struct np_err err = {0};

    int code = np_inference_open(config, weights, overrides, &progress, &net, &err);
    if (code == 0) {
        with_net.net = &net;
        code = run(&net, &with_net, numbers, &err);
    }
    if (code < 0)
        np_complain(&err);
    np_inference_close(&net);
    return code == -ENOEXEC || code == -EINVAL ? NP_EXIT_USAGE
           : code < 0                          ? NP_EXIT_FAILED
                                               : NP_EXIT_DONE;
}

struct chosen {
    const char *weights, *config;
    char *own; /* config, if it is the run's */
};

/* RUN, --weights RUN, or CONFIG --weights FILE. */
static int choose(int nr, const char *operand, const char *weights, struct chosen *chosen)
{
    if (nr > 1 || (nr == 0 && !weights))
        return np_usage("serve", "expected a RUN, or a CONFIG with --weights FILE");
    if (nr == 1 && weights && !np_inference_names_config(operand, weights))
        return np_usage("serve", "expected a RUN without --weights, or a CONFIG with it");
    chosen->weights = weights ? weights : operand;
    if (nr == 1 && weights)
        chosen->config = operand;
    else
        chosen->config = chosen->own = np_inference_config(chosen->weights);
    if (!chosen->config && weights)
        return np_usage("serve", "%s belongs to no run: it needs its CONFIG beside it", weights);
    if (!chosen->config)
        return np_usage(
            "serve", "%s is not a run; a CONFIG needs --weights FILE beside it", operand);
    return 0;
}

int np_cmd_serve(int argc, char **argv)
{
    const char *weights = NULL, *device = NULL, *listen = LISTEN, *max_batch = MAX_BATCH,
               *max_delay = MAX_DELAY, *max_waiting = MAX_WAITING, *max_size = MAX_SIZE, *top = TOP;
    const struct np_flag flags[] = {
        {"--weights", &weights, NULL, NULL},
        {"--listen", &listen, NULL, NULL},
        {"--max-batch", &max_batch, NULL, NULL},
        {"--max-delay", &max_delay, NULL, NULL},
        {"--max-waiting", &max_waiting, NULL, NULL},
        {"--max-size", &max_size, NULL, NULL},
        {"--top", &top, NULL, NULL},
        {"--device", &device, NULL, NULL},
        {NULL, NULL, NULL, NULL},
    };
    struct np_overrides overrides = {0};
    struct np_config *config = NULL;
    struct numbers numbers;
    struct chosen chosen = {0};
    int nr, code = np_flags_parse(argc, argv, flags, &overrides, &nr);

    if (code)
        return code;
    if (!np_text_int(max_batch, 1, 4096, &numbers.max_batch) ||
        !np_text_real(max_delay, 0, 10000, &numbers.max_delay_ms) ||
        !np_text_int(max_waiting, 1, 65536, &numbers.max_waiting) ||
        !np_text_int(max_size, 1, 256, &numbers.max_size) ||
        !np_text_int(top, 1, INT32_MAX, &numbers.top))
        return np_usage("serve",
            "--max-batch takes 1 to 4096, --max-delay 0 to 10000 (ms), --max-waiting 1 to 65536, "
            "--max-size 1 to 256 (MiB), --top at least 1");
    if ((code = choose(nr, argv[1], weights, &chosen)) == 0)
        code = np_cmd_config(chosen.config, &overrides, device, &config);
    np_free(chosen.own);
    if (code)
        return code;
    config->loader.batch = numbers.max_batch;
    const struct np_server_options options = {.weights = chosen.weights,
        .listen = listen,
        .top = (int)numbers.top,
        .max_body_mib = (int)numbers.max_size,
        .max_waiting = (int)(numbers.max_waiting + 2 * numbers.max_batch)};
    code = serve(config, chosen.weights, &overrides, &options, &numbers);
    np_config_free(config);
    return code;
}
