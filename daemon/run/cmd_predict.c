/* `nnpipe predict [CONFIG] --weights FILE IMAGE|FOLDER...`: classifies single images. Each
 * passes the same decoder, chain and resizer as a test image of a run. */
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "daemon/cmd.h"
#include "daemon/config/config.h"
#include "daemon/run/compute.h"
#include "daemon/run/evaluate.h"
#include "daemon/run/inference.h"
#include "daemon/run/run_folder.h"
#include "loader/base/clock.h"
#include "loader/base/json.h"
#include "daemon/ui/progress.h"
#include "loader/base/text.h"
#include "loader/pixels/augment.h"
#include "loader/base/io.h"
#include "loader/pixels/codec.h"
#include "loader/pixels/geometry.h"
#include "loader/pixels/painter.h"
#include "loader/source/source_scan.h"

#define TOP             "5"
#define MAX_IMAGE_BYTES (256ull << 20)

struct predictor {
    struct np_inference net;
    struct np_decoder *decoder;
    struct np_painter *painter;
    struct np_step *steps; /* of the test chain */
    uint8_t *row;          /* (height, width, channels), then its label */
    void *device_row;      /* of np_compute_copy() */
    size_t label_at, row_bytes;
    float *logits; /* (classes) */
    double *odds;  /* (classes) */
    int top;       /* classes to print per image */
};

static int open_predictor(struct predictor *p, struct np_err *err)
{
    const struct np_setup *setup = &p->net.setup;
    const size_t classes = (size_t)setup->sets.classes->nr_items,
                 pixels = (size_t)setup->sets.height * (size_t)setup->sets.width *
                          (size_t)p->net.config->loader.channels;
    const int32_t none = -1; /* the label: nothing is counted */

    p->label_at = (pixels + NP_LABELS_AT - 1) / NP_LABELS_AT * NP_LABELS_AT;
    p->row_bytes = p->label_at + sizeof(none);
    p->row = np_try_alloc(p->row_bytes, err);
    p->painter = np_painter_new((enum np_pixels_rule)p->net.config->loader.pixels, err);
    p->steps = np_try_array(
        (size_t)np_chain_max_steps(p->net.config->loader.test_augment) + 1, sizeof(*p->steps), err);
    p->logits = np_try_array(classes, sizeof(*p->logits), err);
    p->odds = np_try_array(classes, sizeof(*p->odds), err);
    if (!p->row || !p->painter || !p->steps || !p->logits || !p->odds)
        return err->code;
    memcpy(p->row + p->label_at, &none, sizeof(none));
    int code = np_decoder_new(&p->decoder, err);
    if (code == 0)
        np_decoder_limit(p->decoder, (uint64_t)p->net.config->loader.max_pixels);
    return code;
}

static void close_predictor(struct predictor *p)
{
    np_compute_free(p->net.device, p->row, p->device_row);
    np_painter_free(p->painter);
    np_free(p->steps);
    np_decoder_free(p->decoder);
    np_free(p->logits);
    np_free(p->odds);
    np_inference_close(&p->net);
}

static int make_row(struct predictor *p, const uint8_t *bytes, size_t nr_bytes, struct np_err *err)
{
    const struct np_setup *setup = &p->net.setup;
    const struct np_chain *chain = p->net.config->loader.test_augment;
    int channels = (int)p->net.config->loader.channels;
    uint64_t seed = (uint64_t)p->net.config->seed;
    struct np_drawn drawn = {.steps = p->steps};
    struct np_image_info info;
    struct np_pixels pixels;
    int code = np_decoder_open(p->decoder, bytes, nr_bytes, NULL, &info, err);

    if (code < 0)
        return code;
    np_augment_draw_row(chain, seed, 0, 0, info.width, info.height, &drawn);
    np_geometry_order(&drawn.geometry, (enum np_pixels_rule)p->net.config->loader.pixels);
    if (drawn.width != setup->sets.width || drawn.height != setup->sets.height)
        return np_err_set(err, -EINVAL,
            "the test chain turns its %dx%d pixels into %dx%d, the network takes %dx%d; with "
            "resize and center_crop in loader.test_augment any size fits",
            info.width, info.height, drawn.width, drawn.height, setup->sets.width,
            setup->sets.height);
    code = np_decoder_decode(p->decoder, &drawn.geometry, channels, &pixels, err);
    if (code == 0)
        code = np_painter_row(p->painter, &pixels, &drawn, p->row, err);
    return code;
}

