/* See exchange.h. Everything here runs in reader threads. The batches whose slots are free form a
 * window, which begins at the first batch that is not decided. A batch that a peer is making is
 * passed over, and the next one made: so peers that stand at the same place divide the window among
 * them. One lock, of this process alone, is around the decisions; copies are made without it. */
#include "loader/exchange.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "loader/base/clock.h"
#include "loader/base/mem.h"
#include "loader/growth.h"
#include "loader/share/peers.h"
#include "loader/share/shelf.h"

#define MAX_BAD  8           /* bad samples of a batch that is offered */
#define POLL_NS  10000000u   /* between two looks for newcomers, while there is work */
#define FIRST_NS 1000000000u /* what a batch takes, until one was made */
/* A peer without a row for STILL_NS, or SLOW times as slow as we may wait, is not waited for even
 * while our trainer has batches. */
#define STILL_NS   1000000000u
#define SLOW       10
#define SHUN_NS    10000000000u
#define FOREVER_NS UINT64_MAX /* a peer whose batches are not sound */
#define MIN_NAP_NS 200000u
#define MAX_NAP_NS 5000000u
#define FED_NAP_NS 10000000u /* while the trainer does not wait */

/* Of a batch that is dealt out: its number, and the next row. Additions past the last row stay far
 * below 1 << ROW_BITS. */
#define ROW_BITS 24
#define ROW_MASK ((1ull << ROW_BITS) - 1)

/* UNDECIDED: a slot of ours is free; THEIRS: a peer was making it when we looked; TAKING: a thread
 * copies it; DECIDED: its tickets are dealt, or it is taken. */
enum state { UNDECIDED, THEIRS, TAKING, DECIDED };

/* What travels with the rows. */
struct notes {
    int32_t nr_bad;
    struct np_bad_sample bad[MAX_BAD];
};

struct place {
    uint64_t seq; /* under lock, as all up to began_ns */
    enum state state;
    uint64_t since_ns; /* THEIRS: when we saw it first */
    uint64_t beats, beat_ns;
    uint64_t began_ns;
    _Atomic bool offered; /* set before its tickets are dealt: peers know that we make it */
    _Atomic bool kept;
    _Atomic int rows_left;
    struct notes notes; /* of the thread that takes it, or made its last row */
};

struct np_exchange {
    struct np_exchange_options options; /* set once, as all up to nr_places */
    struct np_shelf_shape shape;
    struct np_shelf *shelf;
    struct place *places; /* (nr_places), batch seq at seq % nr_places */
    uint64_t nr_places;

    _Atomic uint64_t deal; /* seq << ROW_BITS | row */
    _Atomic uint64_t made, taken, given_up, waits;
    _Atomic uint64_t batch_ns; /* what the last batch of ours took */

    pthread_mutex_t lock;
    struct np_peers *peers; /* under lock, as all below */
    uint64_t first;         /* the first batch that is not DECIDED */
    uint64_t polled_ns;
    uint64_t fed_ns; /* the last time at which we saw the trainer not wait */
};

/* --- open and close ------------------------------------------------------------------------- */

static struct np_shelf_shape shelf_shape(const struct np_exchange_options *options)
{
    const size_t rows = (size_t)options->shape.rows;
    struct np_shelf_shape shape = {.part_bytes = {rows * np_batch_row_room(&options->shape),
                                       np_batch_label_bytes(&options->shape),
                                       rows * sizeof(struct np_row), sizeof(struct notes)}};
    uint64_t bytes = 1, nr_slots;

    for (int p = 0; p < NP_SHELF_PARTS; p++)
        bytes += shape.part_bytes[p];
    nr_slots = options->memory_bytes / bytes;
    shape.nr_slots = nr_slots < 2 ? 2 : nr_slots > NP_SHELF_MAX ? NP_SHELF_MAX : (int)nr_slots;
    return shape;
}

