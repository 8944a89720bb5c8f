/* Sharing batches: the shelf, the meeting of processes, the decisions of an exchange whose reader is the test, and
 * whole runs side by side in one process. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "loader/base/clock.h"
#include "loader/exchange.h"
#include "loader/share/memfd.h"
#include "loader/share/peers.h"
#include "loader/share/shelf.h"
#include "tests/test.h"
#include "tests/unit/made_loader.h"
#include "tests/unit/made_meeting.h"
#include "tests/unit/made_memory.h"

/* --- the shelf ---------------------------------------------------------------------------------- */

static const struct np_shelf_shape small = {{5000, 64, 64, 8}, 3};

struct parts {
    uint8_t images[5000], labels[64], about[64], notes[8];
};

/* wanted: the first batch that somebody may still take. */
static bool put_over(struct np_shelf *shelf, uint64_t seq, uint64_t wanted)
{
    struct parts from;
    const void *const parts[] = {from.images, from.labels, from.about, from.notes};

    memset(&from, (int)seq + 1, sizeof(from));
    return np_shelf_put(shelf, seq, wanted, parts, small.part_bytes);
}

static bool put(struct np_shelf *shelf, uint64_t seq)
{
    return put_over(shelf, seq, 0);
}

/* True: batch seq was copied, and each of its bytes is right. */
static bool copies(const struct np_shelf_view *view, uint64_t seq)
{
    struct parts to;
    void *const parts[] = {to.images, to.labels, to.about, to.notes};
    const uint8_t *bytes = (const uint8_t *)&to;

    if (!np_shelf_copy(view, seq, parts))
        return false;
    for (size_t i = 0; i < sizeof(to); i++)
        cr_assert_eq(bytes[i], (uint8_t)(seq + 1), "byte %zu of batch %d", i, (int)seq);
    return true;
}

Test(share, memory_in_huge_pages_or_not_reads_the_same)
{
    const size_t bytes = 3 * NP_MEMFD_BLOCK + 4096, from = 100;
    const uint8_t *view;
    uint8_t *own;
    size_t seen = 0;
    int fd;

    cr_assert_eq(np_memfd_new(bytes, &fd, (void **)&own, NULL), 0);
    cr_expect_eq((uintptr_t)own % NP_MEMFD_BLOCK, 0);
    own[NP_MEMFD_BLOCK + 5] = 7; /* a page that is there before */
    cr_assert_eq(np_memfd_populate(own, from, bytes - from), 0);
    cr_expect_eq(own[NP_MEMFD_BLOCK + 5], 7);
    own[from] = 1;
    own[bytes - 1] = 2;
    cr_assert_eq(np_memfd_view(fd, &seen, (const void **)&view, NULL), 0);
    cr_assert_eq(seen, bytes);
    cr_expect_eq((uintptr_t)view % NP_MEMFD_BLOCK, 0);
    cr_expect_eq(view[from], 1);
    cr_expect_eq(view[NP_MEMFD_BLOCK + 5], 7);
    cr_expect_eq(view[bytes - 1], 2);
    munmap((void *)(uintptr_t)view, bytes);
    munmap(own, bytes);
    close(fd);
}
Test(share, a_limit_of_file_sizes_is_an_error_and_no_signal)
{
    struct rlimit before, limit;
    struct np_shelf *shelf = NULL;

    cr_assert_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = before;
    limit.rlim_cur = 4096;
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    cr_expect_eq(np_shelf_new(&small, &shelf, NULL), -EFBIG);
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &before), 0);
    cr_expect_null(shelf);
}

Test(share, a_shelf_offers_its_newest_batches)
{
    struct np_shelf_view *view;
    struct np_shelf *shelf;

    cr_assert_eq(np_shelf_new(&small, &shelf, NULL), 0);
    cr_assert_eq(np_shelf_view_new(np_shelf_fd(shelf), &small, &view, NULL), 0);
    cr_expect_eq(np_shelf_look(view, 0), NP_SHELF_NONE);
    np_shelf_announce(shelf, 0);
    cr_expect_eq(np_shelf_look(view, 0), NP_SHELF_MAKING);
    cr_expect(!copies(view, 0));
    for (uint64_t seq = 0; seq < 5; seq++)
        cr_assert(put(shelf, seq));
    np_shelf_withdraw(shelf, 0);
    for (uint64_t seq = 0; seq < 6; seq++) {
        const bool there = seq >= 2 && seq < 5;

        cr_expect_eq(np_shelf_look(view, seq), there ? NP_SHELF_READY : NP_SHELF_NONE);
        cr_expect_eq(copies(view, seq), there);
    }
    np_shelf_view_free(view);
    np_shelf_free(shelf);
}

