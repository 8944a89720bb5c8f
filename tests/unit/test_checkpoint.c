/* Checkpoints: round trip, contents, refused files, pruning. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "loader/base/mem.h"
#include "tests/test.h"
#include "tests/unit/made_checkpoint.h"
#include "trainer/checkpoint/checkpoint_names.h"
#include "trainer/checkpoint/safetensors.h"

/* The one from before stays the newest, whichever number it is that has gone. */
Test(checkpoint, weights_that_are_not_numbers_are_refused)
{
    static const float odd[] = {NAN, INFINITY, -INFINITY};
    struct box *box = box_new("pread");

    cr_assert_eq(box_write(box, &box->io, 1, NULL), 0);
    for (int i = 0; i < 6; i++) {
        struct np_err err = {0};

        box_set_step(box, 2);
        if (i < 3)
            box->params[20 * i] = odd[i];
        else
            box->buffers[i] = odd[i - 3];
        cr_assert_eq(np_checkpoint_write(&box->io, box->dir, &box->checkpoint, &err), -EDOM);
        cr_assert_not_null(strstr(err.text, "no longer finite"));
        cr_assert_eq(box_latest(box), 1);
        cr_assert_eq(box_leftovers(box), 0);
    }
    box_free(box);
}

Test(checkpoint, a_written_checkpoint_reads_back)
{
    struct box *box = box_new("pread");
    struct np_err err = {0};
    cr_assert_eq(box_latest(box), 0);
    cr_assert_eq(box_write(box, &box->io, 10, &err), 0);
    cr_assert_eq(box_write(box, &box->io, 9, &err), 0);
    cr_assert_eq(box_latest(box), 10);
    cr_assert_eq(box->nr_damaged, 0);
    cr_assert_eq(box_leftovers(box), 0);
    box_free(box);
}

Test(checkpoint, nan_and_infinity_come_back)
{
    struct box *box = box_new("pread");
    char path[128], *facts = NULL;
    box_set_step(box, 1);
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
    cr_assert_eq(box_write(box, &box->io, 77, NULL), 0);
    snprintf(path, sizeof(path), "%s/step-77/weights.safetensors", box->dir);
    cr_assert_eq(np_st_open(path, &file, NULL), 0);
    cr_assert_eq(file->n, 6);
    const struct np_st_tensor *tensor = np_st_find(file, "layer1.0.bn1.num_batches_tracked");
    cr_assert_not_null(tensor);
    cr_assert_eq(tensor->nr_dims, 0);
    cr_assert_str_eq(tensor->dtype, "I64");
    cr_assert_eq(np_st_read(file, tensor, 0, &count, 8, NULL), 0);
    cr_assert_eq(count, 77);
    cr_assert_eq(np_st_find(file, "conv1.weight")->dims[1], 3);
    cr_assert_null(np_st_find(file, "a"));
    np_st_close(file);
    snprintf(path, sizeof(path), "%s/step-77/optimizer.safetensors", box->dir);
    cr_assert_eq(np_st_open(path, &file, NULL), 0);
    cr_assert_eq(file->n, 6);
    cr_assert_not_null(np_st_find(file, "state1.conv1.weight"));
    np_st_close(file);
    box_free(box);
}

Test(checkpoint, an_optimizer_without_state_is_fine)
{
    struct box *box = box_new("pread");
    char *facts = NULL;
    box->checkpoint.state[0] = box->checkpoint.state[1] = NULL;
    cr_assert_eq(box_write(box, &box->io, 3, NULL), 0);
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
    cr_assert_eq(box_write(box, &box->io, 20, NULL), 0);
    box_set_step(box, 20);
    box->checkpoint.position.eval_due = false;
    cr_assert_eq(np_checkpoint_write(&box->io, box->dir, &box->checkpoint, NULL), 0);
    box_latest(box);
    cr_assert_eq(box->checkpoint.position.step, 20);
    cr_assert_not(box->checkpoint.position.eval_due);
    cr_assert_eq(box_leftovers(box), 0);
    box_free(box);
}

Test(checkpoint, another_network_is_refused_and_the_arrays_are_left_alone)
{
    struct box *box = box_new("pread");
    char path[128], *facts = NULL;
    struct np_err err = {0};
    box_write(box, &box->io, 10, NULL);
    snprintf(path, sizeof(path), "%s/step-10", box->dir);
    box_set_step(box, 5);
    box->checkpoint.graph->tensors[3].dims[0] = 3;
    int result = np_checkpoint_read(path, &box->checkpoint, &facts, &err);
    box->checkpoint.graph->tensors[3].dims[0] = 4;
    cr_assert_eq(result, -EINVAL);
    cr_assert_not_null(strstr(err.text, "layer1.0.bn1.bias has another shape"));
    cr_assert(box_is_step(box, 5));

    struct np_graph smaller = *box->checkpoint.graph;
    smaller.nr_tensors--;
    box->checkpoint.graph = &smaller;
    err = (struct np_err){0};
    cr_assert_eq(np_checkpoint_read(path, &box->checkpoint, &facts, &err), -EINVAL);
    cr_assert_not_null(strstr(err.text, "1 tensors that the network does not have"));
    cr_assert(box_is_step(box, 5));
    box_free(box);
}

