#include "loader/remote/object.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <xxhash.h>

#include "loader/base/clock.h"
#include "loader/base/mem.h"
#include "loader/base/remote.h"
#include "loader/remote/reply.h"
#include "loader/remote/credentials.h"
#include "loader/remote/sigv4.h"

#define GS_ENDPOINT "https://storage.googleapis.com"
#define FIRST_FILE  (-1000)
#define CHUNK       4096
#define MAX_CHUNKS  1024

/* --- one object ------------------------------------------------------------------------------ */

void np_object_places_read(struct np_object_places *places)
{
    const char *emulator = getenv("STORAGE_EMULATOR_HOST");

    if (!np_credentials_endpoint(places->endpoint, sizeof(places->endpoint)))
        places->endpoint[0] = '\0';
    snprintf(places->gs_endpoint, sizeof(places->gs_endpoint), "%s",
        emulator && *emulator ? emulator : GS_ENDPOINT);
    np_credentials_region(places->region, sizeof(places->region));
}

void np_object_free(struct np_object *object)
{
    if (!object)
        return;
    np_free(object->url);
    np_free(object->shown);
    np_free(object->wire);
    np_free(object->host);
    np_free(object->path);
    np_free(object->version);
    np_free(object);
}

static int place_in_bucket(struct np_object *object, enum np_url_kind kind,
    const struct np_object_places *places, struct np_err *err)
{
    const bool is_gs = kind == NP_URL_GS;
    struct np_url_place place = {.region = is_gs ? "auto" : places->region};
    struct np_url_wire wire;
    int code;

    place.endpoint = is_gs ? places->gs_endpoint : *places->endpoint ? places->endpoint : NULL;
    code = np_url_wire(object->url, &place, &wire, err);
    if (code)
        return code;
    object->is_signed = true;
    snprintf(object->region, sizeof(object->region), "%s", place.region);
    object->host = np_try_strdup(wire.host, err);
    object->path = np_try_strdup(wire.path, err);
    object->wire = np_try_format(err, "%s%s", wire.origin, wire.path);
    return object->host && object->path && object->wire ? 0 : -ENOMEM;
}

int np_object_new(const char *url, const struct np_object_places *places,
    struct np_object **ret_object, struct np_err *err)
{
    struct np_object *object;
    enum np_url_kind kind;
    char shown[NP_URL_MAX];
    int code = np_url_check(url, &kind, err);

    if (code)
        return code;
    object = np_try_alloc(sizeof(*object), err);
    if (!object)
        return -ENOMEM;
    np_url_shown(url, shown, sizeof(shown));
    object->url = np_try_strdup(url, err);
    object->shown = np_try_strdup(shown, err);
    if (!object->url || !object->shown)
        code = -ENOMEM;
    else if (kind == NP_URL_HTTP)
        code = (object->wire = np_try_strdup(url, err)) ? 0 : -ENOMEM;
    else
        code = place_in_bucket(object, kind, places, err);
    if (code)
        np_object_free(object);
    else
        *ret_object = object;
    return code;
}

int np_object_fields(const struct np_object *object, uint64_t offset, uint64_t bytes,
    const struct np_keys *keys, time_t now, char *out, size_t out_bytes)
{
    const bool has_match = bytes > 0 && object->is_strong;
    const int used = snprintf(out, out_bytes, "Range: bytes=%llu-%llu\n%s%s%s",
        (unsigned long long)offset, (unsigned long long)(offset + (bytes ? bytes - 1 : 0)),
        has_match ? "If-Match: " : "", has_match ? object->etag : "", has_match ? "\n" : "");

    if (used >= (int)out_bytes)
        return -ENAMETOOLONG;
    if (!object->is_signed || !*keys->id)
        return 0;
    /* Range and If-Match are signed, too: the text before is both sent and signed. */
    const struct np_sigv4_request request = {.method = "GET",
        .host = object->host,
        .path = object->path,
        .fields = out,
        .region = object->region,
        .service = "s3"};
    const struct np_sigv4_keys sign = {keys->id, keys->secret, keys->token};
    char more[NP_OBJECT_FIELDS];
    int code = np_sigv4_sign(&request, &sign, now, more, sizeof(more));

    if (!code && snprintf(out + used, out_bytes - (size_t)used, "%s", more) >=
                     (int)(out_bytes - (size_t)used))
        code = -ENAMETOOLONG;
    return code;
}

/* --- versions -------------------------------------------------------------------------------- */

/* Stands for the version of objects that have none: another one in each process, so that no index of
 * an earlier process counts as one of theirs. */
