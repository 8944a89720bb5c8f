#include "loader/remote/part.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "loader/base/clock.h"
#include "loader/base/mem.h"
#include "loader/remote/reply.h"
#include "loader/remote/credentials.h"
#include "loader/remote/straight.h"

#define MAX_TIMED      (1u << 30) /* bytes */
#define FIRST_PAUSE_NS 50000000ull
#define MAX_PAUSE_NS   8000000000u
#define MAX_IDLE_S     20  /* a request without a byte for so long has failed */
#define STOP_MS        100 /* a stop is seen within this time */
#define HEDGE_MIN_NS   10000000u
#define HEDGE_SHARE    20 /* one of so many requests may be a second one */
#define HEDGE_AFTER    32 /* requests of a size, before their times are known */
#define NR_SIZES       6  /* up to 64 KiB, 256 KiB, 1, 4, 16 MiB, more */
#define NR_TIMES       72 /* four an octave, from 0.1 ms to 26 s */
#define FORGET_AFTER   1024

/* How long the last requests of a size took. */
struct times {
    uint32_t nr, counts[NR_TIMES];
    uint64_t most_ns; /* within which 95 % of them end; 0: not known */
};

struct np_parts {
    struct np_straight *calls;
    struct np_part *first, **end; /* all that are in flight, oldest first */
    int nr_parts;
    const int *stopped;
    uint64_t nr_requests, nr_hedges;
    uint64_t draws; /* of jitter; never 0 */
    struct times times[NR_SIZES];
};

/* --- numbers of all threads ------------------------------------------------------------------ */

static struct np_remote_numbers numbers; /* atomic */

static struct {
    pthread_mutex_t lock;
    uint64_t at_ns; /* under lock, with the text */
    char text[512];
} trouble = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void count(uint64_t *number, uint64_t more)
{
    __atomic_fetch_add(number, more, __ATOMIC_RELAXED);
}

void np_parts_numbers(struct np_remote_numbers *ret_numbers)
{
    ret_numbers->nr_requests = __atomic_load_n(&numbers.nr_requests, __ATOMIC_RELAXED);
    ret_numbers->nr_retries = __atomic_load_n(&numbers.nr_retries, __ATOMIC_RELAXED);
    ret_numbers->nr_hedges = __atomic_load_n(&numbers.nr_hedges, __ATOMIC_RELAXED);
    ret_numbers->bytes = __atomic_load_n(&numbers.bytes, __ATOMIC_RELAXED);
}

bool np_parts_trouble(uint64_t since_ns, char *text, size_t text_bytes)
{
    bool is_new;

    pthread_mutex_lock(&trouble.lock);
    is_new = trouble.at_ns > since_ns;
    if (is_new)
        snprintf(text, text_bytes, "%s", trouble.text);
    pthread_mutex_unlock(&trouble.lock);
    return is_new;
}

static void note_trouble(const struct np_err *err)
{
    pthread_mutex_lock(&trouble.lock);
    trouble.at_ns = np_now_ns();
    snprintf(trouble.text, sizeof(trouble.text), "%.500s", err->text);
    pthread_mutex_unlock(&trouble.lock);
}

/* --- times ----------------------------------------------------------------------------------- */

static struct times *times_of(struct np_parts *parts, uint64_t bytes)
{
    int size = 0;

    for (uint64_t limit = 64u << 10; size < NR_SIZES - 1 && bytes > limit; limit *= 4)
        size++;
    return &parts->times[size];
}

/* Upper edge of a bucket. */
static uint64_t edge_ns(int bucket)
{
    static const double quarters[] = {1.189207, 1.414214, 1.681793, 2.0};

    return (uint64_t)(1e5 * (double)(1ull << bucket / 4) * quarters[bucket % 4]);
}

/* The time within which 95 % of the requests end. */
static uint64_t times_95(const struct times *times)
{
    uint32_t below = 0;
    int bucket = 0;

    while (bucket < NR_TIMES - 1 && (below += times->counts[bucket]) < times->nr - times->nr / 20)
        bucket++;
    return edge_ns(bucket) > HEDGE_MIN_NS ? edge_ns(bucket) : HEDGE_MIN_NS;
}

static void times_add(struct times *times, uint64_t ns)
{
    int bucket = 0;

    while (bucket < NR_TIMES - 1 && edge_ns(bucket) < ns)
        bucket++;
    times->counts[bucket]++;
    if (++times->nr >= HEDGE_AFTER)
        times->most_ns = times_95(times);
    if (times->nr < FORGET_AFTER)
        return;
    times->nr = 0;
    for (int i = 0; i < NR_TIMES; i++)
        times->nr += times->counts[i] /= 2;
}

