/* See made_graphs.h. */
#include "tests/kernel/made_graphs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/config/config.h"
#include "loader/base/config_file.h"
#include "loader/base/yaml.h"

struct np_graph *made_typed_graph(
    const char *text, struct made made, enum np_label_type type, struct np_report *report)
{
    static const float mean[4] = {0.5f, 0.4f, 0.3f, 0.2f}, std[4] = {0.25f, 0.2f, 0.3f, 0.5f};
    struct np_graph_input input = {.batch = made.batch,
        .height = made.height,
        .width = made.width,
        .channels = made.channels,
        .classes = made.classes,
        .mean = mean,
        .std = std,
        .precision = made.precision,
        .label_type = type,
        .seed = 7};
    struct np_node *root = NULL;
    struct np_graph *graph = NULL;

    if (np_yaml_parse(text, strlen(text), &root, report) == 0)
        graph = np_graph_build(np_node_get(root, "model"), np_node_get(root, "blocks"),
            np_node_get(root, "loss"), &input, report);
    np_node_free(root);
    return graph;
}

struct np_graph *made_graph(const char *text, struct made made, struct np_report *report)
{
    return made_typed_graph(text, made, NP_LABEL_CLASS, report);
}

struct np_graph *made_good_typed_graph(const char *text, struct made made, enum np_label_type type)
{
    struct np_report report;
    struct np_graph *graph;

    np_report_init(&report, "test.yaml");
    graph = made_typed_graph(text, made, type, &report);
    for (int i = 0; i < report.nr_errs; i++) {
        char line[1024];

        np_err_format(&report.errs[i], line, sizeof(line));
        fprintf(stderr, "%s\n", line);
    }
    np_report_fini(&report);
    return graph;
}

struct np_graph *made_good_graph(const char *text, struct made made)
{
    return made_good_typed_graph(text, made, NP_LABEL_CLASS);
}

char *made_read(const char *path)
{
    struct np_config_file file;
    struct np_report report;
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);

    np_report_init(&report, path);
    if (np_config_file_read(path, &file, &report) == 0)
        np_node_print(out, file.root);
    fclose(out);
    np_config_file_fini(&file);
    np_report_fini(&report);
    return text;
}

int made_tensor(const struct np_graph *graph, const char *name)
{
    for (int t = 0; t < graph->nr_tensors; t++)
        if ((graph->tensors[t].role == NP_ROLE_PARAM || graph->tensors[t].role == NP_ROLE_BUFFER) &&
            strcmp(graph->tensors[t].name, name) == 0)
            return t;
    return -1;
}