Test(share, the_slot_of_a_batch_that_nobody_wants_is_used_again)
{
    struct np_shelf_view *view;
    struct np_shelf *shelf;

    cr_assert_eq(np_shelf_new(&small, &shelf, NULL), 0);
    cr_assert_eq(np_shelf_view_new(np_shelf_fd(shelf), &small, &view, NULL), 0);
    for (uint64_t seq = 0; seq < 4; seq++) {
        cr_assert(put_over(shelf, seq, seq));
        cr_expect(copies(view, seq));
        cr_expect(seq == 0 || !copies(view, seq - 1), "batch %d", (int)seq - 1);
    }
    for (uint64_t seq = 4; seq < 7; seq++) /* 3 is wanted until all slots are full */
        cr_assert(put_over(shelf, seq, 3));
    for (uint64_t seq = 0; seq < 7; seq++)
        cr_expect_eq(copies(view, seq), seq >= 4, "batch %d", (int)seq);
    np_shelf_view_free(view);
    np_shelf_free(shelf);
}

Test(share, a_large_part_is_copied_whole_to_any_address)
{
    enum { LARGE = (1 << 17) + 7 };
    const struct np_shelf_shape shape = {{LARGE, 64, 64, 8}, 1};
    uint8_t *from = malloc(LARGE), *to = malloc(LARGE + 64), rest[136] = {0};
    const void *const put_parts[] = {from, rest, rest + 64, rest + 128};
    struct np_shelf_view *view;
    struct np_shelf *shelf;

    for (int i = 0; i < LARGE; i++)
        from[i] = (uint8_t)(i * 7 + i / 251);
    cr_assert_eq(np_shelf_new(&shape, &shelf, NULL), 0);
    cr_assert_eq(np_shelf_view_new(np_shelf_fd(shelf), &shape, &view, NULL), 0);
    cr_assert(np_shelf_put(shelf, 0, 0, put_parts, shape.part_bytes));
    for (int shift = 0; shift <= 16; shift++) {
        void *const parts[] = {to + shift, rest, rest + 64, rest + 128};

        memset(to, 0, LARGE + 64);
        cr_assert(np_shelf_copy(view, 0, parts));
        cr_expect(memcmp(to + shift, from, LARGE) == 0, "shift %d", shift);
        cr_expect_eq(to[shift + LARGE], 0);
    }
    np_shelf_view_free(view);
    np_shelf_free(shelf);
    free(from);
    free(to);
}

Test(share, a_withdrawal_leaves_a_later_announcement)
{
    struct np_shelf_view *view;
    struct np_shelf *shelf;

    cr_assert_eq(np_shelf_new(&small, &shelf, NULL), 0);
    cr_assert_eq(np_shelf_view_new(np_shelf_fd(shelf), &small, &view, NULL), 0);
    np_shelf_announce(shelf, 1);
    np_shelf_announce(shelf, 1 + NP_SHELF_MAX);
    np_shelf_withdraw(shelf, 1);
    cr_expect_eq(np_shelf_look(view, 1), NP_SHELF_NONE);
    cr_expect_eq(np_shelf_look(view, 1 + NP_SHELF_MAX), NP_SHELF_MAKING);
    np_shelf_view_free(view);
    np_shelf_free(shelf);
}

Test(share, a_reader_can_neither_write_nor_resize_a_shelf)
{
    struct np_shelf *shelf;

    cr_assert_eq(np_shelf_new(&small, &shelf, NULL), 0);
    cr_expect_eq(ftruncate(np_shelf_fd(shelf), 4096), -1);
    cr_expect_eq(write(np_shelf_fd(shelf), "x", 1), -1);
    cr_expect_eq(
        mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, np_shelf_fd(shelf), 0), MAP_FAILED);
    np_shelf_free(shelf);
}