/* After which a second request may help; UINT64_MAX: not known. */
static uint64_t patience_ns(struct np_parts *parts, const struct np_part *part)
{
    const uint64_t most_ns = times_of(parts, part->bytes)->most_ns;

    return most_ns ? most_ns : UINT64_MAX;
}

/* --- one request ----------------------------------------------------------------------------- */

static int begin_body(struct np_web_call *call)
{
    struct np_part_try *one = call->owner;
    const struct np_part *part = one->part;

    if (part->bytes == 0)
        return call->answer.status == 200 ? -EOPNOTSUPP : 0; /* learn() says what is wrong */
    return np_object_check(part->object, part->offset, part->bytes, &call->answer, &one->err);
}

static uint8_t *find_room(struct np_web_call *call, uint64_t at, size_t *ret_bytes)
{
    struct np_part_try *one = call->owner;

    return one->part->room(one->part, at, ret_bytes);
}

static int take_body(struct np_web_call *call, const void *bytes, size_t nr)
{
    struct np_part_try *one = call->owner;
    struct np_part *part = one->part;

    if (part->bytes == 0)
        return 0;
    if (nr > part->bytes - one->got)
        return np_object_stale(
            part->object, "the server sends more than it was asked for", &one->err);
    part->data(part, one->got, bytes, nr);
    one->got += nr;
    return 0;
}

/* 0; -ENOMEM, or what the keys lack. */
static int start(struct np_parts *parts, struct np_part *part, struct np_part_try *one)
{
    struct np_keys keys = {.id = ""};
    int code = 0;

    one->part = part;
    one->got = 0;
    one->err.code = 0;
    one->begin_ns = np_now_ns();
    if (part->object->is_signed)
        code = np_credentials_get(part->renew, &keys, &one->err);
    if (!code && *keys.token && strncmp(part->object->url, "gs://", 5) == 0)
        keys = (struct np_keys){.id = ""}; /* AWS's own: Google's HMAC keys have no token */
    part->renewed |= part->renew;
    part->renew = false;
    if (!code && (code = np_object_fields(part->object, part->offset, part->bytes, &keys,
                      time(NULL), one->fields, sizeof(one->fields))) < 0)
        np_err_set(&one->err, code, "%s: its request is too long", part->object->shown);
    if (code)
        return code;
    one->call = (struct np_web_call){.url = part->object->wire,
        .fields = one->fields,
        .follows = !part->object->is_signed,
        /* An answer that trickles ends, too: 4 KiB/s are the least. */
        .max_ms = (int)(part->limit_ns / 1000000 +
                        (part->bytes < MAX_TIMED ? part->bytes : MAX_TIMED) / 4),
        .idle_s = part->limit_ns < MAX_IDLE_S * 1000000000ull
                      ? (int)(part->limit_ns / 1000000000) + 1
                      : MAX_IDLE_S,
        .begin = begin_body,
        .data = take_body,
        .room = part->bytes ? find_room : NULL,
        .body_bytes = part->bytes,
        .owner = one};
    code = np_straight_begin(parts->calls, &one->call);
    if (code)
        return np_err_set(&one->err, code, "%s: out of memory for a request", part->object->shown);
    one->running = true;
    parts->nr_requests++;
    count(&numbers.nr_requests, 1);
    return 0;
}

static void stop(struct np_parts *parts, struct np_part_try *one)
{
    if (one->running)
        np_straight_cancel(parts->calls, &one->call);
    one->running = false;
}

/* --- what an answer means -------------------------------------------------------------------- */

enum verdict { GOOD, AGAIN, NEW_KEYS, FINAL };

static bool is_about_keys(const struct np_refusal *refusal)
{
    static const char *const codes[] = {
        "ExpiredToken", "InvalidToken", "TokenRefreshRequired", "RequestTimeTooSkewed"};

    for (size_t i = 0; i < sizeof(codes) / sizeof(*codes); i++)
        if (strcmp(refusal->code, codes[i]) == 0)
            return true;
    return false;
}

static int refuse(struct np_part_try *one, int code, const struct np_refusal *refusal)
{
    const struct np_object *object = one->part->object;
    const char *dots = *refusal->code ? ": " : "", *more = *refusal->message ? ": " : "";
    const char *hint = "";

    if (object->is_signed && code == -EACCES && !strstr(one->fields, "Authorization:"))
        hint =
            " (there are no keys: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE)";
    return np_err_set(&one->err, code, "%s: the server answers HTTP %d%s%s%s%s%s", object->shown,
        one->call.answer.status, dots, refusal->code, more, refusal->message, hint);
}

static enum verdict judge_status(struct np_part_try *one)
{
    const struct np_part *part = one->part;
    const int status = one->call.answer.status;
    struct np_refusal refusal;

