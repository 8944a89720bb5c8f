#include "daemon/run/one_row.h"

#include "daemon/config/config.h"
#include "loader/base/mem.h"
#include "loader/row.h"

struct np_one_row {
    struct np_row_maker *maker;
    struct np_index index; /* of a set that has no samples: pictures are given */
    struct np_set sets[2];
};

size_t np_one_row_bytes(const struct np_inference *net)
{
    return (size_t)net->setup.sets.size.height * (size_t)net->setup.sets.size.width *
           (size_t)net->config->loader.channels;
}

int np_one_row_new(
    const struct np_inference *net, struct np_one_row **ret_maker, struct np_err *err)
{
    const struct np_loader_options *loader = &net->config->loader;
    struct np_one_row *one = np_alloc(sizeof(*one));
    static char no_root[] = "";

    one->index.root = no_root; /* each picture is a file of its own: no checksums */
    one->sets[NP_BATCH_EVAL] = (struct np_set){.index = &one->index, .chain = loader->test_augment};
    const struct np_row_options options = {.sets = one->sets,
        .shape = {.rows = 1,
            .height = net->setup.sets.size.height,
            .width = net->setup.sets.size.width,
            .channels = (int)loader->channels},
        .seed = (uint64_t)net->config->seed,
        .rule = (enum np_pixels_rule)loader->pixels,
        .max_pixels = (uint64_t)loader->max_pixels};
    const int code = np_row_maker_new(&options, &one->maker, err);
    if (code < 0)
        np_one_row_free(one);
    else
        *ret_maker = one;
    return code;
}

void np_one_row_free(struct np_one_row *one)
{
    if (!one)
        return;
    np_row_maker_free(one->maker);
    np_free(one);
}

int np_one_row_make(
    struct np_one_row *one, const void *bytes, size_t nr_bytes, uint8_t *row, struct np_err *err)
{
    const struct np_ticket ticket = {.kind = NP_BATCH_EVAL};
    const struct np_record record = {
        .bytes = (uint32_t)nr_bytes, .inner_bytes = (uint32_t)nr_bytes};
    struct np_row about;
    struct np_making making = {
        .ticket = &ticket, .record = &record, .out = row, .about = &about, .extent = bytes};

    return np_row_make(one->maker, &making, err);
}
