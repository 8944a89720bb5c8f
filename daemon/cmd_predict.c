/* `nnpipe predict CONFIG --weights FILE IMAGE...`: what the network sees in single images.
 * Each goes through the same decoder, chain and resizer as a test image of a run. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "daemon/cmd.h"
#include "daemon/config.h"
#include "daemon/evaluate.h"
#include "daemon/inference.h"
#include "daemon/json.h"
#include "daemon/ui/progress.h"
#include "loader/augment.h"
#include "loader/base/io.h"
#include "loader/codec.h"
#include "loader/geometry.h"
#include "loader/resize.h"

#define TOP             5
#define MAX_IMAGE_BYTES (256ull << 20)

struct predictor {
    struct np_inference net;
    struct np_decoder *decoder;
    struct np_resizer *resizer;
    uint8_t *row;     /* (height, width, channels), pinned */
    int32_t *label;   /* one, masked */
    void *device_row; /* NULL: the device reads row itself */
    void *device_label;
    size_t row_bytes;
    float *logits; /* (classes) */
    double *odds;  /* (classes) */
};

static int open_predictor(struct predictor *p, struct np_err *err)
{
    const struct np_setup *setup = &p->net.setup;
    struct np_device *device = p->net.device;
    size_t classes = (size_t)setup->classes->nr_items;

    p->row_bytes =
        (size_t)setup->height * (size_t)setup->width * (size_t)p->net.config->loader.channels;
    p->row = device->pinned.alloc(device->pinned.context, p->row_bytes);
    p->label = device->pinned.alloc(device->pinned.context, sizeof(*p->label));
    p->resizer = np_resizer_new();
    p->logits = np_alloc_array(classes, sizeof(*p->logits));
    p->odds = np_alloc_array(classes, sizeof(*p->odds));
    if (device->ops->alloc) {
        p->device_row = device->ops->alloc(device, p->row_bytes);
        p->device_label = device->ops->alloc(device, sizeof(*p->label));
    }
    if (!p->row || !p->label || !p->resizer || !p->logits || !p->odds ||
        (device->ops->alloc && (!p->device_row || !p->device_label)))
        return np_err_set(err, -ENOMEM, "out of memory for an image");
    *p->label = -1;
    int code = np_decoder_new(&p->decoder, err);

    if (!code)
        np_decoder_limit(p->decoder, (uint64_t)p->net.config->loader.max_pixels);
    return code;
}

static void close_predictor(struct predictor *p)
{
    struct np_device *device = p->net.device;

    if (device && p->row)
        device->pinned.free(device->pinned.context, p->row, p->row_bytes);
    if (device && p->label)
        device->pinned.free(device->pinned.context, p->label, sizeof(*p->label));
    if (p->device_row)
        device->ops->free(device, p->device_row);
    if (p->device_label)
        device->ops->free(device, p->device_label);
    np_resizer_free(p->resizer);
    np_decoder_free(p->decoder);
    np_free(p->logits);
    np_free(p->odds);
    np_inference_close(&p->net);
}

/* One file into p->row. */
static int make_row(struct predictor *p, const uint8_t *bytes, size_t nr_bytes, struct np_err *err)
{
    const struct np_setup *setup = &p->net.setup;
    const struct np_chain *chain = p->net.config->test_augment;
    int channels = (int)p->net.config->loader.channels;
    uint64_t seed = (uint64_t)p->net.config->seed;
    struct np_geometry geometry;
    struct np_image_info info;
    struct np_pixels pixels;
    int code = np_decoder_open(p->decoder, bytes, nr_bytes, NULL, &info, err);

    if (code < 0)
        return code;
    np_augment_draw(chain, seed, 0, 0, info.width, info.height, &geometry);
    np_geometry_order(&geometry, (enum np_pixels_rule)p->net.config->loader.pixels);
    if (geometry.window_w != setup->width || geometry.window_h != setup->height)
        return np_err_set(err, -EINVAL,
            "its %dx%d pixels come out of the test chain as %dx%d, the network takes %dx%d; a "
            "resize and center_crop in loader.test_augment fit any size",
            info.width, info.height, geometry.window_w, geometry.window_h, setup->width,
            setup->height);
    code = np_decoder_decode(p->decoder, &geometry, channels, &pixels, err);
    if (code == 0)
        code = np_resize(p->resizer, &pixels, &geometry, p->row, err);
    if (code == 0)
        np_augment_apply(chain, seed, 0, 0, p->row, setup->height, setup->width, channels);
    return code;
}

/* Row and label where the device sees them. */
static int upload(struct predictor *p, const void **ret_row, const void **ret_label)
{
    struct np_device *device = p->net.device;
    struct np_event event = {0};
    int code;

    *ret_row = p->device_row ? p->device_row : p->row;
    *ret_label = p->device_label ? p->device_label : (void *)p->label;
    if (!p->device_row)
        return 0;
    if ((code = device->ops->upload(device, p->device_row, p->row, p->row_bytes)) < 0 ||
        (code = device->ops->upload(device, p->device_label, p->label, sizeof(*p->label))) < 0)
        return code;
    device->ops->record(device, NP_STREAM_COPY, &event);
    device->ops->follow(device, NP_STREAM_COMPUTE, &event);
    code = device->ops->done(device, &event, true);
    return code < 0 ? code : 0;
}