/* Of everything that decides a batch and its place. */
static uint64_t hash_of(const struct np_exchange *exchange)
{
    const struct np_sampler_options *o = &exchange->options.sampler->options;
    const struct np_batch_shape *shape = &exchange->options.shape;
    uint64_t growth = 0;

    for (int i = 0; shape->growth && i < shape->growth->nr; i++) {
        const struct np_grown *stage = &shape->growth->stages[i];
        const uint64_t size[] = {stage->first_row, (uint64_t)stage->height, (uint64_t)stage->width};

        growth = XXH3_64bits_withSeed(size, sizeof(size), growth);
    }
    const uint64_t facts[] = {exchange->options.hash, o->seed, o->nr_train, o->nr_eval,
        (uint64_t)o->batch, o->nr_steps, o->eval_steps, (uint64_t)o->shuffle, o->window,
        o->split ? XXH3_64bits(o->split, (o->nr_eval + o->nr_train) * sizeof(*o->split)) : 0,
        (uint64_t)o->epochs, (uint64_t)o->rank, (uint64_t)o->world, o->keep_bad, o->balance,
        (uint64_t)o->repeat, (uint64_t)shape->height, (uint64_t)shape->width,
        (uint64_t)shape->eval_height, (uint64_t)shape->eval_width, growth,
        (uint64_t)shape->channels, (uint64_t)shape->format.type, shape->format.planar,
        (uint64_t)shape->values, (uint64_t)exchange->shape.nr_slots, sizeof(struct np_row),
        sizeof(struct notes)};
    const double period = o->eval_epochs;

    return XXH3_64bits_withSeed(facts, sizeof(facts), XXH3_64bits(&period, sizeof(period)));
}

static void *new_view(int fd, const void *context)
{
    const struct np_exchange *exchange = context;
    struct np_shelf_view *view = NULL;

    return np_shelf_view_new(fd, &exchange->shape, &view, NULL) ? NULL : view;
}

static void free_view(void *view)
{
    np_shelf_view_free(view);
}

static int open_peers(struct np_exchange *exchange, struct np_err *err)
{
    const struct np_peers_options options = {.hash = hash_of(exchange),
        .fd = np_shelf_fd(exchange->shelf),
        .view_new = new_view,
        .view_free = free_view,
        .context = exchange};

    return np_peers_open(&options, &exchange->peers, err);
}

int np_exchange_new(const struct np_exchange_options *options, struct np_exchange **ret_exchange,
    struct np_err *err)
{
    struct np_exchange *exchange = np_try_alloc(sizeof(*exchange), err);
    int code = -ENOMEM;

    assert(!options->sampler->options.dealt);
    if (!exchange)
        return -ENOMEM;
    exchange->options = *options;
    exchange->shape = shelf_shape(options);
    exchange->nr_places = (uint64_t)np_ring_slots(options->ring);
    exchange->first = options->sampler->first_seq;
    atomic_init(&exchange->deal, ROW_MASK >> 1);
    atomic_init(&exchange->batch_ns, FIRST_NS);
    pthread_mutex_init(&exchange->lock, NULL);
    exchange->places = np_try_array(exchange->nr_places, sizeof(*exchange->places), err);
    for (uint64_t i = 0; exchange->places && i < exchange->nr_places; i++)
        exchange->places[i].seq = UINT64_MAX;
    if (exchange->places)
        code = np_shelf_new(&exchange->shape, &exchange->shelf, err);
    if (!code)
        code = open_peers(exchange, err);
    if (code) {
        np_exchange_free(exchange);
        return code;
    }
    *ret_exchange = exchange;
    return 0;
}

void np_exchange_free(struct np_exchange *exchange)
{
    if (!exchange)
        return;
    np_peers_close(exchange->peers);
    np_shelf_free(exchange->shelf);
    np_free(exchange->places);
    pthread_mutex_destroy(&exchange->lock);
    np_free(exchange);
}

/* --- what peers have (under lock) ----------------------------------------------------------- */

static struct place *place_of(struct np_exchange *exchange, uint64_t seq)
{
    struct place *place = &exchange->places[seq % exchange->nr_places];

    if (place->seq != seq) {
        place->seq = seq;
        place->state = UNDECIDED;
        atomic_store(&place->kept, false);
    }
    return place;
}

