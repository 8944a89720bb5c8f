/* The simulated machine: reads that come late, short, unordered or not at all give the same
 * bytes; and at whatever call the power is cut, what was replaced durably is whole. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "loader/base/clock.h"
#include "tests/sim/io_sim.h"
#include "loader/base/mem.h"

#include "tests/test.h"

static struct np_io open_sim(const struct np_io_sim_options *options, int depth)
{
    struct np_io io;

    unsetenv("NNPIPE_IO_SIM");
    if (np_io_open(&io, "sim", depth, NULL))
        abort();
    np_io_sim_set(&io, options);
    return io;
}

/* --- reads ------------------------------------------------------------------------------- */

enum { N = 64, PIECE = 1000 };

static int make_file(void)
{
    char path[] = "/tmp/np_test_sim.XXXXXX";
    int fd = mkostemp(path, O_CLOEXEC);

    unlink(path);
    for (int i = 0; i < N * PIECE; i++) {
        unsigned char byte = (unsigned char)(i * 7 + i / 256);

        if (write(fd, &byte, 1) != 1)
            abort();
    }
    return fd;
}

struct outcome {
    int order[N], nr_wrong, nr_failed;
};

/* Reads the file's N pieces, all in flight, twice over. */
static struct outcome read_all(const struct np_io_sim_options *options)
{
    struct np_io io = open_sim(options, N);
    struct outcome outcome = {.nr_wrong = 0};
    struct np_io_read reads[N];
    unsigned char *buffer = malloc(N * PIECE);
    int fd = make_file();

    for (int i = 0; i < N; i++) {
        reads[i] = (struct np_io_read){
            .fd = fd, .offset = (uint64_t)i * PIECE, .bytes = PIECE, .buffer = buffer + i * PIECE};
        outcome.nr_wrong += np_io_submit(&io, &reads[i]) != 0;
    }
    for (int i = 0; i < N; i++) {
        struct np_io_read *read = np_io_reap(&io, true);

        outcome.order[i] = (int)(read - reads);
        outcome.nr_failed += read->result == -EIO;
        outcome.nr_wrong += read->result != PIECE && read->result != -EIO;
        for (int j = 0; j < read->result; j++) {
            int at = (int)read->offset + j;

            outcome.nr_wrong += buffer[at] != (unsigned char)(at * 7 + at / 256);
        }
    }
    outcome.nr_wrong += np_io_reap(&io, true) != NULL;
    np_io_close(&io);
    close(fd);
    free(buffer);
    return outcome;
}

static bool in_order(const struct outcome *outcome)
{
    for (int i = 0; i < N; i++)
        if (outcome->order[i] != i)
            return false;
    return true;
}

Test(io_sim, short_and_interrupted_reads_are_put_together)
{
    for (int seed = 0; seed < 20; seed++) {
        struct np_io_sim_options options = {.seed = seed, .short_share = 1, .space = -1};
        struct outcome outcome = read_all(&options);

        cr_assert_eq(outcome.nr_wrong, 0);
        cr_assert_eq(outcome.nr_failed, 0);
        cr_assert(in_order(&outcome));
    }
}

Test(io_sim, order_follows_the_seed)
{
    struct np_io_sim_options options = {.seed = 3, .shuffle = true};
    struct outcome one = read_all(&options), two = read_all(&options), other;

    options.seed = 4;
    other = read_all(&options);
    cr_assert_eq(one.nr_wrong + other.nr_wrong, 0);
    cr_assert_not(in_order(&one));
    cr_assert_arr_eq(one.order, two.order, sizeof(one.order));
    cr_assert(memcmp(one.order, other.order, sizeof(one.order)) != 0);
}

Test(io_sim, late_reads_overtake_each_other)
{
    struct np_io_sim_options options = {.latency_us = 20000};
    struct outcome outcome = read_all(&options);

    cr_assert_eq(outcome.nr_wrong, 0);
    cr_assert_not(in_order(&outcome));
}