Test(share, memory_that_could_shrink_or_is_of_another_size_is_not_mapped)
{
    struct np_shelf_shape larger = small;
    struct np_shelf_view *view = NULL;
    struct np_shelf *shelf;
    const int fd = memfd_create("open", MFD_ALLOW_SEALING);

    cr_assert_eq(np_shelf_new(&small, &shelf, NULL), 0);
    larger.nr_slots++;
    cr_expect_eq(np_shelf_view_new(np_shelf_fd(shelf), &larger, &view, NULL), -EBADMSG);
    cr_assert_eq(ftruncate(fd, lseek(np_shelf_fd(shelf), 0, SEEK_END)), 0);
    cr_expect_eq(np_shelf_view_new(fd, &small, &view, NULL), -EBADMSG);
    close(fd);
    np_shelf_free(shelf);
}

/* A writer that never rests; what is copied meanwhile is whole. */
static _Atomic bool written_enough;

static void *write_on(void *context)
{
    for (uint64_t seq = 0; !written_enough; seq = (seq + 1) % 200)
        put(context, seq);
    return NULL;
}

Test(share, a_batch_overwritten_while_it_is_copied_is_not_taken, .timeout = 120)
{
    struct np_shelf_view *view;
    struct np_shelf *shelf;
    pthread_t writer;
    int nr_copied = 0;

    cr_assert_eq(np_shelf_new(&small, &shelf, NULL), 0);
    cr_assert_eq(np_shelf_view_new(np_shelf_fd(shelf), &small, &view, NULL), 0);
    cr_assert_eq(pthread_create(&writer, NULL, write_on, shelf), 0);
    for (uint64_t i = 0; nr_copied < 3000; i++)
        nr_copied += copies(view, i % 200);
    written_enough = true;
    pthread_join(writer, NULL);
    np_shelf_view_free(view);
    np_shelf_free(shelf);
}

/* --- processes that meet ------------------------------------------------------------------------ */

struct met {
    struct np_shelf *shelf;
    struct np_peers *peers;
};

static void *new_view(int fd, const void *context)
{
    struct np_shelf_view *view = NULL;

    return np_shelf_view_new(fd, context, &view, NULL) ? NULL : view;
}

static void free_view(void *view)
{
    np_shelf_view_free(view);
}

static int open_peers(
    uint64_t hash, const struct np_shelf *shelf, struct np_peers **ret_peers, struct np_err *err)
{
    const struct np_peers_options options = {.hash = hash,
        .fd = np_shelf_fd(shelf),
        .view_new = new_view,
        .view_free = free_view,
        .context = &small};

    return np_peers_open(&options, ret_peers, err);
}

static struct met meet(uint64_t hash)
{
    struct met met;
    struct np_err err = {0};

    cr_assert_eq(np_shelf_new(&small, &met.shelf, NULL), 0);
    cr_assert_eq(open_peers(hash, met.shelf, &met.peers, &err), 0, "%s", err.text);
    return met;
}

static void part(struct met *met)
{
    np_peers_close(met->peers);
    np_shelf_free(met->shelf);
}

Test(share, equals_meet_and_strangers_do_not)
{
    own_folder();
    struct met a = meet(1), stranger = meet(2), b = meet(1), c = meet(1);

    for (int i = 0; i < 2; i++) {
        np_peers_poll(a.peers);
        np_peers_poll(stranger.peers);
        np_peers_poll(b.peers);
        np_peers_poll(c.peers);
    }
    cr_expect_eq(np_peers_met(a.peers), 2);
    cr_expect_eq(np_peers_met(b.peers), 2);
    cr_expect_eq(np_peers_met(c.peers), 2);
    cr_expect_eq(np_peers_met(stranger.peers), 0);
    cr_assert(put(c.shelf, 7));
    cr_expect(
        copies(np_peers_get(a.peers, 1)->view, 7) || copies(np_peers_get(a.peers, 0)->view, 7));
    part(&c);
    np_peers_poll(a.peers);
    cr_expect_eq(np_peers_met(a.peers), 1);
    part(&a);
    part(&b);
    part(&stranger);
    remove_folder();
}

