/* See network.h. */
#include "daemon/config/network.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* An image size and class count that most models accept. */
#define GUESS_SIDE         224
#define GUESS_SMALL        96 /* sets of images up to this size have few classes */
#define GUESS_CLASSES      10
#define GUESS_MANY_CLASSES 1000

void np_network_input(const struct np_network *network, int height, int width, int classes,
    enum np_dtype precision, struct np_graph_input *ret_input)
{
    *ret_input = (struct np_graph_input){
        .batch = (int)network->loader->batch,
        .height = height,
        .width = width,
        .channels = (int)network->loader->channels,
        .classes = classes,
        .mean = network->loader->mean,
        .std = network->loader->std,
        .precision = precision,
        .seed = (uint64_t)network->seed,
    };
}

struct np_graph *np_network_build(
    const struct np_network *network, const struct np_graph_input *input, struct np_report *report)
{
    return np_graph_build(network->model, network->blocks, network->loss, input, report);
}

static int guess_side(const struct np_source_options *source)
{
    if (!source->source)
        return GUESS_SIDE;
    return strcmp(source->source, "cifar10") == 0 ? 32
           : strcmp(source->source, "idx") == 0   ? 28
           : strcmp(source->source, "synth") == 0 ? (int)source->size
                                                  : GUESS_SIDE;
}

bool np_network_guess(const struct np_network *network, int *height, int *width, int *classes,
    char text[NP_GUESS_TEXT])
{
    bool size = *height == 0, count = *classes == 0;

    if (size)
        *height = *width = guess_side(network->train);
    if (count)
        *classes = *height > GUESS_SMALL ? GUESS_MANY_CLASSES : GUESS_CLASSES;
    if (size && count)
        snprintf(text, NP_GUESS_TEXT, "images of %dx%d and %d classes are assumed", *width, *height,
            *classes);
    else if (size)
        snprintf(text, NP_GUESS_TEXT, "images of %dx%d are assumed", *width, *height);
    else if (count)
        snprintf(text, NP_GUESS_TEXT, "%d classes are assumed", *classes);
    return size || count;
}

int np_network_check(
    const struct np_network *network, int height, int width, int classes, struct np_report *report)
{
    char guess[NP_GUESS_TEXT];
    struct np_graph_input input;
    bool guessed = classes == 0;

    np_network_guess(network, &height, &width, &classes, guess);
    np_network_input(network, height, width, classes, NP_F32, &input);
    input.classes_guessed = guessed;
    if (input.batch < 1) /* reported already */
        input.batch = 1;
    if (input.channels != 1)
        input.channels = 3;
    struct np_graph *graph = np_network_build(network, &input, report);
    np_graph_free(graph);
    return graph ? 0 : -EINVAL;
}
