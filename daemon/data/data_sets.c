#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "daemon/data/data.h"
#include "loader/base/clock.h"
#include "loader/base/mem.h"
#include "loader/base/text.h"
#include "loader/source/files.h"
#include "loader/source/split.h"

static bool ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), m = strlen(end);

    return n >= m && strcasecmp(text + n - m, end) == 0;
}

static bool is_config(const char *operand)
{
    return strcmp(operand, "-") == 0 || ends_with(operand, ".yaml") || ends_with(operand, ".yml");
}

static const char *guess_source(const char *path)
{
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    struct stat st;

    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        return "folder";
    if (strstr(base, "idx3"))
        return "idx";
    if (fnmatch("*_batch*.bin", base, 0) == 0)
        return "cifar10";
    return "tar";
}

/* Uses the parser of configs, so that paths get the same checks. */
static int parse_path(const char *path, const struct np_data_choice *choice,
    struct np_source_options *options, struct np_report *report)
{
    struct np_node *node = np_node_new(NP_NODE_MAP, 0, 0);
    int code;

    np_node_add(
        node, "source", np_node_scalar(choice->source ? choice->source : guess_source(path), 0, 0));
    np_node_add(node, "path", np_node_scalar(path, 0, 0));
    if (choice->match)
        np_node_add(node, "match", np_node_scalar(choice->match, 0, 0));
    code = np_source_parse(node, NULL, options, report);
    np_node_free(node);
    return code;
}

static int open_paths(
    int n, char **operands, const struct np_data_choice *choice, struct np_data_sets *sets)
{
    struct np_report report;
    int code = 0;

    sets->paths = np_alloc_array((size_t)n, sizeof(*sets->paths));
    sets->sets = np_alloc_array((size_t)n, sizeof(*sets->sets));
    np_report_init(&report, NULL);
    for (int i = 0; i < n; i++) {
        if (parse_path(operands[i], choice, &sets->paths[i], &report))
            code = NP_EXIT_USAGE;
        sets->sets[i] = (struct np_data_set){operands[i], &sets->paths[i], 0, NULL};
        sets->nr_paths = sets->nr_sets = i + 1;
    }
    np_complain_report(&report, &choice->overrides);
    np_report_fini(&report);
    return code;
}

static void add_split(struct np_data_sets *sets, const struct np_data_choice *choice,
    const char *name, bool there, struct np_source_options *options)
{
    if (there && (!choice->split || strcmp(choice->split, name) == 0))
        sets->sets[sets->nr_sets++] =
            (struct np_data_set){name, options, (uint64_t)sets->config->loader.max_pixels, NULL};
}

static int open_config(
    const char *path, const struct np_data_choice *choice, struct np_data_sets *sets)
{
    int code = np_cmd_config(path, &choice->overrides, NULL, &sets->config);

    if (code)
        return code;
    sets->sets = np_alloc_array(3, sizeof(*sets->sets));
    add_split(sets, choice, "train", true, &sets->config->data.train);
    add_split(sets, choice, "test", sets->config->data.has_test, &sets->config->data.test);
    add_split(sets, choice, "val", sets->config->data.has_val, &sets->config->data.val);
    if (sets->nr_sets == 0 && sets->config->data.split > 0 && strcmp(choice->split, "val") == 0) {
        add_split(sets, choice, "val", true, &sets->config->data.train);
        sets->sets[0].split = sets->config;
    }
    if (sets->nr_sets)
        return 0;
    fprintf(stderr, "nnpipe: %s: the config has no data.%s\n", path, choice->split);
    return NP_EXIT_USAGE;
}

int np_data_sets_open(int nr_operands, char **operands, const struct np_data_choice *choice,
    struct np_data_sets *ret_sets)
{
    int code;

    memset(ret_sets, 0, sizeof(*ret_sets));
    if (nr_operands == 0)
        return np_data_usage("a config, or the path of a folder or of archives, is missing");
    if (choice->split && strcmp(choice->split, "train") != 0 &&
        strcmp(choice->split, "test") != 0 && strcmp(choice->split, "val") != 0)
        return np_data_usage("--split takes train, test or val");
    for (int i = 0; i < nr_operands; i++)
        if (is_config(operands[i]) && nr_operands > 1)
            return np_data_usage("a config must be the only operand");
    if (is_config(operands[0]) && (choice->source || choice->match))
        return np_data_usage("--source and --match are for paths; a config has these keys itself");
    code = is_config(operands[0]) ? open_config(operands[0], choice, ret_sets)
                                  : open_paths(nr_operands, operands, choice, ret_sets);
    if (code)
        np_data_sets_close(ret_sets);
    return code;
}

void np_data_sets_close(struct np_data_sets *sets)
{
    for (int i = 0; i < sets->nr_paths; i++)
        np_source_options_fini(&sets->paths[i]);
    np_free(sets->paths);
    np_free(sets->sets);
    np_config_free(sets->config);
    memset(sets, 0, sizeof(*sets));
}

static int ascending(const void *left, const void *right)
{
    const uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;

    return a < b ? -1 : a > b;
}

/* Keeps only the samples of the val part of data.split. */
static int keep_split(const struct np_config *config, struct np_index *index, struct np_err *err)
{
    struct np_split split = {0};
    int code = 0;

    if (config->data.train.unlabelled == NP_UNLABELLED_SKIP && np_index_skip_unlabelled(index, err))
        return -ENOMEM;
    const struct np_split_options options = np_data_split(&config->data);
    code = np_split_make(index, &options, &split, err);
    if (code == 0) {
        qsort(split.order, split.nr_eval, sizeof(*split.order), ascending);
        code = np_index_keep(index, split.order, split.nr_eval, err);
    }
    np_split_fini(&split);
    return code;
}