/* The peer that has batch seq, or else one that is making it, and is not shunned. */
static struct np_peer *look(
    struct np_exchange *exchange, uint64_t seq, uint64_t now_ns, enum np_shelf_state *ret_state)
{
    struct np_peer *best = NULL, *peer;

    *ret_state = NP_SHELF_NONE;
    for (int i = 0; (peer = np_peers_get(exchange->peers, i)); i++) {
        const enum np_shelf_state state =
            peer->view && peer->fd >= 0 ? np_shelf_look(peer->view, seq) : NP_SHELF_NONE;

        if (state > *ret_state && peer->shunned_ns != FOREVER_NS &&
            (state == NP_SHELF_READY || now_ns >= peer->shunned_ns)) {
            *ret_state = state;
            best = peer;
        }
    }
    return best;
}

static uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* beat_ns: since the peer's last row; since_ns: since it was seen to make this batch; hungry_ns: of
 * that time, since our trainer waits. */
static bool is_patient(
    const struct np_exchange *exchange, uint64_t beat_ns, uint64_t since_ns, uint64_t hungry_ns)
{
    const uint64_t wait_ns = exchange->options.wait_ns;
    const uint64_t whole_ns = wait_ns + atomic_load(&exchange->batch_ns);

    if (beat_ns >= later(wait_ns, STILL_NS) || since_ns >= SLOW * whole_ns)
        return false; /* also if the program only looks for batches, and never waits */
    return hungry_ns < whole_ns && (beat_ns < wait_ns || hungry_ns < wait_ns);
}

/* True: a peer is making the batch, and we have not lost patience with it, which we do only while
 * our trainer waits. Who has tried it is shunned for a while, so that a slow peer is a burden once,
 * not with each batch that it begins. */
static bool is_worth_waiting(
    struct np_exchange *exchange, struct place *place, struct np_peer *peer, uint64_t now_ns)
{
    const uint64_t beats = np_shelf_beats(peer->view);

    if (place->state == UNDECIDED) {
        place->state = THEIRS;
        place->since_ns = place->beat_ns = now_ns;
        place->beats = beats;
        atomic_fetch_add_explicit(&exchange->waits, 1, memory_order_relaxed);
    }
    if (place->beats != beats) {
        place->beats = beats;
        place->beat_ns = now_ns;
    }
    if (is_patient(exchange, now_ns - place->beat_ns, now_ns - place->since_ns,
            now_ns - later(exchange->fed_ns, place->since_ns)))
        return true;
    peer->shunned_ns = now_ns + SHUN_NS;
    return false;
}

/* After an announcement. True: a peer announced the same batch at the same moment, and it is the
 * peer's; the withdrawal of one of the two is certain, since each announces first and looks
 * then. Nothing is left to a shunned peer. */
static bool is_yielded(struct np_exchange *exchange, uint64_t seq, uint64_t now_ns)
{
    const struct np_peer *peer;

    for (int i = 0; (peer = np_peers_get(exchange->peers, i)); i++)
        if (peer->view && peer->fd >= 0 && now_ns >= peer->shunned_ns &&
            peer->id < np_peers_id(exchange->peers) &&
            np_shelf_look(peer->view, seq) == NP_SHELF_MAKING)
            return true;
    return false;
}

/* --- decisions (under lock) ----------------------------------------------------------------- */

/* The notes are another process's: its numbers may be any, and its texts may lack their end. */
static bool are_sound(const struct np_exchange *exchange, const struct place *place)
{
    const struct notes *notes = &place->notes;
    bool sound = notes->nr_bad >= 0 && notes->nr_bad <= MAX_BAD;

    for (int i = 0; sound && i < notes->nr_bad; i++) {
        const struct np_bad_sample *bad = &notes->bad[i];

        sound = bad->seq == place->seq && bad->row >= 0 &&
                bad->row < exchange->options.shape.rows && bad->attempt >= 0 &&
                (unsigned)bad->kind <= NP_BATCH_EVAL &&
                memchr(bad->path, '\0', sizeof(bad->path)) &&
                memchr(bad->reason, '\0', sizeof(bad->reason));
    }
    return sound;
}