Test(io_sim, chosen_reads_fail_and_succeed_when_tried_again)
{
    struct np_io_sim_options options = {.fail_read = 3, .fail_reads = 2};
    struct np_io io = open_sim(&options, 1);
    char buffer[PIECE];
    int fd = make_file();
    struct np_io_read read = {.fd = fd, .bytes = PIECE, .buffer = buffer};
    const int32_t want[] = {PIECE, PIECE, -EIO, -EIO, PIECE};

    for (int i = 0; i < 5; i++) {
        cr_assert_eq(np_io_submit(&io, &read), 0);
        cr_assert_eq(np_io_reap(&io, true), &read);
        cr_assert_eq(read.result, want[i]);
    }
    np_io_close(&io);
    close(fd);
}

Test(io_sim, a_slow_read_is_not_ready_at_once)
{
    struct np_io_sim_options options = {.slow_read = 1, .slow_us = 30000};
    struct np_io io = open_sim(&options, 2);
    char buffer[PIECE];
    int fd = make_file();
    struct np_io_read slow = {.fd = fd, .bytes = PIECE, .buffer = buffer}, fast = slow;
    uint64_t start_ns = np_now_ns();

    cr_assert_eq(np_io_submit(&io, &slow), 0);
    cr_assert_null(np_io_reap(&io, false));
    cr_assert_eq(np_io_submit(&io, &fast), 0);
    cr_assert_eq(np_io_reap(&io, false), &fast);
    cr_assert_null(np_io_reap(&io, false));
    cr_assert_eq(np_io_reap(&io, true), &slow);
    cr_assert_geq(np_now_ns() - start_ns, 30000000u);
    np_io_close(&io);
    close(fd);
}

Test(io_sim, options_come_from_the_environment_and_mistakes_are_named)
{
    struct np_io io;
    struct np_err err = {0};

    setenv("NNPIPE_IO_SIM", "seed=7,short=25%,fail_read=2,space=1K,shuffle=true", 1);
    cr_assert_eq(np_io_open(&io, "sim", 1, &err), 0, "%s", err.text);
    cr_assert_eq(np_sim_disk(&io)->options.seed, 7);
    cr_assert_float_eq(np_sim_disk(&io)->options.short_share, 0.25, 1e-12);
    cr_assert_eq(np_sim_disk(&io)->options.space, 1024);
    cr_assert_eq(np_sim_disk(&io)->options.fail_reads, 1);
    cr_assert(np_sim_disk(&io)->options.shuffle);
    np_io_close(&io);
    setenv("NNPIPE_IO_SIM", "fail_raed=2", 1);
    cr_assert_eq(np_io_open(&io, "sim", 1, &err), -EINVAL);
    cr_assert_not_null(strstr(err.text, "NNPIPE_IO_SIM"));
    cr_assert_not_null(strstr(err.text, "did you mean 'fail_read'?"));
    unsetenv("NNPIPE_IO_SIM");
    cr_assert_eq(np_io_open(&io, "sim", 1, &err), 0);
    cr_assert_eq(np_sim_disk(&io)->options.space, -1);
    np_io_close(&io);
}

/* --- writes ------------------------------------------------------------------------------ */

struct place {
    char folder[64], path[80], beside[96];
};

static struct place make_place(void)
{
    struct place place = {.folder = "/tmp/np_test_sim.XXXXXX"};

    if (!mkdtemp(place.folder))
        abort();
    snprintf(place.path, sizeof(place.path), "%s/file", place.folder);
    snprintf(place.beside, sizeof(place.beside), "%s.new", place.path);
    return place;
}

static void remove_place(const struct place *place)
{
    char command[128];

    snprintf(command, sizeof(command), "rm -rf '%s'", place->folder);
    if (system(command))
        abort();
}

static bool holds(const char *path, const char *text)
{
    char *data = NULL;
    uint64_t bytes = 0;
    bool same = np_read_file(path, 1 << 20, &data, &bytes, NULL) == 0 && bytes == strlen(text) &&
                memcmp(data, text, bytes) == 0;

    np_free(data);
    return same;
}

static const char old_text[] = "the old text", new_text[] = "and the new text, a longer one";

/* What a program does that forgets some of the steps of np_io_replace(). */
static int replace_carelessly(struct np_io *io, const struct place *place, bool sync, bool sync_dir)
{
    const struct np_io_write_ops *ops = io->ops->write;
    int fd = ops->create(io, place->beside), status;

    if (fd < 0)
        return fd;
    status = ops->append(io, fd, new_text, strlen(new_text));
    if (status == 0 && sync)
        status = ops->sync(io, fd);
    if (ops->close(io, fd) || status)
        return -EIO;
    status = ops->rename(io, place->beside, place->path);
    return status == 0 && sync_dir ? ops->sync_dir(io, place->folder) : status;
}