int np_data_open(const struct np_data_set *set, struct np_index **ret_index, struct np_err *err)
{
    uint64_t last_ns = np_now_ns();
    const struct np_source_progress progress = {
        .note = np_note, .count = np_note_listing, .context = &last_ns};

    int code = np_source_open(set->options, &progress, ret_index, err);

    if (code == 0 && set->split && (code = keep_split(set->split, *ret_index, err)) < 0) {
        np_index_free(*ret_index);
        *ret_index = NULL;
    }
    return code;
}

int np_data_pixels_open(const struct np_index *index, uint64_t max_pixels,
    struct np_data_pixels *ret_pixels, struct np_err *err)
{
    struct np_data_pixels pixels = {.index = index};
    int code = np_fetch_open(index, &pixels.fetch, err);

    if (!code)
        code = np_decoder_new(&pixels.decoder, err);
    if (!code)
        np_decoder_limit(pixels.decoder, max_pixels);
    if (code)
        np_data_pixels_close(&pixels);
    else
        *ret_pixels = pixels;
    return code;
}

int np_data_pixels_get(struct np_data_pixels *pixels, uint64_t sample,
    struct np_data_sample *ret_sample, struct np_err *err)
{
    struct np_data_sample result;
    struct np_image_info info;
    struct np_geometry geometry = {0};
    int code = np_fetch_get(pixels->fetch, sample, &result.bytes, &result.nr_bytes, err);

    if (!code)
        code = np_decoder_open(
            pixels->decoder, result.bytes, result.nr_bytes, &pixels->index->raw, &info, err);
    if (code)
        return code;
    geometry.right = geometry.scaled_w = geometry.window_w = info.width;
    geometry.bottom = geometry.scaled_h = geometry.window_h = info.height;
    code = np_decoder_decode(
        pixels->decoder, &geometry, info.channels == 1 ? 1 : 3, &result.pixels, err);
    if (!code)
        *ret_sample = result;
    return code;
}

void np_data_pixels_close(struct np_data_pixels *pixels)
{
    np_fetch_close(pixels->fetch);
    np_decoder_free(pixels->decoder);
    memset(pixels, 0, sizeof(*pixels));
}

int np_data_each_set(struct np_ui *ui, const struct np_data_sets *sets,
    int (*visit)(
        void *context, const struct np_data_set *set, struct np_index *index, struct np_err *err),
    void *context)
{
    struct np_err err = {0};
    int code = 0;

    for (int i = 0; !code && i < sets->nr_sets; i++) {
        struct np_index *index = NULL;

        code = np_data_open(&sets->sets[i], &index, &err);
        if (!code)
            code = visit(context, &sets->sets[i], index, &err);
        np_index_free(index);
    }
    if (code)
        np_ui_error(ui, &err);
    return code ? NP_EXIT_FAILED : NP_EXIT_DONE;
}

int np_data_read_sets(int argc, char **argv, const struct np_flag own[2],
    int (*run)(struct np_ui *ui, const struct np_data_sets *sets, void *context), void *context)
{
    struct np_data_choice choice = {0};
    bool json = false;
    const struct np_flag none = {NULL, NULL, NULL, NULL};
    const struct np_flag flags[] = {{"--split", &choice.split, NULL, NULL},
        {"--source", &choice.source, NULL, NULL}, {"--match", &choice.match, NULL, NULL},
        {"--json", NULL, &json, NULL}, own ? own[0] : none, own ? own[1] : none, none};
    struct np_data_sets sets;
    struct np_ui ui;
    int nr, code = np_flags_parse(argc, argv, flags, &choice.overrides, &nr);

    if (!code)
        code = np_data_sets_open(nr, argv + 1, &choice, &sets);
    if (code)
        return code;
    np_ui_init(&ui, json);
    code = run(&ui, &sets, context);
    np_ui_fini(&ui);
    np_data_sets_close(&sets);
    return code;
}

bool np_data_number(
    const char *flag, const char *text, bool bytes, int64_t min, int64_t max, int64_t *number)
{
    int64_t value;

    if (!text)
        return true;
    if (!(bytes ? np_option_bytes(text, &value) : np_text_int(text, min, max, &value)) ||
        value < min || value > max) {
        fprintf(stderr, "nnpipe data: %s: '%s' is not a number from %lld to %lld%s\n", flag, text,
            (long long)min, (long long)max, bytes ? " (K, M, G may follow)" : "");
        return false;
    }
    *number = value;
    return true;
}

void np_data_place(const struct np_index *index, uint64_t sample, char *text, size_t text_bytes)
{
    struct np_extent extent;
    char name[NP_MAX_NAME + 1];

    np_source_locate(index, sample, &extent);
    if (index->root) {
        snprintf(text, text_bytes, "%s", extent.path);
        return;
    }
    np_index_name(index, sample, name, sizeof(name));
    snprintf(text, text_bytes, "%s:%s", extent.path, name);
}

int np_data_usage(const char *text)
{
    fprintf(stderr, "nnpipe data: %s; see `nnpipe help data`\n", text);
    return NP_EXIT_USAGE;
}
