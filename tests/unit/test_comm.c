/* The processes of a run: they meet, sum in a fixed tree, and hear of the others' ends. Each test forks
 * them; a child ends with 0 if all it saw was right. */
#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "trainer/comm.h"
#include "trainer/comm_hops.h"

#include "tests/test.h"
#include "tests/unit/made_launch.h"

#define MAX_WORLD 9

/* What a rank does with its comm; true: all was right. */
typedef bool (*part_fn)(struct np_comm *comm, int rank, int world);

/* The number of ranks that saw something wrong. */
static int run_at(const char *address, int world, part_fn part)
{
    pid_t pids[MAX_WORLD];
    int wrong = 0, status;

    for (int rank = 0; rank < world; rank++)
        if ((pids[rank] = fork()) == 0) {
            struct np_launch launch = {rank, world, rank, world, "test", "", -1};
            struct np_comm *comm = NULL;
            struct np_err err = {0};

            alarm(30);
            snprintf(launch.address, sizeof(launch.address), "%s", address);
            if (np_comm_open(&launch, &comm, &err) < 0) {
                fprintf(stderr, "rank %d: %s\n", rank, err.text);
                _exit(1);
            }
            const bool right = part(comm, rank, world);
            np_comm_close(comm);
            _exit(right ? 0 : 2);
        }
    for (int rank = 0; rank < world; rank++)
        wrong += waitpid(pids[rank], &status, 0) != pids[rank] || status != 0;
    return wrong;
}

static int run(int world, part_fn part)
{
    static int nr;
    char address[80];

    made_launch_clear();
    snprintf(address, sizeof(address), "unix:nnpipe-test-%d-%d", (int)getpid(), nr++);
    return run_at(address, world, part);
}

/* --- hops ----------------------------------------------------------------------------------- */

#define MAX_RANKS 1024

struct walker { /* a rank on its way */
    struct np_hop hops[NP_MAX_HOPS];
    int nr, next;
    uint64_t value;
};

/* Not commutative, nor associative. */
static uint64_t pair_of(uint64_t left, uint64_t right)
{
    return (left ^ left >> 29) * 0x9e3779b97f4a7c15ull + (right ^ right >> 31) * 3 + 1;
}

static int left_of(int nr) /* ranks of a node's left half */
{
    int left = 1;

    while (2 * left < nr)
        left *= 2;
    return left;
}

static uint64_t value_of(int first, int nr)
{
    const int left = left_of(nr);

    return nr == 1 ? (uint64_t)first * 7919 + 1
                   : pair_of(value_of(first, left), value_of(first + left, nr - left));
}

/* Carries out a hop that both ends stand at; false: there is none. */
static bool meet_at(struct walker *walkers, int world, int rank)
{
    struct walker *own = &walkers[rank];

    if (own->next == own->nr)
        return false;
    const struct np_hop *hop = &own->hops[own->next];
    const int other = rank ^ (1 << hop->link);
    cr_assert_lt(other, world, "rank %d of %d", rank, world);
    struct walker *its = &walkers[other];
    if (its->next == its->nr || its->hops[its->next].link != hop->link)
        return false;
    const enum np_hop_kind kind = its->hops[its->next].kind;
    cr_assert(hop->kind == NP_HOP_SWAP   ? kind == NP_HOP_SWAP
              : hop->kind == NP_HOP_GIVE ? kind == NP_HOP_TAKE
                                         : kind == NP_HOP_GIVE,
        "rank %d of %d, hop %d", rank, world, own->next);
    if (kind == NP_HOP_SWAP)
        own->value = its->value =
            rank < other ? pair_of(own->value, its->value) : pair_of(its->value, own->value);
    else if (kind == NP_HOP_GIVE)
        own->value = its->value;
    else
        its->value = own->value;
    own->next++;
    its->next++;
    return true;
}

