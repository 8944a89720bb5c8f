/* The networks of configs/ have exactly torchvision's names and shapes, ViT timm's: tests/golden/networks/
 * holds those of its state, written by tests/golden/networks.py. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/kernel/made_graphs.h"
#include "tests/test.h"

/* "features.0.0.weight 32 3 3 3" of tensor t. */
static void write_line(const struct np_tensor *tensor, char line[512])
{
    size_t at = (size_t)snprintf(line, 512, "%s", tensor->name);

    for (int d = 0; d < tensor->nr_dims; d++)
        at += (size_t)snprintf(line + at, 512 - at, " %d", tensor->dims[d]);
}

/* Parameters and buffers of the graph that a line of the file describes; prints other lines. */
static int nr_found(const struct np_graph *graph, FILE *file, int *ret_lines)
{
    char wanted[512], have[512];
    int found = 0;

    for (*ret_lines = 0; fgets(wanted, sizeof(wanted), file); ++*ret_lines) {
        wanted[strcspn(wanted, "\n")] = '\0';
        wanted[strcspn(wanted, " ")] = '\0';
        int t = made_tensor(graph, wanted);
        wanted[strlen(wanted)] = ' ';
        if (t >= 0)
            write_line(&graph->tensors[t], have);
        if (t >= 0 && strcmp(have, wanted) == 0)
            found++;
        else
            fprintf(stderr, "missing: %s\n", wanted);
    }
    return found;
}

static bool has_state_of(const char *name)
{
    char path[128];
    snprintf(path, sizeof(path), "configs/%s.yaml", name);
    char *text = made_read(path);
    struct np_graph *graph = made_good_graph(text, (struct made){2, 224, 224, 3, 1000, NP_F32});
    snprintf(path, sizeof(path), "tests/golden/networks/%s.txt", name);
    FILE *file = fopen(path, "r");
    int states = 0, lines = 0, found;

    free(text);
    if (!graph || !file)
        return false;
    found = nr_found(graph, file, &lines);
    for (int t = 0; t < graph->nr_tensors; t++)
        states +=
            graph->tensors[t].role == NP_ROLE_PARAM || graph->tensors[t].role == NP_ROLE_BUFFER;
    fclose(file);
    np_graph_free(graph);
    return found == lines && states == lines;
}

Test(networks, have_torchvisions_names_and_shapes)
{
    cr_expect(has_state_of("efficientnet_b0"));
    cr_expect(has_state_of("mobilenet_v2"));
    cr_expect(has_state_of("squeezenet"));
    cr_expect(has_state_of("vgg16"));
    cr_expect(has_state_of("convnext_tiny"));
}

Test(networks, vision_transformer_has_timms_names_and_shapes)
{
    cr_expect(has_state_of("vit_tiny"));
}
