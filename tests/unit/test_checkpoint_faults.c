/* Checkpoints on a machine that fails: every call of a write failing once, the power cut at every
 * call, a full disk, damage to every byte; a whole one is always left. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/sim/io_sim.h"
#include "loader/base/mem.h"
#include "tests/test.h"
#include "tests/unit/made_checkpoint.h"

/* Writes step 20 beside a whole step 10 (again: over a whole step 20) while the machine fails at
 * its k-th call. Returns false when there was no such call. */
static bool fail_at(struct box *box, bool again, const struct np_io_sim_options *options,
    int64_t *ret_latest, int *ret_result)
{
    struct np_io sim;
    bool failed;

    box_empty(box);
    box_write(box, &box->io, again ? 20 : 10, NULL);
    if (np_io_open(&sim, "sim", 1, NULL) < 0)
        abort();
    np_io_sim_set(&sim, options);
    *ret_result = box_write(box, &sim, 20, NULL);
    int64_t nr_writes = np_io_sim_nr_writes(&sim);
    failed = nr_writes >= (options->cut ? options->cut : options->fail_write);
    np_io_close(&sim);
    *ret_latest = box_latest(box);
    return failed;
}

Test(checkpoint, every_call_fails_once_and_no_checkpoint_is_lost, .timeout = 120)
{
    struct box *box = box_new("pread");
    int nr_calls = 0;

    for (int again = 0; again < 2; again++)
        for (int64_t k = 1; k < 100; k++) {
            struct np_io_sim_options options = {.seed = 1, .fail_write = k, .space = -1};
            int64_t step;
            int result;
            bool failed = fail_at(box, again, &options, &step, &result);
            if (!failed) {
                cr_assert_eq(result, 0);
                cr_assert_eq(step, 20);
                break;
            }
            nr_calls++;
            cr_assert_eq(result, -EIO);
            cr_assert(step == 20 || (!again && step == 10));
            cr_assert_eq(box->nr_damaged, 0);
        }
    cr_assert_gt(nr_calls, 30); /* it did fail at each of them */
    box_free(box);
}

Test(checkpoint, a_power_cut_at_any_call_leaves_a_whole_one, .timeout = 120)
{
    struct box *box = box_new("pread");
    int nr_cuts = 0, nr_new = 0;

    for (int again = 0; again < 2; again++)
        for (int64_t k = 1; k < 100; k++) {
            bool cut = false;
            for (int64_t seed = 1; seed <= 12; seed++) {
                struct np_io_sim_options options = {.seed = seed, .cut = k, .space = -1};
                int64_t step;
                int result;
                cut = fail_at(box, again, &options, &step, &result);
                nr_cuts += cut;
                nr_new += cut && !again && step == 20;
                cr_assert(step == 20 || (!again && step == 10));
                if (result == 0) /* it said so: then it is on the disk */
                    cr_assert_eq(step, 20);
                else
                    cr_assert(cut);
            }
            if (!cut)
                break;
        }
    cr_assert_gt(nr_cuts, 300);
    cr_assert_gt(nr_new, 0); /* some cuts come when the new one is there already */
    box_free(box);
}

Test(checkpoint, a_checkpoint_reported_as_written_survives_a_power_cut, .timeout = 120)
{
    struct box *box = box_new("pread");

    for (int64_t seed = 1; seed <= 20; seed++) {
        struct np_io_sim_options options = {.seed = seed, .space = -1};
        struct np_io sim;
        box_empty(box);
        cr_assert_eq(np_io_open(&sim, "sim", 1, NULL), 0);
        np_io_sim_set(&sim, &options);
        cr_assert_eq(box_write(box, &sim, 20, NULL), 0);
        np_io_sim_power_cut(&sim);
        np_io_close(&sim);
        cr_assert_eq(box_latest(box), 20);
    }
    box_free(box);
}

/* checkpoint.optimizer: newest. A run drops older states once the write was reported done, so a cut at any
 * call leaves one to continue from. */
Test(checkpoint, older_optimizers_are_deleted_and_a_power_cut_leaves_one_to_resume_from,
    .timeout = 120)
{
    struct box *box = box_new("pread");
    bool cut = true;

    for (int64_t k = 1; cut && k < 100; k++)
        for (int64_t seed = 1; seed <= 4; seed++) {
            struct np_io_sim_options options = {.seed = seed, .cut = k, .space = -1};
            struct np_io sim;

            box_empty(box);
            box_write(box, &box->io, 10, NULL);
            cr_assert_eq(np_io_open(&sim, "sim", 1, NULL), 0);
            np_io_sim_set(&sim, &options);
            const int result = box_write(box, &sim, 20, NULL);
            cut = np_io_sim_nr_writes(&sim) >= k;
            if (result == 0)
                cr_assert_eq(np_checkpoint_drop_optimizers(box->dir, 20, NULL), 0);
            np_io_close(&sim);
            const int64_t step = box_latest(box);
            cr_assert(step == 20 || (step == 10 && result != 0), "cut %d: %d", (int)k, (int)step);
        }
    cr_assert_not(cut);
    box_free(box);
}

