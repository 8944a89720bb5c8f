/* Which row a reader makes next: it takes some tickets ahead, and makes them in order, but for those
 * whose picture another job is decoding for the shared cache. Reader thread. */
#include "loader/base/clock.h"
#include "loader/reader_parts.h"

#define NAP_NS 300000u
#define FED_NS 1000000000u /* while the trainer has batches, a silent job is given this time, too */

/* Takes tickets ahead. Returns their number; 0: the run ends; -EAGAIN: there are none now, and
 * reads are in flight. */
static int take_tickets(struct np_reader *reader)
{
    const struct np_reader_config *config = reader->config;

    if (config->row.cache)
        np_cache_meet(config->row.cache);
    if (config->exchange)
        return np_exchange_next(config->exchange, reader->ahead, config->ahead,
            np_reader_begun(reader) == 0, reader->block);
    return np_sampler_next(config->sampler, reader->ahead, config->ahead);
}

/* The next ticket; NULL: the run ends, or take_tickets() has none now. */
static struct np_ticket *next_ticket(struct np_reader *reader)
{
    if (reader->next_ahead == reader->nr_ahead) {
        const int n = take_tickets(reader);

        reader->ended |= n == 0;
        reader->next_ahead = 0;
        reader->nr_ahead = n > 0 ? n : 0;
        for (int i = 0; i < reader->nr_ahead; i++)
            np_row_expect(reader->maker, &reader->ahead[i]);
    }
    return reader->nr_ahead > 0 ? &reader->ahead[reader->next_ahead] : NULL;
}

/* The slot of the ticket. NULL: the ring was stopped, or (with jobs begun) the slot is not free
 * yet. */
static struct np_batch *claim(struct np_reader *reader, const struct np_ticket *ticket)
{
    struct np_batch *batch = np_ring_try_claim(reader->config->ring, ticket->seq);

    if (batch || np_reader_begun(reader) > 0)
        return batch;
    np_stat_about(reader->block, ticket->seq, ticket->row);
    batch = np_ring_claim(reader->config->ring, ticket->seq, reader->block);
    reader->ended |= !batch;
    return batch;
}

/* True: another job is decoding the ticket's picture, and it is worth waiting for. */
static bool is_elsewhere(const struct np_reader *reader, const struct np_ticket *ticket,
    uint64_t since_ns, uint64_t now_ns)
{
    const struct np_row_options *row = &reader->config->row;

    return !ticket->masked && np_cache_awaits(row->cache, row->sets[ticket->kind].cache_set,
                                  ticket->sample, since_ns, now_ns);
}

/* Moves a ticket to the front whose picture nobody else is decoding, and returns its slot. Only
 * among those whose slots are free: a later batch must never delay an earlier one. NULL: there is
 * none. */
static struct np_batch *choose(struct np_reader *reader, uint64_t since_ns, uint64_t now_ns)
{
    for (int i = reader->next_ahead; i < reader->nr_ahead; i++) {
        struct np_ticket ticket = reader->ahead[i];
        struct np_batch *batch = np_ring_try_claim(reader->config->ring, ticket.seq);

        if (!batch)
            return NULL;
        np_sampler_deal(reader->config->sampler, &ticket);
        if (is_elsewhere(reader, &ticket, since_ns, now_ns))
            continue;
        reader->ahead[i] = reader->ahead[reader->next_ahead];
        reader->ahead[reader->next_ahead] = ticket;
        return batch;
    }
    return NULL;
}

/* As choose(), but waits while no job is begun: this reader then keeps nobody else waiting. */
static struct np_batch *choose_patiently(struct np_reader *reader)
{
    const uint64_t begin_ns = np_now_ns();
    uint64_t since_ns = begin_ns, now_ns;
    struct np_batch *batch = choose(reader, since_ns, since_ns);

    if (batch || np_reader_begun(reader) > 0)
        return batch;
    np_stat_wait(reader->block, NP_STATE_BLOCKED, "np_cache_awaits", "a picture of another run",
        reader->ahead[reader->next_ahead].sample);
    while (!batch && !np_ring_stopped(reader->config->ring)) {
        np_sleep_until_ns(np_now_ns() + NAP_NS);
        np_cache_meet(reader->config->row.cache);
        now_ns = np_now_ns();
        if (now_ns - begin_ns < FED_NS && !np_ring_starves(reader->config->ring))
            since_ns = now_ns;
        batch = choose(reader, since_ns, now_ns);
    }
    np_stat_done(reader->block);
    reader->ended |= !batch;
    return batch;
}

const struct np_ticket *np_reader_ticket(struct np_reader *reader, struct np_batch **ret_batch)
{
    struct np_ticket *ticket = reader->ended ? NULL : next_ticket(reader);
    struct np_batch *batch = ticket ? claim(reader, ticket) : NULL;

    if (batch && reader->config->row.cache && np_cache_met(reader->config->row.cache) > 0)
        batch = choose_patiently(reader);
    if (!batch)
        return NULL;
    np_sampler_deal(reader->config->sampler, ticket);
    reader->next_ahead++;
    *ret_batch = batch;
    return ticket;
}