Test(share, a_view_stays_while_a_thread_copies_from_it)
{
    own_folder();
    struct met a = meet(1), b = meet(1);
    struct np_peer *peer;

    np_peers_poll(a.peers);
    peer = np_peers_get(a.peers, 0);
    cr_assert(peer && peer->view);
    cr_assert(put(b.shelf, 3));
    peer->nr_users++;
    part(&b);
    np_peers_poll(a.peers);
    cr_expect_eq(np_peers_met(a.peers), 0);
    cr_expect(copies(peer->view, 3));
    peer->nr_users--;
    np_peers_poll(a.peers);
    cr_expect_null(np_peers_get(a.peers, 0));
    part(&a);
    remove_folder();
}

Test(share, the_socket_of_a_killed_process_is_removed)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd;

    own_folder();
    struct met a = meet(1);
    snprintf(address.sun_path, sizeof(address.sun_path), "%s/nnpipe-share/%016x-dead",
        own_folder_path(), 1);
    fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    cr_assert_eq(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    close(fd); /* as the kernel does after SIGKILL: the name stays */
    struct met b = meet(1);
    cr_expect_eq(access(address.sun_path, F_OK), -1);
    part(&a);
    part(&b);
    remove_folder();
}

Test(share, a_folder_that_others_can_enter_is_not_used)
{
    char path[96];
    struct np_peers *peers;
    struct np_shelf *shelf;

    own_folder();
    snprintf(path, sizeof(path), "%s/nnpipe-share", own_folder_path());
    cr_assert_eq(mkdir(path, 0700), 0);
    cr_assert_eq(chmod(path, 0755), 0);
    setenv("XDG_CACHE_HOME", "/dev/null", 1); /* nor can the other be made */
    cr_assert_eq(np_shelf_new(&small, &shelf, NULL), 0);
    if (access("/run/user/0", W_OK) != 0)
        cr_expect(open_peers(1, shelf, &peers, &(struct np_err){0}) < 0);
    np_shelf_free(shelf);
    remove_folder();
}

/* --- decisions ---------------------------------------------------------------------------------- */

enum { ROWS = 4, SLOTS = 4, LAST = 40 };

/* A loader whose reader is the test. */
struct side {
    struct np_sampler *sampler;
    struct np_ring *ring;
    struct np_bad *bad;
    struct np_exchange *exchange;
};

static struct side side_make(uint64_t wait_ns)
{
    const struct np_batch_shape shape = {ROWS, 2, 2, 3, {0}, 0, 0, 0, NULL, 0};
    const struct np_sampler_options order = {
        .seed = 1, .nr_train = 100, .batch = ROWS, .nr_steps = LAST};
    const struct np_bad_options bad = {.budget = 1, .nr_train = 100};
    struct side side;
    struct np_err err = {0};

    cr_assert_eq(np_sampler_new(&order, &side.sampler, NULL), 0);
    np_sampler_start(side.sampler, 0, false);
    cr_assert_eq(np_ring_new(&shape, SLOTS, &np_page_allocator, &side.ring, NULL), 0);
    np_ring_start(side.ring, 0);
    cr_assert_eq(np_bad_new(&bad, &side.bad, NULL), 0);
    np_ring_judge(side.ring, np_bad_judge, side.bad);
    const struct np_exchange_options options = {.sampler = side.sampler,
        .ring = side.ring,
        .bad = side.bad,
        .shape = shape,
        .hash = 9,
        .wait_ns = wait_ns,
        .memory_bytes = 1 << 20};
    cr_assert_eq(np_exchange_new(&options, &side.exchange, &err), 0, "%s", err.text);
    return side;
}

static void side_free(struct side *side)
{
    np_exchange_free(side->exchange);
    np_bad_free(side->bad);
    np_ring_free(side->ring);
    np_sampler_free(side->sampler);
}

