/* Objects of servers: their URLs, sizes and versions, and the requests for their bytes. An object is
 * known by its handle (loader/base/remote.h) until the process ends, and never changes: when a
 * server has another version, that is another object. Any thread. */
#ifndef NP_OBJECT_H
#define NP_OBJECT_H

#include <time.h>

#include "loader/remote/web.h"
#include "loader/remote/aws_profile.h"
#include "loader/remote/url.h"

#define NP_OBJECT_FIELDS 8192 /* of a request */

struct np_object {
    char *url;   /* as the config has it */
    char *shown; /* without what may be secret */
    char *wire;  /* the URL of the request */
    char *host, *path;
    char region[64];
    bool is_signed;
    /* from the first answer */
    uint64_t bytes, number; /* number: differs for another version */
    char *version;          /* the ETag, or what stands for it; "": the server names none */
    char etag[NP_WEB_FIELD], last_modified[NP_WEB_FIELD];
    bool is_strong; /* etag can be compared */
    int file;       /* the handle */
};

/* Where buckets lie, read from environment and files once for many objects. */
struct np_object_places {
    char endpoint[512], gs_endpoint[512], region[64];
};
void np_object_places_read(struct np_object_places *places);

/* An object whose size is not known yet. -EINVAL: no such URL, or endpoint; -ENOMEM. */
int np_object_new(const char *url, const struct np_object_places *places,
    struct np_object **ret_object, struct np_err *err);
void np_object_free(struct np_object *object);
/* Writes the header fields of a request for these bytes. bytes 0: the first byte of any version.
 * keys->id empty: not signed. -ENAMETOOLONG. */
int np_object_fields(const struct np_object *object, uint64_t offset, uint64_t bytes,
    const struct np_keys *keys, time_t now, char *out, size_t out_bytes);

/* Takes size and version from the answer to the request for the first byte. -EOPNOTSUPP: the server
 * sends no ranges; -EBADMSG: no size; -ENODATA: the object is empty; -ENOMEM. */
int np_object_learn(
    struct np_object *object, const struct np_web_answer *answer, struct np_err *err);
/* Compares the answer to a request for these bytes with the version that is known. -ESTALE: it is
 * another version, and the text says what to do. */
int np_object_check(const struct np_object *object, uint64_t offset, uint64_t bytes,
    const struct np_web_answer *answer, struct np_err *err);
int np_object_stale(const struct np_object *object, const char *why, struct np_err *err);

/* Makes an object with a version known to all, and frees it if it is known already. */
int np_object_publish(
    struct np_object *object, const struct np_object **ret_object, struct np_err *err);
const struct np_object *np_object_of(int file);          /* takes no lock */
const struct np_object *np_object_find(const char *url); /* the newest; NULL: not known */

#endif