Test(checkpoint, facts_that_are_not_an_object_are_refused)
{
    struct box *box = box_new("pread");
    static const char *const wrong[] = {"[1]", "{", "", "7"};
    for (int i = 0; i < 4; i++) {
        box->checkpoint.facts_json = wrong[i];
        cr_assert_eq(box_write(box, &box->io, 1, NULL), -EINVAL);
        cr_assert_eq(box_leftovers(box), 0);
    }
    cr_assert_eq(box_latest(box), 0);
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
        box_write(box, &box->io, step, NULL);
    snprintf(path, sizeof(path), "%s/.step-7.tmp", box->dir);
    np_make_dirs(path, NULL);
    snprintf(path, sizeof(path), "%s/.step-110.old", box->dir);
    np_make_dirs(path, NULL);
    snprintf(path, sizeof(path), "%s/step-5x", box->dir); /* not ours */
    np_make_dirs(path, NULL);
    cr_assert_eq(np_checkpoint_prune(box->dir, 2, 110, 30, NULL), 0);
    cr_assert(has(box, 110) && has(box, 90) && has(box, 30));
    cr_assert_not(has(box, 70) || has(box, 50) || has(box, 10));
    cr_assert_eq(box_leftovers(box), 0);
    cr_assert_eq(access(path, F_OK), 0);
    cr_assert_eq(box_latest(box), 110);
    cr_assert_eq(np_checkpoint_prune("/nonexistent/x", 2, 110, 30, NULL), 0);
    box_free(box);
}

/* A run that is resumed behind two damaged checkpoints, and keeps two. */
Test(checkpoint, prune_counts_only_whole_ones)
{
    struct box *box = box_new("pread");

    for (uint64_t step = 10; step <= 50; step += 10)
        box_write(box, &box->io, step, NULL);
    cr_assert_eq(np_checkpoint_prune(box->dir, 2, 30, 0, NULL), 0);
    cr_assert(has(box, 30) && has(box, 20));
    cr_assert_not(has(box, 50) || has(box, 40) || has(box, 10));
    box_free(box);
}

/* The step that the link names; 0: none. */
static uint64_t best_of(const struct box *box)
{
    char path[128], to[64] = "";

    snprintf(path, sizeof(path), "%s/best", box->dir);
    return readlink(path, to, sizeof(to) - 1) > 5 ? strtoull(to + 5, NULL, 10) : 0;
}

Test(checkpoint, best_names_the_best_checkpoint)
{
    struct box *box = box_new("pread");
    struct np_checkpoint *checkpoint = &box->checkpoint;
    struct np_err err = {0};
    char path[128], *facts = NULL;

    box_write(box, &box->io, 10, NULL);
    box_write(box, &box->io, 20, NULL);
    cr_assert_eq(np_checkpoint_name_best(&box->io, box->dir, 0, NULL), 0);
    cr_assert_eq(np_checkpoint_name_best(&box->io, box->dir, 30, NULL), 0); /* not there */
    cr_assert_eq(best_of(box), 0);
    for (uint64_t step = 10; step <= 20; step += 10)
        for (int again = 0; again < 2; again++) {
            cr_assert_eq(np_checkpoint_name_best(&box->io, box->dir, step, &err), 0);
            cr_assert_eq(best_of(box), step);
        }
    box_write(box, &box->io, 40, NULL);
    box_write(box, &box->io, 50, NULL);
    cr_assert_eq(np_checkpoint_prune(box->dir, 2, 50, 20, NULL), 0);
    snprintf(path, sizeof(path), "%s/best", box->dir);
    cr_assert_eq(np_checkpoint_read(path, checkpoint, &facts, NULL), 0);
    cr_assert(box_is_step(box, 20));
    np_free(facts);
    cr_assert_eq(box_latest(box), 50); /* it is none of them */
    box_free(box);
}

Test(checkpoint, a_failed_rename_to_best_is_an_error_and_leaves_nothing)
{
    struct box *box = box_new("pread");
    struct np_err err = {0};
    char path[128];

    box_write(box, &box->io, 10, NULL);
    snprintf(path, sizeof(path), "%s/best/x", box->dir); /* a folder of that name */
    np_make_dirs(path, NULL);
    cr_assert(np_checkpoint_name_best(&box->io, box->dir, 10, &err) < 0);
    cr_assert_not_null(strstr(err.text, "best"));
    snprintf(path, sizeof(path), "%s/.best.new", box->dir);
    cr_assert(access(path, F_OK) < 0);
    snprintf(path, sizeof(path), "%s/best/x", box->dir);
    cr_assert_eq(rmdir(path), 0);
    box_free(box);
}

