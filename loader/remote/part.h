/* Parts of objects in flight, of one thread: each is one request, repeated until it succeeds. A request
 * that takes longer than 95 % of those before it gets a second one beside it, and the first that is
 * complete wins; these are at most 5 % of all. A failure is retried with pauses that double, each with
 * jitter, until the part's time is over. What says that the object has changed is not retried. */
#ifndef NP_PART_H
#define NP_PART_H

#include "loader/base/remote.h"
#include "loader/remote/web.h"
#include "loader/remote/object.h"

#define NP_PART_TRIES 2 /* at once */

struct np_part_try {
    struct np_web_call call;
    struct np_part *part;
    bool running;
    uint64_t begin_ns, got; /* bytes of the body so far */
    char fields[NP_OBJECT_FIELDS];
    struct np_err err; /* code 0: none */
};

/* The caller owns it, and leaves it unchanged until np_parts_turn() returns it. */
struct np_part {
    const struct np_object *object;
    uint64_t offset, bytes; /* bytes 0: asks for size and version, for np_object_learn() */
    uint64_t limit_ns;      /* it is retried for so long */
    bool impatient;         /* a listing: refusals are not retried, but for one with new keys */
    /* Where bytes from this offset of the part on go, and how many of them. */
    uint8_t *(*room)(struct np_part *part, uint64_t at, size_t *ret_bytes);
    /* The next bytes, at this offset of the part, in their room or elsewhere; the same may come again,
     * from another request. */
    void (*data)(struct np_part *part, uint64_t at, const void *bytes, size_t nr);
    void *owner;

    /* when it has ended */
    int code;                    /* 0; -ESTALE: the object has changed; -ENOENT, -EACCES: impatient;
                                   * -ECANCELED: stopped; -ETIMEDOUT: its time is over; -ENOMEM */
    struct np_err err;           /* what failed last */
    struct np_web_answer answer; /* of the request that succeeded, or was refused last */

    /* For part.c. */
    struct np_part_try tries[NP_PART_TRIES];
    struct np_part *next;
    uint64_t begin_ns, again_ns; /* again_ns: not before */
    int nr_tries;                /* that failed */
    bool waits, renew, renewed;  /* waits: nothing of it runs */
};

struct np_parts; /* one thread */
/* max: parts in flight. stopped: as np_remote_session.stopped, or NULL. NULL: out of memory. */
struct np_parts *np_parts_new(int max, const int *stopped, struct np_err *err);
void np_parts_free(struct np_parts *parts); /* cancels what is in flight. NULL: nothing */
/* Starts a part; blocks only to get new keys. */
void np_parts_add(struct np_parts *parts, struct np_part *part);
int np_parts_in_flight(const struct np_parts *parts);
/* Does what is possible without waiting. Returns a part that has ended, or NULL. */
struct np_part *np_parts_turn(struct np_parts *parts);
/* Waits until np_parts_turn() has something to do, extra_fd (-1: none) is readable, or at most
 * 100 ms, for a stop. */
void np_parts_wait(struct np_parts *parts, int extra_fd);

/* For np_remote_table: of all threads. */
bool np_parts_trouble(uint64_t since_ns, char *text, size_t text_bytes);
void np_parts_numbers(struct np_remote_numbers *ret_numbers);

#endif