/* Copies the batch, without the lock meanwhile. False: it went away, or is not sound. */
static bool take(struct np_exchange *exchange, struct place *place, struct np_peer *peer)
{
    struct np_batch *batch = np_ring_try_claim(exchange->options.ring, place->seq);
    void *const parts[NP_SHELF_PARTS] = {batch ? batch->images : NULL, batch ? batch->labels : NULL,
        batch ? batch->about : NULL, &place->notes};
    bool copied, good;

    place->state = TAKING;
    peer->nr_users++;
    pthread_mutex_unlock(&exchange->lock);
    copied = batch && np_shelf_copy(peer->view, place->seq, parts);
    good = copied && are_sound(exchange, place);
    pthread_mutex_lock(&exchange->lock);
    peer->nr_users--;
    if (copied && !good)
        peer->shunned_ns = FOREVER_NS;
    place->state = good ? DECIDED : UNDECIDED;
    return good;
}

/* Gives the trainer a batch that was taken. Without lock. */
static void accept_taken(struct np_exchange *exchange, struct place *place, struct np_block *block)
{
    struct np_ring *ring = exchange->options.ring;
    struct np_batch *batch = np_ring_try_claim(ring, place->seq);
    struct np_ticket ticket;
    struct np_err err = {0};
    int code = 0;

    if (!batch) /* the ring was stopped */
        return;
    np_sampler_ticket(exchange->options.sampler, place->seq, 0, &ticket);
    batch->kind = ticket.kind;
    batch->step = ticket.step;
    batch->part = ticket.part;
    batch->nr_parts = ticket.nr_parts;
    for (int i = 0; code >= 0 && i < place->notes.nr_bad; i++)
        code = np_bad_add(exchange->options.bad, &place->notes.bad[i], &err);
    if (code < 0) {
        np_ring_stop(ring, &err);
        return;
    }
    atomic_fetch_add_explicit(&exchange->taken, 1, memory_order_relaxed);
    np_ring_commit_all(ring, batch, block);
    np_stat_pass(block, NP_STAGE_BATCH);
}

/* Makes the batch ours, and deals its first max tickets to the caller. Returns their number; 0: a
 * peer began it at the same moment. */
static int begin(struct np_exchange *exchange, struct place *place, int max, uint64_t now_ns)
{
    const int rows = exchange->options.shape.rows, n = rows < max ? rows : max;
    const bool offered = np_peers_met(exchange->peers) > 0;

    if (offered) {
        np_shelf_announce(exchange->shelf, place->seq);
        if (place->state == UNDECIDED && is_yielded(exchange, place->seq, now_ns)) {
            np_shelf_withdraw(exchange->shelf, place->seq);
            return 0;
        }
    }
    if (place->state == THEIRS)
        atomic_fetch_add_explicit(&exchange->given_up, 1, memory_order_relaxed);
    place->state = DECIDED;
    place->began_ns = now_ns;
    atomic_store(&place->rows_left, rows);
    atomic_store(&place->offered, offered);
    atomic_fetch_add_explicit(&exchange->made, 1, memory_order_relaxed);
    /* Pairs with the addition in np_exchange_next(). */
    atomic_store(&exchange->deal, place->seq << ROW_BITS | (uint64_t)n);
    return n;
}

/* What walk() found. */
struct found {
    uint64_t seq;        /* rows are dealt of this batch, or its slot is not free yet */
    int nr_tickets;      /* 0: none */
    struct place *taken; /* NULL: none */
    bool again;          /* look for more */
    bool pending;        /* a batch in the window may yet come from a peer */
};

/* Decides about one batch whose slot is free. True: there is work for the caller. */
static bool decide(struct np_exchange *exchange, struct place *place, int max, uint64_t now_ns,
    struct found *found)
{
    enum np_shelf_state state;
    struct np_peer *peer = look(exchange, place->seq, now_ns, &state);

    if (state == NP_SHELF_READY) { /* others have decided meanwhile: if it failed, walk again */
        found->taken = take(exchange, place, peer) ? place : NULL;
        found->again = true;
        return true;
    }
    if (state == NP_SHELF_MAKING && is_worth_waiting(exchange, place, peer, now_ns)) {
        found->pending = true;
        return false;
    }
    found->seq = place->seq;
    found->nr_tickets = begin(exchange, place, max, now_ns);
    found->pending |= found->nr_tickets == 0;
    return found->nr_tickets > 0;
}

