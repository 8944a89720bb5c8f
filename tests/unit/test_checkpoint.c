/* Checkpoints: round trip, every call of a write failing once, the power cut at every call,
 * a full disk, damage to every byte, the newest whole one, pruning. */
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "loader/base/io_sim.h"
#include "loader/base/mem.h"
#include "tests/test.h"
#include "trainer/checkpoint.h"
#include "trainer/checkpoint_dir.h"
#include "trainer/safetensors.h"

enum { NR_PARAMS = 54 + 4 + 4, NR_BUFFERS = 8 };

static struct np_tensor tensors[] = {
    {.name = "conv1.weight", .role = NP_ROLE_PARAM, .dims = {2, 3, 3, 3}, .nr_dims = 4},
    {.name = "a", .role = NP_ROLE_ACTIVATION, .dims = {8, 4}, .nr_dims = 2},
    {.name = "layer1.0.bn1.weight", .role = NP_ROLE_PARAM, .dims = {4}, .nr_dims = 1, .offset = 54},
    {.name = "layer1.0.bn1.bias", .role = NP_ROLE_PARAM, .dims = {4}, .nr_dims = 1, .offset = 58},
    {.name = "layer1.0.bn1.running_mean", .role = NP_ROLE_BUFFER, .dims = {4}, .nr_dims = 1},
    {.name = "layer1.0.bn1.running_var",
        .role = NP_ROLE_BUFFER,
        .dims = {4},
        .nr_dims = 1,
        .offset = 4},
};
static const struct np_graph graph = {.tensors = tensors,
    .nr_tensors = sizeof(tensors) / sizeof(tensors[0]),
    .nr_params = NR_PARAMS,
    .nr_buffers = NR_BUFFERS};

struct box { /* a checkpoint with its arrays, and a folder */
    struct np_checkpoint checkpoint;
    float params[NR_PARAMS], buffers[NR_BUFFERS], states[2][NR_PARAMS];
    char dir[64];
    struct np_io io;
    int nr_damaged;
    char damage[1024];
};

/* Every number follows from the step, so that a mix of two checkpoints shows. */
static void set_step(struct box *box, uint64_t step)
{
    float base = (float)step * 1000;

    for (int i = 0; i < NR_PARAMS; i++) {
        box->params[i] = base + (float)i;
        box->states[0][i] = -base - (float)i;
        box->states[1][i] = base * 0.5f + (float)i;
    }
    for (int i = 0; i < NR_BUFFERS; i++)
        box->buffers[i] = base + 0.25f * (float)i;
    box->checkpoint.position = (struct np_position){.step = step,
        .eval_due = step % 20 == 0,
        .ticket_hash = 0xfedcba9876543210u + step,
        .history_bytes = step * 8,
        .best_accuracy = 1.0 / 3,
        .best_step = step / 2,
        .loss_sum = 0.1 * (double)step};
}

static bool is_step(const struct box *box, uint64_t step)
{
    static struct box want;
    const struct np_position *position = &box->checkpoint.position;

    set_step(&want, step);
    return memcmp(box->params, want.params, sizeof(want.params)) == 0 &&
           memcmp(box->buffers, want.buffers, sizeof(want.buffers)) == 0 &&
           memcmp(box->states, want.states, sizeof(want.states)) == 0 && position->step == step &&
           position->eval_due == want.checkpoint.position.eval_due &&
           position->ticket_hash == want.checkpoint.position.ticket_hash &&
           position->history_bytes == step * 8 && position->best_accuracy == 1.0 / 3 &&
           position->best_step == step / 2 && position->loss_sum == 0.1 * (double)step;
}

static struct box *box_new(const char *backend)
{
    static struct box box;

    box =
        (struct box){.checkpoint = {.graph = &graph, .facts_json = "{\"classes\":[\"b\",\"a\"]}"}};
    box.checkpoint.params = box.params;
    box.checkpoint.buffers = box.buffers;
    box.checkpoint.state[0] = box.states[0];
    box.checkpoint.state[1] = box.states[1];
    snprintf(box.dir, sizeof(box.dir), "/tmp/nnpipe-checkpoint.XXXXXX");
    if (mkdtemp(box.dir) == NULL || np_io_open(&box.io, backend, 1, NULL) < 0)
        abort();
    return &box;
}