static uint64_t number_of_process(void)
{
    static uint64_t number;
    uint64_t none = 0;

    __atomic_compare_exchange_n(&number, &none, np_now_ns() ^ (uint64_t)getpid() << 40, false,
        __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return __atomic_load_n(&number, __ATOMIC_RELAXED);
}

int np_object_learn(
    struct np_object *object, const struct np_web_answer *answer, struct np_err *err)
{
    uint64_t first, last;
    int64_t bytes;
    char version[2 * NP_WEB_FIELD + 64];

    if (answer->status == 200)
        return np_err_set(err, -EOPNOTSUPP,
            "%s: the server sends no parts of files (it ignores `Range`), so it cannot serve a "
            "set: "
            "copy the file, or put it on another server",
            object->shown);
    if (answer->status == 416)
        return np_err_set(err, -ENODATA, "%s: is empty", object->shown);
    if (!np_content_range(answer->content_range, &first, &last, &bytes) || first != 0 ||
        last != 0 || bytes < 0)
        return np_err_set(err, -EBADMSG,
            "%s: the server does not say how large it is (Content-Range: '%s')", object->shown,
            answer->content_range);
    object->bytes = (uint64_t)bytes;
    memcpy(object->etag, answer->etag, sizeof(object->etag));
    memcpy(object->last_modified, answer->last_modified, sizeof(object->last_modified));
    object->is_strong = np_etag_is_strong(object->etag);
    if (object->is_strong)
        snprintf(version, sizeof(version), "%s", object->etag);
    else if (!*object->etag && !*object->last_modified)
        version[0] = '\0';
    else
        snprintf(version, sizeof(version), "%s %s %lld", object->etag, object->last_modified,
            (long long)bytes);
    object->number = XXH3_64bits_withSeed(version, strlen(version), object->bytes) ^
                     (*version ? 0 : number_of_process());
    object->version = np_try_strdup(version, err);
    return object->version ? 0 : -ENOMEM;
}

int np_object_stale(const struct np_object *object, const char *why, struct np_err *err)
{
    return np_err_set(err, -ESTALE,
        "%s has changed since it was listed, so its samples are no longer the same (%s): restore "
        "the old object and resume, or start a new run, which lists it again",
        object->shown, why);
}

int np_object_check(const struct np_object *object, uint64_t offset, uint64_t bytes,
    const struct np_web_answer *answer, struct np_err *err)
{
    uint64_t first, last;
    int64_t size;

    if (answer->status == 200)
        return np_object_stale(object, "the server sends all of it", err);
    if (!np_content_range(answer->content_range, &first, &last, &size) || first != offset ||
        last != offset + bytes - 1 || (size >= 0 && (uint64_t)size != object->bytes))
        return np_object_stale(object, "the server sends other bytes than those asked for", err);
    if (object->is_strong && *answer->etag && strcmp(answer->etag, object->etag) != 0)
        return np_object_stale(object, "it has another ETag", err);
    if (!object->is_strong && strcmp(answer->last_modified, object->last_modified) != 0)
        return np_object_stale(object, "it has another Last-Modified", err);
    if (!object->is_strong && !*object->last_modified && strcmp(answer->etag, object->etag) != 0)
        return np_object_stale(object, "it has another ETag", err);
    return 0;
}

/* --- all objects ----------------------------------------------------------------------------- */

static struct {
    pthread_mutex_t lock;
    /* under lock */
    uint32_t *table; /* (room): number of the newest object of a URL, plus 1; 0: free */
    size_t room, nr_urls;
    uint32_t nr; /* objects */
    /* each pointer is set once, before its handle is known to anyone */
    const struct np_object **chunks[MAX_CHUNKS];
} objects = {.lock = PTHREAD_MUTEX_INITIALIZER};

static const struct np_object *by_number(uint32_t number)
{
    return objects.chunks[number / CHUNK][number % CHUNK];
}

const struct np_object *np_object_of(int file)
{
    return by_number((uint32_t)(FIRST_FILE - file));
}

/* Under lock. The place of a URL in the table. */
static uint32_t *find_place(const char *url)
{
    size_t at = XXH3_64bits(url, strlen(url)) & (objects.room - 1);

    while (objects.table[at] && strcmp(by_number(objects.table[at] - 1)->url, url) != 0)
        at = (at + 1) & (objects.room - 1);
    return &objects.table[at];
}

/* Under lock. */
static int grow(struct np_err *err)
{
    const size_t room = objects.room ? 2 * objects.room : 1024;
    uint32_t *old = objects.table, *table;
    const size_t old_room = objects.room;

    if (2 * (objects.nr_urls + 1) <= objects.room)
        return 0;
    table = np_try_array(room, sizeof(*table), err);
    if (!table)
        return -ENOMEM;
    objects.table = table;
    objects.room = room;
    for (size_t i = 0; i < old_room; i++)
        if (old[i])
            *find_place(by_number(old[i] - 1)->url) = old[i];
    np_free(old);
    return 0;
}

/* Under lock. */
static int add(struct np_object *object, uint32_t *place, struct np_err *err)
{
    const struct np_object ***chunk = &objects.chunks[objects.nr / CHUNK];

    if (objects.nr == CHUNK * MAX_CHUNKS)
        return np_err_set(err, -E2BIG, "more than %d objects in one process", CHUNK * MAX_CHUNKS);
    if (!*chunk && !(*chunk = np_try_array(CHUNK, sizeof(**chunk), err)))
        return -ENOMEM;
    object->file = FIRST_FILE - (int)objects.nr;
    (*chunk)[objects.nr % CHUNK] = object;
    objects.nr_urls += !*place;
    *place = ++objects.nr;
    return 0;
}

int np_object_publish(
    struct np_object *object, const struct np_object **ret_object, struct np_err *err)
{
    const struct np_object *known = NULL;
    uint32_t *place;
    int code;

    pthread_mutex_lock(&objects.lock);
    code = grow(err);
    place = code ? NULL : find_place(object->url);
    if (!code && *place)
        known = by_number(*place - 1);
    /* the endpoint may be another one than before */
    if (known && strcmp(known->version, object->version) == 0 &&
        strcmp(known->wire, object->wire) == 0 && known->bytes == object->bytes)
        *ret_object = known;
    else if (!code && !(code = add(object, place, err))) {
        *ret_object = object;
        object = NULL;
    }
    pthread_mutex_unlock(&objects.lock);
    np_object_free(object);
    return code;
}

const struct np_object *np_object_find(const char *url)
{
    const struct np_object *object = NULL;

    pthread_mutex_lock(&objects.lock);
    if (objects.room && *find_place(url))
        object = by_number(*find_place(url) - 1);
    pthread_mutex_unlock(&objects.lock);
    return object;
}