static void walk(struct walker *walkers, int world)
{
    const uint64_t due = value_of(0, world);
    bool moved = true;

    for (int r = 0; r < world; r++) {
        walkers[r].nr = np_hops_find(r, world, walkers[r].hops);
        walkers[r].next = 0;
        walkers[r].value = value_of(r, 1);
    }
    while (moved) {
        moved = false;
        for (int r = 0; r < world; r++)
            moved |= meet_at(walkers, world, r);
    }
    for (int r = 0; r < world; r++)
        cr_assert(walkers[r].next == walkers[r].nr && walkers[r].value == due, "rank %d of %d: %d",
            r, world, walkers[r].next);
}

Test(comm, hops_bring_the_value_of_the_tree_to_all_ranks_of_any_number)
{
    static const int large[] = {255, 256, 257, 511, 513, 640, 683, 1000, 1023, 1024};
    struct walker *walkers = malloc(MAX_RANKS * sizeof(*walkers));

    for (int world = 1; world <= 130; world++)
        walk(walkers, world);
    for (size_t i = 0; i < sizeof(large) / sizeof(*large); i++)
        walk(walkers, large[i]);
    free(walkers);
}

/* --- sums and the rest ---------------------------------------------------------------------- */

static float value(int rank, int i)
{
    return (float)(((long)rank * 7919 + (long)i * 104729) % 1000003) * 1e-3f / (float)(1 + i % 17);
}

static float tree(int first, int nr, int i)
{
    const int left = left_of(nr);

    return nr == 1 ? value(first, i) : tree(first, left, i) + tree(first + left, nr - left, i);
}

#define LONG 700001 /* floats: several messages, the last one shorter */

static bool sums(struct np_comm *comm, int rank, int world)
{
    float *x = malloc(LONG * sizeof(*x));
    bool right = true;

    for (int i = 0; i < LONG; i++)
        x[i] = value(rank, i);
    right = np_comm_sum(comm, x, LONG, NULL) == 0;
    for (int i = 0; i < LONG && right; i++) {
        const float whole = tree(0, world, i);

        right = memcmp(&x[i], &whole, sizeof(whole)) == 0;
    }
    free(x);
    return right;
}

Test(comm, a_sum_has_the_bits_of_the_tree, .timeout = 120)
{
    for (int world = 1; world <= MAX_WORLD; world++)
        cr_assert_eq(run(world, sums), 0, "world %d", world);
}

#define NR_BACK 300 /* more than are queued */

static bool sums_behind(struct np_comm *comm, int rank, int world)
{
    float(*x)[1000] = malloc(NR_BACK * sizeof(*x));
    int all[MAX_WORLD];
    bool right = true;

    for (int s = 0; s < NR_BACK && right; s++) {
        for (int i = 0; i < 1000; i++)
            x[s][i] = value(rank, i + s);
        np_comm_sum_begin(comm, x[s], s % 3 ? 1000 : 0);
        if (s % 7 == 0)
            right = np_comm_gather(comm, &s, all, sizeof(s), NULL) == 0 && all[world - 1] == s;
    }
    right = right && np_comm_sum_end(comm, NULL) == 0 && np_comm_sum_end(comm, NULL) == 0;
    for (int s = 0; s < NR_BACK && right; s++)
        for (int i = 0; i < 1000 && right; i++) {
            const float due = s % 3 ? tree(0, world, i + s) : value(rank, i + s);

            right = memcmp(&x[s][i], &due, sizeof(due)) == 0;
        }
    free(x);
    return right;
}

Test(comm, sums_go_on_behind_other_calls, .timeout = 120)
{
    for (int world = 1; world <= MAX_WORLD; world++)
        cr_assert_eq(run(world, sums_behind), 0, "world %d", world);
}

#define JOINED 5

/* Not commutative, nor associative: a wrong order shows. */
static void pair(double *left, const double *right, size_t n)
{
    for (size_t i = 0; i < n; i++)
        left[i] = 3 * left[i] - right[i] / 7;
}