/* Removes what is in the folder, checkpoints and all. */
static void box_empty(const struct box *box)
{
    char path[512];
    DIR *dir = opendir(box->dir);
    const struct dirent *item;

    while (dir != NULL && (item = readdir(dir)) != NULL)
        if (strcmp(item->d_name, ".") != 0 && strcmp(item->d_name, "..") != 0) {
            snprintf(path, sizeof(path), "%s/%s", box->dir, item->d_name);
            np_remove_folder(path);
        }
    closedir(dir);
}

static void box_free(struct box *box)
{
    np_io_close(&box->io);
    box_empty(box);
    rmdir(box->dir);
}

static int write_step(struct box *box, struct np_io *io, uint64_t step, struct np_err *err)
{
    set_step(box, step);
    return np_checkpoint_write(io, box->dir, &box->checkpoint, err);
}

static void note_damage(void *context, const char *text)
{
    struct box *box = context;

    box->nr_damaged++;
    snprintf(box->damage, sizeof(box->damage), "%s", text);
}

/* The step of the newest whole checkpoint, its arrays checked; 0: none; -1: a mix. */
static int64_t latest(struct box *box)
{
    char *facts = NULL;

    memset(box->params, 0x7f, sizeof(box->params));
    memset(box->states, 0x7f, sizeof(box->states));
    box->nr_damaged = 0;
    int result = np_checkpoint_latest(box->dir, &box->checkpoint, &facts, note_damage, box, NULL);
    bool right = result == 0 && strcmp(facts, box->checkpoint.facts_json) == 0;
    np_free(facts);
    if (result == -ENOENT)
        return 0;
    return right && is_step(box, box->checkpoint.position.step)
               ? (int64_t)box->checkpoint.position.step
               : -1;
}

/* Names in the folder that are no finished checkpoint. */
static int leftovers(const struct box *box)
{
    DIR *dir = opendir(box->dir);
    const struct dirent *item;
    int n = 0;

    while ((item = readdir(dir)) != NULL)
        n += item->d_name[0] == '.' && strncmp(item->d_name, ".step", 5) == 0;
    closedir(dir);
    return n;
}

/* The one from before stays the newest, whichever number it is that has gone. */
Test(checkpoint, weights_that_are_no_numbers_are_refused)
{
    static const float odd[] = {NAN, INFINITY, -INFINITY};
    struct box *box = box_new("pread");

    cr_assert_eq(write_step(box, &box->io, 1, NULL), 0);
    for (int i = 0; i < 6; i++) {
        struct np_err err = {0};

        set_step(box, 2);
        if (i < 3)
            box->params[20 * i] = odd[i];
        else
            box->buffers[i] = odd[i - 3];
        cr_assert_eq(np_checkpoint_write(&box->io, box->dir, &box->checkpoint, &err), -EDOM);
        cr_assert_not_null(strstr(err.text, "no longer finite"));
        cr_assert_eq(latest(box), 1);
        cr_assert_eq(leftovers(box), 0);
    }
    box_free(box);
}

Test(checkpoint, what_is_written_reads_back)
{
    struct box *box = box_new("pread");
    struct np_err err = {0};
    cr_assert_eq(latest(box), 0);
    cr_assert_eq(write_step(box, &box->io, 10, &err), 0);
    cr_assert_eq(write_step(box, &box->io, 9, &err), 0);
    cr_assert_eq(latest(box), 10);
    cr_assert_eq(box->nr_damaged, 0);
    cr_assert_eq(leftovers(box), 0);
    box_free(box);
}