/* Takes one ticket, without a wait. Returns the batch; -1: none now. */
static int begin(struct side *side, int *ret_row)
{
    struct np_ticket ticket;
    const int n = np_exchange_next(side->exchange, &ticket, 1, false, NULL);

    if (n <= 0)
        return -1;
    *ret_row = ticket.row;
    return (int)ticket.seq;
}

static void finish(struct side *side, int seq, int row)
{
    struct np_batch *batch = np_ring_try_claim(side->ring, (uint64_t)seq);

    cr_assert(batch);
    memset(np_ring_row(side->ring, batch, 12, row), seq * ROWS + row, 12);
    batch->labels[row] = seq;
    batch->about[row] = (struct np_row){.sample = (uint64_t)row};
    if (row == 0) {
        batch->kind = NP_BATCH_TRAIN;
        batch->step = (uint64_t)seq;
    }
    np_exchange_commit(side->exchange, batch);
    np_ring_commit(side->ring, batch, NULL);
}

/* Makes the rest of the batch that was begun. */
static void finish_batch(struct side *side, int seq, int row)
{
    finish(side, seq, row);
    for (int r = row + 1; r < ROWS; r++) {
        int next;

        cr_assert_eq(begin(side, &next), seq);
        cr_assert_eq(next, r);
        finish(side, seq, r);
    }
}

/* The trainer takes the next batch, and every byte is right. */
static void take(struct side *side, int seq)
{
    struct np_err err = {0};
    struct np_batch *batch;

    cr_assert(np_ring_ready(side->ring), "batch %d", seq);
    batch = np_ring_take(side->ring, NULL, &err);
    cr_assert(batch, "%s", err.text);
    cr_assert_eq(batch->seq, (uint64_t)seq);
    cr_assert_eq(batch->step, (uint64_t)seq);
    for (int row = 0; row < ROWS; row++) {
        cr_assert_eq(batch->images[row * 12 + 11], seq * ROWS + row);
        cr_assert_eq(batch->labels[row], seq);
        cr_assert_eq(batch->about[row].sample, (uint64_t)row);
    }
    np_ring_release(side->ring, batch);
}

static struct np_exchanged read_of(const struct side *side)
{
    struct np_exchanged exchanged;

    np_exchange_read(side->exchange, &exchanged);
    return exchanged;
}

#define FOREVER (3600ull * 1000000000)

Test(exchange, a_batch_that_lies_with_a_peer_is_taken)
{
    int row = 0;

    own_folder();
    struct side a = side_make(FOREVER), b = side_make(FOREVER);
    cr_assert_eq(begin(&a, &row), 0);
    finish_batch(&a, 0, row);
    cr_expect_eq(begin(&b, &row), 1); /* it took batch 0, and begins the next one */
    take(&a, 0);
    take(&b, 0);
    cr_expect_eq(read_of(&b).taken, 1);
    cr_expect_eq(read_of(&b).made, 1);
    cr_expect_eq(read_of(&a).nr_peers, 1);
    side_free(&a);
    side_free(&b);
    remove_folder();
}

Test(exchange, peers_divide_the_window_among_them)
{
    int row_a = 0, row_b = 0;

    own_folder();
    struct side a = side_make(FOREVER), b = side_make(FOREVER);
    for (int seq = 0; seq < SLOTS; seq += 2) {
        cr_assert_eq(begin(&a, &row_a), seq); /* it takes what b made before */
        cr_assert_eq(begin(&b, &row_b), seq + 1);
        finish_batch(&a, seq, row_a);
        finish_batch(&b, seq + 1, row_b);
    }
    cr_expect_eq(begin(&a, &row_a), -1); /* it takes the last one, and has no free slot */
    cr_expect_eq(begin(&b, &row_b), -1);
    for (int seq = 0; seq < SLOTS; seq++) {
        take(&a, seq);
        take(&b, seq);
    }
    cr_expect_eq(read_of(&a).made, 2);
    cr_expect_eq(read_of(&a).taken, 2);
    cr_expect_eq(read_of(&b).made, 2);
    cr_expect_eq(read_of(&b).taken, 2);
    side_free(&a);
    side_free(&b);
    remove_folder();
}

