/* See engines_cuda.h. A few dozen lines: a list is searched from its beginning. */
#include "trainer/cuda/engines_cuda.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "loader/base/mem.h"

#define MAX_ENGINES 4096
#define MAX_PLAN    1023

struct engine {
    char key[NP_ENGINE_KEY];
    int plan;
};

struct np_engines {
    struct engine *list;
    int n, room;
};

struct np_engines *np_engines_new(void)
{
    return np_alloc(sizeof(struct np_engines));
}

void np_engines_free(struct np_engines *engines)
{
    if (!engines)
        return;
    np_free(engines->list);
    np_free(engines);
}

static struct engine *find(const struct np_engines *engines, const char *key)
{
    for (int i = 0; i < engines->n; i++)
        if (strcmp(engines->list[i].key, key) == 0)
            return &engines->list[i];
    return NULL;
}

int np_engines_find(const struct np_engines *engines, const char *key)
{
    const struct engine *engine = find(engines, key);

    return engine ? engine->plan : -1;
}

int np_engines_count(const struct np_engines *engines)
{
    return engines->n;
}

int np_engines_put(struct np_engines *engines, const char *key, int plan, struct np_err *err)
{
    struct engine *engine = find(engines, key);

    if (!engine && engines->n == engines->room) {
        int room = engines->room ? 2 * engines->room : 64;
        struct engine *list =
            room <= MAX_ENGINES ? np_alloc_array((size_t)room, sizeof(*list)) : NULL;

        if (!list)
            return np_err_set(err, -ENOMEM, "no memory for the choice of engines");
        if (engines->n)
            memcpy(list, engines->list, (size_t)engines->n * sizeof(*list));
        np_free(engines->list);
        engines->list = list;
        engines->room = room;
    }
    if (!engine) {
        engine = &engines->list[engines->n++];
        snprintf(engine->key, sizeof(engine->key), "%s", key);
    }
    engine->plan = plan;
    return 0;
}

/* "engine KEY PLAN": the plan is the last word. */
static int parse_line(
    struct np_engines *engines, const char *line, size_t length, struct np_err *err)
{
    char text[NP_ENGINE_KEY + 32], *last, *end;
    long plan;

    if (length < 7 || strncmp(line, "engine ", 7) != 0)
        return 0;
    if (length - 7 >= sizeof(text))
        return np_err_set(err, -EBADMSG, "a choice of engines is too long: %.40s...", line);
    memcpy(text, line + 7, length - 7);
    text[length - 7] = '\0';
    last = strrchr(text, ' ');
    plan = last ? strtol(last + 1, &end, 10) : -1;
    if (!last || end == last + 1 || *end || plan < 0 || plan > MAX_PLAN ||
        last - text >= NP_ENGINE_KEY)
        return np_err_set(err, -EBADMSG, "a choice of engines is malformed: %.60s", text);
    *last = '\0';
    return np_engines_put(engines, text, (int)plan, err);
}

int np_engines_parse(struct np_engines *engines, const char *text, struct np_err *err)
{
    int code = 0;

    while (code == 0 && *text) {
        size_t length = strcspn(text, "\n");

        code = parse_line(engines, text, length, err);
        text += length + (text[length] == '\n');
    }
    return code;
}

int np_engines_print(const struct np_engines *engines, char **text, struct np_err *err)
{
    size_t room = (size_t)engines->n * (NP_ENGINE_KEY + 24) + (*text ? strlen(*text) : 0) + 1;
    char *out = np_alloc(room), *at = out;

    if (!out)
        return np_err_set(err, -ENOMEM, "no memory for the choice of engines");
    at += snprintf(out, room, "%s", *text ? *text : "");
    for (int i = 0; i < engines->n; i++)
        at += snprintf(at, room - (size_t)(at - out), "engine %s %d\n", engines->list[i].key,
            engines->list[i].plan);
    np_free(*text);
    *text = out;
    return 0;
}

void np_engine_key(const struct np_graph *graph, const struct np_op_node *node, const char *pattern,
    const struct np_dnn_rules *rules, char key[NP_ENGINE_KEY])
{
    static const char *const types[] = {"f32", "bf16", "f16"};
    bool wgrad = node->op == NP_OP_CONV_WGRAD;
    const struct np_tensor *x = &graph->tensors[node->ins[0]];
    const struct np_tensor *w = &graph->tensors[wgrad ? node->outs[0] : node->ins[1]];
    const struct np_window *v = &node->attrs.window;

    snprintf(key, NP_ENGINE_KEY, "%s %s %s %dx%dx%dx%d %dx%dx%dx%d s%d p%d d%d g%d%s%s%s",
        np_op_names[node->op], pattern, types[x->dtype], x->dims[0], x->dims[1], x->dims[2],
        x->dims[3], w->dims[0], w->dims[2], w->dims[3], w->dims[1], v->stride, v->pad, v->dilation,
        v->groups, rules->deterministic ? "" : " free",
        rules->tf32 && x->dtype == NP_F32 ? " tf32" : "", rules->runtime ? "" : " built");
    for (char *c = key; *c; c++) /* the plan's number is behind the last space */
        if (*c == ' ')
            *c = '_';
}

/* --- the cache file -------------------------------------------------------------------------- */

/* engines-NVIDIA_H200-91900.txt below the user's cache folder; makes the folder. */
static bool cache_path(const struct np_cuda *cuda, char *path, size_t bytes)
{
    const char *base = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    char name[300];
    int n = base && *base   ? snprintf(path, bytes, "%s", base)
            : home && *home ? snprintf(path, bytes, "%s/.cache", home)
                            : -1;

    if (n < 0 || (size_t)n + 340 > bytes)
        return false;
    mkdir(path, 0777);
    n += snprintf(path + n, bytes - (size_t)n, "/nnpipe");
    mkdir(path, 0777);
    snprintf(name, sizeof(name), "%s-%zu", cuda->props.name, cuda->libs.cudnn.version());
    for (char *c = name; *c; c++)
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-", *c))
            *c = '_';
    snprintf(path + n, bytes - (size_t)n, "/engines-%s.txt", name);
    return true;
}

void np_engines_load(struct np_engines *engines, const struct np_cuda *cuda)
{
    char path[4096], line[NP_ENGINE_KEY + 64];
    FILE *file = cache_path(cuda, path, sizeof(path)) ? fopen(path, "re") : NULL;

    while (file && fgets(line, sizeof(line), file))
        if (np_engines_parse(engines, line, NULL) < 0)
            break; /* a torn file: what follows is timed again */
    if (file)
        fclose(file);
}

void np_engines_save(const struct np_engines *engines, const struct np_cuda *cuda)
{
    char path[4096], beside[4200], *text = NULL;
    FILE *file = NULL;

    if (!cache_path(cuda, path, sizeof(path)) || np_engines_print(engines, &text, NULL) < 0)
        return;
    snprintf(beside, sizeof(beside), "%s.%ld", path, (long)getpid());
    file = fopen(beside, "we");
    if (file) {
        bool good = fputs(text, file) >= 0;

        good = fclose(file) == 0 && good;
        if (!good || rename(beside, path) != 0)
            unlink(beside);
    }
    np_free(text);
}
