#include "trainer/cuda/engines_cuda.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "loader/base/io.h"
#include "loader/base/mem.h"
#include "loader/base/text.h"

#define LINE (NP_ENGINE_KEY + NP_DNN_ID + 32)

struct np_engines *np_engines_new(void)
{
    return np_alloc(sizeof(struct np_engines));
}

void np_engines_free(struct np_engines *engines)
{
    if (!engines)
        return;
    np_free(engines->list);
    np_free(engines->places);
    np_free(engines);
}

/* Returns the key's slot in the table, or the free slot for it; room > n. */
static int *place_of(const struct np_engines *engines, const char *key)
{
    size_t mask = 2 * (size_t)engines->room - 1, at;
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */

    for (const char *c = key; *c; c++)
        hash = (hash ^ (unsigned char)*c) * 0x100000001b3u;
    for (at = hash & mask; engines->places[at]; at = (at + 1) & mask)
        if (strcmp(engines->list[engines->places[at] - 1].key, key) == 0)
            break;
    return &engines->places[at];
}

struct np_engine *np_engines_find(const struct np_engines *engines, const char *key)
{
    int place = engines->n ? *place_of(engines, key) : 0;

    return place ? &engines->list[place - 1] : NULL;
}

static int grow(struct np_engines *engines, struct np_err *err)
{
    int room = engines->room ? 2 * engines->room : 64;
    struct np_engine *list = np_try_array((size_t)room, sizeof(*list), err);
    int *places = np_try_array(2 * (size_t)room, sizeof(*places), err);

    if (!list || !places) {
        np_free(list);
        np_free(places);
        return -ENOMEM;
    }
    if (engines->n)
        memcpy(list, engines->list, (size_t)engines->n * sizeof(*list));
    np_free(engines->list);
    np_free(engines->places);
    engines->list = list;
    engines->places = places;
    engines->room = room;
    for (int i = 0; i < engines->n; i++)
        *place_of(engines, list[i].key) = i + 1;
    return 0;
}

static int put(struct np_engines *engines, const struct np_engine *engine, struct np_err *err)
{
    int *place, code = engines->n == engines->room ? grow(engines, err) : 0;

    if (code < 0)
        return code;
    place = place_of(engines, engine->key);
    if (!*place)
        *place = ++engines->n;
    engines->list[*place - 1] = *engine;
    return 0;
}

int np_engines_put(
    struct np_engines *engines, const char *key, const char *id, float ms, struct np_err *err)
{
    struct np_engine engine = {.ms = ms, .used = true, .chosen = true};

    snprintf(engine.key, sizeof(engine.key), "%s", key);
    snprintf(engine.id, sizeof(engine.id), "%s", id);
    return put(engines, &engine, err);
}

_Static_assert(NP_ENGINE_KEY == 160 && NP_DNN_ID == 192, "the widths below");

/* "plan KEY ID MS", without "plan ". */
static bool read_engine(const char *text, struct np_engine *ret_engine)
{
    struct np_engine engine = {0};
    char rest;

    if (sscanf(text, "%159s %191s %f %c", engine.key, engine.id, &engine.ms, &rest) != 3 ||
        !isfinite(engine.ms) || engine.ms < 0)
        return false;
    *ret_engine = engine;
    return true;
}

static int parse_line(
    struct np_engines *engines, const char *line, size_t length, struct np_err *err)
{
    struct np_engine engine;
    char text[LINE];

