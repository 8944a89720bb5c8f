/* The calls that wait: they ask for sizes and versions, and read for listings, packing and checks,
 * which go through an object from its beginning and are served from a window that reads ahead. A
 * window belongs to one call at a time, and keeps its connections for the next. */
#include "loader/remote/remote_http.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "loader/base/mem.h"
#include "loader/base/missing.h"
#include "loader/remote/part.h"

#define LOOKS         32 /* objects asked for at once */
#define LOOK_LIMIT_NS 5000000000u
#define READ_LIMIT_NS 60000000000u
#define AHEAD_BYTES   (4u << 20)
#define FIRST_BYTES   (64u << 10) /* of a read that does not follow another */
#define NEAR_BYTES    (1u << 20)  /* a gap that is not worth another request */
#define MAX_WINDOWS   16          /* kept */

/* --- sizes and versions ---------------------------------------------------------------------- */

static int expand(const char *pattern, char ***ret_urls, int *ret_nr, struct np_err *err)
{
    enum np_url_kind kind;
    char **urls;
    int nr, code = np_braces_expand(pattern, &urls, &nr, err);

    if (code)
        return code;
    for (int i = 0; !code && i < nr; i++)
        code = np_url_check(urls[i], &kind, err);
    if (code) {
        for (int i = 0; i < nr; i++)
            np_free(urls[i]);
        np_free(urls);
        return code;
    }
    *ret_urls = urls;
    *ret_nr = nr;
    return 0;
}

/* One object that is asked for. */
struct look {
    struct np_part part;
    struct np_object *object;
    int number; /* of its URL */
    bool moved; /* to the region that the server named */
};

struct looks {
    struct np_object_places places;
    struct np_parts *parts;
    struct look looks[LOOKS], *spare[LOOKS];
    int nr_spare;
    struct np_missing missing;
};

static void begin(struct looks *looks, struct look *look)
{
    look->part = (struct np_part){
        .object = look->object, .limit_ns = LOOK_LIMIT_NS, .impatient = true, .owner = look};
    np_parts_add(looks->parts, &look->part);
}

static int add(struct looks *looks, char *const *urls, int number, struct np_err *err)
{
    struct look *look = looks->spare[--looks->nr_spare];
    int code = np_object_new(urls[number], &looks->places, &look->object, err);

    look->number = number;
    look->moved = false;
    if (code)
        looks->spare[looks->nr_spare++] = look;
    else
        begin(looks, look);
    return code;
}

/* The bucket lies in another region than the environment says. True: asks there. */
static bool move(struct looks *looks, struct look *look)
{
    const char *region = look->part.answer.region;
    struct np_object_places places = looks->places;
    struct np_object *moved;

    if (look->moved || !*region || strlen(region) >= sizeof(places.region) ||
        region[strspn(region, "abcdefghijklmnopqrstuvwxyz0123456789-")] || /* of a host's name */
        strcmp(region, look->object->region) == 0 || !look->object->is_signed)
        return false;
    snprintf(places.region, sizeof(places.region), "%s", region);
    if (np_object_new(look->object->url, &places, &moved, NULL))
        return false;
    np_object_free(look->object);
    look->object = moved;
    look->moved = true;
    begin(looks, look);
    return true;
}

/* Takes the answer of one. Those that are missing are named together. */
static int take(struct looks *looks, struct look *look, struct np_err *err)
{
    const struct np_object *known;
    int code = look->part.code;
    bool goes_on = false;

    if (code && move(looks, look))
        return 0;
    if (code == -ENOENT) {
        goes_on = np_missing_add(&looks->missing, look->number, &look->part.err);
    } else if (code)
        np_err_set(err, code, "%s", look->part.err.text);
    else
        code = np_object_learn(look->object, &look->part.answer, err);
    if (!code)
        code = np_object_publish(look->object, &known, err);
    else
        np_object_free(look->object);
    look->object = NULL;
    looks->spare[looks->nr_spare++] = look;
    return goes_on ? 0 : code;
}

static int look_at(char *const *urls, int nr, struct np_err *err)
{
    struct looks *looks = np_try_alloc(sizeof(*looks), err);
    int at = 0, code = looks ? 0 : -ENOMEM;
    struct np_part *part;

    if (!code && !(looks->parts = np_parts_new(LOOKS, NULL, err)))
        code = -ENOMEM;
    if (!code)
        np_object_places_read(&looks->places);
    for (int i = 0; !code && i < LOOKS; i++)
        looks->spare[looks->nr_spare++] = &looks->looks[i];
    while (!code && (at < nr || np_parts_in_flight(looks->parts) > 0)) {
        while (!code && at < nr && looks->nr_spare > 0)
            code = add(looks, urls, at++, err);
        while (!code && (part = np_parts_turn(looks->parts)) != NULL)
            code = take(looks, part->owner, err);
        if (!code && np_parts_in_flight(looks->parts) > 0)
            np_parts_wait(looks->parts, -1);
    }
    if (!code || code == -ENOENT)
        code = np_missing_err(&looks->missing, urls, nr, err);
    if (looks) {
        np_parts_free(looks->parts);
        for (int i = 0; i < LOOKS; i++)
            np_object_free(looks->looks[i].object);
    }
    np_free(looks);
    return code;
}