Test(checkpoint, numbers_that_are_none_come_back)
{
    struct box *box = box_new("pread");
    char path[128], *facts = NULL;
    set_step(box, 1);
    box->checkpoint.position.best_accuracy = (double)NAN;
    box->checkpoint.position.ticket_hash = UINT64_MAX;
    cr_assert_eq(np_checkpoint_write(&box->io, box->dir, &box->checkpoint, NULL), 0);
    snprintf(path, sizeof(path), "%s/step-1", box->dir);
    cr_assert_eq(np_checkpoint_read(path, &box->checkpoint, &facts, NULL), 0);
    np_free(facts);
    cr_assert(isnan(box->checkpoint.position.best_accuracy));
    cr_assert_eq(box->checkpoint.position.ticket_hash, UINT64_MAX);
    box_free(box);
}

Test(checkpoint, weights_have_torch_names_and_count_batches)
{
    struct box *box = box_new("pread");
    struct np_st_file *file = NULL;
    char path[128];
    int64_t count = 0;
    cr_assert_eq(write_step(box, &box->io, 77, NULL), 0);
    snprintf(path, sizeof(path), "%s/step-77/weights.safetensors", box->dir);
    cr_assert_eq(np_st_open(path, &file, NULL), 0);
    cr_assert_eq(np_st_count(file), 6);
    const struct np_st_tensor *tensor = np_st_find(file, "layer1.0.bn1.num_batches_tracked");
    cr_assert_not_null(tensor);
    cr_assert_eq(tensor->nr_dims, 0);
    cr_assert_str_eq(tensor->dtype, "I64");
    memcpy(&count, tensor->data, 8);
    cr_assert_eq(count, 77);
    cr_assert_eq(np_st_find(file, "conv1.weight")->dims[1], 3);
    cr_assert_null(np_st_find(file, "a"));
    np_st_close(file);
    snprintf(path, sizeof(path), "%s/step-77/optimizer.safetensors", box->dir);
    cr_assert_eq(np_st_open(path, &file, NULL), 0);
    cr_assert_eq(np_st_count(file), 6);
    cr_assert_not_null(np_st_find(file, "state1.conv1.weight"));
    np_st_close(file);
    box_free(box);
}

Test(checkpoint, an_optimizer_without_state_is_fine)
{
    struct box *box = box_new("pread");
    char *facts = NULL;
    box->checkpoint.state[0] = box->checkpoint.state[1] = NULL;
    cr_assert_eq(write_step(box, &box->io, 3, NULL), 0);
    cr_assert_eq(np_checkpoint_latest(box->dir, &box->checkpoint, &facts, NULL, NULL, NULL), 0);
    np_free(facts);
    box->checkpoint.state[0] = box->states[0]; /* asked for now, and not there */
    struct np_err err = {0};
    char path[128];
    snprintf(path, sizeof(path), "%s/step-3", box->dir);
    cr_assert_eq(np_checkpoint_read(path, &box->checkpoint, &facts, &err), -EINVAL);
    cr_assert_not_null(strstr(err.text, "state0.conv1.weight is missing"));
    box_free(box);
}

Test(checkpoint, the_same_step_again_replaces_the_first)
{
    struct box *box = box_new("pread");
    cr_assert_eq(write_step(box, &box->io, 20, NULL), 0);
    set_step(box, 20);
    box->checkpoint.position.eval_due = false;
    cr_assert_eq(np_checkpoint_write(&box->io, box->dir, &box->checkpoint, NULL), 0);
    latest(box);
    cr_assert_eq(box->checkpoint.position.step, 20);
    cr_assert_not(box->checkpoint.position.eval_due);
    cr_assert_eq(leftovers(box), 0);
    box_free(box);
}

/* Writes step 20 beside a whole step 10 (again: over a whole step 20) while the machine fails at
 * its k-th call. Returns false when there was no such call. */
static bool fail_at(struct box *box, bool again, const struct np_io_sim_options *options,
    int64_t *ret_latest, int *ret_result)
{
    struct np_io sim;
    bool failed;

    box_empty(box);
    write_step(box, &box->io, again ? 20 : 10, NULL);
    if (np_io_open(&sim, "sim", 1, NULL) < 0)
        abort();
    np_io_sim_set(&sim, options);
    *ret_result = write_step(box, &sim, 20, NULL);
    int64_t nr_writes = np_io_sim_nr_writes(&sim);
    failed = nr_writes >= (options->cut ? options->cut : options->fail_write);
    np_io_close(&sim);
    *ret_latest = latest(box);
    return failed;
}