/* Before each walk, too: the slot of a decided batch may be free for a later one by then. */
static void pass_decided(struct np_exchange *exchange)
{
    const struct place *place = &exchange->places[exchange->first % exchange->nr_places];

    while (place->seq == exchange->first && place->state == DECIDED) {
        exchange->first++;
        place = &exchange->places[exchange->first % exchange->nr_places];
    }
    np_shelf_want(exchange->shelf, exchange->first);
}

/* Walks over the window until there is work for the caller. */
static struct found walk(struct np_exchange *exchange, int max)
{
    struct np_ring *ring = exchange->options.ring;
    const uint64_t end = exchange->options.sampler->nr_batches, now_ns = np_now_ns();
    struct found found = {0};

    if (!np_ring_starves(ring))
        exchange->fed_ns = now_ns;
    pass_decided(exchange);
    for (found.seq = exchange->first; found.seq < end && np_ring_try_claim(ring, found.seq);
         found.seq++) {
        struct place *place = place_of(exchange, found.seq);

        if (place->state == TAKING)
            found.pending = true;
        else if (place->state != DECIDED && decide(exchange, place, max, now_ns, &found))
            break;
    }
    pass_decided(exchange);
    return found;
}

/* --- for readers ---------------------------------------------------------------------------- */

/* The next rows of the batch that is dealt out. 0: none are left. */
static int deal_on(struct np_exchange *exchange, int max, uint64_t *ret_seq, int *ret_row)
{
    const uint64_t rows = (uint64_t)exchange->options.shape.rows;
    uint64_t word;

    if ((atomic_load_explicit(&exchange->deal, memory_order_relaxed) & ROW_MASK) >= rows)
        return 0;
    word = atomic_fetch_add(&exchange->deal, (uint64_t)max);
    *ret_seq = word >> ROW_BITS;
    *ret_row = (int)(word & ROW_MASK);
    if ((word & ROW_MASK) >= rows)
        return 0;
    return (uint64_t)max < rows - (word & ROW_MASK) ? max : (int)(rows - (word & ROW_MASK));
}

/* Waits for what may come: from a peer, or a free slot. */
static void wait_for(
    struct np_exchange *exchange, const struct found *found, struct np_block *block)
{
    uint64_t nap_ns = atomic_load(&exchange->batch_ns) / 16;

    if (!found->pending) {
        np_ring_claim(exchange->options.ring, found->seq, block);
        return;
    }
    nap_ns = nap_ns < MIN_NAP_NS ? MIN_NAP_NS : nap_ns > MAX_NAP_NS ? MAX_NAP_NS : nap_ns;
    if (!np_ring_starves(exchange->options.ring))
        nap_ns = FED_NAP_NS;
    np_stat_wait(block, NP_STATE_BLOCKED, "np_exchange_next", "a batch of another run", found->seq);
    np_sleep_until_ns(np_now_ns() + nap_ns);
    np_stat_done(block);
}

/* Under lock. */
static void poll_peers(struct np_exchange *exchange, bool idle)
{
    const uint64_t now_ns = np_now_ns();

    if (!idle && now_ns - exchange->polled_ns < POLL_NS)
        return;
    exchange->polled_ns = now_ns;
    np_peers_poll(exchange->peers);
}

/* -EAGAIN: wait as *ret_found says. 0: the run ends. */
static int search(struct np_exchange *exchange, int max, bool idle, struct np_block *block,
    struct found *ret_found)
{
    struct np_ring *ring = exchange->options.ring;
    const uint64_t end = exchange->options.sampler->nr_batches;
    bool ended;