    np_refusal_read(one->call.body, &refusal);
    if (part->bytes && (status == 412 || status == 416 || status == 404 || status == 410)) {
        np_object_stale(part->object,
            status == 412   ? "HTTP 412: its ETag is no longer the same"
            : status == 416 ? "HTTP 416: it is shorter"
                            : "HTTP 404: it is gone",
            &one->err);
        return FINAL;
    }
    if (status == 401 || status == 403 || (status == 400 && is_about_keys(&refusal))) {
        refuse(one, -EACCES, &refusal);
        return NEW_KEYS;
    }
    if (status == 408 || status == 429 || status >= 500) {
        refuse(one, -EIO, &refusal);
        return AGAIN;
    }
    refuse(one, status == 404 || status == 410 ? -ENOENT : -EPROTO, &refusal);
    return part->impatient ? FINAL : AGAIN;
}

static enum verdict judge(struct np_part_try *one)
{
    const struct np_part *part = one->part;
    const struct np_web_call *call = &one->call;

    if (part->bytes == 0 && (call->answer.status == 200 || call->answer.status == 416))
        return GOOD; /* np_object_learn() has the words */
    if (one->err.code)
        return FINAL;
    if (call->code) {
        np_err_set(&one->err, call->code, "%s: %s", part->object->shown, call->error);
        return part->impatient && call->code == -EPROTO ? FINAL : AGAIN;
    }
    if (call->answer.status / 100 != 2)
        return judge_status(one);
    if (part->bytes && one->got < part->bytes) {
        np_err_set(&one->err, -EIO, "%s: the server sends %llu bytes of %llu", part->object->shown,
            (unsigned long long)one->got, (unsigned long long)part->bytes);
        return AGAIN;
    }
    return GOOD;
}

/* --- parts ----------------------------------------------------------------------------------- */

struct np_parts *np_parts_new(int max, const int *stopped, struct np_err *err)
{
    struct np_parts *parts = np_try_alloc(sizeof(*parts), err);

    if (!parts)
        return NULL;
    parts->calls = np_straight_new(max + max / 4 + 1, err);
    if (!parts->calls) {
        np_free(parts);
        return NULL;
    }
    parts->stopped = stopped;
    parts->end = &parts->first;
    parts->draws = np_now_ns() ^ (uint64_t)(uintptr_t)parts;
    parts->draws += !parts->draws;
    return parts;
}

void np_parts_free(struct np_parts *parts)
{
    if (!parts)
        return;
    np_straight_free(parts->calls);
    np_free(parts);
}

int np_parts_in_flight(const struct np_parts *parts)
{
    return parts->nr_parts;
}

static double draw(struct np_parts *parts) /* xorshift64: 0 to 1 */
{
    parts->draws ^= parts->draws << 13;
    parts->draws ^= parts->draws >> 7;
    parts->draws ^= parts->draws << 17;
    return (double)(parts->draws >> 11) * 0x1p-53;
}

/* Takes a part out; it has ended. */
static struct np_part *end(struct np_parts *parts, struct np_part *part, int code)
{
    struct np_part **at = &parts->first;

    for (int i = 0; i < NP_PART_TRIES; i++)
        stop(parts, &part->tries[i]);
    while (*at != part)
        at = &(*at)->next;
    *at = part->next;
    if (!part->next)
        parts->end = at;
    parts->nr_parts--;
    part->code = code;
    return part;
}

/* A request of the part failed, and none runs beside it. Returns the part if it has ended. */
static struct np_part *fail(struct np_parts *parts, struct np_part *part,
    const struct np_part_try *one, enum verdict verdict)
{
    const uint64_t now_ns = np_now_ns(), spent_ns = now_ns - part->begin_ns;
    uint64_t pause_ns = FIRST_PAUSE_NS << (part->nr_tries < 8 ? part->nr_tries : 8);
    const bool refused_twice = verdict == NEW_KEYS && part->impatient && part->renewed;

    part->err = one->err;
    part->answer = one->call.answer;
    part->nr_tries++;
    if (verdict == FINAL || refused_twice || part->err.code == -ENOMEM)
        return end(parts, part, part->err.code);
    if (part->impatient && part->err.code == -EINVAL) /* what the keys lack */
        return end(parts, part, part->err.code);
    note_trouble(&part->err);
    pause_ns = pause_ns < MAX_PAUSE_NS ? pause_ns : MAX_PAUSE_NS;
    pause_ns = (uint64_t)((0.5 + 0.5 * draw(parts)) * (double)pause_ns);
    if (spent_ns >= part->limit_ns) {
        np_err_context(&part->err, "given up after %.0f s (%d requests)", (double)spent_ns / 1e9,
            part->nr_tries);
        return end(parts, part, -ETIMEDOUT);
    }
    if (pause_ns > part->limit_ns - spent_ns)
        pause_ns = part->limit_ns - spent_ns;
    part->renew = verdict == NEW_KEYS;
    part->waits = true;
    part->again_ns = now_ns + pause_ns;
    count(&numbers.nr_retries, 1);
    return NULL;
}