Test(checkpoint, every_call_fails_once_and_none_is_lost, .timeout = 60)
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

Test(checkpoint, the_power_is_cut_at_every_call_and_a_whole_one_is_left, .timeout = 120)
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

Test(checkpoint, what_was_reported_written_survives_a_cut_right_after, .timeout = 60)
{
    struct box *box = box_new("pread");

    for (int64_t seed = 1; seed <= 20; seed++) {
        struct np_io_sim_options options = {.seed = seed, .space = -1};
        struct np_io sim;
        box_empty(box);
        cr_assert_eq(np_io_open(&sim, "sim", 1, NULL), 0);
        np_io_sim_set(&sim, &options);
        cr_assert_eq(write_step(box, &sim, 20, NULL), 0);
        np_io_sim_power_cut(&sim);
        np_io_close(&sim);
        cr_assert_eq(latest(box), 20);
    }
    box_free(box);
}

Test(checkpoint, a_full_disk_leaves_the_one_before_and_no_pieces, .timeout = 60)
{
    struct box *box = box_new("pread");
    struct np_err err = {0};

    for (int64_t space = 0; space < 4000; space += 97) {
        struct np_io_sim_options options = {.space = space};
        struct np_io sim;
        box_empty(box);
        write_step(box, &box->io, 10, NULL);
        cr_assert_eq(np_io_open(&sim, "sim", 1, NULL), 0);
        np_io_sim_set(&sim, &options);
        err = (struct np_err){0};
        int result = write_step(box, &sim, 20, &err);
        np_io_close(&sim);
        cr_assert(result == -ENOSPC || (result == 0 && space > 2000));
        cr_assert_eq(latest(box), result == 0 ? 20 : 10);
        cr_assert_eq(leftovers(box), 0);
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

Test(checkpoint, damage_to_any_byte_is_named_and_the_one_before_is_used, .timeout = 120)
{
    static const char *const names[] = {
        "weights.safetensors", "optimizer.safetensors", "manifest.json"};
    struct box *box = box_new("pread");
    int nr_tried = 0;

    write_step(box, &box->io, 10, NULL);
    write_step(box, &box->io, 20, NULL);
    for (int f = 0; f < 3; f++)
        for (int cut = 0; cut < 2; cut++)
            for (long at = 0; at < 20000; at += cut ? 61 : 3) {
                char path[128];
                snprintf(path, sizeof(path), "%s/step-20/%s", box->dir, names[f]);
                if (!damage(path, at, cut, false))
                    break;
                int64_t step = latest(box);
                /* A flipped blank or quote in the manifest may leave the same content. */
                bool same = f == 2 && step == 20 && box->nr_damaged == 0;
                cr_assert(same || (step == 10 && box->nr_damaged == 1));
                cr_assert(same || strstr(box->damage, names[f]) != NULL);
                damage(path, at, cut, true);
                nr_tried++;
            }
    cr_assert_gt(nr_tried, 500);
    cr_assert_eq(latest(box), 20);
    box_free(box);
}

Test(checkpoint, a_missing_file_is_damage_too)
{
    struct box *box = box_new("pread");
    char path[128];
    write_step(box, &box->io, 10, NULL);
    write_step(box, &box->io, 20, NULL);
    snprintf(path, sizeof(path), "%s/step-20/optimizer.safetensors", box->dir);
    unlink(path);
    cr_assert_eq(latest(box), 10);
    cr_assert_eq(box->nr_damaged, 1);
    snprintf(path, sizeof(path), "%s/step-10/manifest.json", box->dir);
    unlink(path);
    struct np_err err = {0};
    char *facts;
    cr_assert_eq(
        np_checkpoint_latest(box->dir, &box->checkpoint, &facts, NULL, NULL, &err), -ENOENT);
    cr_assert_not_null(strstr(err.text, "all 2 are damaged"));
    box_free(box);
}

Test(checkpoint, another_network_is_refused_and_the_arrays_are_left_alone)
{
    struct box *box = box_new("pread");
    char path[128], *facts = NULL;
    struct np_err err = {0};
    write_step(box, &box->io, 10, NULL);
    snprintf(path, sizeof(path), "%s/step-10", box->dir);
    set_step(box, 5);
    tensors[3].dims[0] = 3;
    int result = np_checkpoint_read(path, &box->checkpoint, &facts, &err);
    tensors[3].dims[0] = 4;
    cr_assert_eq(result, -EINVAL);
    cr_assert_not_null(strstr(err.text, "layer1.0.bn1.bias has another shape"));
    cr_assert(is_step(box, 5));

    struct np_graph smaller = graph;
    smaller.nr_tensors--;
    box->checkpoint.graph = &smaller;
    err = (struct np_err){0};
    cr_assert_eq(np_checkpoint_read(path, &box->checkpoint, &facts, &err), -EINVAL);
    cr_assert_not_null(strstr(err.text, "1 tensors that the network does not have"));
    cr_assert(is_step(box, 5));
    box_free(box);
}

Test(checkpoint, facts_that_are_no_object_are_refused)
{
    struct box *box = box_new("pread");
    static const char *const wrong[] = {"[1]", "{", "", "7"};
    for (int i = 0; i < 4; i++) {
        box->checkpoint.facts_json = wrong[i];
        cr_assert_eq(write_step(box, &box->io, 1, NULL), -EINVAL);
        cr_assert_eq(leftovers(box), 0);
    }
    cr_assert_eq(latest(box), 0);
    box_free(box);
}

static bool has(const struct box *box, int step)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/step-%d", box->dir, step);
    return access(path, F_OK) == 0;
}

Test(checkpoint, prune_keeps_the_newest_and_the_best)
{
    struct box *box = box_new("pread");
    char path[128];
    for (uint64_t step = 10; step <= 110; step += 20)
        write_step(box, &box->io, step, NULL);
    snprintf(path, sizeof(path), "%s/.step-7.tmp", box->dir);
    np_make_dirs(path, NULL);
    snprintf(path, sizeof(path), "%s/.step-110.old", box->dir);
    np_make_dirs(path, NULL);
    snprintf(path, sizeof(path), "%s/step-5x", box->dir); /* not ours */
    np_make_dirs(path, NULL);
    cr_assert_eq(np_checkpoint_prune(box->dir, 2, 30, NULL), 0);
    cr_assert(has(box, 110) && has(box, 90) && has(box, 30));
    cr_assert_not(has(box, 70) || has(box, 50) || has(box, 10));
    cr_assert_eq(leftovers(box), 0);
    cr_assert_eq(access(path, F_OK), 0);
    cr_assert_eq(latest(box), 110);
    cr_assert_eq(np_checkpoint_prune("/nonexistent/x", 2, 30, NULL), 0);
    box_free(box);
}

Test(checkpoint, names_that_only_look_like_ours_are_left)
{
    static const char *const names[] = {"step-", "step-+3", "step-03", "step-99999999999999999999",
        ".step-3", ".step-3.tmpx", "step-3.old", "steps", "."};
    struct box *box = box_new("pread");
    char path[128];
    write_step(box, &box->io, 3, NULL);
    for (int i = 0; i < 8; i++) {
        snprintf(path, sizeof(path), "%s/%s", box->dir, names[i]);
        np_make_dirs(path, NULL);
    }
    cr_assert_eq(latest(box), 3);
    cr_assert_eq(box->nr_damaged, 0);
    cr_assert_eq(np_checkpoint_prune(box->dir, 1, 0, NULL), 0);
    for (int i = 0; i < 8; i++) {
        snprintf(path, sizeof(path), "%s/%s", box->dir, names[i]);
        cr_assert_eq(access(path, F_OK), 0);
    }
    box_free(box);
}

Test(checkpoint, a_folder_that_cannot_be_made_is_named)
{
    struct box *box = box_new("pread");
    struct np_err err = {0};
    set_step(box, 1);
    cr_assert_lt(np_checkpoint_write(&box->io, "/proc/none", &box->checkpoint, &err), 0);
    cr_assert_not_null(strstr(err.text, "/proc/none"));
    box_free(box);
}