    do {
        int row;

        pthread_mutex_lock(&exchange->lock);
        /* Another thread may have begun a batch before this one had the lock. */
        ret_found->nr_tickets = deal_on(exchange, max, &ret_found->seq, &row);
        if (ret_found->nr_tickets > 0) {
            pthread_mutex_unlock(&exchange->lock);
            return row + ret_found->nr_tickets;
        }
        poll_peers(exchange, idle);
        *ret_found = walk(exchange, max);
        ended = exchange->first >= end;
        pthread_mutex_unlock(&exchange->lock);
        if (ret_found->taken)
            accept_taken(exchange, ret_found->taken, block);
    } while (ret_found->again && !np_ring_stopped(ring));
    if (np_ring_stopped(ring))
        return 0;
    if (ret_found->nr_tickets > 0)
        return ret_found->nr_tickets;
    return ended ? 0 : -EAGAIN;
}

int np_exchange_next(struct np_exchange *exchange, struct np_ticket *ret_tickets, int max,
    bool wait, struct np_block *block)
{
    struct found found;
    int row, n = deal_on(exchange, max, &found.seq, &row), last = row + n;

    if (n == 0) {
        last = search(exchange, max, false, block, &found);
        while (last == -EAGAIN && wait) {
            wait_for(exchange, &found, block);
            last = search(exchange, max, true, block, &found);
        }
        if (last <= 0)
            return last;
        n = found.nr_tickets;
    }
    for (int i = 0; i < n; i++)
        np_sampler_ticket(exchange->options.sampler, found.seq, last - n + i, &ret_tickets[i]);
    return n;
}

/* The first batch that a peer may still take. Peers that come later make those before it. */
static uint64_t first_wanted(struct np_exchange *exchange)
{
    uint64_t first = UINT64_MAX;
    const struct np_peer *peer;

    pthread_mutex_lock(&exchange->lock);
    for (int i = 0; (peer = np_peers_get(exchange->peers, i)); i++)
        if (peer->view && peer->fd >= 0 && np_shelf_wanted(peer->view) < first)
            first = np_shelf_wanted(peer->view);
    pthread_mutex_unlock(&exchange->lock);
    return first;
}

/* Copies a complete batch for the peers. */
static void offer(struct np_exchange *exchange, struct place *place, const struct np_batch *batch)
{
    const void *const parts[NP_SHELF_PARTS] = {
        batch->images, batch->labels, batch->about, &place->notes};
    size_t bytes[NP_SHELF_PARTS];

    memcpy(bytes, exchange->shape.part_bytes, sizeof(bytes));
    place->notes.nr_bad = np_bad_of(exchange->options.bad, batch->seq, place->notes.bad, MAX_BAD);
    if (place->notes.nr_bad <= MAX_BAD && !atomic_load(&place->kept)) {
        bytes[3] =
            offsetof(struct notes, bad) + (size_t)place->notes.nr_bad * sizeof(*place->notes.bad);
        np_shelf_put(exchange->shelf, batch->seq, first_wanted(exchange), parts, bytes);
    }
    np_shelf_withdraw(exchange->shelf, batch->seq);
}

void np_exchange_commit(struct np_exchange *exchange, const struct np_batch *batch)
{
    struct place *place = &exchange->places[batch->seq % exchange->nr_places];

    if (!atomic_load_explicit(&place->offered, memory_order_relaxed))
        return;
    np_shelf_beat(exchange->shelf);
    /* Acquires what the readers of the other rows wrote. */
    if (atomic_fetch_sub_explicit(&place->rows_left, 1, memory_order_acq_rel) > 1)
        return;
    atomic_store(&exchange->batch_ns, np_now_ns() - place->began_ns);
    offer(exchange, place, batch);
}

void np_exchange_keep(struct np_exchange *exchange, uint64_t seq)
{
    atomic_store(&exchange->places[seq % exchange->nr_places].kept, true);
}

void np_exchange_read(const struct np_exchange *exchange, struct np_exchanged *ret_exchanged)
{
    *ret_exchanged = (struct np_exchanged){
        .made = atomic_load_explicit(&exchange->made, memory_order_relaxed),
        .taken = atomic_load_explicit(&exchange->taken, memory_order_relaxed),
        .given_up = atomic_load_explicit(&exchange->given_up, memory_order_relaxed),
        .waits = atomic_load_explicit(&exchange->waits, memory_order_relaxed),
        .nr_peers = np_peers_met(exchange->peers),
    };
}
