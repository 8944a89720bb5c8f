/* See made_checkpoint.h. */
#include "tests/unit/made_checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "loader/base/mem.h"
#include "trainer/checkpoint/checkpoint_dir.h"
#include "trainer/checkpoint/checkpoint_names.h"

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

void box_set_step(struct box *box, uint64_t step)
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
        .losses_bytes = step * 9,
        .best_accuracy = 1.0 / 3,
        .best_step = step / 2,
        .loss_sum = 0.1 * (double)step};
}

bool box_is_step(const struct box *box, uint64_t step)
{
    static struct box want;
    const struct np_position *position = &box->checkpoint.position;

    box_set_step(&want, step);
    return memcmp(box->params, want.params, sizeof(want.params)) == 0 &&
           memcmp(box->buffers, want.buffers, sizeof(want.buffers)) == 0 &&
           memcmp(box->states, want.states, sizeof(want.states)) == 0 && position->step == step &&
           position->eval_due == want.checkpoint.position.eval_due &&
           position->ticket_hash == want.checkpoint.position.ticket_hash &&
           position->history_bytes == step * 8 && position->losses_bytes == step * 9 &&
           position->best_accuracy == 1.0 / 3 && position->best_step == step / 2 &&
           position->loss_sum == 0.1 * (double)step;
}

struct box *box_new(const char *backend)
{
    static struct box box;

    box =
        (struct box){.checkpoint = {.graph = &graph, .facts_json = "{\"classes\":[\"b\",\"a\"]}"}};
    box.checkpoint.params = box.params;
    box.checkpoint.buffers = box.buffers;
    box.checkpoint.state[0] = box.states[0];
    box.checkpoint.state[1] = box.states[1];
    /* The loss of a disk is simulated; a real sync would only cost time. */
    snprintf(box.dir, sizeof(box.dir), "%s/nnpipe-checkpoint.XXXXXX",
        access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    if (mkdtemp(box.dir) == NULL || np_io_open(&box.io, backend, 1, NULL) < 0)
        abort();
    return &box;
}

void box_empty(const struct box *box)
{
    char path[512];
    DIR *dir = opendir(box->dir);
    const struct dirent *item;

    while (dir != NULL && (item = readdir(dir)) != NULL)
        if (strcmp(item->d_name, ".") != 0 && strcmp(item->d_name, "..") != 0) {
            snprintf(path, sizeof(path), "%s/%s", box->dir, item->d_name);
            if (unlink(path) < 0) /* no link */
                np_remove_folder(path);
        }
    closedir(dir);
}

void box_free(struct box *box)
{
    np_io_close(&box->io);
    box_empty(box);
    rmdir(box->dir);
}

int box_write(struct box *box, struct np_io *io, uint64_t step, struct np_err *err)
{
    box_set_step(box, step);
    return np_checkpoint_write(io, box->dir, &box->checkpoint, err);
}

static void note_damage(void *context, const char *text)
{
    struct box *box = context;

    box->nr_damaged++;
    snprintf(box->damage, sizeof(box->damage), "%s", text);
}

int64_t box_latest(struct box *box)
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
    return right && box_is_step(box, box->checkpoint.position.step)
               ? (int64_t)box->checkpoint.position.step
               : -1;
}

int box_leftovers(const struct box *box)
{
    DIR *dir = opendir(box->dir);
    const struct dirent *item;
    int n = 0;

    while ((item = readdir(dir)) != NULL)
        n += item->d_name[0] == '.' && strncmp(item->d_name, ".step", 5) == 0;
    closedir(dir);
    return n;
}