Test(checkpoint, one_without_its_optimizer_is_reported_and_not_resumed_from, .timeout = 120)
{
    struct box *box = box_new("pread");
    struct np_err err = {0};
    char path[128], *facts = NULL;

    for (uint64_t step = 10; step <= 30; step += 10)
        cr_assert_eq(box_write(box, &box->io, step, NULL), 0);
    cr_assert_eq(np_checkpoint_drop_optimizers(box->dir, 30, NULL), 0);
    cr_assert_eq(box_latest(box), 30);
    cr_assert_eq(box->nr_damaged, 0);
    snprintf(path, sizeof(path), "%s/step-20", box->dir);
    cr_assert_eq(np_checkpoint_check(path, &err), -ENODATA);
    cr_assert_not_null(strstr(err.text, "--weights can start a run"));
    snprintf(path, sizeof(path), "%s/step-30/weights.safetensors", box->dir);
    cr_assert_eq(truncate(path, 100), 0);
    memset(&err, 0, sizeof(err));
    cr_assert_eq(
        np_checkpoint_latest(box->dir, &box->checkpoint, &facts, NULL, NULL, &err), -ENOENT);
    cr_assert_not_null(
        strstr(err.text, "1 damaged, 2 without their optimizer's state"), "%s", err.text);
    box_free(box);
}

/* What dir/best leads to is step, whole. */
static bool best_is(struct box *box, uint64_t step)
{
    char path[128], *facts = NULL;

    snprintf(path, sizeof(path), "%s/best", box->dir);
    bool good =
        np_checkpoint_read(path, &box->checkpoint, &facts, NULL) == 0 && box_is_step(box, step);
    np_free(facts);
    return good;
}

/* As a run does it: a better one is written and named, then what was the best is removed. */
Test(checkpoint, a_power_cut_at_any_call_leaves_best_whole, .timeout = 120)
{
    struct box *box = box_new("pread");
    int nr_old = 0, nr_new = 0;
    bool cut = true;

    for (int64_t k = 1; cut && k < 100; k++)
        for (int64_t seed = 1; seed <= 12; seed++) {
            struct np_io_sim_options options = {.seed = seed, .cut = k, .space = -1};
            struct np_io sim;

            box_empty(box);
            box_write(box, &box->io, 10, NULL);
            np_checkpoint_name_best(&box->io, box->dir, 10, NULL);
            box_write(box, &box->io, 15, NULL);
            cr_assert_eq(np_io_open(&sim, "sim", 1, NULL), 0);
            np_io_sim_set(&sim, &options);
            int result = box_write(box, &sim, 20, NULL);
            if (result == 0)
                result = np_checkpoint_name_best(&sim, box->dir, 20, NULL);
            if (result == 0)
                np_checkpoint_prune(box->dir, 1, 20, 20, NULL);
            cut = np_io_sim_nr_writes(&sim) >= k;
            np_io_close(&sim);
            bool old = best_is(box, 10), new = best_is(box, 20);
            cr_assert(new || (old && result < 0), "call %d, seed %d", (int)k, (int)seed);
            nr_old += old;
            nr_new += new;
        }
    cr_assert(nr_old > 100 && nr_new > 12, "%d, %d", nr_old, nr_new);
    box_free(box);
}

Test(checkpoint, a_full_disk_leaves_the_previous_one_and_no_partial_files, .timeout = 120)
{
    struct box *box = box_new("pread");
    struct np_err err = {0};

    for (int64_t space = 0; space < 4000; space += 97) {
        struct np_io_sim_options options = {.space = space};
        struct np_io sim;
        box_empty(box);
        box_write(box, &box->io, 10, NULL);
        cr_assert_eq(np_io_open(&sim, "sim", 1, NULL), 0);
        np_io_sim_set(&sim, &options);
        err = (struct np_err){0};
        int result = box_write(box, &sim, 20, &err);
        np_io_close(&sim);
        cr_assert(result == -ENOSPC || (result == 0 && space > 2000));
        cr_assert_eq(box_latest(box), result == 0 ? 20 : 10);
        cr_assert_eq(box_leftovers(box), 0);
        if (result < 0) {
            cr_assert_not_null(strstr(err.text, "no checkpoint of step 20"));
            cr_assert_not_null(strstr(err.text, "full"));
        }
    }
    box_free(box);
}