Test(exchange, a_batch_stays_until_all_peers_have_passed_it)
{
    int row = 0, row_b = 0;

    own_folder();
    struct side a = side_make(FOREVER), b = side_make(FOREVER);
    cr_assert_eq(begin(&a, &row), 0);
    finish_batch(&a, 0, row);
    cr_assert_eq(begin(&a, &row), 1);
    finish_batch(&a, 1, row); /* b may take both */
    cr_assert_eq(begin(&b, &row_b), 2);
    cr_assert_eq(begin(&a, &row), 3);
    finish_batch(&a, 3, row); /* in place of 0 */
    struct side late = side_make(FOREVER);
    cr_expect_eq(begin(&late, &row), 0);
    finish_batch(&late, 0, row);
    take(&late, 0);
    take(&b, 0);
    take(&b, 1);
    cr_expect_eq(read_of(&b).taken, 2);
    side_free(&a);
    side_free(&b);
    side_free(&late);
    remove_folder();
}

Test(exchange, who_has_waited_long_enough_makes_the_batch_itself)
{
    int row = 0, row_a = 0;

    own_folder();
    struct side a = side_make(0), b = side_make(0);
    cr_assert_eq(begin(&a, &row_a), 0); /* and never finishes it: killed, or stopped */
    cr_expect_eq(begin(&b, &row), 0);
    finish_batch(&b, 0, row);
    take(&b, 0);
    cr_expect_eq(read_of(&b).given_up, 1);
    cr_expect_eq(read_of(&b).taken, 0);
    side_free(&a);
    side_free(&b);
    remove_folder();
}

Test(exchange, nothing_is_left_to_a_peer_that_was_waited_for_in_vain)
{
    own_folder();
    for (int i = 0; i < 8; i++) { /* which of the two has the smaller number is drawn */
        struct side a = side_make(0), b = side_make(0);
        int row;

        for (int r = 0; r < ROWS; r++)
            cr_assert_eq(begin(&a, &row), 0);
        cr_assert_eq(begin(&a, &row), 1); /* it finishes neither: stopped */
        cr_expect_eq(begin(&b, &row), 0);
        finish_batch(&b, 0, row);
        cr_expect_eq(begin(&b, &row), 1);
        side_free(&a);
        side_free(&b);
    }
    remove_folder();
}
Test(exchange, the_batches_of_a_peer_that_has_ended_are_made_at_once)
{
    int row = 0;

    own_folder();
    struct side a = side_make(FOREVER), b = side_make(FOREVER);
    cr_assert_eq(begin(&a, &row), 0);
    cr_expect_eq(begin(&b, &row), 1);
    finish_batch(&b, 1, row);
    side_free(&a);
    np_sleep_until_ns(np_now_ns() + 20000000); /* b looks for peers every 10 ms */
    cr_expect_eq(begin(&b, &row), 0);
    finish_batch(&b, 0, row);
    take(&b, 0);
    take(&b, 1);
    side_free(&b);
    remove_folder();
}

Test(exchange, bad_samples_travel_with_their_batch)
{
    struct np_bad_sample bad = {
        .seq = 0, .row = 2, .sample = 77, .kind = NP_BATCH_TRAIN, .reason = "torn"};
    int row = 0;

    own_folder();
    struct side a = side_make(FOREVER), b = side_make(FOREVER);
    cr_assert_eq(begin(&a, &row), 0);
    cr_assert_eq(np_bad_add(a.bad, &bad, NULL), 0);
    finish_batch(&a, 0, row);
    cr_expect_eq(begin(&b, &row), 1);
    take(&b, 0);
    memset(&bad, 0, sizeof(bad));
    cr_assert(np_bad_next(b.bad, &bad));
    cr_expect_eq(bad.sample, 77);
    cr_expect_str_eq(bad.reason, "torn");
    cr_expect(!np_bad_next(b.bad, &bad));
    side_free(&a);
    side_free(&b);
    remove_folder();
}