/* Softmax in double; the maximum is subtracted so that nothing overflows. */
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
    int code = np_compute_copy(p->net.device, p->row, p->row_bytes, &p->device_row, err);

    if (code < 0 ||
        (code = ops->eval(
             p->net.plan, p->device_row, (uint8_t *)p->device_row + p->label_at, err)) < 0 ||
        (code = ops->metrics(p->net.plan, false, &metrics, err)) < 0 ||
        (code = ops->logits(p->net.plan, p->logits, err)) < 0 ||
        (code = np_outputs_check(p->logits, p->net.setup.sets.classes, err)) < 0)
        return code;
    softmax(p->logits, p->net.setup.sets.classes->nr_items, p->odds);
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

/* The index of the largest probability; report() sets those it has used to -1. */
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
    const struct np_node *classes = p->net.setup.sets.classes;
    struct np_node *top = np_node_new(NP_NODE_LIST, 0, 0);
    int n = classes->nr_items, first = take_best(p->odds, n);
    double odds = p->odds[first];
    char *text = NULL;
    size_t text_bytes = 0;
    FILE *out = open_memstream(&text, &text_bytes);

    for (int k = 0; k < p->top && k < n; k++) {
        int best = take_best(p->odds, n);
        struct np_node *item = np_node_new(NP_NODE_MAP, 0, 0);
        char number[32];

        snprintf(number, sizeof(number), "%.6g", p->odds[best]);
        if (out)
            fprintf(out, "%s%.60s %.2f%%", k ? ", " : "", classes->items[best]->text,
                100 * p->odds[best]);
        struct np_node *name = np_node_scalar(classes->items[best]->text, 0, 0);
        name->quoted = true;
        np_node_add(item, "class", name);
        np_node_add(item, "probability", np_node_scalar(number, 0, 0));
        np_node_add(top, NULL, item);
        p->odds[best] = -1;
    }
    if (out)
        fclose(out);
    np_json_begin(&ui->object, "prediction");
    np_json_text(&ui->object, "path", path);
    np_json_int(&ui->object, "label", first);
    np_json_text(&ui->object, "class", classes->items[first]->text);
    np_json_real(&ui->object, "probability", odds);
    np_json_node(&ui->object, "top", top);
    np_ui_event(ui, np_json_end(&ui->object));
    if (!ui->json && text)
        np_ui_say(ui, "%s: %s", path, text);
    free(text);
    np_node_free(top);
}

/* --- which images -------------------------------------------------------------------------- */

struct images {
    char **paths; /* owned */
    int nr_paths;
    size_t room;
};

/* Takes ownership of path. */
static void add_image(struct images *images, char *path)
{
    np_grow(&images->paths, &images->room, (size_t)images->nr_paths + 1, sizeof(path));
    images->paths[images->nr_paths++] = path;
}