/* Softmax, in double, against the largest so that nothing overflows. */
static void softmax(const float *logits, int n, double *odds)
{
    double max = -INFINITY, sum = 0;

    for (int i = 0; i < n; i++)
        max = fmax(max, (double)logits[i]);
    for (int i = 0; i < n; i++)
        sum += odds[i] = exp((double)logits[i] - max);
    for (int i = 0; i < n; i++)
        odds[i] /= sum;
}

static int run_net(struct predictor *p, struct np_err *err)
{
    const struct np_plan_ops *ops = p->net.device->plan_ops;
    struct np_metrics metrics;
    const void *row, *label;
    int code = upload(p, &row, &label);

    if (code < 0)
        return np_err_set(err, code, "the device could not take the image");
    if ((code = ops->eval(p->net.plan, row, label, err)) < 0 ||
        (code = ops->metrics(p->net.plan, false, &metrics, err)) < 0 ||
        (code = ops->logits(p->net.plan, p->logits, err)) < 0 ||
        (code = np_outputs_check(p->logits, p->net.setup.classes, err)) < 0)
        return code;
    softmax(p->logits, p->net.setup.classes->nr_items, p->odds);
    return 0;
}

static int predict_file(struct predictor *p, const char *path, struct np_err *err)
{
    char *bytes = NULL;
    uint64_t nr_bytes = 0;
    int code = np_read_file(path, MAX_IMAGE_BYTES, &bytes, &nr_bytes, err);

    if (code < 0)
        return code;
    code = make_row(p, (const uint8_t *)bytes, nr_bytes, err);
    if (code == 0)
        code = run_net(p, err);
    if (code < 0)
        np_err_context(err, "%s", path);
    np_free(bytes);
    return code;
}

/* The largest probability among those not taken yet (taken: -1 in odds). */
static int take_best(double *odds, int n)
{
    int best = 0;

    for (int i = 1; i < n; i++)
        if (odds[i] > odds[best])
            best = i;
    return best;
}

static void report(struct predictor *p, const char *path, struct np_ui *ui)
{
    const struct np_node *classes = p->net.setup.classes;
    struct np_node *top = np_node_new(NP_NODE_LIST, 0, 0);
    int n = classes->nr_items, first = take_best(p->odds, n);
    double odds = p->odds[first];
    char text[512] = "";

    for (int k = 0; k < TOP && k < n; k++) {
        int best = take_best(p->odds, n);
        struct np_node *item = np_node_new(NP_NODE_MAP, 0, 0);
        char number[32];

        snprintf(number, sizeof(number), "%.6g", p->odds[best]);
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%.60s %.2f%%", k ? ", " : "",
            classes->items[best]->text, 100 * p->odds[best]);
        struct np_node *name = np_node_scalar(classes->items[best]->text, 0, 0);
        name->quoted = true;
        np_node_add(item, "class", name);
        np_node_add(item, "probability", np_node_scalar(number, 0, 0));
        np_node_add(top, NULL, item);
        p->odds[best] = -1;
    }
    np_json_begin(&ui->object, "prediction");
    np_json_text(&ui->object, "path", path);
    np_json_int(&ui->object, "label", first);
    np_json_text(&ui->object, "class", classes->items[first]->text);
    np_json_real(&ui->object, "probability", odds);
    np_json_node(&ui->object, "top", top);
    np_ui_event(ui, np_json_end(&ui->object));
    if (!ui->json)
        np_ui_say(ui, "%s: %s", path, text);
    np_node_free(top);
}

static void note(void *context, const char *text)
{
    fprintf(stderr, "%s\n", text);
    (void)context;
}

static int predict(struct np_config *config, const char *weights,
    const struct np_overrides *overrides, char **paths, int nr_paths, struct np_ui *ui)
{
    const struct np_source_progress progress = {.note = note};
    struct predictor p = {0};
    struct np_err err = {0};
    int exit_code = NP_EXIT_DONE;

    if (np_inference_open(config, weights, overrides, &progress, &p.net, &err) < 0 ||
        open_predictor(&p, &err) < 0) {
        np_ui_error(ui, &err);
        exit_code = err.code == -ENOEXEC ? NP_EXIT_USAGE : NP_EXIT_FAILED;
        nr_paths = 0;
    }
    for (int i = 0; i < nr_paths; i++) { /* a bad image does not keep the others */
        struct np_err one = {0};
        if (predict_file(&p, paths[i], &one) == 0) {
            report(&p, paths[i], ui);
        } else {
            np_ui_error(ui, &one);
            exit_code = NP_EXIT_FAILED;
        }
    }
    close_predictor(&p);
    return exit_code;
}

int np_cmd_predict(int argc, char **argv)
{
    const char *weights = NULL, *device = NULL;
    bool json = false;
    const struct np_flag flags[] = {
        {"--weights", &weights, NULL, NULL},
        {"--device", &device, NULL, NULL},
        {"--json", NULL, &json, NULL},
        {NULL, NULL, NULL, NULL},
    };
    struct np_overrides overrides = {0};
    struct np_config *config = NULL;
    struct np_ui ui;
    int nr, code = np_flags_parse(argc, argv, flags, &overrides, &nr);

    if (code == 0 && (nr < 2 || !weights)) {
        fprintf(stderr, "nnpipe predict: expected CONFIG --weights FILE IMAGE...\n");
        code = NP_EXIT_USAGE;
    }
    if (code == 0)
        code = np_cmd_config(argv[1], &overrides, device, &config);
    if (code)
        return code;
    config->loader.batch = 1;
    np_ui_init(&ui, json);
    code = predict(config, weights, &overrides, argv + 2, nr - 1, &ui);
    np_ui_fini(&ui);
    np_config_free(config);
    return code;
}