static double joined(int first, int nr, int i)
{
    double left = value(first, i), right;

    if (nr == 1)
        return left;
    left = joined(first, left_of(nr), i);
    right = joined(first + left_of(nr), nr - left_of(nr), i);
    pair(&left, &right, 1);
    return left;
}

static bool joins(struct np_comm *comm, int rank, int world)
{
    double x[JOINED];
    bool right = true;

    for (int i = 0; i < JOINED; i++)
        x[i] = value(rank, i);
    right = np_comm_join(comm, x, JOINED, pair, NULL) == 0;
    for (int i = 0; i < JOINED && right; i++)
        right = x[i] == joined(0, world, i);
    return right;
}

Test(comm, joins_keep_the_lower_ranks_left, .timeout = 120)
{
    double alone = 1;

    for (int world = 1; world <= MAX_WORLD; world++)
        cr_assert_eq(run(world, joins), 0, "world %d", world);
    cr_assert(np_comm_join(NULL, &alone, 1, pair, NULL) == 0 && alone == 1);
}

static bool gathers(struct np_comm *comm, int rank, int world)
{
    const uint64_t own[3] = {(uint64_t)rank, 17, ~(uint64_t)rank};
    uint64_t all[MAX_WORLD][3];
    char text[40] = "";
    uint32_t bits = 1u << rank;

    if (rank == 0)
        snprintf(text, sizeof(text), "what rank 0 says");
    bool right = np_comm_gather(comm, own, all, sizeof(own), NULL) == 0 &&
                 np_comm_broadcast(comm, text, sizeof(text), NULL) == 0 &&
                 np_comm_any(comm, &bits, NULL) == 0;
    for (int r = 0; r < world; r++)
        right = right && all[r][0] == (uint64_t)r && all[r][1] == 17 && all[r][2] == ~(uint64_t)r;
    return right && strcmp(text, "what rank 0 says") == 0 && bits == (1u << world) - 1 &&
           np_comm_rank(comm) == rank && np_comm_world(comm) == world;
}

Test(comm, all_get_what_each_has, .timeout = 120)
{
    for (int world = 1; world <= MAX_WORLD; world++)
        cr_assert_eq(run(world, gathers), 0, "world %d", world);
}

Test(comm, one_process_needs_none)
{
    float x[2] = {1, 2};
    uint32_t bits = 5;
    int own = 3, all = 0;

    cr_assert_eq(np_comm_sum(NULL, x, 2, NULL), 0);
    cr_assert_eq(np_comm_gather(NULL, &own, &all, sizeof(own), NULL), 0);
    cr_assert_eq(np_comm_any(NULL, &bits, NULL), 0);
    cr_assert(x[0] == 1 && x[1] == 2 && all == 3 && bits == 5);
    cr_assert(np_comm_rank(NULL) == 0 && np_comm_world(NULL) == 1 && !np_comm_aborted(NULL));
}

/* --- ends ----------------------------------------------------------------------------------- */

static int victim = 2;

static bool one_dies(struct np_comm *comm, int rank, int world)
{
    float x[1000] = {0};
    struct np_err err = {0};
    int code = 0;

    for (int i = 0; i < 1000 && code == 0; i++) {
        if (rank == victim && i == 7)
            _exit(0); /* without a word */
        code = np_comm_sum(comm, x, 1000, &err);
    }
    char name[40];
    snprintf(name, sizeof(name), "rank %d (process ", victim);
    return code == -ECONNRESET && np_comm_aborted(comm) && strstr(err.text, name) &&
           strstr(err.text, " has ended") && np_comm_sum(comm, x, 1, NULL) < 0;
}

Test(comm, the_rank_that_ended_is_named_by_all, .timeout = 120)
{
    cr_assert_eq(run(8, one_dies), 0);
}

Test(comm, any_rank_may_end_where_the_number_is_no_power_of_two, .timeout = 120)
{
    for (int world = 3; world <= 7; world += world == 3 ? 2 : 1)
        for (victim = 0; victim < world; victim++)
            cr_assert_eq(run(world, one_dies), 0, "rank %d of %d", victim, world);
}