    if (length >= 7 && strncmp(line, "engine ", 7) == 0)
        engines->nr_old++;
    if (length < 5 || strncmp(line, "plan ", 5) != 0)
        return 0;
    if (length - 5 >= sizeof(text))
        return np_err_set(err, -EBADMSG, "a choice of engines is too long: %.40s...", line);
    memcpy(text, line + 5, length - 5);
    text[length - 5] = '\0';
    if (!read_engine(text, &engine))
        return np_err_set(err, -EBADMSG, "a choice of engines is malformed: %.*s",
            length < 60 ? (int)length : 60, line);
    return put(engines, &engine, err);
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

int np_engines_take(struct np_engines *engines, const char *state, struct np_err *err)
{
    const int code = np_engines_parse(engines, state, err);

    for (int i = 0; i < engines->n; i++)
        engines->list[i].used = true;
    return code;
}

static void print_engine(const struct np_engine *engine, char out[LINE])
{
    snprintf(out, LINE, "plan %s %s %.4g\n", engine->key, engine->id, (double)engine->ms);
}

void np_engines_print(const struct np_engines *engines, char **text)
{
    char line[LINE];

    for (int i = 0; i < engines->n; i++)
        if (engines->list[i].used) {
            char *before = *text;

            print_engine(&engines->list[i], line);
            *text = np_format("%s%s", before, line);
            np_free(before);
        }
}

void np_engine_key(const struct np_graph *graph, const struct np_op_node *node, const char *pattern,
    const struct np_dnn_rules *rules, char key[NP_ENGINE_KEY])
{
    static const char *const types[] = {"f32", "bf16", "f16"};
    bool wgrad = node->op == NP_OP_CONV_WGRAD;
    const struct np_tensor *x = &graph->tensors[node->ins[0]];
    const struct np_tensor *w = &graph->tensors[wgrad ? node->outs[0] : node->ins[1]];
    const struct np_window *v = &node->attrs.window;
    char stride[24], pad[24], dilation[24];

    snprintf(key, NP_ENGINE_KEY, "%s %s %s %dx%dx%dx%d %dx%dx%dx%d s%s p%s d%s g%d%s%s%s",
        np_op_names[node->op], pattern, types[x->dtype], x->dims[0], x->dims[1], x->dims[2],
        x->dims[3], w->dims[0], w->dims[2], w->dims[3], w->dims[1],
        np_axes_text(stride, v->stride_h, v->stride_w), np_axes_text(pad, v->pad_h, v->pad_w),
        np_axes_text(dilation, v->dilation_h, v->dilation_w), v->groups,
        rules->deterministic ? "" : " free", rules->tf32 && x->dtype == NP_F32 ? " tf32" : "",
        rules->runtime ? "" : " built");
    for (char *c = key; *c; c++) /* spaces part the words of a line */
        if (*c == ' ')
            *c = '_';
}

/* --- the cache file -------------------------------------------------------------------------- */

char *np_engines_path(const struct np_cuda *cuda)
{
    char *folder = np_xdg_folder("XDG_CACHE_HOME", ".cache", "nnpipe"), *path = NULL, name[300];

    snprintf(name, sizeof(name), "%s-%zu", cuda->props.name, cuda->libs.cudnn.version());
    for (char *c = name; *c; c++)
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-", *c))
            *c = '_';
    if (folder && np_make_dirs(folder, NULL) == 0)
        path = np_format("%s/engines-%s.txt", folder, name);
    np_free(folder);
    return path;
}

void np_engines_read(struct np_engines *engines, const char *path)
{
    char line[LINE + 8];
    FILE *file = path ? fopen(path, "re") : NULL;

    while (file && fgets(line, sizeof(line), file))
        if (np_engines_parse(engines, line, NULL) < 0)
            break; /* a damaged file: the rest is timed again */
    if (file)
        fclose(file);
}

/* Locks the cache file for an update. The file is replaced, so the lock is a file beside it.
 * Processes hold it briefly; if it stays taken, or the file system has no locks, a choice may be
 * lost and is timed again. */
static int lock_file(const char *path)
{
    char beside[4200];
    int fd;

    snprintf(beside, sizeof(beside), "%s.lock", path);
    fd = open(beside, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    for (int i = 0; fd >= 0 && i < 2000 && flock(fd, LOCK_EX | LOCK_NB) != 0; i++)
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    return fd;
}

static void write_engines(const struct np_engines *engines, const char *path)
{
    char line[LINE], *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);

    for (int i = engines->n > NP_ENGINE_MAX ? engines->n - NP_ENGINE_MAX : 0; out && i < engines->n;
         i++) {
        print_engine(&engines->list[i], line);
        fputs(line, out);
    }
    if (out && fclose(out) == 0)
        np_write_file(path, text, bytes, 0, NULL);
    free(text);
}

void np_engines_merge(const struct np_engines *engines, const char *path)
{
    struct np_engines *all;
    int lock, code = 0;

    if (!path)
        return;
    all = np_engines_new();
    lock = lock_file(path);
    np_engines_read(all, path);
    for (int i = 0; code == 0 && i < engines->n; i++)
        if (engines->list[i].chosen)
            code = put(all, &engines->list[i], NULL);
    if (code == 0)
        write_engines(all, path);
    if (lock >= 0)
        close(lock);
    np_engines_free(all);
}