static int by_bytes(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int not_hidden(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static bool is_link(const char *path)
{
    struct stat stat_;

    return lstat(path, &stat_) == 0 && S_ISLNK(stat_.st_mode);
}

/* Adds the images of a folder and those below it in byte order; links to folders are skipped,
 * for they may form a circle. */
static int add_folder(struct images *images, const char *folder, struct np_err *err)
{
    struct dirent **entries = NULL;
    const int n = scandir(folder, &entries, not_hidden, by_bytes);
    int code =
        n < 0 ? np_err_set(err, -errno, "%s: cannot be read: %s", folder, strerror(errno)) : 0;

    for (int i = 0; i < n; i++) {
        const char *name = entries[i]->d_name, *end = folder + strlen(folder) - 1;
        char *path = code == 0 ? np_format("%s%s%s", folder, *end == '/' ? "" : "/", name) : NULL;

        if (path && np_is_folder(path)) {
            code = is_link(path) ? 0 : add_folder(images, path, err);
            np_free(path);
        } else if (code == 0 && np_is_image_name(name)) {
            add_image(images, path);
        } else {
            np_free(path);
        }
        free(entries[i]);
    }
    free(entries);
    return code;
}

static int find_images(char **words, int nr_words, struct images *images, struct np_err *err)
{
    int code = 0;

    for (int i = 0; i < nr_words && code == 0; i++) {
        const int before = images->nr_paths;

        if (!np_is_folder(words[i]))
            add_image(images, np_strdup(words[i]));
        else if ((code = add_folder(images, words[i], err)) == 0 && images->nr_paths == before)
            code = np_err_set(err, -ENOENT, "%s: there is no image in this folder", words[i]);
    }
    return code;
}

/* --- the command --------------------------------------------------------------------------- */

struct request {
    const char *weights;
    const struct np_overrides *overrides;
    char **words; /* images and folders */
    int nr_words, top;
};

static int predict(struct np_config *config, const struct request *request, struct np_ui *ui)
{
    uint64_t last_ns = np_now_ns();
    const struct np_source_progress progress = {
        .note = np_note, .count = np_note_listing, .context = &last_ns};
    struct predictor p = {.top = request->top};
    struct images images = {0};
    struct np_err err = {0};
    char how[160];
    int exit_code = NP_EXIT_DONE;

    if (find_images(request->words, request->nr_words, &images, &err) < 0 ||
        np_inference_open(config, request->weights, request->overrides, &progress, &p.net, &err) <
            0 ||
        open_predictor(&p, &err) < 0) {
        np_ui_error(ui, &err);
        exit_code = err.code == -ENOEXEC ? NP_EXIT_USAGE : NP_EXIT_FAILED;
    } else {
        np_inference_text(&p.net, how, sizeof(how));
        fprintf(stderr, "predicting %s\n", how);
    }
    for (int i = 0; i < images.nr_paths && !err.code; i++) {
        struct np_err one = {0}; /* an error of one image does not stop the others */

        if (predict_file(&p, images.paths[i], &one) == 0) {
            report(&p, images.paths[i], ui);
        } else {
            np_ui_error(ui, &one);
            exit_code = NP_EXIT_FAILED;
        }
    }
    for (int i = 0; i < images.nr_paths; i++)
        np_free(images.paths[i]);
    np_free(images.paths);
    close_predictor(&p);
    return exit_code;
}

int np_cmd_predict(int argc, char **argv)
{
    const char *device = NULL, *top = TOP;
    bool json = false;
    struct request request = {0};
    const struct np_flag flags[] = {
        {"--weights", &request.weights, NULL, NULL},
        {"--top", &top, NULL, NULL},
        {"--device", &device, NULL, NULL},
        {"--json", NULL, &json, NULL},
        {NULL, NULL, NULL, NULL},
    };
    struct np_overrides overrides = {0};
    struct np_config *config = NULL;
    struct np_ui ui;
    int64_t number;
    int nr, code = np_flags_parse(argc, argv, flags, &overrides, &nr);

    if (code)
        return code;
    if (!np_text_int(top, 1, INT32_MAX, &number))
        return np_usage("predict", "--top takes a number of at least 1");
    request.top = (int)number;
    const bool named =
        nr > 0 && request.weights && np_inference_names_config(argv[1], request.weights);
    request.overrides = &overrides;
    request.words = argv + 1 + named;
    request.nr_words = nr - named;
    if (!request.weights || request.nr_words < 1)
        return np_usage("predict",
            "expected [CONFIG] --weights FILE IMAGE...; the weights of a RUN need no CONFIG");
    char *own = named ? NULL : np_inference_config(request.weights);
    code = np_cmd_config(named ? argv[1] : own, &overrides, device, &config);
    np_free(own);
    if (code)
        return code;
    config->loader.batch = 1;
    np_ui_init(&ui, json);
    code = predict(config, &request, &ui);
    np_ui_fini(&ui);
    np_config_free(config);
    return code;
}