/* Starts a part's request. Returns the part if it has ended. */
static struct np_part *go(struct np_parts *parts, struct np_part *part)
{
    struct np_part_try *one = &part->tries[0];

    part->waits = false;
    if (start(parts, part, one) == 0)
        return NULL;
    one->call.answer = (struct np_web_answer){.bytes = -1};
    return fail(parts, part, one, AGAIN);
}

void np_parts_add(struct np_parts *parts, struct np_part *part)
{
    part->code = part->nr_tries = 0;
    part->err.code = 0;
    part->renew = part->renewed = false;
    part->waits = true;
    part->begin_ns = part->again_ns = np_now_ns();
    for (int i = 0; i < NP_PART_TRIES; i++)
        part->tries[i].running = false;
    part->next = NULL;
    *parts->end = part;
    parts->end = &part->next;
    parts->nr_parts++;
}

/* A call has ended. Returns its part if that has ended. */
static struct np_part *settle(struct np_parts *parts, struct np_part_try *one)
{
    struct np_part *part = one->part;
    struct np_part_try *other = &part->tries[one == &part->tries[0]];
    const enum verdict verdict = judge(one);

    one->running = false;
    count(&numbers.bytes, one->got);
    if (verdict == GOOD) {
        times_add(times_of(parts, part->bytes), np_now_ns() - one->begin_ns);
        part->answer = one->call.answer;
        return end(parts, part, 0);
    }
    if (verdict != FINAL && other->running) /* it may succeed */
        return NULL;
    return fail(parts, part, one, verdict);
}

/* A second request for a part that takes long. */
static void hedge(struct np_parts *parts, struct np_part *part, uint64_t now_ns)
{
    struct np_part_try *first = &part->tries[0], *second = &part->tries[1];
    struct np_part_try *running = first->running ? first : second;
    struct np_part_try *spare = first->running ? second : first;

    if (part->bytes == 0 || part->impatient || spare->running || !running->running ||
        (parts->nr_hedges + 1) * HEDGE_SHARE > parts->nr_requests ||
        now_ns - running->begin_ns < patience_ns(parts, part))
        return;
    if (start(parts, part, spare) == 0) {
        parts->nr_hedges++;
        count(&numbers.nr_hedges, 1);
    }
}

struct np_part *np_parts_turn(struct np_parts *parts)
{
    const uint64_t now_ns = np_now_ns();
    struct np_web_call *call;
    struct np_part *ended = NULL;

    if (!parts->first)
        return NULL;
    if (parts->stopped && __atomic_load_n(parts->stopped, __ATOMIC_RELAXED)) {
        np_err_set(&parts->first->err, -ECANCELED, "stopped");
        return end(parts, parts->first, -ECANCELED);
    }
    for (struct np_part *part = parts->first; part; part = part->next) {
        if (part->waits && part->again_ns <= now_ns) {
            ended = go(parts, part);
            if (ended)
                return ended;
        } else if (!part->waits)
            hedge(parts, part, now_ns);
    }
    while (!ended && (call = np_straight_turn(parts->calls)) != NULL)
        ended = settle(parts, call->owner);
    return ended;
}

/* Milliseconds until a part must be tried again, or may get a second request. */
static int until_next(struct np_parts *parts)
{
    const uint64_t now_ns = np_now_ns();
    uint64_t next_ns = now_ns + STOP_MS * 1000000u;

    for (const struct np_part *part = parts->first; part; part = part->next) {
        const struct np_part_try *one = &part->tries[!part->tries[0].running];
        uint64_t at_ns = part->again_ns, limit_ns;

        if (!part->waits) {
            limit_ns = patience_ns(parts, part);
            at_ns = limit_ns == UINT64_MAX || (part->tries[0].running && part->tries[1].running)
                        ? UINT64_MAX
                        : one->begin_ns + limit_ns;
            if (at_ns <= now_ns) /* there are too many second requests already */
                at_ns = UINT64_MAX;
        }
        next_ns = at_ns < next_ns ? at_ns : next_ns;
    }
    return next_ns > now_ns ? (int)((next_ns - now_ns + 999999) / 1000000) : 0;
}

void np_parts_wait(struct np_parts *parts, int extra_fd)
{
    np_straight_wait(parts->calls, extra_fd, until_next(parts));
}