struct cuts {
    int nr_runs, nr_old, nr_new, nr_torn, nr_broken_promises;
};

/* Power is cut at every call, and behind the last one, under many seeds. */
static struct cuts cut_everywhere(int (*replace)(struct np_io *io, const struct place *place))
{
    struct cuts cuts = {0};
    int64_t nr_calls = 1;

    for (int64_t cut = 1; cut <= nr_calls + 1; cut++)
        for (int seed = 0; seed < 24; seed++) {
            struct np_io_sim_options options = {.seed = seed, .cut = cut, .space = -1};
            struct np_io io = open_sim(&options, 1);
            struct place place = make_place();
            bool promised;

            np_io_replace(NULL, place.path, old_text, strlen(old_text), NULL);
            promised = replace(&io, &place) == 0;
            if (cut > nr_calls && np_io_sim_nr_writes(&io) > nr_calls)
                nr_calls = np_io_sim_nr_writes(&io);
            np_io_sim_power_cut(&io);
            cuts.nr_runs++;
            cuts.nr_old += holds(place.path, old_text);
            cuts.nr_new += holds(place.path, new_text);
            cuts.nr_torn += !holds(place.path, old_text) && !holds(place.path, new_text);
            cuts.nr_broken_promises += promised && !holds(place.path, new_text);
            np_io_close(&io);
            remove_place(&place);
        }
    return cuts;
}

static int replace_well(struct np_io *io, const struct place *place)
{
    return np_io_replace(io, place->path, new_text, strlen(new_text), NULL);
}

static int replace_without_sync(struct np_io *io, const struct place *place)
{
    return replace_carelessly(io, place, false, true);
}

static int replace_without_sync_dir(struct np_io *io, const struct place *place)
{
    return replace_carelessly(io, place, true, false);
}

Test(io_sim, a_power_cut_at_any_call_leaves_the_old_or_the_new_file)
{
    struct cuts cuts = cut_everywhere(replace_well);

    cr_assert_geq(cuts.nr_runs, 7 * 24);
    cr_assert_eq(cuts.nr_torn, 0);
    cr_assert_eq(cuts.nr_broken_promises, 0);
    cr_assert_gt(cuts.nr_old, 24);
    cr_assert_gt(cuts.nr_new, 24);
}

Test(io_sim, a_program_that_forgets_to_sync_is_found_out)
{
    struct cuts torn = cut_everywhere(replace_without_sync);
    struct cuts lost = cut_everywhere(replace_without_sync_dir);

    cr_assert_gt(torn.nr_torn, 0);
    cr_assert_eq(lost.nr_torn, 0);
    cr_assert_gt(lost.nr_broken_promises, 0);
}

/* A folder of two files that gets its name when both are whole. */
static int write_folder(struct np_io *io, const struct place *place)
{
    char beside[160], file[200], done[160];
    int status, fd = -1;

    snprintf(beside, sizeof(beside), "%s/step-1.new", place->folder);
    snprintf(done, sizeof(done), "%s/step-1", place->folder);
    status = np_make_dirs(beside, NULL);
    for (int i = 0; status == 0 && i < 2; i++) {
        snprintf(file, sizeof(file), "%s/part-%d", beside, i);
        status = np_io_create(io, file, &fd, NULL);
        if (status)
            break;
        status = np_io_append(io, fd, new_text, strlen(new_text), NULL);
        int closed = np_io_sync_close(io, fd, NULL);
        status = status ? status : closed;
    }
    status = status ? status : np_io_sync_dir(io, beside, NULL);
    status = status ? status : np_io_rename(io, beside, done, NULL);
    return status ? status : np_io_sync_dir(io, place->folder, NULL);
}