static bool one_gives_up(struct np_comm *comm, int rank, int world)
{
    static float x[1000000];
    struct np_err err = {0};
    int code = 0;

    for (int i = 0; i < 20 && code == 0; i++) {
        if (rank == 1 && i == 3) {
            np_comm_abort(comm, -EIO, "no disk answers");
            return !np_comm_aborted(comm) && np_comm_sum(comm, x, 1, NULL) < 0;
        }
        code = np_comm_sum(comm, x, 1000000, &err);
    }
    return code == -EIO && np_comm_aborted(comm) &&
           strcmp(err.text, "rank 1: no disk answers") == 0;
}

Test(comm, an_abort_brings_its_words_to_all, .timeout = 120)
{
    cr_assert_eq(run(3, one_gives_up), 0);
    cr_assert_eq(run(4, one_gives_up), 0);
    cr_assert_eq(run(7, one_gives_up), 0);
    cr_assert_eq(run(8, one_gives_up), 0);
}

static bool not_in_step(struct np_comm *comm, int rank, int world)
{
    struct np_err err = {0};
    float x[4] = {0};
    const int code = np_comm_sum(comm, x, rank == 0 ? 4 : 3, &err);

    return code < 0 &&
           (code == -EPROTO ? strstr(err.text, "not in step") != NULL : code == -ECONNRESET);
}

Test(comm, calls_that_do_not_match_are_found, .timeout = 120)
{
    cr_assert_eq(run(2, not_in_step), 0);
}

static bool as_many_bytes(struct np_comm *comm, int rank, int world)
{
    struct np_err err = {0};
    uint32_t bits = 0, own = 7, all[2];
    int code = rank == 0 ? np_comm_any(comm, &bits, &err) : 0;

    /* what rank 1 takes for the answer to its second call is one to rank 0's first */
    for (int i = 0; i < 2 && code == 0; i++)
        code = np_comm_gather(comm, &own, all, sizeof(own), &err);
    return code < 0 && np_comm_over(comm) && np_comm_any(comm, &bits, NULL) == code;
}

Test(comm, calls_that_do_not_match_are_found_by_their_number, .timeout = 120)
{
    cr_assert_eq(run(2, as_many_bytes), 0);
}

static _Atomic int *last; /* shared with the ranks: rank 0 comes to its end */

static bool goes_last(struct np_comm *comm, int rank, int world)
{
    if (rank == 0) {
        usleep(300000);
        *last = 1;
    }
    np_comm_wait_end(comm);
    return *last == 1;
}