Test(exchange, a_batch_with_notes_that_are_not_sound_is_made_here)
{
    struct np_bad_sample bad = {.seq = 0, .row = 2, .kind = NP_BATCH_TRAIN};
    int row = 0;

    own_folder();
    struct side a = side_make(FOREVER), b = side_make(FOREVER);
    memset(bad.reason, 'x', sizeof(bad.reason)); /* a text without its end */
    cr_assert_eq(begin(&a, &row), 0);
    cr_assert_eq(np_bad_add(a.bad, &bad, NULL), 0);
    finish_batch(&a, 0, row);
    cr_expect_eq(begin(&b, &row), 0);
    finish_batch(&b, 0, row);
    take(&b, 0);
    cr_expect_eq(read_of(&b).taken, 0);
    side_free(&a);
    side_free(&b);
    remove_folder();
}
Test(exchange, a_batch_that_the_policy_changed_or_with_many_bad_samples_is_not_offered)
{
    int row = 0;

    own_folder();
    struct side a = side_make(FOREVER), b = side_make(FOREVER);
    cr_assert_eq(begin(&a, &row), 0);
    np_exchange_keep(a.exchange, 0);
    finish_batch(&a, 0, row);
    cr_assert_eq(begin(&a, &row), 1);
    for (int i = 0; i < 9; i++) {
        const struct np_bad_sample bad = {.seq = 1, .row = 1, .attempt = i, .kind = NP_BATCH_TRAIN};

        cr_assert_geq(np_bad_add(a.bad, &bad, NULL), 0);
    }
    finish_batch(&a, 1, row);
    cr_expect_eq(begin(&b, &row), 0);
    finish_batch(&b, 0, row);
    cr_expect_eq(begin(&b, &row), 1);
    side_free(&a);
    side_free(&b);
    remove_folder();
}

/* --- whole runs --------------------------------------------------------------------------------- */

static void share_rig(struct rig *rig, enum made_kind kind)
{
    cr_assert_eq(rig_make(rig, kind, true, 21), 0);
    rig->options.share = true;
    rig->options.share_wait_ms = 5;
    rig->options.share_bytes = 1 << 20;
    snprintf(rig->options.share_name, sizeof(rig->options.share_name), "test");
    rig->config.share_key = 5;
}

static void *run_rig(void *context)
{
    struct outcome *outcome = malloc(sizeof(*outcome));

    *outcome = rig_run(context, 0);
    return outcome;
}

Test(share, runs_side_by_side_have_the_batches_of_a_lone_run, .timeout = 120)
{
    own_folder();
    for (int kind = MADE_RAW; kind <= MADE_FOLDER; kind++) {
        struct rig rigs[4];
        pthread_t threads[4];
        struct outcome lone;

        for (int i = 0; i < 4; i++)
            share_rig(&rigs[i], (enum made_kind)kind);
        rigs[3].config.share_key = 0;
        lone = rig_run(&rigs[3], 0);
        cr_assert_gt(lone.nr_batches, STEPS);
        for (int round = 0; round < 5; round++) {
            for (int i = 0; i < 3; i++)
                cr_assert_eq(pthread_create(&threads[i], NULL, run_rig, &rigs[i]), 0);
            for (int i = 0; i < 3; i++) {
                struct outcome *outcome;

                pthread_join(threads[i], (void **)&outcome);
                cr_expect_eq(outcome->digest, lone.digest, "%s", outcome->err.text);
                cr_expect_eq(outcome->nr_batches, lone.nr_batches);
                free(outcome);
            }
        }
        for (int i = 0; i < 4; i++)
            rig_free(&rigs[i]);
    }
    remove_folder();
}

Test(share, each_failed_allocation_of_an_exchange_is_reported, .timeout = 120)
{
    struct rig rig;
    int n = 0, code;

    own_folder();
    share_rig(&rig, MADE_RAW);
    do {
        struct np_loader *loader = NULL;
        struct np_err err = {0};

        made_memory_fail(++n);
        code = np_loader_start(&rig.config, &loader, &err);
        if (code)
            cr_expect(
                code == -ENOMEM && err.code == -ENOMEM, "allocation %d: %d, %s", n, code, err.text);
        made_memory_fail(0);
        np_loader_stop(loader);
    } while (code && n < 1000);
    cr_expect_gt(n, 10);
    rig_free(&rig);
    remove_folder();
}