Test(io_sim, a_folder_written_beside_is_whole_once_it_has_its_name)
{
    int nr_there = 0, nr_absent = 0;

    for (int cut = 1; cut <= 13; cut++)
        for (int seed = 0; seed < 24; seed++) {
            struct np_io_sim_options options = {.seed = seed, .cut = cut, .space = -1};
            struct np_io io = open_sim(&options, 1);
            struct place place = make_place();
            char done[160], file[200];
            bool promised = write_folder(&io, &place) == 0;

            cr_assert(promised == (cut > 11));
            np_io_sim_power_cut(&io);
            snprintf(done, sizeof(done), "%s/step-1", place.folder);
            nr_there += access(done, F_OK) == 0;
            nr_absent += access(done, F_OK) != 0;
            cr_assert(!promised || access(done, F_OK) == 0);
            for (int i = 0; access(done, F_OK) == 0 && i < 2; i++) {
                snprintf(file, sizeof(file), "%s/part-%d", done, i);
                cr_assert(holds(file, new_text));
            }
            np_io_close(&io);
            remove_place(&place);
        }
    cr_assert_gt(nr_there, 24);
    cr_assert_gt(nr_absent, 24);
}

Test(io_sim, without_power_nothing_can_be_written)
{
    struct np_io_sim_options options = {.space = -1};
    struct np_io io = open_sim(&options, 1);
    struct place place = make_place();
    int fd = -1;

    cr_assert_eq(np_io_create(&io, place.path, &fd, NULL), 0);
    cr_assert_not(np_io_sim_is_off(&io));
    np_io_sim_power_cut(&io);
    cr_assert(np_io_sim_is_off(&io));
    cr_assert_neq(access(place.path, F_OK), 0); /* its name was never synced */
    cr_assert_eq(np_io_append(&io, fd, "x", 1, NULL), -EIO);
    cr_assert_eq(np_io_sync_close(&io, fd, NULL), -EIO);
    cr_assert_eq(fcntl(fd, F_GETFD), -1); /* closed all the same */
    cr_assert_eq(np_io_create(&io, place.path, &fd, NULL), -EIO);
    cr_assert_eq(np_io_rename(&io, place.folder, "/tmp/np_test_none", NULL), -EIO);
    cr_assert_eq(np_io_sync_dir(&io, place.folder, NULL), -EIO);
    np_io_close(&io);
    remove_place(&place);
}

Test(io_sim, a_failure_of_any_call_leaves_a_whole_file_and_the_next_replace_works)
{
    for (int fail = 1; fail <= 6; fail++) {
        struct np_io_sim_options options = {.fail_write = fail, .space = -1};
        struct np_io io = open_sim(&options, 1);
        struct place place = make_place();
        struct np_err err = {0};
        int status;

        np_io_replace(NULL, place.path, old_text, strlen(old_text), NULL);
        status = np_io_replace(&io, place.path, new_text, strlen(new_text), &err);
        cr_assert(fail == 5 || status == -EIO); /* 5: close, after the data is on the disk */
        cr_assert(fail == 5 || strstr(err.text, place.folder));
        cr_assert(holds(place.path, fail < 5 ? old_text : new_text));
        cr_assert_neq(access(place.beside, F_OK), 0);
        cr_assert_eq(np_io_replace(&io, place.path, "3", 1, NULL), 0);
        cr_assert(holds(place.path, "3"));
        np_io_close(&io);
        remove_place(&place);
    }
}

Test(io_sim, a_disk_that_fills_up_is_reported_and_keeps_the_old_file)
{
    struct np_io_sim_options options = {.space = 10};
    struct np_io io = open_sim(&options, 1);
    struct place place = make_place();
    struct np_err err = {0};

    np_io_replace(NULL, place.path, old_text, strlen(old_text), NULL);
    cr_assert_eq(np_io_replace(&io, place.path, new_text, strlen(new_text), &err), -ENOSPC);
    cr_assert_not_null(strstr(err.text, "the disk is full: 30 bytes to write"));
    cr_assert(holds(place.path, old_text));
    np_io_close(&io);
    remove_place(&place);
}

Test(io_sim, closing_without_a_cut_leaves_only_what_was_written)
{
    struct np_io_sim_options options = {.space = -1};
    struct np_io io = open_sim(&options, 1);
    struct place place = make_place();

    np_io_replace(NULL, place.path, old_text, strlen(old_text), NULL);
    cr_assert_eq(replace_carelessly(&io, &place, false, false), 0);
    np_io_close(&io);
    cr_assert(holds(place.path, new_text));
    cr_assert_eq(unlink(place.path), 0);
    cr_assert_eq(rmdir(place.folder), 0); /* nothing else was in it */
}