static void all_wait(part_fn part)
{
    static const int worlds[] = {5, 8};

    last = mmap(NULL, sizeof(*last), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    cr_assert_neq((void *)last, MAP_FAILED);
    for (int i = 0; i < 2; i++) {
        *last = 0;
        cr_assert_eq(run(worlds[i], part), 0);
    }
    munmap((void *)last, sizeof(*last));
}

Test(comm, all_wait_for_the_end_of_rank_0, .timeout = 120)
{
    all_wait(goes_last);
}

static bool gives_up_last(struct np_comm *comm, int rank, int world)
{
    if (rank == 0) {
        usleep(100000);
        np_comm_abort(comm, -ENOSPC, "no room for the result");
    }
    const bool right = goes_last(comm, rank, world);
    return right && np_comm_over(comm);
}

Test(comm, all_wait_for_rank_0_that_gives_up_at_the_end, .timeout = 120)
{
    all_wait(gives_up_last);
}

/* --- news while a process takes part in no exchange --- */

struct heard {
    _Atomic int stops, ends;
};

static void count_news(void *context, bool ends)
{
    struct heard *heard = context;

    if (ends)
        heard->ends++;
    else
        heard->stops++;
}

static bool wait_for(_Atomic int *count)
{
    for (int i = 0; i < 2000 && *count == 0; i++)
        usleep(5000);
    return *count > 0;
}

static bool hears(struct np_comm *comm, int rank, int world)
{
    static struct heard heard;
    struct np_err asked = {0}, ended = {0};
    uint32_t bits = 0;

    np_comm_listen(comm, count_news, &heard);
    if (np_comm_heard(comm, NULL) != 0 || np_comm_any(comm, &bits, NULL) < 0)
        return false;
    if (rank == 5) /* two hops from rank 6, three from rank 2 */
        np_comm_ask_stop(comm);
    else if (!wait_for(&heard.stops) || np_comm_heard(comm, &asked) != -EINTR ||
             !strstr(asked.text, "told to stop"))
        return false;
    if (np_comm_any(comm, &bits, NULL) < 0) /* a stop alone ends no exchange */
        return false;
    if (rank == 3)
        _exit(0); /* without a word */
    return wait_for(&heard.ends) && np_comm_heard(comm, &ended) == -ECONNRESET &&
           strstr(ended.text, "rank 3 (process ") && heard.ends == 1 &&
           heard.stops == (rank == 5 ? 0 : 1);
}

Test(comm, a_stop_and_an_end_reach_those_who_wait, .timeout = 120)
{
    for (int world = 6; world <= 8; world++)
        cr_assert_eq(run(world, hears), 0, "world %d", world);
}

static bool hears_why(struct np_comm *comm, int rank, int world)
{
    static struct heard heard;
    struct np_err err = {0};

    if (rank == 3) {
        usleep(100000); /* before or after the others listen */
        np_comm_abort(comm, -EIO, "no disk answers");
        return true;
    }
    if (rank == 1)
        usleep(200000); /* it has heard before it listens */
    np_comm_listen(comm, count_news, &heard);
    return wait_for(&heard.ends) && heard.ends == 1 && np_comm_heard(comm, &err) == -EIO &&
           strcmp(err.text, "rank 3: no disk answers") == 0;
}

Test(comm, the_words_of_one_that_gives_up_reach_those_who_wait, .timeout = 120)
{
    cr_assert_eq(run(4, hears_why), 0);
}

static bool parts(struct np_comm *comm, int rank, int world)
{
    static struct heard heard;
    np_comm_listen(comm, count_news, &heard);
    if (rank % 2)
        usleep(200000); /* the others close first */
    return heard.ends == 0 && np_comm_heard(comm, NULL) == 0;
}

Test(comm, who_closes_is_not_taken_for_dead, .timeout = 120)
{
    cr_assert_eq(run(5, parts), 0);
    cr_assert_eq(run(8, parts), 0);
}

/* --- the meeting ---------------------------------------------------------------------------- */

/* Connects again and again, says the bytes, and leaves. */
static pid_t stranger(int port, const char *bytes, size_t n)
{
    const pid_t pid = fork();

    if (pid != 0)
        return pid;
    alarm(20);
    for (;;) {
        struct sockaddr_in at = {.sin_family = AF_INET,
            .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
            .sin_port = htons((uint16_t)port)};
        const int fd = socket(AF_INET, SOCK_STREAM, 0);

        if (connect(fd, (struct sockaddr *)&at, sizeof(at)) == 0)
            send(fd, bytes, n, MSG_NOSIGNAL);
        close(fd);
        usleep(2000);
    }
}

Test(comm, strangers_do_not_disturb_a_meeting_over_tcp, .timeout = 120)
{
    static const char words[] = "GET / HTTP/1.0\r\n\r\n";
    char noise[400], address[60];

    made_launch_clear();
    for (size_t i = 0; i < sizeof(noise); i++)
        noise[i] = (char)(i * 37);
    for (int round = 0; round < 3; round++) {
        const int port = made_launch_port();
        const pid_t pids[] = {stranger(port, words, sizeof(words) - 1),
            stranger(port, noise, sizeof(noise)), stranger(port, "nnpipe-2", 8)};

        snprintf(address, sizeof(address), "tcp:127.0.0.1:%d", port);
        const int wrong = run_at(address, 3 + round, sums);
        for (int i = 0; i < 3; i++) {
            kill(pids[i], SIGKILL);
            waitpid(pids[i], NULL, 0);
        }
        cr_assert_eq(wrong, 0);
    }
}

static bool hears_often(struct np_comm *comm, int rank, int world)
{
    (void)world;
    for (uint32_t i = 1; i <= 2000; i++) {
        uint32_t word = rank == 0 ? i : 0, bits = 1u << rank;

        if (np_comm_broadcast(comm, &word, sizeof(word), NULL) < 0 || word != i ||
            np_comm_any(comm, &bits, NULL) < 0 || bits != 7)
            return false;
    }
    return true;
}

/* A head that the kernel keeps back until it has more to send costs a fifth of a second: 2000 of them
 * take longer than this test may. */
Test(comm, messages_without_a_body_are_sent_at_once_over_tcp, .timeout = 120)
{
    char address[60];

    made_launch_clear();
    snprintf(address, sizeof(address), "tcp:127.0.0.1:%d", made_launch_port());
    cr_assert_eq(run_at(address, 3, hears_often), 0);
}

static int open_alone(int rank, int world, const char *address, struct np_err *err)
{
    struct np_launch launch = {rank, world, rank, world, "test", "", -1};
    struct np_comm *comm = NULL;

    snprintf(launch.address, sizeof(launch.address), "%s", address);
    setenv("NNPIPE_COMM_TIMEOUT", "1", 1);
    const int code = np_comm_open(&launch, &comm, err);
    np_comm_close(comm);
    return code;
}

Test(comm, ranks_that_do_not_come_are_named, .timeout = 120)
{
    struct np_err err = {0}, other = {0};

    made_launch_clear();
    cr_assert_eq(open_alone(0, 4, "unix:nnpipe-test-absent", &err), -ETIMEDOUT);
    cr_assert(
        strstr(err.text, "of 4 processes, rank 1, 2, 3 did not come within 1 s"), "%s", err.text);
    cr_assert_eq(open_alone(1, 4, "unix:nnpipe-test-absent", &other), -ETIMEDOUT);
    cr_assert(strstr(other.text, "rank 1 has not reached rank 0 at unix:"), "%s", other.text);
}

Test(comm, what_cannot_work_is_refused)
{
    struct np_err odd = {0}, nowhere = {0};

    made_launch_clear();
    cr_assert_eq(open_alone(0, 1025, "unix:nnpipe-test-many", &odd), -EINVAL);
    cr_assert(strstr(odd.text, "1025 processes: a run has at most 1024"));
    cr_assert_eq(open_alone(0, 2, "box:1", &nowhere), -EINVAL);
    cr_assert(strstr(nowhere.text, "expected tcp:HOST:PORT or unix:NAME"));
}

Test(comm, a_rank_that_two_processes_have_is_refused, .timeout = 120)
{
    const char address[] = "unix:nnpipe-test-twice";
    pid_t pids[3];
    int failed = 0, status;

    made_launch_clear();
    setenv("NNPIPE_COMM_TIMEOUT", "3", 1);
    for (int i = 0; i < 3; i++)
        if ((pids[i] = fork()) == 0) {
            struct np_launch launch = {i == 2, 2 + 2 * (i == 1), 0, 2, "test", "", -1};
            struct np_comm *comm = NULL;
            struct np_err err = {0};

            if (i == 1)
                launch.rank = 3; /* of four */
            snprintf(launch.address, sizeof(launch.address), "%s", address);
            if (i == 2)
                usleep(500000);
            _exit(np_comm_open(&launch, &comm, &err) < 0);
        }
    for (int i = 0; i < 3; i++)
        failed += waitpid(pids[i], &status, 0) == pids[i] && WEXITSTATUS(status) == 1;
    cr_assert_eq(failed, 3);
}