static int open_object(const char *url, int *ret_file, struct np_err *err)
{
    const struct np_object *object = np_object_find(url);
    char *one = (char *)url;
    int code = object ? 0 : look_at(&one, 1, err);

    if (!code && !object)
        object = np_object_find(url);
    if (!code)
        *ret_file = object->file;
    return code;
}

static void facts(int file, uint64_t *ret_bytes, uint64_t *ret_number, const char **ret_version)
{
    const struct np_object *object = np_object_of(file);

    *ret_bytes = object->bytes;
    *ret_number = object->number;
    *ret_version = object->version;
}

/* --- reads that wait ------------------------------------------------------------------------- */

struct window {
    struct window *next;
    struct np_parts *parts;
    struct np_part part;
    int file;
    uint64_t from;
    size_t bytes;
    uint8_t *data; /* (AHEAD_BYTES), or of the caller while a large part is read */
    uint8_t *own;
};

static struct {
    pthread_mutex_t lock;
    struct window *idle; /* under lock: those used last come first */
    int nr_idle;
} windows = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void window_free(struct window *window)
{
    np_parts_free(window->parts);
    np_free(window->own);
    np_free(window);
}

static struct window *window_new(struct np_err *err)
{
    struct window *window = np_try_alloc(sizeof(*window), err);

    if (!window)
        return NULL;
    window->parts = np_parts_new(1, NULL, err);
    window->own = np_try_alloc(AHEAD_BYTES, err);
    if (!window->parts || !window->own) {
        window_free(window);
        return NULL;
    }
    return window;
}

/* The idle one of this object, else any, else a new one. */
static struct window *window_take(int file, struct np_err *err)
{
    struct window **at, *window = NULL;

    pthread_mutex_lock(&windows.lock);
    for (at = &windows.idle; *at && (*at)->file != file; at = &(*at)->next)
        ;
    if (!*at)
        at = &windows.idle;
    if (*at) {
        window = *at;
        *at = window->next;
        windows.nr_idle--;
    }
    pthread_mutex_unlock(&windows.lock);
    return window ? window : window_new(err);
}

static void window_release(struct window *window)
{
    bool keep;

    pthread_mutex_lock(&windows.lock);
    keep = windows.nr_idle < MAX_WINDOWS;
    if (keep) {
        window->next = windows.idle;
        windows.idle = window;
        windows.nr_idle++;
    }
    pthread_mutex_unlock(&windows.lock);
    if (!keep)
        window_free(window);
}

static uint8_t *find_room(struct np_part *part, uint64_t at, size_t *ret_bytes)
{
    const struct window *window = part->owner;

    *ret_bytes = part->bytes - at;
    return window->data + at;
}

static void take_bytes(struct np_part *part, uint64_t at, const void *bytes, size_t nr)
{
    const struct window *window = part->owner;

    if (bytes != window->data + at)
        memcpy(window->data + at, bytes, nr);
}

/* Reads the range into window->data. */
static int fetch(struct window *window, const struct np_object *object, uint64_t from, size_t bytes,
    struct np_err *err)
{
    struct np_part *part = &window->part;

    *part = (struct np_part){.object = object,
        .offset = from,
        .bytes = bytes,
        .limit_ns = READ_LIMIT_NS,
        .impatient = true,
        .room = find_room,
        .data = take_bytes,
        .owner = window};
    np_parts_add(window->parts, part);
    while (!np_parts_turn(window->parts))
        np_parts_wait(window->parts, -1);
    return part->code ? np_err_set(err, part->code, "%s", part->err.text) : 0;
}

/* Fills the window from `offset` on. */
static int refill(struct window *window, const struct np_object *object, uint64_t offset,
    size_t bytes, struct np_err *err)
{
    const uint64_t end = window->from + window->bytes, left = object->bytes - offset;
    const bool follows = window->file == object->file && window->bytes && offset >= window->from &&
                         offset <= end + NEAR_BYTES;
    size_t want = follows ? AHEAD_BYTES : FIRST_BYTES;
    int code;

    want = bytes > want ? bytes : want;
    want = want < left ? want : (size_t)left;
    window->bytes = 0;
    window->data = window->own;
    code = fetch(window, object, offset, want, err);
    if (code)
        return code;
    window->file = object->file;
    window->from = offset;
    window->bytes = want;
    return 0;
}

static int64_t read_at(int file, uint64_t offset, void *buffer, size_t bytes, struct np_err *err)
{
    const struct np_object *object = np_object_of(file);
    struct window *window;
    int code = 0;

    if (offset >= object->bytes || bytes == 0)
        return 0;
    bytes = bytes < object->bytes - offset ? bytes : (size_t)(object->bytes - offset);
    window = window_take(file, err);
    if (!window)
        return -ENOMEM;
    if (bytes > AHEAD_BYTES) {
        window->data = buffer;
        code = fetch(window, object, offset, bytes, err);
    } else {
        if (window->file != file || offset < window->from ||
            offset + bytes > window->from + window->bytes)
            code = refill(window, object, offset, bytes, err);
        if (!code)
            memcpy(buffer, window->own + (offset - window->from), bytes);
    }
    window_release(window);
    return code ? code : (int64_t)bytes;
}

const struct np_remote_table np_remote_http = {
    .expand = expand,
    .look = look_at,
    .open = open_object,
    .facts = facts,
    .read = read_at,
    .open_io = np_io_http_open,
    .trouble = np_parts_trouble,
    .numbers = np_parts_numbers,
};