/* Flips a bit, or cuts the file there; the original bytes come back with undo. */
static bool damage(const char *path, long at, bool cut, bool undo)
{
    static unsigned char bytes[20000];
    static size_t nr_bytes;
    FILE *file;

    if (!undo) {
        file = fopen(path, "rb");
        nr_bytes = fread(bytes, 1, sizeof(bytes), file);
        fclose(file);
        if (at >= (long)nr_bytes)
            return false;
    }
    file = fopen(path, "wb");
    fwrite(bytes, 1, cut && !undo ? (size_t)at : nr_bytes, file);
    if (!undo && !cut) {
        fseek(file, at, SEEK_SET);
        fputc(bytes[at] ^ 1 << at % 8, file);
    }
    return fclose(file) == 0;
}

Test(checkpoint, damage_to_any_byte_is_named_and_the_previous_one_is_used, .timeout = 120)
{
    static const char *const names[] = {
        "weights.safetensors", "optimizer.safetensors", "manifest.json"};
    struct box *box = box_new("pread");
    int nr_tried = 0;

    box_write(box, &box->io, 10, NULL);
    box_write(box, &box->io, 20, NULL);
    for (int f = 0; f < 3; f++)
        for (int cut = 0; cut < 2; cut++)
            for (long at = 0; at < 20000; at += cut ? 61 : 3) {
                char path[128];
                snprintf(path, sizeof(path), "%s/step-20/%s", box->dir, names[f]);
                if (!damage(path, at, cut, false))
                    break;
                int64_t step = box_latest(box);
                /* A flipped blank or quote in the manifest may leave the same content. */
                bool same = f == 2 && step == 20 && box->nr_damaged == 0;
                cr_assert(same || (step == 10 && box->nr_damaged == 1));
                cr_assert(same || strstr(box->damage, names[f]) != NULL);
                damage(path, at, cut, true);
                nr_tried++;
            }
    cr_assert_gt(nr_tried, 500);
    cr_assert_eq(box_latest(box), 20);
    box_free(box);
}

Test(checkpoint, a_missing_file_is_damage_too)
{
    struct box *box = box_new("pread");
    char path[128];
    box_write(box, &box->io, 10, NULL);
    box_write(box, &box->io, 20, NULL);
    snprintf(path, sizeof(path), "%s/step-20/optimizer.safetensors", box->dir);
    unlink(path);
    cr_assert_eq(box_latest(box), 10);
    cr_assert_eq(box->nr_damaged, 1);
    snprintf(path, sizeof(path), "%s/step-10/manifest.json", box->dir);
    unlink(path);
    struct np_err err = {0};
    char *facts;
    cr_assert_eq(
        np_checkpoint_latest(box->dir, &box->checkpoint, &facts, NULL, NULL, &err), -ENOENT);
    cr_assert_not_null(strstr(err.text, "1 damaged, 1 without their optimizer's state"));
    box_free(box);
}

/* Is anything lost when the power is cut at this call, or behind the last, with the k-th sync left out? ret_calls:
 * how many there were. */
static bool is_lost(
    struct box *box, bool again, int64_t skip, int64_t cut, int64_t seed, int64_t *ret_calls)
{
    const struct np_io_sim_options options = {
        .seed = seed, .skip_sync = skip, .cut = cut, .space = -1};
    struct np_io sim;

    box_empty(box);
    box_write(box, &box->io, again ? 20 : 10, NULL);
    if (np_io_open(&sim, "sim", 1, NULL) < 0)
        abort();
    np_io_sim_set(&sim, &options);
    const int result = box_write(box, &sim, 20, NULL);
    *ret_calls = np_io_sim_nr_writes(&sim);
    np_io_sim_power_cut(&sim);
    np_io_close(&sim);
    const int64_t step = box_latest(box);
    return result == 0 ? step != 20 : step != 20 && (again || step != 10);
}

/* The last calls first: most losses are there. */
static bool any_is_lost(struct box *box, bool again, int64_t skip)
{
    int64_t calls, n;

    if (is_lost(box, again, skip, 0, 1, &calls))
        return true;
    for (int64_t cut = calls + 1; cut > 0; cut--)
        for (int64_t seed = 1; seed <= 40; seed++)
            if (is_lost(box, again, skip, cut, seed, &n))
                return true;
    return false;
}

Test(checkpoint, no_sync_of_a_write_can_be_left_out, .timeout = 240)
{
    struct box *box = box_new("pread");
    struct np_io sim;

    box_empty(box);
    cr_assert_eq(np_io_open(&sim, "sim", 1, NULL), 0);
    cr_assert_eq(box_write(box, &sim, 20, NULL), 0);
    const int64_t nr_syncs = np_io_sim_nr_syncs(&sim);
    np_io_close(&sim);
    cr_assert_gt(nr_syncs, 3);
    for (int64_t skip = 1; skip <= nr_syncs; skip++)
        cr_expect(any_is_lost(box, false, skip) && any_is_lost(box, true, skip),
            "sync %d of %d could be left out", (int)skip, (int)nr_syncs);
    box_free(box);
}