Test(checkpoint, folders_with_similar_names_are_left_alone)
{
    static const char *const names[] = {"step-", "step-+3", "step-03", "step-99999999999999999999",
        ".step-3", ".step-3.tmpx", "step-3.old", "steps", "."};
    struct box *box = box_new("pread");
    char path[128];
    box_write(box, &box->io, 3, NULL);
    for (int i = 0; i < 8; i++) {
        snprintf(path, sizeof(path), "%s/%s", box->dir, names[i]);
        np_make_dirs(path, NULL);
    }
    cr_assert_eq(box_latest(box), 3);
    cr_assert_eq(box->nr_damaged, 0);
    cr_assert_eq(np_checkpoint_prune(box->dir, 1, 3, 0, NULL), 0);
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
    box_set_step(box, 1);
    cr_assert_lt(np_checkpoint_write(&box->io, "/proc/none", &box->checkpoint, &err), 0);
    cr_assert_not_null(strstr(err.text, "/proc/none"));
    box_free(box);
}

Test(checkpoint, names_are_parsed_strictly)
{
    static const char *const others[] = {"best", "step-", "step-07", "step-+7", "step-7x",
        "step-7.old", ".step-7", ".step-7.odd", "step-18446744073709551616", "STEP-7"};
    struct np_checkpoint_name name;

    for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++)
        cr_assert_not(np_checkpoint_name_parse(others[i], &name), "%s", others[i]);
    cr_assert(np_checkpoint_name_parse("step-18446744073709551615", &name));
    cr_assert_eq(name.step, UINT64_MAX);
    cr_assert_eq(name.kind, NP_CHECKPOINT_FINAL);
    cr_assert(np_checkpoint_name_parse(".step-7.old", &name));
    cr_assert_eq(name.kind, NP_CHECKPOINT_OLD);
    cr_assert(np_checkpoint_name_parse(".step-7.tmp", &name));
    cr_assert_eq(name.kind, NP_CHECKPOINT_INCOMPLETE);
    cr_assert_str_eq(name.text, ".step-7.tmp");
}

/* Numbers, not texts, are compared; of one step the final one comes before that which made room for it. */
Test(checkpoint, names_come_newest_first)
{
    static const char *const made[] = {".step-9.old", "step-10", "other", "step-9", ".step-11.tmp"};
    static const char *const expected[] = {".step-11.tmp", "step-10", "step-9", ".step-9.old"};
    struct box *box = box_new("pread");
    struct np_checkpoint_name *names = NULL;
    char path[200];
    int n = -1;

    cr_assert_eq(np_checkpoint_names("nothing/here", &names, &n, NULL), 0);
    cr_assert_eq(n, 0);
    mkdir(box->dir, 0777);
    for (size_t i = 0; i < sizeof(made) / sizeof(*made); i++) {
        snprintf(path, sizeof(path), "%s/%s", box->dir, made[i]);
        cr_assert_eq(mkdir(path, 0777), 0);
    }
    cr_assert_eq(np_checkpoint_names(box->dir, &names, &n, NULL), 0);
    cr_assert_eq(n, 4);
    for (int i = 0; i < n; i++)
        cr_assert_str_eq(names[i].text, expected[i]);
    np_free(names);
    for (size_t i = 0; i < sizeof(made) / sizeof(*made); i++) {
        snprintf(path, sizeof(path), "%s/%s", box->dir, made[i]);
        rmdir(path);
    }
    box_free(box);
}

/* Its weights are whole, as requested. A run cannot resume from it. */
Test(checkpoint, the_newest_may_lack_its_optimizer)
{
    struct box *box = box_new("pread");
    char path[200], *newest = NULL, *facts = NULL;

    cr_assert_eq(np_checkpoint_newest(box->dir, &newest, NULL, NULL, NULL), -ENOENT);
    cr_assert_eq(box_write(box, &box->io, 4, NULL), 0);
    cr_assert_eq(box_write(box, &box->io, 12, NULL), 0);
    snprintf(path, sizeof(path), "%s/step-12/optimizer.safetensors", box->dir);
    cr_assert_eq(unlink(path), 0);
    cr_assert_eq(np_checkpoint_newest(box->dir, &newest, NULL, NULL, NULL), 0);
    snprintf(path, sizeof(path), "%s/step-12", box->dir);
    cr_assert_str_eq(newest, path);
    np_free(newest);
    cr_assert_eq(np_checkpoint_latest(box->dir, &box->checkpoint, &facts, NULL, NULL, NULL), 0);
    cr_assert_eq(box->checkpoint.position.step, 4);
    np_free(facts);
    box_free(box);
}
